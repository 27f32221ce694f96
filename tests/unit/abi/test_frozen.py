#!/usr/bin/env python3
"""test_frozen.py: every member and every constant of the contract stands in a frozen layout once.

The compiler checks what abi/frozen*.c say; this test checks that they say it of everything.
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
    """Each header beside its frozen layout: both tables' structures, members and constants."""

    tables = {"abi/spec_connector.h": "abi/frozen.c", "abi/spec_objects.h": "abi/frozen_objects.c"}

    def each(self):
        """(header's text, frozen layout's text) of each table."""
        for header, frozen in self.tables.items():
            with self.subTest(header=header):
                yield read(header), read(frozen)

    def test_every_member_is_frozen_once_and_in_order(self):
        for header, frozen in self.each():
            structures = re.findall(r"^struct (\w+) \{(.*?)^\};", header, re.S | re.M)
            self.assertGreater(len(structures), 10)
            expected = [(name, member) for name, body in structures for member in members(body)]
            self.assertEqual(expected, re.findall(r"^AT\((\w+), (\w+), ", frozen, re.M))

    def test_every_structure_has_its_size_frozen(self):
        for header, frozen in self.each():
            structures = re.findall(r"^struct (\w+) \{", header, re.M)
            self.assertEqual(structures, re.findall(r"^SIZE\((\w+), ", frozen, re.M))

    def test_every_constant_is_frozen(self):
        for header, frozen in self.each():
            constants = set(re.findall(r"^#define (SPEC_\w+)\s+\(?(?:-?\d|UINT64_)", header, re.M))
            self.assertGreater(len(constants), 20)
            self.assertEqual(constants, set(re.findall(r"^VALUE\((\w+), ", frozen, re.M)))


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=0))
