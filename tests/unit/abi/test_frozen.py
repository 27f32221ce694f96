#!/usr/bin/env python3
"""test_frozen.py: every member and every constant of the contract stands in abi/frozen.c once.

The compiler checks what frozen.c says; this test checks that it says it of everything.
"""
import os
import re
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__)))))


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)


def members(body):
    """The members that the text between a structure's braces declares, in order."""
    for declaration in body.split(";"):
        declaration = " ".join(declaration.split())
        function = re.search(r"\(\*(\w+)\)\s*\(", declaration)
        if function:
            yield function.group(1)
            continue
        for part in filter(None, declaration.split(",")):
            yield re.findall(r"\w+", re.sub(r"\[[^\]]*\]", "", part))[-1]


class Frozen(unittest.TestCase):
    """The header beside the frozen layout."""

    header = read("abi/spec_connector.h")
    frozen = read("abi/frozen.c")

    def test_every_member_is_frozen_once_and_in_order(self):
        structures = re.findall(r"^struct (\w+) \{(.*?)^\};", self.header, re.S | re.M)
        self.assertGreater(len(structures), 15)
        expected = [(name, member) for name, body in structures for member in members(body)]
        self.assertEqual(expected, re.findall(r"^AT\((\w+), (\w+), ", self.frozen, re.M))

    def test_every_structure_has_its_size_frozen(self):
        structures = re.findall(r"^struct (\w+) \{", self.header, re.M)
        self.assertEqual(structures, re.findall(r"^SIZE\((\w+), ", self.frozen, re.M))

    def test_every_constant_is_frozen(self):
        constants = set(re.findall(r"^#define (SPEC_\w+)\s+\(?-?\d", self.header, re.M))
        self.assertGreater(len(constants), 40)
        self.assertEqual(constants, set(re.findall(r"^VALUE\((\w+), ", self.frozen, re.M)))


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=0))
