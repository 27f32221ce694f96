#!/usr/bin/env python3
"""vLLM's own scheduler over the connector: what a request holds approximately is nobody else's.

A store holds a document; a request loads it layered. Another one over the same document finds
nothing of it in vLLM's prefix cache, one that continues the conversation finds the exact part
alone; both find more where isolation is switched off, so these tests can fail. No engine is
started: a worker's part is answered with made-up tokens. Needs vLLM, else it is skipped."""
import ctypes
import json
import os
import sys
import tempfile
import time
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
MODEL = os.path.join(ROOT, "models", "opt-recall")
sys.path.insert(0, os.path.join(ROOT, "python"))
try:
    import torch
    from vllm import SamplingParams
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.outputs import ModelRunnerOutput
    from vllm.v1.request import Request
    from vllm.v1.structured_output import StructuredOutputManager
except ImportError as error:
    print(f"skipped: no vLLM here ({error}): integrations/vllm/setup-test makes it")
    sys.exit(77)
from spec_connector import abi  # noqa: E402
from spec_connector.vllm import backend, isolation  # noqa: E402
from spec_connector.vllm.served import Refused, open_connector  # noqa: E402

BLOCK, LAYERS, HEADS, SIZE = 32, 4, 4, 32
SYSTEM = list(range(5, 5 + 2 * BLOCK))  # two blocks that every prompt begins with
DOCUMENT = list(range(200, 200 + 4 * BLOCK))
QUESTION = list(range(400, 400 + 40))


def engine_config(folder, caching=True):
    path = os.path.join(folder, "spec.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"path": os.path.join(folder, "kv"), "disk_bytes": "64MiB",
                   "segment_bytes": "4MiB", "load_policy": "load"}, file)
    return EngineArgs(
        model=MODEL, dtype="float32", max_model_len=1024, block_size=BLOCK, max_num_seqs=4,
        kv_cache_memory_bytes=64 << 20, enable_prefix_caching=caching, max_num_batched_tokens=512,
        kv_transfer_config={
            "kv_connector": "SpecConnector", "kv_connector_module_path": "spec_connector.vllm",
            "kv_role": "kv_both", "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"config": path, "layered": True}}
        ).create_engine_config()


def cache_config(blocks=64):
    names = [f"model.decoder.layers.{i}.self_attn.attn" for i in range(LAYERS)]
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=HEADS, head_size=SIZE,
                             dtype=torch.float32)
    return KVCacheConfig(blocks, [], [KVCacheGroupSpec(names, spec)])


def store(conn, ids, first=0, computed_on=abi.PROVENANCE_EXACT):
    """Rows of these tokens from `first` on."""
    rows = torch.randn(len(ids) - first, HEADS, SIZE)
    memory = abi.Memory(dtype=abi.DTYPE_F32, k_base=rows.data_ptr(), v_base=rows.data_ptr(),
                        k_bytes=rows.nbytes, v_bytes=rows.nbytes,
                        token_stride_bytes=HEADS * SIZE * 4, head_stride_bytes=SIZE * 4)
    found = conn.lookup(tokens_of(ids))
    for layer in range(LAYERS):
        tickets = conn.store((abi.StoreParams * 1)(abi.StoreParams(
            request=found.request, layer=layer, first_token=first, token_count=len(rows),
            computed_on=computed_on, memory=ctypes.pointer(memory))), want_tickets=True)
    assert conn.wait(tickets) == [abi.OK]
    conn.release(found.request)


def tokens_of(ids):
    return b"".join(token.to_bytes(4, "little") for token in ids)


class Isolation(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.config, self.caches = engine_config(self.folder.name), cache_config()
        self.config.cache_config.num_gpu_blocks = self.caches.num_blocks
        self.hash_fn = get_hash_fn_by_name(self.config.cache_config.prefix_caching_hash_algo)
        init_none_hash(self.hash_fn)
        self.writer = open_connector(self.config, self.caches, 0, abi.ROLE_WRITER)
        store(self.writer, SYSTEM + DOCUMENT)
        self.scheduler = self.make_scheduler()
        self.side = self.scheduler.connector._side

    def make_scheduler(self):
        return Scheduler(vllm_config=self.config, kv_cache_config=self.caches, block_size=BLOCK,
                         structured_output_manager=StructuredOutputManager(self.config))

    def tearDown(self):
        self.scheduler.connector.shutdown()
        self.writer.close()
        self.folder.cleanup()

    def request(self, name, ids, spec=None, **more):
        return Request(name, list(ids),
                       SamplingParams(max_tokens=200, extra_args={
                           "kv_transfer_params": {"spec": spec or {}}}, **more),
                       None, block_hasher=get_request_block_hasher(BLOCK, self.hash_fn))

    def step(self):
        """One step of the engine: its output, after tokens were made up."""
        output = self.scheduler.schedule()
        names = list(output.num_scheduled_tokens)
        tokens = []
        for name in names:
            request = self.scheduler.requests[name]
            tokens.append([7] if request.num_computed_tokens >= request.num_tokens else [])
        self.scheduler.update_from_output(output, ModelRunnerOutput(
            req_ids=names, req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=tokens, logprobs=None, prompt_logprobs_dict={}, pooler_output=[]))
        return output

    def run_request(self, request, steps=1):
        """Its first step's output."""
        self.scheduler.add_request(request)
        outputs = [self.step() for _ in range(steps)]
        return outputs[0]

    def end(self, request):
        from vllm.v1.request import RequestStatus
        self.scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)

    def local(self, ids):
        """What another request over these tokens finds in vLLM's own cache."""
        return self.scheduler.kv_cache_manager.get_computed_blocks(self.request("?", ids))[1]

    def another_request(self):
        lossy = self.request("lossy", SYSTEM + DOCUMENT + QUESTION)
        output = self.run_request(lossy)
        load, = output.kv_connector_metadata.loads
        self.assertTrue(load.is_layered)
        self.assertEqual((load.first, load.end), (0, len(SYSTEM + DOCUMENT)))
        return self.local(SYSTEM + DOCUMENT + QUESTION[::-1])

    def continued(self):
        self.end_of(self.run_request, self.request("exact", SYSTEM + QUESTION, {"load": False}))
        lossy = self.request("lossy", SYSTEM + DOCUMENT + QUESTION)
        output = self.run_request(lossy, 2 * BLOCK)
        load, = output.kv_connector_metadata.loads
        self.assertEqual((load.first, load.is_layered), (len(SYSTEM), True))
        self.assertGreater(lossy.num_output_tokens, BLOCK)
        said = list(lossy.all_token_ids)
        self.end(lossy)
        return self.local(said + QUESTION)

    def end_of(self, run, request):
        run(request)
        self.end(request)

    def test_another_request_finds_nothing(self):
        self.assertEqual(self.another_request(), 0)

    def test_continuation_finds_the_exact_part(self):
        self.assertEqual(self.continued(), len(SYSTEM))

    def test_both_find_more_without_isolation(self):
        with mock.patch.object(isolation, "isolate"):
            self.assertEqual(self.another_request(), len(SYSTEM + DOCUMENT))
        self.tearDown()
        self.setUp()
        with mock.patch.object(isolation, "isolate"):
            self.assertGreater(self.continued(), len(SYSTEM + DOCUMENT + QUESTION))

    def test_exact_blocks_do_not_lead_to_what_was_computed_on_others(self):
        lossy = self.request("lossy", SYSTEM + DOCUMENT + QUESTION)
        self.run_request(lossy, 2 * BLOCK)
        said = list(lossy.all_token_ids)
        exact = self.request("exact", SYSTEM + DOCUMENT + QUESTION, {"load": False})
        self.run_request(exact)
        whole = len(SYSTEM + DOCUMENT + QUESTION) // BLOCK * BLOCK
        self.assertEqual(self.local(said), whole)

    def decoding(self):
        """What each step of a layered request schedules, and how many blocks it takes."""
        lossy = self.request("lossy", SYSTEM + DOCUMENT + QUESTION)
        self.scheduler.add_request(lossy)
        seen = []
        for _ in range(3 * BLOCK):
            output = self.step()
            held = self.scheduler.kv_cache_manager.get_block_ids("lossy")[0]
            seen.append((dict(output.num_scheduled_tokens), len(held), len(set(held)),
                         lossy.num_computed_tokens, list(lossy.output_token_ids)))
        return seen

    def test_own_decoding_is_unchanged(self):
        alone = self.decoding()
        self.tearDown()
        self.setUp()
        with mock.patch.object(isolation, "isolate"):
            self.assertEqual(self.decoding(), alone)

    def test_preempted_it_loads_again(self):
        lossy = self.request("lossy", SYSTEM + DOCUMENT + QUESTION)
        self.run_request(lossy, BLOCK)
        self.assertTrue(self.scheduler.reset_prefix_cache(reset_running_requests=True))
        output = self.step()
        load, = output.kv_connector_metadata.loads
        self.assertEqual((load.request_id, load.first, load.is_layered), ("lossy", 0, True))
        self.assertEqual(self.local(SYSTEM + DOCUMENT + QUESTION), 0)

    def test_what_it_computes_is_saved_as_lossy(self):
        lossy = self.request("lossy", SYSTEM + DOCUMENT + QUESTION)
        saves = []
        self.scheduler.add_request(lossy)
        for _ in range(BLOCK):
            saves += self.step().kv_connector_metadata.saves
        self.assertGreater(len(saves), 0)
        for save in saves:
            self.assertEqual(save.lossy, (0, len(SYSTEM + DOCUMENT)))

    def test_who_asks_for_exact_rows_gets_them(self):
        whole = SYSTEM + DOCUMENT + QUESTION
        plain = self.request("plain", whole)
        load, = self.run_request(plain).kv_connector_metadata.loads
        self.assertTrue(load.is_layered)
        self.end(plain)
        for name, spec, more in (("exact", {"exact": True}, {}),
                                 ("scored", None, {"prompt_logprobs": 1,
                                                   "skip_reading_prefix_cache": False})):
            request = self.request(name, whole, spec, **more)
            load, = self.run_request(request).kv_connector_metadata.loads
            self.assertFalse(load.is_layered)
            self.assertGreaterEqual(self.local(whole), len(SYSTEM + DOCUMENT))
            self.end(request)
            self.assertTrue(self.scheduler.reset_prefix_cache())

    def test_rows_computed_on_lossy_ones_are_offered_to_layered_requests_alone(self):
        more = SYSTEM + DOCUMENT + QUESTION + QUESTION
        store(self.writer, more, len(SYSTEM + DOCUMENT), abi.PROVENANCE_LOSSY)
        end_s = time.monotonic() + 60  # until the scheduler's reader has followed
        while self.side.conn.lookup(tokens_of(more), peek=True).stored_tokens < len(more):
            self.assertLess(time.monotonic(), end_s, "the reader does not follow")
            time.sleep(0.01)
        for name, spec, end in (("layered", None, 256), ("exact", {"exact": True}, 192)):
            request = self.request(name, more + [9] * BLOCK, spec)
            load, = self.run_request(request).kv_connector_metadata.loads
            self.assertEqual((load.end, load.is_layered), (end, name == "layered"))
            self.end(request)

    def test_a_manager_that_does_not_isolate_is_refused(self):
        manager = self.scheduler.kv_cache_manager
        isolation.check(manager, self.caches)

        def hashes_alone(manager, request, held, first, block):
            with mock.patch.object(type(manager), "evict_blocks"):
                real(manager, request, held, first, block)

        def blocks_alone(manager, request, held, first, block):
            manager.evict_blocks(set(held[first // block:]))
        real = isolation.isolate
        for half in (hashes_alone, blocks_alone, lambda *_: None):
            with mock.patch.object(isolation, "isolate", half):
                with self.assertRaises(Refused):
                    isolation.check(manager, self.caches)
                scheduler = self.make_scheduler()
                self.assertIsNone(scheduler.connector._side.manager)
                scheduler.connector.shutdown()

    def test_a_foreign_backend_refuses_layered_loads(self):
        with mock.patch.object(backend, "is_known", return_value=False):
            scheduler = self.make_scheduler()
        self.assertIsNone(scheduler.connector._side.manager)
        scheduler.connector.shutdown()


if __name__ == "__main__":
    unittest.main()
