#!/usr/bin/env python3
"""test_program.py SPEC_CONFORMANCE ALWAYS_MISS: the judge as a program.

A file that cannot be judged ends with exit status 2 and one line: what, where, and what was
expected. The listing, progress, and the reports for people, programs and continuous integration
agree.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

SUITE, CONNECTOR = "", ""
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CHEAP = "9,15"  # clauses whose tests take no time


def run(*arguments, env=None):
    done = subprocess.run([SUITE, *arguments], capture_output=True, text=True, timeout=880,
                          check=False, env={**os.environ, **(env or {})})
    return done.returncode, done.stdout, done.stderr


class Program(unittest.TestCase):
    """spec-conformance, by its command line."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def refused(self, expected, *arguments, env=None):
        code, out, err = run(*arguments, env=env)
        self.assertEqual((2, ""), (code, out), arguments)
        self.assertEqual(1, err.count("\n"), err)
        self.assertTrue(err.startswith("spec-conformance: "), err)
        self.assertIn(expected, err)

    def test_what_is_no_connector_is_one_line(self):
        with open(self.path("text"), "w", encoding="utf8") as file:
            file.write("no shared object")
        self.refused("text: ", self.path("text"))
        self.refused("expected a connector of ABI ", self.path("text"))
        self.refused("absent: No such file or directory, expected a shared object",
                     self.path("absent"))
        self.refused("no shared object, expected one")
        self.refused("expected one shared object, and options", CONNECTOR, CONNECTOR)

    def test_a_configuration_that_does_not_open_ends_the_program_at_once(self):
        self.refused("SPEC_E_CONFIG: config: io.thread: unknown key; did you mean io.threads?",
                     CONNECTOR, "--config", '{"io": {"thread": 1}}')
        self.refused("SPEC_E_CONFIG: config: line 1", CONNECTOR, "--config", '{"disk_bytes": }')
        for text in ("", "disk_bytes", "[]", "7", "{"):
            self.refused(f"--config: {text}, expected a JSON object", CONNECTOR, "--config", text)
        self.refused("at most 4000 bytes", CONNECTOR, "--config", "{" + " " * 4000 + "}")

    def test_wrong_values_are_refused_with_what_was_expected(self):
        for option in ("--patience", "--limit"):
            for value in ("x", "", "0", "-1", "1.5", "10s", "86401", "99999999999999999999"):
                self.refused(f"{option}: {value}, expected a whole number of seconds",
                             CONNECTOR, option, value)
        for value in ("x", "0/2", "3/2", "1/", "1", "1/0", "1/2x", "-1/2"):
            self.refused(f"--part: {value}, expected K/N", CONNECTOR, "--part", value)
        self.refused("--frob, expected an option", CONNECTOR, "--frob")
        self.refused("--config: nothing, expected a value", CONNECTOR, "--config")
        self.refused("--only: frob, expected clauses and tests", CONNECTOR, "--only", "9,8,frob")
        self.refused("--only: 999, expected clauses", CONNECTOR, "--only", "999")

    def test_folders_and_files_that_are_not_there_are_named(self):
        absent = self.path("absent")
        self.refused(f"--dir: {absent}: No such file", CONNECTOR, "--dir", absent)
        self.assertFalse(os.path.exists(absent))
        self.refused(f"$TMPDIR: {absent}: No such file", CONNECTOR, env={"TMPDIR": absent})
        self.refused(f"--model: {absent}: No such file", CONNECTOR, "--model", absent)
        self.refused(f"--junit: {absent}/x: No such file", CONNECTOR, "--junit", absent + "/x",
                     "--only", CHEAP)

    def test_it_leaves_nothing_behind(self):
        code, _, _ = run(CONNECTOR, "--dir", self.folder.name, "--only", CHEAP)
        self.assertEqual(0, code)
        self.refused("unknown key", CONNECTOR, "--dir", self.folder.name, "--config", '{"x": 1}')
        self.assertEqual([], os.listdir(self.folder.name))

    def check_listed(self, header, prefix, *options):
        """Every clause of the header has a title and tests, and nothing else is listed."""
        code, out, err = run("--list", *options)
        self.assertEqual((0, ""), (code, err))
        titles = dict(re.findall(rf"^{prefix}-(\d{{3}})  (\S.*)$", out, re.M))
        with open(os.path.join(ROOT, "abi", header), encoding="utf8") as file:
            clauses = set(re.findall(rf"\[{prefix}-(\d{{3}})\]", file.read()))
        self.assertEqual(clauses, set(titles))
        self.assertEqual(len(titles), len(set(titles.values())))
        for block in re.split(rf"^{prefix}-", out, flags=re.M)[1:]:
            names = re.findall(rf"^  {prefix.lower()}_(\d{{3}})_\w+$", block, re.M)
            self.assertEqual({block[:3]}, set(names))
            self.assertEqual(block.count("\n"), 1 + len(names))

    def test_every_clause_of_the_contract_is_listed_with_a_title(self):
        self.check_listed("spec_connector.h", "ABI")
        self.check_listed("spec_objects.h", "OBJ", "--objects")

    def test_a_library_without_the_table_of_objects_is_one_line(self):
        self.refused("exports no spec_connector_objects_api, expected a library with objects by "
                     "key of version ", "--objects", CONNECTOR)
        self.refused("--only: ABI-051, expected clauses", "--objects", CONNECTOR, "--only",
                     "ABI-051")
        self.refused("--only: OBJ-020, expected clauses", CONNECTOR, "--only", "OBJ-020")

    def test_it_says_its_version_and_its_options(self):
        code, out, err = run("--version")
        self.assertEqual((0, ""), (code, err))
        self.assertRegex(out, r"^spec-conformance \d+\.\d+\.\d+, ABI \d+\.\d+, "
                         r"store format \d+\n$")
        code, out, err = run("--help")
        self.assertEqual((0, ""), (code, err))
        for option in ("--config", "--dir", "--model", "--only", "--patience", "--limit", "--part",
                       "--junit", "--json", "--list", "--objects", "--require-hits", "--one-set",
                       "--version"):
            self.assertIn(option, out)

    def test_progress_says_which_of_how_many(self):
        code, out, _ = run(CONNECTOR, "--only", CHEAP)
        self.assertEqual(0, code)
        steps = re.findall(r"^\[ (\d+) of (\d+) \] ABI-(\d{3}): (\S.*)\n"
                           r"\[ RUN      \] abi_(\d{3})_", out, re.M)
        self.assertGreater(len(steps), 1)
        self.assertEqual([(str(i + 1), str(len(steps))) for i in range(len(steps))],
                         [step[:2] for step in steps])
        self.assertTrue(all(step[2] == step[4] for step in steps))
        self.assertRegex(out, r"(?m)^ABI-009  holds    \d+ +the table of calls")

    def test_json_and_junit_say_what_the_text_says(self):
        # always_miss: a hit that is required is the failure.
        code, out, err = run(CONNECTOR, "--only", "9,51", "--require-hits", "--patience", "1",
                             "--json", "--junit", self.path("junit.xml"))
        self.assertEqual(1, code, err[-4000:])
        found = json.loads(out)
        counts = re.search(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", err, re.M).groups()
        self.assertEqual(tuple(str(found[key]) for key in ("passed", "failed", "skipped")), counts)
        self.assertEqual(found["connector"], os.path.realpath(CONNECTOR))
        self.assertEqual([(c["clause"], c["outcome"]) for c in found["clauses"]],
                         re.findall(r"^(ABI-\d{3})  (\w+) ", err, re.M))
        self.assertEqual(["holds", "fails"], [c["outcome"] for c in found["clauses"]])
        failed = [t for t in found["tests"] if t["outcome"] == "failed"]
        self.assertEqual([t["name"] for t in failed],
                         re.findall(r"^\[  FAILED  \] (\w+)$", err, re.M))
        for test in failed:
            self.assertIn("hits are required", test["text"])
        suite = xml.etree.ElementTree.parse(self.path("junit.xml")).getroot().find("testsuite")
        self.assertEqual(tuple(suite.get(key) for key in ("tests", "failures", "skipped")),
                         (str(len(found["tests"])), counts[1], counts[2]))
        self.assertEqual([case.get("name") for case in suite.findall("testcase")],
                         [test["name"] for test in found["tests"]])
        texts = {case.get("name"): case.find("failure").text for case in suite.findall("testcase")
                 if case.find("failure") is not None}
        self.assertEqual(texts, {test["name"]: test["text"] for test in failed})

    def test_a_report_that_cannot_be_written_is_no_success(self):
        code, _, err = run(CONNECTOR, "--only", CHEAP, "--junit", "/dev/full")
        self.assertEqual(2, code)
        self.assertIn("--junit: an error, expected that the file can be written", err)


if __name__ == "__main__":
    CONNECTOR, SUITE = sys.argv.pop(), sys.argv.pop()
    sys.exit(unittest.main(verbosity=0))
