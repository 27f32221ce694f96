"""The connector in a worker's process: rows between the paged cache and the plugin, whose writer it
is. Loads go ahead of the layers that use them; saves go in front of the next step, from the cache.

Holds: nothing that was computed on rows that never came is stored.
Threads: the engine's one.
"""
import ctypes
import dataclasses

from vllm.logger import init_logger

from .. import abi
from ..connector import Error
from .layout import Cache
from .served import check, is_layered, open_connector

logger = init_logger("vllm.spec_connector")

LOAD_NS = 20 * 10**9  # a layer that takes longer is computed
SUSPECT_STEPS = 3  # so long steps may come that were scheduled before a failed load was told


@dataclasses.dataclass
class Stored:
    """A request whose blocks are stored, in the worker."""
    tokens: bytearray = dataclasses.field(default_factory=bytearray)
    blocks: list = dataclasses.field(default_factory=list)
    request: int = 0  # of the plugin; 0: none
    known: int = 0    # tokens that the plugin has
    end: int = 0      # rows [0, end) are stored, or on their way
    ticket: int = 0
    is_bad: bool = False  # it computed on rows that never came
    computed_on: int = abi.PROVENANCE_EXACT


class Loading:
    """The loads of a step: a layer is waited for where it is used, the next comes meanwhile."""

    def __init__(self, conn, cache, loads):
        self.conn, self.cache = conn, cache
        self.layer, self.ticket, self.items = 0, 0, None
        self.good, self.failed = [], []  # [(load, request)], [load]
        for load in loads:
            try:
                found = conn.attach(load.lease, load.first)
            except Error as error:
                logger.warning("spec_connector: request %s: %s", load.request_id, error)
                self.failed.append(load)
                continue
            if found.request == 0 or found.matched_tokens != load.end:
                self.failed.append(load)
                if found.request != 0:
                    conn.release(found.request)
                continue
            self.good.append((load, found.request))
        self.places = {id(load): cache.slots(load.blocks) for load, _ in self.good}
        self.submit()

    def submit(self):
        if not self.good or self.layer == self.cache.layers:
            return
        self.memories = [self.cache.memory(self.layer, self.places[id(load)])
                         for load, _ in self.good]
        self.items = (abi.Important * len(self.good))()
        for item, (_, request), memory in zip(self.items, self.good, self.memories):
            item.struct_size = ctypes.sizeof(abi.Important)
            item.request, item.layer = request, self.layer
            item.destination, item.deadline_ns = ctypes.pointer(memory), LOAD_NS
            item.select = ctypes.pointer(abi.EXACTLY)
        self.ticket = self.conn.submit(self.items)

    def await_layer(self, layer):
        """Until rows of layers up to this one are in place, or their loads have failed."""
        while self.good and self.layer <= layer and self.layer < self.cache.layers:
            self.conn.wait_for(self.ticket)
            self.ticket = 0
            good = []
            for item, (load, request) in zip(self.items, self.good):
                if item.status == abi.OK and item.row_count == load.end - load.first:
                    good.append((load, request))
                    continue
                logger.warning("spec_connector: request %s: layer %d was not loaded (status %d)",
                               load.request_id, self.layer, item.status)
                self.failed.append(load)
                self.conn.release(request)
            self.good, self.layer = good, self.layer + 1
            self.submit()

    def finish(self):
        """Layers that no attention asked for too: what was promised is there, or told."""
        self.await_layer(self.cache.layers - 1)
        for _, request in self.good:
            self.conn.release(request)
        self.good = []
        return self.failed


def layered_of(config, conn, cache):
    """None: this engine's attention does not tell its queries, and all loads are lossless."""
    from .backend import Impl
    from .layered import QUERY_ROWS, Layered
    layers = config.compilation_config.static_forward_context
    others = [name for name in cache.index if not isinstance(layers[name].impl, Impl)]
    if others:
        logger.warning("spec_connector: layered: the attention of %s is not the connector's: its "
                       "loads are lossless", others[0])
        return None
    extra = config.kv_transfer_config.kv_connector_extra_config
    return Layered(conn, cache, int(extra.get("query_rows", QUERY_ROWS)))


class Worker:
    def __init__(self, config, kv_config):
        self.config, self.kv_config = config, kv_config
        check(config, kv_config)
        self.conn = self.cache = self.loading = self.layered = None
        self.stored, self.errors, self.suspects = {}, set(), []
        self.tickets = []  # of requests that have ended, to be asked for

    def register(self, caches):
        from vllm.distributed import get_tensor_model_parallel_rank
        rank = get_tensor_model_parallel_rank()
        cache = Cache(self.config, self.kv_config.kv_cache_groups[0], caches)
        self.conn = open_connector(self.config, self.kv_config, rank, abi.ROLE_WRITER)
        self.cache = cache
        if is_layered(self.config):
            self.layered = layered_of(self.config, self.conn, cache)

    # ---- Saving: in front of a step, from the cache, what steps before have computed

    def save(self, metadata):
        self.suspects = [(left - 1, blocks) for left, blocks in self.suspects if left > 1]
        self.tickets = [t for t in self.tickets if self.conn.poll(t) == abi.PENDING]
        steps = []
        for save in metadata.saves:
            try:
                step = self.step_of(save)
            except Error as error:  # the next save of this request begins anew
                logger.warning("spec_connector: request %s: %s", save.request_id, error)
                continue
            if step is not None:
                steps.append(step)
        if steps:
            self.store(steps)
        for request_id in metadata.ended:
            self.forget(request_id)

    def step_of(self, save):
        """(stored, first, end, slots) of what is to be stored now; None: nothing."""
        stored = self.stored.setdefault(save.request_id, Stored())
        stored.tokens += save.tokens
        stored.blocks += save.blocks
        if any(not blocks.isdisjoint(stored.blocks) for _, blocks in self.suspects):
            stored.is_bad = True
        if stored.is_bad:
            return None
        if stored.ticket:
            ended = self.conn.poll(stored.ticket)
            if ended == abi.PENDING:
                return None  # the next save has these rows too
            stored.ticket = 0
            if ended != abi.OK:
                self.release(stored)  # given up: where it is good to go on, a lookup says
        if stored.request == 0:
            known = len(stored.tokens) // 4
            found = self.conn.lookup(bytes(stored.tokens), exact=save.lossy is None,
                                     from_token=known, identity=save.identity)  # none is loaded
            stored.request, stored.known = found.request, known
            stored.end = found.stored_tokens
        first = stored.end
        if first >= save.end:
            return None
        block = self.cache.block
        slots = self.cache.slots(stored.blocks[first // block:save.end // block], first % block)
        stored.computed_on = (abi.PROVENANCE_EXACT if save.lossy is None
                              else abi.PROVENANCE_LOSSY)
        return stored, first, save.end, slots

    def store(self, steps):
        params = (abi.StoreParams * len(steps))()
        for layer in range(self.cache.layers):
            memories = [self.cache.memory(layer, slots) for _, _, _, slots in steps]
            for param, (stored, first, end, _), memory in zip(params, steps, memories):
                param.struct_size = ctypes.sizeof(abi.StoreParams)
                param.request, param.layer = stored.request, layer
                param.computed_on = stored.computed_on
                param.first_token, param.token_count = first, end - first
                param.memory = ctypes.pointer(memory)
                new = bytes(stored.tokens[4 * stored.known:4 * end]) if layer == 0 else b""
                param.tokens = ctypes.cast(ctypes.c_char_p(new), ctypes.c_void_p) if new else None
                param.tokens_count = len(new) // 4
            try:
                tickets = self.conn.store(params, want_tickets=True)
            except Error as error:
                logger.warning("spec_connector: %s", error)
                for stored, _, _, _ in steps:
                    self.release(stored)
                return
        for ticket, (stored, _, end, _) in zip(tickets, steps):
            stored.ticket, stored.end = ticket, end
            stored.known = max(stored.known, end)

    def release(self, stored):
        if stored.request:
            self.conn.release(stored.request)
        if stored.ticket:
            self.tickets.append(stored.ticket)
        stored.request = stored.ticket = stored.end = 0

    def forget(self, request_id):
        if self.layered is not None:
            self.layered.forget(request_id)
        stored = self.stored.pop(request_id, None)
        if stored is not None:
            self.release(stored)

    # ---- Loading

    def start(self, metadata):
        loads = metadata.loads
        if self.layered is not None:
            asked = [load for load in loads if load.is_layered]
            loads = [load for load in loads if not load.is_layered]
            loads += self.layered.begin(asked) if asked else []
        if loads:
            self.loading = Loading(self.conn, self.cache, loads)

    def await_layer(self, name):
        layer = self.cache.index.get(name) if self.loading is not None else None
        if layer is not None:  # None: it reads another layer's rows, and has none of its own
            self.loading.await_layer(layer)

    def finish(self):
        failed = self.loading.finish() if self.loading is not None else []
        if self.layered is not None:
            failed = failed + self.layered.finish()
        for load in failed:
            self.errors.update(load.blocks)
            self.suspects.append((SUSPECT_STEPS, set(load.blocks)))
            self.stored.setdefault(load.request_id, Stored()).is_bad = True
        self.loading = None

    def fail(self, metadata):
        """Something broke: no row of this step's loads counts."""
        self.loading = None
        if self.layered is not None:
            self.layered.abandon()
        for load in metadata.loads:
            self.errors.update(load.blocks)

    def close(self):
        if self.conn is not None:
            self.conn.close()
