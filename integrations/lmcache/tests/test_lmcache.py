#!/usr/bin/env python3
"""spec_connector.lmcache in LMCache's own adapter, and LMCache's own judge of an L2 adapter.
Needs integrations/lmcache/setup-test and SPEC_CONNECTOR_LIBRARY."""
import json
import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from driver import Driver, ours  # noqa: E402  # ends here where LMCache is absent
import storage_cases  # noqa: E402
from storage_cases import get, put, value_of  # noqa: E402


class LMCache(storage_cases.StorageCases, unittest.TestCase):
    make = Driver

    def test_delete_and_usage(self):
        driver = self.driver()
        self.assertEqual(put(driver, range(4)), [True] * 4)
        driver.adapter.delete(driver.keys(range(2)))
        self.assertEqual(driver.found(range(4)), [False, False, True, True])
        self.assertEqual(get(driver, range(4)), [None, None, *self.expected([2, 3])])

    def test_lookups_and_loads_in_flight_together(self):
        driver = self.driver()
        put(driver, range(32))
        driver.wipe()
        tasks = [driver.adapter.submit_load_task(driver.keys([i]), [driver.objects[i]])
                 for i in range(32)]
        for i in range(32):
            bits = driver._wait(driver.adapter.get_load_event_fd(),
                                lambda i=i: driver.adapter.query_load_result(tasks[i]))
            self.assertTrue(bits.test(0))
            self.assertEqual(driver.value(i), value_of(i, driver.value_bytes))

    def test_close_with_stores_in_flight(self):
        driver = self.driver()
        driver.fill(range(32))
        for i in range(32):
            driver.adapter.submit_store_task(driver.keys([i]), [driver.objects[i]])
        driver.close()
        driver.close = lambda: None

    def test_a_model_without_weights_is_a_miss_and_one_line(self):
        driver = self.driver(weights={"another": "name"})
        with self.assertLogs("spec_connector", "WARNING") as logs:
            self.assertEqual(put(driver, range(2)), [False] * 2)
            self.assertEqual(driver.found(range(2)), [False] * 2)
            self.assertEqual(get(driver, range(2)), [None] * 2)
            self.assertEqual(driver.found(range(2)), [False] * 2)
        self.assertEqual(len(logs.output), 3)  # one for each call

    def test_models_are_told_apart(self):
        client = self.driver(weights="name").client
        self.assertEqual(client._domain_of(["a@1"]), client._domain_of(["a@2"]))
        self.assertNotEqual(client._domain_of(["a@1"])._number, client._domain_of(["b@1"])._number)
        with self.assertRaises(ValueError):
            client._domain_of(["a@1", "b@1"])

    def test_the_judge_of_lmcache(self):
        """lmcache bench l2 with its verification."""
        done = subprocess.run(
            [os.path.join(os.path.dirname(sys.executable), "lmcache"), "bench", "l2",
             "--l2-adapter", json.dumps(ours(self.store, {"disk_bytes": "1GiB"})),
             "--no-skip-verify", "--num-keys", "16", "--data-size-kb", "1024",
             "--rounds", "3", "--in-flight", "2",
             "--lookup-max-hit-rate", "0.5", "--l1-align-bytes", "4096"],
            env={**os.environ, "LMCACHE_DISABLE_BANNER": "1", "PYTHONPATH": os.pathsep.join(
                path for path in sys.path if path.endswith("python"))},
            capture_output=True, text=True, timeout=300, check=False)
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, said)
        self.assertNotIn("MISMATCH", said)
        self.assertRegex(said, r"(?s)Load.*Total success: +96\b")


if __name__ == "__main__":
    storage_cases.main(Driver)
