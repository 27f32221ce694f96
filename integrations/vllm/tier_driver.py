"""vLLM's tiered offloading as a driver of integrations/hosts: its spec, manager and primary tier,
as its scheduler makes them, without a GPU (vLLM's workers need one).
"""
import contextlib
import hashlib
import itertools
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "hosts"),
                os.path.join(os.path.dirname(os.path.dirname(HERE)), "python")]
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
try:
    import numpy as np
    from vllm.v1.kv_offload.base import (LookupResult, ReqContext, ScheduleEndContext,
                                         make_offload_key)
    from vllm.v1.kv_offload.config import (OffloadingCacheConfig, OffloadingConfig,
                                           OffloadingGroupConfig, OffloadingModelConfig,
                                           OffloadingParallelConfig)
    from vllm.v1.kv_offload.factory import OffloadingSpecFactory
except ImportError as error:
    print(f"skipped: no vLLM here ({error}): integrations/vllm/setup-test makes it")
    sys.exit(77)
from storage_cases import MIB, config_of, value_of  # noqa: E402

WAIT_SECONDS = 60
ENGINES = itertools.count()


def offloading_of(**members):
    """OffloadingConfig as vLLM makes it for one rank of one model."""
    parallel = OffloadingParallelConfig(
        rank=0, world_size=1, tp_size=1, pp_size=1, pcp_size=1, dcp_size=1, data_parallel_index=0,
        data_parallel_size=1, data_parallel_rank_local=None, is_parallelism_agnostic=True)
    return OffloadingConfig(**{
        "groups": (OffloadingGroupConfig(16, ("layer.0", "layer.1"), 0),),
        "worker_kv_bytes_per_block": MIB, "enable_kv_cache_events": True, "extra_config": {},
        "engine_id": f"spec-test-{os.getpid()}-{next(ENGINES)}",
        "model": OffloadingModelConfig("org/model", "float16"),
        "cache": OffloadingCacheConfig(16, 1), "parallel": parallel, **members})


def ours(folder, config=None, weights="name", **more):
    return {"type": "SpecConnectorTier", "module_path": "spec_connector.vllm_tier",
            "config": config_of(folder, config), "weights": weights, **more}


def own(folder):
    return {"type": "fs", "root_dir": folder, "n_read_threads": 4, "n_write_threads": 4}


def keys_of(ids):
    return [make_offload_key(hashlib.sha256(b"%d" % i).digest(), 0) for i in ids]


class Driver:
    value_bytes, capacity, slots = MIB, 64, 128

    def __init__(self, folder, config=None, weights="name", is_own=False, offloading=None,
                 **more):
        """offloading: members of OffloadingConfig that differ."""
        words = own(folder) if is_own else ours(folder, config, weights, **more)
        self.manager = OffloadingSpecFactory.create_spec(offloading_of(
            extra_config={"spec_name": "TieringOffloadingSpec", "secondary_tiers": [words],
                          "cpu_bytes_to_use": self.slots * self.value_bytes},
            **(offloading or {}))).get_manager()
        with contextlib.suppress(FileNotFoundError):  # a killed test would leave it in memory
            os.unlink(self.manager.primary_tier._mmap_region.mmap_path)
        self.tier, = self.manager.secondary_tiers
        view = self.manager.primary_tier.get_kv_memoryview()
        self.bytes = np.frombuffer(view, np.uint8).reshape(view.shape)
        self.requests, self.chunks = 0, []
        self.results, finished = [], self.tier.get_finished_jobs

        def get_finished_jobs():
            results = list(finished())
            self.results += results
            return results
        self.tier.get_finished_jobs = get_finished_jobs  # the manager keeps no results

    def begin(self):
        self.requests += 1
        context = ReqContext(req_id=str(self.requests))
        self.manager.on_new_request(context)
        return context

    def step(self):
        self.manager.on_schedule_end(ScheduleEndContext((), ()))

    def steps_until(self, is_over):
        end = time.monotonic() + WAIT_SECONDS
        while not is_over():
            assert time.monotonic() < end, f"not over within {WAIT_SECONDS} s"
            self.step()
            time.sleep(1e-4)

    def fill(self, ids):
        """As a worker copies blocks from the GPU."""
        self.wipe()
        self.context, keys = self.begin(), keys_of(ids)
        out = self.manager.prepare_store(keys, self.context)
        assert list(out.keys_to_store) == keys
        for i, chunk in zip(ids, out.store_spec.chunk_ids):
            self.bytes[chunk] = np.frombuffer(value_of(i, self.value_bytes), np.uint8)

    def store(self, ids):
        self.results.clear()
        self.manager.complete_store(keys_of(ids), self.context)
        self.steps_until(lambda: not self.manager.has_pending_work())
        self.manager.on_request_finished(self.context)
        return [all(result.success for result in self.results)] * len(ids)

    def found(self, ids):
        """Asks the tier itself, which the manager does where the primary tier misses."""
        context = self.begin()
        results = {}

        def is_over():
            for key in keys_of(ids):
                if results.get(key) in (None, LookupResult.RETRY):
                    results[key] = self.tier.lookup(key, context)
            return LookupResult.RETRY not in results.values()
        self.steps_until(is_over)
        self.manager.on_request_finished(context)
        return [results[key] is LookupResult.HIT for key in keys_of(ids)]

    def wipe(self):
        """vLLM's own reset empties the primary tier and leaves the secondary ones."""
        self.manager.reset_cache()
        self.bytes[:] = 0

    def load(self, ids):
        """The scheduler's lookups, which promote chunks, until each is a hit or a miss. Between
        them it waits for what is under way, as a scheduler that has other requests."""
        context, keys, last = self.begin(), keys_of(ids), {}

        def is_over():
            if last and self.manager.has_pending_work():
                return False
            for key in keys:
                if last.get(key) not in (LookupResult.HIT, LookupResult.MISS):
                    last[key] = self.manager.lookup(key, context)
            return all(at in (LookupResult.HIT, LookupResult.MISS) for at in last.values())
        self.steps_until(is_over)
        hits = [key for key in keys if last[key] is LookupResult.HIT]
        spec = self.manager.prepare_load(hits, context)
        chunk_of = dict(zip(hits, spec.chunk_ids))
        self.manager.complete_load(hits, context)
        self.manager.on_request_finished(context)
        self.chunks = [chunk_of.get(key) for key in keys]
        return [chunk is not None for chunk in self.chunks]

    def value(self, position):
        return self.bytes[self.chunks[position]].tobytes()

    def close(self):
        self.bytes = None  # vLLM releases the view
        self.manager.shutdown()
