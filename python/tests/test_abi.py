#!/usr/bin/env python3
"""abi.py is the header: each structure's size and each member's place, after abi/frozen.c, which
the compiler has compared with abi/spec_connector.h; and the constants that abi.py names."""
import ctypes
import os
import re
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))
from spec_connector import abi  # noqa: E402


def frozen(pattern):
    with open(os.path.join(ROOT, "abi", "frozen.c"), encoding="utf-8") as file:
        return re.findall(pattern, file.read(), re.M)


class Abi(unittest.TestCase):
    def test_sizes(self):
        sizes = dict(frozen(r"^SIZE\((\w+), (\d+)\);"))
        for name, cls in abi.STRUCTURES.items():
            with self.subTest(name):
                self.assertEqual(ctypes.sizeof(cls), int(sizes[name]))

    def test_members(self):
        members = {}
        for struct, member, offset, size in frozen(r"^AT\((\w+), (\w+), (\d+), (\d+)\);"):
            members.setdefault(struct, []).append((member, int(offset), int(size)))
        for name, cls in abi.STRUCTURES.items():
            with self.subTest(name):
                ours = [(field[0], getattr(cls, field[0]).offset, getattr(cls, field[0]).size)
                        for field in cls._fields_]
                # what frozen.c does not name one by one stands between named ones
                self.assertEqual([m for m in ours if m in members[name]], members[name])

    def test_constants(self):
        values = {name: int(value, 0)
                  for name, value in frozen(r"^VALUE\((\w+), \(?(-?\w+?)u?\)?\);")}
        said = {name: value for name, value in vars(abi).items()
                if isinstance(value, int) and f"SPEC_{name}" in values}
        self.assertGreater(len(said), 20)
        for name, value in said.items():
            with self.subTest(name):
                self.assertEqual(value, values[f"SPEC_{name}"])

    def test_version(self):
        with open(os.path.join(ROOT, "abi", "spec_connector.h"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn(f"#define SPEC_ABI_MAJOR {abi.MAJOR}u", text)
        self.assertIn(f"#define SPEC_ABI_MINOR {abi.MINOR}u", text)


if __name__ == "__main__":
    unittest.main()
