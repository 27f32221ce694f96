#!/usr/bin/env python3
"""What configurations say of the turn of keys, after those of published models, and that the plugin
knows what it is given. SPEC_CONNECTOR_LIBRARY names the plugin."""
import os
import sys
import tempfile
import unittest
from types import SimpleNamespace

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from spec_connector import Connector, Model, Rope, abi, rope  # noqa: E402

SIZE = 64
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}
VALUES = (8.0, 1.0, 4.0, 8192.0)


def of(size=SIZE, **config):
    config.setdefault("model_type", "llama")
    return rope.of(SimpleNamespace(**config), size)


class Said(unittest.TestCase):
    """What spec_model has words for."""

    def test_plain(self):
        plain = Rope(abi.ROPE_HALF, 1e4)
        self.assertEqual(of(rope_theta=10000), plain)
        self.assertEqual(of(rope_theta=1e4, rope_scaling=None), plain)
        self.assertEqual(of(rope_theta=1e4, rope_scaling={"type": "default"}), plain)
        self.assertEqual(of(rope_parameters={"rope_theta": 1e4, "rope_type": "default"}), plain)
        self.assertEqual(of(rope_parameters={"rope_type": "default"}, rope_theta=1e4), plain)
        self.assertEqual(of(rotary_emb_base=1e4, model_type="qwen"), plain)

    def test_llama3(self):
        scaled = Rope(abi.ROPE_HALF, 5e5, "llama3", VALUES)
        self.assertEqual(of(rope_theta=5e5, rope_scaling={"rope_type": "llama3", **LLAMA3}), scaled)
        self.assertEqual(of(rope_theta=5e5, rope_scaling={"type": "llama3", **LLAMA3}), scaled)
        self.assertEqual(of(rope_parameters={"rope_theta": 5e5, "rope_type": "llama3", **LLAMA3}),
                         scaled)

    def test_pairs_side_by_side(self):
        for model_type in ("cohere", "ernie4_5", "gptj"):
            self.assertEqual(of(rope_theta=1e4, model_type=model_type),
                             Rope(abi.ROPE_INTERLEAVED, 1e4))

    def test_the_whole_of_a_head(self):
        for words in ({"partial_rotary_factor": 1.0}, {"rotary_pct": 1}, {"rotary_dim": SIZE},
                      {"rotary_dim": None}):
            self.assertEqual(of(rope_theta=1e4, **words), Rope(abi.ROPE_HALF, 1e4))

    def test_layers_that_are_alike(self):
        kind = {"rope_theta": 1e4, "rope_type": "default"}
        self.assertEqual(of(rope_parameters={"full_attention": kind, "sliding_attention": kind}),
                         Rope(abi.ROPE_HALF, 1e4))
        self.assertEqual(of(rope_theta=1e4, no_rope_layers=[1, 1]), Rope(abi.ROPE_HALF, 1e4))


class NotSaid(unittest.TestCase):
    """None, and why."""

    def none(self, why, size=SIZE, **config):
        with self.subTest(**config):
            found = of(size, **config)
            self.assertEqual(found, Rope(why=found.why))
            self.assertIn(why, found.why)

    def test_no_turn(self):
        self.none("no rope_theta", model_type="opt")
        self.none("no rope_theta", rope_parameters={})
        for theta in ("10000", True, 0, .5, float("nan"), float("inf"), None):
            self.none("no rope_theta", rope_theta=theta)

    def test_a_part_of_a_head(self):
        self.none("32 of a head's 64", rope_theta=1e4, partial_rotary_factor=.5)
        self.none("16 of a head's 64", rope_theta=1e4, rotary_pct=.25)
        self.none("16 of a head's 64", rotary_emb_base=1e4, rotary_pct=.25, model_type="gpt_neox")
        self.none("48 of a head's 64", rope_parameters={"rope_theta": 1e4,
                                                        "partial_rotary_factor": .75})
        self.none("24 of a head's 64", rope_theta=1e4, rotary_dim=24, model_type="gptj")
        self.none("of a head's 63", 63, rope_theta=1e4)

    def test_other_scalings(self):
        for kind in ("linear", "dynamic", "yarn", "longrope", "ntk", "deepseek_yarn", "su"):
            for name in ("type", "rope_type"):
                self.none(kind, rope_theta=1e4, rope_scaling={name: kind, "factor": 4.0})
            self.none(kind, rope_parameters={"rope_theta": 1e4, "rope_type": kind, "factor": 4.0})

    def test_llama3_that_is_none(self):
        for name in LLAMA3:
            words = {"rope_type": "llama3", **LLAMA3}
            del words[name]
            self.none("missing", rope_theta=5e5, rope_scaling=words)
        for name, value in (("factor", .5), ("low_freq_factor", 4.0), ("low_freq_factor", 0),
                            ("original_max_position_embeddings", 0), ("factor", "8")):
            self.none("llama3", rope_theta=5e5,
                      rope_scaling={"rope_type": "llama3", **LLAMA3, name: value})

    def test_several_positions(self):
        for words in ({"type": "mrope"}, {"type": "default", "mrope_section": [16, 24, 24]},
                      {"rope_type": "xdrope", "alpha": 1.0, "xdrope_section": [8, 8, 8, 8]}):
            self.none("several positions", rope_theta=1e6, rope_scaling=words)
        self.none("Fourier", rope_theta=1e4, rope_scaling={"type": "default", "use_fope": True})

    def test_layers_that_differ(self):
        self.none("several parameters", rope_parameters={
            "full_attention": {"rope_theta": 1e6, "rope_type": "default"},
            "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}})
        self.none("several parameters", rope_parameters={"rope_theta": 1e4, "full": {"factor": 1}})
        self.none("several bases", rope_theta=1e6, rope_local_base_freq=1e4)
        self.none("some layers", rope_theta=1e6, no_rope_layers=[1, 1, 1, 0])
        self.none("some layers", rope_theta=1e6, no_rope_layer_interval=4)
        self.none("some layers", rope_theta=1e6, model_type="cohere2")
        self.none("in a chunk", rope_theta=1e6, dual_chunk_attention_config={"chunk_size": 8})


class Line(unittest.TestCase):
    def test_where_it_matters(self):
        free, why = {"layered": {"bit_allocation": "per_channel"}}, Rope(why="scaling 'yarn'")
        self.assertIn("scaling 'yarn'", rope.line(free, why))
        self.assertIsNone(rope.line(free, of(rope_theta=1e4)))
        for settings in ({}, {"layered": {"bit_allocation": "uniform"}}, {"layered": {}},
                         {"layered": 3}):
            self.assertIsNone(rope.line(settings, why))


class Plugin(unittest.TestCase):
    """It turns back what `of` gives, and says so of what it cannot."""

    def lines(self, turn):
        lines = []
        with tempfile.TemporaryDirectory() as folder:
            config = {"path": os.path.join(folder, "store"), "disk_bytes": "64MiB",
                      "segment_bytes": "1MiB", "preset": "layered",
                      "layered": {"bit_allocation": "per_channel"}}
            with Connector(config, Model(2, 2, 4, SIZE, abi.DTYPE_F16, b"test", turn),
                           log=lambda level, form, *words: lines.append(form % words),
                           log_level=abi.LOG_DEBUG):
                pass
        return [line for line in lines if "rope_scaling_kind" in line]

    def test_known(self):
        for turn in (of(rope_theta=1e4), of(model_type="opt"),
                     of(rope_theta=5e5, rope_scaling={"rope_type": "llama3", **LLAMA3}),
                     of(rope_theta=1e4, model_type="cohere")):
            self.assertEqual(self.lines(turn), [])
        self.assertIn("yarn", self.lines(Rope(abi.ROPE_HALF, 1e4, "yarn", (4.0,)))[0])
        self.assertIn("llama3", self.lines(Rope(abi.ROPE_HALF, 1e4, "llama3", (8.0,)))[0])

    def test_members(self):
        model, keep = Model(2, 2, 4, SIZE, abi.DTYPE_F16, b"test", of(
            rope_theta=5e5, rope_scaling={"rope_type": "llama3", **LLAMA3})).to_abi()
        self.assertEqual((model.rope_kind, model.rope_theta, model.rope_scaling_kind,
                          tuple(model.rope_scaling)),
                         (abi.ROPE_HALF, 5e5, b"llama3", (*VALUES, 0, 0, 0, 0)))
        self.assertIsNone(Model(2, 2, 4, SIZE, abi.DTYPE_F16, b"").to_abi()[0].rope_scaling_kind)
        del keep


if __name__ == "__main__":
    unittest.main()
