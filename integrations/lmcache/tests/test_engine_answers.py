#!/usr/bin/env python3
"""vLLM computes tokens with spec_connector below LMCache's server (engine_answers.py).
Needs integrations/lmcache/setup-test and SPEC_CONNECTOR_LIBRARY. No GPU."""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import engine_answers  # noqa: E402
from engine_answers import CHUNK  # noqa: E402

COUNT = 4  # prompts


class EngineAnswers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.prompts, *others = engine_answers.prompts_of(COUNT)
        cls.passes = dict(engine_answers.run(folder, cls.prompts, *others))

    def test_answers_are_those_of_vllm_alone(self):
        self.assertEqual({name: done.different for name, done in self.passes.items()},
                         {name: [] for name in engine_answers.PASSES + engine_answers.BESIDE})

    def test_what_is_loaded_and_stored(self):
        for name, done in self.passes.items():
            self.assertTrue(engine_answers.holds(name, done, self.prompts), (name, done))

    def test_a_cold_engine_fills_the_store(self):
        counts = self.passes["cold"].counts
        self.assertEqual(counts["put_stored"], engine_answers.chunks_of(self.prompts))
        self.assertEqual(counts["get_hits"], 0)

    def test_a_restarted_engine_loads_every_chunk_from_the_store(self):
        done = self.passes["restarted"]
        self.assertEqual(done.external, [2 * CHUNK] * COUNT)
        self.assertEqual(done.counts["get_hits"], 2 * COUNT)
        self.assertEqual(done.counts["put_stored"], 0)

    def test_damaged_values_are_computed_again(self):
        done = self.passes["damaged"]
        self.assertGreater(done.counts["damaged_objects"], 0)
        self.assertGreater(done.counts["get_hits"], 0)
        self.assertLess(sum(done.external), 2 * CHUNK * COUNT)


if __name__ == "__main__":
    unittest.main()
