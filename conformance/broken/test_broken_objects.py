#!/usr/bin/env python3
"""test_broken_objects.py [--only CASE] SPEC_CONFORMANCE NULL_OBJECTS OBJECTS_DOUBLE

The suite for objects by key, judged.

A store that never stores anything fails every clause but that of the table. The double, which keeps
objects in memory, passes every test that needs no file: those that fail are in NEEDS_FILES below.
"""
import os
import re
import subprocess
import sys
import time
import unittest

SUITE, NULL_OBJECTS, OBJECTS_DOUBLE = "", "", ""

# Tests that a store without files, without a configuration that is checked, or with memory of its
# own cannot pass.
NEEDS_FILES = {
    "obj_002_a_put_that_was_killed_leaves_whole_objects",
    "obj_005_a_full_store_reopens_after_a_kill",
    "obj_005_what_was_done_is_found_after_kills",
    "obj_007_a_second_process_is_locked_until_the_first_ends",
    "obj_020_a_wrong_configuration_names_its_key",
    "obj_020_the_hosts_allocator_gets_all_memory_back",
    "obj_042_a_flipped_byte_anywhere_never_gives_wrong_bytes",
    "obj_052_a_full_index_takes_new_keys",
    "obj_070_puts_without_room_in_the_index_end_dropped",
    "obj_070_removed_keys_are_absent_after_a_kill",
    "obj_071_erased_keys_and_values_are_in_no_file",
}

# Clauses whose tests ask in many threads for as long as others write: the library that keeps
# objects in memory searches all keys one by one, and would take minutes.
TOO_SLOW = {"030", "031"}


def clauses_but(without):
    listed = subprocess.run([SUITE, "--objects", "--list"], capture_output=True, text=True,
                            check=True).stdout
    found = set(re.findall(r"^OBJ-(\d{3}) ", listed, re.M))
    return ",".join(sorted("OBJ-" + clause for clause in found - without))


def judge(library, *options):
    """(exit code, {clause: outcome}, names that failed, the report's text)."""
    ended = subprocess.run([SUITE, "--objects", library, *options], capture_output=True, text=True,
                           timeout=880, check=False)
    clauses = dict(re.findall(r"^OBJ-(\d{3})  (holds|fails|skipped)", ended.stdout, re.M))
    failed = set(re.findall(r"^\[  FAILED  \] (\w+)$", ended.stdout, re.M))
    return ended.returncode, clauses, failed, ended.stdout


def processes_of(library):
    """The ids of processes that judge this library."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if words[:3] == [os.fsencode(SUITE), b"--objects", os.fsencode(library)]:
            found.append(int(pid))
    return found


def await_end_of(library):
    """Processes that a failed test left end with it, if not at once."""
    for _ in range(600):
        if not processes_of(library):
            return []
        time.sleep(0.1)
    return processes_of(library)


class BrokenObjects(unittest.TestCase):
    """The suite over libraries whose faults are known."""

    def test_a_library_that_stores_nothing_fails_every_clause_but_the_table(self):
        code, clauses, _, report = judge(NULL_OBJECTS, "--patience", "2")
        self.assertEqual(1, code, report[-4000:])
        self.assertGreater(len(clauses), 30)
        self.assertEqual({"008"}, {c for c, outcome in clauses.items() if outcome != "fails"})
        self.assertEqual([], await_end_of(NULL_OBJECTS))

    def test_a_library_that_keeps_objects_in_memory_fails_where_files_are_needed(self):
        code, clauses, failed, report = judge(OBJECTS_DOUBLE, "--patience", "60", "--only",
                                              clauses_but(TOO_SLOW))
        self.assertEqual(1, code, report[-4000:])
        self.assertGreater(len(clauses), 30)
        self.assertEqual(set(), failed - NEEDS_FILES, report)
        self.assertEqual([], await_end_of(OBJECTS_DOUBLE))


if __name__ == "__main__":
    OBJECTS_DOUBLE, NULL_OBJECTS, SUITE = sys.argv.pop(), sys.argv.pop(), sys.argv.pop()
    if sys.argv[1:2] == ["--only"]:  # one case, of which ctest has a test each
        sys.argv[1:] = ["BrokenObjects.test_a_library_that_" + sys.argv[2]]
    sys.exit(unittest.main(verbosity=0))
