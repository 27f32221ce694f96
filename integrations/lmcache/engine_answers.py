"""engine_answers: vLLM computes tokens on the CPU, LMCache's server keeps its KV cache, and
spec_connector is the server's second tier. The answers must equal those of vLLM alone.

usage: run engine [--prompts N]
  --prompts  number of prompts of 276 tokens, in pairs that share 128 tokens; default 8

    vLLM - LMCacheMPConnector - lmcache server - native_plugin - spec_connector - disk

Every pass starts a new vLLM and a new server, whose host memory is empty, and kills both (SIGKILL):
  cold       fills an empty store
  restarted  loads 256 tokens of each prompt from the store
  damaged    runs after one bit was changed in every second value on the disk
Then two servers, a vLLM with each, have one new store open:
  A stores   fills it; B loads: finds what A has stored; B stores, A loads: the other way round
  A is dead  B is asked what A's server was storing when it was killed (SIGKILL)
  A again    a new server in its place loads what both have stored
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
BESIDE = ("A stores", "B loads", "B stores", "A loads", "A is dead", "A again")
CORES = sorted(os.sched_getaffinity(0))
SECONDS = 300
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

    def dies_in_a_put(self):
        """The next time that it stores, it kills itself."""
        with open(f"{self.counts_path}.kill", "w", encoding="utf-8"):
            pass

    def wait_for(self, count, prompts):
        """Waits until a count is that of the chunks of prompts."""
        self.wait(lambda: self.counts().get(count) == chunks_of(prompts),
                  f"has {count} other than {chunks_of(prompts)}")

    def counts_now(self):
        """Counts that the server read after this call began: those of the second next file."""
        def written():
            with contextlib.suppress(FileNotFoundError):
                now = os.stat(self.counts_path)
                return now.st_ino, now.st_mtime_ns
            return None
        for _ in range(2):
            last = written()
            self.wait(lambda last=last: written() != last, "writes no counts")
        return self.counts()

    def counts(self):
        """Counts of the store since this server opened it, and its levels."""
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


@contextlib.contextmanager
def engine_of(folder, name, server=None, core=CORES[-1]):
    """A new vLLM, which is killed at the end."""
    words = {"model": MODEL, "dtype": "float32", "max_model_len": 1024, "block_size": BLOCK,
             "kv_cache_memory_bytes": 64 << 20, "enforce_eager": True, "max_num_seqs": 4,
             "enable_prefix_caching": False, "max_num_batched_tokens": engines.STEP}
    if server:
        words["kv_transfer_config"] = {
            "kv_connector": "LMCacheMPConnector", "kv_role": "kv_both",
            "kv_connector_extra_config": {"lmcache.mp.host": "tcp://127.0.0.1",
                                          "lmcache.mp.port": server.port}}
    env = {**QUIET, "VLLM_CPU_OMP_THREADS_BIND": str(core),
           "PYTHONPATH": os.pathsep.join([engines.PACKAGE, VLLM, HERE])}
    with engines.Host(folder, f"vllm-{name}", env=env, python=sys.executable) as host:
        host.call("engine_answers:give_llvmlite_no_dict")
        if server:
            server.wait(server.listens, "does not listen")
        host.start(words)
        yield host


def prompts_of(count):
    """Of PASSES, and three times as many for BESIDE."""
    made = engines.prompts_of(4 * count, BLOCK)
    return [made[first:first + count] for first in range(0, 4 * count, count)]


def run(folder, prompts, *sets):
    """Yields (name, Pass) of each of PASSES and of BESIDE. All as prompts_of makes them."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # so do its processes
    with engine_of(folder, "alone") as host:
        alone, *others = [host.ask(asked)["answers"] for asked in (prompts, *sets)]
    yield from run_alone(folder, prompts, alone)
    beside = os.path.join(folder, "beside")
    os.mkdir(beside)
    with contextlib.ExitStack() as stack:
        yield from Beside(beside, sets, others, stack).run()


def run_alone(folder, prompts, alone):
    """One server at a time."""
    for name in PASSES:
        if name == "damaged":
            engines.damage(os.path.join(store_of(folder), "objects-0000-of-0001"),
                           step=2 * VALUE_BYTES)
        with Server(folder, name) as server:
            with engine_of(folder, f"vllm-{name}", server) as host:
                answers = host.ask(prompts)["answers"]
            if name == "cold":  # LMCache stores in the background
                server.wait_for("put_stored", prompts)
            yield name, Pass(engines.differences(alone, answers),
                             [answer["external"] for answer in answers], server.counts_now())


class Beside:
    """Two servers over one store, a vLLM with each. sets: A's and B's prompts, and those that A's
    server does not come to store; alone: the answers of vLLM alone to each."""

    def __init__(self, folder, sets, alone, stack):
        self.folder, self.sets, self.alone, self.stack = folder, sets, alone, stack

    def started(self, name, core):
        server = self.stack.enter_context(Server(self.folder, name))
        host = engine_of(self.folder, f"vllm-{name}", server, core)
        return server, self.stack.enter_context(host)

    def ask(self, name, which, server, host, stored=None):
        """(name, Pass): the answers to sets, and by how much the server's counts grew. stored:
        first waits until each of these servers finds the chunks of these prompts."""
        before = server.counts_now()
        answers = [answer for i in which for answer in host.ask(self.sets[i])["answers"]]
        for one, prompts in stored or ():  # LMCache stores in the background
            one.wait_for("objects", prompts)
        alone = [answer for i in which for answer in self.alone[i]]
        return name, Pass(engines.differences(alone, answers),
                          [answer["external"] for answer in answers],
                          {key: value - before.get(key, 0)
                           for key, value in server.counts_now().items()})

    def run(self):
        lost = self.sets[2]
        a, a_host = self.started("A", CORES[0])
        b, b_host = self.started("B", CORES[-1])
        both = self.sets[0] + self.sets[1]
        yield self.ask("A stores", [0], a, a_host, [(a, self.sets[0]), (b, self.sets[0])])
        yield self.ask("B loads", [0], b, b_host)
        yield self.ask("B stores", [1], b, b_host, [(a, both), (b, both)])
        yield self.ask("A loads", [1], a, a_host)
        a.dies_in_a_put()
        a_host.send("ask", **engines.asking(lost))
        status = a.process.wait(SECONDS)
        assert status == -signal.SIGKILL, f"A's server ended with {status}"
        a_host.kill()  # it may wait for its server for long
        yield self.ask("A is dead", [0, 1, 2], b, b_host, [(b, both + lost)])
        yield self.ask("A again", [0, 1, 2], *self.started("A2", CORES[0]))


def holds(name, done, prompts):
    """Whether a pass is right: answers, and where their KV came from."""
    counts, whole = done.counts, [count == 2 * CHUNK for count in done.external]
    is_loaded, count = all(whole), len(prompts)
    came = {"cold": counts["get_hits"] == 0,
            "restarted": is_loaded and counts["get_hits"] == count * 2
            and counts["put_stored"] == 0,
            "damaged": not is_loaded and counts["damaged_objects"] > 0 and counts["get_hits"] > 0,
            "A is dead": all(whole[:2 * count]),
            "A again": is_loaded and counts["put_stored"] == 0}
    came["A stores"] = came["B stores"] = (counts["put_stored"] == chunks_of(prompts)
                                           and counts["get_hits"] == 0)
    came["B loads"] = came["A loads"] = came["restarted"]
    return not done.different and came[name]


def main(words):
    parser = argparse.ArgumentParser(prog="integrations/lmcache/run engine")
    parser.add_argument("--prompts", type=int, default=8)
    args = parser.parse_args(words)
    sets, is_right = prompts_of(args.prompts), True
    with tempfile.TemporaryDirectory() as folder:
        for name, done in run(folder, *sets):
            counts, asked = done.counts, len(done.external)
            is_right &= engines.verdict(
                f"{name:10}{asked - len(done.different)} of {asked} answers "
                f"bit-identical, {sum(done.external)} tokens loaded; values of the store: "
                f"{counts['put_stored']} stored, {counts['get_hits']} of {counts['get_keys']} "
                f"loaded, {counts['damaged_objects']} damaged", holds(name, done, sets[0]))
    return 0 if is_right else 1
