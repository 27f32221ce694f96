#!/usr/bin/env python3
"""What the connector does to an engine and its store: whose attention it extends, what it says to
vLLM that it supports, and which role it has beside other engines.

SPEC_CONNECTOR_LIBRARY names the plugin. Without vLLM its classes are stand-ins (fakes.py)."""
import array
import ctypes
import json
import os
import sys
import tempfile
import time
import unittest
from types import SimpleNamespace
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import fakes  # noqa: E402
fakes.install()
import vllm  # noqa: E402
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackendImpl  # noqa: E402
from vllm.v1.attention.backends.registry import (  # noqa: E402
    AttentionBackendEnum, register_backend)
from spec_connector import Model, abi  # noqa: E402
from spec_connector.connector import Identity  # noqa: E402
from spec_connector.vllm import SpecConnector, backend, saving, served, worker  # noqa: E402
from spec_connector.vllm.messages import Save, SpecMetadata  # noqa: E402
from spec_connector.vllm.stats import Counts  # noqa: E402

TOKENS = 64
NAMES = ["model.layers.0.self_attn.attn", "model.layers.1.self_attn.attn"]


def layers_of(*classes):
    return {name: SimpleNamespace(impl=object.__new__(cls)) for name, cls in zip(NAMES, classes)}


def kinds_of(layers):
    return [type(layer.impl) for layer in layers.values()]


class Attention(unittest.TestCase):
    """A worker whose caches are registered, over a plugin that is none."""

    def register(self, layers, **extra):
        config = mock.MagicMock()
        config.kv_transfer_config.kv_connector_extra_config = extra
        ours = object.__new__(worker.Worker)
        ours.config, ours.kv_config, ours.counts = config, mock.MagicMock(), Counts()
        ours.layered = None
        rows = mock.Mock(caches=SimpleNamespace(names=list(layers), count=len(layers),
                                                modules=list(layers.values())))
        with (mock.patch.object(worker, "Caches"), mock.patch.object(worker, "open_connector"),
              mock.patch.object(worker, "open_rows", return_value=rows),
              mock.patch("vllm.distributed.get_tensor_model_parallel_rank", return_value=0),
              mock.patch.object(worker, "logger") as logger):
            ours.register({})
        return ours.layered, logger.warning.call_args_list

    def test_an_installed_package_is_called_by_no_process_of_vllm(self):
        """An entry point would be run in each, for whatever engine."""
        path = os.path.join(os.path.dirname(HERE), "pyproject.toml")
        with open(path, encoding="utf-8") as file:
            self.assertNotIn("entry-points", file.read())

    def test_only_engines_with_layered_loads_have_their_attention_extended(self):
        for extra in ({}, {"layered": False}):
            layers = layers_of(CPUAttentionBackendImpl, CPUAttentionBackendImpl)
            layered, _ = self.register(layers, **extra)
            self.assertIsNone(layered)
            self.assertEqual(kinds_of(layers), 2 * [CPUAttentionBackendImpl])
        layered, lines = self.register(layers, layered=True)
        self.assertIsNotNone(layered)
        self.assertEqual(kinds_of(layers), 2 * [backend.Impl])
        self.assertEqual(lines, [])
        self.assertFalse(AttentionBackendEnum.CPU_ATTN.is_overridden())

    def test_an_attention_of_others_is_left_alone(self):
        class Others(CPUAttentionBackendImpl):
            pass

        layers = layers_of(CPUAttentionBackendImpl, Others)
        layered, lines = self.register(layers, layered=True)
        self.assertIsNone(layered)
        self.assertEqual(kinds_of(layers), [CPUAttentionBackendImpl, Others])
        self.assertEqual([call.args[1] for call in lines], NAMES[1:])

    def test_another_vllm_and_another_backend_are_left_alone(self):
        layers = layers_of(CPUAttentionBackendImpl)
        with mock.patch.object(vllm, "__version__", "0.33.0"):
            self.assertIsNone(self.register(layers, layered=True)[0])
        self.addCleanup(AttentionBackendEnum.CPU_ATTN.clear_override)
        register_backend(AttentionBackendEnum.CPU_ATTN, "somebody.else.Backend")
        self.assertIsNone(self.register(layers, layered=True)[0])
        self.assertEqual(kinds_of(layers), [CPUAttentionBackendImpl])

    def test_a_call_is_told_while_a_load_is_pending(self):
        layers, seen = layers_of(backend.Impl), []
        layer, impl = SimpleNamespace(layer_name=NAMES[0]), layers[NAMES[0]].impl
        self.addCleanup(backend.set_pending, None)
        with mock.patch.object(CPUAttentionBackendImpl, "forward", create=True,
                               return_value="out"):
            for deliver in (None, lambda *told: seen.append(told)):
                backend.set_pending(deliver)
                for metadata in (None, "metadata"):
                    self.assertEqual(impl.forward(layer, "q", "k", "v", "cache", metadata,
                                                  output="out"), "out")
        self.assertEqual(seen, [(NAMES[0], impl, "q", "k", "metadata")])


class Sleep(unittest.TestCase):
    def test_sleep_mode_is_not_supported(self):
        """As vLLM reads it of a class and of an object, whose capabilities are properties."""
        self.assertIs(SpecConnector.supports_sleep_mode, False)
        self.assertIs(object.__new__(SpecConnector).supports_sleep_mode, False)

    def test_an_engine_with_sleep_mode_is_refused(self):
        """By a vLLM that does not ask."""
        model = SimpleNamespace(is_encoder_decoder=False, use_mla=False, enable_sleep_mode=True)
        config = SimpleNamespace(model_config=model, parallel_config=None)
        caches = SimpleNamespace(kv_cache_groups=[])
        self.assertRaisesRegex(served.Refused, "sleep mode", served.check, config, caches)
        model.enable_sleep_mode = False
        self.assertRaisesRegex(served.Refused, "0 KV cache groups", served.check, config, caches)


class Engines(unittest.TestCase):
    """Several engines over one store, each of a scheduler's and a worker's side."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "spec.json")
        self.configure()
        self.config = mock.MagicMock(
            scheduler_config=SimpleNamespace(max_num_seqs=4),
            model_config=SimpleNamespace(max_model_len=1024),
            parallel_config=SimpleNamespace(tensor_parallel_size=1))
        self.config.kv_transfer_config.kv_connector_extra_config = {"config": self.path}
        self.caches = SimpleNamespace(kv_cache_groups=[SimpleNamespace(layer_names=NAMES[:1])])
        model = Model(1, 1, 1, 16, abi.DTYPE_F16, b"test")
        described = mock.patch.object(served, "describe", return_value=model)
        described.start()
        self.addCleanup(described.stop)
        self.tokens = array.array("I", range(TOKENS)).tobytes()

    def configure(self, **keys):
        """The configuration of engines that start from now on."""
        store = os.path.join(os.path.dirname(self.path), "kv")
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump({"path": store, "disk_bytes": "64MiB", "segment_bytes": "1MiB",
                       "load_policy": "load", **keys}, file)

    def await_role(self, conn, role):
        for _ in range(3000):
            if conn.stats()["role"] == role:
                break
            time.sleep(.02)
        self.assertEqual(conn.stats()["role"], role)

    def worker(self):
        """A worker whose caches are registered, and its lines."""
        ours = object.__new__(worker.Worker)
        ours.config, ours.kv_config, ours.counts = self.config, self.caches, Counts()
        ours.layered = None
        with (mock.patch.object(worker, "Caches"), mock.patch.object(worker, "open_rows"),
              mock.patch("vllm.distributed.get_tensor_model_parallel_rank", return_value=0),
              mock.patch.object(worker, "logger") as logger):
            ours.register({})
        self.addCleanup(ours.close)
        return ours, logger.warning.call_args_list

    def memory(self, data):
        rows = ctypes.create_string_buffer(data, len(data))
        return rows, abi.Memory(dtype=abi.DTYPE_F16, k_base=ctypes.addressof(rows),
                                v_base=ctypes.addressof(rows), k_bytes=len(data),
                                v_bytes=len(data), token_stride_bytes=32, head_stride_bytes=32)

    def store(self, conn, data):
        found = conn.lookup(self.tokens)
        rows, memory = self.memory(data)
        tickets = conn.store((abi.StoreParams * 1)(abi.StoreParams(
            request=found.request, token_count=TOKENS, memory=ctypes.pointer(memory))),
            want_tickets=True)
        self.assertEqual(conn.wait(tickets), [abi.OK])
        conn.release(found.request)

    def test_what_a_second_engine_is_promised_it_loads(self):
        first, lines = self.worker()
        self.assertEqual(lines, [])
        data = bytes(i % 251 for i in range(TOKENS * 32))
        self.store(first.conn, data)
        second, lines = self.worker()
        self.assertEqual(len(lines), 1)
        self.assertEqual(second.conn.stats()["role"], abi.ROLE_READER)
        with served.open_connector(self.config, self.caches, 0, abi.ROLE_READER) as scheduler:
            found = scheduler.lookup(self.tokens, peek=True, multiple_of=16)
        self.assertEqual(found.matched_tokens, TOKENS - 16)
        attached = second.conn.attach(found.lease)
        self.assertEqual(attached.matched_tokens, found.matched_tokens)
        rows, memory = self.memory(bytes(len(data)))
        self.assertEqual(second.conn.get((abi.Important * 1)(abi.Important(
            request=attached.request, destination=ctypes.pointer(memory)))), abi.OK)
        self.assertEqual(rows.raw[:32 * attached.matched_tokens],
                         data[:32 * attached.matched_tokens])
        second.conn.release(attached.request)

    def test_a_second_engine_stores_nothing(self):
        first, _ = self.worker()
        second, _ = self.worker()
        save = Save("one", TOKENS, self.tokens, list(range(TOKENS // 16)), Identity())
        second.save(SpecMetadata([], [save], [], 0))
        self.assertEqual(second.counts.counts, {"dropped_saves/reader": 1})
        second.save(SpecMetadata([], [], ["one"], 0))
        self.assertEqual(second.saving.stored, {})
        self.assertEqual(first.conn.stats()["stored_tokens"], 0)
        first.rows.source.return_value = ("place", TOKENS)
        with mock.patch.object(first.saving, "store") as store:
            first.save(SpecMetadata([], [save], [], 0))
        store.assert_called_once()

    def test_a_second_engine_stores_when_the_first_has_ended(self):
        """Also requests from before: their tokens were noted, their rows are in the cache."""
        first, _ = self.worker()
        second, _ = self.worker()
        half = TOKENS // 2
        saves = [Save("one", half, self.tokens[:4 * half], list(range(half // 16)), Identity()),
                 Save("one", TOKENS, self.tokens[4 * half:],
                      list(range(half // 16, TOKENS // 16)), Identity())]
        second.save(SpecMetadata([], saves[:1], [], 0))
        self.assertEqual(second.counts.counts, {"dropped_saves/reader": 1})
        first.close()
        self.await_role(second.conn, abi.ROLE_WRITER)
        second.rows.source.return_value = ("place", TOKENS)
        with mock.patch.object(second.saving, "store") as store:
            second.save(SpecMetadata([], saves[1:], [], 0))
        (steps,), _ = store.call_args
        (stored, begin, end, _), = steps
        self.assertEqual((begin, end), (0, TOKENS))
        self.assertEqual(bytes(stored.tokens), self.tokens)
        self.assertEqual(second.counts.counts, {"dropped_saves/reader": 1})

    def test_the_engine_that_starts_when_no_other_stores_stores(self):
        first, _ = self.worker()
        first.close()
        second, lines = self.worker()
        self.assertEqual((second.conn.stats()["role"], lines), (abi.ROLE_WRITER, []))

    def test_engines_with_many_writers_all_store(self):
        """What one stored the next one neither says to be a reader of, nor stores again."""
        self.configure(store={"writers": "many"})
        engines = [self.worker() for _ in range(3)]
        self.assertEqual([lines for _, lines in engines], 3 * [[]])
        self.store(engines[0][0].conn, bytes(TOKENS * 32))
        save = Save("one", TOKENS, self.tokens, list(range(TOKENS // 16)), Identity())
        for ours, _ in engines:
            self.assertEqual(ours.conn.stats()["role"], abi.ROLE_WRITER)
            while ours.conn.lookup(self.tokens, peek=True).stored_tokens < TOKENS:
                time.sleep(.02)
            with mock.patch.object(ours.saving, "store") as store:
                ours.save(SpecMetadata([], [save], [], 0))
            store.assert_not_called()
            self.assertEqual(ours.counts.counts, {})

    def test_an_engine_that_may_store_no_more_says_so_once(self):
        """Another one's segments are longer than it can follow."""
        self.configure(store={"writers": "many"})
        first, _ = self.worker()
        self.configure(store={"writers": "many"}, segment_bytes="2MiB")
        second, _ = self.worker()
        self.store(second.conn, bytes(TOKENS * 32))
        self.await_role(first.conn, abi.ROLE_READER)
        first.rows.source.return_value = ("place", TOKENS)
        with mock.patch.object(saving, "logger") as logger:
            for name in ("one", "two"):
                tokens = array.array("I", range(len(name), TOKENS + len(name))).tobytes()
                first.save(SpecMetadata([], [Save(name, TOKENS, tokens, list(range(TOKENS // 16)),
                                                  Identity())], [], 0))
        self.assertEqual(len(logger.warning.call_args_list), 1)
        self.assertEqual(first.counts.counts, {"dropped_saves/reader": 2})


if __name__ == "__main__":
    unittest.main()
