"""Others that load the same rows from the same disk into the same caches
(docs/results/hosts.md), as far as they can be had in the process that load's contenders are in.

FsTier      vLLM's FileSystemTierManager, which refuses the CPU in an engine, as a library: its own
            region of shared memory, one promotion of all blocks as its manager submits it, then the
            copy into the caches that a GPU's would be. staged_ns: without that copy.
Example     vLLM's ExampleConnector, through its hooks: a safetensors file a layer.
LMCache     its server with fs_native, and the two adapters that LMCacheMPConnector is made of, with
            the calls that it makes of them; the server's memory is emptied before each load.
            staged_ns: until the rows are in the server's memory. Needs
            integrations/lmcache/setup-test.

Holds: what they read was on no page of the page cache when the clock began.
"""
import ctypes
import glob
import hashlib
import json
import mmap
import os
import socket
import subprocess
import sys
import time
import types

import numpy as np
import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.example_connector import (
    ExampleConnector, ExampleConnectorMetadata)
from vllm.v1.kv_offload.base import ReqContext, make_offload_key
from vllm.v1.kv_offload.config import (OffloadingCacheConfig, OffloadingConfig,
                                       OffloadingGroupConfig, OffloadingModelConfig,
                                       OffloadingParallelConfig)
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec
from vllm.v1.kv_offload.tiering.base import TransferJob
from vllm.v1.kv_offload.tiering.fs.manager import FileSystemTierManager

SECONDS = 120


class Told(Exception):
    """A load said itself that it failed."""


class Clock:
    """From now on; pid: of a process beside this one whose processor time counts."""

    def __init__(self, pid=None):
        self.pid = pid
        self.cpu, self.begin = self.spent(), time.perf_counter_ns()

    def spent(self):
        own = time.process_time_ns()
        if self.pid is None:
            return own
        with open(f"/proc/{self.pid}/stat", encoding="utf-8") as file:
            user, system = file.read().rsplit(")", 1)[1].split()[11:13]
        return own + (int(user) + int(system)) * 10**9 // os.sysconf("SC_CLK_TCK")

    def ns(self):
        return time.perf_counter_ns() - self.begin

    def times(self):
        ns = self.ns()
        return {"ns": ns, "cpu_ns": self.spent() - self.cpu}


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                       ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


def resident_pages(path):
    """How many pages of a file the page cache holds."""
    size = os.path.getsize(path)
    fd = os.open(path, os.O_RDONLY)
    try:
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    finally:
        os.close(fd)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), f"mmap of {path}")
    pages = (ctypes.c_uint8 * -(-size // mmap.PAGESIZE))()
    try:
        if _libc.mincore(address, size, pages) != 0:
            raise OSError(ctypes.get_errno(), f"mincore of {path}")
    finally:
        _libc.munmap(address, size)
    return sum(page & 1 for page in bytes(pages))


def drop(folder):
    """Files of a folder leave the page cache; they were synced."""
    for path in glob.glob(os.path.join(folder, "**", "*"), recursive=True):
        if not os.path.isfile(path) or os.path.getsize(path) == 0:
            continue
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
        left = resident_pages(path)
        if left:
            raise RuntimeError(f"{left} pages of {path} stay in the page cache")


class FsTier:
    files = "fs-tier/**/*.bin"

    def __init__(self, bench, jobs=1):
        self.bench, self.jobs, self.numbers = bench, jobs, 0
        self.folder = os.path.join(bench.folder, "fs-tier")
        block_bytes = bench.bytes // bench.count
        config = OffloadingConfig(
            groups=(OffloadingGroupConfig(bench.block, tuple(bench.names), 0),),
            worker_kv_bytes_per_block=block_bytes, enable_kv_cache_events=False,
            extra_config={"cpu_bytes_to_use": bench.bytes}, engine_id=f"bench-{os.getpid()}",
            model=OffloadingModelConfig(bench.shape, str(bench.dtype)),
            cache=OffloadingCacheConfig(tokens_per_hash=bench.block, blocks_per_chunk=1),
            parallel=OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, True))
        spec = CPUOffloadingSpec(config)
        self.region = SharedOffloadRegion(
            config.engine_id, spec.num_chunks, 0, spec.kv_bytes_per_chunk,
            spec.cpu_page_size_per_worker, lambda: None, populate_only_on_creator=True)
        view = self.region.create_kv_memoryview()
        self.tier = FileSystemTierManager(spec, view, "fs", self.folder)
        if not self.tier._use_o_direct:
            raise RuntimeError(f"{self.folder}: no O_DIRECT, so another comparison than it says")
        self.rows = torch.from_numpy(np.frombuffer(view, dtype=np.int16)).view(
            bench.dtype).view(bench.count, bench.layers, *bench.tensors[0].shape[1:])
        self.keys = [make_offload_key(hashlib.sha256(b"%d" % i).digest(), 0)
                     for i in range(bench.count)]
        for layer, tensor in enumerate(bench.tensors):
            self.rows[:, layer].copy_(tensor[:bench.count])
        self.run(self.tier.submit_store, False)

    def run(self, submit, is_promotion):
        """A job, or some of as many blocks each, until all have ended."""
        left, edges = set(), [self.bench.count * i // self.jobs for i in range(self.jobs + 1)]
        for first, end in zip(edges, edges[1:]):
            self.numbers += 1
            left.add(self.numbers)
            submit(TransferJob(self.numbers, self.keys[first:end],
                               np.arange(first, end, dtype=np.int32), is_promotion,
                               ReqContext("bench")))
        deadline = time.monotonic() + SECONDS
        while left:
            self.tier.drain_jobs()
            for done in self.tier.get_finished_jobs():
                if not done.success:
                    raise Told("a job of the tier failed, as the log says")
                left.discard(done.job_id)
            if time.monotonic() > deadline:
                raise TimeoutError("the tier does not end")

    def load(self, window_ns=0):
        del window_ns
        bench = self.bench
        self.rows.zero_()
        clock = Clock()
        self.run(self.tier.submit_load, True)
        staged = clock.ns()
        for layer, tensor in enumerate(bench.tensors):
            tensor[bench.count:2 * bench.count].copy_(self.rows[:, layer])
        return {**clock.times(), "staged_ns": staged}

    def check(self, who):
        self.bench.compare(who)


class FsTierJobs(FsTier):
    """As if four requests asked at once: as many of its threads read."""

    def __init__(self, bench):
        super().__init__(bench, 4)


class Example:
    files = "example/**/*.safetensors"

    def __init__(self, bench):
        self.bench, self.folder = bench, os.path.join(bench.folder, "example")
        config = bench.config("ExampleConnector", {"shared_storage_path": self.folder})
        self.connector = ExampleConnector(config, KVConnectorRole.WORKER, bench.kv_config)
        self.bind(bench.source, True)
        for module in bench.modules:
            self.connector.save_kv_layer(module.layer_name, module.kv_cache, None)

    def bind(self, blocks, is_store):
        metadata = ExampleConnectorMetadata()
        metadata.add_request([*self.bench.ids.tolist(), 7], blocks, self.bench.block, is_store, [])
        self.connector.bind_connector_metadata(metadata)

    def load(self, window_ns=0):
        del window_ns
        bench = self.bench
        drop(self.folder)
        self.bind(bench.target, False)
        context = types.SimpleNamespace(
            attn_metadata=dict.fromkeys(bench.names, object()),
            no_compile_layers=dict(zip(bench.names, bench.modules)))
        clock = Clock()
        self.connector.start_load_kv(context)
        for name in bench.names:
            self.connector.wait_for_layer_load(name)
        return clock.times()

    def check(self, who):
        self.bench.compare(who)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class LMCache:
    """Its fastest ways here: shared memory (--shm-name; rows are pickled without), O_DIRECT."""

    files = "lmcache/*.data"
    chunk = 256  # tokens, of the server: its default
    poll = .0002

    def __init__(self, bench):
        self.bench, self.numbers = bench, 0
        self.folder = os.path.join(bench.folder, "lmcache")
        os.makedirs(self.folder)
        port = free_port()
        self.serve(port)
        from lmcache.integration.vllm import vllm_multi_process_adapter as adapters
        from lmcache.integration.vllm.kv_cache_groups import create_engine_group_infos_from_vllm
        import zmq
        self.adapters, context = adapters, zmq.Context.instance()
        url, caches = f"tcp://127.0.0.1:{port}", dict(zip(bench.names, bench.tensors))
        words = (context, bench.shape, bench.block, adapters.ParallelStrategy(False, 1, 0, 1, 1, 1))
        self.scheduler = adapters.LMCacheMPSchedulerAdapter([url], *words, extra_config={})
        self.worker = adapters.LMCacheMPWorkerAdapter(url, *words, extra_config={})
        hints = {"kv_layout": "HND"}
        self.worker.register_kv_caches(
            caches, layout_hints=hints, engine_group_infos=create_engine_group_infos_from_vllm(
                bench.kv_config, caches, layout_hints=hints))
        self.store()

    def serve(self, port):
        """A process of this one's session: it ends with that."""
        gib = -(-3 * self.bench.bytes // (2 << 30)) + 1  # all rows, and nothing is evicted
        adapter = {"type": "fs_native", "base_path": self.folder, "use_odirect": True}
        words = {"host": "127.0.0.1", "port": port, "http-host": "127.0.0.1",
                 "http-port": free_port(), "chunk-size": self.chunk, "l1-size-gb": gib,
                 "l1-init-size-gb": gib, "eviction-policy": "LRU",
                 "supported-transfer-mode": "engine_driven",
                 "shm-name": f"spec_bench_{os.getpid()}", "l2-adapter": json.dumps(adapter)}
        self.server = subprocess.Popen(
            [sys.executable, "-m", "lmcache.cli.main", "server", "--disable-observability",
             *(f"--{name}={value}" for name, value in words.items())], stdin=subprocess.DEVNULL)

    def close(self):
        self.server.terminate()
        self.server.wait(SECONDS)

    def until(self, done):
        deadline = time.monotonic() + SECONDS
        while (said := done()) is None or said is False:
            if time.monotonic() > deadline or self.server.poll() is not None:
                raise TimeoutError("LMCache's server does not answer, as the log says")
            time.sleep(self.poll)
        return said

    def op(self, blocks):
        return self.adapters.LoadStoreOp(token_ids=self.bench.ids.tolist(), block_ids=[blocks],
                                         start=0, end=self.bench.tokens)

    def store(self):
        self.worker.submit_store_request("stored", self.op(self.bench.source),
                                         self.worker.create_recorded_event())
        self.until(lambda: "stored" in (self.worker.get_finished({"stored"})[0] or ()))
        self.scheduler.end_session("stored")
        self.until(lambda: sum(os.path.getsize(path) for path in glob.glob(
            os.path.join(self.folder, "*.data"))) >= self.bench.bytes)

    def load(self, window_ns=0):
        del window_ns
        if not self.scheduler.reset_cache():
            raise RuntimeError("the server's memory was not emptied")
        drop(self.folder)
        self.numbers += 1
        name, asked = f"load {self.numbers}", self.bench.ids.tolist() + [7]
        clock = Clock(self.server.pid)
        self.scheduler.maybe_submit_lookup_request(name, asked)
        count = self.until(lambda: self.scheduler.check_lookup_result(name))
        staged = clock.ns()
        if count != self.bench.tokens:
            raise Told(f"{count} of {self.bench.tokens} tokens are found")
        self.worker.submit_retrieve_request(name, self.op(self.bench.target),
                                            self.worker.create_recorded_event())
        self.until(lambda: name in (self.worker.get_finished(set())[1] or ()))
        times = clock.times()
        self.scheduler.cleanup_lookup_result(name)
        self.scheduler.end_session(name)
        return {**times, "staged_ns": staged}

    def check(self, who):
        self.bench.compare(who)


CONTENDERS = {"fs-tier": FsTier, "fs-tier x 4": FsTierJobs, "example": Example, "lmcache": LMCache}
