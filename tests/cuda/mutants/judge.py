#!/usr/bin/env python3
"""judge.py: kernels with one small mistake each, and the tests that must find them.

judge.py make PATCH ROOT OUTPUT_DIR    the changed file, at its path below OUTPUT_DIR
judge.py run PATCH PROGRAM             PROGRAM, built of it, fails the test that PATCH names

A patch's head says what is wrong, and `Test: name` of a case of the program (`Program: ..`, which
is for CMake).  Hunks are applied as conformance/broken/mutate.py applies them: by context, once.
The test fails by an assertion, or by what the emulation says of the kernel; a crash alone would say
that something is wrong, not that anybody looked for it.
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../../../conformance/broken"))
import mutate  # noqa: E402  (conformance/broken)

SECONDS = 300
EMU_EXIT = 70  # tests/cuda/emu/run.h


def make(patch, root, output):
    with open(patch, encoding="utf-8") as file:
        text = file.read()
    path = re.search(r"^\+\+\+ b/(\S+)", text, re.M).group(1)
    with open(os.path.join(root, path), encoding="utf-8") as file:
        source = file.read()
    result = mutate.mutate(source, mutate.read_hunks(text))
    target = os.path.join(output, path)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "w", encoding="utf-8") as file:
        file.write(result)
    return 0


def run(patch, program):
    with open(patch, encoding="utf-8") as file:
        test = re.search(r"^Test: (\w+)$", file.read(), re.M).group(1)
    ended = subprocess.run([program, test], capture_output=True, text=True, timeout=SECONDS,
                           check=False)
    said = ended.stdout + ended.stderr
    failed = re.search(r"\[  FAILED  \] %s\b" % test, said) and "error: Failure!" in said
    named = ended.returncode == EMU_EXIT and "emu: " in said and "RUN      ] " + test in said
    if not failed and not named:
        print("%s\n%s is not found by %s (exit status %d)"
              % (said, os.path.basename(patch), test, ended.returncode))
        return 1
    print("%s finds it" % test)
    return 0


def main(argv):
    try:
        if len(argv) == 5 and argv[1] == "make":
            return make(*argv[2:])
        if len(argv) == 4 and argv[1] == "run":
            return run(*argv[2:])
    except (OSError, ValueError, AttributeError) as error:
        print("judge.py: %s: %s" % (argv[2], error), file=sys.stderr)
        return 1
    print("usage: judge.py make PATCH ROOT OUTPUT_DIR | run PATCH PROGRAM", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv))
