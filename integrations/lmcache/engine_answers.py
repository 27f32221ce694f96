"""engine_answers: vLLM computes tokens on the CPU, LMCache's server keeps its KV cache, and
spec_connector is the server's second tier. The answers must equal those of vLLM alone.

usage: run engine [--prompts N]
  --prompts  number of prompts of 276 tokens, in pairs that share 128 tokens; default 8

    vLLM - LMCacheMPConnector - lmcache server - native_plugin - spec_connector - disk

Every pass starts a new vLLM and a new server, whose host memory is empty, and kills both (SIGKILL):
  cold       fills an empty store
  restarted  loads 256 tokens of each prompt from the store
  damaged    runs after one bit was changed in every second value on the disk
Prompts are computed one at a time in steps of 128 tokens, so that both engines compute the same
shapes. Token ids and the top 20 logprobs of each token are compared bit by bit.
Exit status: 0 all passes hold, 1 one does not.
"""
import argparse
import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
VLLM = os.path.join(ROOT, "integrations", "vllm")
sys.path.insert(0, VLLM)
from runs import engines  # noqa: E402

MODEL = os.path.join(ROOT, "models", "opt-recall")
CHUNK, BLOCK = 128, 32  # tokens, of LMCache and of vLLM
VALUE_BYTES = 512 << 10  # a chunk of MODEL in float32
L1_GIB = 1 / 32  # host memory of the server, in /dev/shm, of which containers may have 64 MiB
PASSES = ("cold", "restarted", "damaged")
SECONDS = 120
QUIET = {"LMCACHE_DISABLE_BANNER": "1", "LMCACHE_LOG_LEVEL": "WARNING",
         "LMCACHE_TRACK_USAGE": "false"}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Server:
    """`lmcache server` with the store in a folder; killed at the end."""

    def __init__(self, folder, name):
        self.counts_path = os.path.join(folder, f"{name}.json")
        self.log, self.port = os.path.join(folder, f"server-{name}.log"), free_port()
        self.shm = f"spec_answers_{os.getpid()}_{name}"
        adapter = {"type": "native_plugin", "module_path": "counted_client",
                   "class_name": "CountedClient", "adapter_params": {
                       "config": {"path": store_of(folder), "disk_bytes": "1GiB"}}}
        words = {"host": "127.0.0.1", "port": self.port, "http-host": "127.0.0.1",
                 "http-port": free_port(), "chunk-size": CHUNK, "l1-size-gb": L1_GIB,
                 "l1-align-bytes": 4096, "eviction-policy": "LRU",
                 "supported-transfer-mode": "engine_driven", "shm-name": self.shm,
                 "l2-adapter": json.dumps(adapter)}
        env = {**os.environ, **QUIET, "PYTHONPATH": os.pathsep.join([engines.PACKAGE, HERE]),
               "SPEC_CONNECTOR_LIBRARY": engines.LIBRARY, "SPEC_TEST_COUNTS": self.counts_path}
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "lmcache.cli.main", "server",
                 "--disable-observability", *(f"--{key}={value}" for key, value in words.items())],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        engines.kill_session(self.process.pid)
        self.process.wait()
        for name in os.listdir("/dev/shm"):
            if self.shm in name:
                os.remove(os.path.join("/dev/shm", name))

    def listens(self):
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    def wait(self, done, what):
        end = time.monotonic() + SECONDS
        while not done():
            if time.monotonic() > end or self.process.poll() is not None:
                with open(self.log, encoding="utf-8", errors="replace") as log:
                    raise TimeoutError(f"lmcache server: {what}: {log.read()[-4000:]}")
            time.sleep(.05)

    def counts(self):
        """Counts of the store since this server opened it."""
        with contextlib.suppress(FileNotFoundError), \
                open(self.counts_path, encoding="utf-8") as file:
            return json.load(file)
        return {}


@dataclasses.dataclass
class Pass:
    different: list  # prompts whose answers are not those of vLLM alone
    external: list   # tokens of each prompt that the connector loaded
    counts: dict     # of the store


def store_of(folder):
    return os.path.join(folder, "store")


def chunks_of(prompts):
    """How many values the chunks of all prompts are."""
    return len({tuple(ids[:end]) for ids in prompts
                for end in range(CHUNK, len(ids) + 1, CHUNK)})


def give_llvmlite_no_dict(_llm):
    """Lets vLLM 0.32 start on the CPU after LMCache imported numba. vLLM's search for kernels
    (triton_utils/dispatcher.py, on the CPU alone) calls vars() of every object that a module
    holds, and expects a dict; the `__dict__` of llvmlite's `lib` is a function."""
    from llvmlite.binding import ffi
    look_up = ffi._lib_wrapper.__getattr__

    def look_up_function(self, name):
        if name == "__dict__":
            raise AttributeError(name)
        return look_up(self, name)
    ffi._lib_wrapper.__getattr__ = look_up_function


def answers_of(folder, name, prompts, server=None):
    """The answers of a new vLLM, which is killed after them."""
    words = {"model": MODEL, "dtype": "float32", "max_model_len": 1024, "block_size": BLOCK,
             "kv_cache_memory_bytes": 64 << 20, "enforce_eager": True, "max_num_seqs": 4,
             "enable_prefix_caching": False, "max_num_batched_tokens": engines.STEP}
    if server:
        words["kv_transfer_config"] = {
            "kv_connector": "LMCacheMPConnector", "kv_role": "kv_both",
            "kv_connector_extra_config": {"lmcache.mp.host": "tcp://127.0.0.1",
                                          "lmcache.mp.port": server.port}}
    env = {**QUIET, "PYTHONPATH": os.pathsep.join([engines.PACKAGE, VLLM, HERE])}
    with engines.Host(folder, f"vllm-{name}", env=env, python=sys.executable) as host:
        host.call("engine_answers:give_llvmlite_no_dict")
        if server:
            server.wait(server.listens, "does not listen")
        host.start(words)
        return host.ask(prompts)["answers"]


def run(folder, prompts):
    """Yields (name, Pass) of each of PASSES."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # so do its processes
    alone = answers_of(folder, "alone", prompts)
    for name in PASSES:
        if name == "damaged":
            engines.damage(os.path.join(store_of(folder), "objects-0000-of-0001"),
                           step=2 * VALUE_BYTES)
        with Server(folder, name) as server:
            answers = answers_of(folder, name, prompts, server)
            if name == "cold":  # LMCache stores in the background
                server.wait(lambda: server.counts().get("put_stored") == chunks_of(prompts),
                            "did not store every chunk")
            yield name, Pass(engines.differences(alone, answers),
                             [answer["external"] for answer in answers], server.counts())


def holds(name, done, prompts):
    """Whether a pass is right: answers, and where their KV came from."""
    counts, loaded = done.counts, all(count == 2 * CHUNK for count in done.external)
    came = {"cold": counts["get_hits"] == 0,
            "restarted": loaded and counts["get_hits"] == len(prompts) * 2
            and counts["put_stored"] == 0,
            "damaged": not loaded and counts["damaged_objects"] > 0 and counts["get_hits"] > 0}
    return not done.different and came[name]


def main(words):
    parser = argparse.ArgumentParser(prog="integrations/lmcache/run engine")
    parser.add_argument("--prompts", type=int, default=8)
    args = parser.parse_args(words)
    prompts, is_right = engines.prompts_of(args.prompts, BLOCK), True
    with tempfile.TemporaryDirectory() as folder:
        for name, done in run(folder, prompts):
            counts = done.counts
            is_right &= engines.verdict(
                f"{name:10}{len(prompts) - len(done.different)} of {len(prompts)} answers "
                f"bit-identical, {sum(done.external)} tokens loaded; values of the store: "
                f"{counts['put_stored']} stored, {counts['get_hits']} of {counts['get_keys']} "
                f"loaded, {counts['damaged_objects']} damaged", holds(name, done, prompts))
    return 0 if is_right else 1
