"""Layered loads: every row of a prefix comes as codes, the important ones exactly, chosen by the
engine's own queries (docs/guide/layered.md).

    start of a step   codes of layer 0 are decoded into the paged cache (SPEC_ITEM_AHEAD)
    attention of l    its queries are there: the rows that they need are put over the codes' values,
                      layer l + 1 is decoded while l computes, vLLM's own attention runs
    later chunks      of the same prompt score anew (SPEC_ITEM_RESCORE): each adds its own rows
    decoding          likewise for the first tokens of the answer, if that is asked for and the step
                      computes no prompt (sharpen_tokens; off unless given)

By the writer's way (staged.py) they go through staging memory, two layers in turn; a later chunk is
delivered anew there, and of it those rows are put in that are exact and were not before.

Which rows of a batch are a load's: those of the request that has the load's first block in its
place of the block table and tokens behind it; the block is fresh, so there is one.

Holds: attention never runs on a layer that was told ahead and not completed; a layer that nobody
asks for, or whose load has no rows in the batch, comes exactly. What fails is told in its step.
Does not: say what such rows are worth to others (isolation.py, the saves' computed_on).
Threads: the worker's one. Tests: tests/test_backend.py.
"""
import ctypes
import dataclasses
import time

import torch
from vllm.logger import init_logger

from .. import abi
from ..connector import Error
from ..requests import Refusals
from . import backend
from .layout import DTYPES
from .loading import take_room

logger = init_logger("vllm.spec_connector")

LOAD_NS = 20 * 10**9
SHARPEN_NS = 2 * 10**9  # of a layer of a decoded token, which can do without
QUERY_ROWS = 16  # of a chunk, its last: what stands in front of a question chooses rows of its own
COUNTS = ("loads", "failed_loads", "layers", "rows", "exact_rows", "wanted_bytes", "read_bytes",
          "rescored_layers", "lossless_layers", "wait_ns", "select_ns")


def row_bits(address, words, count):
    """Of exact_bits, a bool a row."""
    octets = (ctypes.c_uint8 * (8 * words)).from_address(address)
    bits = torch.frombuffer(octets, dtype=torch.uint8).unsqueeze(1)
    return (bits >> torch.arange(8, dtype=torch.uint8) & 1).bool().flatten()[:count]


@dataclasses.dataclass(eq=False)  # each is itself
class Pending:
    """A load whose prompt, or the beginning of whose answer, is being computed."""
    load: object  # messages.Load
    request: int  # of the plugin
    place: object  # of rows.take(): where its rows come into in this step
    tickets: list  # by layer, of the submission that decoded it; 0: it cannot be completed
    came: list  # by layer, which rows are exact; of the writer's way alone
    is_fresh: bool = True  # begun in this step
    rows: tuple = None  # (first, end) of the batch's rows in this step, and the request's length
    computed: int = 0  # of the request, after this step
    new_keys: object = None  # of rows.source(), of a later chunk: the keys behind the load
    asked: tuple = None  # (layout, queries, keys, the first row of each): of this step's layers

    @property
    def count(self):
        return self.load.end - self.load.first


class Layered:
    def __init__(self, conn, rows, query_rows=QUERY_ROWS, sharpen_tokens=0, refusals=None):
        self.conn, self.rows, self.query_rows = conn, rows, query_rows
        self.refusals = refusals or Refusals(lambda kind: None, logger)
        self.sharpen_tokens = sharpen_tokens if rows.is_in_place else 0  # staging is a step's
        self.pending, self.failed = [], []  # [Pending], [Load]
        self.layer = rows.caches.count  # of fresh loads: the next to be completed
        self.ticket = 0  # of its submission
        self.told, self.items = [], None  # [Pending] of the ticket's items, in their order
        self.metadata = None  # of the step whose rows were found
        self.counts = dict.fromkeys(COUNTS, 0)

    # ---- Between steps

    def begin(self, loads):
        """Of loads, those that are to be made exactly instead."""
        fresh, failed, rest = [], [], []
        for load in loads:
            if len(self.pending) + len(fresh) == abi.CALL_MAX:
                rest.append(load)
                continue
            try:
                one, is_whole = self.attach(load)
            except Exception as error:  # pylint: disable=broad-except
                self.refusals.add(load.request_id, "layered load", error)
                one, is_whole = None, False
            if one is not None:
                fresh.append(one)
            else:
                (rest if is_whole else failed).append(load)
        self.pending += fresh
        self.failed += failed
        self.layer = 0
        try:
            self.tell_ahead()
        except Error as error:
            logger.warning("spec_connector: %d loads come exactly: %s", len(fresh), error)
            for one in fresh:
                self.drop(one)
            self.layer = self.rows.caches.count
            return rest + [one.load for one in fresh]
        self.counts["loads"] += len(fresh)
        self.counts["failed_loads"] += len(failed)
        return rest

    def attach(self, load):
        """(Pending, True); (None, whether all of its rows are stored), where it cannot begin."""
        try:
            found = self.conn.attach(load.lease, load.first)
        except Error as error:
            logger.warning("spec_connector: request %s: %s", load.request_id, error)
            return None, False
        place, is_whole = take_room(self.conn, self.rows, load, found)
        if place is None:
            return None, is_whole
        count = self.rows.caches.count
        return Pending(load, found.request, place, [0] * count, [None] * count), True

    def forget(self, request_id):
        """It was preempted, or has ended: its blocks go to others."""
        for one in [one for one in self.pending if one.load.request_id == request_id]:
            self.drop(one)

    def drop(self, one):
        self.pending.remove(one)
        self.conn.release(one.request)

    def fail(self, one, layer, status):
        logger.warning("spec_connector: request %s: layer %d was not loaded (status %d)",
                       one.load.request_id, layer, status)
        self.counts["failed_loads"] += 1
        self.failed.append(one.load)
        self.drop(one)

    def finish(self):
        """The end of a step: loads that failed in it."""
        while self.layer < self.rows.caches.count and any(one.is_fresh for one in self.pending):
            self.complete(self.layer, None, None, None)
        for one in list(self.pending):
            end = one.load.prompt + self.sharpen_tokens
            if one.computed >= end or (one.is_fresh and one.rows is None):
                self.drop(one)  # no more rows are chosen
            one.is_fresh, one.rows, one.new_keys, one.asked = False, None, None, None
        self.layer, self.metadata = self.rows.caches.count, None
        failed, self.failed = self.failed, []
        return failed

    def abandon(self):
        """Something broke: nothing is written any more when this returns."""
        backend.set_pending(None)
        if self.ticket:
            self.conn.wait_for(self.ticket)
        self.ticket = 0
        for one in list(self.pending):
            self.drop(one)

    def watch(self, deliver):
        """Attention calls `deliver` from now on, as long as there is something to be delivered."""
        backend.set_pending(deliver if self.pending else None)

    # ---- A layer

    def tell_ahead(self):
        """Codes of the next layer come into their places from now on."""
        self.ticket, self.told = 0, [one for one in self.pending if one.is_fresh]
        if not self.told or self.layer == self.rows.caches.count:
            return
        self.items = self.describe(self.told, self.layer)
        for item in self.items:
            item.flags = abi.ITEM_AHEAD
        self.ticket = self.conn.submit(self.items)
        for one in self.told:
            one.tickets[self.layer] = self.ticket

    def describe(self, pendings, layer):
        """Items of a layer; what they point to lives as long as they."""
        items = (abi.Important * len(pendings))()
        memories = self.rows.into([one.place for one in pendings]).aim(layer)
        for item, one, memory in zip(items, pendings, memories):
            item.struct_size = ctypes.sizeof(abi.Important)
            item.request, item.layer = one.request, layer
            item.destination, item.deadline_ns = ctypes.pointer(memory), LOAD_NS
        return items

    def await_quant(self):
        if self.ticket == 0:
            return
        begin = time.perf_counter_ns()
        self.conn.wait_for(self.ticket)
        self.counts["wait_ns"] += time.perf_counter_ns() - begin
        self.ticket = 0
        for item, one in zip(self.items, self.told):
            self.add(item)
            if item.status != abi.OK or item.row_count != one.count:
                self.fail(one, self.layer, item.status)

    def deliver(self, name, impl, query, key, metadata):
        """The rows that these queries need are in their places when it returns."""
        layer = self.rows.caches.index.get(name)
        if layer is None:  # it reads another layer's rows
            return
        if metadata is not self.metadata:
            self.find_rows(metadata)
            self.metadata = metadata
        while self.layer < layer and any(one.is_fresh for one in self.pending):
            self.complete(self.layer, None, None, None)  # nobody asked for it
        self.complete(layer, impl, query, key)

    def find_rows(self, metadata):
        """Of each pending load, in this step's batch."""
        starts, lengths = metadata.query_start_loc.tolist(), metadata.seq_lens.tolist()
        table = metadata.block_table
        is_idle = starts[-1] == len(starts) - 1  # no prompt is computed, or a token of it
        for one in self.pending:
            load, one.rows = one.load, None
            column = load.first // self.rows.caches.block
            if column >= table.shape[1]:
                continue
            for row, block in enumerate(table[:len(starts) - 1, column].tolist()):
                if block == load.blocks[0] and lengths[row] > load.end:
                    one.computed = lengths[row]
                    if lengths[row] <= load.prompt or is_idle:
                        one.rows = starts[row], starts[row + 1], lengths[row]
                        if not one.is_fresh:
                            self.find_room(one, table[row].tolist())
                    break

    def find_room(self, one, blocks):
        """Of a later chunk. Keys of earlier ones stand in the cache, or are kept, and so are this
        one's by now. Without them, or room for rows, the chunk chooses nothing."""
        if not self.rows.is_in_place:
            one.place = self.rows.take(one.load.blocks)
        one.new_keys, end = self.rows.source(blocks, one.load.end, one.rows[2])
        if one.place is None or end < one.rows[2]:
            one.rows = None

    def can_select_rows(self, one, layer):
        """Whether a later chunk may add rows: to what was delivered, or by a delivery anew."""
        return one.rows is not None and (one.tickets[layer] or not self.rows.is_in_place)

    def complete(self, layer, impl, query, key):
        """Without queries, and where a load has no rows in the batch, it comes exactly."""
        is_next = layer == self.layer
        if is_next:
            self.await_quant()
        ready = [one for one in self.pending
                 if (is_next if one.is_fresh
                     else query is not None and self.can_select_rows(one, layer))]
        if ready:
            self.choose(layer, ready, impl, query, key)
        if is_next:
            self.layer += 1
            try:
                self.tell_ahead()
            except Error as error:  # the layer is asked for at once, where it is used
                logger.debug("spec_connector: layer %d is not told ahead: %s", self.layer, error)

    def choose(self, layer, ready, impl, query, key):
        begin, keep = time.perf_counter_ns(), []
        is_told = ready == self.told and layer == self.layer  # the same items go on
        items = self.items if is_told else self.describe(ready, layer)
        for item, one in zip(items, ready):
            item.flags = 0
            if one.computed > one.load.prompt:
                item.deadline_ns = SHARPEN_NS
            if one.is_fresh or self.rows.is_in_place:
                item.refine_of = one.tickets[layer]
                item.flags = 0 if one.is_fresh else abi.ITEM_RESCORE
            if one.rows is None or query is None:
                item.select = ctypes.pointer(abi.EXACTLY)
                self.counts["lossless_layers"] += 1
            else:
                asked, keys = self.ask(one, impl, query, key)
                if one.new_keys is not None:
                    keys = self.rows.outof([one.new_keys]).aim(layer)[0]
                item.queries, item.new_keys = ctypes.pointer(asked), ctypes.pointer(keys)
            if not self.rows.is_in_place:
                words = -(-one.count // 64)
                keep.append(torch.zeros(words, dtype=torch.int64))
                item.exact_bits, item.exact_bit_words = keep[-1].data_ptr(), words
        self.get(items)
        for item, one in zip(items, ready):
            if self.judge(item, one, layer) and not self.rows.is_in_place:
                self.put(item, one, layer)
        self.counts["select_ns"] += time.perf_counter_ns() - begin

    def get(self, items):
        """Each item's status says how it ended. A call is refused as a whole for one of its items,
        say one of which too little is kept (ABI-228): each of the others is asked for alone
        then."""
        if self.conn.get(items) >= 0:
            return
        for i, item in enumerate(items):
            if item.status == abi.PENDING:
                self.get((abi.Important * 1).from_buffer(items, i * ctypes.sizeof(abi.Important)))

    def put(self, item, one, layer):
        """Rows of staging go into the cache; of a later chunk, those that it made exact."""
        exact = row_bits(item.exact_bits, item.exact_bit_words, one.count)
        if one.is_fresh:
            self.rows.arrived(layer, [one.place])
        else:
            self.rows.put(layer, one.place, exact & ~one.came[layer])
        one.came[layer] = exact

    def judge(self, item, one, layer):
        """Whether its rows are there, and are to stay."""
        self.add(item)
        is_late = item.status == abi.OK and item.result_flags & abi.IMPORTANT_PARTIAL
        if one.is_fresh:
            if item.status != abi.OK or item.row_count != one.count or is_late:
                self.fail(one, layer, abi.E_TIMEOUT if is_late else item.status)
                return False
            self.counts["layers"] += 1
            self.counts["rows"] += item.row_count
            self.counts["exact_rows"] += item.exact_rows
            return True
        if is_late:  # the rows stay what they are; each layer more would take as long
            logger.warning("spec_connector: request %s: layer %d was late: it chooses no more rows",
                           one.load.request_id, layer)
            self.drop(one)
        elif item.status == abi.OK:
            self.counts["rescored_layers"] += 1
        elif item.status in (abi.E_STALE, abi.E_BUSY):
            one.tickets[layer] = 0  # forgotten for want of room: the rows stay what they are
        else:
            self.fail(one, layer, item.status)
        return item.status == abi.OK

    def add(self, item):
        self.counts["wanted_bytes"] += item.wanted_bytes
        self.counts["read_bytes"] += item.read_bytes

    # ---- What an item points to

    def ask(self, one, impl, query, key):
        """A load's queries and new keys: described once a step, then moved from layer to layer."""
        layout = query.stride(), key.stride(), query.dtype, key.dtype
        if one.asked is None or one.asked[0] != layout:
            first = max(one.rows[0], one.rows[1] - self.query_rows)
            one.asked = (layout, self.queries(one, query, first), self.keys(one, key),
                         first * query.stride(0) * query.element_size(),
                         one.rows[0] * key.stride(0) * key.element_size())
        _, asked, keys, query_at, key_at = one.asked
        asked.data, asked.scale = query.data_ptr() + query_at, impl.scale
        keys.k_base = key.data_ptr() + key_at
        return asked, keys

    def queries(self, one, query, first):
        count, element = one.rows[1] - first, query.element_size()
        return abi.Queries(dtype=DTYPES[query.dtype], row_count=count,
                           byte_count=reach(query, count) * element,
                           row_stride_bytes=query.stride(0) * element,
                           head_stride_bytes=query.stride(1) * element,
                           first_position=one.rows[2] - count)

    def keys(self, one, key):
        element = key.element_size()
        return abi.Memory(dtype=DTYPES[key.dtype],
                          k_bytes=reach(key, one.rows[1] - one.rows[0]) * element,
                          token_stride_bytes=key.stride(0) * element,
                          head_stride_bytes=key.stride(1) * element)


def reach(rows, count):
    """Elements from the first to behind the last one of so many rows."""
    return (count - 1) * rows.stride(0) + (rows.shape[1] - 1) * rows.stride(1) + rows.shape[2]
