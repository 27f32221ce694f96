#!/usr/bin/env python3
"""test_compiles.py BUILD_DIRECTORY: no source is compiled more than three times in one tree, unless
a build file has a line that says why:

    # Compiled often: tests/cuda/emu/kernels.cpp, because it includes what a mutant changes.

And no compiler is left to write down where the tree lies.
"""
import collections
import glob
import json
import os
import re
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
BUILD = sys.argv.pop(1)
TIMES_MAX = 3


def reasons():
    """Paths of which a build file says why they are compiled often."""
    found = set()
    for pattern in ("**/CMakeLists.txt", "**/*.cmake"):
        for path in glob.glob(os.path.join(ROOT, pattern), recursive=True):
            with open(path, encoding="utf-8") as file:
                found.update(re.findall(r"^ *# Compiled often: (\S+), because", file.read(), re.M))
    return found


class Compiles(unittest.TestCase):
    def test_no_source_is_compiled_often_without_a_reason(self):
        with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
            counts = collections.Counter(os.path.relpath(entry["file"], ROOT)
                                         for entry in json.load(file))
        self.assertGreater(len(counts), 100)
        often = {path: count for path, count in counts.items() if count > TIMES_MAX}
        self.assertEqual({}, {path: count for path, count in often.items()
                              if path not in reasons()})

    def test_every_compiler_is_told_to_forget_where_the_tree_lies(self):
        with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
            commands = json.load(file)
        told = f"-ffile-prefix-map={ROOT}=."
        self.assertEqual([], [entry["file"] for entry in commands
                              if told not in entry["command"].split()])


if __name__ == "__main__":
    unittest.main()
