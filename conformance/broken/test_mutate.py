#!/usr/bin/env python3
"""Tests of mutate.py: a patch applies at the one place that it means, or not at all."""
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import mutate  # noqa: E402  (beside this file)

SOURCE = "a\nb\nc\na\nd\n"
HEAD = "What is wrong.\nClause: ABI-058\n\n--- a/x.c\n+++ b/x.c\n"


class Mutate(unittest.TestCase):
    """Patches that fit, and those that must be refused."""

    def apply(self, hunks, source=SOURCE):
        return mutate.mutate(source, mutate.read_hunks(HEAD + hunks))

    def refused(self, hunks, why):
        with self.assertRaisesRegex(ValueError, why):
            self.apply(hunks)

    def test_a_hunk_applies_where_its_lines_stand_whatever_its_numbers_say(self):
        self.assertEqual("a\nb\nX\na\nd\n", self.apply("@@ -77,2 +77,2 @@\n b\n-c\n+X\n"))

    def test_hunks_apply_one_after_the_other(self):
        self.assertEqual("a\nX\nY\na\nd\n",
                         self.apply("@@ -1 +1 @@\n-b\n+X\n@@ -2 +2 @@\n-c\n+Y\n"))

    def test_a_hunk_that_fits_nowhere_or_twice_is_refused(self):
        self.refused("@@ -1 +1 @@\n-e\n+X\n", "at 0 places")
        self.refused("@@ -1 +1 @@\n-a\n+X\n", "at 2 places")

    def test_a_patch_without_an_effect_is_refused(self):
        self.refused("@@ -1 +1 @@\n b\n", "changes nothing")
        self.refused("", "no hunk")
        self.refused("@@ -1 +1 @@\n*b\n", "not a line")

    def test_the_clause_stands_in_the_head(self):
        self.assertEqual("ABI-058", mutate.read_clause(HEAD))
        self.assertEqual("OBJ-042", mutate.read_clause("Wrong.\nClause: OBJ-042\n"))
        with self.assertRaises(ValueError):
            mutate.read_clause("Clause: 058\n")

    def test_a_test_may_stand_there_instead(self):
        self.assertEqual([("test_x", "a_b"), ("test_x", "c")],
                         mutate.read_tests("Wrong.\nTest: test_x a_b\nTest: test_x c\n\n"))
        self.assertEqual([], mutate.read_tests(HEAD + "Test: x\n"))

    def test_a_patch_that_does_not_fit_ends_the_build(self):
        with tempfile.TemporaryDirectory() as folder:
            patch, source, made = (os.path.join(folder, n) for n in ("p", "x.c", "made.c"))
            for path, text in ((patch, HEAD + "@@ -1 +1 @@\n-e\n+X\n"), (source, SOURCE)):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            ended = subprocess.run([sys.executable, os.path.join(HERE, "mutate.py"), patch,
                                    source, made], capture_output=True, text=True, check=False)
            self.assertEqual(1, ended.returncode)
            self.assertIn("at 0 places", ended.stderr)
            self.assertFalse(os.path.exists(made))


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=0))
