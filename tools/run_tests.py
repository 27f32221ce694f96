#!/usr/bin/env python3
"""run_tests.py: builds and tests what a level of ./check asks for, and sums up what happened.

usage: tools/run_tests.py [--quick | --ci | --all] [--only STAGE[,STAGE]] [--cuda BUILDER]
                          [--jobs N]
       tools/run_tests.py --times

  level     stages                                             for
  --quick   gcc                                                the change at hand
  (none)    gcc, asan                                          every commit, and who sees us first
  --ci      gcc, asan, tsan, asan-unit, mutants                continuous integration
  --all     gcc, clang, asan, tsan, all of each                a release

  stage      build directory  compiler, flags               tests
  gcc        build/           gcc, RelWithDebInfo           the level's set: quick, check, ci, all
  asan       build/asan       clang, address and undefined  set asan; --all: all but noasan
  asan-unit  build/asan       the same                      set asan_unit: what set asan lacks
  tsan       build/tsan       clang, thread                 set tsan: most programs' threaded cases
  clang      build/clang      clang, Release                set clang: judges what is shipped
  mutants    build/           gcc, RelWithDebInfo           mutants of what changed, and a sixth of
                                                            the others (tools/mutants.py)

Sets and labels are those of sc_add_ctest (cmake/SpecHelpers.cmake). A stage builds what its set
needs and nothing else. clang builds the CUDA kernels, in --all's gcc stage the best builder that is
found does (SC_CUDA_BUILDER of cmake/CudaImages.cmake). --cuda names one for all stages: with `none`
the device's tests skip, and the rest must pass as it is.

While a stage is tested the next ones are built at a lower priority (nice 10): many tests wait more
than they work, for leases and disks. For the same reason three tests a core run at a time, and when
the last test of a stage has begun the next stage, if it is built, begins beside it.

A cmocka program counts by its cases, any other ctest as one. A test says why it skips in a line
`skipped: REASON` before it skips. A reason that no line of tools/expected-skips.txt expects fails
the check, because a test that silently stopped running looks like one that passes.

--times prints what the last run cost: seconds of each stage, and the 30 tests that used most
processor time. A test of --quick or ./check that used more than SLOW_CPU_SECONDS is named in the
summary unless a line of tools/slow-tests.txt says why. This fails nothing: processors differ.

Invariants: the last line is `N passed, N failed, N skipped`; the exit status is 0 if nothing failed
and every skip was expected.  Tests: tests/unit/tools/test_run_tests.py.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree

import mutants

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUDGET_SECONDS = {"quick": 240, "check": 600, "ci": 1800}  # of a clean clone alone on two cores
TAIL_LINES = 80
TESTS_A_CORE = 3  # of the gcc stage's seconds in tests, half are waits
BUILD_NICE = 10  # below the tests of the stage before
SLOW_CPU_SECONDS = 10
TIMES_SHOWN = 30
EXPECTED_SKIPS = os.path.join(ROOT, "tools", "expected-skips.txt")
SLOW_TESTS = os.path.join(ROOT, "tools", "slow-tests.txt")
TIMES_FILE = os.path.join("build", "check-times.json")

# ctest: arguments that select the tests. targets: what is built; none: everything.
Stage = collections.namedtuple(
    "Stage", "name folder compiler cxx build_type sanitize cuda ctest targets")


def tree(name, folder, compiler, cxx, build_type, sanitize, test_set):
    """A stage that tests one set of sc_add_ctest; without a set: everything that LABELS allow."""
    if test_set:
        return Stage(name, folder, compiler, cxx, build_type, sanitize, "clang",
                     ("-L", "^%s$" % test_set), (test_set + "_tests",))
    return Stage(name, folder, compiler, cxx, build_type, sanitize, "clang",
                 ("-LE", "^noasan$") if "address" in sanitize else (), ())


def gcc_stage(test_set):
    return tree("gcc", "build", "gcc", "g++", "RelWithDebInfo", "", test_set)


def asan_stage(test_set, name="asan"):
    return tree(name, "build/asan", "clang", "clang++", "RelWithDebInfo", "address,undefined",
                test_set)


TSAN = tree("tsan", "build/tsan", "clang", "clang++", "RelWithDebInfo", "thread", "tsan")
CLANG = tree("clang", "build/clang", "clang", "clang++", "Release", "", "clang")
MUTANTS = gcc_stage("check")._replace(name="mutants", targets=("timed",))  # chosen when configured
# Two stages with one build directory are never neighbours, because the second is tested only when
# all tests of the first have ended: two ctests would write the same files of the directory.
# Meanwhile only programs are built in it that the first stage does not have.
LEVELS = {
    "quick": (gcc_stage("quick"),),
    "check": (gcc_stage("check"), asan_stage("asan")),
    "ci": (gcc_stage("ci"), asan_stage("asan"), TSAN, asan_stage("asan_unit", "asan-unit"),
           MUTANTS),
    "all": (gcc_stage("")._replace(cuda="auto"), CLANG, asan_stage(""), TSAN),
}
CUDA_BUILDERS = ("auto", "nvcc", "nvrtc", "clang", "none")

# outcome: "passed", "failed" or "skipped"; reason: why it skipped; tail: output of a failure.
Case = collections.namedtuple("Case", "name outcome reason tail")


# ---- Reading results ---------------------------------------------------------------------------

CMOCKA_LINE = re.compile(r"^\[ *(RUN|OK|FAILED|SKIPPED|ERROR) *\] (?!--- )(\S.*)$")
NO_CASE = "[==========] Running 0 test(s)."
BEGAN_LINE = re.compile(r"^ +Start +\d+: ")
REASON_LINE = re.compile(r"^\s*skipped: *(.*\S)\s*$")


def cmocka_cases(output):
    """The cases that a cmocka program printed: ([Case], [(name, reason)] of what passing cases left
    out). A case that began and never ended has failed: the program died in it. A failed case keeps
    what was printed while it ran."""
    cases, parts, running, reasons, printed = [], [], None, [], []
    for line in output.split("\n"):
        printed.append(line)
        reason = REASON_LINE.match(line)
        if reason:
            reasons.append(reason.group(1))
            continue
        match = CMOCKA_LINE.match(line)
        if not match:
            continue
        word, name = match.groups()
        if word == "RUN":
            if running is not None:
                cases.append(Case(running, "failed", None, tail_of("\n".join(printed[:-1]))))
            running, reasons, printed = name, [], []
        elif running is not None and name == running:
            if word == "SKIPPED":
                why = reasons[-1] if reasons else "no reason given"
                cases.append(Case(name, "skipped", why, ""))
            elif word == "OK":
                cases.append(Case(name, "passed", None, ""))
                parts += [(name, reason) for reason in reasons]
            else:
                cases.append(Case(name, "failed", None, tail_of("\n".join(printed[:-1]))))
            running, reasons = None, []
    if running is not None:
        cases.append(Case(running, "failed", None, tail_of("\n".join(printed))))
    return cases, parts


def tail_of(output):
    lines = output.rstrip("\n").split("\n")
    return "\n".join(lines[-TAIL_LINES:])


def test_cases(name, ran, failed, message, output, strict=False):
    """The cases of one ctest, and the reasons that passing cases gave for a part left out. strict:
    the ctest is a cmocka program itself, whose exit status may not hide a failed case."""
    found, parts = cmocka_cases(output)
    reasons = [m.group(1) for m in map(REASON_LINE.match, output.split("\n")) if m]
    if not ran:
        if message.startswith("SKIP_"):
            return [Case(name, "skipped", reasons[-1] if reasons else "no reason given", "")], []
        return [Case(name, "failed", None, "not run: %s\n%s" % (message, tail_of(output)))], []
    if strict and not failed and not found and NO_CASE in output:
        return [Case(name, "failed", None, "no case ran\n" + tail_of(output))], []
    bad = [case for case in found if case.outcome == "failed"]
    if not failed and bad and not strict:
        # A program that must fail ran inside this test, which judged it and was content.
        return [Case(name, "passed", None, "")], []
    cases = [case._replace(name="%s: %s" % (name, case.name)) for case in found]
    if failed and not bad:
        cases.append(Case(name, "failed", None, tail_of(output)))
    elif not cases:
        return [Case(name, "passed", None, "")], [(name, reason) for reason in reasons]
    return cases, [("%s: %s" % (name, case), reason) for case, reason in parts]


def read_junit(path, strict=(), listed=()):
    """All cases of a ctest --output-junit file, and the parts left out. strict: names of ctests.
    listed: names of ctests that should be there; one that is not has failed."""
    cases, parts, missing = [], [], set(listed)
    for test in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        missing.discard(test.get("name"))
        skipped = test.find("skipped")
        output = test.findtext("system-out") or ""
        new_cases, new_parts = test_cases(
            test.get("name"), test.get("status") not in ("notrun", "disabled"),
            test.get("status") == "fail",
            skipped.get("message", "") if skipped is not None else test.get("status"), output,
            test.get("name") in strict)
        cases += new_cases
        parts += new_parts
    cases += [Case(name, "failed", None, "ctest listed it and reported nothing of it")
              for name in sorted(missing)]
    return cases, parts


def read_reasons(path):
    """tools/expected-skips.txt, or tools/slow-tests.txt, as [(regex, why)], of lines
    `REGEX  # why`."""
    expected = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip() or line.startswith("#"):
                continue
            match = re.match(r"(\S.*?)\s+# (\S.*)$", line.rstrip())
            if not match:
                raise SystemExit("%s:%d: not a reason, expected `REGEX  # why it is in order`"
                                 % (path, number))
            expected.append((re.compile(match.group(1)), match.group(2)))
    return expected


def sort_reasons(reasons, expected):
    """reasons: [(name, reason)]. Returns ({why: [names]}, {reason: [names]} of the unexpected)."""
    known, unknown = collections.OrderedDict(), collections.OrderedDict()
    for name, reason in reasons:
        for regex, why in expected:
            if regex.search(reason):
                known.setdefault(why, []).append(name)
                break
        else:
            unknown.setdefault(reason, []).append(name)
    return known, unknown


# ---- Running a stage ---------------------------------------------------------------------------

class Result:
    """What a stage did."""

    def __init__(self, stage):
        self.stage = stage
        self.build_s = self.test_s = 0.0
        self.cases, self.parts = [], []
        self.ran = {}  # ctest -> (seconds of processor time, seconds), None where it never ran

    def count(self, outcome):
        return sum(1 for case in self.cases if case.outcome == outcome)

    def fail(self, what, tail):
        self.cases.append(Case(what, "failed", None, tail))


def say(text):
    sys.stdout.write(text + "\n")  # one write: stages' lines may come at once
    sys.stdout.flush()


def cores():
    return len(os.sched_getaffinity(0))


def run_logged(command, log):
    """Runs a command with its output in a log. Returns (status, the log's text)."""
    with open(log, "a", encoding="utf-8") as file:
        status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file,
                                stderr=subprocess.STDOUT, cwd=ROOT, check=False).returncode
    with open(log, encoding="utf-8", errors="replace") as file:
        return status, file.read()


def cached(folder, key):
    """An entry of a build directory's cache; None without one."""
    try:
        with open(os.path.join(ROOT, folder, "CMakeCache.txt"), encoding="utf-8") as file:
            match = re.search(r"^%s:[A-Z]+=(.*)$" % key, file.read(), re.M)
    except OSError:
        return None
    return match.group(1) if match else None


def is_foreign(folder, compiler, cxx):
    """True for a build directory that was made for another tree, compiler or generator, or that a
    broken configure left: cmake would refuse it or build something else. Given another compiler,
    cmake begins anew and forgets what else was asked for, sanitizers too."""
    if not os.path.exists(os.path.join(ROOT, folder, "CMakeCache.txt")):
        return os.path.exists(os.path.join(ROOT, folder, "CMakeFiles"))
    return (os.path.realpath(cached(folder, "CMAKE_HOME_DIRECTORY") or "/") !=
            os.path.realpath(ROOT)
            or cached(folder, "CMAKE_GENERATOR") != "Ninja"
            or os.path.basename(cached(folder, "CMAKE_C_COMPILER") or "") != compiler
            or os.path.basename(cached(folder, "CMAKE_CXX_COMPILER") or cxx) != cxx)


def configure_command(folder, compiler, cxx, build_type, sanitize, cuda):
    command = ["cmake", "--no-warn-unused-cli", "-S", ROOT, "-B", os.path.join(ROOT, folder),
               "-G", "Ninja", "-DCMAKE_C_COMPILER=%s" % compiler, "-DCMAKE_CXX_COMPILER=%s" % cxx,
               "-DCMAKE_BUILD_TYPE=%s" % build_type, "-DSC_SANITIZE=%s" % sanitize,
               "-DSC_CUDA_BUILDER=%s" % cuda,
               "-DSC_ASSERT_ABORTS=%s" % ("OFF" if build_type == "Release" else "ON"),
               "-DSC_MUTANTS=%s" % ("ON" if compiler == "gcc" else "OFF"), "-DSC_WERROR=ON"]
    if is_foreign(folder, compiler, cxx):
        command.insert(1, "--fresh")
    if shutil.which("ccache"):
        command += ["-DCMAKE_C_COMPILER_LAUNCHER=ccache", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"]
    return command


def build(folder, compiler, cxx, build_type, sanitize="", targets=(), shows=True, cuda="auto"):
    """Configures and builds; shows: ninja's own progress, on a terminal. Returns (None, "") or (the
    step that failed, its log's tail)."""
    os.makedirs(os.path.join(ROOT, folder), exist_ok=True)
    log = os.path.join(ROOT, folder, "check-build.log")
    if os.path.exists(log):
        os.remove(log)
    status, text = run_logged(configure_command(folder, compiler, cxx, build_type, sanitize,
                                                cuda), log)
    if status != 0:
        return "configure", tail_of(text)
    if is_foreign(folder, compiler, cxx) or cached(folder, "SC_SANITIZE") != sanitize:
        return "configure", "%s is not of %s with SC_SANITIZE=%s" % (folder, compiler, sanitize)
    command = ["nice", "-n", str(BUILD_NICE), "cmake", "--build", os.path.join(ROOT, folder), "-j",
               str(cores())]
    if targets:
        command += ["--target", *targets]
    if shows and sys.stdout.isatty():  # ninja's own progress line, and what it has to say
        status = subprocess.run(command, stdin=subprocess.DEVNULL, cwd=ROOT,
                                check=False).returncode
        return ("build", "see above") if status != 0 else (None, "")
    status, text = run_logged(command, log)
    if status != 0:
        first = text.find("FAILED:")
        return "build", tail_of(text[:first + 6000] if first >= 0 else text)
    return None, ""


def test_env(stage):
    env = dict(os.environ)
    if not stage.targets:  # --all; sanitized tests take samples all the same: conformance/sample.h
        env["SC_ALL_SEEDS"] = "1"
    # A test of an allocation that cannot be had wants NULL, as libc answers.
    env.setdefault("ASAN_OPTIONS", "detect_leaks=1:detect_stack_use_after_return=1:"
                   "allocator_may_return_null=1")
    env.setdefault("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=1")
    env.setdefault("TSAN_OPTIONS", "halt_on_error=0:second_deadlock_stack=1")
    env["CMOCKA_MESSAGE_OUTPUT"] = "stdout"
    return env


def ctest_command(stage, jobs):
    folder = os.path.join(ROOT, stage.folder)
    command = ["ctest", "--test-dir", folder, "-j", str(jobs), "--timeout", "900",
               "--test-output-size-passed", "4000000", "--test-output-size-failed", "4000000",
               "--no-tests=ignore"]
    command += list(stage.ctest)
    if stage.sanitize == "thread" and shutil.which("setarch"):
        # TSan's shadow needs the classic map; where addresses are very random it may not fit.
        command = ["setarch", os.uname().machine, "-R"] + command
    return command


def listed_tests(command):
    """What a ctest command would run, as ctest's JSON has it. ctest empties the log of the folder
    where it lists tests, also while another one runs there: so it begins in a folder of its own."""
    at = command.index("--test-dir") + 1
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "CTestTestfile.cmake"), "w", encoding="utf-8") as file:
            file.write("subdirs([==[%s]==])\n" % os.path.abspath(command[at]))
        command = command[:at] + [folder] + command[at + 1:] + ["--show-only=json-v1"]
        listed = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                check=True)
    return json.loads(listed.stdout)["tests"]


def cmocka_programs(tests, folder):
    """Names of the ctests that are one of our own test programs, in FOLDER/tests. Each command
    begins with `timed FILE`."""
    home = os.path.realpath(os.path.join(folder, "tests"))
    return {test["name"] for test in tests for program in test.get("command", [])[2:3]
            if os.path.realpath(os.path.dirname(program)) == home}


def run_ctest(stage, command, count, all_began):
    """Runs ctest and repeats what it says, line by line, behind the stage's name. Sets all_began
    when the last of its count tests has begun. Returns the exit status."""
    began = 0
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=test_env(stage), cwd=ROOT, text=True,
                          errors="replace") as ctest:
        for line in ctest.stdout:
            began += BEGAN_LINE.match(line) is not None
            say("%-9s %s" % (stage.name, line.rstrip("\n")))
            if began >= count:
                all_began.set()
    return ctest.returncode


def choose_mutants(result):
    """Gives the stage of a configured tree its tests and targets. Returns (None, "") or (the step
    that failed, why): ctest runs nothing, and says nothing, if a pattern is too long for it."""
    stage = result.stage
    try:
        chosen = mutants.choose(ROOT, listed_tests(ctest_command(
            stage._replace(ctest=("-L", "^mutant$")), 1)))
        result.stage = stage._replace(ctest=("-R", mutants.pattern(chosen)),
                                      targets=("timed", "spec-conformance", *chosen))
        found = sorted(test["name"] for test in
                       listed_tests(ctest_command(result.stage, 1)))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return "choose", "no mutants: %s" % error
    if not chosen or found != chosen:
        return "choose", "%d mutants are chosen, ctest finds %d" % (len(chosen), len(found))
    return None, ""


def build_stage(stage, shows):
    """The result so far; a build that failed is a case of it."""
    result = Result(stage)
    start = time.monotonic()
    say("== %s: build (%s)" % (stage.name, stage.folder))
    step, tail = build(stage.folder, stage.compiler, stage.cxx, stage.build_type, stage.sanitize,
                       stage.targets, shows, stage.cuda)
    if stage.name == "mutants" and not step:
        step, tail = choose_mutants(result)
        if not step:
            step, tail = build(stage.folder, stage.compiler, stage.cxx, stage.build_type,
                               stage.sanitize, result.stage.targets, shows, stage.cuda)
    result.build_s = time.monotonic() - start
    if step:
        say(tail)
        result.fail(step, tail)
    return result


def times_of(folder, names, since):
    """What each ctest cost since then, as tests/timed.c wrote it."""
    times = {}
    for name in names:
        path = os.path.join(ROOT, folder, "times", name)
        times[name] = None
        if os.path.exists(path) and os.path.getmtime(path) >= since:
            with open(path, encoding="utf-8") as file:
                times[name] = tuple(float(word) for word in file.read().split())
    return times


def test_stage(result, jobs, all_began):
    stage = result.stage
    folder = os.path.join(ROOT, stage.folder)
    start, since = time.monotonic(), time.time() - 1
    say("== %s: test (built in %.0f s)" % (stage.name, result.build_s))
    junit = os.path.join(ROOT, stage.folder, "check-junit-%s.xml" % stage.name)
    if os.path.exists(junit):
        os.remove(junit)
    command = ctest_command(stage, jobs)
    try:
        tests = listed_tests(command)
        names = [test["name"] for test in tests]
        # ctest replaces the file that it is told, even if it only lists tests: never a device.
        status = run_ctest(stage, command + ["--output-junit", junit], len(tests), all_began)
        result.cases, result.parts = read_junit(junit, cmocka_programs(tests, folder), names)
        result.ran = times_of(stage.folder, names, since)
    except (OSError, subprocess.SubprocessError, ValueError,
            xml.etree.ElementTree.ParseError) as error:
        status = 1
        result.fail("ctest", "no results: %s" % error)
    result.test_s = time.monotonic() - start
    if not result.cases:
        result.fail("ctest", "no test ran, expected some")
    if status != 0 and result.count("failed") == 0:
        result.fail("ctest", "ended with status %d, expected 0" % status)
    for line in failures(result):
        say(line)


def run_stages(stages, jobs):
    """Builds the stages one after the other, and tests each when it is built: builds go on while
    tests run, and a stage's tests begin when all of the stage before have begun, and all of stages
    with its build directory have ended."""
    results, tested = [], []  # tested: (folder, future)
    builder = concurrent.futures.ThreadPoolExecutor(1)
    tester = concurrent.futures.ThreadPoolExecutor(max(len(stages), 1))
    try:
        for built in [builder.submit(build_stage, s, s is stages[0]) for s in stages]:
            results.append(built.result())
            if results[-1].count("failed") == 0:
                stage, all_began = results[-1].stage, threading.Event()
                concurrent.futures.wait([test for folder, test in tested if folder == stage.folder])
                test = tester.submit(test_stage, results[-1], jobs, all_began)
                tested.append((stage.folder, test))
                test.add_done_callback(lambda _, began=all_began: began.set())
                all_began.wait()
        for _, test in tested:
            test.result()
    finally:  # interrupted: what has not begun never will
        builder.shutdown(cancel_futures=True)
        tester.shutdown(cancel_futures=True)
    return results


# ---- Times -------------------------------------------------------------------------------------

def slow_lines(results, level, listed):
    """Lines on tests of --quick and ./check that cost more than SLOW_CPU_SECONDS, and of which
    tools/slow-tests.txt says nothing."""
    if level not in ("quick", "check"):
        return []
    return ["slow: %s: %s used %.1f s of processor time, tools/slow-tests.txt does not say why"
            % (result.stage.name, name, times[0])
            for result in results for name, times in sorted(result.ran.items())
            if times and times[0] > SLOW_CPU_SECONDS
            and not any(regex.search(name) for regex, _ in listed)]


def save_times(results, level, total_s):
    """Keeps what the run cost. A disk that is full costs these numbers, not the summary."""
    try:
        with open(os.path.join(ROOT, TIMES_FILE), "w", encoding="utf-8") as file:
            json.dump({"level": level, "total_s": total_s, "cores": cores(), "stages": [
                {"name": r.stage.name, "build_s": r.build_s, "test_s": r.test_s, "ran": r.ran}
                for r in results]}, file)
    except OSError as error:
        say("check: %s is not written: %s" % (TIMES_FILE, error))


def times_lines(saved):
    """What the last run cost: its stages, and the tests that used most processor time."""
    lines = ["%s: %.0f s on %d cores" % (saved["level"], saved["total_s"], saved["cores"]),
             "stage          build       test   tests' processor time"]
    tests = []
    for stage in saved["stages"]:
        ran = [(times[0], times[1], "%s: %s" % (stage["name"], name))
               for name, times in stage["ran"].items() if times]
        lines.append("%-10s %7.1f s  %7.1f s  %7.1f s of %d" % (
            stage["name"], stage["build_s"], stage["test_s"], sum(t[0] for t in ran), len(ran)))
        tests += ran
    lines.append("processor       wall  test")
    lines += ["%7.1f s  %7.1f s  %s" % test for test in sorted(tests, reverse=True)[:TIMES_SHOWN]]
    return lines


def show_times():
    try:
        with open(os.path.join(ROOT, TIMES_FILE), encoding="utf-8") as file:
            saved = json.load(file)
        lines = times_lines(saved)
    except (OSError, ValueError, KeyError) as error:
        say("check --times: %s: %r, expected what a run of ./check wrote" % (TIMES_FILE, error))
        return 1
    say("\n".join(lines))
    return 0


# ---- What was left out ---------------------------------------------------------------------------

KINDS = ("mutant", "device")  # labels by which tests that did not run are counted


def left_out(results, level):
    """One line that says what this level did not run and --all does; "" for --all."""
    if level == "all":
        return ""
    ran = {name for result in results for name in result.ran}
    counts = collections.Counter()
    try:
        tests = listed_tests(["ctest", "--test-dir", os.path.join(ROOT, "build")])
    except (OSError, subprocess.SubprocessError, ValueError):
        tests = []
    if not tests:
        return "left out, see ./check --all: unknown, build/ is not configured"
    for test in tests:
        if test["name"] not in ran:
            labels = [label for entry in test.get("properties", []) if entry["name"] == "LABELS"
                      for label in entry["value"]]
            counts[next((kind for kind in KINDS if kind in labels), "other")] += 1
    stages = [stage.name for stage in LEVELS["all"]
              if stage.name not in [result.stage.name for result in results]]
    return "left out, see ./check --all: %d mutants, %d device tests, %d others%s" % (
        counts["mutant"], counts["device"], counts["other"],
        "; stages: " + " ".join(stages) if stages else "")


# ---- The summary -------------------------------------------------------------------------------

def names_of(names):
    more = len(names) - 3
    return ", ".join(names[:3]) + (" and %d more" % more if more > 0 else "")


def failures(result):
    """A stage's failed cases, each with the end of what it printed: never the hundreds of lines of
    the cases beside it, behind which whoever shows only a part of a log would lose it."""
    lines = []
    for case in result.cases:
        if case.outcome == "failed":
            lines.append("failed: %s: %s" % (result.stage.name, case.name))
            lines += ["    | " + line for line in case.tail.split("\n") if case.tail]
    return lines


def summary(results, expected, total_s, level="all"):
    """The lines of the summary and whether all is well. A skip for an unexpected reason counts as
    failed."""
    lines = ["", "== summary", "stage          build      test   passed   failed  skipped"]
    skipped = [("%s: %s" % (r.stage.name, case.name), case.reason)
               for r in results for case in r.cases if case.outcome == "skipped"]
    parts = [("%s: %s" % (r.stage.name, name), reason) for r in results
             for name, reason in r.parts]
    known, unknown = sort_reasons(skipped, expected)
    known_parts, unknown_parts = sort_reasons(parts, expected)
    for r in results:
        lines.append("%-10s %7.1f s %7.1f s %8d %8d %8d" % (
            r.stage.name, r.build_s, r.test_s, r.count("passed"), r.count("failed"),
            r.count("skipped")))
    budget = BUDGET_SECONDS.get(level)
    lines.append("total  %.0f s on %d cores%s" % (
        total_s, cores(), " (budget: %d s on two)" % budget if budget else ""))
    for r in results:
        lines += failures(r)
    for title, groups in (("skipped", known), ("left out of a passing test", known_parts)):
        for why, names in groups.items():
            lines.append("%s: %d: %s (%s)" % (title, len(names), why, names_of(names)))
    for title, groups in (("skipped", unknown), ("left out of a passing test", unknown_parts)):
        for reason, names in groups.items():
            lines.append("failed: %s for a reason that tools/expected-skips.txt does not expect: "
                         "%d: %s (%s)" % (title, len(names), reason, names_of(names)))
    skips_bad = sum(map(len, unknown.values()))
    failed = sum(r.count("failed") for r in results) + skips_bad
    failed += sum(map(len, unknown_parts.values()))
    lines.append("%d passed, %d failed, %d skipped" % (
        sum(r.count("passed") for r in results), failed, len(skipped) - skips_bad))
    return lines, failed == 0


def positive(word):
    """An argument that counts something: ctest reads -j 0 as one test, or as no limit."""
    if not re.match(r"[1-9]\d*$", word):
        raise argparse.ArgumentTypeError("%s is no number of tests, expected 1 or more" % word)
    return int(word)


def parse_args(argv):
    """(level, stages, jobs); the level "times" has no stages."""
    parser = argparse.ArgumentParser(prog="check", description="Builds and tests.")
    level = parser.add_mutually_exclusive_group()
    for name, text in (("quick", "gcc only, what is quick"),
                       ("ci", "what continuous integration runs before vLLM"),
                       ("all", "everything there is"),
                       ("times", "what the last run cost; runs nothing")):
        level.add_argument("--" + name, dest="level", action="store_const", const=name, help=text)
    parser.add_argument("--only", metavar="STAGE[,STAGE]",
                        help="stages among those of the level")
    parser.add_argument("--cuda", metavar="BUILDER", choices=CUDA_BUILDERS,
                        help="who builds CUDA kernels, in all stages: %s" % " ".join(CUDA_BUILDERS))
    parser.add_argument("--jobs", type=positive, default=TESTS_A_CORE * cores(), metavar="N",
                        help="tests that run at a time (%d a core)" % TESTS_A_CORE)
    args = parser.parse_args(argv)
    args.level = args.level or "check"
    stages = LEVELS.get(args.level, ())
    names = [] if args.only is None else args.only.split(",")
    for name in names:
        if name not in [stage.name for stage in stages]:
            parser.error("stage %s is unknown at this level, expected: %s"
                         % (name, " ".join(s.name for s in stages)))
    stages = [s for s in stages if not names or s.name in names]
    if args.cuda:
        stages = [s._replace(cuda=args.cuda) for s in stages]
    return args.level, stages, args.jobs


def main(argv):
    level, stages, jobs = parse_args(argv[1:])
    if level == "times":
        return show_times()
    expected, slow = read_reasons(EXPECTED_SKIPS), read_reasons(SLOW_TESTS)
    start = time.monotonic()
    results = run_stages(stages, jobs)
    total_s = time.monotonic() - start
    save_times(results, level, total_s)
    lines, well = summary(results, expected, total_s, level)
    lines[-1:-1] = slow_lines(results, level, slow) + [line for line in [left_out(results, level)]
                                                       if line]
    say("\n".join(lines))
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
