#!/usr/bin/env python3
"""Writes conformance/engine/unicode_tables.c: the character classes of the GPT-2 pattern.

Two Unicode versions are wanted (conformance/engine/unicode.h says why), so two installs of the PyPI
package unicodedata2, whose version is that of its Unicode:

  pip install --target build/u16 unicodedata2==16.0.0
  pip install --target build/u17 unicodedata2==17.0.0
  tools/make_unicode_tables.py --classes build/u16 --digits build/u17 \\
      > conformance/engine/unicode_tables.c
"""
import argparse
import subprocess
import sys

# White_Space, unchanged since Unicode 6.3; unicodedata does not tell the property.
SPACES = {*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F,
          0x205F, 0x3000}

PROBE = """
import sys
sys.path.insert(0, sys.argv[1])
import unicodedata2 as u
print(u.unidata_version, ''.join(u.category(chr(c))[0] for c in range(0x110000)))
"""


def load(folder):
    """The unicodedata2 of one folder: its version and each character's first category letter.

    A child process each, because a C extension is loaded once a process under one name."""
    child = subprocess.run([sys.executable, "-c", PROBE, folder], check=True, capture_output=True,
                           text=True)
    return child.stdout.split()


def classes(category):
    """The class of each character, None for "other"."""
    kinds = {"L": "LETTER", "N": "NUMBER"}
    return ["SPACE" if c in SPACES else kinds.get(letter) for c, letter in enumerate(category)]


def ranges(kinds):
    """(first, last, kind) of the runs that have a kind."""
    result = []
    for c, kind in enumerate(kinds):
        if kind is None:
            continue
        if result and result[-1][1] == c - 1 and result[-1][2] == kind:
            result[-1][1] = c
        else:
            result.append([c, c, kind])
    return result


def table(name, rows):
    """One C array of ranges and its count, two ranges a line."""
    cells = [f"R(0x{first:04X}, 0x{last:04X}, {kind})," for first, last, kind in rows]
    lines = [" ".join(cells[i:i + 2]) for i in range(0, len(cells), 2)]
    return (f"const struct eng_unicode_range eng_unicode_{name}s[] = {{\n    "
            + "\n    ".join(lines) + "\n};\n"
            + f"const uint64_t eng_unicode_{name}_count = {len(rows)};\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", required=True, help="folder with unicodedata2 of the pattern")
    parser.add_argument("--digits", required=True, help="folder with unicodedata2 of Digits")
    args = parser.parse_args()
    class_version, class_category = load(args.classes)
    digit_version, digit_category = load(args.digits)
    late = [None] * len(class_category)
    for c, (old, new) in enumerate(zip(class_category, digit_category)):
        if old == "N" and new != "N":
            sys.exit(f"U+{c:04X} is a number in {class_version} and none in {digit_version}")
        if old != "N" and new == "N":
            late[c] = "NUMBER"
    sys.stdout.write(f"""/* Character classes of the GPT-2 pattern: generated, do not edit.
 *
 * Classes are those of Unicode {class_version}, late digits the numbers that {digit_version} adds.
 * Command:
 *   tools/make_unicode_tables.py --classes U16 --digits U17 > conformance/engine/unicode_tables.c
 * where U16 and U17 hold the PyPI package unicodedata2 {class_version} and {digit_version}.
 *
 * Holds: ranges rise; those of one class do not touch.
 * Does not: list ENG_UNICODE_OTHER; see unicode.h.
 * Threads: any; constant.
 * Tests: tests/unit/engine/test_tokenizer.c
 */
#include "conformance/engine/unicode.h"

/* clang-format off */
#define R(first, last, kind) {{first, last, ENG_UNICODE_##kind}}

{table("range", ranges(classes(class_category)))}
{table("late_digit", ranges(late))}""")


if __name__ == "__main__":
    main()
