#!/usr/bin/env python3
"""Tests of tools/demo.py: the generated text, and that what it says comes from the numbers.

The results below have the form of spec-engine's --json; the numbers are of a run on two cores.
"""
import copy
import json
import os
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import demo  # noqa: E402


def vocab():
    with open(os.path.join(ROOT, "models", "opt-recall", "vocab.json"), encoding="utf-8") as file:
        return json.load(file)


def request(matched, new, ttft_ns, text, token, **more):
    """One entry of spec-engine's requests."""
    entry = {"matched_tokens": matched, "new_tokens": new, "ttft_ns": ttft_ns, "lookup_ns": 0,
             "probe_ns": 0, "io_exposed_ns": 0, "compute_ns": ttft_ns, "bytes_wanted": 0,
             "bytes_read": 0, "io_ops": 0, "tier_hits": {}, "token": token, "tokens": [token],
             "text": text, "layers_loaded": 4, "fallback_layers": 0, "dense_layers": 0,
             "rows_matched": 4 * matched, "rows_selected": 4 * matched}
    entry.update(more)
    return entry


def runs():
    read = {"lookup_ns": 40000, "io_exposed_ns": 3000000, "compute_ns": 4960000,
            "bytes_wanted": 7782400, "bytes_read": 7864320, "io_ops": 120}
    recomputed = [request(0, 1902, 80000000, "stone", 282),
                  request(0, 1902, 84000000, "health", 276)]
    first = [request(0, 1902, 90000000, "stone", 282),
             request(1900, 2, 9000000, "health", 276, **read)]
    second = [request(1900, 2, 8000000, "stone", 282, **read),
              request(1900, 2, 8400000, "health", 276, **read)]
    return recomputed, first, second


def task():
    return demo.Task("m", "f32", 1, ["--prefix", "p"], ["--query", "? Miss", "? Lily"],
                     [("? Miss", "stone"), ("? Lily", "fair")], "about", 1024)


class RecallText(unittest.TestCase):
    def test_the_prefix_has_the_tokens_that_are_promised(self):
        words, asked = demo.recall_text(vocab())
        self.assertEqual(len(words) + 1, 1900)  # and the start token
        self.assertEqual(len(asked), 8)
        self.assertTrue(all(word in vocab() for word in words))

    def test_every_fact_asked_stands_in_the_text_once_with_its_value_behind(self):
        words, asked = demo.recall_text(vocab())
        for key, value in asked:
            self.assertEqual(words.count(key), 1)
            self.assertEqual(words[words.index(key) + 1], value)
            self.assertEqual(words.count(value), 1)

    def test_questions_reach_from_the_start_to_the_end(self):
        words, asked = demo.recall_text(vocab())
        places = [words.index(key) for key, _ in asked]
        self.assertEqual(places, sorted(places))
        self.assertLess(places[0], 400)
        self.assertGreater(places[-1], 1500)

    def test_a_seed_gives_one_text_and_another_another(self):
        self.assertEqual(demo.recall_text(vocab(), seed=3), demo.recall_text(vocab(), seed=3))
        self.assertNotEqual(demo.recall_text(vocab(), seed=3), demo.recall_text(vocab(), seed=4))


class Seen(unittest.TestCase):
    def test_four_lines_come_from_the_numbers(self):
        lines = demo.seen(task(), *runs(), 8000000)
        self.assertEqual(len(lines), 4)
        self.assertIn("matched 0 tokens of question 1 and computed 1,902", lines[0])
        self.assertIn("took 8.0 MB", lines[0])
        self.assertIn("matched 1,900 of question 1's 1,902 tokens and computed 2", lines[1])
        self.assertIn("7.9 MB in 120 reads", lines[1])
        self.assertIn("82.00 ms recomputed, 8.20 ms from disk, 10.0 x less; 3.00 ms", lines[2])
        self.assertIn("2 of 2 are token for token as recomputed; 1 of 2 are right recomputed, 1",
                      lines[3])

    def test_a_slower_second_run_is_told_as_it_is(self):
        recomputed, first, second = runs()
        for entry in second:
            entry["ttft_ns"] *= 20
        self.assertIn("0.5 x less", demo.seen(task(), recomputed, first, second, 1)[2])

    def test_the_tables_show_every_question_and_part(self):
        recomputed, first, second = runs()
        lines = demo.table(demo.question_rows(task(), (("recomputed", recomputed),
                                                       ("first run", first),
                                                       ("second run", second)), 14), (0, 1))
        self.assertEqual(len(lines), 3)
        for word in ("? Miss", "stone", "80.00 ms", "90.00 ms", "8.00 ms"):
            self.assertIn(word, lines[1])
        text = "\n".join(demo.table(demo.part_rows(recomputed, first, second), (0,)))
        for word in ("waiting for the disk", "3.00 ms", "1,902", "7.9 MB", "120"):
            self.assertIn(word, text)

    def test_long_answers_are_shown_in_blocks_and_judged(self):
        recomputed, first, second = runs()
        lines = demo.question_blocks(task(), (("recomputed", recomputed), ("second run", second)))
        self.assertEqual(len(lines), 6)
        self.assertRegex(lines[1], r"recomputed +80\.00 ms  right  stone")
        self.assertRegex(lines[5], r"second run +8\.40 ms  wrong  health")

    def test_answers_are_shown_in_one_line(self):
        self.assertEqual(demo.short(" a\n b<|im_end|>", 10), "a b")
        self.assertEqual(demo.short("abcdefghijkl", 10), "abcdefg...")


class Selective(unittest.TestCase):
    def selective(self):
        second = runs()[2]
        for entry in second:
            entry.update(rows_selected=1900, bytes_read=6000000, fallback_layers=1)
        return second

    def test_three_lines_come_from_the_numbers(self):
        recomputed, _, second = runs()
        lines = demo.seen_selective(task(), recomputed, second, self.selective())
        self.assertEqual(len(lines), 3)
        self.assertIn("delivered 25 % of the rows. Of 8 layers, 6 had one set", lines[0])
        self.assertIn("in 2 the probe heads disagreed", lines[0])
        self.assertIn("read 6.0 MB a question, 0.76 of the second run's 7.9 MB", lines[1])
        self.assertIn("1024 bytes, 4 to a page", lines[1])
        self.assertIn("2 of 2 are token for token as recomputed, 1 are right", lines[2])

    def test_a_run_that_chose_nothing_fails(self):
        demo.judge_selective(self.selective())
        with self.assertRaises(demo.DemoError) as caught:
            demo.judge_selective(runs()[2])
        self.assertIn("question 1: the selective run delivered 7600 of 7600", str(caught.exception))

    def test_the_replay_table_is_per_request(self):
        facts = {"requests": 2, "read_bytes": 4000000, "ops": 20, "rows": 4096}
        rows = demo.replay_rows([("impress-itf+range", facts, 8000000)])
        self.assertEqual(rows[1], ["impress-itf+range", "8.00 ms", "2.0 MB", "10", "2,048"])


class Layered(unittest.TestCase):
    def layered(self):
        layered = runs()[2]
        for entry in layered:
            entry.update(bytes_wanted=2200000, bytes_read=3932160)
        layered[1].update(tokens=[7], text="other")
        return layered

    def test_two_lines_come_from_the_numbers(self):
        recomputed, _, second = runs()
        lines = demo.seen_layered(task(), recomputed, second, self.layered())
        self.assertEqual(len(lines), 2)
        self.assertIn("wanted 2.2 MB, 0.28 of the second run's 7.8 MB", lines[0])
        self.assertIn("read 3.9 MB in whole pages, 0.50 of its 7.9 MB", lines[0])
        self.assertIn("1 of 2 are token for token as recomputed, 1 are right", lines[1])

    def test_a_run_that_left_rows_out_fails(self):
        demo.judge_layered(self.layered())
        layered = self.layered()
        layered[1].update(rows_selected=1900)
        with self.assertRaises(demo.DemoError) as caught:
            demo.judge_layered(layered)
        self.assertIn("question 2: the layered run delivered 1900 of 7600", str(caught.exception))


class Judge(unittest.TestCase):
    def fails(self, change, word):
        recomputed, first, second = copy.deepcopy(runs())
        change(recomputed, first, second)
        with self.assertRaises(demo.DemoError) as caught:
            demo.judge(recomputed, first, second)
        self.assertIn(word, str(caught.exception))

    def test_good_runs_pass(self):
        demo.judge(*runs())

    def test_a_match_in_an_empty_store_fails(self):
        self.fails(lambda _, first, __: first[0].update(matched_tokens=64), "empty store")

    def test_a_second_run_that_reuses_nothing_fails(self):
        self.fails(lambda _, __, second: second[1].update(matched_tokens=0), "question 2")

    def test_another_token_fails_in_either_run(self):
        self.fails(lambda _, first, __: first[1].update(tokens=[7]), "question 2")
        self.fails(lambda _, __, second: second[0].update(tokens=[7]), "question 1")


class Commands(unittest.TestCase):
    def test_the_connector_is_given_with_its_configuration(self):
        command = task().command("out.json", demo.SELECTIVE)
        self.assertEqual(json.loads(command[command.index("--config") + 1]),
                         {"path": demo.STORE, "preset": "impress-itf+range",
                          "load_policy": "load", "host_bytes": 0, "store": {"pruned": "no"}})
        command = task().command("out.json", demo.LAYERED, demo.HINT)
        self.assertEqual(command[command.index("--hint") + 1], "after")
        self.assertNotIn("--connector", task().command("out.json", None))

    def test_an_unknown_argument_is_refused(self):
        self.assertEqual(demo.main(["demo.py", "gpt"]), 2)


if __name__ == "__main__":
    unittest.main()
