#!/usr/bin/env python3
"""What steps are told to the plugin: their tokens and positions, times without waits, nothing that
ends a step. Without vLLM stand-ins are enough; the plugin itself learns in the last test.
SPEC_CONNECTOR_LIBRARY names the plugin."""
import os
import sys
import tempfile
import types
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import fakes  # noqa: E402

fakes.install()
from spec_connector import Connector, Model, abi  # noqa: E402
from spec_connector.vllm import step_time  # noqa: E402
from spec_connector.vllm.messages import Step  # noqa: E402
from spec_connector.vllm.stats import Counts  # noqa: E402

CPU, CUDA, OTHER = (types.SimpleNamespace(type=name) for name in ("cpu", "cuda", "xpu"))


def output(new=(), cached=()):
    """A step's schedule: (request id, tokens computed before, tokens of this step) each."""
    return types.SimpleNamespace(
        num_scheduled_tokens={name: count for name, _, count in (*new, *cached)},
        scheduled_new_reqs=[types.SimpleNamespace(req_id=name, num_computed_tokens=before)
                            for name, before, _ in new],
        scheduled_cached_reqs=types.SimpleNamespace(
            req_ids=[name for name, _, _ in cached],
            num_computed_tokens=[before for _, before, _ in cached]))


def tracked(**tokens):
    return {name: types.SimpleNamespace(request=types.SimpleNamespace(num_tokens=count))
            for name, count in tokens.items()}


class Clock:
    """Time that a test sets; ready: whether the device is so far."""
    times_loads = True

    def __init__(self):
        self.now, self.is_ready = 0, True

    def begin(self):
        return self.now

    def end(self, begun):
        return self.now - begun

    def ns(self, took):
        return took if self.is_ready else None


class Scheduled(unittest.TestCase):
    def of(self, *args, **kwargs):
        return step_time.step_of(output(*args), tracked(**kwargs), Counts())

    def test_tokens_and_positions_are_summed_over_requests(self):
        step = self.of([("a", 0, 100), ("b", 256, 50)], [("c", 1000, 1)], a=100, b=306, c=1001)
        positions = sum([*range(100), *range(256, 306), 1000])
        self.assertEqual(step, Step(151, positions, False))

    def test_small_steps_are_not_timed(self):
        self.assertIsNone(self.of([("a", 512, 127)], a=639))
        self.assertIsNone(self.of((), [(f"r{i}", 64, 1) for i in range(100)]))
        self.assertEqual(self.of([("a", 512, 128)], a=640).tokens, 128)

    def test_a_part_of_a_prompt_is_told_as_one(self):
        self.assertTrue(self.of([("a", 0, 128)], a=129).is_part)
        self.assertTrue(self.of([("a", 0, 128)], [("b", 64, 1)], a=300, b=65).is_part)
        self.assertFalse(self.of([("a", 0, 128)], a=128).is_part)  # all of it
        self.assertFalse(self.of([("a", 0, 128), ("b", 0, 128)], a=300, b=300).is_part)
        self.assertFalse(self.of([("a", 0, 128)]).is_part)  # nobody tracks it

    def test_a_schedule_that_is_not_understood_is_counted_and_logged_once(self):
        counts = Counts()
        with mock.patch.object(step_time, "logger") as logger:
            for _ in range(3):
                self.assertIsNone(step_time.step_of(types.SimpleNamespace(), {}, counts))
        self.assertEqual(logger.warning.call_count, 1)
        self.assertEqual(counts.counts["timed_steps/error"], 3)


class Timed(unittest.TestCase):
    def setUp(self):
        self.conn, self.counts, self.clock = mock.Mock(), Counts(), Clock()
        self.timing = step_time.Timing(self.conn, CPU, self.counts)
        self.timing.clock = self.clock

    def step(self, ns, step=Step(200, 19900, True), has_loads=False):
        self.timing.begin(step, has_loads)
        self.clock.now += ns
        self.timing.end()

    def test_a_step_is_told_with_its_time(self):
        self.step(5000)
        self.conn.computed.assert_called_once_with(200, 19900, 5000, True)
        self.assertEqual(self.counts.counts["timed_steps/told"], 1)

    def test_waiting_for_loads_is_not_computing(self):
        with mock.patch.object(step_time.time, "perf_counter_ns",
                               side_effect=lambda: self.clock.now):
            self.timing.begin(Step(200, 19900), True)
            for _ in range(3):
                self.clock.now += 1000
                with self.timing.waiting():
                    self.clock.now += 70
            self.timing.end()
            self.step(400)  # waits of one step are no other's
        self.assertEqual([call.args[2] for call in self.conn.computed.call_args_list], [3000, 400])

    def test_steps_that_say_nothing_are_not_told(self):
        self.step(5000, None)
        self.step(5000, Step(127, 0))
        self.timing.end()  # without a beginning
        self.conn.computed.assert_not_called()

    def test_what_the_device_has_not_ended_is_told_later_and_in_order(self):
        self.clock.is_ready = False
        self.step(10)
        self.step(20)
        self.conn.computed.assert_not_called()
        self.clock.is_ready = True
        self.step(30, None)  # a step that is not timed itself
        self.assertEqual([call.args[2] for call in self.conn.computed.call_args_list], [10, 20])

    def test_a_device_that_never_ends_is_not_remembered_for_ever(self):
        self.clock.is_ready = False
        for ns in range(100):
            self.step(ns)
        self.assertEqual([took for _, took, _ in self.timing.under_way], list(range(92, 100)))

    def test_steps_with_loads_are_not_timed_where_waits_cannot_be(self):
        self.clock.times_loads = False
        self.step(10, has_loads=True)
        self.conn.computed.assert_not_called()
        self.step(20)
        self.assertEqual(self.conn.computed.call_args.args[2], 20)

    def test_errors_end_no_step(self):
        self.conn.computed.side_effect = RuntimeError("broken")
        with mock.patch.object(step_time, "logger") as logger:
            for _ in range(4):
                self.step(5000)
            self.clock.begin = mock.Mock(side_effect=ValueError)
            self.step(5000)
        self.assertEqual(logger.warning.call_count, 1)
        self.assertEqual(self.counts.counts["timed_steps/error"], 5)

    def test_a_wait_that_fails_is_the_callers(self):
        self.timing.begin(Step(200, 0), True)
        with self.assertRaises(KeyError), self.timing.waiting():
            raise KeyError


class Clocks(unittest.TestCase):
    def test_devices(self):
        self.assertIsInstance(step_time.clock_of(CPU), step_time.Wall)
        self.assertIsNone(step_time.clock_of(OTHER))

    def test_the_wall_clock_grows(self):
        clock = step_time.Wall()
        self.assertGreaterEqual(clock.ns(clock.end(clock.begin())), 0)

    def test_events_are_asked_and_not_waited_for(self):
        torch = mock.Mock()
        begun, ended = mock.Mock(), mock.Mock()
        torch.cuda.Event.side_effect = [begun, ended]
        clock = step_time.Events(torch)
        took = clock.end(clock.begin())
        begun.record.assert_called_once_with()
        ended.record.assert_called_once_with()
        begun.elapsed_time.return_value, ended.query.return_value = 2.5, False
        self.assertIsNone(clock.ns(took))
        ended.query.return_value = True
        self.assertEqual(clock.ns(took), 2500000)
        begun.elapsed_time.assert_called_once_with(ended)
        self.assertFalse(any("synchronize" in str(call) for call in torch.mock_calls))

    def test_a_device_that_cannot_be_timed_costs_no_step(self):
        counts = Counts()
        with mock.patch.object(step_time, "clock_of", side_effect=ImportError):
            timing = step_time.Timing(mock.Mock(), CUDA, counts)
        timing.begin(Step(200, 0), False)
        timing.end()
        self.assertEqual(counts.counts["timed_steps/error"], 1)


class Plugin(unittest.TestCase):
    def test_the_plugin_learns_from_steps(self):
        with tempfile.TemporaryDirectory() as folder:
            config = {"path": os.path.join(folder, "store"), "disk_bytes": "64MiB",
                      "segment_bytes": "1MiB", "load_policy": "split"}
            with Connector(config, Model(3, 2, 2, 16, abi.DTYPE_F16, b"test")) as conn:
                for _ in range(2):
                    conn.computed(200, 19900, 10**9, is_part=True)
                self.assertGreater(conn.stats()["compute_token_ps"], 0)


if __name__ == "__main__":
    unittest.main()
