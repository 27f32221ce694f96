#!/usr/bin/env python3
"""vLLM's own scheduler over the connector in random schedules, with a model of what each row of the
cache is: computed or loaded rightly, or garbage.

Requests over a few documents come, load, fail to load, are aborted while a step runs, preempted for
want of blocks, reset. No token may be computed on garbage, no row of garbage be found by others or
sent to be stored, and every request ends. Seeds are fixed. No engine is started. Needs vLLM, else
skipped."""
import collections
import os
import random
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_isolation as base  # noqa: E402  # ends here where vLLM is not
from test_isolation import BLOCK, DOCUMENT, QUESTION, SYSTEM  # noqa: E402
from vllm import SamplingParams  # noqa: E402
from vllm.utils.hashing import get_hash_fn_by_name  # noqa: E402
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash  # noqa: E402
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput  # noqa: E402
from vllm.v1.request import Request, RequestStatus  # noqa: E402
from spec_connector import abi  # noqa: E402
from spec_connector.vllm import SpecConnector  # noqa: E402
from spec_connector.vllm.scheduler import Scheduler  # noqa: E402
from spec_connector.vllm.served import open_connector  # noqa: E402

DOCUMENTS = [SYSTEM + DOCUMENT, SYSTEM + DOCUMENT[:BLOCK] + QUESTION + QUESTION[:BLOCK - 8],
             DOCUMENT + SYSTEM]
GARBAGE, WRONG = ("garbage", 0), 999999  # a row; the token that is made of it
STEPS, BLOCKS, ENDS_IN = 80, 20, 400


class Lie(AssertionError):
    pass


def chain(ids):
    """What each row of these tokens is, by all tokens up to it."""
    rows, last = [], 0
    for token in ids:
        last = hash((last, token))
        rows.append(last)
    return rows


class Model:
    """An engine's step, over rows that are known to be right or not. A row is (whose, what): whose
    is None, or the request that holds it approximately."""

    def __init__(self, scheduler, dice):
        self.scheduler, self.dice = scheduler, dice
        self.rows, self.live, self.count, self.lossy = {}, {}, 0, {}
        self.seen = dict.fromkeys(("tokens", "loads", "failed", "preempted", "aborted", "saves",
                                   "late"), 0)

    # ---- Rows

    def slots(self, blocks, first, end):
        return [blocks[i // BLOCK] * BLOCK + i % BLOCK for i in range(first, end)]

    def is_right(self, slot, what, name):
        return self.rows.get(slot) in ((None, what), (name, what))

    def put(self, load, tokens, failed):
        what = chain(tokens[:load.end])
        for slot, i in zip(self.slots(load.blocks, 0, load.end - load.first),
                           range(load.first, load.end)):
            self.rows[slot] = (GARBAGE if slot // BLOCK in failed
                               else (load.request_id if load.is_layered else None, what[i]))

    def compute(self, scheduled):
        """All requests' rows in their order of places: at each layer keys are written before any
        attention reads them."""
        state = {name: [chain(tokens), blocks, 0, None, True]
                 for name, (tokens, blocks, _, _) in scheduled.items()}
        work = sorted((place, name) for name, (_, _, first, end) in scheduled.items()
                      for place in range(first, end))
        for place, name in work:
            what, blocks, known, whose, is_good = one = state[name]
            while known < place and is_good:
                slot = blocks[known // BLOCK] * BLOCK + known % BLOCK
                is_good = self.is_right(slot, what[known], name)
                whose = whose or (self.rows[slot][0] if is_good else None)
                known += 1
            one[2:] = known, whose, is_good
            self.rows[blocks[place // BLOCK] * BLOCK + place % BLOCK] = (
                (whose, what[place]) if is_good else GARBAGE)
        return {name: self.is_right(self.slots(blocks, 0, end)[-1], state[name][0][end - 1], name)
                for name, (_, blocks, _, end) in scheduled.items()}

    # ---- Requests

    def add(self, hash_fn, policy):
        dice, self.count = self.dice, self.count + 1
        ids = list(dice.choice(DOCUMENTS))
        ids = ids[:dice.choice((len(ids), len(ids), dice.randrange(40, len(ids))))]
        ids += [dice.randrange(500, 502)] * dice.randrange(1, 70)
        spec = {name: False for name in ("load", "store") if dice.random() < .1}
        if dice.random() < .3:
            spec["exact"] = True
        more = {"prompt_logprobs": 1} if dice.random() < .05 else {}
        request = Request(
            f"r{self.count}", ids,
            SamplingParams(max_tokens=dice.choice((1, 3, 40)), ignore_eos=True, extra_args={
                "kv_transfer_params": {"spec": spec}}, **more), None,
            priority=dice.randrange(3) if policy == "priority" else 0,
            arrival_time=float(self.count), block_hasher=get_request_block_hasher(BLOCK, hash_fn))
        self.live[request.request_id] = request
        self.scheduler.add_request(request)

    def abort(self):
        names = [name for name in self.live if name in self.scheduler.requests]
        if names:
            self.seen["aborted"] += 1
            self.scheduler.finish_requests(self.dice.choice(names), RequestStatus.FINISHED_ABORTED)

    # ---- A step

    def check_saves(self, metadata):
        for save in metadata.saves:
            self.seen["saves"] += 1
            request = self.live[save.request_id]
            what = chain(request.all_token_ids[:save.end])
            first = save.end - BLOCK * len(save.blocks)
            slots = self.slots(save.blocks, 0, save.end - first)
            for slot, i in zip(slots, range(first, save.end)):
                name = None if save.lossy is None else save.request_id
                if not self.is_right(slot, what[i], name):
                    raise Lie(f"{save.request_id}: row {i} of {save.end} is to be stored: "
                              f"{self.rows.get(slot)}")

    def check_found(self, hash_fn):
        for ids in DOCUMENTS:
            ids = ids + [1]
            request = Request("?", ids, SamplingParams(max_tokens=1), None,
                              block_hasher=get_request_block_hasher(BLOCK, hash_fn))
            found, count, _ = self.scheduler.kv_cache_manager.get_computed_blocks(request)
            blocks = found.get_block_ids()[0] if count else []
            for slot, what in zip(self.slots(blocks, 0, count), chain(ids)):
                if not self.is_right(slot, what, None):
                    raise Lie(f"row {slot} is found: {self.rows.get(slot)}")

    def fail_late(self, output, scheduled):
        """Of a layered load whose later rows are being chosen."""
        fresh = {load.request_id for load in output.kv_connector_metadata.loads}
        for name in output.preempted_req_ids or ():
            if name not in fresh:
                self.lossy.pop(name, None)
        names = [name for name in scheduled if name in self.lossy and name not in fresh]
        if not names or self.dice.random() < .8:
            return set()
        load = self.lossy.pop(self.dice.choice(names))
        self.seen["late"] += 1
        for slot in self.slots(load.blocks, 0, load.end - load.first):
            self.rows[slot] = GARBAGE
        return set(load.blocks)

    def step(self, fails, aborts, hash_fn):
        scheduler, dice = self.scheduler, self.dice
        output = scheduler.schedule()
        metadata = output.kv_connector_metadata
        self.seen["preempted"] += len(output.preempted_req_ids or ())
        if (scheduler.has_unfinished_requests() and not output.total_num_scheduled_tokens
                and not output.preempted_req_ids):
            raise Lie("nothing is scheduled")
        self.check_saves(metadata)
        scheduled = {}
        for name, count in output.num_scheduled_tokens.items():
            request = scheduler.requests[name]
            scheduled[name] = (list(request.all_token_ids),
                               scheduler.kv_cache_manager.get_block_ids(name)[0],
                               request.num_computed_tokens - count, request.num_computed_tokens)
        invalid = set()
        for load in metadata.loads:
            self.seen["loads"] += 1
            failed = set()
            if load.lease == b"":  # of a side that gave up
                failed = set(load.blocks)
            elif dice.random() < fails:
                failed = set(load.blocks if dice.random() < .5 else
                             dice.sample(load.blocks, dice.randrange(1, len(load.blocks) + 1)))
            self.seen["failed"] += bool(failed)
            invalid |= failed
            if load.lease:
                self.put(load, self.live[load.request_id].all_token_ids, failed)
            if load.is_layered and not failed:
                self.lossy[load.request_id] = load
        invalid |= self.fail_late(output, scheduled)
        good = self.compute(scheduled)
        for _ in range(2):
            if dice.random() < aborts:
                self.abort()
        names, tokens = list(scheduled), []
        for name in names:
            ids, _, _, end = scheduled[name]
            token = 600 + chain(ids)[-1] % 2 if good[name] else WRONG
            tokens.append([token] if end >= len(ids) else [])
        scheduler.update_from_output(output, ModelRunnerOutput(
            req_ids=names, req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=tokens, logprobs=None, prompt_logprobs_dict={}, pooler_output=[],
            kv_connector_output=KVConnectorOutput(invalid_block_ids=invalid)))
        for name in names:
            request = self.live[name]
            self.seen["tokens"] += request.num_output_tokens
            if WRONG in request.output_token_ids:
                raise Lie(f"{name}: a token of garbage")
        self.check_found(hash_fn)


class Schedules(unittest.TestCase):
    def run_schedule(self, seed, *, layered=False, policy="fcfs", threshold=0, failing="recompute",
                     fails=.5, blocks=BLOCKS, resets=.2, gives_up=None, budget=512, caching=True,
                     steps=STEPS):
        """What was seen; gives_up: in which step the scheduler's side breaks."""
        dice, folder = random.Random(seed), tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        config, caches = base.engine_config(folder.name, caching), base.cache_config(blocks)
        config.kv_transfer_config.kv_connector_extra_config["layered"] = layered
        config.kv_transfer_config.kv_load_failure_policy = failing
        config.cache_config.num_gpu_blocks = blocks
        config.scheduler_config.policy = policy
        config.scheduler_config.long_prefill_token_threshold = threshold
        config.scheduler_config.max_num_batched_tokens = budget
        config.scheduler_config.max_num_scheduled_tokens = budget
        hash_fn = get_hash_fn_by_name(config.cache_config.prefix_caching_hash_algo)
        init_none_hash(hash_fn)
        writer = open_connector(config, caches, 0, abi.ROLE_WRITER)
        try:
            for ids in DOCUMENTS:
                base.store(writer, ids[:len(ids) // BLOCK * BLOCK])
            scheduler = base.Scheduler(
                vllm_config=config, kv_cache_config=caches, block_size=BLOCK,
                structured_output_manager=base.StructuredOutputManager(config))
            try:
                return self.drive(scheduler, dice, hash_fn, policy, fails, resets, gives_up, steps)
            finally:
                scheduler.connector.shutdown()
        finally:
            writer.close()

    def drive(self, scheduler, dice, hash_fn, policy, fails, resets, gives_up, steps):
        model = Model(scheduler, dice)
        for step in range(steps + ENDS_IN):
            if step < steps:
                for _ in range(dice.choice((0, 0, 1, 1, 4))):
                    if len(scheduler.requests) < 12:
                        model.add(hash_fn, policy)
                if dice.random() < .1:
                    model.abort()
                if dice.random() < resets:
                    scheduler.reset_prefix_cache(reset_running_requests=dice.random() < .7)
                if step == gives_up:
                    side = scheduler.connector._side
                    where = dice.choice(("match", "load_of", "build"))
                    broken = mock.patch.object(side, where, side_effect=RuntimeError(where))
                    broken.start()
                    self.addCleanup(broken.stop)
            elif not scheduler.has_requests():
                break
            model.step(fails, .1 if step < steps else 0, hash_fn)
        self.assertFalse(scheduler.has_unfinished_requests(), "a request does not end")
        return model.seen

    def test_every_request_ends_and_none_is_given_garbage(self):
        chunks = {"threshold": 40, "budget": 128}
        cases = [{}, {"fails": 1.}, {"resets": 0.}, chunks, {"policy": "priority", **chunks},
                 {"failing": "fail"}, {"layered": True}, {"layered": True, **chunks},
                 {"layered": True, "policy": "priority", "blocks": 14}, {"caching": False}]
        seen = collections.Counter()
        for seed, case in enumerate(cases):
            with self.subTest(seed=seed, **case):
                seen.update(self.run_schedule(seed, **case))
        self.assertTrue(all(seen.values()), seen)

    def test_likewise_beside_a_side_that_gives_up(self):
        for seed, layered in enumerate((False, True)):
            with (self.subTest(layered=layered),
                  mock.patch("spec_connector.vllm.logger")):
                self.run_schedule(seed, layered=layered, gives_up=STEPS // 3)

    def test_what_keeps_garbage_away_is_needed(self):
        for owner, name, result in ((SpecConnector, "_is_loading", False),
                                    (SpecConnector, "_withdraw", None),
                                    (Scheduler, "unsave", None)):
            with (self.subTest(name), mock.patch.object(owner, name, return_value=result),
                  self.assertRaises(Lie)):
                for seed in range(10):
                    self.run_schedule(seed)


if __name__ == "__main__":
    unittest.main()
