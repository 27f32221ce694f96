#!/usr/bin/env python3
"""What the connector counts reaches vLLM's log and /metrics. Needs vLLM
(integrations/vllm/setup-test)."""
import os
import pickle
import sys
import types
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, os.path.join(ROOT, "python"))
try:
    import prometheus_client
    from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
        KVConnectorLogging, KVConnectorProm)
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
from spec_connector.vllm import SpecConnector, Worker  # noqa: E402
from spec_connector.vllm.stats import Counts, SpecStats  # noqa: E402

TRANSFER = types.SimpleNamespace(
    kv_connector="SpecConnector", kv_connector_module_path="spec_connector.vllm",
    engine_id="0", kv_role="kv_both", is_kv_transfer_instance=True)


class Conn:
    """Counters of a plugin that are what a test says."""

    def __init__(self, **numbers):
        self.numbers = numbers

    def stats(self):
        from spec_connector import abi
        return {name: self.numbers.get(name, 0) for name in ("poisoned", *abi.STATS)}


class Stats(unittest.TestCase):
    def test_counts_are_taken_once_and_travel(self):
        counts = Counts()
        self.assertIsNone(counts.take())
        counts.add("tokens", "loaded", 256)
        counts.hook("start", 3000)
        taken = pickle.loads(pickle.dumps(counts.take(Conn(read_bytes=5, quarantine_bytes=7))))
        self.assertEqual(taken.data["counts"], {"tokens/loaded": 256, "plugin/read_bytes": 5,
                                                "hook_calls/start": 1,
                                                "hook_seconds/start": 3e-06})
        self.assertEqual(taken.data["levels"]["quarantine_bytes"], 7)
        self.assertIsNone(counts.take())

    def test_the_plugins_counters_are_told_as_differences(self):
        counts = Counts()
        counts.take(Conn(read_bytes=5))
        counts.asked_ns = 0  # a second has passed
        self.assertEqual(counts.take(Conn(read_bytes=12)).data["counts"], {"plugin/read_bytes": 7})

    def connector(self):
        """A worker's, whose plugin has no counters."""
        class Broken(Conn):
            def stats(self):
                raise RuntimeError("no counters")

        connector = object.__new__(SpecConnector)
        connector._side, connector._counts = object.__new__(Worker), Counts()
        connector._side.conn, connector._side.layered = Broken(), None
        connector._side.errors, connector._errors = set(), set()
        connector._side.start, connector._side.abandon = lambda metadata: None, lambda: None
        connector._under_way = []
        return connector

    def test_loads_that_came_do_not_fail_with_the_counters(self):
        for told, errors in ((False, {5, 6}), (True, set())):
            connector = self.connector()
            connector._connector_metadata = types.SimpleNamespace(
                loads=[types.SimpleNamespace(blocks=[5, 6])])
            connector.start_load_kv(None)
            if told:  # as vLLM asks: which loads failed, then the counters
                self.assertEqual(connector.get_block_ids_with_load_errors(), set())
            connector.get_kv_connector_stats()
            self.assertIsNone(connector._side)
            self.assertEqual(connector.get_block_ids_with_load_errors(), errors)

    def test_counters_that_cannot_be_had_end_no_engine(self):
        connector = self.connector()
        connector._side.errors, connector._errors = {8}, {7}
        connector._counts.add("tokens", "loaded", 3)
        self.assertEqual(connector.get_kv_connector_stats().data["counts"], {"tokens/loaded": 3})
        self.assertIsNone(connector._side)
        self.assertEqual(connector.get_block_ids_with_load_errors(), {7, 8})

    def test_sides_and_steps_add_up(self):
        one = SpecStats({"counts": {"requests/hit": 1}, "levels": {"poisoned": 0}})
        other = SpecStats({"counts": {"requests/hit": 2, "tokens/loaded": 5},
                           "levels": {"poisoned": 1}})
        both = one.aggregate(other)
        self.assertEqual(both.data, {"counts": {"requests/hit": 3, "tokens/loaded": 5},
                                     "levels": {"poisoned": 1}})
        self.assertEqual(one.data["counts"], {"requests/hit": 1})

    def test_the_log_has_a_line(self):
        log, lines = KVConnectorLogging(TRANSFER), []
        for _ in range(2):
            log.observe({"counts": {"requests/hit": 1, "hook_calls/start": 2,
                                    "hook_seconds/start": 4e-6}, "levels": {}})
        log.log(lambda text, *more: lines.append(text % more))
        self.assertEqual(lines, ["KV Transfer metrics: requests/hit=2, start_us=2.0"])

    def test_prometheus_has_every_family(self):
        config = types.SimpleNamespace(kv_transfer_config=TRANSFER)
        prom = KVConnectorProm(config, ["model_name", "engine"], {0: ["m", "0"]})
        counts = Counts()
        counts.add("failed_loads", "stale", 3)
        prom.observe(counts.take(Conn(disk_bytes_used=9)).data)
        text = prometheus_client.generate_latest().decode()
        self.assertIn('vllm:spec_connector_failed_loads_total{engine="0",model_name="m",'
                      'reason="stale"} 3.0', text)
        self.assertIn('vllm:spec_connector_disk_bytes_used{engine="0",model_name="m"} 9.0', text)


if __name__ == "__main__":
    unittest.main()
