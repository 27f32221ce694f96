#!/usr/bin/env python3
"""rename.py TABLE: renames words and files in the whole tree, mechanically.

A table is a text file. Lines that begin with # are comments; the others are one of
  word OLD NEW   an identifier, where it stands as a whole word; OLD may begin or end with *, which
                 then stands for any further letters, digits and underscores, and so does NEW
  path OLD NEW   a file or a folder, moved with git mv; its path is replaced where it is written,
                 with and without the folder above it
Decision records, change logs and results keep the words of their time. A word that would become one
that stands in a file already is refused, because two things would then have one name.

Exit status: 0 renamed, 1 refused. Tests: tests/unit/tools/test_rename.py."""
import os
import re
import subprocess
import sys

KEPT = ("docs/decisions/", "docs/results/", "CHANGELOG.md", "tools/renames/", "tests/data/",
        "models/")
PATH_BEGINS = r"(?:(?<=\ba/)|(?<=\bb/)|(?<![\w/.-]))"  # a/ and b/: in patches


def git(*words, root="."):
    return subprocess.run(["git", "-C", root, *words], check=True, capture_output=True,
                          text=True).stdout


def read_table(path):
    """([(pattern, old, new)], [(old path, new path)])"""
    words, paths = [], []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            parts = line.split("#", 1)[0].split()
            if not parts:
                continue
            if len(parts) != 3 or parts[0] not in ("word", "path"):
                sys.exit(f"{path}:{number}: found {line.strip()}, expected word|path OLD NEW")
            if parts[0] == "path":
                paths.append((parts[1], parts[2]))
                continue
            old, new = parts[1], parts[2]
            before, after = old.startswith("*"), old.endswith("*")
            if (new.startswith("*"), new.endswith("*")) != (before, after):
                sys.exit(f"{path}:{number}: {old} and {new} differ in their stars")
            pattern = (r"(?<![A-Za-z0-9_])" + (r"(\w*?)" if before else "()") +
                       re.escape(old.strip("*")) + (r"(\w*)" if after else "()") +
                       r"(?![A-Za-z0-9_])")
            words.append((re.compile(pattern), old, new.strip("*")))
    return words, paths


def texts(root):
    """{path: text} of what may be changed."""
    out = {}
    for path in git("ls-files", root=root).splitlines():
        full = os.path.join(root, path)
        if path.startswith(KEPT) or os.path.islink(full):
            continue
        try:
            with open(full, encoding="utf-8", newline="") as file:
                out[path] = file.read()
        except (UnicodeDecodeError, FileNotFoundError):
            continue
    return out


def rename_words(root, words):
    """Changes the files; returns what it refuses."""
    before = texts(root)
    known = {word for text in before.values() for word in re.findall(r"\w+", text)}
    renamed = {}  # new word: old word
    refused = []
    after = {}

    def replace(match, new):
        old, word = match.group(), match.group(1) + new + match.group(2)
        renamed.setdefault(word, set()).add(old)
        return word

    for path, text in before.items():
        changed = text
        for pattern, _, new in words:
            changed = pattern.sub(lambda match, new=new: replace(match, new), changed)
        if changed != text:
            after[path] = changed
    for word, olds in sorted(renamed.items()):
        if word in known and not all(word in old for old in olds):
            refused.append(f"{', '.join(sorted(olds))} would become {word}, which stands already")
        if len(olds) > 1:
            refused.append(f"{', '.join(sorted(olds))} would all become {word}")
    if not refused:
        for path, text in after.items():
            with open(os.path.join(root, path), "w", encoding="utf-8", newline="") as file:
                file.write(text)
    return refused


def forms_of(old, new, is_folder):
    """[(pattern, text)]: how a path is written, whole and without the folder above it."""
    forms = [(re.escape(old) + r"(?![\w-])", new)]
    short = old.split("/", 1)[-1], new.split("/", 1)[-1]
    if is_folder and "/" in old:
        forms.append((re.escape(short[0]) + "/", short[1] + "/"))
    elif old.count("/") > 1:
        forms.append((re.escape(short[0]) + r"(?![\w-])", short[1]))
    return forms


def rename_paths(root, paths):
    forms = []
    for old, new in paths:
        forms += forms_of(old, new, os.path.isdir(os.path.join(root, old)))
        os.makedirs(os.path.dirname(os.path.join(root, new)) or root, exist_ok=True)
        git("mv", old, new, root=root)
    for path, text in texts(root).items():
        changed = text
        for pattern, new in forms:
            changed = re.sub(PATH_BEGINS + pattern, new, changed)
        if changed != text:
            with open(os.path.join(root, path), "w", encoding="utf-8", newline="") as file:
                file.write(changed)


def main(argv):
    if len(argv) != 2:
        sys.exit(__doc__)
    words, paths = read_table(argv[1])
    root = git("rev-parse", "--show-toplevel").strip()
    refused = rename_words(root, words)
    for line in refused:
        print("refused:", line)
    if refused:
        return 1
    rename_paths(root, paths)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
