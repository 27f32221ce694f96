#!/usr/bin/env python3
"""run_tests.py: builds and tests every stage of ./check, and sums up what happened.

usage: tools/run_tests.py [--quick] [--only STAGE[,STAGE]] [--cuda BUILDER]

  stage   build directory   compiler, flags               CUDA by  tests
  gcc     build/            gcc, RelWithDebInfo           auto     all
  clang   build/clang       clang, Release                clang    those labelled clang, built
                                                                   alone: what is shipped, judged,
                                                                   kernels and hashes
  asan    build/asan        clang, address and undefined  clang    all but those labelled noasan
  tsan    build/tsan        clang, thread                 clang    those labelled tsan, built alone,
                                                                   of most the cases with threads

CUDA by: who builds the kernels' images, SC_CUDA_BUILDER of cmake/CudaImages.cmake. --cuda names one
for all stages: with `none` the device's tests skip, and the rest must pass as it is.

While a stage is tested the next ones are built below it (nice 10): many tests wait more than they
work, for leases and disks. For the same reason three tests a core run at a time, and when the last
test of a stage has begun the next stage, if it is built, begins beside it.

A cmocka program counts by its cases, any other ctest as one. A test says why it skips in a line
`skipped: REASON` before it skips. A reason that no line of tools/expected-skips.txt expects fails
the check, because a test that silently stopped running looks like one that passes.

Holds: the last line is `N passed, N failed, N skipped`; the exit code is 0 when nothing failed, and
then every skip was expected.  Tests: tests/unit/tools/test_run_tests.py.
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
import threading
import time
import xml.etree.ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUDGET_SECONDS = 1200  # for a clone alone on two cores
TAIL_LINES = 80
TESTS_A_CORE = 3  # of the gcc stage's seconds in tests, half are waits
BUILD_NICE = 10  # below the tests of the stage before
EXPECTED_SKIPS = os.path.join(ROOT, "tools", "expected-skips.txt")

Stage = collections.namedtuple(
    "Stage", "name folder compiler cxx build_type sanitize cuda ctest targets")
STAGES = (
    Stage("gcc", "build", "gcc", "g++", "RelWithDebInfo", "", "auto", (), ()),
    Stage("clang", "build/clang", "clang", "clang++", "Release", "", "clang",
          ("-L", "^clang$"), ("clang_tests",)),
    Stage("asan", "build/asan", "clang", "clang++", "RelWithDebInfo", "address,undefined", "clang",
          ("-LE", "noasan"), ()),
    Stage("tsan", "build/tsan", "clang", "clang++", "RelWithDebInfo", "thread", "clang",
          ("-L", "tsan"), ("tsan_tests",)),
)
CUDA_BUILDERS = ("auto", "nvcc", "nvrtc", "clang", "none")

# outcome: "passed", "failed" or "skipped"; reason: why it skipped; tail: output of a failure.
Case = collections.namedtuple("Case", "name outcome reason tail")


# ---- Reading results ---------------------------------------------------------------------------

CMOCKA_LINE = re.compile(r"^\[ *(RUN|OK|FAILED|SKIPPED|ERROR) *\] (?!--- )(\S.*)$")
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


def read_junit(path, strict=()):
    """All cases of a ctest --output-junit file, and the parts left out. strict: names of ctests."""
    cases, parts = [], []
    for test in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        skipped = test.find("skipped")
        output = test.findtext("system-out") or ""
        new_cases, new_parts = test_cases(
            test.get("name"), test.get("status") not in ("notrun", "disabled"),
            test.get("status") == "fail",
            skipped.get("message", "") if skipped is not None else test.get("status"), output,
            test.get("name") in strict)
        cases += new_cases
        parts += new_parts
    return cases, parts


def read_expected(path):
    """tools/expected-skips.txt as [(regex, why)]; a line is `REGEX  # why`."""
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


def test_env():
    env = dict(os.environ)
    # A test of an allocation that cannot be had wants NULL, as libc answers.
    env.setdefault("ASAN_OPTIONS", "detect_leaks=1:detect_stack_use_after_return=1:"
                   "allocator_may_return_null=1")
    env.setdefault("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=1")
    env.setdefault("TSAN_OPTIONS", "halt_on_error=0:second_deadlock_stack=1")
    env["CMOCKA_MESSAGE_OUTPUT"] = "stdout"
    return env


def ctest_command(stage, junit, slow):
    folder = os.path.join(ROOT, stage.folder)
    command = ["ctest", "--test-dir", folder, "-j", str(TESTS_A_CORE * cores()), "--timeout", "900",
               "--output-junit", junit, "--test-output-size-passed", "4000000",
               "--test-output-size-failed", "4000000", "--no-tests=ignore"]
    command += list(stage.ctest)
    if not slow and "-LE" not in stage.ctest:
        command += ["-LE", "slow"]
    if stage.sanitize == "thread" and shutil.which("setarch"):
        # TSan's shadow needs the classic map; where addresses are very random it may not fit.
        command = ["setarch", os.uname().machine, "-R"] + command
    return command


def listed_tests(command):
    """What a ctest command would run, as ctest's JSON has it."""
    listed = subprocess.run(command + ["--show-only=json-v1"], stdin=subprocess.DEVNULL,
                            capture_output=True, text=True, check=True)
    return json.loads(listed.stdout)["tests"]


def cmocka_programs(tests, folder):
    """Names of the ctests that are one of our own test programs, in FOLDER/tests."""
    home = os.path.join(folder, "tests")
    return {test["name"] for test in tests
            if os.path.dirname(test.get("command", [""])[0]) == home}


def run_ctest(name, command, count, all_began):
    """Runs ctest and repeats what it says, line by line, behind the stage's name. Sets all_began
    when the last of its count tests has begun. Returns the exit status."""
    began = 0
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=test_env(), cwd=ROOT, text=True,
                          errors="replace") as ctest:
        for line in ctest.stdout:
            began += BEGAN_LINE.match(line) is not None
            say("%-5s %s" % (name, line.rstrip("\n")))
            if began >= count:
                all_began.set()
    return ctest.returncode


def build_stage(stage, shows):
    """The result so far; a build that failed is a case of it."""
    result = Result(stage)
    start = time.monotonic()
    say("== %s: build (%s)" % (stage.name, stage.folder))
    step, tail = build(stage.folder, stage.compiler, stage.cxx, stage.build_type, stage.sanitize,
                       stage.targets, shows, stage.cuda)
    result.build_s = time.monotonic() - start
    if step:
        say(tail)
        result.fail(step, tail)
    return result


def test_stage(result, slow, all_began):
    stage = result.stage
    folder = os.path.join(ROOT, stage.folder)
    start = time.monotonic()
    say("== %s: test (built in %.0f s)" % (stage.name, result.build_s))
    junit = os.path.join(ROOT, stage.folder, "check-junit.xml")
    if os.path.exists(junit):
        os.remove(junit)
    command = ctest_command(stage, junit, slow)
    try:
        tests = listed_tests(command)
        status = run_ctest(stage.name, command, len(tests), all_began)
        result.cases, result.parts = read_junit(junit, cmocka_programs(tests, folder))
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


def run_stages(stages, slow):
    """Builds the stages one after the other, and tests each when it is built: builds go on while
    tests run, and a stage's tests begin when all of the stage before have begun."""
    results, tested = [], []
    builder = concurrent.futures.ThreadPoolExecutor(1)
    tester = concurrent.futures.ThreadPoolExecutor(max(len(stages), 1))
    try:
        for built in [builder.submit(build_stage, s, s is stages[0]) for s in stages]:
            results.append(built.result())
            if results[-1].count("failed") == 0:
                all_began = threading.Event()
                tested.append(tester.submit(test_stage, results[-1], slow, all_began))
                tested[-1].add_done_callback(lambda _, began=all_began: began.set())
                all_began.wait()
        for test in tested:
            test.result()
    finally:  # interrupted: what has not begun never will
        builder.shutdown(cancel_futures=True)
        tester.shutdown(cancel_futures=True)
    return results


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


def summary(results, expected, total_s):
    """The lines of the summary and whether all is well. A skip for an unexpected reason counts as
    failed."""
    lines = ["", "== summary", "stage      build      test   passed   failed  skipped"]
    skipped = [("%s: %s" % (r.stage.name, case.name), case.reason)
               for r in results for case in r.cases if case.outcome == "skipped"]
    parts = [("%s: %s" % (r.stage.name, name), reason) for r in results
             for name, reason in r.parts]
    known, unknown = sort_reasons(skipped, expected)
    known_parts, unknown_parts = sort_reasons(parts, expected)
    for r in results:
        lines.append("%-6s %7.1f s %7.1f s %8d %8d %8d" % (
            r.stage.name, r.build_s, r.test_s, r.count("passed"), r.count("failed"),
            r.count("skipped")))
    lines.append("total  %.0f s on %d cores (budget: %d s on two)"
                 % (total_s, cores(), BUDGET_SECONDS))
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


def parse_args(argv):
    parser = argparse.ArgumentParser(prog="check", description="Builds and tests everything.")
    parser.add_argument("--quick", action="store_true",
                        help="gcc only, without the tests labelled slow")
    parser.add_argument("--only", default="", metavar="STAGE[,STAGE]",
                        help="stages among: %s" % " ".join(s.name for s in STAGES))
    parser.add_argument("--cuda", metavar="BUILDER", choices=CUDA_BUILDERS,
                        help="who builds CUDA kernels, in all stages: %s"
                        % " ".join(CUDA_BUILDERS))
    args = parser.parse_args(argv)
    names = [name for name in args.only.split(",") if name]
    for name in names:
        if name not in [stage.name for stage in STAGES]:
            parser.error("stage %s is unknown, expected: %s"
                         % (name, " ".join(s.name for s in STAGES)))
    if args.quick and not names:
        names = ["gcc"]
    stages = [s for s in STAGES if not names or s.name in names]
    if args.cuda:
        stages = [s._replace(cuda=args.cuda) for s in stages]
    return stages, not args.quick


def main(argv):
    stages, slow = parse_args(argv[1:])
    expected = read_expected(EXPECTED_SKIPS)
    start = time.monotonic()
    results = run_stages(stages, slow)
    lines, well = summary(results, expected, time.monotonic() - start)
    say("\n".join(lines))
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
