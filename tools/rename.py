#!/usr/bin/env python3
"""rename.py TABLE: renames words and files in the whole tree, mechanically.

A table is a text file. Lines that begin with # are comments; the others are one of
  word OLD NEW   an identifier, where it stands as a whole word; OLD may begin or end with *, which
                 then stands for any further letters, digits and underscores, and so does NEW.
                 `in GLOB...` behind it: only in files whose path fits one of these, and in
                 patches of such files; comments and strings keep the word
  path OLD NEW   a file or a folder, moved with git mv; its path is replaced where it is written,
                 with and without the folder above it, and a file's name alone if no other has it.
                 OLD.* and NEW.*: all files of that name, whatever they end with
Decision records, change logs and results keep the words of their time. Two things never get one
name: a word is refused that would become one in use, a public one (sc_, SC_, spec_, SPEC_)
anywhere, another one in the code of a file that is changed.

Lines that become too long are left to the caller: clang-format would reflow drawings in comments.

Exit status: 0 renamed, 1 refused. Tests: tests/unit/tools/test_rename.py."""
import collections
import fnmatch
import os
import re
import subprocess
import sys

from words import NO_CODE

KEPT = ("docs/decisions/", "docs/results/", "CHANGELOG.md", "tools/renames/", "tests/data/",
        "tests/unit/tools/test_rename.py", "models/")
CODE = (".c", ".cpp", ".cu", ".h", ".py")
PUBLIC_RE = re.compile(r"sc_|SC_|spec_|SPEC_")
PATCHED_RE = re.compile(r"^\+\+\+ b/(\S+)", re.M)
PATH_BEGINS = r"(?:(?<=\ba/)|(?<=\bb/)|(?<![\w/.-]))"  # a/ and b/: in patches


def git(*words, root="."):
    return subprocess.run(["git", "-C", root, *words], check=True, capture_output=True,
                          text=True).stdout


def read_table(path):
    """([(pattern, new, globs)], [(old path, new path)])"""
    words, paths = [], []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            parts = line.split("#", 1)[0].split()
            if not parts:
                continue
            globs = parts[4:] if parts[3:4] == ["in"] and parts[0] == "word" else []
            if len(parts) != (4 + len(globs) if globs else 3) or parts[0] not in ("word", "path"):
                sys.exit(f"{path}:{number}: found {line.strip()}, expected word|path OLD NEW"
                         " [in GLOB...]")
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
            words.append((re.compile(pattern), new.strip("*"), globs))
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


def in_code(text, change):
    """The text with what is neither comment nor string changed; of a patch, its hunks alone."""
    patched = PATCHED_RE.search(text)
    at = patched.start() if patched else 0
    out = [text[:at]]
    for match in NO_CODE["c"].finditer(text, at):
        out += [change(text[at:match.start()]), match.group()]
        at = match.end()
    return "".join(out) + change(text[at:])


def rename_words(root, words):
    """Changes the files; returns what it refuses."""
    before = texts(root)
    known = {word for text in before.values() for word in re.findall(r"\w+", text)}
    known_in = {}  # path: words of the code
    renamed = collections.defaultdict(set)  # (path, or None for public words; new word): old words
    refused = []
    after = {}

    def replace(match, new, path):
        old, word = match.group(), match.group(1) + new + match.group(2)
        if PUBLIC_RE.match(word):
            renamed[None, word].add(old)
            return word
        if path not in known_in:
            code = NO_CODE["c"].sub(" ", before[path]) if path.endswith(CODE) else ""
            known_in[path] = set(re.findall(r"\w+", code))
        if old in known_in[path]:
            renamed[path, word].add(old)
        return word

    for path, text in before.items():
        changed = text
        patched = PATCHED_RE.search(text) if path.endswith(".patch") else None
        place = patched.group(1) if patched else path
        for pattern, new, globs in words:
            def put(match, new=new):
                return replace(match, new, path)
            if not globs:
                changed = pattern.sub(put, changed)
            elif any(fnmatch.fnmatch(place, glob) for glob in globs):
                changed = in_code(changed, lambda code, pattern=pattern, put=put:
                                  pattern.sub(put, code))
        if changed != text:
            after[path] = changed
    for (path, word), olds in renamed.items():
        where = f" in {path}" if path else ""
        if word in (known_in[path] if path else known) and not all(word in old for old in olds):
            refused.append(f"{', '.join(sorted(olds))} would become {word}, which stands already"
                           f"{where}")
        if len(olds) > 1:
            refused.append(f"{', '.join(sorted(olds))} would all become {word}{where}")
    if not refused:
        for path, text in after.items():
            with open(os.path.join(root, path), "w", encoding="utf-8", newline="") as file:
                file.write(text)
    return refused


def files_of(root, old, new):
    """[(old, new)] of one line: several if the names end with .*"""
    if not old.endswith(".*"):
        return [(old, new)]
    found = [path for path in git("ls-files", os.path.dirname(old), root=root).splitlines()
             if os.path.splitext(path)[0] == old[:-2]]
    if not found:
        sys.exit(f"{old}: no such file, expected a file of the tree")
    return [(path, new[:-2] + os.path.splitext(path)[1]) for path in found]


def moved(root, paths):
    """{path before: path after} of all files that move, and the same of folders as lines say."""
    files = {path: path for path in git("ls-files", root=root).splitlines()}
    folders = {}
    for line in paths:
        for old, new in files_of(root, *line):
            if os.path.isdir(os.path.join(root, old)):
                folders[old] = new
            for path, now in files.items():
                if now == old or now.startswith(old + "/"):
                    files[path] = new + now[len(old):]
            os.makedirs(os.path.dirname(os.path.join(root, new)) or root, exist_ok=True)
            git("mv", old, new, root=root)
    return files, folders


def written_as(files, folders):
    """{text: text}: how paths that moved are written: whole, without the folder above, alone."""
    names = collections.Counter(os.path.basename(path) for path in files)
    forms = {}
    for old, new in folders.items():
        forms[old] = new
        if "/" in old:
            forms[old.split("/", 1)[1] + "/"] = new.split("/", 1)[1] + "/"
    for old, new in files.items():
        if old == new:
            continue
        forms[old] = new
        if old.count("/") > 1:
            forms[old.split("/", 1)[1]] = new.split("/", 1)[1]
        if names[os.path.basename(old)] == 1:
            forms[os.path.basename(old)] = os.path.basename(new)
    return forms


def rename_paths(root, paths):
    if not paths:
        return
    forms = written_as(*moved(root, paths))
    pattern = re.compile(PATH_BEGINS + "(" + "|".join(
        re.escape(form) + ("" if form.endswith("/") else r"(?![\w-])")
        for form in sorted(forms, key=lambda form: (-len(form), form))) + ")")
    for path, text in texts(root).items():
        changed = pattern.sub(lambda match: forms[match.group(1)], text)
        if changed != text:
            with open(os.path.join(root, path), "w", encoding="utf-8", newline="") as file:
                file.write(changed)


def main(argv):
    if len(argv) != 2:
        sys.exit(__doc__)
    words, paths = read_table(argv[1])
    root = git("rev-parse", "--show-toplevel").strip()
    refused = rename_words(root, words)
    for line in sorted(refused):
        print("refused:", line)
    if refused:
        return 1
    rename_paths(root, paths)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
