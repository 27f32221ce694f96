"""Loads of a step, layer by layer, ahead of the layers that use them.

Threads: the engine's one.
"""
import ctypes

from vllm.logger import init_logger

from .. import abi
from ..connector import Error
from .memories import records_of

logger = init_logger("vllm.spec_connector")

LOAD_NS = 20 * 10**9  # a layer that takes longer is computed
REASONS = {abi.E_STALE: "stale", abi.E_CORRUPT: "corrupt", abi.E_TIMEOUT: "late"}


def take_room(conn, rows, load, found):
    """Takes room for the rows of a load that was attached: (place, whether all of them are stored).
    Without a place the attached request is released."""
    is_whole, place = found.request != 0 and found.matched_tokens == load.end, None
    try:
        place = rows.take(load.blocks) if is_whole else None
    finally:
        if place is None and found.request != 0:
            conn.release(found.request)
    return place, is_whole


class Loading:
    """The loads of a step: a layer is waited for where it is used, the next comes meanwhile."""

    def __init__(self, conn, rows, loads, counts):
        self.conn, self.rows, self.counts = conn, rows, counts
        self.layer, self.layers = 0, rows.caches.count
        self.ticket, self.items = 0, None  # None: they are to be described (anew)
        self.good, self.failed = [], []  # [(load, request, place)], [load]
        for load in loads:
            if len(self.good) == abi.CALL_MAX:
                self.fail(load, "room")
                continue
            try:
                self.begin(load)
            except Exception as error:  # pylint: disable=broad-except
                counts.refusals.add(load.request_id, "load", error)
                self.fail(load, "other")
        self.submit()

    def begin(self, load):
        """Attaches one load, and takes room for its rows; else it fails."""
        try:
            found = self.conn.attach(load.lease, load.first)
        except Error as error:
            logger.warning("spec_connector: request %s: %s", load.request_id, error)
            self.fail(load, "stale" if error.status == abi.E_STALE else "other")
            return
        place, is_whole = take_room(self.conn, self.rows, load, found)
        if place is None:
            self.fail(load, "room" if is_whole else "stale")
        else:
            self.good.append((load, found.request, place))

    def fail(self, load, reason):
        self.failed.append(load)
        self.counts.add("failed_loads", reason)

    def describe(self):
        """Items, which go from layer to layer."""
        self.items = (abi.Important * len(self.good))()
        self.requests = (ctypes.c_uint64 * len(self.good))(*(r for _, r, _ in self.good))
        self.memories = self.rows.into([place for _, _, place in self.good]).for_all()
        for item, memory, (_, request, _) in zip(self.items, self.memories.array, self.good):
            item.struct_size, item.request = ctypes.sizeof(abi.Important), request
            item.destination = ctypes.pointer(memory)
            item.deadline_ns, item.select = LOAD_NS, ctypes.pointer(abi.EXACTLY)
        self.each = list(self.items)
        self.ends = records_of(self.items, "status", "row_count")
        self.wanted = [(abi.OK, load.end - load.first) for load, _, _ in self.good]

    def submit(self):
        if not self.good or self.layer == self.layers:
            return
        if self.items is None:
            self.describe()
        self.memories.aim(self.layer)
        for item in self.each:
            item.layer = self.layer
        self.conn.begin_layer(self.requests, self.layer)  # reads the next one's rows meanwhile
        try:
            self.ticket = self.conn.submit(self.items)
        except Error as error:  # nothing was begun
            logger.warning("spec_connector: layer %d of %d loads: %s", self.layer, len(self.good),
                           error)
            for load, request, _ in self.good:
                self.fail(load, "other")
                self.conn.release(request)
            self.good = []

    def await_layer(self, layer):
        """Until rows of layers up to this one are in place, or their loads have failed."""
        while self.good and self.layer <= layer and self.layer < self.layers:
            self.conn.wait_for(self.ticket)
            self.ticket = 0
            if self.ends.tolist() != self.wanted:
                self.part()
            self.layer += 1
            self.submit()
            self.rows.arrived(self.layer - 1, (place for _, _, place in self.good))

    def part(self):
        """Loads of which this layer came from those of which it did not."""
        good = []
        for item, (load, request, place) in zip(self.items, self.good):
            if item.status == abi.OK and item.row_count == load.end - load.first:
                good.append((load, request, place))
                continue
            logger.warning("spec_connector: request %s: layer %d was not loaded (status %d)",
                           load.request_id, self.layer, item.status)
            self.fail(load, REASONS.get(item.status, "other"))
            self.conn.release(request)
        self.good, self.items = good, None

    def finish(self):
        """Layers that no attention asked for too: what was promised is there, or told."""
        self.await_layer(self.layers - 1)
        for load, request, _ in self.good:
            self.conn.release(request)
            self.counts.add("tokens", "loaded", load.end - load.first)
        self.good = []
        return self.failed

    def abandon(self):
        """Something broke: nothing is written into the caches any more when this returns."""
        if self.ticket:
            self.conn.wait_for(self.ticket)
        for _, request, _ in self.good:
            self.conn.release(request)
        self.ticket, self.good = 0, []
