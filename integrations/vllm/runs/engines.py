"""What the tests share: engines in other processes, prompts, comparisons, damage and kills.

Holds: every process that is started is ended, with all that it started itself; an engine that does
not answer in time, or ends, ends the test with the end of its log.
"""
import json
import os
import select
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(os.path.dirname(HERE))
PACKAGE = os.path.join(ROOT, "python")
ENV = os.environ.get("SPEC_VLLM_ENV", os.path.join(ROOT, "build", "vllm"))
LIBRARY = os.environ.get("SPEC_CONNECTOR_LIBRARY",
                         os.path.join(ROOT, "build", "lib", "libspec_connector.so"))
SKIPPED = 77
PREFIX, STEP, SUFFIX = 128, 128, 20  # shared tokens, and own ones; max_num_batched_tokens; the rest
WHOLE = 2 * PREFIX  # tokens of a prompt that the store has in whole blocks
TOKENS = 24  # of an answer, unless said otherwise
ORDER_SECONDS = 3600
MODULE = "spec_connector.vllm"
CORE = str(max(os.sched_getaffinity(0)))


def model_of(name):
    known = {"opt-recall": (ROOT, "..", "shared", "data", "models", "opt-recall"),
             "smollm2": (ROOT, "build", "models", "smollm2")}
    return os.path.normpath(os.path.join(*known[name])) if name in known else name


def words_of(args, block, store=None, *, extra=None, module=MODULE, plugin=None, **engine):
    """Arguments of vllm.LLM; store: a folder for the plugin's configuration and store. All that
    is stored is loaded, whatever it costs beside computing it: what is loaded is compared."""
    words = {"model": args.model, "dtype": "float32", "max_model_len": 1024,
             "kv_cache_memory_bytes": 64 << 20, "enforce_eager": True, "block_size": block,
             "enable_prefix_caching": False, "max_num_batched_tokens": STEP, "max_num_seqs": 4}
    if store is not None:
        config = os.path.join(store, "spec.json")
        with open(config, "w", encoding="utf-8") as file:
            json.dump({"path": os.path.join(store, "kv"), "disk_bytes": "8GiB",
                       "segment_bytes": "8MiB", "load_policy": "load", **(plugin or {})}, file)
        words["kv_transfer_config"] = {
            "kv_connector": "SpecConnector", "kv_connector_module_path": module,
            "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"config": config, "rows": args.rows, **(extra or {})}}
    return {**words, **engine}


class Failed(Exception):
    """What an order raised in the engine's process."""


class Host:
    """A process with vLLM in it, in a session of its own; engines run there one after another.

    apart: the engine's core and workers are processes of their own, as vLLM has it by default.
    Other engines compute on one thread: on a machine that is busy, threads that wait for each
    other after every operation take ten times as long, and small models need no more.
    """

    def __init__(self, folder, name="host", apart=False, env=None, python=None):
        self.name, self.log, self.seen = name, os.path.join(folder, f"{name}.log"), 0
        back, theirs = os.pipe()
        ways = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"} if apart else {
            "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": CORE}
        env = {**os.environ, "PYTHONPATH": PACKAGE + os.pathsep + HERE,
               "SPEC_CONNECTOR_LIBRARY": LIBRARY, **ways, **(env or {})}
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [python or os.path.join(ENV, "bin", "python"), os.path.join(HERE, "engine.py"),
                 str(theirs)],
                stdin=subprocess.PIPE, stdout=log, stderr=log, env=env, pass_fds=[theirs],
                start_new_session=True)
        os.close(theirs)
        self.replies = os.fdopen(back, "rb", buffering=0)
        self.rest = b""

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.kill()

    def kill(self):
        """SIGKILL to every process of it."""
        kill_session(self.process.pid)
        self.process.wait()
        for file in (self.replies, self.process.stdin):
            try:
                file.close()
            except BrokenPipeError:
                continue  # an order that nobody read

    def send(self, do, **words):
        self.process.stdin.write(json.dumps({"do": do, **words}).encode() + b"\n")
        self.process.stdin.flush()

    def reply(self, seconds=ORDER_SECONDS):
        end = time.monotonic() + seconds
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.replies], [], [], max(0, end - time.monotonic()))
            part = self.replies.read(1 << 20) if ready else b""
            if not part:
                sys.exit(f"{self.name} {'ended' if ready else 'did not answer'}:\n{self.tail()}")
            self.rest += part
        line, self.rest = self.rest.split(b"\n", 1)
        self.say()
        said = json.loads(line)
        if "error" in said:
            raise Failed(said["error"])
        return said["result"]

    def order(self, do, seconds=ORDER_SECONDS, **words):
        self.send(do, **words)
        return self.reply(seconds)

    def lines(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()

    def tail(self):
        lines = self.lines()
        return "\n".join([line for line in lines if "Error" in line] + ["..."] + lines[-40:])

    def say(self):
        """New lines of the connector's."""
        lines = self.lines()
        for line in lines[self.seen:]:
            if "spec_connector:" in line:
                print(f"  {self.name}: {line}", flush=True)
        self.seen = len(lines)

    def start(self, words):
        try:
            self.order("start", engine=words)
        except Failed as error:
            sys.exit(f"{self.name}: no engine: {error}\n{self.tail()}")

    def stop(self):
        self.order("stop")

    def call(self, name, **args):
        return self.order("call", name=name, args=args)

    def ask(self, prompts, **how):
        return self.order("ask", **asking(prompts, **how))

    def once(self, words, prompts, **how):
        """The answers of an engine that does nothing else; .counts of it are its counters."""
        self.start(words)
        said = self.ask(prompts, **how)
        self.stop()
        return said


def asking(prompts, batch=False, tokens=TOKENS, turns=1, more=None, lora=None, **sampling):
    return {"prompts": prompts, "batch": batch, "turns": turns, "more": more, "lora": lora,
            "sampling": {"max_tokens": tokens, "temperature": 0.0, "logprobs": 20,
                         "ignore_eos": True, **sampling}}


def prompts_of(count, seed, suffix=SUFFIX):
    """Prompts in pairs that share a prefix, have as many tokens of their own, and end inside a
    block: what an engine keeps of the first one of a pair is half of what the store has of the
    second."""
    made = []
    for i in range(count):
        shared = [5 + (7 * j + j * j % 13 + (i // 2 + seed) * 31) % 190 for j in range(PREFIX)]
        own = [5 + (11 * j + j * j % 17 + (i + seed) * 37) % 190 for j in range(PREFIX)]
        own[:2] = [5 + (i + seed) % 190, 5 + (i + seed) // 190]
        made.append(shared + own + [10 + (i * 3 + j * 5) % 180 for j in range(suffix)])
    return made


def differences(ours, theirs):
    return [i for i, (a, b) in enumerate(zip(ours, theirs, strict=True))
            if (a["ids"], a["logprobs"]) != (b["ids"], b["logprobs"])]


def distance(ours, theirs):
    """(answers with other ids, the largest difference of a logprob that both sides tell)."""
    other, most = 0, 0.0
    for a, b in zip(ours, theirs, strict=True):
        other += a["ids"] != b["ids"]
        for x, y, left, right in zip(a["logprobs"], b["logprobs"], a["ids"], b["ids"]):
            if left != right:
                break
            most = max([most] + [abs(x[t] - y[t]) for t in x.keys() & y.keys()])
    return other, most


def verdict(what, holds):
    print(f"{what}: {'holds' if holds else 'DOES NOT HOLD'}", flush=True)
    return bool(holds)


def spec_ctl(command, store, *words):
    """What spec-ctl says of a store."""
    return subprocess.run([os.path.join(ROOT, "build", "bin", "spec-ctl"), command, *words,
                           os.path.join(store, "kv")],
                          capture_output=True, text=True, check=True).stdout


def rank_of(store):
    return os.path.join(store, "kv", "rank-0000-of-0001")


def damage(folder, first=1000, step=4096):
    """A bit in every fourth KiB of the segments."""
    for name in os.listdir(folder):
        if name.startswith("seg-"):
            with open(os.path.join(folder, name), "r+b") as file:
                for at in range(first, os.path.getsize(file.name), step):
                    file.seek(at)
                    byte = file.read(1)
                    file.seek(at)
                    file.write(bytes([byte[0] ^ 4]))


def session_of(session):
    """Pids of the processes of a session that are no zombies."""
    left = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.getsid(int(name)) == session:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    if file.read().rsplit(")", 1)[1].split()[0] != "Z":
                        left.append(int(name))
        except (ProcessLookupError, FileNotFoundError):
            continue
    return left


def kill_session(session):
    """Every process of it, until none is left: the store has one writer."""
    while left := session_of(session):
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)
