#!/usr/bin/env python3
"""Tests of bench/run quality without models: prompts have the lengths, facts and depths that they
claim and depend on nothing but the seed; measures of known answers; methods at equal bytes."""
import os
import random
import sys
import tempfile
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, os.path.join(ROOT, "bench"))
import accuracy  # noqa: E402
import quality  # noqa: E402
import quality_tasks as tasks  # noqa: E402

FILLER = [f" The {a} and the {b} met near the old mill." for a in tasks.NOUNS for b in tasks.NOUNS]


def words(texts):
    """A token for each word and each line break."""
    return [t.replace("\n", " \\n ").split() for t in texts]


def source():
    return tasks.Source(FILLER, words)


def row(contender, question=0, **more):
    return {"contender": contender, "id": "a", "group": "1024", "question": question, "kl": 0.0,
            "wanted_bytes": 50, "matched": 10, "selected": 5, "by_query": [], "text": "", **more}


class Prompts(unittest.TestCase):
    def test_a_needle_prompt_has_its_length_and_each_fact_at_its_depth(self):
        entry = tasks.needle(source(), random.Random(1), 2048, 0)
        self.assertEqual(len(entry["prefix_ids"]), 2048)
        for depth, query in enumerate(entry["queries"]):
            at = entry["prefix_ids"].index(query["answers"][1] + ".") - 1
            self.assertEqual(entry["prefix_ids"][at], query["answers"][0])
            self.assertAlmostEqual(at / 2048, (2 * depth + 1) / (2 * tasks.DEPTHS), delta=.04)
            opening = query["query_ids"][-3:]
            self.assertEqual(entry["prefix_ids"][at - 3:at], opening)

    def test_a_list_is_inside_the_text_and_its_first_choices_are_right(self):
        entry = tasks.lists(source(), random.Random(2), 0, 6, 3)
        self.assertEqual(len(entry["prefix_ids"]), tasks.PAIRS_TOKENS)
        text = " ".join(map(str, entry["prefix_ids"]))
        for query in entry["queries"]:
            if query["task"] == "pairs":
                name = query["query_ids"][-1]
                self.assertIn(f"{name} {query['answers'][0]}", text)
            else:
                for at in range(0, len(query["choices_ids"]), tasks.CHOICES):
                    group = query["choices_ids"][at:at + tasks.CHOICES]
                    held = [" ".join(choice) in text for choice in group]
                    self.assertEqual(held, [True] + [False] * (tasks.CHOICES - 1))

    def test_prompts_do_not_depend_on_how_many_are_asked_for(self):
        few = tasks.build(source(), [], {1024: 1, 2048: 1, "pairs": 1, "long": 1, "text": 0})
        more = tasks.build(source(), list(range(9000)),
                           {1024: 2, 2048: 1, "pairs": 2, "long": 1, "text": 1})
        by_id = {e["id"]: e for e in more}
        self.assertEqual(len(few), 4)
        for entry in few:
            self.assertEqual(entry, by_id[entry["id"]])
        self.assertIn("text-0", by_id)

    def test_text_near_what_presets_were_tuned_on_is_left_out(self):
        text = "a" * 60000 + "TUNED" + "b" * 60000 + "END"
        kept = tasks.held_out(text, ["TUNED", "absent"])
        self.assertEqual(kept, "a" * 10000 + "\n" + "b" * (60000 - tasks.AWAY + 5) + "END")

    def test_a_text_that_is_too_short_is_refused(self):
        with self.assertRaisesRegex(ValueError, "too short"):
            tasks.running(list(range(100)), 1, "text", 60, 10, 10)
        with self.assertRaisesRegex(ValueError, "too short"):
            tasks.Source(FILLER[:3], words).take(1000)


class Measures(unittest.TestCase):
    def test_rouge_of_known_texts(self):
        self.assertEqual(quality.rouge("The cat sat.", "the cat sat"), (1.0, 1.0))
        self.assertEqual(quality.rouge("sat cat the", "the cat sat"), (1.0, 1 / 3))
        self.assertEqual(quality.rouge("a dog", "the cat"), (0.0, 0.0))
        one, longest = quality.rouge("the cat sat on the mat", "the cat lay on a mat")
        self.assertAlmostEqual(one, 8 / 12)
        self.assertAlmostEqual(longest, 8 / 12)

    def test_an_answer_is_right_if_it_is_the_whole_number(self):
        self.assertTrue(quality.is_right(" 48213.", "48213"))
        self.assertFalse(quality.is_right(" 482130", "48213"))
        self.assertFalse(quality.is_right(" 148213", "48213"))

    def test_a_needle_has_a_word_and_a_number(self):
        query = {"task": "needle", "answers": ["falcon", "48213"]}
        for text, word, right in ((" falcon 48213.", 1.0, 1.0), (" falcon 48214.", 1.0, 0.0),
                                  (" 48213.", 0.0, 0.0)):
            found = quality.measured(row("h2o@.5", text=text), query, row("full"))
            self.assertEqual(found, {"word": word, "right": right})

    def test_several_counts_each_group_of_choices(self):
        scores = [0.0] + [-1.0] * 9 + [-2.0] + [-1.0] * 9 + [-.1] + [-.2] * 9
        query = {"task": "several", "answers": []}
        found = quality.measured(row("h2o@.5", by_query=scores), query, row("full"))
        self.assertAlmostEqual(found["right"], 2 / 3)

    def test_perplexity_is_a_ratio_to_full_kv(self):
        query = {"task": "text", "answers": []}
        other = row("fp8", by_query=[-300.0], tokens=[100])
        found = quality.measured(other, query, row("full", by_query=[-200.0], tokens=[100]))
        self.assertAlmostEqual(quality.perplexity_ratio([found]), accuracy.math.e)


class Tables(unittest.TestCase):
    def lines(self, shares):
        records = [{**row(c, wanted_bytes=share * 10), "task": "needle", "right": 1.0, "word": 1.0}
                   for c, share in shares.items()]
        return quality.lines_of(records, 1)

    def test_a_method_is_at_a_target_only_if_its_bytes_are_near(self):
        shares = {"full": 1.01, "preset:layered": .26, "free64:1.5+1@.02": .14, "fp8": .51}
        lines = self.lines(shares)
        self.assertEqual(quality.nearest(lines, shares, "layered", 1 / 4), "preset:layered")
        self.assertEqual(quality.nearest(lines, shares, "layered", 1 / 8), "free64:1.5+1@.02")
        self.assertIsNone(quality.nearest(lines, shares, "fp8", 1 / 4))

    def test_h2o_is_compared_by_the_bytes_of_its_rows(self):
        lines = self.lines({"full": 1.01, "h2o@.25": .8})
        self.assertEqual(quality.nearest(lines, ["h2o@.25"], "H2O", 1 / 4), "h2o@.25")

    def test_a_floor_that_does_not_hold_fails_the_run(self):
        def asked(layered):
            return [{**row(c), "task": t, "right": r, "id": str(i)} for t in ("needle", "pairs")
                    for c, r in (("full", 1.0), ("preset:layered", layered), ("random@.25", .1))
                    for i in range(4)]
        with unittest.mock.patch.object(accuracy, "judges", True):
            self.assertTrue(quality.floors(asked(.96)))
            self.assertFalse(quality.floors(asked(.94)))

    def test_the_plot_is_drawn_or_said_to_be_skipped(self):
        with tempfile.TemporaryDirectory() as folder:
            with unittest.mock.patch.object(accuracy, "pyplot", return_value=None):
                quality.plot(folder, folder, self.lines({"full": 1.0}))
            self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    unittest.main()
