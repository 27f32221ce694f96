#!/usr/bin/env python3
"""mutate.py PATCH SOURCE OUTPUT: one mutant's source, made from the tree's.

  PATCH   any text (its head: what is wrong; `Clause: ABI-nnn` or `OBJ-nnn`, or, where no clause can
          see it, `Test: PROGRAM NAME`, one or more), then a unified diff of one file

Holds: the lines that a hunk takes away, with those around them, stand in the source exactly once;
line numbers do not matter.  Does not: guess; a hunk that does not fit, or fits twice, ends the
build with status 1, so that a mutant never turns into the real thing unseen.
Tests: conformance/broken/test_mutate.py; test_mutant.py runs what comes of it.
"""
import re
import sys


def read_hunks(text):
    """[(old lines, new lines)] of a unified diff; text before the first @@ is the head."""
    hunks = []
    for line in text.split("\n")[:-1]:
        if line.startswith("@@"):
            hunks.append(([], []))
        elif hunks and line[:1] in (" ", ""):
            hunks[-1][0].append(line[1:])
            hunks[-1][1].append(line[1:])
        elif hunks and line[0] == "-":
            hunks[-1][0].append(line[1:])
        elif hunks and line[0] == "+":
            hunks[-1][1].append(line[1:])
        elif hunks:
            raise ValueError("not a line of a unified diff: %r" % line)
    if not hunks:
        raise ValueError("no hunk, expected a unified diff")
    return hunks


def mutate(text, hunks):
    """The source with all hunks applied; ValueError says which one does not fit."""
    for number, (old, new) in enumerate(hunks, 1):
        if old == new:
            raise ValueError("hunk %d changes nothing" % number)
        lines = text.split("\n")
        places = [i for i in range(len(lines) - len(old) + 1) if lines[i:i + len(old)] == old]
        if len(places) != 1:
            raise ValueError("hunk %d fits at %d places, expected one; it looks for\n%s"
                             % (number, len(places), "\n".join("    " + line for line in old)))
        at = places[0]
        text = "\n".join(lines[:at] + new + lines[at + len(old):])
    return text


def read_clause(text):
    """The clause in a patch's head: ABI-058."""
    match = re.search(r"^Clause: ((?:ABI|OBJ)-\d{3})$", text, re.M)
    if match is None:
        raise ValueError("no line `Clause: ABI-nnn` or `OBJ-nnn` in the head")
    return match.group(1)


def read_tests(text):
    """[(program, test)] of the unit tests in a patch's head; none: a clause judges it."""
    return re.findall(r"^Test: (\w+) (\w+)$", text, re.M)


def main(argv):
    if len(argv) != 4:
        print("usage: mutate.py PATCH SOURCE OUTPUT", file=sys.stderr)
        return 2
    try:
        with open(argv[1], encoding="utf-8") as file:
            patch = file.read()
        with open(argv[2], encoding="utf-8") as file:
            source = file.read()
        if not read_tests(patch):
            read_clause(patch)
        result = mutate(source, read_hunks(patch))
    except (OSError, ValueError) as error:
        print("mutate.py: %s does not fit %s: %s" % (argv[1], argv[2], error), file=sys.stderr)
        return 1
    with open(argv[3], "w", encoding="utf-8") as file:
        file.write(result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
