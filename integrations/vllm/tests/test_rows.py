#!/usr/bin/env python3
"""Rows between the plugin and caches that vLLM's own CPU backend fills, both ways, without an
engine. Needs vLLM (integrations/vllm/setup-test) and SPEC_CONNECTOR_LIBRARY."""
import array
import os
import re
import sys
import tempfile
import types
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, os.path.join(ROOT, "python"))
try:
    import torch
    from vllm.v1.attention.backends import cpu_attn
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
from spec_connector import Connector, Model, abi  # noqa: E402
from spec_connector.connector import Error, Identity, Poisoned  # noqa: E402
from spec_connector.vllm import layout, memories, staged  # noqa: E402
from spec_connector.vllm.loading import Loading  # noqa: E402
from spec_connector.vllm.messages import Load, Save, SpecMetadata  # noqa: E402
from spec_connector.vllm.rows import open_rows  # noqa: E402
from spec_connector.vllm.saving import Saving  # noqa: E402
from spec_connector.vllm.stats import Counts  # noqa: E402

LAYERS, HEADS, SIZE, BLOCKS = 3, 2, 64, 24
MIB = 1 << 20


class Module:
    """What an attention layer has beside its impl. isa: that its kernels use, and lay caches out
    for; None: what vLLM takes on this machine (where it has AMX, that for bfloat16)."""

    def __init__(self, dtype, block, cache_dtype, isa):
        config = types.SimpleNamespace(model_config=types.SimpleNamespace(dtype=dtype))
        with mock.patch.object(cpu_attn, "get_current_vllm_config", return_value=config):
            self.impl = cpu_attn.CPUAttentionBackendImpl(HEADS, SIZE, 0.125, HEADS, None, None,
                                                         cache_dtype)
        self.isa = isa or cpu_attn._get_attn_isa(dtype, block, SIZE, cache_dtype)
        self._k_scale_float = self._v_scale_float = 1.0


class RealCaches(layout.Caches):
    """Caches as an engine registers them, without one."""

    def __init__(self, dtype, block, cache_dtype="auto",  # pylint: disable=super-init-not-called
                 isa="vec"):
        self.names = [f"layer.{i}" for i in range(LAYERS)]
        self.index = {name: i for i, name in enumerate(self.names)}
        self.count, self.block, self.heads, self.size = LAYERS, block, HEADS, SIZE
        self.row_dtype = dtype
        stored = dtype if cache_dtype == "auto" else torch.uint8
        self.tensors = [torch.zeros(BLOCKS, HEADS, block, 2 * SIZE, dtype=stored)
                        for _ in range(LAYERS)]
        self.modules = [Module(dtype, block, cache_dtype, isa) for _ in range(LAYERS)]

    def bytes_of(self, blocks):
        return [t[blocks].contiguous().view(torch.uint8) for t in self.tensors]


def rows_of(tokens, layer, dtype):
    """K and V of token ids: a row says which token and layer it is of."""
    ids = torch.tensor(tokens, dtype=torch.float32)
    base = torch.arange(HEADS * SIZE, dtype=torch.float32).view(1, HEADS, SIZE)
    key = torch.sin(ids.view(-1, 1, 1) * (layer + 1) + base)
    return key.to(dtype), torch.cos(3 * key + base).to(dtype)


class Prompts(unittest.TestCase):
    """A store, and what an engine's steps do with it."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.numbers = 0

    def tearDown(self):
        self.folder.cleanup()

    def open(self, dtype, name="kv", **store):
        config = {"path": os.path.join(self.folder.name, name), "disk_bytes": "256MiB",
                  "segment_bytes": "2MiB", "store": store}
        conn = Connector(config, Model(LAYERS, HEADS, HEADS, SIZE, layout.DTYPES[dtype], b"test"),
                         role=abi.ROLE_WRITER)
        self.addCleanup(conn.close)
        return conn

    def compute(self, caches, tokens, blocks, first=0):
        """Through the impl, as an engine's step does: the writer's way listens there."""
        slots = torch.tensor([blocks[i // caches.block] * caches.block + i % caches.block
                              for i in range(first, len(tokens))])
        for layer, module in enumerate(caches.modules):
            key, value = rows_of(tokens[first:], layer, caches.row_dtype)
            module.impl.do_kv_cache_update(module, key, value, caches.tensors[layer], slots)

    def store(self, conn, saving, tokens, blocks, epoch=None):
        """How many of the tokens' rows are stored then."""
        self.numbers += 1
        name, ids = str(self.numbers), array.array("I", tokens).tobytes()
        metadata = SpecMetadata([], [Save(name, len(tokens), ids, blocks, Identity())], [],
                                conn.epoch() if epoch is None else epoch)
        saving.save(metadata)
        stored = saving.stored[name]
        end = stored.end
        self.assertEqual(conn.wait(stored.tickets), [abi.OK] * len(stored.tickets))
        stored.tickets = []
        saving.save(SpecMetadata([], [], [name]))
        return end

    def load(self, conn, rows, tokens, blocks):
        """How many loads failed."""
        found = conn.lookup(array.array("I", tokens + [7]).tobytes(), peek=True, exact=True,
                            multiple_of=rows.caches.block)
        self.assertEqual(found.matched_tokens, len(tokens))
        loading = Loading(conn, rows, [Load("load", found.lease, 0, len(tokens), blocks)],
                          Counts())
        for layer in range(LAYERS):
            loading.await_layer(layer)
        return len(loading.finish())

    def test_both_ways_give_the_same_cache_bytes(self):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for block in (32, 128):
                with self.subTest(dtype=dtype, block=block):
                    self.same_bytes(dtype, block)

    def same_bytes(self, dtype, block):
        conn = self.open(dtype, f"{dtype}-{block}")
        tokens = list(range(1, 3 * block + 1))
        ways = {way: RealCaches(dtype, block) for way in ("direct", "writer")}
        rows = {way: open_rows(caches, {"rows": way}) for way, caches in ways.items()}
        for way, caches in ways.items():
            self.assertIsInstance(rows[way],
                                  layout.Direct if way == "direct" else staged.Staged)
            mine = [t + 1000 * (way == "writer") for t in tokens]
            self.compute(caches, mine, [5, 2, 9])
            self.assertEqual(self.store(conn, Saving(conn, rows[way], Counts()), mine, [5, 2, 9]),
                             len(mine))
            for reader in ("direct", "writer"):
                target = RealCaches(dtype, block)
                into = open_rows(target, {"rows": reader})
                self.assertEqual(self.load(conn, into, mine, [1, 0, 4]), 0)
                for was, now in zip(caches.bytes_of([5, 2, 9]), target.bytes_of([1, 0, 4])):
                    self.assertTrue(torch.equal(was, now))
                self.assertFalse(any(t.any() for t in target.bytes_of([2, 3, 5, 6])))

    def test_a_wrong_entry_of_the_table_is_refused(self):
        right = layout.Direct._shape

        def wrong(self, tensor):  # K as rows: right until two prompts part inside a block
            memory = abi.Memory.from_buffer_copy(right(self, tensor))
            memory.k_element_stride_bytes = self.element
            memory.token_stride_bytes = self.caches.size * self.element
            return memories.words_of(memory)

        caches = RealCaches(torch.float32, 32)
        with mock.patch.object(layout.Direct, "_shape", wrong):
            with self.assertRaisesRegex(ValueError, "layer.0 is not laid out .* K False, V True"):
                open_rows(caches, {"rows": "direct"})
            self.assertIsInstance(open_rows(caches, {}), staged.Staged)

    def test_a_layout_that_is_not_in_the_table_goes_by_the_writer(self):
        caches = RealCaches(torch.bfloat16, 32)
        with mock.patch.object(layout, "KNOWN", {("0.32", "cpu", "amx")}):
            self.assertIsInstance(open_rows(caches, {}), staged.Staged)
            with self.assertRaisesRegex(ValueError, "not in the table"):
                open_rows(caches, {"rows": "direct"})

    def test_what_this_machine_takes_is_known_or_goes_by_the_writer(self):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            with self.subTest(dtype=dtype):
                caches, target = (RealCaches(dtype, 32, isa=None) for _ in range(2))
                conn, tokens = self.open(dtype, f"{dtype}"), list(range(1, 97))
                rows = open_rows(caches, {})
                isa = caches.modules[0].isa
                known = ("0.32", "cpu", isa) in layout.KNOWN
                self.assertIsInstance(rows, layout.Direct if known else staged.Staged, isa)
                self.compute(caches, tokens, [5, 2, 9])
                self.assertEqual(self.store(conn, Saving(conn, rows, Counts()), tokens, [5, 2, 9]),
                                 len(tokens))
                self.assertEqual(self.load(conn, open_rows(target, {}), tokens, [1, 0, 4]), 0)
                for was, now in zip(caches.bytes_of([5, 2, 9]), target.bytes_of([1, 0, 4])):
                    self.assertTrue(was.any() and torch.equal(was, now))

    def test_prompts_that_part_at_every_offset_of_a_block_load_right(self):
        block, conn = 32, self.open(torch.float32)
        for way in ("direct", "writer"):
            caches = RealCaches(torch.float32, block)
            rows = open_rows(caches, {"rows": way})
            saving, prompts = Saving(conn, rows, Counts()), []
            start = list(range(1, 2 * block + 1))
            for offset in range(block):
                part = 10000 + 100 * offset + 50 * (way == "writer")
                prompts.append(start[:block + offset] + [part + i for i in range(block - offset)])
                self.compute(caches, prompts[-1], [3, 4])
                self.store(conn, saving, prompts[-1], [3, 4])
            target = RealCaches(torch.float32, block)
            into = open_rows(target, {"rows": way})
            for prompt in prompts:
                self.compute(caches, prompt, [3, 4])
                self.assertEqual(self.load(conn, into, prompt, [8, 1]), 0)
                for was, now in zip(caches.bytes_of([3, 4]), target.bytes_of([8, 1])):
                    self.assertTrue(torch.equal(was, now))

    def narrow(self, make):
        caches = make()
        conn, tokens = self.open(caches.row_dtype), list(range(1, 65))
        rows = open_rows(caches, {})
        self.assertIsInstance(rows, staged.Staged)
        self.compute(caches, tokens, [5, 2])
        self.assertEqual(self.store(conn, Saving(conn, rows, Counts()), tokens, [5, 2]), 64)
        target = make()
        self.assertEqual(self.load(conn, open_rows(target, {}), tokens, [0, 7]), 0)
        for was, now in zip(caches.bytes_of([5, 2]), target.bytes_of([0, 7])):
            self.assertTrue(was.any() and torch.equal(was, now))

    def test_a_cache_of_fp8_gets_its_bytes_back(self):
        def make():
            return RealCaches(torch.bfloat16, 32, "fp8_e4m3")

        caches = make()
        row = torch.ones(1, caches.heads, caches.size, dtype=torch.bfloat16)
        try:
            caches.write(0, row, row, torch.zeros(1, dtype=torch.int64))
        except RuntimeError as error:  # NotImplementedError too
            if "Unsupported" not in str(error) and not isinstance(error, NotImplementedError):
                raise
            # the backend has no such cache on this processor, whoever writes: that is said
            with self.assertRaisesRegex(ValueError, re.escape(str(error).splitlines()[0])):
                open_rows(make(), {})
            self.skipTest(str(error))
        self.narrow(make)

    def test_a_cache_that_rounds_gets_its_bytes_back(self):
        """As fp8 does, on processors whose backend has none."""
        def make():
            caches = RealCaches(torch.float32, 32)
            for module in caches.modules:
                module.impl.do_kv_cache_update = rounding(module.impl.do_kv_cache_update)
            return caches

        def rounding(update):
            return lambda module, key, value, *rest: update(
                module, key.to(torch.bfloat16).float(), value.to(torch.bfloat16).float(), *rest)

        self.narrow(make)

    def test_the_ring_gives_no_row_of_another_time(self):
        conn, dtype = self.open(torch.float32), torch.float32
        caches = RealCaches(dtype, 32)
        rows = staged.Staged(caches, MIB, 2 * LAYERS * 100 * HEADS * SIZE * 4)
        self.assertEqual(rows.ring.capacity, 100)
        counts, first = Counts(), list(range(1, 65))
        saving = Saving(conn, rows, counts)
        self.compute(caches, first, [5, 2])
        self.compute(caches, list(range(200, 264)), [6, 7])  # takes the place of 28 of the first
        self.assertEqual(self.store(conn, saving, first, [5, 2]), 0)
        self.assertEqual(counts.take().data["counts"], {"tokens/gap": 64})
        other = list(range(300, 332))
        self.compute(caches, other, [5])
        self.assertEqual(self.store(conn, saving, other, [5]), 32)
        # rows that came from the store are not the ring's, whatever it had of their slots
        self.load(conn, rows, other, [6])
        self.assertEqual(self.store(conn, saving, list(range(200, 232)), [6]), 0)
        target = RealCaches(dtype, 32)
        self.assertEqual(self.load(conn, open_rows(target, {}), other, [0]), 0)
        for was, now in zip(caches.bytes_of([5]), target.bytes_of([0])):
            self.assertTrue(torch.equal(was, now))

    def test_a_load_without_room_in_the_staging_fails_alone(self):
        conn, dtype = self.open(torch.float32), torch.float32
        caches = RealCaches(dtype, 32)
        tokens = list(range(1, 65))
        self.compute(caches, tokens, [5, 2])
        self.store(conn, Saving(conn, open_rows(caches, {}), Counts()), tokens, [5, 2])
        target = RealCaches(dtype, 32)
        rows = staged.Staged(target, 4 * 96 * HEADS * SIZE * 4, MIB)
        ids = array.array("I", tokens + [7]).tobytes()
        loads = [Load(str(i), conn.lookup(ids, peek=True, exact=True, multiple_of=32).lease, 0, 64,
                      [2 * i, 2 * i + 1]) for i in range(2)]
        counts = Counts()
        self.assertEqual(Loading(conn, rows, loads, counts).finish(), loads[1:])
        self.assertEqual(counts.take().data["counts"],
                         {"failed_loads/room": 1, "tokens/loaded": 64})
        for was, now in zip(caches.bytes_of([5, 2]), target.bytes_of([0, 1])):
            self.assertTrue(torch.equal(was, now))
        self.assertEqual(conn.stats()["requests_open"], 0)

    def test_what_one_call_does_not_take_is_stored_and_loaded_all_the_same(self):
        """Or computed, of loads: more than one call takes begin in no real step."""
        conn, caches = self.open(torch.float32), RealCaches(torch.float32, 32)
        rows, counts = open_rows(caches, {}), Counts()
        saving, prompts = Saving(conn, rows, counts), [[n, *range(1, 32)] for n in range(100, 105)]
        with mock.patch.object(abi, "CALL_MAX", 2):
            saving.save(SpecMetadata([], [
                Save(str(i), 32, array.array("I", ids).tobytes(), [i], Identity())
                for i, ids in enumerate(prompts)], [], conn.epoch()))
            conn.wait([ticket for one in saving.stored.values() for ticket in one.tickets])
            self.assertEqual(conn.stats()["stored_tokens"], 5 * 32)
            loads = [Load(str(i), conn.lookup(array.array("I", ids + [7]).tobytes(), peek=True,
                                              exact=True).lease, 0, 32, [5 + i])
                     for i, ids in enumerate(prompts)]
            self.assertEqual(Loading(conn, rows, loads, counts).finish(), loads[2:])
        self.assertEqual(counts.take().data["counts"],
                         {"tokens/stored": 160, "failed_loads/room": 3, "tokens/loaded": 64})

    def kept(self):
        """Two blocks are stored: the store, the rows of the caches they are of, and a lease."""
        conn, tokens = self.open(torch.float32), list(range(1, 65))
        caches = RealCaches(torch.float32, 32)
        rows = open_rows(caches, {})
        self.compute(caches, tokens, [5, 2])
        self.store(conn, Saving(conn, rows, Counts()), tokens, [5, 2])
        return conn, rows, conn.lookup(array.array("I", tokens + [7]).tobytes(), peek=True,
                                       exact=True, multiple_of=32).lease

    def test_a_load_that_is_abandoned_writes_nothing_later(self):
        conn, _, lease = self.kept()
        submit, wait_for, begun, ended = conn.submit, conn.wait_for, [], []
        conn.submit = lambda items: begun.append(submit(items)) or begun[-1]
        conn.wait_for = lambda ticket: ended.append(ticket) or wait_for(ticket)
        for broken_layer in range(LAYERS):
            into = open_rows(RealCaches(torch.float32, 32), {})
            loading = Loading(conn, into, [Load("load", lease, 0, 64, [0, 1])], Counts())
            with mock.patch.object(into, "arrived", side_effect=MemoryError):
                with self.assertRaises(MemoryError):
                    loading.await_layer(broken_layer)
            loading.abandon()
            self.assertEqual(begun, ended)
            self.assertEqual(conn.stats()["requests_open"], 0)

    def test_a_load_that_fails_in_a_layer_leaves_the_others_theirs(self):
        conn, rows, lease = self.kept()
        for way in ("direct", "writer"):
            for at in range(LAYERS):
                target = RealCaches(torch.float32, 32)
                loads = [Load(name, lease, 0, 64, blocks)
                         for name, blocks in (("a", [0, 1]), ("b", [3, 4]), ("c", [6, 5]))]
                loading = Loading(conn, open_rows(target, {"rows": way}), loads, Counts())
                wait_for = conn.wait_for

                def lose(ticket):
                    wait_for(ticket)
                    if loading.layer == at:
                        loading.items[1].status = abi.E_CORRUPT

                with mock.patch.object(conn, "wait_for", lose):
                    self.assertEqual(loading.finish(), loads[1:2])
                for blocks in ([0, 1], [6, 5]):
                    for was, now in zip(rows.caches.bytes_of([5, 2]), target.bytes_of(blocks)):
                        self.assertTrue(torch.equal(was, now))
                self.assertEqual(conn.stats()["requests_open"], 0)

    def test_a_plugin_that_cannot_wait_any_more_is_closed(self):
        """Its threads may write until then, into blocks that vLLM gives to others."""
        conn, rows, lease = self.kept()
        loading = Loading(conn, rows, [Load("load", lease, 0, 64, [0, 1])], Counts())
        api, closed = conn._api, []
        conn._api = types.SimpleNamespace(
            get_important_wait=lambda *args: abi.E_POISONED,
            close=lambda handle: closed.append(api.close(handle)))
        with self.assertRaises(Poisoned):
            loading.await_layer(0)
        self.assertEqual(len(closed), 1)
        loading.abandon()

    def test_a_poisoned_plugin_is_no_request_s_error(self):
        """Each would be told with a line, for ever."""
        conn, rows, lease = self.kept()
        api, says = conn._api, lambda *args: abi.E_POISONED
        conn._api = types.SimpleNamespace(attach=says, lookup=says, poll=says, stats=says,
                                          close=api.close)
        with self.assertRaises(Poisoned):
            Loading(conn, rows, [Load("load", lease, 0, 64, [0, 1])], Counts())
        save = Save("r", 32, array.array("I", range(500, 532)).tobytes(), [1], Identity())
        with self.assertRaises(Poisoned):
            Saving(conn, rows, Counts()).save(SpecMetadata([], [save]))

    def test_the_next_layer_is_read_while_one_is_placed(self):
        """begin_layer is told each layer, in front of its submission; what it refuses costs
        time, no rows."""
        conn, rows, lease = self.kept()
        api, calls, target = conn._api, [], RealCaches(torch.float32, 32)

        def told(_conn, requests, count, layer, _error):
            calls.append(("begin", layer, list(requests[:count])))
            return abi.E_STALE

        def submitted(*args):
            calls.append(("submit", args[1][0].layer, [args[1][0].request]))
            return api.get_important_submit(*args)

        conn._api = types.SimpleNamespace(**{name: getattr(api, name) for name, _ in api._fields_})
        conn._api.begin_layer, conn._api.get_important_submit = told, submitted
        loading = Loading(conn, open_rows(target, {}), [Load("load", lease, 0, 64, [8, 1])],
                          Counts())
        self.assertEqual(loading.finish(), [])
        request = calls[0][2]
        self.assertEqual(calls, [(what, layer, request) for layer in range(LAYERS)
                                 for what in ("begin", "submit")])
        for was, now in zip(rows.caches.bytes_of([5, 2]), target.bytes_of([8, 1])):
            self.assertTrue(was.any() and torch.equal(was, now))

    def test_a_submission_that_is_refused_fails_the_loads_alone(self):
        conn, tokens = self.open(torch.float32), list(range(1, 33))
        caches = RealCaches(torch.float32, 32)
        self.compute(caches, tokens, [5])
        self.store(conn, Saving(conn, open_rows(caches, {}), Counts()), tokens, [5])
        submit = conn.submit
        for refused in range(LAYERS):
            target = open_rows(RealCaches(torch.float32, 32), {})
            calls = [submit] * refused + [Error("submit", abi.E_BUSY, "planted")]
            with mock.patch.object(conn, "submit", side_effect=lambda items: (
                    calls.pop(0)(items) if callable(calls[0]) else self.throw(calls[0]))):
                self.assertEqual(self.load(conn, target, tokens, [3]), 1)
            self.assertEqual(conn.stats()["requests_open"], 0)
        self.assertEqual(self.load(conn, target, tokens, [3]), 0)

    @staticmethod
    def throw(error):
        raise error

    def saves(self, saving, tokens, kept):
        """Two saves of a request that then ends; kept: what the plugin says of their tickets."""
        with mock.patch.object(saving.conn, "kept", kept):
            for first in (0, 32):
                ids = array.array("I", tokens[first:first + 32]).tobytes()
                saving.save(SpecMetadata([], [Save("r", first + 32, ids, [5 + first // 32],
                                                   Identity())], [], saving.conn.epoch()))
            saving.save(SpecMetadata([], [], ["r"]))
        saving.conn.wait(saving.tickets)
        saving.tickets = []

    def test_a_store_that_is_under_way_holds_up_none_behind_it(self):
        conn, caches = self.open(torch.float32), RealCaches(torch.float32, 32)
        saving, tokens = Saving(conn, open_rows(caches, {}), Counts()), list(range(1, 65))
        self.compute(caches, tokens, [5, 6])
        self.saves(saving, tokens, lambda ticket: (abi.PENDING, 0))
        self.assertEqual(conn.stats()["stored_tokens"], 64)
        self.assertEqual(self.load(conn, saving.rows, tokens, [9, 10]), 0)
        self.assertEqual(conn.stats()["requests_open"], 0)

    def save_parts(self, conn, saving, tokens, blocks, told):
        """Saves a block each; told: what the plugin says of the first one's ticket."""
        asked = []

        def kept(ticket):
            asked.append(ticket)
            return told

        for i, block in enumerate(blocks):
            ids = array.array("I", tokens[32 * i:32 * i + 32]).tobytes()
            metadata = SpecMetadata([], [Save("r", 32 * i + 32, ids, [block], Identity())], [],
                                    conn.epoch())
            if i == 1:
                with mock.patch.object(conn, "kept", kept):
                    saving.save(metadata)
            else:
                saving.save(metadata)
        return asked

    def test_a_store_that_lost_its_end_goes_on_there(self):
        conn, caches = self.open(torch.float32), RealCaches(torch.float32, 32)
        saving, tokens = Saving(conn, open_rows(caches, {}), Counts()), list(range(1, 65))
        self.compute(caches, tokens, [5, 6])
        with mock.patch.object(conn, "lookup", wraps=conn.lookup) as lookups:
            asked = self.save_parts(conn, saving, tokens, [5, 6], (abi.E_BUSY, 16))
            self.assertEqual(lookups.call_count, 1)  # the request goes on
        self.assertEqual(len(asked), 1)
        self.assertEqual(saving.stored["r"].firsts, {saving.stored["r"].tickets[0]: 16})
        saving.save(SpecMetadata([], [], ["r"]))
        conn.wait(saving.tickets)
        self.assertEqual(self.load(conn, saving.rows, tokens, [9, 10]), 0)
        self.assertEqual(conn.stats()["stored_tokens"], 64)

    def test_a_store_that_was_dropped_begins_anew(self):
        conn, caches = self.open(torch.float32), RealCaches(torch.float32, 32)
        saving, tokens = Saving(conn, open_rows(caches, {}), Counts()), list(range(1, 65))
        self.compute(caches, tokens, [5, 6])
        with mock.patch.object(conn, "lookup", wraps=conn.lookup) as lookups:
            self.save_parts(conn, saving, tokens, [5, 6], (abi.E_DROPPED, 0))
            self.assertEqual(lookups.call_count, 2)
        saving.save(SpecMetadata([], [], ["r"]))
        conn.wait(saving.tickets)
        self.assertEqual(conn.stats()["stored_tokens"], 64)

    def test_what_comes_once_is_not_stored_by_asking_again(self):
        conn, caches = self.open(torch.float32, admit="second"), RealCaches(torch.float32, 32)
        tokens, blocks = list(range(1, 129)), [5, 6, 7, 8]
        self.compute(caches, tokens, blocks)
        for stored in (0, 128):  # by the first request, and by the second one's end
            saving = Saving(conn, open_rows(caches, {}), Counts())
            for i, block in enumerate(blocks):
                ids = array.array("I", tokens[32 * i:32 * i + 32]).tobytes()
                saving.save(SpecMetadata([], [Save("r", 32 * i + 32, ids, [block], Identity())],
                                         [], conn.epoch()))
            saving.save(SpecMetadata([], [], ["r"]))
            conn.wait(saving.tickets)
            self.assertEqual(conn.stats()["stored_tokens"], stored)

    def test_rows_from_before_a_reset_are_not_stored_after_it(self):
        conn, caches = self.open(torch.float32), RealCaches(torch.float32, 32)
        saving, tokens = Saving(conn, open_rows(caches, {}), Counts()), list(range(1, 33))
        self.compute(caches, tokens, [5])
        before = conn.epoch()
        conn.reset()
        self.assertEqual(self.store(conn, saving, tokens, [5], epoch=before), 0)
        self.assertEqual(conn.stats()["stored_tokens"], 0)
        self.assertEqual(conn.stats()["requests_open"], 0)
        self.assertEqual(self.store(conn, saving, tokens, [5]), 32)


if __name__ == "__main__":
    unittest.main()
