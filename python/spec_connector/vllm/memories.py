"""Descriptions of places in the caches (spec_memory), which go from layer to layer.

    words of a place in a layer = words of the layer + words of the place

A step asks for the same places in each layer: what differs is the layer's part. As rows of 64-bit
words all places are moved on by one addition, not by a structure each.

Holds: `array` stays where it is; an item that points to one of its elements points to the layer
that it was aimed at last.
"""
import ctypes

import numpy as np

from .. import abi


def words_of(memory):
    """Of a description, or the part of one."""
    return np.frombuffer(bytes(memory), dtype=np.uint64)


def place_of(**members):
    """What a place adds to each layer's description."""
    memory = abi.Memory(**members)
    memory.struct_size = 0  # the layer's part has it
    return words_of(memory)


class Memories:
    """layers: words by layer; places: words by place; keep: what they point to."""

    def __init__(self, layers, places, keep):
        self.layers, self.places, self.keep = layers, np.stack(places), keep
        self.sums = None  # by layer
        self.array = (abi.Memory * len(places))()
        self.words = np.frombuffer(self.array, dtype=np.uint64).reshape(self.places.shape)

    def aim(self, layer):
        if self.sums is None:
            np.add(self.layers[layer], self.places, out=self.words)
        else:
            ctypes.memmove(self.array, self.start + layer * self.size, self.size)
        return self.array

    def for_all(self):
        """All layers will be aimed at: their sums are made at once."""
        self.sums = np.stack(self.layers)[:, np.newaxis] + self.places
        self.start, self.size = self.sums.ctypes.data, self.sums.strides[0]
        return self


def records_of(items, *members):
    """Members of an array of structures, as one vector of records over the array."""
    kind = type(items)._type_
    fields = dict(kind._fields_)
    return np.frombuffer(items, dtype=np.dtype({
        "names": members, "formats": [np.dtype(fields[name]) for name in members],
        "offsets": [getattr(kind, name).offset for name in members],
        "itemsize": ctypes.sizeof(kind)}))
