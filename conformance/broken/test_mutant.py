#!/usr/bin/env python3
"""test_mutant.py SPEC_CONFORMANCE MUTANT PATCH: the clause that PATCH names finds the mutant.

The mutant fails it by an assertion: a crash or a hang alone would say that something is wrong, not
that the suite looked for it; tests of the clause beside one that hangs are waited for. That the
real connector holds the clause is for the ctest `conformance`, once for all of them. A line
`Hits: required` in the patch's head: what the mutant loses is no lie, and found where misses are
failures.
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mutate  # noqa: E402  (beside this file)

SUITE_SECONDS = 800
HANG_SECONDS = 180  # of a mutant's test: what is wrong in it may wedge it, in some runs alone
PATIENCE_SECONDS = 10  # what a mutant never does is awaited for nothing


def judge(suite, mutant, clause, options):
    """(exit code, outcome of the clause, names that failed by an assertion, the report)."""
    command = [suite, mutant, "--only", clause, "--patience", str(PATIENCE_SECONDS),
               "--limit", str(HANG_SECONDS), *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SUITE_SECONDS,
                           check=False)
    outcome = dict(re.findall(r"^((?:ABI|OBJ)-\d{3})  (holds|fails|skipped)", ended.stdout, re.M))
    asserted = []
    for block in ended.stdout.split("[ RUN      ] ")[1:]:
        if "[  FAILED  ]" in block and "error: Failure!" in block:
            asserted.append(block.split("\n", 1)[0])
    return ended.returncode, outcome.get(clause), asserted, ended.stdout + ended.stderr


def main(argv):
    if len(argv) != 4:
        print("usage: test_mutant.py SPEC_CONFORMANCE MUTANT PATCH", file=sys.stderr)
        return 2
    suite, mutant, patch = argv[1:]
    with open(patch, encoding="utf-8") as file:
        head = file.read()
    clause = mutate.read_clause(head)
    options = ["--require-hits"] if re.search(r"^Hits: required$", head, re.M) else []
    options += ["--objects"] if clause.startswith("OBJ") else []
    code, outcome, asserted, report = judge(suite, mutant, clause, options)
    if (code, outcome) != (1, "fails") or not asserted:
        print("%s\n%s is not found by %s (%s, exit status %d, failed assertions: %d)"
              % (report, os.path.basename(patch), clause, outcome, code, len(asserted)))
        return 1
    print("%s finds it: %s" % (clause, ", ".join(asserted)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
