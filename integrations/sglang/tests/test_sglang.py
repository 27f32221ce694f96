#!/usr/bin/env python3
"""spec_connector.sglang in SGLang's own HiCache controller and host pools. Needs
integrations/sglang/setup-test and SPEC_CONNECTOR_LIBRARY."""
import contextlib
import os
import random
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from driver import (  # noqa: E402  # ends here where SGLang is absent
    PAGE, PAGES, Driver, control, key_of, make_controller, make_pool, ours, random_pages,
    storage_config_of)
import storage_cases  # noqa: E402
import torch  # noqa: E402
from sglang.srt.mem_cache.hicache_storage import (  # noqa: E402
    HiCacheFile, PoolHitPolicy, PoolName, PoolTransfer)
from storage_cases import get, put  # noqa: E402


class SGLang(storage_cases.StorageCases, unittest.TestCase):
    make = Driver

    def opened(self, **words):
        driver = self.make(self.store, **{"weights": self.weights, **words})
        return self.enterContext(contextlib.closing(driver))

    def test_a_prompt_is_backed_up_and_prefetched_by_its_own_hashes(self):
        driver = self.opened()
        tokens = [*range(500, 500 + PAGES * PAGE)]
        hashes = control.get_storage_hash_str(tokens, None, page_size=PAGE)
        random_pages(driver.pool, 1)
        before = driver.pool.kv_buffer.clone()
        operation = control.StorageOperation(driver.indices(PAGES), tokens, hash_value=hashes)
        driver.controller._page_backup(operation)
        self.assertEqual(operation.completed_tokens, PAGES * PAGE)
        driver.wipe()
        prefetch = control.PrefetchOperation("request", tokens + [7] * PAGE)
        prefetch.hash_value, count = driver.controller._storage_hit_query(prefetch)
        self.assertEqual((prefetch.hash_value, count), (hashes, PAGES * PAGE))
        prefetch.host_indices = driver.indices(PAGES)
        self.assertEqual(driver.controller._page_transfer(prefetch), PAGES)
        self.assertTrue(torch.equal(driver.pool.kv_buffer.view(torch.int16),
                                    before.view(torch.int16)))

    def test_layouts_in_place_and_copied(self):
        for layout, is_in_place in (("page_first", True), ("page_first_direct", True),
                                    ("page_head", True), ("layer_first", False)):
            for is_v1 in (1, 0):
                with self.subTest(layout, interface_v1=is_v1):
                    driver = self.opened(layout=layout, interface_v1=is_v1)
                    self.assertEqual(driver.backend._kv.is_in_place, is_in_place)
                    self.assertEqual(driver.found([0]), [False])  # no other layout's page
                    self.assertEqual(put(driver, range(8)), [True] * 8)
                    self.assertEqual(get(driver, range(9)), [*self.expected(range(8)), None])
                    driver.close()

    def test_ranks_share_nothing(self):
        for members in ({"tp_size": 2}, {"tp_size": 2, "tp_rank": 1}, {"pp_size": 2},
                        {"dp_rank": 1}, {"attn_cp_size": 2, "attn_cp_rank": 1}):
            with self.subTest(**members):
                driver = self.opened(members=members)
                self.assertEqual(driver.found([0]), [False])
                self.assertEqual(put(driver, [0]), [True])
                driver.close()
                again = self.opened(members=members)
                self.assertEqual(get(again, [0]), self.expected([0]))
                again.close()

    def test_two_ranks_are_open_together(self):
        one, two = (self.opened(members={"tp_size": 2, "tp_rank": rank}) for rank in (0, 1))
        put(one, [1])
        put(two, [2])
        self.assertEqual((one.found([1, 2]), two.found([1, 2])), ([True, False], [False, True]))

    def test_kv_that_all_ranks_share_is_refused_with_more_than_one(self):
        with self.assertRaisesRegex(ValueError, "tensor parallelism 1"):
            self.opened(members={"is_mla_model": True, "tp_size": 2})
        self.assertEqual(put(self.opened(members={"is_mla_model": True}), [1]), [True])

    def test_clear(self):
        driver = self.opened()
        put(driver, range(4))
        self.assertTrue(driver.backend.clear())
        self.assertEqual(driver.found(range(4)), [False] * 4)
        self.assertEqual(put(driver, range(4)), [True] * 4)

    def test_a_call_that_fails_is_a_miss_and_one_line(self):
        driver = self.opened()
        put(driver, range(2))
        driver.close()  # every call fails from here on
        with self.assertLogs("sglang.spec_connector", "WARNING") as logs:
            for _ in range(2):
                self.assertEqual(driver.found(range(2)), [False] * 2)
                self.assertEqual(driver.load(range(2)), [False] * 2)
                self.assertEqual(driver.store(range(2)), [False] * 2)
                self.assertFalse(driver.backend.clear())
        self.assertEqual(len(logs.output), 4)


class Pools(unittest.TestCase):
    """batch_*_v2 beside SGLang's own file back end: equal answers and bytes."""

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.pools = {"kv": make_pool("page_first"), "swa": make_pool("page_first"),
                      "mamba": make_pool("layer_first"), "indexer": make_pool("page_first")}
        extra = ours(os.path.join(self.folder, "store"), {"disk_bytes": "512MiB"})
        self.sides = []
        for name, words in (("dynamic", extra),
                            ("file", {"file_storage_path": os.path.join(self.folder, "files")})):
            config = storage_config_of(words)
            backend = make_controller(name, config, self.pools["kv"]).storage_backend
            for pool_name, pool in self.pools.items():
                backend.register_mem_host_pool_v2(pool, PoolName(pool_name))
            self.sides.append(backend)
        self.addCleanup(self.sides[0].close)
        self.assertIsInstance(self.sides[1], HiCacheFile)

    def transfers(self, name, ids, policy=PoolHitPolicy.ALL_PAGES):
        return PoolTransfer(name=PoolName(name), keys=[key_of(i) for i in ids],
                            host_indices=torch.arange(len(ids) * PAGE), hit_policy=policy)

    def test_pages_of_pools_are_loaded_equal(self):
        names = [*self.pools]
        for name in names:
            random_pages(self.pools[name], len(name))
        kept = {name: self.pools[name].kv_buffer.clone() for name in names}
        for backend in self.sides:
            stored = backend.batch_set_v2([self.transfers(name, range(8)) for name in names])
            self.assertEqual(stored, {name: [True] * 8 for name in names})
        for backend in self.sides:
            for name in names:
                self.pools[name].kv_buffer.zero_()
            loaded = backend.batch_get_v2([self.transfers(name, [*range(8)]) for name in names])
            self.assertEqual(loaded, {name: [True] * 8 for name in names})
            for name in names:
                for at in range(8):
                    self.assertTrue(torch.equal(
                        self.pools[name].get_data_page(at * PAGE).view(torch.int16),
                        self.page_of(kept[name], name, at)), (name, at))

    def page_of(self, buffer, name, at):
        ours_now = self.pools[name].kv_buffer
        self.pools[name].kv_buffer = buffer
        page = self.pools[name].get_data_page(at * PAGE).view(torch.int16).clone()
        self.pools[name].kv_buffer = ours_now
        return page

    def test_lengths_that_differ_are_refused(self):
        transfer = self.transfers("swa", range(4))
        transfer.host_indices = transfer.host_indices[:-1]
        for backend in self.sides:
            self.assertEqual(backend.batch_set_v2([transfer]), {"swa": [False] * 4})

    def test_what_can_be_restored_is_what_the_file_back_end_says(self):
        chance, count = random.Random(5), 12
        for turn in range(30):
            ids = range(1000 * turn, 1000 * turn + count)
            kv = ids[:chance.randint(0, count)]
            swa = [i for i in ids if chance.random() < .8]
            indexer = ids[:chance.randint(0, count)]
            asked = [PoolTransfer(PoolName.SWA, keys=["k"] * chance.randint(1, 3),
                                  hit_policy=PoolHitPolicy.TRAILING_PAGES)]
            if chance.random() < .5:
                asked.append(PoolTransfer(PoolName.INDEXER, hit_policy=PoolHitPolicy.ALL_PAGES))
            answers = []
            for backend in self.sides:
                stored = [self.transfers(name, which) for name, which in
                          (("kv", kv), ("swa", swa), ("indexer", indexer)) if which]
                for transfer in stored:
                    transfer.host_indices = transfer.host_indices % (PAGES * PAGE)
                backend.batch_set_v2(stored)
                answers.append(backend.batch_exists_v2([key_of(i) for i in ids], asked))
            self.assertEqual(answers[0], answers[1], (turn, kv, swa, indexer, asked))


if __name__ == "__main__":
    storage_cases.main(Driver)
