#!/usr/bin/env python3
"""Tests of bench/run's own code and of quick_bench.py: a benchmark that breaks, prints no table or
a wrong figure fails, one that is slow does not; fio_job takes what bench-ttft says."""
import argparse
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path[:0] = [HERE, os.path.join(ROOT, "bench")]
import impress  # noqa: E402
import quick_bench  # noqa: E402
import reproduce  # noqa: E402

TRACEBACK = "Traceback (most recent call last):\n  File \"bench/run\", line 1\nKeyError: 'fio'\n"
GOOD = """AMD EPYC, 2 cores, Linux 6.18, commit 1234567

10,000 chunks, 10,159 records, 4.0 MiB of log, cold
contender    rounds  median ms       min       max           rate
killed            3      13.06     10.91     15.51
clean             3      11.14     10.82     16.90
pass              3       7.78      6.93      8.99
open after kill -9 of 10,000 chunks / one pass: 1.679 (floor <= 2.0, aim 1.2): not judged

100,000 chunks, 101,565 records, 39.7 MiB of log, cold
contender    rounds  median ms       min       max           rate
killed            3      89.37     61.70    162.03
clean             3      69.15     59.19     72.68
pass              3      40.72     30.39     54.53
open after kill -9 of 100,000 chunks / one pass: 9.195 (floor <= 2.0, aim 1.2): not judged
quick: so little of it says that the benchmark runs; its figures are no verdict
"""
RAW = {"result": {"10000": {"series": {"killed": {"name": "killed", "work": 1, "ns": [13, 12]},
                                       "pass": {"name": "pass", "work": 1, "ns": [7, 8]}}}}}


def run_module():
    loader = importlib.machinery.SourceFileLoader("bench_run", os.path.join(ROOT, "bench", "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_run", loader))
    with unittest.mock.patch.object(sys, "dont_write_bytecode", True):
        loader.exec_module(module)
    return module


def faults(status=0, out=GOOD, err="", result=RAW):
    return quick_bench.faults("recovery", status, out, err, result)


class Judged(unittest.TestCase):
    def test_a_run_that_works_passes_even_where_a_floor_does_not_hold(self):
        self.assertEqual(faults(), [])

    def test_a_traceback_fails_whatever_the_status(self):
        self.assertIn("a traceback", faults(err=TRACEBACK))

    def test_a_status_fails(self):
        self.assertEqual(len(faults(status=1)), 1)

    def test_a_missing_row_fails(self):
        without = GOOD.replace("clean             3      69.15     59.19     72.68\n", "")
        self.assertEqual(len(faults(out=without)), 1)

    def test_a_row_without_figures_fails(self):
        self.assertEqual(len(faults(out=GOOD.replace("      69.15     59.19     72.68", ""))), 1)

    def test_no_rounds_fail(self):
        self.assertEqual(len(faults(out=GOOD.replace("clean             3      69", "clean"
                                                     "             0      69"))), 1)

    def test_an_empty_table_fails(self):
        self.assertGreater(len(faults(out="quick: no verdict\n")), 3)

    def test_figures_that_are_none_fail(self):
        for word in ("nan", "inf", "-inf"):
            self.assertTrue(faults(out=GOOD.replace("9.195", word)), word)

    def test_a_floor_that_is_missing_fails(self):
        self.assertEqual(len(faults(out=GOOD.replace("(floor <= 2.0, aim 1.2)", "", 1))), 1)

    def test_no_samples_or_samples_of_no_time_fail(self):
        for ns in ([], [7, 0]):
            series = {"pass": {"name": "pass", "work": 1, "ns": ns}}
            self.assertEqual(len(faults(result={"result": {"1": {"series": series}}})), 1)
        self.assertEqual(len(faults(result=None)), 1)

    def test_one_sample_of_a_cpu_clock_may_be_0_not_the_most_of_them(self):
        for samples, count in (([5, 0, 6], 0), ([5, 0, 0], 1), ([], 1), ([-1, 5, 6], 1)):
            with self.subTest(samples=samples):
                series = {"name": "cpu 50000 idle", "work": 1, "ns": samples}
                self.assertEqual(len(faults(result={"result": {"lookup": series}})), count)

    def test_every_benchmark_is_judged(self):
        with open(os.path.join(ROOT, "bench", "run"), encoding="utf-8") as file:
            text = file.read()
        names = text[text.index('"name", choices=[') + len('"name", '):]
        names = set(json.loads(names[len("choices="):names.index("]") + 1]))
        self.assertEqual(names, {*quick_bench.LINES, "reproduce"})  # which runs the others


class Run(unittest.TestCase):
    def setUp(self):
        self.run = run_module()

    def test_a_program_that_dies_is_told_with_its_words_and_no_traceback(self):
        with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()):
            self.run.read_series(["/bin/sh", "-c", "echo a loaded row is wrong >&2; exit 3"])
        self.assertIn("a loaded row is wrong", str(ended.exception.code))

    def test_floors_are_judged_but_with_quick(self):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertFalse(self.run.verdict("a", 0.5, 0.7))
            self.assertTrue(self.run.verdict("a", 0.5, 0.7, at_most=True))
            self.run.options.quick = True
            self.assertTrue(self.run.verdict("a", 0.5, 0.7))
        self.assertEqual([line.rsplit(": ", 1)[1] for line in out.getvalue().splitlines()],
                         ["DOES NOT HOLD", "holds", "not judged"])

    def ended(self, *words):
        """What bench/run prints and ends with where PATH is empty."""
        with tempfile.TemporaryDirectory() as empty:
            done = subprocess.run([sys.executable, os.path.join(ROOT, "bench", "run"), *words],
                                  capture_output=True, text=True, check=False,
                                  env={**os.environ, "PATH": empty})
        return done.returncode, done.stdout, done.stderr

    def test_without_fio_it_says_so(self):
        for name in self.run.NEEDS_FIO:
            status, out, err = self.ended(name, "--quick", "--built", "/nowhere")
            self.assertEqual((status, err), (77, ""))
            self.assertRegex(out, "^skipped: fio is absent")

    def test_without_a_program_in_the_named_build_it_says_so(self):
        with tempfile.TemporaryDirectory() as empty:
            for name in ("lookup", "kernels", "recovery"):
                status, _, err = self.ended(name, "--quick", "--built", empty)
                lines = [line for line in err.splitlines() if not line.startswith("running ")]
                self.assertEqual((status, len(lines)), (1, 1), err)
                self.assertRegex(lines[0], f"^bench: {empty}/bin/bench-{name}: no such file, "
                                 "expected in --built DIR$")

    def test_without_io_uring_it_says_so(self):
        for name in self.run.NEEDS_RING:
            args = argparse.Namespace(name=name, quick=True, built=None, device="real", data=None)
            with unittest.mock.patch.object(self.run, "has_io_uring", return_value=False), \
                    unittest.mock.patch.object(self.run.shutil, "which", return_value="fio"), \
                    contextlib.redirect_stdout(io.StringIO()) as out, \
                    self.assertRaises(SystemExit) as ended:
                self.run.prepare(args)
            self.assertEqual(ended.exception.code, 77)
            self.assertRegex(out.getvalue(), "^skipped: no io_uring")

    def test_a_folder_of_inputs_that_does_not_exist_is_an_error(self):
        status, _, err = self.ended("accuracy", "--quick", "--built", "/nowhere", "--data",
                                    "/nowhere")
        self.assertEqual((status, err), (1, "bench: --data /nowhere: no such folder\n"))


class Fio(unittest.TestCase):
    """fio_job.py beside a fio that only says what it was asked and how long it took."""

    def job(self, *words):
        """(what fio read on its input, what fio_job printed) over a file of 4 MiB."""
        with tempfile.TemporaryDirectory() as folder:
            asked, file = os.path.join(folder, "asked"), os.path.join(folder, "seg-00000000")
            with open(file, "wb") as f:
                f.truncate(4 << 20)
            with open(os.path.join(folder, "fio"), "w", encoding="utf-8") as f:
                f.write("#!/bin/sh\ncat > " + asked + "\necho '" + json.dumps({"jobs": [
                    {"read": {"io_bytes": 8 * (4 << 20), "runtime": 16}}]}) + "'\n")
            os.chmod(os.path.join(folder, "fio"), 0o755)
            done = subprocess.run([sys.executable, os.path.join(ROOT, "bench", "fio_job.py"),
                                   *(file if w == "FILE" else w for w in words)],
                                  capture_output=True, text=True, check=False,
                                  env={**os.environ, "PATH": folder + ":" + os.environ["PATH"]})
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            with open(asked, encoding="utf-8") as f:
                return f.read(), done.stdout

    def test_what_ttft_says_is_taken(self):
        asked, said = self.job("--engine", "psync", "--threads", "2", "--loops", "8", "FILE",
                               "--bytes", str(4 << 20), "--op-bytes", str(512 << 10))
        self.assertEqual(said, "fio_ns 2000000\n")  # 16 ms for 8 passes
        self.assertIn("ioengine=psync", asked)
        self.assertIn("bs=524288", asked)
        self.assertEqual(asked.count("loops=8"), 2)
        self.assertEqual(asked.count("size=2097152"), 2)  # a half each of two threads

    def test_ttft_names_it_and_its_options(self):
        run = run_module()
        with tempfile.TemporaryDirectory() as run.BUILD, \
                unittest.mock.patch.object(run, "read_series", side_effect=StopIteration) as read, \
                self.assertRaises(StopIteration):
            # a directory of its own: a benchmark that runs beside this test keeps its store
            run.ttft_one("x", "model", "prefix", "query", [], 1, 4.0)
        command = read.call_args[0][0]
        words = command[command.index("--fio") + 1].split()
        self.assertEqual(os.path.basename(words[1]), "fio_job.py")
        file = [w for w in words if os.path.basename(w).startswith("seg-")]
        words = ["FILE" if w in file else w for w in words[2:]]
        with open(os.path.join(ROOT, "bench", "bench_ttft.c"), encoding="utf-8") as f:
            self.assertIn("%s --bytes %\" PRIu64 \" --op-bytes %", f.read())
        self.job(*words, "--bytes", str(4 << 20), "--op-bytes", str(512 << 10))


class Reproduce(unittest.TestCase):
    """What becomes of raw results."""

    def test_a_series_is_a_line_with_an_interval_around_its_mean(self):
        row, = reproduce.lines_of({"a": {"load": {"name": "load", "work": 1, "ns": [1, 2, 3, 6]}}})
        self.assertEqual((row["of"], row["figure"], row["n"], row["mean"]),
                         ("a / load", "ns", 4, 3))
        self.assertTrue(1 <= row["low"] < 3 < row["high"] <= 6, row)

    def test_a_count_has_no_width(self):
        rows = list(reproduce.lines_of({"counts": {"name": "lru", "missed": 7, "ok": True}}))
        self.assertEqual(rows, [{"of": "counts", "figure": "missed", "n": 1, "mean": 7, "low": 7,
                                 "high": 7}])

    def test_rows_are_averaged_by_share_and_drawn_by_prefix(self):
        rows = [{"id": "a", "layer": 0, "rho": .25, "heads": .2},
                {"id": "a", "layer": 1, "rho": .25, "heads": .4},
                {"id": "b", "layer": 0, "rho": .25, "heads": .9},
                {"id": "a", "layer": 0, "rho": .5, "heads": .7}]
        lines = list(reproduce.lines_of({"smollm2": rows}))
        quarter, half = (row for row in lines if ", layer " not in row["of"])
        layers = [row for row in lines if row not in (quarter, half)]
        self.assertEqual([(row["of"], row["n"]) for row in layers],
                         [("smollm2, rho 0.25, layer 0", 2), ("smollm2, rho 0.25, layer 1", 1)])
        self.assertEqual((quarter["of"], quarter["figure"], quarter["n"]),
                         ("smollm2, rho 0.25", "heads", 3))
        self.assertAlmostEqual(quarter["mean"], .5)
        self.assertAlmostEqual(quarter["low"], .3)  # prefix a alone, both of its layers
        self.assertAlmostEqual(quarter["high"], .9)
        self.assertEqual((half["low"], half["high"]), (.7, .7))

    def test_chunks_are_told_by_the_prefixes_that_hold_them(self):
        rows = [{"id": "a", "rho": .5, "chunks": [32, 64]}, {"id": "b", "rho": .5, "chunks": [64]}]
        lines = {row["of"]: row for row in reproduce.lines_of({"chunks": rows})}
        self.assertEqual(lines["chunks, rho 0.5, held by 1"]["mean"], 1)
        self.assertEqual(lines["chunks, rho 0.5, held by 2"]["mean"], .75)

    def test_deciles_of_rankings_leave_layer_0_out(self):
        rows = [{"id": "a", "layer": layer, "rho": .25, "deciles": {"layer": [value] * 10}}
                for layer, value in ((0, .1), (1, .4), (2, .6))]
        lines = [row for row in reproduce.lines_of({"s": {"rankings": rows}})
                 if ", decile " in row["of"]]
        self.assertEqual(len(lines), 10)
        self.assertEqual((lines[9]["of"], lines[9]["figure"], lines[9]["mean"]),
                         ("s / rankings, rho 0.25, decile 10", "layer", .5))

    def test_series_beside_counts_are_told_too(self):
        rows = [{"ttft": {"name": "ttft", "work": 1, "ns": [2, 4]}}, {"requests": 2}]
        lines = {(row["of"], row["figure"]): row["mean"] for row in reproduce.lines_of({"x": rows})}
        self.assertEqual(lines, {("x / ttft", "ns"): 3, ("x", "requests"): 2})

    def test_every_table_is_a_benchmark(self):
        self.assertLessEqual({name.split("-")[0] for name in reproduce.TABLES},
                             set(quick_bench.LINES))


class Impress(unittest.TestCase):
    def test_lengths_are_the_papers(self):
        drawn = impress.lengths(200, 2000, 10000)
        self.assertTrue(2000 <= min(drawn) < 2100 and 9900 < max(drawn) <= 10000)
        self.assertTrue(4800 <= sum(drawn) / 200 <= 5700)
        self.assertEqual(drawn[:6], impress.lengths(6, 2000, 10000))

    def test_ratios_draw_both_together(self):
        a, b = [200, 20, 2], [100, 10, 1]
        self.assertEqual(impress.ratio_interval(a, b), (2, 2, 2))
        mean, low, high = impress.mean_interval(b)
        self.assertEqual(mean, 37)
        self.assertTrue(1 <= low < 37 < high <= 100)

    def test_what_is_refused_is_told_and_passed_over(self):
        cell = impress.Cell("18", "x", "opt-6.7b", "rte", ("impress-itf", "impress"), [2000], 8, 4)
        dumps = unittest.mock.Mock(**{"of.return_value": ("DUMP", 1)})
        count = {"requests": 4, "layers": 32, "found": 9, "sure": 9}
        counts = {"impress-itf": count, "impress": {"name": "impress", "refused": "no such"}}
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            cell.run("BUILD", dumps, lambda words, more: ({}, {}, counts))
        self.assertEqual(out.getvalue(), "skipped: impress: no such\n")
        self.assertEqual(list(cell.counts), ["impress-itf"])

    def test_a_choice_that_is_not_the_dumps_is_no_result(self):
        cell = impress.Cell("18", "x", "opt-6.7b", "rte", ("impress-itf",), [2000], 8, 4)
        dumps = unittest.mock.Mock(**{"of.return_value": ("DUMP", 1)})
        counts = {"impress-itf": {"requests": 4, "found": 8, "sure": 9}}
        with self.assertRaises(SystemExit):
            cell.run("BUILD", dumps, lambda words, more: ({}, {}, counts))

    def with_counts(self, **more):
        """A cell with two presets, of which impress-itf read 5 GB in each of two requests."""
        cell = impress.Cell("16", "x", "opt-6.7b", "rte", ("impress-itf",), [2000], 8, 2)
        count = {"requests": 2, "read_bytes": 2 * 5_000_000_000 // 8, "ops": 10, "wait_ns": 10}
        cell.counts = {"as-h2o-lfu": {**count, "read_bytes": 0}, "impress-itf": {**count, **more}}
        cell.series = {"as-h2o-lfu": {"ns": [3e9, 5e9]}, "impress-itf": {"ns": [1.5e9, 2.5e9]}}
        return cell

    def test_the_bound_is_the_bases_time_by_the_least_and_no_ratio_exceeds_it(self):
        cell = self.with_counts()
        cell.check_least()
        self.assertEqual(cell.least_ns("impress-itf"), 1e9)
        gain, _, _, bound = cell.gain("as-h2o-lfu", "impress-itf")
        self.assertEqual((gain, bound), (2, 4))
        self.assertEqual(self.with_counts(wait_ns=3e9).least_ns("impress-itf"), 1.5e9)
        self.assertEqual(self.with_counts(ops=2 * 700_000 * 2).least_ns("impress-itf"), 2e9)

    def test_a_preset_that_is_faster_than_its_least_is_no_result(self):
        for wrong in ({"wait_ns": 4e9 + 2}, {"ops": 3_000_000}, {"read_bytes": 6e9}):
            with self.assertRaises(SystemExit):
                self.with_counts(**wrong).check_least()

    def test_lines_of_another_version_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "old.csv")
            impress.write_csv(path, [{"figure": "16", "cell": "x"}])
            self.assertEqual(len(impress.read_csv(path)), 1)
            with open(path, encoding="utf-8") as file:
                text = file.read()
            with open(path, "w", encoding="utf-8") as file:
                file.write(text.replace("least_ms,", "", 1))
            with self.assertRaises(SystemExit):
                impress.read_csv(path)

    def test_as_like_chooses_nothing_and_the_device_is_scaled(self):
        cell = impress.Cell("16", "x", "opt-6.7b", "copa", ("as-like",), [2000], 8, 4)
        config = json.loads(cell.config("as-like"))
        self.assertNotIn("select", config)
        self.assertEqual(config["sim"]["bytes_per_s"] * 8, 5_000_000_000)
        config = json.loads(cell.config("impress-itf", keys={"select.alpha_milli": 200}))
        self.assertEqual(config["select"], {"retain_ppm": 500000, "alpha_milli": 200})


if __name__ == "__main__":
    unittest.main()
