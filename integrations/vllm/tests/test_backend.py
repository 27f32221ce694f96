#!/usr/bin/env python3
"""Layered loads through vLLM's own CPU attention over a small cache, without an engine: rows of
several requests in one batch, by direct calls of the plugin beside it. Needs vLLM, else skipped."""
import ctypes
import os
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
MODEL = os.path.join(ROOT, "models", "opt-recall")
sys.path.insert(0, os.path.join(ROOT, "python"))
try:
    import torch
    import vllm
    from vllm import _custom_ops as ops
    from vllm.config import set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.attention.backends.cpu_attn import (CPUAttentionBackendImpl, CPUAttentionMetadata,
                                                     _get_attn_isa)
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheGroupSpec
except ImportError as error:
    print(f"skipped: no vLLM here ({error}): integrations/vllm/setup-test makes it")
    sys.exit(77)
from spec_connector import Connector, Model, abi  # noqa: E402
from spec_connector.connector import Identity, Poisoned  # noqa: E402
from spec_connector.vllm import SpecConnector, Worker, backend  # noqa: E402
from spec_connector.vllm.layered import QUERY_ROWS, Layered  # noqa: E402
from spec_connector.vllm.layout import Caches, Direct  # noqa: E402
from spec_connector.vllm.loading import Loading  # noqa: E402
from spec_connector.vllm.messages import Load, Save, SpecMetadata  # noqa: E402
from spec_connector.vllm.saving import Saving  # noqa: E402
from spec_connector.vllm.staged import Staged  # noqa: E402
from spec_connector.vllm.stats import Counts  # noqa: E402

BLOCK, LAYERS, HEADS, QUERY_HEADS, SIZE, BLOCKS = 32, 3, 2, 4, 32, 80
TOKENS = 256  # of a document
NAMES = [f"model.layers.{i}.self_attn.attn" for i in range(LAYERS)]
PPM = 50_000


def ids(seed):
    return b"".join((seed * 1000 + i).to_bytes(4, "little") for i in range(TOKENS))


def rows_memory(k, v):
    return abi.Memory(dtype=abi.DTYPE_F32, k_base=k.data_ptr(), v_base=v.data_ptr(),
                      k_bytes=k.nbytes, v_bytes=v.nbytes, token_stride_bytes=HEADS * SIZE * 4,
                      head_stride_bytes=SIZE * 4)


class Sequence:
    """A request: its blocks, and what it asks in each step."""

    def __init__(self, seed, first_block, load=True, new=(40,)):
        dice = torch.Generator().manual_seed(seed)
        self.seed, self.is_loaded, self.new, self.computed = seed, load, list(new), TOKENS
        count = self.prompt = sum(new)
        self.blocks = list(range(first_block, first_block - (-(TOKENS + count) // BLOCK)))
        self.query = torch.randn(LAYERS, count, QUERY_HEADS, SIZE, generator=dice) * 2
        self.key = torch.randn(LAYERS, count, HEADS, SIZE, generator=dice)
        self.value = torch.randn(LAYERS, count, HEADS, SIZE, generator=dice)

    def load(self, lease):
        return Load(f"request {self.seed}", lease, 0, TOKENS, self.blocks[:TOKENS // BLOCK], True,
                    TOKENS + self.prompt)


class Engine:
    """What a worker's step does, of a model that is nothing but attention."""

    def __init__(self, config, folder, settings, way):
        self.isa = _get_attn_isa(torch.float32, BLOCK, SIZE)
        with set_current_vllm_config(config):
            self.impls = [backend.Impl(QUERY_HEADS, SIZE, 0.2, HEADS, None, None, "auto")
                          for _ in NAMES]
        self.layers = [types.SimpleNamespace(layer_name=name, impl=impl, isa=self.isa,
                                             _k_scale_float=1.0, _v_scale_float=1.0)
                       for name, impl in zip(NAMES, self.impls)]
        self.caches = [torch.zeros(BLOCKS, HEADS, BLOCK, 2 * SIZE) for _ in NAMES]
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=HEADS, head_size=SIZE,
                                 dtype=torch.float32)
        fake = types.SimpleNamespace(
            compilation_config=types.SimpleNamespace(
                static_forward_context=dict(zip(NAMES, self.layers))),
            model_config=types.SimpleNamespace(dtype=torch.float32))
        caches = Caches(fake, KVCacheGroupSpec(NAMES, spec), dict(zip(NAMES, self.caches)))
        self.way = way(caches)
        self.conn = Connector(
            {"path": os.path.join(folder, "kv"), "disk_bytes": "256MiB", "segment_bytes": "4MiB",
             "preset": "layered", **settings},
            Model(LAYERS, HEADS, QUERY_HEADS, SIZE, abi.DTYPE_F32, b"test"))
        self.layered = Layered(self.conn, self.way)
        self.stored = {}

    def close(self):
        backend.set_pending(None)
        self.conn.close()

    def store(self, seed):
        dice = torch.Generator().manual_seed(1000 + seed)
        found = self.conn.lookup(ids(seed))
        self.stored[seed] = torch.randn(LAYERS, 2, TOKENS, HEADS, SIZE, generator=dice)
        for layer, (k, v) in enumerate(self.stored[seed]):
            memory = rows_memory(k, v)
            tickets = self.conn.store((abi.StoreParams * 1)(abi.StoreParams(
                request=found.request, layer=layer, token_count=TOKENS,
                memory=ctypes.pointer(memory))), want_tickets=True)
        assert self.conn.wait(tickets) == [abi.OK]
        self.conn.release(found.request)
        end_s = time.monotonic() + 60  # until its codes are made
        while self.conn.stats()["building"]:
            assert time.monotonic() < end_s, "codes are not made"
            time.sleep(0.01)

    def begin(self, sequences):
        self.way.begin()
        loads = []
        for one in sequences:
            if one.is_loaded and one.computed == TOKENS:
                loads.append(one.load(self.conn.lookup(ids(one.seed), peek=True,
                                                       max_tokens=TOKENS).lease))
        rest = self.layered.begin(loads) if loads else []
        self.layered.watch(self.layered.deliver)
        return rest

    def metadata(self, sequences):
        counts = [one.new[0] for one in sequences]
        starts = torch.tensor([sum(counts[:i]) for i in range(len(counts) + 1)], dtype=torch.int32)
        lengths = torch.tensor([one.computed + one.new[0] for one in sequences], dtype=torch.int32)
        table = torch.full((len(sequences), 20), 7, dtype=torch.int32)  # what was there before
        for i, one in enumerate(sequences):
            table[i, :len(one.blocks)] = torch.tensor(one.blocks, dtype=torch.int32)
        slots = torch.tensor([one.blocks[at // BLOCK] * BLOCK + at % BLOCK for one in sequences
                              for at in range(one.computed, one.computed + one.new[0])])
        plan = ops.cpu_attn_get_scheduler_metadata(
            num_reqs=len(sequences), num_heads=QUERY_HEADS, num_kv_heads=HEADS, head_dim=SIZE,
            seq_lens=lengths, dtype=torch.float32, query_start_loc=starts, causal=True,
            sliding_window_size=-1, isa=self.isa, enable_kv_split=True)
        return CPUAttentionMetadata(sum(counts), max(counts), starts, int(lengths.max()), lengths,
                                    table, slots, plan)

    def forward(self, sequences, layers=range(LAYERS)):
        """[layer][sequence]: what attention says."""
        metadata, said = self.metadata(sequences), []
        for layer in layers:
            query, key, value = (torch.cat([
                getattr(one, part)[layer, one.computed - TOKENS:one.computed - TOKENS + one.new[0]]
                for one in sequences]) for part in ("query", "key", "value"))
            impl, cache = self.impls[layer], self.caches[layer]
            impl.do_kv_cache_update(self.layers[layer], key, value, cache, metadata.slot_mapping)
            output = torch.empty_like(query)
            impl.forward(self.layers[layer], query, key, value, cache, metadata, output)
            said.append(output.split([one.new[0] for one in sequences]))
        return said

    def step(self, sequences, layers=range(LAYERS)):
        self.begin(sequences)
        said = self.forward(sequences, layers)
        failed = self.layered.finish()
        self.layered.watch(self.layered.deliver)
        for one in sequences:
            one.computed += one.new.pop(0)
        return said, failed

    def rows(self, one, layer):
        """[K, V] of the document, as they stand in the cache."""
        parts = []
        for block in one.blocks[:TOKENS // BLOCK]:
            flat = self.caches[layer][block].reshape(HEADS, 2, BLOCK * SIZE)
            k = flat[:, 0].reshape(HEADS, SIZE, BLOCK).permute(2, 0, 1)
            v = flat[:, 1].reshape(HEADS, BLOCK, SIZE).permute(1, 0, 2)
            parts.append(torch.stack([k, v]))
        return torch.cat(parts, 1)

    def one_call(self, one, layer, first, end):
        """What the plugin gives plainly for queries [first, end) of the new rows: rows, bits."""
        found = self.conn.lookup(ids(one.seed), max_tokens=TOKENS)
        rows = torch.zeros(2, TOKENS, HEADS, SIZE)
        query = one.query[layer, max(first, end - QUERY_ROWS):end].contiguous()
        asked = abi.Queries(
            dtype=abi.DTYPE_F32, data=query.data_ptr(), byte_count=query.nbytes,
            row_count=len(query), row_stride_bytes=QUERY_HEADS * SIZE * 4,
            head_stride_bytes=SIZE * 4, first_position=TOKENS + end - len(query), scale=0.2)
        key = one.key[layer, :end].contiguous()
        memory, keys = rows_memory(*rows), rows_memory(key, key)
        bits = (ctypes.c_uint64 * (TOKENS // 64))()
        item = (abi.Important * 1)(abi.Important(
            request=found.request, layer=layer, queries=ctypes.pointer(asked),
            new_keys=ctypes.pointer(keys), destination=ctypes.pointer(memory),
            exact_bits=ctypes.addressof(bits), exact_bit_words=len(bits)))
        assert self.conn.get(item) == abi.OK
        self.conn.release(found.request)
        return rows, torch.tensor([bool(bits[i // 64] >> (i % 64) & 1) for i in range(TOKENS)])


class Backend(unittest.TestCase):
    config = None

    @staticmethod
    def way(caches):
        return Direct(caches, vllm.__version__)

    @classmethod
    def setUpClass(cls):
        cls.config = EngineArgs(model=MODEL, dtype="float32", block_size=BLOCK, max_model_len=1024,
                                kv_cache_memory_bytes=16 << 20).create_engine_config()

    def engine(self, **settings):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        engine = Engine(self.config, folder.name, settings, self.way)
        self.addCleanup(engine.close)
        for seed in (1, 2):
            engine.store(seed)
        return engine

    def same(self, a, b):
        self.assertTrue(torch.equal(a.contiguous().view(torch.int32),
                                    b.contiguous().view(torch.int32)))

    def test_exact_rows_are_those_that_were_stored(self):
        engine = self.engine(layered={"exact_ppm": 10**6})
        one = Sequence(1, 10)
        engine.step([one])
        for layer in range(LAYERS):
            self.same(engine.rows(one, layer), engine.stored[1][layer])

    def test_lossless_loads_are_exact_whatever_is_configured(self):
        engine = self.engine()
        one = Sequence(1, 10)
        lease = engine.conn.lookup(ids(1), peek=True, max_tokens=TOKENS).lease
        loading = Loading(engine.conn, engine.way, [one.load(lease)], Counts())
        self.assertEqual(loading.finish(), [])
        for layer in range(LAYERS):
            self.same(engine.rows(one, layer), engine.stored[1][layer])

    def test_rows_are_those_of_one_call(self):
        engine = self.engine()
        one = Sequence(1, 10, new=(200,))  # the last ones of a long chunk ask
        said, failed = engine.step([one])
        self.assertEqual(failed, [])
        for layer in range(LAYERS):
            rows, bits = engine.one_call(one, layer, 0, 200)
            self.assertEqual(int(bits.sum()), -(-TOKENS * PPM // 10**6))
            self.same(engine.rows(one, layer), rows)
            self.assertFalse(torch.equal(rows, engine.stored[1][layer]))
            plain = torch.empty_like(said[layer][0])
            one.computed, one.new = TOKENS, [200]
            CPUAttentionBackendImpl.forward(
                engine.impls[layer], engine.layers[layer], one.query[layer], one.key[layer],
                one.value[layer], engine.caches[layer], engine.metadata([one]), plain)
            self.same(said[layer][0], plain)
        self.assertEqual(engine.conn.stats()["requests_open"], 0)

    def test_two_of_four_load_each_as_alone(self):
        engine = self.engine()
        alone = {}
        for seed in (1, 2):
            one = Sequence(seed, 10)
            alone[seed] = engine.step([one])[0], [engine.rows(one, i) for i in range(LAYERS)]
        batch = [Sequence(3, 10, load=False), Sequence(1, 20),
                 Sequence(4, 30, load=False, new=(1,)), Sequence(2, 40)]
        said, _ = engine.step(batch)
        for i, seed in ((1, 1), (3, 2)):
            for layer in range(LAYERS):
                self.same(engine.rows(batch[i], layer), alone[seed][1][layer])
                self.same(said[layer][i], alone[seed][0][layer][0])

    def test_a_stale_place_of_the_table_is_no_load(self):
        engine = self.engine()
        one, short = Sequence(1, 7), Sequence(3, 60, load=False, new=(5,))
        short.computed, short.blocks = TOKENS, [60]
        metadata = engine.metadata([one])
        metadata.block_table = torch.stack([metadata.block_table[0]] * 2)
        metadata.seq_lens = torch.tensor([9, TOKENS + 40])  # the first one's row is stale
        metadata.query_start_loc = torch.tensor([0, 5, 45])
        engine.begin([one])
        engine.layered.find_rows(metadata)
        self.assertEqual(engine.layered.pending[0].rows, (5, 45, TOKENS + 40))
        engine.layered.finish()

    def test_later_chunks_add_their_rows(self):
        engine = self.engine()
        one, other = Sequence(1, 10, new=(33, 47, 20)), Sequence(2, 40, new=(30, 1, 1))
        engine.step([one, other])
        self.assertEqual(len(engine.layered.pending), 2)
        for first, end in ((33, 80), (80, 100)):
            engine.step([other, one])
            for layer in range(LAYERS):
                rows, bits = engine.one_call(one, layer, 0, 33)
                for begin, to in ((33, 80), (80, 100))[:1 + (end == 100)]:
                    bits = bits | engine.one_call(one, layer, begin, to)[1]
                rows[:, bits] = engine.stored[1][layer][:, bits]
                self.assertGreater(int(bits.sum()), -(-TOKENS * PPM // 10**6))
                self.same(engine.rows(one, layer), rows)
        self.assertEqual(engine.layered.pending, [])
        self.assertEqual(engine.conn.stats()["requests_open"], 0)

    def test_an_answer_goes_on_choosing_while_no_prompt_is_computed(self):
        engine = self.engine()
        engine.layered = Layered(engine.conn, engine.way, sharpen_tokens=3)
        one, other = Sequence(1, 10, new=(33, 1, 1, 1, 1)), Sequence(3, 40, load=False, new=(9, 9))
        one.prompt = 33
        asked, ends = [], [(0, 33), (33, 34), None, (35, 36)]  # a prompt stands beside the third
        for step, batch in enumerate(([one], [one], [one, other], [one], [one])):
            engine.step(batch)
            asked += ends[step:step + 1]
            for layer in range(LAYERS):
                bits = torch.zeros(TOKENS, dtype=torch.bool)
                rows, _ = engine.one_call(one, layer, 0, 33)
                for first, end in filter(None, asked if engine.way.is_in_place else asked[:1]):
                    bits = bits | engine.one_call(one, layer, first, end)[1]
                rows[:, bits] = engine.stored[1][layer][:, bits]
                self.same(engine.rows(one, layer), rows)
            self.assertEqual(engine.conn.stats()["requests_open"],
                             int(step < 3 and engine.way.is_in_place))

    def test_what_is_forgotten_of_one_refuses_no_other(self):
        """Of one call: a later chunk of a prompt whose first layer is kept no more, and a load that
        begins."""
        engine = self.engine(layered={"refine_bytes": "448KiB"})  # of three layers two are kept
        one, other = Sequence(1, 10, new=(33, 47)), Sequence(2, 40)
        alone = Sequence(2, 60)
        engine.step([alone])
        engine.step([one])
        _, failed = engine.step([one, other])
        self.assertEqual(failed, [])
        for layer in range(LAYERS):
            self.same(engine.rows(other, layer), engine.rows(alone, layer))
            bits = engine.one_call(one, layer, 0, 33)[1]
            if layer > 0 or not engine.way.is_in_place:
                bits = bits | engine.one_call(one, layer, 33, 80)[1]
            rows, _ = engine.one_call(one, layer, 0, 33)
            rows[:, bits] = engine.stored[1][layer][:, bits]
            self.same(engine.rows(one, layer), rows)

    def saved(self, engine, one, lossy):
        """After one save of a request's whole blocks: what is stored of it, exactly and at all."""
        tokens = ids(one.seed) + b"".join(i.to_bytes(4, "little") for i in range(BLOCK))
        saving = Saving(engine.conn, engine.way, Counts())
        save = Save("request", TOKENS + BLOCK, tokens, one.blocks[:TOKENS // BLOCK + 1], Identity(),
                    lossy)
        saving.save(SpecMetadata(saves=[save], epoch=engine.conn.epoch()))
        tickets = saving.stored["request"].tickets
        if tickets:
            self.assertEqual(engine.conn.wait(tickets), [abi.OK])
        return [engine.conn.lookup(tokens, peek=True, exact=exact).stored_tokens
                for exact in (True, False)]

    def test_what_is_computed_on_codes_is_stored_as_lossy(self):
        engine = self.engine()
        one, other = Sequence(1, 10), Sequence(2, 30)
        engine.step([one, other])
        self.assertEqual(self.saved(engine, one, (0, TOKENS)), [TOKENS, TOKENS + BLOCK])
        self.assertEqual(self.saved(engine, other, None), [TOKENS + BLOCK] * 2)

    def test_rows_of_codes_are_never_stored(self):
        engine = self.engine()
        one = Sequence(1, 10)
        engine.step([one])
        engine.conn.reset()  # the store has lost what they came from
        self.assertEqual(self.saved(engine, one, (0, TOKENS)), [0, 0])
        if engine.way.is_in_place:  # what was loaded is not kept for saves by the writer's way
            self.assertEqual(self.saved(engine, one, None), [TOKENS + BLOCK] * 2)

    def test_what_breaks_leaves_nothing_under_way(self):
        engine = self.engine()
        engine.begin([Sequence(1, 10), Sequence(2, 30)])
        engine.layered.abandon()
        self.assertIsNone(backend._pending)
        self.assertEqual(engine.conn.stats()["requests_open"], 0)

    def test_layers_nobody_asks_for_come_exactly(self):
        engine = self.engine()
        one = Sequence(1, 10)
        engine.step([one], [1])
        rows, _ = engine.one_call(one, 1, 0, 40)
        self.same(engine.rows(one, 1), rows)
        for layer in (0, 2):
            self.same(engine.rows(one, layer), engine.stored[1][layer])

    def test_what_is_not_in_the_batch_comes_exactly(self):
        engine = self.engine()
        one, other = Sequence(1, 10), Sequence(3, 40, load=False)
        engine.begin([one])
        engine.forward([other])
        self.assertEqual(engine.layered.finish(), [])
        for layer in range(LAYERS):
            self.same(engine.rows(one, layer), engine.stored[1][layer])
        self.assertEqual(engine.layered.pending, [])

    def test_a_load_that_fails_is_told(self):
        engine = self.engine()
        one, other = Sequence(1, 10), Sequence(3, 40, load=False)
        engine.begin([one])
        engine.forward([one, other], [0])
        engine.conn.reset()
        said = engine.forward([one, other], [1, 2])
        failed = engine.layered.finish()
        self.assertEqual([load.request_id for load in failed], ["request 1"])
        self.assertEqual(engine.layered.pending, [])
        self.assertEqual(len(said), 2)

    @staticmethod
    def late(engine):
        """Every layer that is asked for ends at its deadline, with fewer exact rows."""
        get = engine.conn.get

        def run(items):
            status = get(items)
            for item in items:
                item.result_flags |= abi.IMPORTANT_PARTIAL
            return status
        return mock.patch.object(engine.conn, "get", side_effect=run)

    def test_a_layer_whose_rows_are_late_is_told(self):
        """Codes alone are not what is promised, and each layer more would take as long."""
        engine = self.engine()
        for layers in (range(LAYERS), ()):  # by queries, and as one that comes exactly
            with self.late(engine) as get:
                _, failed = engine.step([Sequence(1, 10)], layers)
            self.assertEqual([load.request_id for load in failed], ["request 1"])
            self.assertEqual(get.call_count, 1)
        self.assertEqual(engine.conn.stats()["requests_open"], 0)

    def test_a_later_chunk_that_is_late_chooses_no_more(self):
        engine = self.engine()
        one = Sequence(1, 10, new=(33, 47, 20))
        engine.step([one])
        with self.late(engine) as get:
            _, failed = engine.step([one])
        self.assertEqual((failed, engine.layered.pending, get.call_count), ([], [], 1))
        self.assertEqual(engine.conn.stats()["requests_open"], 0)
        rows = [engine.rows(one, layer) for layer in range(LAYERS)]
        engine.step([one])
        for layer in range(LAYERS):
            self.same(engine.rows(one, layer), rows[layer])

    def test_without_room_for_rankings_it_is_lossless(self):
        engine = self.engine(layered={"refine_bytes": 0})
        rest = engine.begin([Sequence(1, 10)])
        self.assertEqual([load.request_id for load in rest], ["request 1"])
        self.assertEqual(engine.layered.finish(), [])
        self.assertIsNone(backend._pending)

    def test_a_request_that_ends_is_let_go(self):
        engine = self.engine()
        one = Sequence(1, 10, new=(33, 47))
        engine.step([one])
        engine.layered.forget("request 1")
        engine.layered.watch(engine.layered.deliver)
        self.assertIsNone(backend._pending)
        self.assertEqual(engine.conn.stats()["requests_open"], 0)
        before = [cache.clone() for cache in engine.caches]
        other = Sequence(5, 10, load=False)  # has its blocks now
        engine.step([other])
        for layer in range(LAYERS):
            self.same(engine.rows(other, layer), self.document(before[layer], other))

    def test_a_scheduler_that_gave_up_lets_all_go(self):
        """It tells no more who ends, and whose blocks go to others."""
        engine = self.engine()
        one = Sequence(1, 10, new=(33, 47))
        engine.step([one])
        connector = object.__new__(SpecConnector)
        connector._side, connector._loads, connector._admitted = None, [], []
        worker = object.__new__(Worker)
        worker.rows, worker.layered = engine.way, engine.layered
        worker.saving, worker.timing = Saving(engine.conn, engine.way, Counts()), mock.Mock()
        worker.save(connector.build_connector_meta(None))
        before = [cache.clone() for cache in engine.caches]
        other = Sequence(5, 10, load=False)  # has its blocks now
        engine.step([other])
        for layer in range(LAYERS):
            self.same(engine.rows(other, layer), self.document(before[layer], other))
        self.assertEqual(engine.conn.stats()["requests_open"], 0)

    def test_a_later_chunk_that_breaks_is_told(self):
        """Its load is of a step before, and its rows may be half written."""
        engine = self.engine()
        one = Sequence(1, 10, new=(33, 47))
        engine.step([one])
        connector, worker = object.__new__(SpecConnector), object.__new__(Worker)
        connector._side, connector._errors, connector._counts = worker, set(), Counts()
        connector._under_way = []
        worker.rows, worker.layered, worker.loading = engine.way, engine.layered, None
        worker.errors = set()
        engine.way.begin()
        engine.layered.watch(connector._deliver)
        with (mock.patch.object(engine.conn, "get", side_effect=Poisoned("get")),
              mock.patch("spec_connector.vllm.logger")):
            engine.forward([one])
        self.assertEqual(connector.get_block_ids_with_load_errors(),
                         set(one.blocks[:TOKENS // BLOCK]))
        self.assertIsNone(backend._pending)

    def document(self, cache, one):
        engine = types.SimpleNamespace(caches=[cache])
        return Engine.rows(engine, one, 0)

    def layers(self, *classes):
        with set_current_vllm_config(self.config):
            return {str(i): types.SimpleNamespace(
                impl=cls(QUERY_HEADS, SIZE, 0.2, HEADS, None, None, "auto"))
                for i, cls in enumerate(classes)}

    def test_layers_of_vllms_own_attention_are_extended(self):
        layers = self.layers(CPUAttentionBackendImpl, backend.Impl)
        self.assertIsNone(backend.extend(layers))
        self.assertEqual([type(layer.impl) for layer in layers.values()], 2 * [backend.Impl])
        self.assertEqual(layers["0"].impl.scale, 0.2)

    def test_an_attention_of_others_is_left_alone(self):
        class Others(CPUAttentionBackendImpl):
            pass

        layers = self.layers(CPUAttentionBackendImpl, Others)
        self.assertEqual(backend.extend(layers), "1")
        member, layers = AttentionBackendEnum.CPU_ATTN, self.layers(CPUAttentionBackendImpl)
        self.addCleanup(member.clear_override)
        register_backend(member, "somebody.else.Backend")
        self.assertEqual(backend.extend(layers), "0")
        member.clear_override()
        with mock.patch("vllm.__version__", "0.33.0"):
            self.assertEqual(backend.extend(layers), "0")
        self.assertIs(type(layers["0"].impl), CPUAttentionBackendImpl)


class ByTheWriter(Backend):
    """The same, and the same bits, through staging and the backend's own hands."""

    @staticmethod
    def way(caches):
        return Staged(caches, 4 << 20, 4 << 20)

    def test_what_finds_no_room_is_left_to_others(self):
        self.way = lambda caches: Staged(caches, 4 * TOKENS * HEADS * SIZE * 4, 4 << 20)
        engine = self.engine()
        one, other = Sequence(1, 10, new=(30, 30)), Sequence(2, 40)
        rest = engine.begin([one, other])
        self.assertEqual([load.request_id for load in rest], ["request 2"])
        engine.forward([one])
        self.assertEqual(engine.layered.finish(), [])
        rows = [engine.rows(one, layer) for layer in range(LAYERS)]
        one.computed, one.new = one.computed + 30, [30]
        engine.way.begin()
        engine.way.take(other.blocks[:TOKENS // BLOCK])  # of a load beside it
        engine.forward([one])
        self.assertEqual(engine.layered.finish(), [])
        for layer in range(LAYERS):  # this chunk chose nothing
            self.same(engine.rows(one, layer), rows[layer])
        self.assertEqual(engine.layered.pending, [])


if __name__ == "__main__":
    unittest.main()
