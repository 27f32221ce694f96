"""The connector in a worker's process: rows between the paged cache and the plugin, whose writer it
is; where another engine's worker is the writer, it is a reader until that ends. Loads go ahead
of the layers that use them (loading.py; by the engine's queries layered.py); saves go in front of
the next step, from the cache (saving.py). What a step took to compute is told (step_time.py).

Threads: the engine's one.
"""
from vllm.logger import init_logger

from .. import abi
from .layout import Caches
from .loading import Loading
from .rows import open_rows
from .saving import Saving
from .served import check, is_layered, open_connector
from .step_time import Timing

logger = init_logger("vllm.spec_connector")


def layered_of(config, conn, rows, refusals):
    """None: this engine's attention does not tell its queries, and all loads are lossless."""
    from . import backend
    from .layered import QUERY_ROWS, Layered
    other = backend.extend(dict(zip(rows.caches.names, rows.caches.modules)))
    if other is not None:
        logger.warning("spec_connector: layered: the attention of %s cannot be extended: its loads "
                       "are lossless", other)
        return None
    extra = config.kv_transfer_config.kv_connector_extra_config
    return Layered(conn, rows, extra.get("query_rows", QUERY_ROWS), extra.get("sharpen_tokens", 0),
                   refusals)


class Worker:
    def __init__(self, config, kv_config, counts):
        self.config, self.kv_config, self.counts = config, kv_config, counts
        check(config, kv_config)
        self.conn = self.rows = self.caches = self.saving = self.loading = self.layered = None
        self.timing = None
        self.errors = set()

    def register(self, caches):
        from vllm.distributed import get_tensor_model_parallel_rank
        rank = get_tensor_model_parallel_rank()
        caches = Caches(self.config, self.kv_config.kv_cache_groups[0], caches)
        rows = open_rows(caches, self.config.kv_transfer_config.kv_connector_extra_config)
        try:
            self.conn = open_connector(self.config, self.kv_config, rank, abi.ROLE_AUTO)
            is_reader = self.conn.stats()["role"] == abi.ROLE_READER
        except Exception:
            rows.end()  # what the engine computes is kept for nobody
            raise
        self.rows, self.caches = rows, caches
        if is_reader:
            logger.warning("spec_connector: other processes store into this store: this engine "
                           "loads from it, and stores nothing so far")
        self.saving = Saving(self.conn, rows, self.counts, is_reader)
        self.timing = Timing(self.conn, caches.tensors[0].device, self.counts)
        if is_layered(self.config):
            self.layered = layered_of(self.config, self.conn, rows, self.counts.refusals)

    def save(self, metadata):
        """The first of a step."""
        self.rows.begin()
        if metadata.is_over:
            metadata.ended = self.requests()
        self.saving.save(metadata)
        if self.layered is not None:
            for request_id in metadata.ended:
                self.layered.forget(request_id)
        self.time(metadata)

    def requests(self):
        """All that something is kept of."""
        pending = self.layered.pending if self.layered is not None else []
        return {*self.saving.stored, *(one.load.request_id for one in pending)}

    def start(self, metadata):
        loads = metadata.loads
        if self.layered is not None:
            asked = [load for load in loads if load.is_layered]
            loads = [load for load in loads if not load.is_layered]
            loads += self.layered.begin(asked) if asked else []
        if loads:
            self.loading = Loading(self.conn, self.rows, loads, self.counts)
        if metadata.loads:  # else vLLM may call this behind the forward
            self.time(metadata)

    def time(self, metadata):
        """From now on the step computes. Attention that asks for rows itself is no computing."""
        is_asking = self.layered is not None and (
            self.layered.pending or any(load.is_layered for load in metadata.loads))
        self.timing.begin(None if is_asking else metadata.step, bool(metadata.loads))

    def await_layer(self, name):
        layer = self.caches.index.get(name)
        if layer is not None:  # None: it reads another layer's rows, and has none of its own
            with self.timing.waiting():
                self.loading.await_layer(layer)

    def finish(self):
        self.timing.end()
        failed = self.loading.finish() if self.loading is not None else []
        if self.layered is not None:
            failed = failed + self.layered.finish()
            self.counts.grown("layered", self.layered.counts)
        for load in failed:
            self.errors.update(load.blocks)
            self.saving.distrust(load)
        self.loading = None

    def unsure(self):
        """Blocks of layered loads of steps before, into which rows may be on their way."""
        pending = self.layered.pending if self.layered is not None else []
        return {block for one in pending for block in one.load.blocks}

    def abandon(self):
        """Something broke: nothing is written into the caches any more when this returns."""
        try:
            if self.loading is not None:
                self.loading.abandon()
        finally:  # a poisoned plugin refuses each
            try:
                if self.layered is not None:
                    self.layered.abandon()
            finally:
                if self.rows is not None:
                    self.rows.end()

    def close(self):
        if self.conn is not None:
            self.conn.close()
