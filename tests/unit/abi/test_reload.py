#!/usr/bin/env python3
"""test_reload.py RELOAD SO: open, close, unload and load again leave nothing behind.

valgrind sees no block in use at exit (but the loader's one of reload.supp), no descriptor left
open and no error.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

RELOAD = PLUGIN = ""
SUPPRESSIONS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reload.supp")


class Reload(unittest.TestCase):
    """The reload program under valgrind."""

    def test_three_rounds_leave_no_memory_and_no_descriptor(self):
        with tempfile.TemporaryDirectory() as folder:
            ended = subprocess.run(
                ["valgrind", "--leak-check=full", "--show-leak-kinds=all", "--track-fds=yes",
                 "--suppressions=" + SUPPRESSIONS, "--error-exitcode=9", RELOAD, PLUGIN,
                 os.path.join(folder, "store"), "3"],
                capture_output=True, text=True, timeout=850, check=False)
        report = ended.stderr[-6000:]
        self.assertEqual(0, ended.returncode, report)
        heap = re.search(r"in use at exit: ([\d,]+) bytes in ([\d,]+) blocks", report)
        self.assertIsNotNone(heap, report)
        if heap.group(2) != "0":
            for kind in ("definitely lost", "indirectly lost", "possibly lost", "still reachable"):
                self.assertRegex(report, kind + r": 0 bytes in 0 blocks", report)
            self.assertRegex(report, r"suppressed: \d+ bytes in 1 blocks", report)
        opened = re.search(r"FILE DESCRIPTORS: (\d+) open \((\d+) (?:inherited|std)\)", report)
        self.assertIsNotNone(opened, report)
        self.assertNotRegex(ended.stderr, r"Open file descriptor \d+: \S*store", report)


if __name__ == "__main__":
    PLUGIN, RELOAD = sys.argv.pop(), sys.argv.pop()
    if not shutil.which("valgrind"):
        print("skipped: valgrind is not installed")
        sys.exit(77)
    sys.exit(unittest.main(verbosity=0))
