#!/usr/bin/env python3
"""Tests of tools/run_tests.py: how it counts, and that no skip and no failure can hide."""
import os
import re
import sys
import tempfile
import threading
import unittest
import unittest.mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import run_tests  # noqa: E402

# What a program with cmocka 1.1.5 prints: a case that passes, one that fails, one that skips, and
# one whose setup fails; then the lists, which repeat names.
CMOCKA = """[==========] Running 4 test(s).
[ RUN      ] adds_up
[       OK ] adds_up
[ RUN      ] breaks
[  ERROR   ] --- 0x1 != 0x2
[   LINE   ] --- a.c:7: error: Failure!
[  FAILED  ] breaks
[ RUN      ] needs_data
skipped: ../shared is absent
[  SKIPPED ] needs_data
[ RUN      ] has_no_setup
Could not run test: Test setup failed
[  ERROR   ] has_no_setup
[==========] 4 test(s) run.
[  PASSED  ] 1 test(s).
[  SKIPPED ] 1 test(s), listed below:
[  SKIPPED ] needs_data

 1 SKIPPED TEST(S)
[  FAILED  ] 1 test(s), listed below:
[  FAILED  ] breaks

 2 FAILED TEST(S)
"""
EXPECTED = [(re.compile("shared is absent"), "no data")]


def outcomes(cases):
    return sorted((case.name, case.outcome) for case in cases)


class Counting(unittest.TestCase):
    def test_cmocka_cases_are_counted_once_each(self):
        cases, parts = run_tests.test_cases("t", True, True, "", CMOCKA)
        self.assertEqual(outcomes(cases), [("t: adds_up", "passed"), ("t: breaks", "failed"),
                                           ("t: has_no_setup", "failed"),
                                           ("t: needs_data", "skipped")])
        self.assertEqual([c.reason for c in cases if c.reason], ["../shared is absent"])
        self.assertEqual(parts, [])
        self.assertIn("0x1 != 0x2", "".join(c.tail for c in cases))

    def test_a_program_that_dies_fails_in_its_case(self):
        output = "[ RUN      ] a\n[       OK ] a\n[ RUN      ] b\n"
        cases, _ = run_tests.test_cases("t", True, True, "", output)
        self.assertEqual(outcomes(cases), [("t: a", "passed"), ("t: b", "failed")])

    def test_a_failure_after_all_cases_passed_is_a_failure(self):
        output = "[ RUN      ] a\n[       OK ] a\nERROR: LeakSanitizer\n"
        cases, _ = run_tests.test_cases("t", True, True, "", output)
        self.assertEqual(outcomes(cases), [("t", "failed"), ("t: a", "passed")])
        self.assertIn("LeakSanitizer", "".join(c.tail for c in cases))

    def test_another_program_counts_as_one(self):
        for failed, outcome in ((False, "passed"), (True, "failed")):
            cases, _ = run_tests.test_cases("t", True, failed, "", "some lines\n")
            self.assertEqual(outcomes(cases), [("t", outcome)])

    def test_a_judge_that_watches_another_program_fail_passes_as_one(self):
        cases, _ = run_tests.test_cases("t", True, False, "", CMOCKA)
        self.assertEqual(outcomes(cases), [("t", "passed")])

    def test_a_program_of_ours_that_hides_a_failed_case_fails(self):
        cases, _ = run_tests.test_cases("t", True, False, "", CMOCKA, strict=True)
        self.assertIn(("t: breaks", "failed"), outcomes(cases))

    def test_a_failed_case_shows_what_was_printed_in_it(self):
        cases, _ = run_tests.test_cases("t", True, True, "", CMOCKA + "more\n" * 90)
        tails = {c.name: c.tail for c in cases}
        self.assertIn("0x1 != 0x2", tails["t: breaks"])
        self.assertNotIn("0x1 != 0x2", tails["t: has_no_setup"])
        self.assertIn("setup failed", tails["t: has_no_setup"])

    def test_a_skipped_ctest_gives_its_reason(self):
        cases, _ = run_tests.test_cases("t", False, False, "SKIP_RETURN_CODE=77",
                                        "skipped: no GPU\n")
        self.assertEqual([(c.outcome, c.reason) for c in cases], [("skipped", "no GPU")])

    def test_a_missing_program_is_a_failure(self):
        cases, _ = run_tests.test_cases("t", False, False, "Unable to find executable", "")
        self.assertEqual(outcomes(cases), [("t", "failed")])

    def test_a_skip_without_a_reason_says_so(self):
        cases, _ = run_tests.test_cases("t", True, False, "", "[ RUN      ] a\n[  SKIPPED ] a\n")
        self.assertEqual([c.reason for c in cases], ["no reason given"])

    def test_a_passing_case_that_left_something_out_is_told(self):
        _, parts = run_tests.test_cases("t", True, False, "",
                                        "[ RUN      ] a\nskipped: no X\n[       OK ] a\n")
        self.assertEqual(parts, [("t: a", "no X")])

    def test_junit_is_read(self):
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
            file.write('<testsuite><testcase name="a" status="run"><system-out>x</system-out>'
                       '</testcase><testcase name="b" status="fail"><failure message=""/>'
                       '<system-out>bad</system-out></testcase>'
                       '<testcase name="c" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>'
                       '<system-out>skipped: why</system-out></testcase></testsuite>')
            file.flush()
            cases, _ = run_tests.read_junit(file.name)
        self.assertEqual(outcomes(cases), [("a", "passed"), ("b", "failed"), ("c", "skipped")])


class Summary(unittest.TestCase):
    def sum_up(self, cases, parts=()):
        result = run_tests.Result(run_tests.STAGES[0])
        result.cases, result.parts = cases, list(parts)
        return run_tests.summary([result], EXPECTED, 1.0)

    def case(self, outcome, reason=None):
        return run_tests.Case("t", outcome, reason, "")

    def test_the_last_line_counts(self):
        lines, well = self.sum_up([self.case("passed")] * 3 +
                                  [self.case("skipped", "../shared is absent")] * 2)
        self.assertEqual(lines[-1], "3 passed, 0 failed, 2 skipped")
        self.assertTrue(well)
        self.assertTrue(any("skipped: 2: no data" in line for line in lines), lines)

    def test_an_unexpected_reason_fails(self):
        lines, well = self.sum_up([self.case("passed"), self.case("skipped", "did not feel well")])
        self.assertEqual(lines[-1], "1 passed, 1 failed, 0 skipped")
        self.assertFalse(well)
        self.assertTrue(any("did not feel well" in line for line in lines))

    def test_an_unexpected_part_fails(self):
        lines, well = self.sum_up([self.case("passed")], [("t", "did not feel well")])
        self.assertEqual(lines[-1], "1 passed, 1 failed, 0 skipped")
        self.assertFalse(well)

    def test_a_failure_shows_its_tail(self):
        lines, well = self.sum_up([run_tests.Case("t: b", "failed", None, "0x1 != 0x2")])
        self.assertFalse(well)
        self.assertTrue(any("0x1 != 0x2" in line for line in lines))

    def test_the_committed_list_parses(self):
        self.assertTrue(run_tests.read_expected(run_tests.EXPECTED_SKIPS))

    def test_a_reason_without_a_why_is_refused(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("no GPU\n")
            file.flush()
            with self.assertRaises(SystemExit) as caught:
                run_tests.read_expected(file.name)
        self.assertIn(":1: ", str(caught.exception))


class Arguments(unittest.TestCase):
    def test_quick_is_gcc_without_slow_tests(self):
        stages, slow = run_tests.parse_args(["--quick"])
        self.assertEqual([s.name for s in stages], ["gcc"])
        self.assertFalse(slow)
        self.assertIn("slow", run_tests.ctest_command(stages[0], "j", slow))

    def test_all_stages_by_default_and_slow_ones_in_the_first(self):
        stages, slow = run_tests.parse_args([])
        self.assertEqual([s.name for s in stages], ["gcc", "clang", "asan", "tsan"])
        self.assertNotIn("slow", run_tests.ctest_command(stages[0], "j", slow))

    def test_kernels_are_built_by_two_compilers_or_by_the_one_that_is_named(self):
        stages, _ = run_tests.parse_args([])
        self.assertEqual([s.cuda for s in stages], ["auto", "clang", "clang", "clang"])
        stages, _ = run_tests.parse_args(["--cuda", "none", "--only", "gcc,asan"])
        self.assertEqual([(s.name, s.cuda) for s in stages], [("gcc", "none"), ("asan", "none")])
        with unittest.mock.patch.object(run_tests, "run_logged") as logged:
            logged.return_value = (1, "")
            run_tests.build_stage(stages[0], False)
        self.assertIn("-DSC_CUDA_BUILDER=none", logged.call_args[0][0])


class Folders(unittest.TestCase):
    """A build directory is what its stage says, or the stage fails."""

    def make(self, root, **changed):
        cache = {"CMAKE_HOME_DIRECTORY:INTERNAL": root, "CMAKE_GENERATOR:INTERNAL": "Ninja",
                 "CMAKE_C_COMPILER:FILEPATH": "/usr/bin/clang",
                 "CMAKE_CXX_COMPILER:FILEPATH": "/usr/bin/clang++",
                 "SC_SANITIZE:STRING": "thread"}
        for key in cache:
            name = key.split(":")[0]
            cache[key] = changed.get(name, cache[key])
        os.makedirs(os.path.join(root, "b"), exist_ok=True)
        with open(os.path.join(root, "b", "CMakeCache.txt"), "w", encoding="utf-8") as file:
            file.writelines("%s=%s\n" % entry for entry in cache.items())

    def in_root(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        patch = unittest.mock.patch.object(run_tests, "ROOT", folder.name)
        patch.start()
        self.addCleanup(patch.stop)
        return folder.name

    def test_another_compiler_or_tree_makes_a_folder_foreign(self):
        root = self.in_root()
        for changed, foreign in (({}, False), ({"CMAKE_C_COMPILER": "/usr/bin/cc"}, True),
                                 ({"CMAKE_CXX_COMPILER": "/usr/bin/c++"}, True),
                                 ({"CMAKE_HOME_DIRECTORY": "/elsewhere"}, True),
                                 ({"CMAKE_GENERATOR": "Unix Makefiles"}, True)):
            self.make(root, **changed)
            self.assertEqual(run_tests.is_foreign("b", "clang", "clang++"), foreign, changed)

    def test_a_configure_that_forgot_the_sanitizer_fails(self):
        self.make(self.in_root(), SC_SANITIZE="")
        with unittest.mock.patch.object(run_tests, "run_logged", lambda *_args: (0, "")):
            step, why = run_tests.build("b", "clang", "clang++", "RelWithDebInfo", "thread")
        self.assertEqual(step, "configure")
        self.assertIn("SC_SANITIZE=thread", why)


class Stages(unittest.TestCase):
    def run_all(self, build, test):
        with unittest.mock.patch.multiple(run_tests, build=build, test_stage=test,
                                          say=lambda text: None):
            return run_tests.run_stages(run_tests.STAGES, True)

    def test_stages_are_built_while_those_before_are_tested(self):
        built = {stage.folder: threading.Event() for stage in run_tests.STAGES}
        tested = []

        def build(folder, *_args, **_keywords):
            built[folder].set()
            return None, ""

        def test(result, _slow, _all_began):
            self.assertTrue(built[result.stage.folder].is_set())
            tested.append((result.stage.name, all(b.wait(600) for b in built.values())))

        self.run_all(build, test)
        self.assertEqual(tested, [(stage.name, True) for stage in run_tests.STAGES])

    def test_a_stage_begins_when_the_last_test_of_the_one_before_has_begun(self):
        begun = {stage.name: threading.Event() for stage in run_tests.STAGES}
        early = []

        def test(result, _slow, all_began):
            names = [stage.name for stage in run_tests.STAGES]
            following = names[names.index(result.stage.name) + 1:][:1]
            begun[result.stage.name].set()
            early.extend(name for name in following if begun[name].wait(0.1))
            all_began.set()
            for name in following:  # beside this one, which has not ended
                self.assertTrue(begun[name].wait(600))

        results = self.run_all(lambda *_args, **_keywords: (None, ""), test)
        self.assertEqual(early, [])
        self.assertEqual([r.stage.name for r in results], [s.name for s in run_tests.STAGES])

    def test_a_stage_that_breaks_is_told_and_holds_up_no_other(self):
        def test(result, _slow, _all_began):
            if result.stage.name == "gcc":
                raise RuntimeError("broken")

        with self.assertRaisesRegex(RuntimeError, "broken"):
            self.run_all(lambda *_args, **_keywords: (None, ""), test)

    def test_ctest_is_repeated_line_by_line_and_says_when_all_have_begun(self):
        ctest = ("echo '      Start  1: a'; echo '1/2 Test  #1: a ... Passed'; "
                 "echo '      Start 12: b'; exit 8")
        for count, all_begin in ((2, True), (3, False)):
            lines, all_began = [], threading.Event()
            with unittest.mock.patch.object(run_tests, "say", lines.append):
                status = run_tests.run_ctest("asan", ["sh", "-c", ctest], count, all_began)
            self.assertEqual(status, 8)
            self.assertEqual(all_began.is_set(), all_begin)
            self.assertEqual(lines[1], "asan  1/2 Test  #1: a ... Passed")
            self.assertEqual(len(lines), 3)

    def test_a_build_that_failed_is_not_tested_and_the_others_are(self):
        tested = []
        results = self.run_all(
            lambda folder, *_args, **_keywords:
            ("build", "error") if folder == "build/clang" else (None, ""),
            lambda result, _slow, _all_began: tested.append(result.stage.name))
        self.assertEqual(tested, ["gcc", "asan", "tsan"])
        self.assertEqual([result.count("failed") for result in results], [0, 1, 0, 0])


if __name__ == "__main__":
    unittest.main()
