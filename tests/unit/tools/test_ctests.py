#!/usr/bin/env python3
"""test_ctests.py BUILD_DIRECTORY: every ctest is made by sc_add_ctest, so that a level runs it.

A test that add_test made would be in no set, and only ./check --all would run it.
"""
import glob
import os
import re
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import run_tests  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop(1))
ADDED = re.compile(r"^ *sc_add_test\(NAME (\w+)([^)]*)\)", re.M)


def values(test, name):
    """A property of a test as a list."""
    found = [entry["value"] for entry in test["properties"] if entry["name"] == name]
    return found[0] if found and isinstance(found[0], list) else found


class Ctests(unittest.TestCase):
    def setUp(self):
        self.tests = run_tests.listed_tests(["ctest", "--test-dir", BUILD])
        self.assertGreater(len(self.tests), 100)

    def test_each_is_timed_and_ends(self):
        timed, times = (os.path.join(BUILD, name) for name in ("tests/timed", "times"))
        for test in self.tests:
            self.assertEqual(test.get("command", [])[:2],
                             [timed, os.path.join(times, test["name"])], test["name"])
            self.assertEqual(len(values(test, "TIMEOUT")), 1, test["name"])

    def test_no_two_have_one_name(self):
        names = [test["name"].lower() for test in self.tests]
        self.assertEqual(len(names), len(set(names)))

    def test_cases_with_threads_reach_their_programs(self):
        """A program that is not told of them would judge none, and TSan's stage run all."""
        programs = set()
        folder = os.path.join(ROOT, "tests", "unit", "*")
        for path in glob.glob(folder + "/CMakeLists.txt") + glob.glob(folder + "/*.cmake"):
            with open(path, encoding="utf-8") as file:
                programs.update(name for name, words in ADDED.findall(file.read())
                                if re.search(r"\b(THREADS|ONE_THREAD)\b", words))
        self.assertGreater(len(programs), 10)
        told = {test["name"] for test in self.tests
                for words in values(test, "ENVIRONMENT_MODIFICATION")
                if words.startswith("SC_THREAD_CASES=set:")}
        here = {test["name"] for test in self.tests}
        self.assertEqual(programs & here, told)

    def test_what_is_set_up_for_a_test_runs_where_it_does(self):
        for test in self.tests:
            for fixture in values(test, "FIXTURES_REQUIRED"):
                for other in self.tests:
                    if fixture in values(other, "FIXTURES_SETUP"):
                        self.assertLessEqual(set(values(test, "LABELS")),
                                             set(values(other, "LABELS")), other["name"])


if __name__ == "__main__":
    unittest.main()
