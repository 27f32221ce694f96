#!/usr/bin/env python3
"""words.py [ROOT]: words and sentences that a stranger would have to learn first.

  BANNED    our former private words, as a part of an identifier (between underscores) or of a file
            name, of C and Python; docs/GLOSSARY.md has the words that stay
  OPENINGS  how no sentence of a document begins

tidy.py accepts neither. Changed words: tools/renames/. Tests: tests/unit/tools/test_words.py."""
import os
import re
import sys

BANNED = {  # word: word of the field
    "annex": "section", "annexes": "sections", "coarse": "quantised", "coded": "quantised",
    "coding": "quant", "course": "h2d_batch", "courses": "h2d_batches", "edition": "row_copy",
    "editions": "row_copies", "guess": "prefetch or prediction", "guessed": "predicted",
    "guesses": "predictions", "hosted": "in_host_tier", "lab": "baseline", "merger": "compactor",
    "outbox": "notify_queue", "parcel": "d2h_batch", "parcels": "d2h_batches",
    "residents": "residency", "sidecar": "section", "sidecars": "sections", "sight": "access",
    "sketch": "selector", "sketches": "selectors", "trust": "accuracy", "wear": "write_budget",
}
OPENINGS = ("Of", "What", "Who", "Whose", "Likewise", "Where")
OPENING_RE = re.compile(r"(?:^|(?<=[.!?] ))(%s) (?=[a-z`])" % "|".join(OPENINGS))
CODE_SUFFIXES = (".c", ".cu", ".h", ".py")
STRING = r'"(?:\\.|[^"\\\n])*"'
NO_CODE = {  # comments, strings and characters
    "c": re.compile(r"/\*.*?\*/|//[^\n]*|'(?:\\.|[^'\\\n])'|" + STRING, re.S),
    "py": re.compile(r'""".*?"""|#[^\n]*|' + STRING + r"|'(?:\\.|[^'\\\n])*'", re.S),
}
# tools/renames/ keeps the words of their time, and so do patches; this file names them.
KEPT = ("tools/renames/", "tools/words.py", "tests/unit/tools/test_words.py",
        "tests/unit/tools/test_rename.py")


def blanked(match):
    return re.sub(r"[^\n]", " ", match.group())


def check_name(path, found):
    for part in re.split(r"[/_.-]", path):
        if part in BANNED:
            found.add(path, 1, "file name has %s, expected %s" % (part, BANNED[part]))


def check_code(path, text, found):
    code = NO_CODE["c" if path.endswith((".c", ".cu", ".h")) else "py"].sub(blanked, text)
    for number, line in enumerate(code.split("\n"), 1):
        for word in re.findall(r"[A-Za-z_]\w*", line):
            for part in set(word.lower().split("_")) & set(BANNED):
                found.add(path, number, "%s has %s, expected %s" % (word, part, BANNED[part]))


def check_document(path, text, found):
    """A sentence may begin in the midst of a line; what stands between ``` lines is no prose."""
    is_prose, before = True, ""
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            is_prose = not is_prose
        starts = not before.strip() or before.rstrip().endswith((".", "!", "?", ":"))
        before = line
        if not is_prose or line.startswith(("#", "    ")):
            continue
        body = re.sub(r"^\s*(?:[-*>]|\d+\.)\s+", "", line)
        is_item = body != line
        for match in OPENING_RE.finditer(body):
            if match.start() > 0 or starts or is_item:
                found.add(path, number, "a sentence begins with %s, expected a subject or a "
                          "conjunction (if, when, for)" % match.group(1))
        for cell in re.findall(r"\| (%s) (?=[a-z`])" % "|".join(OPENINGS), line):
            found.add(path, number, "a cell begins with %s, expected a phrase" % cell)


def check(path, text, found):
    if path.startswith(KEPT):
        return
    is_python = path.endswith(".py") or re.match(r"#!.*python", text)
    if path.endswith(CODE_SUFFIXES) or is_python:
        check_name(path, found)
        check_code(path, text, found)
    elif path.endswith(".md") and not path.startswith("models/"):
        check_document(path, text, found)


def main(argv):
    import tidy
    root = argv[1] if len(argv) > 1 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found = tidy.Findings()
    for path in tidy.tree_files(root):
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            check(path, file.read(), found)
    for line in sorted(set(found.lines)):
        print("%s:%d: %s" % line)


if __name__ == "__main__":
    main(sys.argv)
