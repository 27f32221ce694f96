#!/usr/bin/env python3
"""Tests of tools/structure.py over small trees."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_tidy  # noqa: E402
import structure  # noqa: E402

LAYERS = {"store": ("io", "log", "write")}


def defining(name, *called):
    return "void sc_%s(void)\n{\n%s}\n" % (name, "".join("    sc_%s();\n" % c for c in called))


class Structure(test_tidy.TidyCase):
    def number(self, what, folder="store"):
        return structure.measure(self.folder.name, LAYERS)[0][folder, what]

    def test_a_tree_without_cycles(self):
        self.write("store/write/a.c", defining("a", "b", "a"))
        self.write("store/io/b.c", defining("b"))
        self.assertEqual((self.number("largest-cycle"), self.number("upward-calls")), (0, 0))

    def test_the_largest_of_two_cycles(self):
        self.write("store/io/a.c", defining("a", "b"))
        self.write("store/io/b.c", defining("b", "c"))
        self.write("store/io/deep/c.c", defining("c", "a"))
        self.write("store/io/d.c", defining("d", "e", "a"))
        self.write("store/io/e.c", defining("e", "d"))
        self.assertEqual(self.number("largest-cycle"), 3)

    def test_a_call_up_counts_once_for_each_pair_of_files(self):
        self.write("store/io/a.c", defining("a", "b", "c", "d"))
        self.write("store/log/b.c", defining("b") + defining("c"))
        self.write("store/write/d.c", defining("d", "b"))
        self.assertEqual(self.number("upward-calls"), 2)

    def test_names_in_comments_and_static_functions_are_no_calls(self):
        self.write("store/io/a.c", "/* sc_b */\nstatic " + defining("a"))
        self.write("store/write/b.c", defining("b", "a"))
        self.assertEqual((self.number("largest-cycle"), self.number("upward-calls")), (0, 0))

    def test_an_address_that_is_taken_is_a_call(self):
        self.write("store/io/a.c", "void sc_a(void)\n{\n    set(sc_b);\n}\n")
        self.write("store/write/b.c", defining("b"))
        self.assertEqual(self.number("upward-calls"), 1)

    def test_a_definition_over_two_lines(self):
        self.write("store/io/a.c", "int sc_a(int a,\n         int b)\n{\n    sc_b();\n}\n")
        self.write("store/io/b.c", "void *sc_b(void)\n{\n    sc_a();\n}\n")
        self.assertEqual(self.number("largest-cycle"), 2)

    def test_a_return_type_on_a_line_of_its_own(self):
        self.write("store/io/a.c", "const struct sc_x *\nsc_a(int a)\n{\n    sc_b();\n}\n")
        self.write("store/io/b.c", "void *sc_b(void)\n{\n    sc_a();\n}\n")
        self.assertEqual(self.number("largest-cycle"), 2)

    def test_an_inline_function_of_a_header_counts_and_a_declaration_does_not(self):
        self.write("store/write/w.h", "static inline int sc_w(void)\n{\n    return 1;\n}\n"
                   "void sc_declared(void);\n")
        self.write("store/io/a.c", defining("a", "w"))
        self.assertEqual(self.number("upward-calls"), 1)
        self.assertEqual(self.number("largest-cycle"), 0)

    def test_base_names_that_stand_twice_anywhere_in_the_product(self):
        for path in ("store/io/a.c", "plugin/b/a.c", "plugin/b/c.c", "tests/c.c"):
            self.write(path, "int x;\n")
        self.assertEqual(self.number("duplicate-names", "product"), 1)

    def test_tidy_reports_what_is_found(self):
        self.write("store/io/a.c", test_tidy.OPEN + defining("a", "b"))
        self.write("store/write/b.c", test_tidy.OPEN + defining("b", "a"))
        lines = self.found()
        self.assertIn("store:1: a cycle of 2 files: a.c b.c", lines)
        self.assertIn("store:1: store/io/a.c calls up to store/write/b.c", lines)


if __name__ == "__main__":
    unittest.main()
