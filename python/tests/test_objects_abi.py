#!/usr/bin/env python3
"""objects_abi.py is abi/spec_objects.h: a C compiler compares each size, offset and constant."""
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))
from spec_connector import abi, objects_abi  # noqa: E402

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def claims():
    """C assertions that hold where objects_abi.py and the header agree."""
    lines = ['#include "abi/spec_objects.h"', "#include <stddef.h>"]
    for name, cls in objects_abi.STRUCTURES.items():
        lines.append(f'_Static_assert(sizeof(struct {name}) == {ctypes.sizeof(cls)}, "{name}");')
        for member, *_ in cls._fields_:
            at = getattr(cls, member)
            lines.append(f"_Static_assert(offsetof(struct {name}, {member}) == {at.offset} && "
                         f"sizeof(((struct {name} *)0)->{member}) == {at.size}, "
                         f'"{name}.{member}");')
    values = {name: value for name, value in vars(objects_abi).items()
              if name.isupper() and isinstance(value, int)}
    values["OBJECTS_MAJOR"], values["OBJECTS_MINOR"] = values.pop("MAJOR"), values.pop("MINOR")
    values.update({name: value for name, value in vars(abi).items() if name.startswith("E_")})
    for name, value in values.items():
        suffix = "ULL" if value >= 0 else ""
        lines.append(f'_Static_assert(SPEC_{name} == {value}{suffix}, "{name}");')
    return lines


@unittest.skipIf(COMPILER is None, "no C compiler")
class Abi(unittest.TestCase):
    def compiled(self, lines):
        with tempfile.NamedTemporaryFile("w", suffix=".c") as file:
            file.write("\n".join(lines) + "\n")
            file.flush()
            return subprocess.run([COMPILER, "-std=c17", "-fsyntax-only", "-I", ROOT, file.name],
                                  capture_output=True, text=True, check=False)

    def test_sizes_offsets_and_constants(self):
        lines = claims()
        self.assertGreater(len(lines), 120)
        done = self.compiled(lines)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_wrong_claim_is_refused(self):
        done = self.compiled([*claims(), '_Static_assert(sizeof(struct spec_keys) == 1, "x");'])
        self.assertNotEqual(done.returncode, 0)

    def test_every_member_of_the_header_is_declared(self):
        with open(os.path.join(ROOT, "abi", "spec_objects.h"), encoding="utf-8") as file:
            text = file.read()
        self.assertEqual(text.count("(*"), len(objects_abi.Api._fields_) - 3)


if __name__ == "__main__":
    unittest.main()
