"""What tests do inside an engine's process, by an order `call`; each function's first argument is
the engine. Scheduler and worker are in this process."""
import array
import time
import types

from vllm.distributed.kv_transfer.kv_transfer_state import get_kv_transfer_group

SETTLE_SECONDS = 60
POISONED = -14


def sides(llm):
    """The connector's two sides: the scheduler's and the worker's."""
    core = llm.llm_engine.engine_core.engine_core
    return core.scheduler.connector._side, get_kv_transfer_group()._side


def settle(llm, prompts, count):
    """Until the scheduler's side sees `count` tokens of each prompt: 100 ms, unless all is slow."""
    reader, worker = sides(llm)
    end = time.monotonic() + SETTLE_SECONDS
    for held in (worker.saving, *worker.saving.stored.values()):
        worker.conn.wait(held.tickets)  # each is told once
        held.tickets = []
    for prompt in prompts:
        ids = array.array("I", prompt).tobytes()
        while (seen := reader.conn.lookup(ids, peek=True).stored_tokens) < count:
            if time.monotonic() > end:
                raise TimeoutError(f"{seen} tokens of a prompt are stored, expected {count}")
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
