#!/usr/bin/env python3
"""Tests of tools/run_tests.py: how it counts, and that no skip and no failure can hide."""
import os
import re
import subprocess
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
STAGES = run_tests.LEVELS["all"]
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

    def test_a_program_of_ours_that_runs_no_case_fails(self):
        output = "[==========] Running 0 test(s).\n[==========] 0 test(s) run.\n"
        cases, _ = run_tests.test_cases("t", True, False, "", output, strict=True)
        self.assertEqual(outcomes(cases), [("t", "failed")])

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
            fewer, _ = run_tests.read_junit(file.name, listed=["a", "b", "c", "lost"])
        self.assertEqual(outcomes(cases), [("a", "passed"), ("b", "failed"), ("c", "skipped")])
        self.assertEqual(outcomes(fewer), outcomes(cases) + [("lost", "failed")])

    def test_programs_of_ours_are_known_behind_links(self):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "b", "tests"))
            os.symlink(root, os.path.join(root, "link"))
            tests = [{"name": "ours", "command": ["t", "f", root + "/b/tests/test_x", "--part"]},
                     {"name": "python", "command": ["t", "f", "/usr/bin/python3", "x.py"]},
                     {"name": "none"}]
            found = run_tests.cmocka_programs(tests, os.path.join(root, "link", "b"))
        self.assertEqual(found, {"ours"})


class Summary(unittest.TestCase):
    def sum_up(self, cases, parts=()):
        result = run_tests.Result(STAGES[0])
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
        self.assertTrue(run_tests.read_reasons(run_tests.EXPECTED_SKIPS))

    def test_a_reason_without_a_why_is_refused(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("no GPU\n")
            file.flush()
            with self.assertRaises(SystemExit) as caught:
                run_tests.read_reasons(file.name)
        self.assertIn(":1: ", str(caught.exception))


class Arguments(unittest.TestCase):
    def stages(self, *arguments):
        return run_tests.parse_args(list(arguments))[1]

    def test_levels_have_their_stages_and_sets(self):
        for arguments, expected in (
                (("--quick",), {"gcc": "quick"}), ((), {"gcc": "check", "asan": "asan"}),
                (("--ci",), {"gcc": "ci", "asan": "asan", "tsan": "tsan",
                             "asan-unit": "asan_unit", "mutants": None}),
                (("--all",), {"gcc": "", "clang": "clang", "asan": "", "tsan": "tsan"})):
            stages = self.stages(*arguments)
            self.assertEqual([s.name for s in stages], list(expected))
            for stage in stages:
                test_set = expected[stage.name]
                if test_set:
                    self.assertIn("^%s$" % test_set, run_tests.ctest_command(stage, 1))
                    self.assertEqual(stage.targets, (test_set + "_tests",))
                elif test_set == "":
                    self.assertEqual(stage.targets, ())

    def test_asan_leaves_out_what_is_not_for_it(self):
        asan = [s for s in self.stages("--all") if s.name == "asan"][0]
        self.assertIn("^noasan$", run_tests.ctest_command(asan, 1))

    def test_stages_with_one_folder_are_no_neighbours(self):
        for stages in run_tests.LEVELS.values():
            for one, other in zip(stages, stages[1:]):
                self.assertNotEqual(one.folder, other.folder)

    def test_a_stage_of_another_level_is_refused(self):
        with unittest.mock.patch("sys.stderr"), self.assertRaises(SystemExit):
            self.stages("--only", "tsan")
        self.assertEqual([s.name for s in self.stages("--all", "--only", "tsan")], ["tsan"])

    def test_a_listing_writes_no_file(self):
        # ctest --show-only --output-junit FILE replaces FILE, even /dev/null.
        for stage in self.stages("--ci"):
            self.assertNotIn("--output-junit", run_tests.ctest_command(stage, 1))

    def test_no_stage_and_no_job_are_refused(self):
        for arguments in (("--only", ""), ("--only", "gcc,"), ("--jobs", "0"), ("--jobs=-3",),
                          ("--jobs", "many")):
            with unittest.mock.patch("sys.stderr"), self.assertRaises(SystemExit):
                self.stages(*arguments)

    def test_jobs_are_passed_to_ctest(self):
        _, stages, jobs = run_tests.parse_args(["--jobs", "17"])
        command = run_tests.ctest_command(stages[0], jobs)
        self.assertEqual(command[command.index("-j") + 1], "17")

    def test_only_all_runs_all_seeds(self):
        for arguments, whole in (((), False), (("--ci",), False), (("--all",), True)):
            env = run_tests.test_env(self.stages(*arguments)[0])
            self.assertEqual(env.get("SC_ALL_SEEDS") == "1", whole)

    def test_kernels_are_built_by_two_compilers_or_by_the_one_that_is_named(self):
        self.assertEqual([s.cuda for s in self.stages("--all")],
                         ["auto", "clang", "clang", "clang"])
        stages = self.stages("--cuda", "none")
        self.assertEqual([(s.name, s.cuda) for s in stages], [("gcc", "none"), ("asan", "none")])
        # Not in this tree: a build that goes on beside this test has its log there.
        with tempfile.TemporaryDirectory() as root, \
                unittest.mock.patch.object(run_tests, "ROOT", root), \
                unittest.mock.patch.object(run_tests, "say", lambda _text: None), \
                unittest.mock.patch.object(run_tests, "run_logged") as logged:
            logged.return_value = (1, "")
            run_tests.build_stage(stages[0], False)
        self.assertIn("-DSC_CUDA_BUILDER=none", logged.call_args[0][0])


class Mutants(unittest.TestCase):
    """The stage that chooses its tests when its tree is configured."""

    def choose(self, chosen, found):
        """The chosen names, and those that ctest finds by their pattern; None: ctest breaks."""
        def listed(command):
            if found is None:
                raise subprocess.CalledProcessError(1, command)
            return [{"name": name} for name in (found if "-R" in command else ["m1", "m2"])]

        with unittest.mock.patch.object(run_tests, "listed_tests", listed), \
                unittest.mock.patch.object(run_tests, "build", lambda *_a, **_k: (None, "")), \
                unittest.mock.patch.object(run_tests, "say", lambda _text: None), \
                unittest.mock.patch.object(run_tests.mutants, "choose", lambda *_args: chosen):
            return run_tests.build_stage(run_tests.MUTANTS, False)

    def test_what_is_chosen_is_built_and_run(self):
        result = self.choose(["m1", "m2"], ["m2", "m1"])
        self.assertEqual(result.cases, [])
        self.assertEqual(result.stage.ctest, ("-R", "^(m1|m2)$"))
        self.assertEqual(result.stage.targets, ("timed", "spec-conformance", "m1", "m2"))

    def test_a_choice_that_ctest_does_not_find_fails(self):
        for chosen, found in ((["m1", "m2"], ["m1"]), (["m1"], []), ([], []), (["m1"], None)):
            result = self.choose(chosen, found)
            self.assertEqual(outcomes(result.cases), [("choose", "failed")])


class Times(unittest.TestCase):
    def result(self, **ran):
        result = run_tests.Result(STAGES[0])
        result.ran = ran
        return result

    def test_an_expensive_test_is_named_unless_the_list_says_why(self):
        results = [self.result(cheap=(9.0, 60.0), dear=(11.0, 2.0), known=(99.0, 9.0), none=None)]
        listed = [(re.compile("^known$"), "real sizes")]
        lines = run_tests.slow_lines(results, "check", listed)
        self.assertEqual(len(lines), 1)
        self.assertIn("gcc: dear used 11.0 s", lines[0])
        self.assertEqual(run_tests.slow_lines(results, "all", listed), [])

    def test_the_last_run_is_shown_most_expensive_first(self):
        ran = {"t%d" % i: (float(i), 1.0) for i in range(40)}
        with tempfile.TemporaryDirectory() as root, \
                unittest.mock.patch.object(run_tests, "ROOT", root), \
                unittest.mock.patch.object(run_tests, "say") as said:
            os.mkdir(os.path.join(root, "build"))
            self.assertEqual(run_tests.show_times(), 1)
            run_tests.save_times([self.result(**ran)], "check", 60.0)
            self.assertEqual(run_tests.show_times(), 0)
        lines = said.call_args[0][0].split("\n")
        shown = [line.split()[-1] for line in lines if " t" in line and line.endswith(tuple(ran))]
        self.assertEqual(shown, ["t%d" % i for i in range(39, 9, -1)])

    def test_times_that_cannot_be_kept_or_read_break_nothing(self):
        with tempfile.TemporaryDirectory() as root, \
                unittest.mock.patch.object(run_tests, "ROOT", root), \
                unittest.mock.patch.object(run_tests, "say") as said:
            run_tests.save_times([self.result(a=(1.0, 1.0))], "check", 60.0)  # there is no build/
            self.assertIn("is not written", said.call_args[0][0])
            os.mkdir(os.path.join(root, "build"))
            for text in ("", "{}", "{\"level\": "):
                with open(os.path.join(root, run_tests.TIMES_FILE), "w", encoding="utf-8") as file:
                    file.write(text)
                self.assertEqual(run_tests.show_times(), 1)

    def test_times_of_an_earlier_run_do_not_count(self):
        with tempfile.TemporaryDirectory() as root, \
                unittest.mock.patch.object(run_tests, "ROOT", root):
            os.makedirs(os.path.join(root, "b", "times"))
            with open(os.path.join(root, "b", "times", "a"), "w", encoding="utf-8") as file:
                file.write("1.500 2.500\n")
            os.utime(file.name, (1000, 1000))
            self.assertEqual(run_tests.times_of("b", ["a", "c"], 999), {"a": (1.5, 2.5), "c": None})
            self.assertEqual(run_tests.times_of("b", ["a"], 1001), {"a": None})

    def test_what_did_not_run_is_counted_by_its_kind(self):
        tests = [{"name": name, "properties": [{"name": "LABELS", "value": labels}]}
                 for name, labels in (("ran", []), ("m", ["mutant", "device"]), ("d", ["device"]),
                                      ("b", ["noasan"]))]
        with unittest.mock.patch.object(run_tests, "listed_tests", lambda _command: tests):
            line = run_tests.left_out([self.result(ran=None)], "check")
            self.assertEqual(run_tests.left_out([], "all"), "")
        self.assertIn("1 mutants, 1 device tests, 1 others; stages: clang asan tsan", line)

    def test_what_did_not_run_is_unknown_without_gccs_tree(self):
        broken = subprocess.CalledProcessError(1, ["ctest"])
        for listed in (unittest.mock.Mock(return_value=[]), unittest.mock.Mock(side_effect=broken)):
            with unittest.mock.patch.object(run_tests, "listed_tests", listed):
                self.assertIn("unknown", run_tests.left_out([self.result(ran=None)], "check"))


class Lists(unittest.TestCase):
    def test_tests_are_listed_and_the_log_of_the_last_run_is_kept(self):
        with tempfile.TemporaryDirectory(prefix="a b") as root:
            with open(os.path.join(root, "CTestTestfile.cmake"), "w", encoding="utf-8") as file:
                file.write("add_test(one sh -c \"echo said\")\nadd_test(two true)\n")
            command = ["ctest", "--test-dir", root, "-R", "one"]
            subprocess.run(command, check=True, capture_output=True)
            tests = run_tests.listed_tests(command)
            with open(os.path.join(root, "Testing", "Temporary", "LastTest.log"),
                      encoding="utf-8") as file:
                self.assertIn("said", file.read())
        self.assertEqual([test["name"] for test in tests], ["one"])
        self.assertEqual(tests[0]["command"][1:], ["-c", "echo said"])


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
            return run_tests.run_stages(STAGES, 6)

    def test_stages_are_built_while_those_before_are_tested(self):
        built = {stage.folder: threading.Event() for stage in STAGES}
        tested = []

        def build(folder, *_args, **_keywords):
            built[folder].set()
            return None, ""

        def test(result, _jobs, _all_began):
            self.assertTrue(built[result.stage.folder].is_set())
            tested.append((result.stage.name, all(b.wait(600) for b in built.values())))

        self.run_all(build, test)
        self.assertEqual(tested, [(stage.name, True) for stage in STAGES])

    def test_a_stage_begins_when_the_last_test_of_the_one_before_has_begun(self):
        begun = {stage.name: threading.Event() for stage in STAGES}
        early = []

        def test(result, _jobs, all_began):
            names = [stage.name for stage in STAGES]
            following = names[names.index(result.stage.name) + 1:][:1]
            begun[result.stage.name].set()
            early.extend(name for name in following if begun[name].wait(0.1))
            all_began.set()
            for name in following:  # beside this one, which has not ended
                self.assertTrue(begun[name].wait(600))

        results = self.run_all(lambda *_args, **_keywords: (None, ""), test)
        self.assertEqual(early, [])
        self.assertEqual([r.stage.name for r in results], [s.name for s in STAGES])

    def test_a_stage_waits_for_the_tests_of_another_in_its_folder(self):
        ended, early = threading.Event(), []

        def test(result, _jobs, all_began):
            if result.stage.name == "gcc":
                all_began.set()
                ended.wait(0.2)
                ended.set()
            else:
                early.extend([] if ended.is_set() else [result.stage.name])

        stages = [run_tests.gcc_stage("check"), run_tests.MUTANTS._replace(name="second")]
        with unittest.mock.patch.multiple(run_tests, build=lambda *_args, **_keywords: (None, ""),
                                          test_stage=test, say=lambda _text: None):
            run_tests.run_stages(stages, 6)
        self.assertEqual(early, [])

    def test_a_stage_that_breaks_is_told_and_holds_up_no_other(self):
        def test(result, _jobs, _all_began):
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
                status = run_tests.run_ctest(STAGES[2], ["sh", "-c", ctest], count, all_began)
            self.assertEqual(status, 8)
            self.assertEqual(all_began.is_set(), all_begin)
            self.assertEqual(lines[1], "asan      1/2 Test  #1: a ... Passed")
            self.assertEqual(len(lines), 3)

    def test_a_build_that_failed_is_not_tested_and_the_others_are(self):
        tested = []
        results = self.run_all(
            lambda folder, *_args, **_keywords:
            ("build", "error") if folder == "build/clang" else (None, ""),
            lambda result, _jobs, _all_began: tested.append(result.stage.name))
        self.assertEqual(tested, ["gcc", "asan", "tsan"])
        self.assertEqual([result.count("failed") for result in results], [0, 1, 0, 0])


if __name__ == "__main__":
    unittest.main()
