#!/usr/bin/env python3
"""test_broken.py [--only CASE [K/N]] SPEC_CONFORMANCE ALWAYS_MISS OK_WRITES_NOTHING
               ROWS_NOT_WRITTEN

The suite judged.

A connector that never finds anything passes every clause. One that claims everything and keeps
nothing, and one that is right but for the rows it does not write, fail every clause that promises
data: DATA below.

K/N: of a case that judges each test by itself, the K-th of N parts (spec-conformance --part): all
N of them are the case.
"""
import re
import subprocess
import sys
import unittest

SUITE, ALWAYS_MISS, OK_WRITES_NOTHING, ROWS_NOT_WRITTEN = "", "", "", ""
PART = "1/1"

# Clauses whose test looks at bytes that were stored and came back.
DATA = ("004 005 007 008 010 011 012 013 015 016 017 020 021 022 023 024 026 028 029 040 050 051 "
        "052 053 054 055 056 058 059 060 061 062 063 064 065 066 067 068 069 070 072 080 081 082 "
        "083 084 085 086 087 088 089 090 091 100 110 120 121 122 123 131 133 134 135 136 138 "
        "139 161 169 170 171 174 209").split()


def judge(connector, *options):
    """(exit code, {clause: outcome}, the report's text) of a run over one connector."""
    command = [SUITE, connector, *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=880, check=False)
    clauses = dict(re.findall(r"^ABI-(\d{3})  (holds|fails|skipped)", ended.stdout, re.M))
    return ended.returncode, clauses, ended.stdout


class Broken(unittest.TestCase):
    """The suite over connectors whose faults are known."""

    def test_a_connector_that_never_finds_anything_passes(self):
        # What it does in the background comes at last, however slow the machine is.
        code, clauses, report = judge(ALWAYS_MISS, "--patience", "60", "--part", PART)
        self.assertEqual(0, code, report[-4000:])
        self.assertGreater(len(clauses), 50)
        self.assertEqual(set(), {c for c, outcome in clauses.items() if outcome == "fails"})
        self.assertIn("hits seen: 0,", report)

    def test_a_connector_that_never_finds_anything_fails_where_hits_are_required(self):
        code, clauses, report = judge(ALWAYS_MISS, "--patience", "2", "--require-hits", "--only",
                                      "051")
        self.assertEqual(1, code, report[-4000:])
        self.assertEqual({"051": "fails"}, clauses)

    def check_fails_wherever_data_is_promised(self, connector, *options):
        code, clauses, report = judge(connector, *options)
        self.assertEqual(1, code, report[-4000:])
        self.assertEqual([], [c for c in DATA if clauses.get(c) != "fails"], report[-4000:])

    def test_a_connector_that_says_ok_and_writes_nothing_fails_where_data_is_promised(self):
        self.check_fails_wherever_data_is_promised(OK_WRITES_NOTHING, "--patience", "2")

    def test_a_connector_that_is_right_but_for_the_rows_fails_where_data_is_promised(self):
        # Its hits are real: one that a reader gets late is waited for, else its rows go unseen.
        self.check_fails_wherever_data_is_promised(ROWS_NOT_WRITTEN, "--patience", "10",
                                                   "--require-hits")


if __name__ == "__main__":
    ROWS_NOT_WRITTEN, OK_WRITES_NOTHING = sys.argv.pop(), sys.argv.pop()
    ALWAYS_MISS, SUITE = sys.argv.pop(), sys.argv.pop()
    if sys.argv[1:2] == ["--only"]:  # one case, of which ctest has a test each
        PART = sys.argv[3] if len(sys.argv) > 3 else PART
        sys.argv[1:] = ["Broken.test_a_connector_that_" + sys.argv[2]]
    sys.exit(unittest.main(verbosity=0))
