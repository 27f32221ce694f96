"""vLLM's KV connector over spec_connector: `"kv_connector": "SpecConnector",
"kv_connector_module_path": "spec_connector.vllm"`. Made for vLLM 0.32.

    scheduler process                          worker process, one a rank
    peek(tokens) -> a lease   -- metadata -->  attach(lease); layer by layer into the paged cache
    whole blocks computed     -- metadata -->  store, from the paged cache, before they can be freed

Lossless: rows that come back are, bit for bit, those that were computed, and a miss is always
allowed. Saves of a step go in front of the next one (handle_preemptions is called before anything
is overwritten), and say nothing that the scheduler does not know to be computed.

Holds: no exception leaves a method: what goes wrong with one request is logged once, and that
request goes on without the tier (requests.py); after anything else the engine does; rows that could
not be loaded are reported in their step, and nothing that was computed on them is stored. Nobody
shares rows before they are known to have come: a request that vLLM's prefix cache sends to blocks
of a load of this very step waits for the next one.
Rooms: this file is what vLLM calls, and holds exceptions; scheduler.py and worker.py are the two
sides; messages.py what goes between them; served.py which engines are served, and identities.
Does not: guess a layout (layout.py), nor decide what may be reused (the plugin compares token
ids, and identity, by value).
Threads: the engine's one of each process.
"""
import functools
import time

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorRole
from vllm.logger import init_logger
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from ..connector import Error
from .messages import Load, SpecMetadata, SpecWorkerMetadata
from .scheduler import Scheduler
from .served import Refused
from .stats import Counts, SpecPromMetrics, SpecStats
from .worker import Worker

logger = init_logger("vllm.spec_connector")


def guarded(default):
    """No exception leaves: the side goes, with a line that says why, and the engine goes on."""
    def decorate(method):
        name = method.__name__.lstrip("_")

        @functools.wraps(method)
        def run(self, *args, **kwargs):
            if self._side is None:
                return default
            start = time.perf_counter_ns()
            try:
                return method(self, *args, **kwargs)
            except Exception as error:  # pylint: disable=broad-except
                self._give_up(method.__name__, error)
                return default
            finally:
                self._counts.hook(name, time.perf_counter_ns() - start)
        return run
    return decorate


class SpecConnector(KVConnectorBase_V1):
    _cache_hit_source = CacheHitSource.DISK
    # vLLM 0.33 reads this, and assumes True. Sleep unmaps the caches, whose addresses the plugin
    # has until it is closed: they cannot be unregistered yet.
    supports_sleep_mode = False

    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        self._side, self._errors, self._loads = None, set(), []
        self._under_way = []  # the worker's loads of this step, until it has told which failed
        self._admitted, self._begun = [], []  # blocks of requests that begin: this step's, the last
        self._loading = set()  # (place in its request, name) of each load's first block, this step
        self._reason = None  # why the worker gave up, until the scheduler has been told
        self._counts = Counts()
        side = Scheduler if role == KVConnectorRole.SCHEDULER else Worker
        try:
            self._side = side(vllm_config, kv_cache_config, self._counts)
        except (Refused, Error, OSError, ValueError) as error:
            logger.warning("spec_connector: served without the tier: %s", error)

    def _give_up(self, where, error):
        logger.error("spec_connector: served without the tier from now on: %s: %s", where, error,
                     exc_info=error)
        side, self._side = self._side, None
        if isinstance(side, Worker):
            self._reason = f"{where}: {error}"
            self._errors |= side.errors | side.unsure()
            self._fail_loads()
            try:
                side.abandon()
            except Exception as again:  # pylint: disable=broad-except
                logger.error("spec_connector: what was under way could not be ended: %s", again)
        # The connector stays open: threads of it may still write where a submission told them to.

    def _fail_loads(self):
        for load in self._under_way:
            self._errors.update(load.blocks)

    @property
    def requires_kv_delivery(self):
        return False

    def get_kv_connector_stats(self):
        conn = self._side.conn if isinstance(self._side, Worker) else None
        try:
            return self._counts.take(conn)
        except Exception as error:  # pylint: disable=broad-except
            self._give_up("get_kv_connector_stats", error)
            return self._counts.take()

    @classmethod
    def build_kv_connector_stats(cls, data=None):
        return SpecStats(data or {"counts": {}, "levels": {}})

    @classmethod
    def build_prom_metrics(cls, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        return SpecPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    # Scheduler

    def bind_kv_cache_manager(self, kv_cache_manager):
        super().bind_kv_cache_manager(kv_cache_manager)
        self._bind(kv_cache_manager)

    @guarded(None)
    def _bind(self, manager):
        try:
            self._side.bind(manager)
        except Exception as error:  # pylint: disable=broad-except
            logger.warning("spec_connector: served without layered loads: %s", error)

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        if self._is_loading(request, num_computed_tokens):
            return None, False  # vLLM asks again in the next step
        return self._match(request, num_computed_tokens), False

    @guarded(0)
    def _match(self, request, computed):
        return self._side.match(request, computed)

    def _is_loading(self, request, computed):
        """Whether what vLLM's prefix cache found is not loaded yet. If such rows do not come, vLLM
        lets one request compute them, and all others take them for computed at once, though they
        may be computed in the same step as theirs, later, or never."""
        if computed == 0:
            return False
        found = computed // self._kv_cache_manager.block_pool.hash_block_size
        return any(i < found and request.block_hashes[i] == name for i, name in self._loading)

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        held = blocks.get_block_ids()[0]
        self._admitted.append(held)
        if num_external_tokens > 0:  # was promised: it is loaded, or told to have failed
            load = (self._load_of(request, held, num_external_tokens)
                    or Load(request.request_id, b"", 0, 0, held))
            self._loads.append(load)
            first = held.index(load.blocks[0])
            self._loading.update((first, name) for name in request.block_hashes[first:first + 1])

    @guarded(None)
    def _load_of(self, request, held, count):
        return self._side.load_of(request, held, count)

    def build_connector_meta(self, scheduler_output):
        metadata = self._build(scheduler_output) or SpecMetadata(is_over=True)
        metadata.loads, self._loads = self._loads, []
        self._begun, self._admitted, self._loading = self._admitted, [], set()
        return metadata

    @guarded(None)
    def _build(self, scheduler_output):
        return self._side.build(scheduler_output)

    def _withdraw(self, failed):
        """Blocks whose rows never came, and what was computed on them, leave vLLM's prefix cache,
        where they stand since they were allocated. vLLM computes them again, but may not get to it:
        their request may end first, or be preempted."""
        lost = set(failed)
        for held in self._begun:
            first = next((i for i, block in enumerate(held) if block in failed), len(held))
            lost.update(held[first:])
        self._kv_cache_manager.evict_blocks(lost)
        if self._side is not None:
            self._side.unsave()

    def update_connector_output(self, connector_output):
        if connector_output.invalid_block_ids:
            try:
                self._withdraw(connector_output.invalid_block_ids)
            except Exception as error:  # pylint: disable=broad-except
                logger.error("spec_connector: blocks that were not loaded may be found: %s", error)
        told = connector_output.kv_connector_worker_meta
        if isinstance(told, SpecWorkerMetadata) and self._side is not None:
            logger.warning("spec_connector: nothing is promised from now on, since a worker gave "
                           "up: %s", told.reason)
            self.shutdown()

    @guarded((False, None))
    def request_finished(self, request, block_ids):
        self._side.finished(request)
        return False, None

    @guarded(False)
    def reset_cache(self):
        return self._side.reset(self._kv_cache_manager)

    # Worker

    @guarded(None)
    def register_kv_caches(self, kv_caches):
        try:
            self._side.register(kv_caches)
        except (Refused, Error, OSError, ValueError) as error:
            logger.warning("spec_connector: served without the tier: %s", error)
            self._side, self._reason = None, str(error)

    @guarded(None)
    def handle_preemptions(self, kv_connector_metadata):
        self._side.save(kv_connector_metadata)
        self._watch()

    def start_load_kv(self, forward_context, **kwargs):
        if self.has_connector_metadata():
            self._under_way = self._connector_metadata.loads
        if self._side is None:  # the scheduler may not know yet
            self._fail_loads()
        else:
            self._start()

    @guarded(None)
    def _start(self):
        self._side.start(self._get_connector_metadata())
        self._watch()

    def _watch(self):
        if self._side.layered is not None:
            self._side.layered.watch(self._deliver)

    @guarded(None)
    def _deliver(self, *attention):
        self._side.layered.deliver(*attention)

    def wait_for_layer_load(self, layer_name):
        if self._side is not None and self._side.loading is not None:  # seldom, of many calls
            self._wait_for_layer_load(layer_name)

    @guarded(None)
    def _wait_for_layer_load(self, layer_name):
        self._side.await_layer(layer_name)

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        pass  # rows are stored from the cache, in front of the next step

    @guarded(None)
    def wait_for_save(self):
        self._side.finish()
        self._watch()

    def get_block_ids_with_load_errors(self):
        errors, self._errors, self._under_way = self._errors, set(), []
        if isinstance(self._side, Worker):
            errors |= self._side.errors
            self._side.errors = set()
        return errors

    def build_connector_worker_meta(self):
        reason, self._reason = self._reason, None
        return None if reason is None else SpecWorkerMetadata(reason)

    def shutdown(self):
        if self._side is not None:
            self._side.close()
        self._side = None
