#!/usr/bin/env python3
"""judge_mutant.py PROGRAM PATCH: each test that PATCH's head names finds the mutant PROGRAM.

It fails by an assertion of its own, or because the fake driver, or an invariant of the code itself
(SC_ASSERT), ended the process and named the rule that was broken: a crash or a hang alone would say
that something is wrong, not what. That the real code passes is for the ctest of that program.
"""
import os
import re
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..",
                                "conformance", "broken"))
import mutate  # noqa: E402  (it reads the head)

TEST_SECONDS = 300
FAKE_EXIT = 78


def what_found_it(program, test):
    """The line that says what was wrong; None: nothing was found. And the report."""
    ended = subprocess.run([program], capture_output=True, text=True, timeout=TEST_SECONDS,
                           check=False, env=dict(os.environ, SC_MUTANT_CASE=test))
    report = ended.stdout + ended.stderr
    if "[ RUN      ] " + test not in report:
        return None, report + "\nno such test"
    found = None
    if ended.returncode > 0: # by a signal it is less
        found = re.search(r"^.*\[   LINE   \] --- .*: error: Failure!", report, re.M)
    if found is None and ended.returncode == FAKE_EXIT: # not because a test that failed left things
        found = re.search(r"^.*fake cuda: (?!left at the end).*$", report, re.M)
    if found is None and ended.returncode == -signal.SIGABRT:
        found = re.search(r"^.*: broken invariant: .*$", report, re.M)
    return (found.group(0).strip() if found else None), report


def main(argv):
    if len(argv) != 3:
        print("usage: judge_mutant.py PROGRAM PATCH", file=sys.stderr)
        return 2
    with open(argv[2], encoding="utf-8") as file:
        tests = mutate.read_tests(file.read())
    missed = 0
    for _, test in tests:
        found, report = what_found_it(argv[1], test)
        print("%s: %s" % (test, found or "%s\nfinds nothing" % report))
        missed += found is None
    return 0 if tests and missed == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
