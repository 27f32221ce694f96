"""Where rows stand in vLLM's paged caches: a table of known layouts, each proved before it is used.

    columns   vLLM 0.32, CPU, "vec": [block][head]{ K [d][token], V [token][d] }

The proof: a pattern that the backend's own do_kv_cache_update wrote into one block is read back
by the description, bit for bit; the block is zeroed again. A layout that is guessed looks right
until two prompts part inside a block; one that is not in the table, or not as it says, is left to
the writer's way (staged.py).

Holds: every address that a description names lies inside its tensor.
"""
import ctypes

import torch

from .. import abi
from .memories import Memories, place_of, words_of

DTYPES = {torch.float32: abi.DTYPE_F32, torch.float16: abi.DTYPE_F16,
          torch.bfloat16: abi.DTYPE_BF16}
KNOWN = {("0.32", "cpu", "vec")}  # version, device, instruction set of the kernels


def row_dtype(config, spec):
    """What rows are before they go into a cache: narrower caches are filled by their backend. None:
    not one that is stored."""
    dtype = spec.dtype if spec.dtype in DTYPES else config.model_config.dtype
    return dtype if dtype in DTYPES else None


def pattern(rows, heads, size, dtype):
    """K and V of so many rows: none zero, between -4 and 4, so that fp8 holds something of each."""
    numbers = torch.arange(2 * rows * heads * size, dtype=torch.int64)
    values = ((numbers * 40503 + 12345) % 30011 * 2 - 30011) / 8000  # odd / 8000: none is 0
    return values.to(dtype).view(2, rows, heads, size)


class Caches:
    """The caches of all layers, in the order of their numbers."""

    def __init__(self, config, group, caches):
        from vllm.model_executor.models.utils import extract_layer_index
        spec = group.kv_cache_spec
        self.names = sorted(group.layer_names, key=extract_layer_index)
        missing = [name for name in self.names if name not in caches]
        if missing:
            raise ValueError(f"no cache was registered for {missing[0]}")
        self.index = {name: i for i, name in enumerate(self.names)}
        self.count, self.block = len(self.names), spec.block_size
        self.heads, self.size = spec.num_kv_heads, spec.head_size
        self.row_dtype = row_dtype(config, spec)
        self.tensors = [caches[name] for name in self.names]
        context = config.compilation_config.static_forward_context
        self.modules = [context[name] for name in self.names]

    def slots_of(self, blocks):
        """Numbers of the places of these blocks' tokens, in their order. One by one in Python,
        those of 8,000 tokens took longer than a layer of theirs."""
        first = torch.tensor(blocks, dtype=torch.int64).unsqueeze(1) * self.block
        return (first + torch.arange(self.block)).flatten()

    def write(self, layer, key, value, slots):
        """By the backend, as it writes rows of its own."""
        module = self.modules[layer]
        module.impl.do_kv_cache_update(module, key, value, self.tensors[layer], slots)


class Direct:
    """Rows go between the plugin and the paged cache itself, by a description of it.

    take() and source() say which rows, one place each; into() and outof() describe several of
    them, layer after layer (memories.py)."""

    is_in_place = True  # rows come to where they stay

    def __init__(self, caches, version):
        self.caches = caches
        self.element = caches.tensors[0].element_size()
        self.layers = [self._shape(tensor) for tensor in caches.tensors]
        for layer, name in enumerate(caches.names):
            self._check(version, name, layer)
        for layer, name in enumerate(caches.names):
            self._prove(name, layer)

    def _check(self, version, name, layer):
        caches, tensor = self.caches, self.caches.tensors[layer]
        isa = getattr(caches.modules[layer], "isa", "unknown")
        known = (".".join(version.split(".")[:2]), tensor.device.type, isa)
        if known not in KNOWN:
            raise ValueError(f"vLLM {version} on {tensor.device.type} ({isa}) is not in the table "
                             "of layouts")
        shape = (tensor.shape[0], caches.heads, caches.block, 2 * caches.size)
        if (tensor.dtype != caches.row_dtype or tuple(tensor.shape) != shape
                or tensor.stride(3) != 1 or tensor.stride(2) != 2 * caches.size):
            raise ValueError(f"the cache of {name} is {tuple(tensor.shape)} {tensor.dtype} with "
                             f"strides {tensor.stride()}, not as the table has it")

    def _prove(self, name, layer):
        """In the last block, which is not any request's yet."""
        caches, tensor = self.caches, self.caches.tensors[layer]
        number, block = tensor.shape[0] - 1, caches.block
        key, value = pattern(block, caches.heads, caches.size, caches.row_dtype)
        slots = torch.arange(block, dtype=torch.int64) + number * block
        caches.write(layer, key, value, slots)
        memory = self.into([self.take([number])]).aim(layer)[0]
        parts = ((memory.k_base, memory.token_stride_bytes, memory.k_element_stride_bytes, key),
                 (memory.v_base, memory.v_token_stride_bytes, self.element, value))
        same = [torch.equal(self._view(tensor, base + number * memory.block_stride_bytes,
                                       (token, memory.head_stride_bytes, stride)), rows)
                for base, token, stride, rows in parts]
        tensor[number].zero_()
        if not all(same):
            raise ValueError(f"the cache of {name} is not laid out as the table has it: "
                             f"K {same[0]}, V {same[1]}")

    def _view(self, tensor, address, strides):
        """One block's rows [token][head][element], as a description has them."""
        caches, element = self.caches, self.element
        return torch.as_strided(tensor, (caches.block, caches.heads, caches.size),
                                [stride // element for stride in strides],
                                (address - tensor.untyped_storage().data_ptr()) // element)

    def begin(self):
        """A step's loads come."""

    def take(self, blocks):
        """Where a load's rows come into; None: there is no room."""
        return self.slots(blocks)

    def source(self, blocks, first, end):
        """Where rows [first, end) are now, and how far they go."""
        block = self.caches.block
        slots = self.slots(blocks[first // block:-(-end // block)], first % block)
        return (ctypes.c_int64 * (end - first)).from_buffer(slots), end

    def slots(self, blocks, skipped=0):
        """Of the tokens of these blocks, but for the first `skipped`, as a C array."""
        slots = self.caches.slots_of(blocks)[skipped:].numpy()
        return (ctypes.c_int64 * len(slots)).from_buffer(slots)

    def _shape(self, tensor):
        """A layer's part of descriptions: all but the slots."""
        element, caches = self.element, self.caches
        base, rows = tensor.data_ptr(), caches.block * caches.size * element
        total = tensor.untyped_storage().data_ptr() + tensor.untyped_storage().nbytes() - base
        return words_of(abi.Memory(
            dtype=DTYPES[caches.row_dtype], k_base=base, v_base=base + rows, k_bytes=total,
            v_bytes=total - rows, token_stride_bytes=element,
            k_element_stride_bytes=caches.block * element,
            v_token_stride_bytes=caches.size * element,
            head_stride_bytes=tensor.stride(1) * element,
            block_stride_bytes=tensor.stride(0) * element, block_tokens=caches.block))

    def into(self, places):
        return Memories(self.layers, [place_of(slots=ctypes.addressof(slots), slot_count=len(slots))
                                      for slots in places], places)

    outof = into

    def arrived(self, layer, places):
        """Rows of these places are delivered."""

    def end(self):
        """Nothing is loaded or stored from now on."""
