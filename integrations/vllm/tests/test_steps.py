#!/usr/bin/env python3
"""vLLM's own scheduler over the connector, in steps that go wrong: loads that fail under requests
that are aborted or preempted, resets under requests that run, a side that gives up.

No engine is started: a worker's part is answered with made-up tokens. Needs vLLM, else skipped."""
import os
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_isolation as base  # noqa: E402  # ends here where vLLM is not
from test_isolation import BLOCK, DOCUMENT, QUESTION, SYSTEM  # noqa: E402
from vllm.utils.hashing import get_hash_fn_by_name  # noqa: E402
from vllm.v1.core.kv_cache_utils import init_none_hash  # noqa: E402
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput  # noqa: E402
from spec_connector import abi  # noqa: E402
from spec_connector.connector import Poisoned  # noqa: E402
from spec_connector.vllm import Worker, worker  # noqa: E402
from spec_connector.vllm.served import open_connector  # noqa: E402

WHOLE = SYSTEM + DOCUMENT + QUESTION


class Ends(unittest.TestCase):
    """Of a worker that cannot go on."""

    def test_each_part_of_a_broken_worker_is_ended(self):
        ours = object.__new__(Worker)
        ours.loading, ours.layered, ours.rows = mock.Mock(), mock.Mock(), mock.Mock()
        ours.loading.abandon.side_effect = ours.layered.abandon.side_effect = Poisoned
        self.assertRaises(Poisoned, ours.abandon)
        ours.layered.abandon.assert_called_once_with()
        ours.rows.end.assert_called_once_with()

    def test_a_worker_that_is_refused_keeps_no_rows(self):
        ours, rows = object.__new__(Worker), mock.Mock()
        ours.config, ours.kv_config = mock.MagicMock(), mock.MagicMock()
        with (mock.patch.object(worker, "Caches"),
              mock.patch.object(worker, "open_rows", return_value=rows),
              mock.patch.object(worker, "open_connector", side_effect=OSError),
              mock.patch("vllm.distributed.get_tensor_model_parallel_rank", return_value=0)):
            self.assertRaises(OSError, ours.register, {})
        rows.end.assert_called_once_with()


class Steps(unittest.TestCase):
    layered = False
    request, end, local = (getattr(base.Isolation, name) for name in ("request", "end", "local"))

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.config, caches = base.engine_config(folder.name), base.cache_config()
        self.config.kv_transfer_config.kv_connector_extra_config["layered"] = self.layered
        self.config.cache_config.num_gpu_blocks = caches.num_blocks
        self.hash_fn = get_hash_fn_by_name(self.config.cache_config.prefix_caching_hash_algo)
        init_none_hash(self.hash_fn)
        writer = open_connector(self.config, caches, 0, abi.ROLE_WRITER)
        self.addCleanup(writer.close)
        base.store(writer, SYSTEM + DOCUMENT)
        self.scheduler = base.Scheduler(
            vllm_config=self.config, kv_cache_config=caches, block_size=BLOCK,
            structured_output_manager=base.StructuredOutputManager(self.config))
        self.addCleanup(self.scheduler.connector.shutdown)

    def answer(self, output, invalid=()):
        names = list(output.num_scheduled_tokens)
        requests = [self.scheduler.requests.get(name) for name in names]
        self.scheduler.update_from_output(output, ModelRunnerOutput(
            req_ids=names, req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=[[7] if r is not None and r.num_computed_tokens >= r.num_tokens
                               else [] for r in requests],
            logprobs=None, prompt_logprobs_dict={}, pooler_output=[],
            kv_connector_output=KVConnectorOutput(invalid_block_ids=set(invalid))))

    def begin(self, name="one", ids=WHOLE):
        """A request's first step, in which its rows are to be loaded: request, output, blocks."""
        request = self.request(name, ids)
        self.scheduler.add_request(request)
        output = self.scheduler.schedule()
        load, = output.kv_connector_metadata.loads
        self.assertEqual((load.first, load.end), (0, len(SYSTEM + DOCUMENT)))
        return request, output, load.blocks

    def test_rows_that_came_are_found(self):
        request, output, _ = self.begin()
        self.answer(output)
        self.end(request)
        self.assertEqual(self.local(WHOLE), len(WHOLE) // BLOCK * BLOCK)

    def test_rows_that_never_came_are_not_found_after_an_abort(self):
        request, output, blocks = self.begin()
        self.answer(output, blocks)
        self.end(request)  # before it computed them
        self.assertEqual(self.local(WHOLE), 0)

    def test_rows_that_never_came_are_not_found_when_aborted_in_that_step(self):
        request, output, blocks = self.begin()
        self.end(request)
        self.answer(output, blocks)
        self.assertEqual(self.local(WHOLE), 0)
        exact = self.request("exact", SYSTEM + DOCUMENT + [3], {"load": False})
        self.scheduler.add_request(exact)
        self.answer(self.scheduler.schedule())  # its blocks do not lead to what was behind them
        self.assertEqual(self.local(WHOLE), len(SYSTEM + DOCUMENT))

    def test_rows_that_never_came_are_not_stored_when_aborted_in_that_step(self):
        """Nor by another rank, whose own came: what it computed behind them is wrong as well."""
        for name, failed in (("good", 0), ("bad", 1)):
            request, output, blocks = self.begin(name)
            self.end(request)
            self.answer(output, blocks[:failed])
            self.scheduler.add_request(self.request(f"after {name}", QUESTION, {"load": False}))
            saves = self.scheduler.schedule().kv_connector_metadata.saves
            self.assertEqual([save.end for save in saves],
                             [] if failed else [len(WHOLE) // BLOCK * BLOCK])
            self.scheduler.reset_prefix_cache(reset_running_requests=True)

    def test_rows_that_never_came_are_not_found_when_preempted(self):
        request, output, blocks = self.begin()
        self.answer(output, blocks)
        self.scheduler.running.remove(request)
        self.scheduler._preempt_request(request, 0.0)
        self.assertEqual(self.local(WHOLE), 0)

    def three(self):
        """Three requests over one document, of which the first one loads it: they, and its step."""
        names = {"one": 3, "two": 4, "three": 5}
        three = [self.request(name, WHOLE + [tail] * BLOCK) for name, tail in names.items()]
        for request in three:
            self.scheduler.add_request(request)
        output = self.scheduler.schedule()
        self.assertEqual([*output.num_scheduled_tokens], ["one"])
        return three, output

    def test_who_shares_rows_waits_until_they_have_come(self):
        three, output = self.three()
        self.answer(output)
        output = self.scheduler.schedule()
        self.assertEqual({new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs},
                         {name: len(WHOLE) // BLOCK * BLOCK for name in ("two", "three")})
        self.assertEqual(output.kv_connector_metadata.loads, [])
        self.answer(output)
        self.assertEqual([request.num_output_tokens for request in three], [2, 1, 1])

    def test_nobody_shares_rows_that_never_came(self):
        three, output = self.three()
        self.answer(output, output.kv_connector_metadata.loads[0].blocks)
        output = self.scheduler.schedule()
        load, = output.kv_connector_metadata.loads  # the second one's own; the third waits for it
        self.assertEqual((load.request_id, load.first), ("two", 0))
        whole = three[0].num_prompt_tokens
        self.assertEqual(output.num_scheduled_tokens, {"one": whole, "two": whole - load.end})
        self.answer(output, load.blocks)
        self.end(three[1])
        output = self.scheduler.schedule()
        load, = output.kv_connector_metadata.loads
        self.assertEqual((load.request_id, load.first), ("three", 0))
        self.answer(output)
        self.assertEqual(three[2].num_output_tokens, 1)

    def test_who_shares_nothing_of_a_load_does_not_wait(self):
        self.scheduler.add_request(self.request("zero", SYSTEM + [6], {"load": False}))
        self.step()  # what all begin with is computed now
        prompts = {"one": WHOLE, "two": DOCUMENT + SYSTEM, "three": SYSTEM + QUESTION * 5}
        for name, ids in prompts.items():
            self.scheduler.add_request(self.request(name, ids))
        output = self.scheduler.schedule()
        self.assertEqual([new.req_id for new in output.scheduled_new_reqs], [*prompts])
        load, = output.kv_connector_metadata.loads
        self.assertEqual((load.request_id, load.first), ("one", len(SYSTEM)))

    def test_one_block_that_never_came_takes_those_behind_it_along(self):
        request, output, blocks = self.begin()
        self.answer(output, blocks[3:4])
        self.end(request)
        self.assertEqual(self.local(WHOLE), 3 * BLOCK)

    def step(self):
        output = self.scheduler.schedule()
        self.answer(output)
        return output.kv_connector_metadata

    def test_rows_from_before_a_reset_are_nobody_elses(self):
        """vLLM resets nothing while a request runs, but tells the connector to."""
        old = self.request("old", WHOLE, {"load": False})
        self.scheduler.add_request(old)
        for _ in range(3):
            self.step()
        self.assertFalse(self.scheduler.reset_prefix_cache(reset_connector=True))
        self.assertEqual(self.local(WHOLE), 0)
        saves = [save for _ in range(2 * BLOCK) for save in self.step().saves]
        self.assertEqual(saves, [])
        new = self.request("new", WHOLE, {"load": False})
        self.scheduler.add_request(new)
        self.step()
        self.assertEqual(self.local(old.all_token_ids), len(WHOLE) // BLOCK * BLOCK)

    def test_what_is_computed_anew_after_a_reset_is_everyones(self):
        old = self.request("old", WHOLE, {"load": False})
        self.scheduler.add_request(old)
        self.step()
        self.assertTrue(self.scheduler.reset_prefix_cache(reset_running_requests=True,
                                                          reset_connector=True))
        saves = [save for _ in range(3) for save in self.step().saves]
        self.assertEqual([save.end for save in saves], [len(WHOLE) // BLOCK * BLOCK])
        self.assertEqual(self.local(WHOLE), len(WHOLE) // BLOCK * BLOCK)


if __name__ == "__main__":
    unittest.main()
