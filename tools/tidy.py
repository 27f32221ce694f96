#!/usr/bin/env python3
"""tidy.py: checks the rules of this tree that a compiler cannot see.

usage: tools/tidy.py [ROOT]          exit 0: clean, 1: something was found, 2: no such tree

  every text file      no tab, no line of leftover work, a newline at the end
  C, Python, scripts   at most 100 columns
  C and CUDA           at most 70 lines a function; the opening comment; includes from the root and
                       of folders that the includer's row allows, of plugin/baselines/ its one
                       header, of floors (store/io/, store/rows/ ..) those below and one's own; no
                       banned call outside base/
  calls between files  no cycle, no call of a lower layer to an upper one, no base name twice
                       (tools/structure.py)
  words                no former private word in an identifier or a file name, no sentence of a
                       document that begins with one of a few words (tools/words.py)
  the contract         every clause of abi/spec_connector.h and abi/spec_objects.h has a test, or
                       stands in conformance/clauses-later.txt with what it waits for; never
                       both, and no test names a clause that does not exist

Holds: a finding is one line, `path:line: what, what was expected`.  Does not: change a file, parse
C (it blanks comments and strings and follows braces), or look at build output, data and models.
Tests: tests/unit/tools/test_tidy.py.
"""
import ast
import os
import re
import sys

import structure
import words

COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 70

C_SUFFIXES = (".c", ".h", ".cu", ".cuh", ".cpp")
CODE_SUFFIXES = C_SUFFIXES + (".py", ".sh", ".cmake")
TEXT_SUFFIXES = CODE_SUFFIXES + (".md", ".txt", ".map", ".in", ".yml", ".yaml", ".supp")
SKIPPED_NAMES = {".git", "build", ".cache", "__pycache__", "corpus", "corpora"}
SKIPPED_PATHS = {"models", "tests/data"}

# The first table of docs/internals/architecture.md: the folders that a folder may include.
# ANY: measures or tests all.
ANY = None
BASE_LINKED = ("hashing", "store", "kernels", "gpu", "plugin", "plugin/baselines")
ALLOWED = {
    "abi": (),
    "base": ("abi",),
    "hashing": ("base",),
    "store": ("base",),
    "kernels": ("base",),
    "gpu": ("base",),
    "plugin": ("abi", "base", "hashing", "store", "kernels", "gpu", "plugin/baselines"),
    "plugin/baselines": ("base", "hashing", "store", "kernels"),
    "conformance/engine": ("abi",),
    "conformance": ("abi", "conformance/engine", "conformance/device"),
    "conformance/device": ("abi", "gpu"),
    "integrations": ("abi",),
    "python": ("abi",),
    "examples": ("abi",),
    "tests/sim": ("abi", "base", "hashing", "store", "plugin"),
    "tests": ANY,
    "tools": ANY,
    "bench": ANY,
}
# Folders inside one of these: a row of their own, and the one header that is included from outside
# (their unit tests look inside).
ROOMS = {"plugin/baselines": "plugin/baselines/baselines.h"}
# Floors of a folder, the lowest first. Headers that stand in the folder itself are on none: who may
# be called (store.h, load.h, erase.h), and the state of all floors put together.
FLOORS = {
    "store": ("io", "rows", "log", "space", "replay", "cache", "read", "write", "section",
              "erase", "object"),
    "plugin": ("args", "device", "quant", "load_or_compute", "index", "save", "peers", "select",
               "load", "request", "objects"),
}
# Third-party headers, and the folders that may include them.
THIRD_PARTY = (
    (r"json-c/|json\.h", "json-c", ("base", "plugin", "conformance/engine", "conformance", "tests",
                                    "tests/sim", "tools", "bench")),
    (r"msgpack", "msgpack-c", ("store", "tests", "tools", "bench")),
    (r"xxhash|xxh3", "xxHash", ("hashing", "store", "tests", "tools", "bench")),
    (r"sha2\.h|libmd", "libmd", ("hashing", "tests")),
    (r"liburing", "liburing", ("store", "tests", "bench")),
    (r"cblas|openblas|lapacke?\.h", "BLAS", ("conformance/engine", "bench")),
    (r"cmocka", "cmocka", ("conformance", "tests")),
    (r"cuda|cublas|nccl", "CUDA", ("kernels", "plugin", "tests", "bench")),
)

# Calls that only base/ may make in the folders linked into the plugin.
BANNED_CALLS = (
    "malloc calloc realloc reallocarray free strdup strndup asprintf vasprintf aligned_alloc "
    "memalign posix_memalign printf vprintf puts putchar perror sleep usleep nanosleep "
    "clock_nanosleep pthread_create thrd_create clock_gettime gettimeofday time clock getenv "
    "secure_getenv abort exit _exit _Exit quick_exit").split()
# Names with no innocent meaning: even taking their address is a use.
BANNED_NAMES = ("malloc calloc realloc strdup pthread_create clock_gettime gettimeofday getenv "
                "stdout stderr").split()
CALL_RE = re.compile(r"(?<![\w.])(?<!->)(?:(%s)|\(\s*(%s)\s*\))\s*\("
                     % ("|".join(BANNED_CALLS), "|".join(BANNED_CALLS)))
NAME_RE = re.compile(r"(?<![\w.])(?<!->)(%s)\b(?!\s*\()" % "|".join(BANNED_NAMES))
LEFTOVER_RE = re.compile(r"\b(%s)\b" % "|".join(("TO" "DO", "FIX" "ME", "X" "XX")))
INCLUDE_RE = re.compile(r'#[ \t]*include\s*(<([^>]+)>|"([^"]+)"|(\S+))')
# Headers of the contract, and what their clauses begin with: [ABI-nnn], tested by abi_nnn_*.
CONTRACTS = {"ABI": "abi/spec_connector.h", "OBJ": "abi/spec_objects.h"}
CLAUSE_RE = re.compile(r"\[((?:%s)-\d{3})\]" % "|".join(CONTRACTS))
TEST_NAME_RE = re.compile(r"((?:%s)_\d{3})_\w+$" % "|".join(CONTRACTS).lower())
LATER_RE = re.compile(r"((?:%s)-\d{3}): \S" % "|".join(CONTRACTS))


class Findings:
    """What was found, in the order of the files."""

    def __init__(self):
        self.lines = []

    def add(self, path, line, text):
        self.lines.append((path, line, text))


# ---- Reading C ---------------------------------------------------------------------------------

TOKEN_RE = re.compile(
    r"//(?:[^\n\\]|\\.|\\\n)*|/\*.*?\*/|/\*.*\Z"
    r'|"(?:[^"\\\n]|\\.|\\\n)*"|\'(?:[^\'\\\n]|\\.|\\\n)*\'', re.S)
DIRECTIVE_RE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.M | re.S)


def keep_newlines(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def blank_string(match):
    """Blanks a comment wholly and a literal between its quotes, so that every offset stays."""
    text = match.group(0)
    if text[0] == "/":
        return keep_newlines(match)
    return text[0] + re.sub(r"[^\n]", " ", text[1:-1]) + text[-1]


def without_comments(text):
    return TOKEN_RE.sub(blank_string, text)


def first_branches(text):
    """Blanks the #else and #elif branches: then braces balance where both sides open a block."""
    out, hidden = [], []
    for line in text.split("\n"):
        word = re.match(r"\s*#\s*(\w+)", line)
        word = word.group(1) if word else ""
        if word in ("if", "ifdef", "ifndef"):
            hidden.append(False)
        elif word in ("else", "elif") and hidden:
            hidden[-1] = True
        elif word == "endif" and hidden:
            hidden.pop()
        out.append("" if any(hidden) and not word else line)
    return "\n".join(out)


def head_is_function(head):
    """True where the text before a `{` at depth 0 declares a function."""
    head = re.sub(r"__attribute__\s*\(\(.*?\)\)|\bnoexcept\b", " ", head, flags=re.S).strip()
    if not head.endswith(")"):
        return False
    depth = 0
    for char in head:
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == "=" and depth == 0:
            return False
    return not re.match(r"(typedef|struct|union|enum)\b[^()]*$", head)


def function_name(head):
    head = re.sub(r"__attribute__\s*\(\(.*?\)\)", " ", head, flags=re.S)
    names = re.findall(r"(\w+)\s*\(", head)
    return names[0] if names else "?"


def scan_braces(code):
    """Returns (functions, balanced); a function is (name, first line, last line)."""
    found, depth, transparent = [], 0, 0
    head_from, open_head = 0, None
    for match in re.finditer(r"[{};]", code):
        char, at = match.group(0), match.start()
        if char == "{":
            head = code[head_from:at]
            if depth == 0 and re.search(r'\bextern\s*"[^"]*"\s*$|\bnamespace\b[^()]*$', head):
                transparent += 1
                head_from = at + 1
                continue
            if depth == 0:
                lead = len(head) - len(head.lstrip())
                is_function = head_is_function(head)
                open_head = (function_name(head), head_from + lead) if is_function else None
            depth += 1
        elif char == "}":
            if depth == 0:
                if transparent == 0:
                    return found, False
                transparent -= 1
            else:
                depth -= 1
                if depth == 0 and open_head:
                    name, start = open_head
                    found.append((name, code.count("\n", 0, start) + 1,
                                  code.count("\n", 0, at) + 1))
            if depth == 0:
                head_from = at + 1
        elif depth == 0:
            head_from = at + 1
    return found, depth == 0 and transparent == 0


def c_functions(text):
    """The functions of a C text: [(name, first line, last line)], signature included."""
    code = without_comments(text)
    found, balanced = scan_braces(DIRECTIVE_RE.sub(keep_newlines, code))
    if not balanced:
        found, balanced = scan_braces(DIRECTIVE_RE.sub(keep_newlines, first_branches(code)))
    return found


# ---- Rules for one file ------------------------------------------------------------------------

def folder_of(path):
    """The row of ALLOWED that a path belongs to."""
    for inner in (*ROOMS, "conformance/engine", "conformance/device", "tests/sim"):
        if path.startswith(inner + "/"):
            return inner
    return path.split("/", 1)[0] if "/" in path else ""


def allowed_for(path):
    """(folders that the file may include, how they are named in a message); ANY: all."""
    folder = folder_of(path)
    allowed = ALLOWED.get(folder, ANY)
    unit = re.match(r"tests/unit/(\w+)/", path)
    if unit:
        tested = "conformance/engine" if unit.group(1) == "engine" else unit.group(1)
        row = ALLOWED.get(tested, ANY)
        allowed = ANY if row is ANY else ("tests", "tests/sim", tested, "abi") + row
    elif allowed is not ANY:
        allowed = (folder,) + allowed
    return allowed


def floor_of(path):
    """(folder, number of the floor, from 0) of a path; None: it is on no floor."""
    parts = path.split("/")
    floors = FLOORS.get(parts[0], ())
    return (parts[0], floors.index(parts[1])) if len(parts) > 2 and parts[1] in floors else None


def check_floor(path, found):
    parts = path.split("/")
    if len(parts) > 2 and parts[0] in FLOORS and floor_of(path) is None and (
            folder_of(path) not in ROOMS):
        found.add(path, 1, "%s/ is no floor of %s/, expected one of: %s"
                  % (parts[1], parts[0], ", ".join(FLOORS[parts[0]])))


def check_include(root, path, line, name, found):
    if path.startswith("abi/") and os.path.isfile(os.path.join(root, "abi", name)):
        return  # hosts take these headers out of the tree, into one folder
    if name.startswith((".", "/")) or "/../" in name or not os.path.isfile(
            os.path.join(root, name)):
        if os.path.isfile(os.path.join(root, os.path.dirname(path), name)):
            found.add(path, line, 'include "%s" is relative, expected the path from the root'
                      % name)
        else:
            found.add(path, line, 'include "%s" is not a file of the tree, expected a path from '
                      "the root, or <> for a system header" % name)
        return
    allowed = allowed_for(path)
    if allowed is not ANY and folder_of(name) not in allowed:
        found.add(path, line, 'include "%s" is not in this folder\'s row, expected one of: %s'
                  % (name, ", ".join(sorted(set(allowed)))))
    here, there = floor_of(path), floor_of(name)
    if here and there and here[0] == there[0] and there[1] > here[1]:
        found.add(path, line, 'include "%s" is on a floor above, expected one of: %s'
                  % (name, ", ".join(FLOORS[here[0]][:here[1] + 1])))
    room = folder_of(name)
    if ROOMS.get(room, name) != name and folder_of(path) != room and not path.startswith(
            "tests/unit/%s/" % room.split("/")[0]):
        found.add(path, line, 'include "%s" is inside %s/, expected "%s"'
                  % (name, room, ROOMS[room]))


def check_includes(root, path, text, found):
    # Strings are blanked in code, so the directive is found there and read in the text.
    code = without_comments(text)
    for match in re.finditer(r"^[ \t]*(#)[ \t]*include\b", code, re.M):
        raw = INCLUDE_RE.match(text, match.start(1))
        if raw is None:
            continue
        line = text.count("\n", 0, raw.start(1)) + 1
        if raw.group(3) is not None:
            check_include(root, path, line, raw.group(3), found)
        elif raw.group(2) is not None:
            name = raw.group(2)
            for pattern, library, folders in THIRD_PARTY:
                if re.match(pattern, name) and folder_of(path) not in folders:
                    found.add(path, line, "include <%s> brings %s, expected only in: %s"
                              % (name, library, ", ".join(folders)))
            if os.path.isfile(os.path.join(root, name)):
                found.add(path, line, 'include <%s> is a file of ours, expected "%s"'
                          % (name, name))
        else:
            found.add(path, line, 'include %s is a macro, expected "path/from/root.h" or <...>'
                      % raw.group(4))


def check_calls(path, text, found):
    if folder_of(path) not in BASE_LINKED:
        return
    code = without_comments(text)
    for pattern in (CALL_RE, NAME_RE):
        for match in pattern.finditer(code):
            name = next(group for group in match.groups() if group)
            found.add(path, code.count("\n", 0, match.start()) + 1,
                      "%s is banned outside base/, expected base's own" % name)


def check_functions(path, functions, found):
    for name, first, last in functions:
        if last - first + 1 > FUNCTION_LINES_MAX:
            found.add(path, first, "function %s has %d lines, expected at most %d"
                      % (name, last - first + 1, FUNCTION_LINES_MAX))


def check_opening(path, text, found):
    if path.startswith("tests/fixtures/"):
        return
    if not text.lstrip().startswith(("/*", "//")):
        found.add(path, 1, "no opening comment, expected what the file is, its data, and its rules")


def check_text(path, text, found):
    is_code = path.endswith(CODE_SUFFIXES) or is_script(path, text)
    for number, line in enumerate(text.split("\n"), 1):
        if is_code and len(line) > COLUMNS_MAX:
            found.add(path, number, "%d columns, expected at most %d" % (len(line), COLUMNS_MAX))
        if "\t" in line:
            found.add(path, number, "a tab, expected spaces")
        if "\r" in line:
            found.add(path, number, "a carriage return, expected newline alone")
        leftover = LEFTOVER_RE.search(line)
        if leftover:
            found.add(path, number, "%s left in the tree, expected finished work or an issue"
                      % leftover.group(1))
    if text and not text.endswith("\n"):
        found.add(path, text.count("\n") + 1, "no newline at the end of the file, expected one")


def python_functions(path, text, found):
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        found.add(path, error.lineno or 1, "not Python: %s, expected a file that parses"
                  % error.msg)
        return []
    return [(node.name, node.lineno, node.end_lineno) for node in ast.walk(tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


# ---- Rules for the contract --------------------------------------------------------------------

def read_later(root, found):
    """conformance/clauses-later.txt as {clause: line}; a line is `ABI-nnn: what it waits for`."""
    path, later = "conformance/clauses-later.txt", {}
    full = os.path.join(root, path)
    if not os.path.isfile(full):
        return later
    with open(full, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip() or line.startswith("#"):
                continue
            match = LATER_RE.match(line)
            if not match:
                found.add(path, number, "not a clause, expected `ABI-nnn: what it waits for`")
            elif match.group(1) in later:
                found.add(path, number, "%s a second time, expected once" % match.group(1))
            else:
                later[match.group(1)] = number
    return later


def read_clauses(root):
    """Every clause of the contract as {"ABI-001": (header, line)}; a header has its own alone."""
    clauses = {}
    for prefix, header in CONTRACTS.items():
        if not os.path.isfile(os.path.join(root, header)):
            continue
        with open(os.path.join(root, header), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                for clause in CLAUSE_RE.findall(line):
                    if clause.startswith(prefix):
                        clauses.setdefault(clause, (header, number))
    return clauses


def check_clauses(root, functions, found):
    """functions: {path: [(name, first, last)]} of conformance/ and tests/."""
    clauses, tests = read_clauses(root), {}
    for path in sorted(functions):
        for name, first, _ in functions[path]:
            match = TEST_NAME_RE.match(name)
            if match:
                tests.setdefault(match.group(1).upper().replace("_", "-"), (path, first))
    later = read_later(root, found)
    for clause, (header, number) in sorted(clauses.items()):
        if clause not in tests and clause not in later:
            found.add(header, number, "clause %s has no test, expected %s_* in conformance/ or "
                      "tests/, or a line in clauses-later.txt"
                      % (clause, clause.lower().replace("-", "_")))
    for clause, (path, first) in sorted(tests.items()):
        if clause not in clauses:
            found.add(path, first, "test of %s, expected a clause of %s"
                      % (clause, CONTRACTS[clause[:3]]))
        elif clause in later:
            found.add("conformance/clauses-later.txt", later[clause],
                      "%s has a test (%s:%d), expected no line here" % (clause, path, first))
    for clause in sorted(set(later) - set(clauses)):
        found.add("conformance/clauses-later.txt", later[clause],
                  "%s is unknown, expected a clause of %s" % (clause, CONTRACTS[clause[:3]]))


# ---- The tree ----------------------------------------------------------------------------------

def is_script(path, text):
    return "." not in os.path.basename(path) and text.startswith("#!")


def is_text(path):
    name = os.path.basename(path)
    return (name.endswith(TEXT_SUFFIXES) or "." not in name
            or name in (".clang-format", ".gitignore"))


def tree_files(root):
    for folder, dirs, names in os.walk(root):
        dirs[:] = sorted(d for d in dirs if d not in SKIPPED_NAMES and not d.startswith("build-")
                         and os.path.relpath(os.path.join(folder, d), root) not in SKIPPED_PATHS)
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), root)
            if is_text(path) and os.path.isfile(os.path.join(root, path)):
                yield path


def check_file(root, path, functions, found):
    try:
        with open(os.path.join(root, path), encoding="utf-8", newline="") as file:
            text = file.read()
    except UnicodeDecodeError as error:
        if path.endswith(TEXT_SUFFIXES):
            found.add(path, 1, "not UTF-8 at byte %d, expected text" % error.start)
        return
    if "." not in os.path.basename(path) and "\0" in text:
        return
    check_text(path, text, found)
    words.check(path, text, found)
    if path.endswith(C_SUFFIXES):
        check_opening(path, text, found)
        check_floor(path, found)
        check_includes(root, path, text, found)
        check_calls(path, text, found)
        functions[path] = c_functions(text)
        check_functions(path, functions[path], found)
    elif path.endswith(".py") or re.match(r"#!.*python", text):
        check_functions(path, python_functions(path, text, found), found)


def check_tree(root):
    """Returns the findings as lines, sorted by path and line."""
    found, functions = Findings(), {}
    for path in tree_files(root):
        check_file(root, path, functions, found)
    check_clauses(root, {p: f for p, f in functions.items()
                         if p.startswith(("conformance/", "tests/"))}, found)
    structure.check(root, FLOORS, found)
    return ["%s:%d: %s" % line for line in sorted(set(found.lines))]


def main(argv):
    root = argv[1] if len(argv) > 1 else os.path.dirname(os.path.dirname(
        os.path.abspath(__file__)))
    if len(argv) > 2 or not os.path.isdir(root):
        print("tidy.py: %s is not a folder, expected: tidy.py [ROOT]" % root, file=sys.stderr)
        return 2
    lines = check_tree(root)
    for line in lines:
        print(line)
    print("tidy: %s" % ("clean" if not lines else "%d found" % len(lines)))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
