#!/usr/bin/env python3
"""keys.py: renames configuration keys and their values in the whole tree, where words alone do not
tell them apart ("fill" is also a verb). Run from the repository's root; what it changed once
it does not change again. Decision records, change logs and results keep the keys of their time."""
import os
import re
import subprocess

KEPT = ("docs/decisions/", "docs/results/", "CHANGELOG.md", "tools/renames/", "tests/data/",
        "models/")
QUOTE = r'(\\?["\'])'
VALUES = (  # key before, key now, {value before: value now}
    ("fill", "load_policy", {"load": "load", "cut": "split", "ends": "bidirectional"}),
    ("widths", "bit_allocation", {"even": "uniform", "free": "per_channel"}),
    ("codes", "quantise", {"auto": "auto", "no": "no", "yes": "yes"}),
    ("identify", "identify", {"coarse": "quantised"}),
    ("base", "base", {"coarse": "quantised"}),
)
WORDS = (
    (r"layered-even", "layered-uniform"),
    (r"layered\.widths", "layered.bit_allocation"),
    (r"layered\.codes", "layered.quantise"),
    (r"`fill`", "`load_policy`"),
    (r"`fill` (?:is )?`?(cut|ends)`?", r"`load_policy` \1"),
    (r"\bfill cut\b", "load_policy split"),
    (r"\bfill ends\b", "load_policy bidirectional"),
    (r"\bfill load\b", "load_policy load"),
    (r"select\.base coarse", "select.base quantised"),
    (r"select\.identify coarse", "select.identify quantised"),
    (r"identify coarse", "identify quantised"),
    (r'select\.base "coarse"', 'select.base "quantised"'),
)


def renamed(text):
    for key, now, values in VALUES:
        pattern = re.compile(QUOTE + key + r"\1(\s*:\s*)\1(" + "|".join(values) + r")\1")
        text = pattern.sub(lambda m, now=now, values=values: m[1] + now + m[1] + m[2] + m[1] +
                           values[m[3]] + m[1], text)
    for before, now in WORDS:
        text = re.sub(before, now, text)
    return text


def main():
    listed = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True)
    for path in listed.stdout.splitlines():
        if path.startswith(KEPT) or os.path.islink(path):
            continue
        try:
            with open(path, encoding="utf-8", newline="") as file:
                text = file.read()
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        changed = renamed(text)
        if changed != text:
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.write(changed)


if __name__ == "__main__":
    main()
