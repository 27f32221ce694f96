#!/usr/bin/env python3
"""Tests of tools/words.py over small trees."""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_tidy  # noqa: E402


class Words(test_tidy.TidyCase):
    def test_a_word_is_refused_as_a_part_of_an_identifier(self):
        self.write("base/a.c", test_tidy.OPEN + "int sc_sketch_open;\n")
        self.assert_one("base/a.c:2", "sc_sketch_open", "selector")

    def test_other_words_that_contain_it_stay(self):
        self.write("base/a.c", test_tidy.OPEN + "int label, collaborate, sketchy, software;\n")
        self.assert_clean()

    def test_comments_and_strings_stay(self):
        self.write("base/a.c", "/* A sketch. */\nconst char *file = \"wear\"; // wear\n")
        self.write("tools/a.py", '"""A sketch."""\nFILE = "wear"  # wear\nOTHER = \'wear\'\n')
        self.assert_clean()

    def test_a_quotation_mark_as_a_character_opens_no_string(self):
        self.write("base/a.c", test_tidy.OPEN + "char c = '\"';\nint sketch;\nchar d = '\"';\n")
        self.assert_one("base/a.c:3", "sketch")

    def test_python_and_upper_case_are_looked_at(self):
        self.write("tools/a.py", '"""A."""\nSKETCH_ROWS = 1\n')
        self.assert_one("tools/a.py:2", "SKETCH_ROWS")

    def test_a_file_name_is_refused(self):
        self.write("base/sidecar_pool.c", test_tidy.OPEN)
        self.assert_one("base/sidecar_pool.c:1", "sidecar", "section")

    def test_a_sentence_begins_with_its_subject(self):
        for line in ("Of rows, some are read.", "Rows are read. What is left stays.",
                     "- Likewise for keys.", "| key | What it does |"):
            self.write("docs/a.md", "# Title\n\n%s\n" % line)
            self.assert_one("docs/a.md:3", "begins with")

    def test_headings_code_and_the_midst_of_a_sentence_stay(self):
        self.write("docs/a.md", "# What is read\n\nThe place\nWhere rows are, e.g. here.\n\n"
                   "```\nOf course\n```\n")
        self.assert_clean()


if __name__ == "__main__":
    unittest.main()
