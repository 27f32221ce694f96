"""What steps of the engine take to compute, for the plugin's choice between loading and computing.

    scheduler   step_of(output): tokens that the step computes, their positions -- metadata -->
    worker      saves are submitted, loads begun .. forward of all layers .. wait_for_save is called
                begin                               waiting (await_layer)    end: told, without it

A step without loads begins where handle_preemptions ends, because vLLM 0.32 calls start_load_kv
behind the forward then; so the engine's preparation of the step counts as computing.

On the CPU the wall clock times the step. On a CUDA device two events on the engine's stream time
it. They are asked when a later step begins, and nothing waits for them. How long the device itself
stood still for a load is not known there, so steps with loads are not timed. (This has not yet run
on a GPU.)

Holds: nothing here ends or delays a step: an exception is counted, and logged once.
Threads: the engine's one. Tests: tests/test_step_time.py, runs/cost.py.
"""
import contextlib
import time

from vllm.logger import init_logger

from .messages import Step

logger = init_logger("vllm.spec_connector")

TOKENS_MIN = 128  # the plugin learns nothing from fewer
UNDER_WAY_MAX = 8  # timings of a device that were not asked yet


def failed(counts, error):
    if counts.is_first("timed_steps/error"):
        logger.warning("spec_connector: a step is not timed: %s: %s", type(error).__name__, error)
    counts.add("timed_steps", "error")


def step_of(output, tracked, counts):
    """What a scheduled step computes. None: too little."""
    try:
        return describe(output, tracked)
    except Exception as error:  # pylint: disable=broad-except
        failed(counts, error)
        return None


def describe(output, tracked):
    scheduled = output.num_scheduled_tokens
    if sum(scheduled.values()) < TOKENS_MIN:
        return None
    cached = output.scheduled_cached_reqs
    begins = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
    begins.update(zip(cached.req_ids, cached.num_computed_tokens))
    tokens = positions = 0
    for request_id, count in scheduled.items():
        tokens += count
        positions += count * begins[request_id] + count * (count - 1) // 2
    return Step(tokens, positions, is_part(scheduled, begins, tracked))


def is_part(scheduled, begins, tracked):
    """Whether the step computes a part of one prompt, which ends behind it; single tokens of
    requests that decode do not count."""
    prompts = [(request_id, count) for request_id, count in scheduled.items() if count > 1]
    if len(prompts) != 1:
        return False
    (request_id, count), = prompts
    known = tracked.get(request_id)
    return known is not None and begins[request_id] + count < known.request.num_tokens


class Wall:
    """The wall clock: the CPU has computed when the call returns."""

    times_loads = True

    def begin(self):
        return time.perf_counter_ns()

    def end(self, begun):
        return time.perf_counter_ns() - begun

    def ns(self, took):
        return took


class Events:
    """A CUDA device's own clock; not yet run on a GPU."""

    times_loads = False

    def __init__(self, torch):
        self.torch = torch

    def event(self):
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()  # on the engine's current stream
        return event

    def begin(self):
        return self.event()

    def end(self, begun):
        return begun, self.event()

    def ns(self, took):
        """None: the device is not so far."""
        begun, ended = took
        return int(begun.elapsed_time(ended) * 1e6) if ended.query() else None


def clock_of(device):
    """None: steps on such a device are not timed."""
    if device.type == "cpu":
        return Wall()
    if device.type == "cuda":
        import torch
        return Events(torch)
    return None


class Timing:
    def __init__(self, conn, device, counts):
        self.conn, self.counts, self.clock = conn, counts, None
        self.step, self.begun, self.waited_ns = None, None, 0
        self.under_way = []  # (step, what the clock says of it, ns that it waited)
        with self.harmless():
            self.clock = clock_of(device)

    @contextlib.contextmanager
    def harmless(self):
        try:
            yield
        except Exception as error:  # pylint: disable=broad-except
            self.step = None
            failed(self.counts, error)

    def begin(self, step, has_loads):
        """The last call before the step computes."""
        self.step, self.waited_ns = None, 0
        if self.clock is None:
            return
        with self.harmless():
            self.tell()
            if step is not None and step.tokens >= TOKENS_MIN and (self.clock.times_loads
                                                                   or not has_loads):
                self.step, self.begun = step, self.clock.begin()

    @contextlib.contextmanager
    def waiting(self):
        """The step waits for rows meanwhile, or places them."""
        begun = time.perf_counter_ns()
        try:
            yield
        finally:
            self.waited_ns += time.perf_counter_ns() - begun

    def end(self):
        """The first call after the step has computed."""
        step, self.step = self.step, None
        if step is None:
            return
        with self.harmless():
            self.under_way.append((step, self.clock.end(self.begun), self.waited_ns))
            del self.under_way[:-UNDER_WAY_MAX]
            self.tell()

    def tell(self):
        """Those that have ended."""
        while self.under_way:
            step, took, waited_ns = self.under_way[0]
            ns = self.clock.ns(took)
            if ns is None:
                return
            del self.under_way[0]
            self.conn.computed(step.tokens, step.positions, max(0, ns - waited_ns), step.is_part)
            self.counts.add("timed_steps", "told")
