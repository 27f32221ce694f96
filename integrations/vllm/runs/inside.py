"""What tests do inside an engine's process, by an order `call`; each function's first argument is
the engine. Scheduler and worker are in this process."""
import array
import time

from vllm.distributed.kv_transfer.kv_transfer_state import get_kv_transfer_group

SETTLE_SECONDS = 60


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
