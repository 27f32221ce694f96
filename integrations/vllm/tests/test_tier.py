#!/usr/bin/env python3
"""spec_connector.vllm_tier in vLLM's own tiering manager. Needs integrations/vllm/setup-test and
SPEC_CONNECTOR_LIBRARY."""
import dataclasses
import os
import sys
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from tier_driver import (  # noqa: E402  # ends here where vLLM is absent
    Driver, keys_of, offloading_of)
import numpy as np  # noqa: E402
import storage_cases  # noqa: E402
from storage_cases import MIB, get, put  # noqa: E402
from spec_connector import abi  # noqa: E402
from spec_connector.objects import Error  # noqa: E402
from vllm.v1.kv_offload.base import LookupResult, Medium  # noqa: E402
from vllm.v1.kv_offload.config import OffloadingModelConfig  # noqa: E402
from vllm.v1.kv_offload.tiering.base import TransferJob  # noqa: E402
from vllm.v1.metrics.cache_hit_source import CacheHitSource  # noqa: E402


class Tier(storage_cases.StorageCases, unittest.TestCase):
    make = Driver

    def job(self, driver, number, ids, is_promotion):
        return TransferJob(number, keys_of(ids), np.arange(len(ids), dtype=np.int32), is_promotion,
                           driver.begin())

    def test_a_load_that_fails_in_part_names_the_keys_that_did_not(self):
        driver = self.driver()
        put(driver, range(4))
        driver.tier.submit_load(self.job(driver, 0, [0, 1, 99, 3], True))
        driver.tier.submit_load(self.job(driver, 1, range(4), True))
        driver.tier.submit_load(self.job(driver, 2, [97, 98], True))
        part, whole, none = self.results_of(driver, 3)
        self.assertEqual((part.success, part.successful_keys), (False, keys_of([0, 1, 3])))
        self.assertEqual((whole.success, whole.transfer_bytes), (True, 4 * MIB))
        self.assertEqual((none.success, none.successful_keys), (False, None))
        self.assertGreater(whole.transfer_time, 0)

    def results_of(self, driver, count):
        """Without the manager, which knows no such jobs."""
        driver.tier.drain_jobs()
        self.assertFalse(driver.tier.has_pending_work())
        done = sorted(driver.tier.get_finished_jobs(), key=lambda result: result.job_id)
        self.assertEqual(len(done), count)
        return done

    def test_a_key_whose_store_is_under_way_is_asked_for_again(self):
        driver = self.driver()
        driver.fill(range(32))
        seen, context = set(), driver.begin()
        for first in range(0, 32, 4):
            driver.tier.submit_store(TransferJob(
                first, keys_of(range(first, first + 4)),
                np.arange(first, first + 4, dtype=np.int32), False, driver.begin()))
            seen |= {driver.tier.lookup(key, context) for key in keys_of(range(32))}
        self.assertLessEqual(seen, {LookupResult.HIT, LookupResult.RETRY, LookupResult.MISS})
        self.results_of(driver, 8)
        self.assertEqual({driver.tier.lookup(key, context) for key in keys_of(range(32))},
                         {LookupResult.HIT})

    def test_the_source_of_a_promoted_chunk_is_the_disk(self):
        driver = self.driver()
        put(driver, [0])
        driver.wipe()
        context, (key,) = driver.begin(), keys_of([0])
        self.assertIs(driver.manager.lookup(key, context), LookupResult.HIT_PENDING)
        self.assertIs(driver.manager.get_load_source(key, context), CacheHitSource.DISK)
        driver.steps_until(lambda: driver.manager.lookup(key, context) is LookupResult.HIT)

    def test_events_say_what_is_stored_and_removed(self):
        driver = self.driver(disk_bytes="64MiB")
        self.assertEqual([*driver.tier.take_events()], [])  # unless asked for
        put(driver, range(4))
        driver.close()
        driver.close = lambda: None
        told = self.make(self.store, {"disk_bytes": "64MiB"}, self.weights, enable_kv_events=True)
        self.addCleanup(told.close)
        held = self.apply(set(), told)
        self.assertEqual(held, set(keys_of(range(4))))  # announced at start
        for first in range(4, 132, 16):
            put(told, range(first, first + 16))
            held = self.apply(held, told)
        stored = {key for key, is_found in zip(keys_of(range(132)), told.found(range(132)))
                  if is_found}
        self.assertEqual(held, stored)
        self.assertLess(len(stored), 132)

    def apply(self, held, driver):
        for event in driver.manager.take_events():
            if event.medium is not Medium.STORAGE:  # of the primary tier
                continue
            held = held - set(event.keys) if event.removed else held | set(event.keys)
        return held

    def test_what_is_touched_is_evicted_last(self):
        driver = self.driver(disk_bytes="64MiB")
        put(driver, range(8))
        for first in range(8, 72, 8):
            driver.manager.touch(keys_of(range(8)), driver.begin())
            put(driver, range(first, first + 8))
        self.assertEqual(driver.found(range(8)), [True] * 8)
        self.assertIn(False, driver.found(range(8, 72)))

    def test_a_layout_of_another_kind_finds_nothing(self):
        with self.subTest("as stored"):
            driver = self.driver()
            put(driver, range(2))
            driver.close()
        base = offloading_of()
        others = {
            "model": OffloadingModelConfig("org/model", "bfloat16"),
            "cache": dataclasses.replace(base.cache, tokens_per_hash=32),
            "kv_cache_layout": "HND",
            "parallel": dataclasses.replace(base.parallel, tp_size=2, world_size=2),
            "groups": (dataclasses.replace(base.groups[0], layer_names=("layer.0",)),)}
        for name, value in others.items():
            with self.subTest(name):
                other = self.make(self.store, weights=self.weights,
                                  offloading={name: value})
                self.assertEqual(other.found(range(2)), [False] * 2)
                other.close()
        again = self.make(self.store, weights=self.weights)
        self.assertEqual(again.found(range(2)), [True] * 2)
        again.close()
        driver.close = lambda: None

    def test_a_call_that_fails_is_a_miss_and_one_line(self):
        driver = self.driver()
        put(driver, range(2))
        driver.wipe()
        refused = mock.Mock(side_effect=Error("get_submit", abi.E_BUSY, "full"))
        with (mock.patch.object(driver.tier._domain, "get_submit", refused),
              mock.patch.object(driver.tier._failures, "logger") as logger):
            self.assertEqual(driver.load(range(2)), [False] * 2)
            driver.wipe()
            self.assertEqual(driver.load(range(2)), [False] * 2)
        self.assertEqual(logger.warning.call_count, 1)
        driver.wipe()
        self.assertEqual(get(driver, range(2)), self.expected(range(2)))

    def test_shutdown_with_jobs_in_flight(self):
        driver = self.driver()
        driver.fill(range(32))
        driver.manager.complete_store(keys_of(range(32)), driver.context)
        driver.close()  # the view of the primary tier is released, so nothing exports it
        driver.close = lambda: None


if __name__ == "__main__":
    storage_cases.main(Driver)
