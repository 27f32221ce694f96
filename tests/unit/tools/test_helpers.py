#!/usr/bin/env python3
"""Tests of cmake/SpecHelpers.cmake: what becomes of a test's words, and which are refused."""
import json
import os
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
# No compiler: only the tests are looked at.
HEAD = """cmake_minimum_required(VERSION 3.25)
project(helpers NONE)
enable_testing()
include("%s/cmake/SpecHelpers.cmake")
add_executable(timed IMPORTED)
set_target_properties(timed PROPERTIES IMPORTED_LOCATION /bin/true)
add_executable(tool IMPORTED)
set_target_properties(tool PROPERTIES IMPORTED_LOCATION "/a/tool")
""" % ROOT


class Helpers(unittest.TestCase):
    def configure(self, text):
        """(what cmake said, {name: test} of ctest's JSON; None if cmake refused)."""
        with tempfile.TemporaryDirectory() as root:
            with open(os.path.join(root, "CMakeLists.txt"), "w", encoding="utf-8") as file:
                file.write(HEAD + text)
            build = os.path.join(root, "b")
            said = subprocess.run(["cmake", "-S", root, "-B", build, "-G", "Ninja"], text=True,
                                  capture_output=True, check=False)
            if said.returncode != 0:
                return said.stderr, None
            listed = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"],
                                    capture_output=True, text=True, check=True)
        return said.stdout, {test["name"]: test for test in json.loads(listed.stdout)["tests"]}

    def properties(self, test):
        return {entry["name"]: entry["value"] for entry in test["properties"]}

    def test_levels_and_labels_become_sets(self):
        expected = {
            "": "quick check ci asan_unit", "LEVEL check": "check ci asan_unit", "LEVEL all": "",
            "LEVEL ci": "ci", "LABELS asan": "asan quick check ci",
            "LABELS device": "device check ci", "LEVEL all LABELS asan tsan": "asan tsan",
            "LABELS noasan clang": "noasan clang quick check ci",
            "LEVEL check LABELS device tsan": "device tsan check ci"}
        text = "".join("sc_add_ctest(NAME t%d COMMAND true %s)\n" % (i, words)
                       for i, words in enumerate(expected))
        said, tests = self.configure(text)
        self.assertIsNotNone(tests, said)
        for i, (words, sets) in enumerate(expected.items()):
            labels = self.properties(tests["t%d" % i]).get("LABELS", [])
            self.assertEqual(sorted(labels), sorted(sets.split()), words)

    def test_every_property_reaches_ctest(self):
        said, tests = self.configure(
            "sc_add_ctest(NAME t.1 COMMAND tool --x \"a b\" TIMEOUT 7 COST 3 ENVIRONMENT A=1 B=2\n"
            "             PROPERTIES SKIP_RETURN_CODE 77 FAIL_REGULAR_EXPRESSION \"it fails\")\n")
        self.assertIsNotNone(tests, said)
        self.assertEqual(tests["t.1"]["command"][2:], ["/a/tool", "--x", "a b"])
        self.assertTrue(tests["t.1"]["command"][1].endswith("/b/times/t.1"))
        found = self.properties(tests["t.1"])
        for name, value in (("TIMEOUT", 7.0), ("COST", 3.0), ("ENVIRONMENT", ["A=1", "B=2"]),
                            ("SKIP_RETURN_CODE", 77), ("FAIL_REGULAR_EXPRESSION", ["it fails"])):
            self.assertEqual(found[name], value)

    def test_a_set_builds_what_commands_and_environment_name(self):
        said, tests = self.configure(
            "sc_add_ctest(NAME t COMMAND true x=$<TARGET_FILE:tool>:$<TARGET_FILE:timed>\n"
            "             NEEDS n ENVIRONMENT P=$<TARGET_FILE_DIR:tool>)\n"
            "get_property(found GLOBAL PROPERTY SC_SET_TARGETS_quick)\n"
            "message(STATUS \"needs ${found}.\")\n")
        self.assertIsNotNone(tests, said)
        self.assertIn("needs n;tool;timed;tool.", said)

    def test_what_would_lose_or_change_a_test_is_refused(self):
        for words, why in (("NAME a/b COMMAND true", "a name has"),
                           ("NAME t COMMAND true LABELS asna", "label asna, expected one of"),
                           ("NAME t LABLES asan COMMAND true", "unknown arguments"),
                           ("NAME t COMMAND true \"\" x", "empty"),
                           ("NAME t COMMAND true \"a;b\"", "semicolon"),
                           ("NAME t COMMAND true LEVEL fast", "LEVEL fast")):
            said, tests = self.configure("sc_add_ctest(%s)\n" % words)
            self.assertIsNone(tests, words)
            self.assertIn(why, " ".join(said.split()), words)
        for words, why in (("THREADS a ONE_THREAD", "ONE_THREAD"), ("THREADS a PARTS 2", "PARTS"),
                           ("SOURCE b.c", "SOURCE")):
            said, tests = self.configure("sc_add_test(NAME t SOURCES a.c %s)\n" % words)
            self.assertIsNone(tests, words)
            self.assertIn(why, said, words)


if __name__ == "__main__":
    unittest.main()
