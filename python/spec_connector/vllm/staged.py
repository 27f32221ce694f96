"""The writer's way: rows go through memory of ours, and into the paged cache by the backend's own
do_kv_cache_update, for caches whose layout nobody described (AMX's tiles, fp8).

    load   plugin -> staging, two layers in turn -> do_kv_cache_update
    save   what do_kv_cache_update was given -> a ring of rows -> plugin

Rows are those that the model computed, before a cache narrows them: put in again, they come out as
they did. What the ring has lost is a gap, which stays: a store behind it would be dropped.

Holds: a row of the ring is given out for a slot only while it is what was last written there.
Threads: the engine's one.
"""
import ctypes

import torch

from vllm.logger import init_logger

from .. import abi
from .layout import DTYPES, pattern
from .memories import Memories, place_of, words_of

logger = init_logger("vllm.spec_connector")


class Ring:
    """The last rows that went into the caches, and which slot each is of."""

    def __init__(self, caches, capacity):
        self.rows = torch.empty(caches.count, 2, capacity, caches.heads, caches.size,
                                dtype=caches.row_dtype)
        self.capacity, self.next, self.positions, self.kept = capacity, 0, None, None
        slot_count = caches.tensors[0].shape[0] * caches.block
        self.position_of = torch.full((slot_count,), -1, dtype=torch.int64)
        self.slot_of = torch.full((capacity,), -1, dtype=torch.int64)

    def forget(self, slots):
        at = self.position_of[slots]
        self.slot_of[at[at >= 0]] = -1
        self.position_of[slots] = -1

    def place(self, slots):
        """Positions for rows of a step: its first layer names them, the others follow."""
        self.kept = torch.nonzero(slots >= 0).flatten()[:self.capacity]
        self.forget(slots[slots >= 0])
        kept = slots[self.kept]
        self.positions = (self.next + torch.arange(len(kept))) % self.capacity
        self.next = (self.next + len(kept)) % self.capacity
        lost = self.slot_of[self.positions]
        self.position_of[lost[lost >= 0]] = -1
        self.slot_of[self.positions] = kept
        self.position_of[kept] = self.positions

    def add(self, layer, key, value, slots):
        if layer == 0:
            self.place(slots)
        for part, rows in enumerate((key, value)):
            self.rows[layer, part].index_copy_(0, self.positions, rows[self.kept])


class Staged:
    """The same calls as layout.Direct has. staging_bytes: of rows that come; ring_bytes: of rows
    that are kept until they are stored."""

    is_in_place = False

    def __init__(self, caches, staging_bytes, ring_bytes):
        self.caches = caches
        self.row = caches.heads * caches.size * caches.row_dtype.itemsize
        if caches.tensors[0].device.type != "cpu":
            raise ValueError(f"caches on {caches.tensors[0].device}")
        self.room, self.used = staging_bytes // (4 * self.row), 0
        self.staging = torch.empty(2, 2, self.room, caches.heads, caches.size,
                                   dtype=caches.row_dtype)
        for layer, name in enumerate(caches.names):
            self._prove(name, layer)
        self.ring = Ring(caches, max(1, ring_bytes // (2 * caches.count * self.row)))
        self.into_layers = [self._shape(self.staging[i % 2]) for i in range(caches.count)]
        self.outof_layers = [self._shape(rows) for rows in self.ring.rows]
        self.originals = [module.impl.do_kv_cache_update for module in caches.modules]
        for layer, module in enumerate(caches.modules):
            module.impl.do_kv_cache_update = self._captured(layer)

    def _prove(self, name, layer):
        """The same rows give the same bytes in every block, and one by one the same as at once."""
        caches, tensor = self.caches, self.caches.tensors[layer]
        last, rows = tensor.shape[0] - 1, caches.block
        key, value = pattern(rows, caches.heads, caches.size, caches.row_dtype)
        slots = torch.arange(rows, dtype=torch.int64)
        caches.write(layer, key, value, slots + last * rows)
        for i in range(rows):
            caches.write(layer, key[i:i + 1], value[i:i + 1], slots[i:i + 1] + (last - 1) * rows)
        one, other = (tensor[i].contiguous().view(torch.uint8) for i in (last, last - 1))
        is_same = torch.equal(one, other) and bool(one.any())
        tensor[last - 1:].zero_()
        if not is_same:
            raise ValueError(f"the cache of {name} is not filled row by row by its backend")

    def _captured(self, layer):
        original = self.originals[layer]

        def run(module, key, value, kv_cache, slots):
            original(module, key, value, kv_cache, slots)
            if self.ring is None:
                return
            try:
                self.ring.add(layer, key, value, slots)
            except Exception as error:  # pylint: disable=broad-except  # the engine goes on
                logger.error("spec_connector: nothing is stored from now on: %s", error)
                self.ring = None
        return run

    def _shape(self, rows):
        """A layer's part of descriptions: where [k, v] rows begin, and how far apart they are."""
        return words_of(abi.Memory(
            dtype=DTYPES[self.caches.row_dtype], k_base=rows[0].data_ptr(),
            v_base=rows[1].data_ptr(), token_stride_bytes=self.row,
            head_stride_bytes=self.caches.size * rows.element_size()))

    def begin(self):
        self.used = 0

    def take(self, blocks):
        count = len(blocks) * self.caches.block
        if self.used + count > self.room:
            return None
        first, self.used = self.used, self.used + count
        slots = self.caches.slots_of(blocks)
        if self.ring is not None:
            self.ring.forget(slots)
        return first, slots

    def into(self, places):
        parts = [(first * self.row, len(slots) * self.row) for first, slots in places]
        return Memories(self.into_layers, [
            place_of(k_base=at, v_base=at, k_bytes=size, v_bytes=size) for at, size in parts],
            places)

    def arrived(self, layer, places):
        module, tensor = self.caches.modules[layer], self.caches.tensors[layer]
        for first, slots in places:
            key, value = self.staging[layer % 2, :, first:first + len(slots)]
            self.originals[layer](module, key, value, tensor, slots)

    def put(self, layer, place, wanted):
        """Of the rows of a place, those that are wanted."""
        first, slots = place
        key, value = self.staging[layer % 2, :, first:first + len(slots)][:, wanted]
        self.originals[layer](self.caches.modules[layer], key, value, self.caches.tensors[layer],
                              slots[wanted])

    def end(self):
        self.ring = None  # new rows are kept no more

    def source(self, blocks, first, end):
        if self.ring is None:
            return None, first
        block = self.caches.block
        slots = self.caches.slots_of(blocks[first // block:-(-end // block)])
        slots = slots[first % block:][:end - first]
        positions = self.ring.position_of[slots]
        gaps = torch.nonzero(positions < 0).flatten()
        count = int(gaps[0]) if len(gaps) else len(slots)
        return abi.int64s(positions[:count].tolist()), first + count

    def outof(self, places):
        room = self.ring.capacity * self.row
        return Memories(self.outof_layers, [
            place_of(k_bytes=room, v_bytes=room, block_tokens=self.ring.capacity,
                     block_stride_bytes=room, slots=ctypes.addressof(positions),
                     slot_count=len(positions)) for positions in places], places)
