#!/usr/bin/env python3
"""Tests of the benchmarks' inputs: bench/data is complete, has enough rows and fits the tables of
its README; tools/fetch-eval converts GLUE's archive and refuses anything else; the rows of --figure
15 are asked once each, and what two runs measured apart is put together."""
import argparse
import importlib.machinery
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "tools")]
import accuracy  # noqa: E402
import cache  # noqa: E402
import inputs  # noqa: E402
import make_eval_data  # noqa: E402
import retention  # noqa: E402

FETCH = os.path.join(ROOT, "tools", "fetch-eval")
HEAD = "index\tsentence1\tsentence2\tlabel\n"


def fetch_module():
    loader = importlib.machinery.SourceFileLoader("fetch_eval", FETCH)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("fetch_eval", loader))
    with unittest.mock.patch.object(sys, "dont_write_bytecode", True):
        loader.exec_module(module)
    return module


def session(folder, **more):
    """A session without programs: texts have a token for each word."""
    args = argparse.Namespace(data=None, model=None, resume=True, by="plugin", seconds=None,
                              threads=None, quick=False, questions=None, select_by="query", **more)
    made = unittest.mock.Mock(spec=accuracy.Session, args=args, data=None, work=folder,
                              root=ROOT, build=folder, started=0, connector_sum="0")
    made.eval = lambda name: accuracy.Session.eval(made, name)
    made.tokens = lambda model, texts: [text.split() for text in texts]
    return made


class Shipped(unittest.TestCase):
    def test_every_set_but_rte_is_here_with_200_questions_and_its_examples(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in accuracy.SHOTS:
                if name == "rte":
                    continue
                entries = accuracy.shot_set(session(folder), None, name, 600, 200)
                asked = [q for e in entries for q in e["queries"]]
                self.assertEqual(len(asked), 200, name)
                self.assertTrue(all(0 <= q["label"] < len(q["choices"]) for q in asked), name)
                self.assertGreater(len(entries[0]["prefix"].split()), 500, name)
                self.assertFalse(any(q["query"] in entries[0]["prefix"] for q in asked
                                     if len(q["query"]) > 60), name)

    def test_recall_sets_and_texts_are_here(self):
        for name in ("recall_ids_dev", "recall_text_dev"):
            rows = inputs.read_rows(inputs.find(None, f"eval/{name}.jsonl"))
            self.assertEqual((len(rows), sum(len(r["queries"]) for r in rows)), (48, 384), name)
        for name, least in (("english-6mb.txt", 5_900_000), ("wikitext2.valid.txt", 1_000_000)):
            self.assertGreater(len(inputs.read_text(inputs.find(None, "text/" + name))), least)

    def test_streams_are_here_in_order_of_time(self):
        for name, requests in (("conversation", 12031), ("synthetic", 3993), ("miniswe", 402)):
            rows = list(cache.requests_of(name, None))
            self.assertEqual(len(rows), requests, name)
            self.assertEqual([r[0] for r in rows], sorted(r[0] for r in rows), name)

    def test_readme_names_every_file_and_its_licence(self):
        with open(os.path.join(inputs.HERE, "README.md"), encoding="utf8") as f:
            text = f.read()
        for folder, _, names in os.walk(inputs.HERE):
            for name in names:
                if name != "README.md":
                    self.assertIn(name.removesuffix(".xz").removesuffix(".jsonl"), text, folder)
        for path in re.findall(r"\]\((licences/[^)]+)\)", text):
            self.assertTrue(os.path.isfile(os.path.join(inputs.HERE, path)), path)

    def test_statements_are_true_and_false_and_about_their_sentence(self):
        for name in ("entail_dev", "entail_train"):
            rows = inputs.read_rows(inputs.find(None, f"eval/{name}.jsonl"))
            false = sum(row["label"] for row in rows)
            self.assertTrue(.4 < false / len(rows) < .6, name)
            for row in rows:
                said = row["hypothesis"].rsplit('is "', 1)[1][:-2]
                self.assertTrue(row["label"] or said in row["ctx"], row["id"])


class Find(unittest.TestCase):
    def test_a_folder_of_ones_own_wins_and_lacks_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "eval"))
            own = os.path.join(folder, "eval", "copa_dev.jsonl")
            with open(own, "w", encoding="utf8") as f:
                f.write('{"id": 1}\n')
            self.assertEqual(inputs.find(folder, "eval/copa_dev.jsonl"), own)
            self.assertEqual(inputs.read_rows(own), [{"id": 1}])
            self.assertTrue(inputs.find(folder, "eval/copa_test.jsonl").startswith(inputs.HERE))

    def test_what_is_absent_is_named_with_its_source(self):
        with unittest.mock.patch.object(inputs, "folders", return_value=["/nowhere"]):
            with self.assertRaisesRegex(inputs.Missing, "rte_dev.jsonl is absent; source: .*fetch"):
                inputs.find(None, "eval/rte_dev.jsonl")
            with self.assertRaisesRegex(inputs.Missing, "eval/no.jsonl is absent"):
                inputs.find(None, "eval/no.jsonl")
            made = unittest.mock.Mock(data=None)
            with unittest.mock.patch("builtins.print"):
                self.assertEqual(accuracy.here(made, "rte"), "entail")
            self.assertEqual(accuracy.here(made, "piqa"), "piqa")


class Made(unittest.TestCase):
    def test_a_cut_keeps_the_first_and_the_last_lines(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
            f.write("".join(f"{i}\n" for i in range(10)))
            f.flush()
            self.assertEqual(make_eval_data.part(f.name, 2, 3), b"0\n1\n7\n8\n9\n")
            self.assertEqual(make_eval_data.part(f.name, 0, 1), b"9\n")
            self.assertEqual(len(make_eval_data.part(f.name, None, 0)), 20)

    def test_requests_share_blocks_as_far_as_their_texts_are_equal(self):
        text = "".join(f"{i:04}" for i in range(300))
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "a.jsonl"), "w", encoding="utf8") as f:
                for at, said in ((2000, text[:700] + "x" * 200), (1000, text)):
                    f.write(json.dumps({"timestamp": at, "input": said}) + "\n")
            first, second = make_eval_data.miniswe(folder)
        self.assertEqual((first["timestamp"], first["hash_ids"]), (1, [0, 1, 2, 3]))
        self.assertEqual((second["hash_ids"], second["input_length"]), ([0, 1, 4], 225))


class Fetch(unittest.TestCase):
    def setUp(self):
        self.fetch = fetch_module()

    def test_rows_are_converted(self):
        made = self.fetch.converted(HEAD + '7\tA "man".\tA cat.\tnot_entailment\r\n')
        self.assertEqual(json.loads(made), {"id": 7, "ctx": 'A "man".', "hypothesis": "A cat.",
                                            "choices": ["True", "False"], "label": 1})

    def ended(self, files, *words):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "RTE.zip")
            with zipfile.ZipFile(path, "w") as packed:
                for name, text in files.items():
                    packed.writestr(name, text)
            out = os.path.join(folder, "out")
            done = subprocess.run([sys.executable, FETCH, "--from", path, out, *words],
                                  capture_output=True, text=True, check=False)
            return done.returncode, done.stderr, os.path.exists(out)

    def test_other_rows_than_glues_are_refused_and_nothing_is_written(self):
        good = HEAD + "0\ta\tb\tentailment\n"
        for files, said in (({"RTE/dev.tsv": good, "RTE/train.tsv": good}, "sha256"),
                            ({"RTE/dev.tsv": good}, "not GLUE's RTE.zip"),
                            ({"RTE/dev.tsv": "a\tb\n", "RTE/train.tsv": good}, "columns"),
                            ({"RTE/dev.tsv": HEAD + "0\ta\tb\tmaybe\n", "RTE/train.tsv": good},
                             "line 2 of the table has no label")):
            status, err, wrote = self.ended(files)
            self.assertEqual((status, wrote), (1, False), err)
            self.assertIn(said, err)

    def test_no_archive_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, FETCH, "--from", "/nowhere", folder],
                                  capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr),
                         (1, "fetch-eval: /nowhere: No such file or directory\n"))

    def test_no_network_is_another_status(self):
        with unittest.mock.patch.object(self.fetch.urllib.request, "urlopen",
                                        side_effect=self.fetch.urllib.error.URLError("no name")), \
                unittest.mock.patch("builtins.print"), self.assertRaises(SystemExit) as ended:
            self.fetch.archive(None)
        self.assertEqual(ended.exception.code, self.fetch.NO_NETWORK)


class Figure15(unittest.TestCase):
    """Runs of bench-accuracy are replaced; they answer in the ways they were asked."""

    def setUp(self):
        self.asked = []
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.session = session(folder.name)
        self.entries = [{"id": "copa-0", "group": "copa", "prefix": "p", "queries": [
            {"query": f"q{i}", "choices": ["a", "b"], "label": i % 2} for i in range(4)]}]

    def answer(self, _session, _model, _path, entries, contenders, select_by):
        self.asked.append((select_by, len(contenders)))
        return [{"contender": c, "id": e["id"], "group": e["group"], "question": n,
                 "label": q["label"], "kl": 0 if c == "full" else .5, "top1": 1, "layers": 10,
                 "fallback": 10 * c.startswith("h2o"), "dense": 0, "selected": 5, "matched": 20,
                 "union": 5, "wanted_bytes": 30, "read_bytes": 40, "tokens": [1, 1],
                 **{"by_" + way: [1, 0] if c.startswith("random") else [1 - n % 2, n % 2]
                    for way in accuracy.ways_of(select_by)}}
                for e in entries for c in contenders for n, q in enumerate(e["queries"])]

    def rows(self, select_by):
        with unittest.mock.patch.object(accuracy, "run_piece", self.answer), \
                unittest.mock.patch("builtins.print"):
            return accuracy.run_set(self.session, "m", "copa", self.entries, retention.CONTENDERS,
                                    select_by)

    def test_ways_measured_one_after_the_other_are_put_together(self):
        self.rows("query")
        self.rows("choice")
        rows = self.rows("both")
        self.assertEqual(self.asked, [("query", 13), ("choice", 13)])
        self.assertEqual(len(rows), 4 * 13)
        self.assertTrue(all({"by_query", "by_choice", "kl"} <= set(row) for row in rows))

    def test_a_line_has_accuracy_loss_and_fallback(self):
        rows = accuracy.enrich(self.rows("query"), self.entries, ("query",), False)
        line = retention.line_of("m, copa", "random@0.1", rows, 1, ("query",))
        self.assertEqual((line["accuracy_query"][0], line["points_query"][0]), (.5, -50))
        self.assertEqual(line["fallback"], (0, 0, 0))
        line = retention.line_of("m, copa", "h2o@0.1", rows, 1, ("query",))
        self.assertEqual((line["accuracy_query"][0], line["points_query"], line["fallback"][0]),
                         (1, (0, 0, 0), 1))

    def test_every_set_is_asked_200_questions_at_least(self):
        with unittest.mock.patch.object(accuracy, "shape_of",
                                        return_value={"positions": 8192}):
            for name in set(retention.SETS) - {"rte"}:
                entries = retention.entries_of(self.session, name, "m", retention.QUESTIONS)
                count = sum(len(e["queries"]) for e in entries)
                self.assertTrue(200 <= count <= 260, (name, count))

    def test_four_points_of_three_contenders_beside_the_whole_prefix(self):
        self.assertEqual(len(set(retention.CONTENDERS)), 13)
        self.assertEqual(retention.CONTENDERS[0], "full")


if __name__ == "__main__":
    unittest.main()
