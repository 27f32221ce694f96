"""A secondary tier of vLLM's OffloadingConnector (vLLM 0.32) over objects by key.

    "secondary_tiers": [{"type": "SpecConnectorTier", "module_path": "spec_connector.vllm_tier",
                         "config": {"path": "/var/lib/kv", "disk_bytes": "200GiB"}}]

Keys of the tier:
  config            the configuration of the store: a dict, or a path of a JSON file
  weights           folder of the model's weights, or "name"; default: the model's own folder
  weights_full      true: the identity reads every byte of the weights
  revision          of the model, where its folder is in the cache of huggingface_hub
  identity          any text that separates values, for what neither weights nor layout say (online
                    quantisation, hf_overrides)
  enable_kv_events  true: BlockStored and BlockRemoved of this tier are published
  locality          "LOCAL" (default) or "REMOTE"
  library           another libspec_connector.so

The scheduler calls everything on one thread. No call waits, except drain_jobs and shutdown.
Memory of a job belongs to the store until the job's result. A failure of a call is a miss.
Tests: integrations/vllm/tests/test_tier.py
"""
import ctypes
import importlib.metadata
import time

import numpy as np
from vllm.logger import init_logger
from vllm.v1.kv_offload.base import (Locality, LookupResult, Medium, OffloadingEvent,
                                     RequestOffloadingContext)
from vllm.v1.kv_offload.file_mapper import FileMapper
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager

from . import hosts
from . import objects_abi as c
from .objects import Objects

RESULTS = {c.KEY_ABSENT: LookupResult.MISS, c.KEY_DONE: LookupResult.HIT,
           c.KEY_PENDING: LookupResult.RETRY}


def domain_identity(spec, block_bytes, weights, extra):
    """What values of one engine depend on beside their keys."""
    config = spec.config
    layout = FileMapper.from_offloading_spec(
        root_dir="", offloading_spec=spec, blocks_per_file=spec.blocks_per_chunk).get_run_config()
    layout.pop("model_name")
    return hosts.identity_of(
        "vllm", version=importlib.metadata.version("vllm"), model=config.model.name,
        weights=weights, layout=layout, block_bytes=block_bytes,
        kv_cache_layout=str(config.kv_cache_layout), replicated=bool(config.replicated_layout),
        extra=extra)


class SpecConnectorTier(SecondaryTierManager):
    medium = Medium.STORAGE

    def __init__(self, offloading_spec, primary_kv_view, tier_type, config, weights=None,
                 weights_full=False, revision=None, identity="", enable_kv_events=False,
                 locality="LOCAL", library=None, backpressure_detector=None):
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self.locality = Locality(locality)
        self._failures = hosts.Failures(init_logger("vllm.spec_connector"))
        # no export of the view is kept: vLLM releases it after shutdown
        self._base = np.uint64(ctypes.addressof(ctypes.c_char.from_buffer(primary_kv_view)))
        self._jobs, self._results = {}, []  # job id -> job, keys; results not yet returned
        self._failed = {}  # request id -> keys whose load failed: else the scheduler asks for ever
        model, parallel = offloading_spec.config.model.name, offloading_spec.config.parallel
        named = domain_identity(offloading_spec, self._block_size_bytes, hosts.weights_of(
            weights, model, weights_full, revision), identity)
        self._store = Objects(hosts.settings_of(config),
                              rank=getattr(parallel, "data_parallel_index", 0),
                              rank_count=getattr(parallel, "data_parallel_size", 1),
                              library=library, log=self._failures.log_line)
        self._domain = self._store.domain(named)
        self._events = None
        if enable_kv_events and offloading_spec.kv_events_config.enable_kv_cache_events:
            self._listing = self._domain.list()
            self._events = self._domain.events(self._listing.sequence)

    def on_new_request(self, req_context):
        return RequestOffloadingContext()

    def on_request_finished(self, req_context):
        self._failed.pop(req_context.req_id, None)

    def lookup(self, key, req_context):
        if self._failed and key in self._failed.get(req_context.req_id, ()):
            return LookupResult.MISS
        try:
            return RESULTS[self._domain.exists_one(key)]  # a HIT is held for objects.hold_ms
        except hosts.FAILURES as error:
            self._failures.add("lookup", error)
            return LookupResult.MISS

    def touch(self, keys, req_context):
        try:
            self._domain.touch(list(keys))
        except hosts.FAILURES as error:
            self._failures.add("touch", error)

    # ---- Jobs ------------------------------------------------------------------------------------

    def _submit(self, name, submit, job):
        keys = list(job.keys)
        addresses = np.asarray(job.chunk_ids).astype(np.uint64)
        addresses = addresses * np.uint64(self._block_size_bytes) + self._base
        self._jobs[job.job_id] = job, keys
        try:
            submit(keys, addresses, self._block_size_bytes, user=job.job_id)
        except hosts.FAILURES as error:
            self._failures.add(name, error)
            self._end(job.job_id, 0, None)

    def submit_store(self, job_metadata):
        self._submit("store", self._domain.put_submit, job_metadata)

    def submit_load(self, job_metadata):
        self._submit("load", self._domain.get_submit, job_metadata)

    def _end(self, job_id, done, statuses):
        job, keys = self._jobs.pop(job_id)
        good = None  # all share the fate of the job
        if 0 < done < len(keys):  # the only loop over keys: vLLM asks which ones are good
            good = [key for key, status in zip(keys, statuses)
                    if status in (c.KEY_DONE, c.KEY_STORED)]
        if job.is_promotion and done < len(keys):
            self._failed.setdefault(job.req_context.req_id, set()).update(
                set(keys).difference(good or ()))
        self._results.append(JobResult(
            job_id, done == len(keys), good, transfer_time=time.monotonic() - job.submit_time,
            transfer_bytes=done * self._block_size_bytes))

    def _collect(self, timeout):
        """Turns completions into results."""
        try:
            for done in self._domain.poll(timeout) if self._jobs else ():
                self._end(done.user, done.done_count, done.statuses)
        except hosts.FAILURES as error:
            # Completions will not come: closing ends what still uses the memory of the jobs.
            self._failures.add("poll", error)
            self._store.close()
            for job_id in list(self._jobs):
                self._end(job_id, 0, None)

    def get_finished_jobs(self):
        self._collect(0.0)
        results, self._results = self._results, []
        return results

    def has_pending_work(self):
        return bool(self._jobs)

    def drain_jobs(self):
        while self._jobs:
            self._collect(1.0)

    # ---- Events ----------------------------------------------------------------------------------

    def _event(self, keys, removed):
        return OffloadingEvent(keys=keys, medium=self.medium, removed=removed,
                               locality=self.locality)

    def take_events(self):
        """What is stored at start is announced first; again, if events were lost."""
        if self._events is None:
            return
        try:
            while True:
                if self._listing is not None:
                    listing, self._listing = self._listing, None
                    for keys, _sizes in listing:
                        if keys:
                            yield self._event(keys, removed=False)
                for kind, _reason, keys in self._events:
                    if kind in (c.EVENT_STORED, c.EVENT_REMOVED):
                        yield self._event(keys, removed=kind == c.EVENT_REMOVED)
                if not self._events.missed:
                    return
                self._listing = self._domain.list()
                self._events.restart(self._listing.sequence)
        except hosts.FAILURES as error:
            self._failures.add("events", error)

    def shutdown(self):
        self._store.close()
