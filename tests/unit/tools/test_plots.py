#!/usr/bin/env python3
"""Tests of bench/plots.py and figures.py: each row of docs/results/reproduction.md has a plot and a
command that exists, each plot has a table among the committed CSV files, and the same files give
the same bytes.

usage: test_plots.py BUILD      the build directory, which may have a matplotlib of its own"""
import contextlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
RESULTS = os.path.join(ROOT, "docs", "results")
sys.path.insert(0, os.path.join(ROOT, "bench"))
import figures  # noqa: E402
import impress  # noqa: E402
import plots  # noqa: E402
import reproduce  # noqa: E402

BUILD = sys.argv.pop() if len(sys.argv) > 1 and os.path.isdir(sys.argv[-1]) else os.path.join(
    ROOT, "build")
DRAWINGS = "1, 6, 10, 12, 13"  # figures without a number


def text_of(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def first_cells(page):
    """First cells of the tables that compare with theirs, but for rows that only draw."""
    cells, is_inside = [], False
    for line in page.splitlines():
        row = [cell.strip() for cell in line.strip("|").split("|")]
        if len(row) > 3 and row[1] == "theirs":
            is_inside = True
        elif not line.startswith("|"):
            is_inside = False
        elif is_inside and not set(row[0]) <= set("-") and row[0] != DRAWINGS:
            cells.append(row[0])
    return cells


def names_of_run():
    text = text_of("bench", "run")
    names = text[text.index('"name", choices=[') + len('"name", choices='):]
    return set(json.loads(names[:names.index("]") + 1]))


class Rows(unittest.TestCase):
    def setUp(self):
        self.cells = first_cells(text_of("docs", "results", "reproduction.md"))

    def test_tables_are_found(self):
        self.assertGreater(len(self.cells), 45)
        self.assertEqual(first_cells("| figure | theirs | ours | c |\n|---|---|---|---|\n"
                                     "| 7a, x | 1 | 2 | `c` |\n\n| 8 | y |\n"), ["7a, x"])

    def test_every_row_has_a_plot(self):
        starts = tuple(start for figure in figures.FIGURES for start in figure.rows)
        self.assertEqual([cell for cell in self.cells if not cell.startswith(starts)], [])

    def test_every_plot_has_a_row(self):
        for figure in figures.FIGURES:
            for start in figure.rows:
                self.assertTrue(any(cell.startswith(start) for cell in self.cells),
                                f"{figure.name}: no row begins with {start}")

    def test_names_of_plots_are_unique(self):
        names = [figure.name for figure in figures.FIGURES]
        self.assertEqual(len(names), len(set(names)))


class Commands(unittest.TestCase):
    def test_commands_of_plots_exist(self):
        names, text = names_of_run(), text_of("bench", "run")
        for figure in figures.FIGURES:
            program, name, *words = figure.command.split()
            self.assertEqual(program, "bench/run")
            self.assertIn(name, names, figure.name)
            for word in words:
                if word.startswith("--"):
                    self.assertIn(f'"{word}"', text, figure.name)
            if name == "impress":
                self.assertIn(words[1], impress.FIGURES, figure.name)

    def test_commands_of_the_page_exist(self):
        page = text_of("docs", "results", "reproduction.md")
        found = set(re.findall(r"bench/run ([a-z]+)", page))
        self.assertGreater(len(found), 5)
        self.assertLessEqual(found, names_of_run())

    def test_reproduce_makes_the_table_of_every_plot(self):
        for figure in figures.FIGURES:
            name = figure.command.split()[1]
            self.assertTrue(any(table.split("-")[0] == name for table in reproduce.TABLES),
                            f"{figure.name}: {name}")


class Choice(unittest.TestCase):
    """Which file a table comes from."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name, value):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(f"cell,mean_ms\nx,{value}\n")

    def value(self, quick):
        rows = plots.Tables(self.folder, quick).rows("impress")
        return rows[0]["mean_ms"] if rows else None

    def test_this_run_is_before_the_named_one_and_that_before_a_quick_one(self):
        self.assertIsNone(self.value(False))
        for name, value in (("reproduce-quick-impress.csv", "1"), ("impress.csv", "2"),
                            ("reproduce-impress.csv", "3")):
            self.write(name, value)
            self.assertEqual(self.value(False), value)
            self.assertEqual(self.value(True), "1")

    def test_rows_are_filtered(self):
        self.write("impress.csv", "2")
        table = plots.Tables(self.folder, False)
        self.assertEqual(len(table.rows("impress", cell="x")), 1)
        self.assertEqual(table.rows("impress", cell="y"), [])
        self.assertEqual(table.used, {"impress.csv"})

    def test_thresholds_are_the_papers(self):
        self.assertEqual(figures.threshold_of("alpha@0"), 1)
        self.assertAlmostEqual(figures.threshold_of("alpha@1"), 1 / 7)

    def test_without_matplotlib_the_message_says_how_to_get_plots(self):
        out = io.StringIO()
        with unittest.mock.patch.object(plots, "pyplot", return_value=None), \
                contextlib.redirect_stdout(out):
            self.assertIsNone(plots.page(figures.FIGURES, self.folder, BUILD, True))
        self.assertIn("python3-matplotlib", out.getvalue())
        self.assertEqual(os.listdir(self.folder), [])


class Page(unittest.TestCase):
    def setUp(self):
        if plots.pyplot(BUILD, install=False) is None:
            print("skipped: matplotlib is absent: plots are not drawn")
            self.skipTest("matplotlib is absent")

    def drawn(self, results, quick):
        """(figures without a table, the page's SVG)."""
        with tempfile.TemporaryDirectory() as out, contextlib.redirect_stdout(io.StringIO()):
            missing = plots.page(figures.FIGURES, results, BUILD, quick, out)
            stem = os.path.join(out, "reproduction" + "-quick" * quick)
            self.assertGreater(os.path.getsize(stem + ".png"), 10_000)
            with open(stem + ".svg", "rb") as file:
                return missing, file.read()

    def test_committed_tables_draw_every_figure_and_the_same_bytes_each_time(self):
        missing, page = self.drawn(RESULTS, False)
        self.assertEqual(missing, [])
        self.assertEqual(self.drawn(RESULTS, False)[1], page)
        self.assertIn(b"theirs: 1.2 to 2.8", page)
        self.assertNotIn(b"no table", page)

    def test_without_tables_every_figure_names_its_command(self):
        with tempfile.TemporaryDirectory() as empty:
            missing, page = self.drawn(empty, True)
        self.assertEqual(missing, [figure.name for figure in figures.FIGURES])
        self.assertIn(b"bench/run overhead", page)


if __name__ == "__main__":
    unittest.main()
