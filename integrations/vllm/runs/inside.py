"""What tests do inside an engine's process, by an order `call`; each function's first argument is
the engine. Scheduler and worker are in this process."""
import array
import os
import signal
import statistics
import time
import types

from vllm import SamplingParams
from vllm.distributed.kv_transfer.kv_transfer_state import get_kv_transfer_group

from spec_connector.connector import Identity
from spec_connector.vllm.messages import Load, Save, SpecMetadata

SETTLE_SECONDS = 60
PLUGIN_CALLS = ("begin_layer", "submit", "wait_for")
POISONED = -14


def sides(llm):
    """The connector's two sides: the scheduler's and the worker's."""
    core = llm.llm_engine.engine_core.engine_core
    return core.scheduler.connector._side, get_kv_transfer_group()._side


def written(llm):
    """Until what was to be stored is."""
    _, worker = sides(llm)
    for held in (worker.saving, *worker.saving.stored.values()):
        worker.conn.wait(held.tickets)  # each is told once
        held.tickets = []


def settle(llm, prompts, count):
    """Until the scheduler's side sees `count` tokens of each prompt: 100 ms, unless all is slow."""
    reader, worker = sides(llm)
    end = time.monotonic() + SETTLE_SECONDS
    written(llm)
    for prompt in prompts:
        ids = array.array("I", prompt).tobytes()
        while (seen := reader.conn.lookup(ids, peek=True).stored_tokens) < count:
            if time.monotonic() > end:
                stats = worker.conn.stats()
                raise TimeoutError(f"{seen} tokens of prompt {ids[:8].hex()} are stored, expected "
                                   f"{count}; {({n: v for n, v in stats.items() if v})}")
            time.sleep(0.01)


def reset(llm):
    return llm.reset_prefix_cache(reset_connector=True)


def make_stale(llm):
    """The next load's lease is stale: all is forgotten between its promise and its attach."""
    _, worker = sides(llm)
    attach, connector, llm.failed = worker.conn.attach, get_kv_transfer_group(), []
    told = connector.get_block_ids_with_load_errors

    def late(lease, from_token=0):
        worker.conn.attach = attach
        worker.conn.reset()
        return attach(lease, from_token)

    def tell():
        blocks = told()
        llm.failed += blocks
        return blocks

    worker.conn.attach, connector.get_block_ids_with_load_errors = late, tell


def failed_blocks(llm):
    return len(llm.failed)


def poison(llm, first):
    """From the first call of this name on every call of the plugin but for stats says so, as one
    does whose invariant broke: our builds for tests abort there instead."""
    state = {"is_poisoned": False}

    def guard(name, call):
        def run(*args):
            state["is_poisoned"] |= name == first
            return POISONED if state["is_poisoned"] else call(*args)
        return run

    for side in sides(llm):
        table = side.conn._api
        names = [field for field, _ in table._fields_]
        side.conn._api = types.SimpleNamespace(**{
            name: guard(name, getattr(table, name)) for name in names
            if callable(getattr(table, name)) and name not in ("close", "stats")},
            close=table.close, stats=table.stats)


def speeds(llm, prompt, short, count):
    """Seconds to the first token of a prompt, and those of `count` decoded tokens of another."""
    took = []
    for ids, tokens in ((prompt, 1), (short, count)):
        start = time.perf_counter()
        llm.generate([{"prompt_token_ids": ids}],
                     SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True),
                     use_tqdm=False)
        took.append(time.perf_counter() - start)
    return took


def untimed(llm):
    """The plugin is told of no step from now on."""
    sides(llm)[1].timing.clock = None


def costs(llm):
    """What the plugin knows of this engine, in picoseconds a token: computing, loading."""
    stats = sides(llm)[1].conn.stats()
    return stats["compute_token_ps"], stats["load_token_ps"]


def stored_tokens(llm):
    return sides(llm)[1].conn.stats()["stored_tokens"]


def write_bytes(llm):
    return sides(llm)[1].conn.stats()["write_bytes"]


def counters(llm):
    """Counters of the worker's side: the connector's, as /metrics has them, and the plugin's."""
    stats, told = sides(llm)[1].conn.stats(), {"loaded": 0, "failed": 0}
    for metric in llm.get_metrics():
        if metric.name == "vllm:spec_connector_tokens" and metric.labels["kind"] == "loaded":
            told["loaded"] += metric.value
        if metric.name == "vllm:spec_connector_failed_loads":
            told["failed"] += metric.value
    return {**told, **{name: stats[name] for name in ("stored_tokens", "read_bytes",
                                                      "write_bytes")}}


def die_storing(llm, passes, seconds):
    """kill -9 of this process while it stores: its first `passes` are stored, and the next one has
    been submitted for so many seconds."""
    _, worker = sides(llm)
    store, left = worker.saving.store, [passes]

    def count_down(steps):
        if left[0] == 0:
            written(llm)
        store(steps)
        if left[0] == 0:
            time.sleep(seconds)
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1

    worker.saving.store = count_down


def idle_us(llm, rounds=2000):
    """A layer's two hooks, no load pending."""
    del llm
    connector, taken = get_kv_transfer_group(), []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        connector.wait_for_layer_load("model.layers.0.self_attn")
        connector.save_kv_layer("model.layers.0.self_attn", None, None)
        taken.append(time.perf_counter_ns() - start)
    return statistics.median(taken) / 1000


def timed(conn, name, spent):
    """From now on spent[0] grows by what this call of the connection takes."""
    call = getattr(conn, name)

    def run(*args):
        start = time.perf_counter_ns()
        try:
            return call(*args)
        finally:
            spent[0] += time.perf_counter_ns() - start
    setattr(conn, name, run)


def loading_us(llm, prompts, block, rounds=50):
    """(ours, the plugin's) for a layer of loads of all prompts, into the last blocks there are."""
    reader, worker = sides(llm)
    blocks, ours, plugin, spent = worker.caches.tensors[0].shape[0], [], [], [0]
    for name in PLUGIN_CALLS:
        timed(worker.conn, name, spent)
    for _ in range(rounds):
        loads = []
        for i, prompt in enumerate(prompts):
            ids = array.array("I", prompt[:257]).tobytes()
            found = reader.conn.lookup(ids, peek=True, exact=True, multiple_of=block)
            held = [blocks - 1 - (i * 8 + j) for j in range(256 // block)]
            loads.append(Load(f"r{i}", found.lease, 0, 256, held))
        worker.start(SpecMetadata(loads))
        for name in worker.caches.names:
            spent[0], start = 0, time.perf_counter_ns()
            worker.await_layer(name)
            taken = time.perf_counter_ns() - start
            ours.append(taken - spent[0])
            plugin.append(spent[0])
        worker.finish()
        if worker.errors:
            raise RuntimeError(f"loads failed: blocks {sorted(worker.errors)}")
    for name in PLUGIN_CALLS:
        delattr(worker.conn, name)
    return statistics.median(ours) / 1000, statistics.median(plugin) / 1000


def store_rows(llm, tokens):
    """Any rows of these tokens, out of the caches; as many as a call takes from them."""
    _, worker = sides(llm)
    block = worker.caches.block
    blocks = [i % (worker.caches.tensors[0].shape[0] - 1) + 1 for i in range(len(tokens) // block)]
    end = len(blocks) * block
    save = Save("rows", end, array.array("I", tokens[:end]).tobytes(), blocks, Identity())
    worker.saving.save(SpecMetadata([], [save], [], worker.conn.epoch()))
    worker.conn.wait(worker.saving.stored["rows"].tickets)
    worker.saving.stored["rows"].tickets = []
    worker.saving.save(SpecMetadata([], [], ["rows"]))
    settle(llm, [tokens], end // 2)


def match_us(llm, count, rounds=50):
    """What the scheduler's side takes for a request that it sees the first time."""
    from vllm import SamplingParams
    from vllm.v1.request import Request
    core = llm.llm_engine.engine_core.engine_core
    connector, taken = core.scheduler.connector, {"absent": [], "found": []}
    stored = list(range(7, 7 + count))
    store_rows(llm, stored)
    for i in range(rounds):
        for kind, tokens in (("absent", [7 + i] * count), ("found", stored)):
            request = Request(f"timed-{kind}-{i}", tokens, SamplingParams(max_tokens=1), None)
            start = time.perf_counter_ns()
            matched, _ = connector.get_num_new_matched_tokens(request, 0)
            taken[kind].append(time.perf_counter_ns() - start)
            connector.request_finished(request, [])
            if (matched > count // 2) != (kind == "found"):
                raise RuntimeError(f"{matched} tokens of a request that is {kind}")
    return {kind: statistics.median(times) / 1000 for kind, times in taken.items()}
