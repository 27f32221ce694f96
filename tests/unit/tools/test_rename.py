#!/usr/bin/env python3
"""Tests of tools/rename.py over small repositories."""
import os
import subprocess
import sys
import tempfile
import unittest

TOOL = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))), "tools", "rename.py")


class Rename(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.git("init", "-q")

    def git(self, *words):
        return subprocess.run(["git", *words], cwd=self.root, check=True, capture_output=True,
                              text=True).stdout

    def write(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)
        self.git("add", path)

    def read(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8") as file:
            return file.read()

    def rename(self, table, status=0):
        with open(os.path.join(self.root, "table"), "w", encoding="utf-8") as file:
            file.write(table)
        done = subprocess.run([sys.executable, TOOL, "table"], cwd=self.root, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_a_whole_word_is_renamed_everywhere(self):
        self.write("a/x.c", "int lab; int labour; int sc_lab; // lab, lab.h\n")
        self.write("docs/y.md", "the `lab`\n")
        self.rename("word lab baselines\n")
        self.assertEqual(self.read("a/x.c"),
                         "int baselines; int labour; int sc_lab; // baselines, baselines.h\n")
        self.assertEqual(self.read("docs/y.md"), "the `baselines`\n")

    def test_stars_keep_what_they_stand_for(self):
        self.write("a/x.c", "sc_lab_open sc_lab my_sc_lab_open sc_labs\n")
        self.rename("word sc_lab_* sc_baseline_*  # functions\n")
        self.assertEqual(self.read("a/x.c"), "sc_baseline_open sc_lab my_sc_lab_open sc_labs\n")
        self.rename("word *lab_open *base_open\n")
        self.assertEqual(self.read("a/x.c"), "sc_baseline_open sc_lab my_sc_base_open sc_labs\n")

    def test_a_word_is_renamed_in_the_files_that_are_named_alone(self):
        self.write("a/x.c", "int lane;\n")
        self.write("b/x.c", "int lane;\n")
        self.write("a/y.c", "/* a lane */ int lane; f(\"lane\"); // lane\n")
        self.rename("word lane priority in a/*.c c/*\n")
        self.assertEqual(self.read("a/y.c"), "/* a lane */ int priority; f(\"lane\"); // lane\n")
        self.assertEqual(self.read("a/x.c"), "int priority;\n")
        self.assertEqual(self.read("b/x.c"), "int lane;\n")
        self.assertIn("expected word|path OLD NEW", self.rename("word lane priority in\n", 1))

    def test_a_patch_is_renamed_as_the_file_that_it_changes(self):
        self.write("m/1.patch", "A lane.\nTest: lane\n--- a/a/x.c\n+++ b/a/x.c\n-int lane;\n")
        self.write("m/2.patch", "--- a/b/x.c\n+++ b/b/x.c\n-int lane;\n")
        self.rename("word lane priority in a/*.c\n")
        self.assertEqual(self.read("m/1.patch"), "A lane.\nTest: lane\n--- a/a/x.c\n"
                         "+++ b/a/x.c\n-int priority;\n")
        self.assertIn("-int lane;", self.read("m/2.patch"))

    def test_a_file_moves_and_its_path_is_replaced(self):
        self.write("p/lab/lab.c", '#include "p/lab/lab.h"\n')
        self.write("p/lab/lab.h", "/* p/lab/lab.c, lab/lab.c */\n")
        self.write("m.patch", "--- a/p/lab/lab.c\n+++ b/p/lab/lab.c\n")
        self.rename("path p/lab p/base\npath p/base/lab.c p/base/way.c\n")
        self.assertEqual(self.read("p/base/way.c"), '#include "p/base/lab.h"\n')
        self.assertEqual(self.read("p/base/lab.h"), "/* p/base/way.c, base/way.c */\n")
        self.assertEqual(self.read("m.patch"), "--- a/p/base/way.c\n+++ b/p/base/way.c\n")

    def test_all_files_of_a_name_and_a_name_alone_that_is_unique(self):
        self.write("p/a/x.c", "/* x.c, x.h; y.c */\n")
        self.write("p/a/x.h", "/* note.x.c */\n")
        self.write("p/a/y.c", "/* y.c */\n")
        self.write("q/y.c", "/* p/a/y.c */\n")
        self.rename("path p/a/x.* p/a/z.*\npath p/a/y.c p/a/w.c\n")
        self.assertEqual(self.read("p/a/z.c"), "/* z.c, z.h; y.c */\n")
        self.assertEqual(self.read("p/a/z.h"), "/* note.x.c */\n")
        self.assertEqual(self.read("q/y.c"), "/* p/a/w.c */\n")
        self.assertIn("no such file", self.rename("path p/n.* p/m.*\n", 1))

    def test_history_keeps_its_words(self):
        for path in ("docs/decisions/0001-x.md", "docs/results/a.csv", "CHANGELOG.md"):
            self.write(path if "/" in path else "./" + path, "lab\n")
        self.rename("word lab baselines\n")
        self.assertEqual(self.read("docs/decisions/0001-x.md"), "lab\n")
        self.assertEqual(self.read("CHANGELOG.md"), "lab\n")

    def test_a_name_that_stands_already_is_refused_and_nothing_changes(self):
        self.write("a/x.c", "int lab; int baselines;\n")
        self.assertIn("lab would become baselines", self.rename("word lab baselines\n", 1))
        self.assertEqual(self.read("a/x.c"), "int lab; int baselines;\n")

    def test_two_words_that_become_one_are_refused(self):
        self.write("a/x.c", "int ab; int cd;\n")
        self.assertIn("ab, cd would all become z", self.rename("word ab z\nword cd z\n", 1))

    def test_a_line_that_is_no_rename(self):
        self.assertIn("expected word|path OLD NEW", self.rename("word lab\n", 1))
        self.assertIn("differ in their stars", self.rename("word lab* x\n", 1))


if __name__ == "__main__":
    unittest.main()
