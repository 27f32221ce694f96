#!/usr/bin/env python3
"""mutants.py: which mutants continuous integration judges for one commit.

usage: tools/mutants.py BUILD_DIRECTORY    prints the chosen ones of a configured gcc tree

All mutants take minutes, and most say the same for every commit. Chosen are

  - those whose patch, whose patched file or whose test changed in the last COMMITS commits, or
    since the last one;
  - a sixth of the others. The commit's name says which sixth, so each mutant is judged for about
    one commit in six.

A mutant's ctest names its patch, the file that it patches and the source of its test in the
property REQUIRED_FILES. A mutant of the suite names a clause instead (`Clause: ABI-187`): its test
is each test_*.c below conformance/ with a case abi_187_*. Everything is chosen where git says
nothing: in a tree that is no clone, also if it lies in another repository. In a clone with fewer
commits git says that all files changed.

Tests: tests/unit/tools/test_mutants.py.
"""
import glob
import os
import re
import subprocess
import sys
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COMMITS = 80
SHARES = 6
SUITE = "conformance"


def git(root, *arguments):
    """What git prints, or None."""
    try:
        said = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True,
                              check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return said.stdout


def changed_files(root):
    """Paths that changed in the last COMMITS commits, merges included, and since; None if root is
    not the top of a repository."""
    if git(root, "rev-parse", "--show-prefix") != "\n":
        return None
    said = [git(root, "log", "-%d" % COMMITS, "-c", "--format=", "--name-only"),
            git(root, "diff", "--name-only", "HEAD"),
            git(root, "ls-files", "--others", "--exclude-standard")]
    return None if None in said else {line for part in said for line in part.split("\n") if line}


def clause_files(root):
    """{"ABI-187": {"conformance/test_fill.c"}}: where the cases of each clause are."""
    files = {}
    for path in sorted(glob.glob(os.path.join(root, SUITE, "**", "test_*.c"), recursive=True)):
        with open(path, encoding="utf-8") as file:
            for table, clause in re.findall(r"\b(abi|obj)_(\d+)_\w+\(void \*\*", file.read()):
                files.setdefault("%s-%s" % (table.upper(), clause), set()).add(
                    os.path.relpath(path, root))
    return files


def files_of(root, test, clauses):
    """Paths in the tree whose change concerns a mutant, of its entry in ctest's JSON."""
    paths = [path for entry in test.get("properties", []) if entry["name"] == "REQUIRED_FILES"
             for path in entry["value"]]
    found = {os.path.relpath(path, root) for path in paths}
    for path in paths:
        if path.endswith(".patch"):
            with open(path, encoding="utf-8") as file:
                for clause in re.findall(r"^Clause: ((?:ABI|OBJ)-\d+)", file.read(), re.M):
                    found |= clauses.get(clause, set())
    return found


def share_of(name):
    return zlib.crc32(name.encode()) % SHARES


def choose(root, tests):
    """Names of the mutants that are judged, of ctest's JSON of all of them."""
    changed, commit = changed_files(root), git(root, "rev-parse", "HEAD")
    if changed is None or commit is None:
        return sorted(test["name"] for test in tests)
    clauses, turn = clause_files(root), int(commit[:8], 16) % SHARES
    return sorted(test["name"] for test in tests
                  if files_of(root, test, clauses) & changed or share_of(test["name"]) == turn)


def pattern(names):
    """A regular expression for ctest -R that matches these names alone."""
    return "^(%s)$" % "|".join(re.escape(name).replace("\\-", "-") for name in names)


def main(argv):
    if len(argv) != 2:
        print("usage: tools/mutants.py BUILD_DIRECTORY", file=sys.stderr)
        return 2
    import run_tests  # which imports this file
    tests = run_tests.listed_tests(["ctest", "--test-dir", argv[1], "-L", "^mutant$"])
    chosen = choose(ROOT, tests)
    print("\n".join(chosen))
    print("%d of %d" % (len(chosen), len(tests)), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
