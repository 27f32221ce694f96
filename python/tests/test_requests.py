#!/usr/bin/env python3
"""What a client writes into a request ends at most that request's use of the tier: the scheduler's
and the worker's side with bad inputs, and with failures of their own, beside good requests.

SPEC_CONNECTOR_LIBRARY names the plugin. Without vLLM its classes are stand-ins (fakes.py)."""
import array
import ctypes
import os
import sys
import tempfile
import unittest
from types import SimpleNamespace
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import fakes  # noqa: E402
fakes.install()
from vllm import SamplingParams  # noqa: E402
from vllm.v1.request import Request  # noqa: E402
from spec_connector import Connector, Error, Model, Poisoned, abi, requests  # noqa: E402
from spec_connector.connector import Identity  # noqa: E402
from spec_connector.vllm import KVConnectorRole, SpecConnector, scheduler  # noqa: E402
from spec_connector.vllm.layered import Layered  # noqa: E402
from spec_connector.vllm.loading import Loading  # noqa: E402
from spec_connector.vllm.messages import Load, Save, SpecMetadata  # noqa: E402
from spec_connector.vllm.saving import Saving  # noqa: E402
from spec_connector.vllm.stats import Counts  # noqa: E402

BLOCK, STORED = 16, 64
PROMPT = list(range(100, 100 + STORED + BLOCK))
LONE = "\ud800"  # half of a surrogate pair


def media(identifier="a", offset=1, length=2):
    return SimpleNamespace(identifier=identifier,
                           mm_position=SimpleNamespace(offset=offset, length=length))


def request_of(name, tokens=tuple(PROMPT), params=None, **more):
    sampling = SamplingParams(max_tokens=4, extra_args={"kv_transfer_params": params})
    return Request(name, list(tokens), sampling, None, **more)


def adapter(path):
    return SimpleNamespace(lora_name="one", lora_int_id=1, lora_path=path)


BAD = {
    "salt": [{"cache_salt": 5}, {"cache_salt": 0}, {"cache_salt": b"a"}, {"cache_salt": ["a"]},
             {"cache_salt": "a" * (requests.VALUE_BYTES_MAX + 1)}],
    "media": [{"mm_features": [item]} for item in (
        media(5), media(None), media(b"a"), media("a" * (requests.VALUE_BYTES_MAX + 1)),
        media(offset=-1), media(offset=2**64), media(offset=len(PROMPT)), media(offset="1"),
        media(length=-1), media(length=len(PROMPT)), media(length=None))]
    + [{"mm_features": [media(offset=3)] * (requests.KEYS_TOGETHER_MAX + 1)}],
    "adapter": [{"lora_request": adapter(path)} for path in (5, None, "/nowhere", LONE, "a\0b")],
    "tokens": [{"tokens": PROMPT + [token]} for token in (-1, 2**32, 2**70, 1.5, None, "1")],
    "params": [{"params": params} for params in ([1], [], "spec", 5, True)],
}


class Case(unittest.TestCase):
    """A store that has the first STORED tokens of PROMPT."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.settings = {"path": os.path.join(folder.name, "kv"), "disk_bytes": "64MiB",
                         "segment_bytes": "1MiB", "load_policy": "load"}
        self.model = Model(1, 1, 1, 16, abi.DTYPE_F16, b"test")
        self.conn = Connector(self.settings, self.model, role=abi.ROLE_WRITER)
        self.addCleanup(self.conn.close)
        self.store(PROMPT[:STORED])

    def store(self, tokens, identity=Identity()):
        rows = ctypes.create_string_buffer(len(tokens) * 32)
        memory = abi.Memory(dtype=abi.DTYPE_F16, k_base=ctypes.addressof(rows),
                            v_base=ctypes.addressof(rows), k_bytes=len(tokens) * 32,
                            v_bytes=len(tokens) * 32, token_stride_bytes=32, head_stride_bytes=32)
        found = self.conn.lookup(array.array("I", tokens).tobytes(), identity=identity)
        tickets = self.conn.store((abi.StoreParams * 1)(abi.StoreParams(
            request=found.request, token_count=len(tokens), memory=ctypes.pointer(memory))),
            want_tickets=True)
        self.assertEqual(self.conn.wait(tickets), [abi.OK])
        self.conn.release(found.request)


class Inputs(Case):
    """The scheduler's side, through the methods that vLLM calls."""

    def setUp(self):
        super().setUp()
        config = mock.MagicMock()
        config.kv_transfer_config.kv_connector_extra_config = {}
        caches = SimpleNamespace(kv_cache_groups=[SimpleNamespace(
            kv_cache_spec=SimpleNamespace(block_size=BLOCK))])
        with mock.patch.object(scheduler, "open_connector", return_value=self.conn):
            self.connector = SpecConnector(config, KVConnectorRole.SCHEDULER, caches)
        self.side, self.counts = self.connector._side, self.connector._counts.counts
        self.log = self.connector._counts.refusals.logger = mock.Mock()

    def match(self, request):
        return self.connector.get_num_new_matched_tokens(request, 0)

    def step(self, new=(), cached=(), preempted=()):
        """new: (name, blocks); cached: (name, new blocks, computed tokens)."""
        return self.connector.build_connector_meta(SimpleNamespace(
            preempted_req_ids=set(preempted),
            scheduled_new_reqs=[SimpleNamespace(req_id=name, block_ids=(list(blocks),))
                                for name, blocks in new],
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=[name for name, _, _ in cached], resumed_req_ids=set(),
                new_block_ids=[blocks and (list(blocks),) for _, blocks, _ in cached],
                num_computed_tokens=[computed for _, _, computed in cached])))

    def check_alive(self, name="good"):
        self.assertIs(self.connector._side, self.side)
        self.assertEqual(self.match(request_of(name)), (STORED, False))

    def lines(self):
        return [call.args for method in (self.log.warning, self.log.error)
                for call in method.call_args_list]

    def test_a_bad_input_ends_its_own_requests_use_of_the_tier(self):
        for kind, inputs in BAD.items():
            for i, more in enumerate(inputs):
                with self.subTest(kind, more=repr(more)[:80]):
                    self.assertEqual(self.match(request_of(f"{kind}{i}", **more)), (0, False))
                    self.assertEqual(self.counts[f"refused_requests/{kind}"], i + 1)
                    self.check_alive(f"beside {kind}{i}")
        count = sum(map(len, BAD.values()))
        self.assertEqual(self.counts["requests/refused"], count)
        self.assertEqual(self.counts["requests/hit"], count)
        self.assertEqual(self.counts["refused_requests/failure"], 0)

    def test_each_kind_has_one_line(self):
        for kind, inputs in BAD.items():
            for i in range(3):
                self.match(request_of(f"{kind}{i}", **inputs[i % len(inputs)]))
        self.assertEqual([line[-1] for line in self.lines()], list(BAD))

    def test_a_refused_request_that_is_asked_again_counts_once(self):
        request = request_of("bad", cache_salt=5)
        for _ in range(3):
            self.assertEqual(self.match(request), (0, False))
        self.assertEqual(self.counts["refused_requests/salt"], 1)
        self.assertEqual(self.counts["requests/refused"], 1)
        self.assertEqual(self.counts["requests/disabled"], 0)

    def test_halves_of_surrogate_pairs_are_served(self):
        for name, more in (("salt", {"cache_salt": LONE}),
                           ("media", {"mm_features": [media(LONE)]})):
            identity = self.side.track(request_of(name, **more)).identity
            self.store(PROMPT[:STORED], identity)
            self.assertEqual(self.match(request_of(name + " again", **more)), (STORED, False))
        other = request_of("other", mm_features=[media("\udc00")])
        self.assertLess(self.match(other)[0], STORED)
        self.assertEqual(self.lines(), [])

    def test_a_request_says_what_it_wants(self):
        for params in ({"spec": {"load": False}}, {"spec": {"load": False, "else": LONE}}):
            self.assertEqual(self.match(request_of(str(params), params=params)), (0, False))
        for params in (None, {}, {"spec": None}, {"spec": 1}, {"spec": ["load"]}, {"spec": {}}):
            self.assertEqual(self.match(request_of(str(params), params=params)), (STORED, False))

    def test_what_the_plugin_finds_invalid_is_refused(self):
        error = Error("lookup", abi.E_INVALID, "no such thing")
        for i in range(2):
            with mock.patch.object(self.conn, "lookup", side_effect=error):
                self.assertEqual(self.match(request_of(f"bad{i}")), (0, False))
        self.assertEqual(self.counts["refused_requests/plugin"], 2)
        self.assertEqual(len(self.lines()), 1)
        self.check_alive()

    def test_nothing_of_a_refused_request_is_stored(self):
        for name, more in (("bad", {"cache_salt": 5}), ("good", {})):
            self.match(request_of(name, **more))
        self.step(new=[("bad", [1, 2, 3, 4, 5]), ("good", [6, 7, 8, 9, 10])])
        metadata = self.step(cached=[(name, None, len(PROMPT)) for name in ("bad", "good")])
        self.assertEqual([save.request_id for save in metadata.saves], ["good"])
        bad = request_of("bad", cache_salt=5)
        bad.num_computed_tokens = len(PROMPT)
        self.assertEqual(self.connector.request_finished(bad, []), (False, None))
        metadata = self.step()
        self.assertEqual((metadata.saves, metadata.ended), ([], ["bad"]))
        self.assertEqual(list(self.side.tracked), ["good"])

    def test_an_input_that_becomes_bad_ends_its_request_alone(self):
        names = ("bad", "good", "last")
        known = {name: request_of(name) for name in names}
        for request in known.values():
            self.match(request)
        self.step(new=[(name, range(6 * i, 6 * i + 6)) for i, name in enumerate(names)])
        for name in names:
            more = [-1] * BLOCK if name == "bad" else [7] * BLOCK
            if hasattr(known[name], "append_output_token_ids"):
                known[name].append_output_token_ids(more)
            else:
                known[name].all_token_ids += more
        whole = len(PROMPT) + BLOCK
        saves = self.step(cached=[(name, None, whole) for name in names]).saves
        self.assertEqual([(save.request_id, save.end) for save in saves],
                         [("good", whole), ("last", whole)])
        self.assertEqual(self.step(cached=[("bad", None, whole)]).saves, [])
        self.assertEqual(self.counts["refused_requests/tokens"], 1)
        self.check_alive("another")

    def test_a_failure_of_ours_ends_its_request_alone(self):
        blocks = SimpleNamespace(get_block_ids=lambda: [[3, 4, 5, 6, 7]])
        for i in range(2):
            request = request_of(f"bad{i}")
            self.assertEqual(self.match(request), (STORED, False))
            del self.side.found[request.request_id]
            self.connector.update_state_after_alloc(request, blocks, STORED)
            load, = self.step().loads  # it was promised: the worker says that it failed
            self.assertEqual((load.lease, load.blocks), (b"", [3, 4, 5, 6, 7]))
        self.assertEqual(self.counts["refused_requests/failure"], 2)
        line, = self.log.error.call_args_list
        self.assertIsInstance(line.kwargs["exc_info"], KeyError)
        self.check_alive()

    def test_each_place_and_kind_of_failure_has_a_line(self):
        for i, error in enumerate((RuntimeError("a"), RuntimeError("b"), ValueError("c"))):
            with mock.patch.object(self.side, "track", side_effect=error):
                self.assertEqual(self.match(request_of(f"bad{i}")), (0, False))
        self.assertEqual([line[2:3] + line[-1:] for line in self.lines()],
                         [("match", "failure")] * 2)
        self.check_alive()

    def test_a_poisoned_plugin_ends_the_tier(self):
        with (mock.patch.object(self.conn, "lookup", side_effect=Poisoned("lookup")),
              mock.patch("spec_connector.vllm.logger")):
            self.assertEqual(self.match(request_of("good")), (0, False))
        self.assertIsNone(self.connector._side)

    def test_a_reset_finds_refused_requests(self):
        """They go on computing on rows from before it."""
        bad = request_of("bad", cache_salt=5)
        self.match(bad)
        self.connector._kv_cache_manager = mock.MagicMock()
        self.connector._kv_cache_manager.get_block_ids.return_value = ([1, 2],)
        with mock.patch.object(scheduler.isolation, "isolate") as isolate:
            self.assertTrue(self.connector.reset_cache())
        isolate.assert_called_once_with(mock.ANY, bad, [1, 2], 0, BLOCK)


class Worker(Case):
    """The worker's side."""

    def setUp(self):
        super().setUp()
        self.counts, self.rows = Counts(), mock.Mock()
        self.counts.refusals.logger = mock.Mock()
        self.rows.source.side_effect = lambda blocks, first, end: ("place", end)
        self.saving = Saving(self.conn, self.rows, self.counts)

    def save(self, *saves):
        """Names of the requests of which something is to be stored."""
        with mock.patch.object(Saving, "store") as store:
            self.saving.save(SpecMetadata([], list(saves), [], 0))
        names = {id(stored): name for name, stored in self.saving.stored.items()}
        return [names[id(step[0])] for call in store.call_args_list for step in call.args[0]]

    def one(self, name, seed, first=0, end=2 * BLOCK, identity=Identity()):
        tokens = array.array("I", range(seed * 1000 + first, seed * 1000 + end))
        return Save(name, end, tokens.tobytes(), list(range(first // BLOCK, end // BLOCK)),
                    identity)

    def test_a_save_that_fails_ends_its_request_alone(self):
        def source(blocks, first, end):
            if end == 3 * BLOCK:
                raise RuntimeError("source")
            return "place", end
        self.rows.source.side_effect = source
        self.assertEqual(self.save(self.one("bad", 1, end=3 * BLOCK), self.one("good", 2)),
                         ["good"])
        self.assertEqual(self.save(self.one("bad", 1, 3 * BLOCK, 4 * BLOCK)), [])
        self.assertEqual(self.counts.counts, {"refused_requests/failure": 1,
                                              "dropped_saves/refused": 2})
        self.counts.refusals.logger.error.assert_called_once()
        self.assertEqual(self.conn.stats()["requests_open"], 1)

    def test_what_the_plugin_finds_invalid_ends_its_request_alone(self):
        bad = Identity(salt=b"a" * (requests.VALUE_BYTES_MAX + 1))
        for _ in range(2):
            self.assertEqual(self.save(self.one("bad", 1, identity=bad), self.one("good", 2)),
                             ["good"])
            self.saving.forget("good")
        self.assertEqual(self.counts.counts, {"refused_requests/plugin": 1,
                                              "dropped_saves/refused": 2})

    def test_a_poisoned_plugin_is_no_requests_failure(self):
        with mock.patch.object(self.conn, "lookup", side_effect=Poisoned("lookup")):
            self.assertRaises(Poisoned, self.save, self.one("good", 1))

    def test_media_behind_what_is_computed_is_waited_for(self):
        """A lookup takes keys that begin in its tokens."""
        image = Identity(extra=((1, 2 * BLOCK, 3, b"image"),))
        self.assertEqual(self.save(self.one("one", 1, identity=image)), [])
        self.assertEqual(self.save(self.one("one", 1, 2 * BLOCK, 4 * BLOCK, image)), ["one"])
        self.rows.source.assert_called_once_with([0, 1, 2, 3], 0, 4 * BLOCK)
        self.assertEqual(self.counts.counts, {})

    def test_a_store_that_is_refused_for_one_is_tried_for_each(self):
        calls = []

        def store(params, want_tickets):
            calls.append([param.request for param in params])
            if any(param.request == 7 for param in params):
                raise Error("store", abi.E_INVALID, "no")
            return [0] * len(params)
        conn = mock.Mock(store=store)
        self.rows.outof = lambda places: SimpleNamespace(for_all=lambda: SimpleNamespace(
            array=[abi.Memory() for _ in places], aim=lambda layer: None))
        self.rows.caches.count = 1
        saving = Saving(conn, self.rows, self.counts)
        stored = [SimpleNamespace(tokens=bytes(64), known=16, request=request, tickets=[],
                                  firsts={}, end=0, computed_on=0) for request in (6, 7, 8)]
        saving.store([(one, 0, 16, "place") for one in stored])
        self.assertEqual(calls, [[6, 7, 8], [6], [7], [8]])
        self.assertEqual([one.end for one in stored], [16, 0, 16])
        self.assertEqual(self.counts.counts, {"tokens/stored": 32, "dropped_saves/error": 1})

    def loads(self):
        """Two loads, of which the first one has no room, since taking it fails."""
        def take(blocks):
            if blocks == [1]:
                raise RuntimeError("take")
            return "place"
        self.rows.take, self.rows.caches.count = take, 1
        tokens = array.array("I", PROMPT).tobytes()
        lease = self.conn.lookup(tokens, peek=True, multiple_of=BLOCK).lease
        return [Load(name, lease, 0, STORED, [block]) for name, block in (("bad", 1), ("good", 2))]

    def test_a_load_that_fails_to_begin_fails_alone(self):
        with mock.patch.object(Loading, "submit"):
            loading = Loading(self.conn, self.rows, self.loads(), self.counts)
        self.assertEqual([load.request_id for load, _, _ in loading.good], ["good"])
        self.assertEqual([load.request_id for load in loading.failed], ["bad"])
        self.assertEqual(self.counts.counts, {"refused_requests/failure": 1,
                                              "failed_loads/other": 1})
        self.assertEqual(self.conn.stats()["requests_open"], 1)

    def test_a_layered_load_that_fails_to_begin_fails_alone(self):
        layered = Layered(self.conn, self.rows, refusals=self.counts.refusals)
        with mock.patch.object(Layered, "tell_ahead"):
            self.assertEqual(layered.begin(self.loads()), [])
        self.assertEqual([one.load.request_id for one in layered.pending], ["good"])
        self.assertEqual([load.request_id for load in layered.failed], ["bad"])
        self.assertEqual(self.counts.counts, {"refused_requests/failure": 1})
        self.assertEqual(self.conn.stats()["requests_open"], 1)


if __name__ == "__main__":
    unittest.main()
