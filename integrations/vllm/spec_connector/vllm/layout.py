"""Where rows stand in vLLM's paged caches: a table of known layouts, each proved before it is used.

    columns   vLLM 0.32, CPU, "vec": [block][head]{ K [d][token], V [token][d] }

The proof: a pattern that the backend's own do_kv_cache_update wrote into one block is read back
by the description, bit for bit; the block is zeroed again. An engine whose caches are not as the
table says is served without the tier: a layout that is guessed looks right until two prompts part
inside a block.

Holds: every address that a description names lies inside its tensor.
"""
import ctypes

import torch

from .. import abi

DTYPES = {torch.float32: abi.DTYPE_F32, torch.float16: abi.DTYPE_F16,
          torch.bfloat16: abi.DTYPE_BF16}
INTEGERS = {2: torch.int16, 4: torch.int32}


def dtype_of(dtype):
    """None: not one that is stored."""
    return DTYPES.get(dtype)


class Cache:
    """The caches of all layers, in the order of their numbers; every layer has the same layout."""

    def __init__(self, config, group, caches):
        from vllm.model_executor.models.utils import extract_layer_index
        spec = group.kv_cache_spec
        names = sorted(group.layer_names, key=extract_layer_index)
        missing = [name for name in names if name not in caches]
        if missing:
            raise ValueError(f"no cache was registered for {missing[0]}")
        self.index = {name: i for i, name in enumerate(names)}
        self.layers, self.block = len(names), spec.block_size
        self.heads, self.size, self.dtype = spec.num_kv_heads, spec.head_size, spec.dtype
        self.tensors = [caches[name] for name in names]
        self.element = self.tensors[0].element_size()
        for name, tensor in zip(names, self.tensors):
            self._check(name, tensor)
        layers = config.compilation_config.static_forward_context
        for name, tensor in zip(names, self.tensors):
            self._prove(name, layers[name], tensor)

    def _check(self, name, tensor):
        shape = (tensor.shape[0], self.heads, self.block, 2 * self.size)
        if (tensor.device.type != "cpu" or tensor.dtype != self.dtype
                or tuple(tensor.shape) != shape or tensor.stride(3) != 1
                or tensor.stride(2) != 2 * self.size):
            raise ValueError(f"the cache of {name} is {tuple(tensor.shape)} {tensor.dtype} on "
                             f"{tensor.device} with strides {tensor.stride()}: not a known layout")

    def _prove(self, name, layer, tensor):
        """In the last block, which is not any request's yet."""
        number = tensor.shape[0] - 1
        bits = torch.arange(2 * self.block * self.heads * self.size, dtype=torch.int64)
        bits = (bits * 40503 + 12345) % 30011 + 64  # all finite, none zero, in every dtype
        pattern = bits.to(INTEGERS[self.element]).view(self.dtype)
        key, value = pattern.view(2, self.block, self.heads, self.size).clone()
        slots = torch.arange(self.block, dtype=torch.int64) + number * self.block
        layer.impl.do_kv_cache_update(layer, key, value, tensor, slots)
        memory = self.memory(self.index[name], self.slots([number]))
        k, v = torch.empty_like(key), torch.empty_like(value)
        for token in range(self.block):
            for head in range(self.heads):
                at = ((number * memory.block_stride_bytes) + head * memory.head_stride_bytes)
                k[token, head] = self._strided(
                    memory.k_base + at + token * memory.token_stride_bytes,
                    memory.k_element_stride_bytes)
                v[token, head] = self._strided(
                    memory.v_base + at + token * memory.v_token_stride_bytes, self.element)
        tensor[number].zero_()
        same = [torch.equal(a.view(INTEGERS[self.element]), b.view(INTEGERS[self.element]))
                for a, b in ((k, key), (v, value))]
        if not all(same):
            raise ValueError(f"the cache of {name} is not laid out as vLLM 0.32 has it on this CPU "
                             f"(isa {getattr(layer, 'isa', 'unknown')}): K {same[0]}, V {same[1]}")

    def _strided(self, address, stride):
        count = (self.size - 1) * stride + self.element
        raw = torch.frombuffer((ctypes.c_uint8 * count).from_address(address), dtype=torch.uint8)
        parts = [raw[i * stride:i * stride + self.element] for i in range(self.size)]
        return torch.stack(parts).contiguous().view(self.dtype).flatten()

    def slots(self, blocks, skipped=0):
        """Slots of the tokens of these blocks, but for the first `skipped`, as a C array."""
        return abi.int64s([b * self.block + i for b in blocks
                           for i in range(self.block)][skipped:])

    def memory(self, layer, slots):
        """A description of these slots in a layer's cache; slots lives as long as it is used."""
        tensor, element = self.tensors[layer], self.element
        base, rows = tensor.data_ptr(), self.block * self.size * element
        total = tensor.untyped_storage().data_ptr() + tensor.untyped_storage().nbytes() - base
        return abi.Memory(
            dtype=DTYPES[self.dtype], k_base=base, v_base=base + rows, k_bytes=total,
            v_bytes=total - rows, token_stride_bytes=element,
            k_element_stride_bytes=self.block * element, v_token_stride_bytes=self.size * element,
            head_stride_bytes=tensor.stride(1) * element,
            block_stride_bytes=tensor.stride(0) * element, block_tokens=self.block,
            slots=ctypes.addressof(slots), slot_count=len(slots))
