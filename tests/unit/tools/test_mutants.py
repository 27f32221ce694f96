#!/usr/bin/env python3
"""Tests of tools/mutants.py: what changed is judged, and of the rest each in one of six commits."""
import os
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import mutants  # noqa: E402


class Choice(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.write("conformance/test_load.c", "static void abi_050_it_loads(void **state)\n")
        self.write("conformance/test_save.c", "static void abi_080_it_saves(void **state)\n")
        self.write("m/1.patch", "Wrong.\nClause: ABI-050\n")
        self.write("m/2.patch", "Wrong.\nClause: ABI-080\n")
        self.tests = [self.mutant("one", "m/1.patch", "store/a.c"),
                      self.mutant("two", "m/2.patch", "store/b.c")]

    def write(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def mutant(self, name, *files):
        return {"name": name, "properties": [
            {"name": "REQUIRED_FILES", "value": [os.path.join(self.root, f) for f in files]}]}

    def choose(self, changed, commit="00000000"):
        said = {"log": None if changed is None else "\n".join(changed), "rev-parse": commit}
        with unittest.mock.patch.object(mutants, "git", lambda _root, verb, *_: said[verb]), \
                unittest.mock.patch.object(mutants, "share_of", lambda _name: 5):
            return mutants.choose(self.root, self.tests)

    def test_a_changed_patch_source_or_clause_chooses(self):
        self.assertEqual(self.choose(["m/1.patch"]), ["one"])
        self.assertEqual(self.choose(["store/b.c", "README.md"]), ["two"])
        self.assertEqual(self.choose(["conformance/test_load.c"]), ["one"])
        self.assertEqual(self.choose(["README.md"]), [])

    def test_the_commit_chooses_a_sixth(self):
        self.assertEqual(self.choose([], "00000005"), ["one", "two"])

    def test_six_commits_judge_every_mutant(self):
        tests = [self.mutant("mutant_%d" % i) for i in range(100)]
        judged = []
        for turn in range(mutants.SHARES):
            with unittest.mock.patch.object(mutants, "git", lambda _root, verb, *_, turn=turn: {
                    "log": "", "rev-parse": "%08x" % turn}[verb]):
                judged += mutants.choose(self.root, tests)
        self.assertEqual(sorted(judged), sorted(test["name"] for test in tests))

    def test_without_git_all_are_judged(self):
        self.assertEqual(self.choose(None), ["one", "two"])

    def test_a_pattern_matches_its_names_alone(self):
        pattern = mutants.pattern(["mutant_1-a.b", "mutant_2"])
        for name, matches in (("mutant_1-a.b", True), ("mutant_2", True), ("mutant_1-axb", False),
                              ("mutant_22", False), ("a_mutant_2", False)):
            self.assertEqual(re.search(pattern, name) is not None, matches, name)

    def test_cmake_reads_the_pattern_as_python_does(self):
        self.write("x.cmake", 'if("mutant_1-a.b" MATCHES "%s")\n message(yes)\nendif()\n'
                   % mutants.pattern(["mutant_1-a.b"]).replace("\\", "\\\\"))
        told = subprocess.run(["cmake", "-P", os.path.join(self.root, "x.cmake")], text=True,
                              capture_output=True, check=False)
        self.assertIn("yes", told.stderr)


if __name__ == "__main__":
    unittest.main()
