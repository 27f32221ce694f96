#!/usr/bin/env python3
"""What the connector does to an engine and its store: whose attention it extends, what it says to
vLLM that it supports, and which role it has beside other engines.

SPEC_CONNECTOR_LIBRARY names the plugin. Without vLLM its classes are stand-ins (fakes.py)."""
import os
import sys
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
from spec_connector.vllm import SpecConnector, backend, served, worker  # noqa: E402
from spec_connector.vllm.stats import Counts  # noqa: E402

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


if __name__ == "__main__":
    unittest.main()
