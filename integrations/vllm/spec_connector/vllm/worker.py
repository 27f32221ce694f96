"""The connector in a worker's process: rows between the paged cache and the plugin, whose writer it
is. Loads go ahead of the layers that use them (loading.py); saves go in front of the next step,
from the cache (saving.py).

Threads: the engine's one.
"""
from .. import abi
from .layout import Caches
from .loading import Loading
from .rows import open_rows
from .saving import Saving
from .served import check, open_connector


class Worker:
    def __init__(self, config, kv_config, counts):
        self.config, self.kv_config, self.counts = config, kv_config, counts
        check(config, kv_config)
        self.conn = self.rows = self.caches = self.saving = self.loading = None
        self.errors = set()

    def register(self, caches):
        from vllm.distributed import get_tensor_model_parallel_rank
        rank = get_tensor_model_parallel_rank()
        caches = Caches(self.config, self.kv_config.kv_cache_groups[0], caches)
        rows = open_rows(caches, self.config.kv_transfer_config.kv_connector_extra_config)
        self.conn = open_connector(self.config, self.kv_config, rank, abi.ROLE_WRITER)
        self.rows, self.caches = rows, caches
        self.saving = Saving(self.conn, rows, self.counts)

    def save(self, metadata):
        self.saving.save(metadata)

    def start(self, metadata):
        if metadata.loads:
            self.loading = Loading(self.conn, self.rows, metadata.loads, self.counts)

    def await_layer(self, name):
        layer = self.caches.index.get(name) if self.loading is not None else None
        if layer is not None:  # None: it reads another layer's rows, and has none of its own
            self.loading.await_layer(layer)

    def finish(self):
        if self.loading is None:
            return
        for load in self.loading.finish():
            self.errors.update(load.blocks)
            self.saving.distrust(load)
        self.loading = None

    def fail(self, metadata):
        """Something broke: no row of this step's loads counts."""
        self.loading = None
        for load in metadata.loads:
            self.errors.update(load.blocks)

    def close(self):
        if self.conn is not None:
            self.conn.close()
