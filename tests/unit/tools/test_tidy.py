#!/usr/bin/env python3
"""Tests of tools/tidy.py over small trees that each break one rule, beside a tree that breaks none.

Each test writes the tree into a temporary folder, because a file that breaks a rule on purpose may
not stand in this tree itself.
"""
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import tidy  # noqa: E402

OPEN = "/* A file. */\n"
HEADER = OPEN + "/* Counts. [ABI-021] Adds. [ABI-022] */\n"


def tests_of(*clauses):
    return OPEN + "".join("static void abi_%s_x_y(void **state)\n{\n}\n" % c for c in clauses)


class TidyCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, path, text):
        full = os.path.join(self.folder.name, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8", newline="") as file:
            file.write(text)

    def found(self, **_):
        return tidy.check_tree(self.folder.name)

    def assert_clean(self):
        self.assertEqual(self.found(), [])

    def assert_one(self, place, *words):
        lines = self.found()
        self.assertEqual(len(lines), 1, lines)
        self.assertTrue(lines[0].startswith(place + ": "), lines[0])
        self.assertIn("expected", lines[0])
        for word in words:
            self.assertIn(word, lines[0])


class Includes(TidyCase):
    def setUp(self):
        super().setUp()
        for name in ("abi/a.h", "base/b.h", "hashing/h.h", "store/s.h", "kernels/k.h",
                     "plugin/p.h", "plugin/baselines/baselines.h", "plugin/baselines/average.h",
                     "conformance/c.h", "conformance/engine/e.h", "tests/sim/t.h"):
            self.write(name, OPEN)

    def try_include(self, path, line):
        self.write(path, OPEN + line + "\n")

    def test_every_row_allows_what_style_says(self):
        for path, name in (("base/x.c", "abi/a.h"), ("hashing/x1.c", "base/b.h"),
                           ("store/x3.c", "base/b.h"), ("kernels/cpu/x4.c", "base/b.h"),
                           ("plugin/x5.c", "store/s.h"), ("plugin/x2.c", "abi/a.h"),
                           ("conformance/x.c", "conformance/engine/e.h"),
                           ("conformance/engine/x.c", "abi/a.h"), ("tools/x.c", "plugin/p.h"),
                           ("tests/unit/store/x.c", "store/s.h"),
                           ("tests/unit/engine/x.c", "conformance/engine/e.h"),
                           ("tests/unit/store/x2.c", "tests/sim/t.h"),
                           ("tests/fuzz/x.c", "tests/sim/t.h"), ("tests/sim/x.c", "plugin/p.h"),
                           ("store/x6.c", "store/s.h"), ("examples/x.c", "abi/a.h")):
            self.try_include(path, '#include "%s"' % name)
        self.assert_clean()

    def test_every_row_refuses_the_rest(self):
        for path, name in (("abi/x.h", "base/b.h"), ("base/x.c", "store/s.h"),
                           ("hashing/x.c", "store/s.h"), ("store/x.c", "hashing/h.h"),
                           ("kernels/x.c", "plugin/p.h"), ("plugin/x.c", "conformance/c.h"),
                           ("conformance/engine/x.c", "base/b.h"),
                           ("conformance/x.c", "plugin/p.h"), ("examples/x.c", "base/b.h"),
                           ("tests/unit/engine/x.c", "store/s.h"),
                           ("tests/unit/store/x.c", "plugin/p.h"),
                           ("store/x.c", "tests/sim/t.h"), ("plugin/x.c", "tests/sim/t.h"),
                           ("conformance/x.c", "tests/sim/t.h"), ("tests/sim/x.c", "kernels/k.h")):
            with self.subTest(path=path, name=name):
                self.try_include(path, '#include "%s"' % name)
                self.assert_one(path + ":2", name, "row")
                os.remove(os.path.join(self.folder.name, path))

    def test_a_room_is_entered_by_its_one_header(self):
        for path, name in (("plugin/x.c", "baselines.h"), ("plugin/baselines/z.c", "average.h"),
                           ("bench/x.c", "baselines.h"), ("tests/unit/plugin/x.c", "average.h")):
            self.try_include(path, '#include "plugin/baselines/%s"' % name)
        self.assert_clean()
        average, only = "plugin/baselines/average.h", "plugin/baselines/baselines.h"
        for path, name, part in (("plugin/y.c", average, only),
                                 ("bench/y.c", average, only),
                                 ("plugin/baselines/y.c", "plugin/p.h", "row"),
                                 ("store/y.c", "plugin/baselines/baselines.h", "row")):
            with self.subTest(path=path, name=name):
                self.try_include(path, '#include "%s"' % name)
                self.assert_one(path + ":2", name, part)
                os.remove(os.path.join(self.folder.name, path))

    def test_a_floor_knows_those_below_it(self):
        for path, name in (("store/io/io.h", None), ("store/log/where.h", None),
                           ("store/rows/x.c", "store/io/io.h"), ("store/io/z.c", "store/s.h"),
                           ("store/v.c", "store/log/where.h"),
                           ("plugin/args/w.c", "store/log/where.h"),
                           ("tests/unit/store/x.c", "store/log/where.h")):
            self.try_include(path, '#include "%s"' % name if name else "")
        self.assert_clean()
        self.try_include("store/io/y.c", '#include "store/log/where.h"')
        self.assert_one("store/io/y.c:2", "store/log/where.h", "above")

    def test_a_folder_of_floors_has_no_other_folders(self):
        self.try_include("store/attic/x.c", "")
        self.assert_one("store/attic/x.c:1", "attic", "floor")

    def test_a_relative_include_is_refused(self):
        self.try_include("store/x.c", '#include "s.h"')
        self.assert_one("store/x.c:2", "relative", "from the root")

    def test_headers_of_the_contract_name_each_other_without_a_folder(self):
        self.try_include("abi/x.h", '#include "a.h"')
        self.assert_clean()

    def test_an_include_upwards_is_refused(self):
        self.try_include("store/x.c", '  #  include "../base/b.h"')
        self.assert_one("store/x.c:2", "relative")

    def test_a_missing_include_is_refused(self):
        self.try_include("store/x.c", '#include "base/nothing.h"')
        self.assert_one("store/x.c:2", "not a file of the tree")

    def test_an_include_of_ours_in_angles_is_refused(self):
        self.try_include("store/x.c", "#include <base/b.h>")
        self.assert_one("store/x.c:2", "of ours")

    def test_an_include_by_macro_is_refused(self):
        self.try_include("store/x.c", "#include PLATFORM")
        self.assert_one("store/x.c:2", "macro")

    def test_libraries_stay_in_their_folders(self):
        self.try_include("base/x.c", "#include <json-c/json.h>")
        self.try_include("store/x1.c", "#include <msgpack.h>")
        self.assert_clean()
        self.try_include("hashing/y.c", "#include <json-c/json.h>")
        self.assert_one("hashing/y.c:2", "json-c")

    def test_an_include_in_a_comment_or_a_string_counts_for_nothing(self):
        self.try_include("store/x.c", '/*\n#include "plugin/p.h"\n*/\nconst char *s = "\\\n'
                         '#include \\"plugin/p.h\\"";')
        self.assert_clean()


class Calls(TidyCase):
    def test_banned_calls_are_found_outside_base(self):
        for call in ("malloc(1)", "free (p)", "printf(\"x\")", "puts(s)", "sleep(1)", "exit(1)",
                     "getenv(n)", "abort()", "time(NULL)", "pthread_create(a, b, c, d)",
                     "fprintf(stderr, \"x\")", "(malloc)(1)", "f = malloc", "clock_gettime(a, b)",
                     "strdup(s)", "usleep(1)", "nanosleep(a, b)", "gettimeofday(a, b)"):
            for path in ("store/x.c", "kernels/cuda/x.cu"):
                with self.subTest(call=call, path=path):
                    self.write(path, OPEN + "void f(void)\n{\n    %s;\n}\n" % call)
                    self.assert_one(path + ":4", "banned outside base/")
                    os.remove(os.path.join(self.folder.name, path))

    def test_a_banned_call_in_a_macro_is_found(self):
        self.write("store/x.c", OPEN + "#define GET(n) \\\n    malloc(n)\n")
        self.assert_one("store/x.c:3", "malloc")

    def test_the_same_calls_are_free_in_base_and_in_programs(self):
        for path in ("base/x.c", "conformance/x.c", "tests/x.c", "bench/x.c", "tools/x.c",
                     "conformance/engine/x.c"):
            self.write(path, OPEN + "void f(void)\n{\n    free(malloc(1));\n    exit(1);\n}\n")
        self.assert_clean()

    def test_names_that_only_look_alike_are_left_alone(self):
        self.write("store/x.c", OPEN + (
            "struct s { void *(*alloc)(int); void (*free)(void *); int time; };\n"
            "void f(struct s *s)\n{\n    s->free(s->alloc(1)); /* free(s) */\n"
            "    sc_free(s); s[0].free(s); g(\"malloc(1)\"); s->time = my_exit(1);\n}\n"))
        self.assert_clean()


class Functions(TidyCase):
    def function(self, lines, head="static int f(int a,\n             int b)"):
        """A function of that many lines, its signature and braces included."""
        body = lines - head.count("\n") - 3
        return head + "\n{\n" + "    a();\n" * body + "}\n"

    def test_seventy_lines_pass(self):
        self.write("store/x.c", OPEN + self.function(70))
        self.assert_clean()

    def test_seventy_one_lines_fail_with_name_and_first_line(self):
        self.write("store/x.c", OPEN + "\n/* f: { */\n" + self.function(71))
        self.assert_one("store/x.c:4", "function f has 71 lines", "at most 70")

    def test_long_tables_and_structures_are_no_functions(self):
        self.write("store/x.c", OPEN + "static const int table[] = {\n" + "    1,\n" * 90 + "};\n"
                   "struct s {\n" + "    int a;\n" * 90 + "};\n")
        self.assert_clean()

    def test_braces_in_strings_comments_and_characters_do_not_count(self):
        self.write("store/x.c", OPEN + "int f(void)\n{\n    g(\"}\", '{', '\\'', \"\\\"}\"); // }\n"
                   "    /* } */\n}\n" + self.function(71))
        self.assert_one("store/x.c:7", "function f has 71")

    def test_both_branches_of_a_condition_may_open_the_block(self):
        self.write("store/x.c", OPEN + "#if A\nint f(int a)\n{\n#else\nint f(void)\n{\n#endif\n"
                   + "    a();\n" * 70 + "}\n")
        self.assert_one("store/x.c:3", "function f")

    def test_functions_in_extern_c_are_seen(self):
        self.write("store/x.cu", OPEN + 'extern "C" {\n' + self.function(71) + "}\n")
        self.assert_one("store/x.cu:3", "function f")

    def test_an_attribute_hides_no_function(self):
        self.write("store/x.c", OPEN + self.function(
            71, '__attribute__((target("avx2"))) void g(void)'))
        self.assert_one("store/x.c:2", "function g has 71")

    def test_long_python_functions_are_found(self):
        self.write("tools/x.py", "def f():\n" + "    g()\n" * 70)
        self.assert_one("tools/x.py:1", "function f has 71")


class Text(TidyCase):
    def test_columns_tabs_ends_and_leftovers(self):
        long_line = "/* " + "x" * 95 + " */"
        for text, line, word in (
                (OPEN + long_line + "\n", 2, "101 columns"), (OPEN + "int\ta;\n", 2, "tab"),
                (OPEN + "int a;", 2, "no newline"), (OPEN + "/* TO" "DO: x */\n", 2, "left in"),
                (OPEN + "/* FIX" "ME */\n", 2, "left in"), (OPEN + "int a;\r\n", 2, "carriage"),
                (OPEN + "int a; /* X" "XX */\n", 2, "left in"), ("int a;\n", 1, "opening")):
            with self.subTest(word=word):
                self.write("store/x.c", text)
                self.assert_one("store/x.c:%d" % line, word)

    def test_a_hundred_columns_and_a_template_pass(self):
        self.write("store/x.c", OPEN + "/* " + "x" * 94 + " */\n" + 'char t[] = "/a/X' 'XXXXX";\n')
        self.assert_clean()

    def test_columns_count_characters(self):
        self.write("store/x.c", OPEN + "/* " + "\u00e9" * 94 + " */\n")
        self.assert_clean()

    def test_scripts_without_a_suffix_are_checked_and_wide_tables_in_prose_are_not(self):
        self.write("docs/a.md", "x" * 120 + "\n")
        self.write("LICENSE", "x" * 120 + "\n")
        self.assert_clean()
        self.write("check", "#!/bin/bash\n# " + "x" * 99 + "\n")
        self.assert_one("check:2", "101 columns")

    def test_builds_data_and_models_are_not_read(self):
        for path in ("build/x.c", "build-gcc/x.c", "models/a/x.py", "tests/data/x.c", ".git/x.c"):
            self.write(path, "int\ta;")
        self.assert_clean()


class Clauses(TidyCase):
    def setUp(self):
        super().setUp()
        self.write("abi/spec_connector.h", HEADER)

    def test_a_clause_with_a_test_or_a_reason_passes(self):
        self.write("conformance/x.c", tests_of("021"))
        self.write("conformance/clauses-later.txt", "# later\nABI-022: the GPU path\n")
        self.assert_clean()

    def test_a_clause_without_a_test_fails_at_its_line(self):
        self.write("tests/unit/abi/x.c", tests_of("021"))
        self.assert_one("abi/spec_connector.h:2", "ABI-022", "abi_022_*")

    def test_a_name_in_a_comment_is_no_test(self):
        self.write("conformance/x.c", tests_of("021") + "/* void abi_022_a_b(void **s) {} */\n")
        self.assert_one("abi/spec_connector.h:2", "ABI-022")

    def test_a_prototype_is_no_test(self):
        self.write("conformance/x.c", tests_of("021") + "void abi_022_a_b(void **s);\n")
        self.assert_one("abi/spec_connector.h:2", "ABI-022")

    def test_a_test_elsewhere_counts_for_nothing(self):
        self.write("conformance/x.c", tests_of("021"))
        self.write("bench/x.c", tests_of("022"))
        self.assert_one("abi/spec_connector.h:2", "ABI-022")

    def test_a_clause_with_both_fails(self):
        self.write("conformance/x.c", tests_of("021", "022"))
        self.write("conformance/clauses-later.txt", "ABI-022: the GPU path\n")
        self.assert_one("conformance/clauses-later.txt:1", "has a test")

    def test_an_unknown_clause_fails_in_tests_and_in_the_list(self):
        self.write("conformance/x.c", tests_of("021", "022"))
        self.write("conformance/clauses-later.txt", "ABI-777: never\n")
        self.assert_one("conformance/clauses-later.txt:1", "ABI-777")
        self.write("conformance/clauses-later.txt", "")
        self.write("conformance/x.c", tests_of("021", "022", "023"))
        self.assert_one("conformance/x.c:8", "ABI-023")

    def test_the_other_header_is_judged_by_the_same_rules(self):
        self.write("conformance/x.c", tests_of("021", "022"))
        self.write("abi/spec_objects.h", OPEN + "/* As [ABI-022], absent. [OBJ-021] */\n")
        self.assert_one("abi/spec_objects.h:2", "OBJ-021", "obj_021_*")
        self.write("conformance/objects/y.c", tests_of("021").replace("abi_", "obj_"))
        self.assert_clean()
        self.write("conformance/objects/y.c", tests_of("021", "022").replace("abi_", "obj_"))
        self.assert_one("conformance/objects/y.c:5", "OBJ-022", "abi/spec_objects.h")
        self.write("conformance/objects/y.c", OPEN)
        self.write("conformance/clauses-later.txt", "OBJ-021: the library\n")
        self.assert_clean()

    def test_a_reason_is_needed(self):
        self.write("conformance/x.c", tests_of("021", "022"))
        self.write("conformance/clauses-later.txt", "ABI-022:\n")
        self.assert_one("conformance/clauses-later.txt:1", "what it waits for")


class Program(TidyCase):
    def run_tidy(self, *args):
        return subprocess.run([sys.executable, os.path.join(ROOT, "tools", "tidy.py"), *args],
                              capture_output=True, text=True, check=False)

    def test_the_exit_code_tells(self):
        self.write("store/x.c", OPEN)
        self.assertEqual(self.run_tidy(self.folder.name).returncode, 0)
        self.write("store/x.c", "int a;\n")
        result = self.run_tidy(self.folder.name)
        self.assertEqual(result.returncode, 1)
        self.assertTrue(result.stdout.startswith("store/x.c:1: "), result.stdout)
        self.assertEqual(self.run_tidy(self.folder.name + "/nothing").returncode, 2)


if __name__ == "__main__":
    unittest.main()
