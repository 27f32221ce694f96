#!/usr/bin/env python3
"""structure.py [ROOT]: how the C files of each product folder call each other, in numbers.

  largest-cycle     files in the largest cycle of calls: a.c calls a public function (sc_*) that b.c
                    defines, or an inline one of b.h, and so on back to a.c
  upward-calls      pairs of files, of which the lower layer's calls the upper layer's
  duplicate-names   base names of C files that stand more than once in the product

A call through a table or a callback is no call here: that is how a lower layer tells an upper one.
Files in the product folder itself (connector.c, tick.c, open.c) are in no layer: they put the
layers together. tidy.py accepts none of the three. Tests: tests/unit/tools/test_structure.py."""
import collections
import os
import re
import sys

PRODUCT = ("abi", "base", "hashing", "store", "kernels", "plugin", "gpu")
DEFINITION_RE = re.compile(r"^(?:[A-Za-z_][^;={}()\n]*?\b)?(sc_\w+)\([^;{]*\)\s*\{", re.M)
NAME_RE = re.compile(r"\bsc_\w+\b")


def without_comments(text):
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def c_files(root, folder, suffixes=(".c",)):
    for at, folders, names in os.walk(os.path.join(root, folder)):
        folders.sort()
        for name in sorted(names):
            if name.endswith(suffixes):
                yield os.path.relpath(os.path.join(at, name), root)


def body_of(text, match):
    return text[match.end():text.find("\n}", match.end())]


def calls(root, folder):
    """{caller's file: {callee's file}}, of the files of one folder. Inline functions of a header
    are the header's; it and the C file of its name are one module, so what they call of each
    other does not count."""
    texts = {}
    for path in c_files(root, folder, (".c", ".h")):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            texts[path] = without_comments(file.read())
    defined = {path: list(DEFINITION_RE.finditer(text)) for path, text in texts.items()}
    home = {match.group(1): path for path, found in defined.items() for match in found
            if path.endswith(".h") or not match.group().startswith("static")}
    graph = {}
    for path, text in texts.items():
        if path.endswith(".h"):  # declarations are no calls
            text = "\n".join(body_of(text, match) for match in defined[path])
        called = {home[name] for name in NAME_RE.findall(text) if name in home}
        graph[path] = {other for other in called if other[:-2] != path[:-2]}
    return graph


def reached(graph, start):
    seen, unvisited = set(), [start]
    while unvisited:
        for other in graph.get(unvisited.pop(), ()):
            if other not in seen:
                seen.add(other)
                unvisited.append(other)
    return seen


def cycles(graph):
    """Sets of files that reach each other, of two files and more, the largest first."""
    reach = {path: reached(graph, path) for path in graph}
    found = {frozenset(other for other in reach[path] if path in reach[other]) for path in graph}
    return sorted((cycle for cycle in found if len(cycle) > 1), key=lambda c: (-len(c), sorted(c)))


def upward(graph, folder, layers):
    """[(caller, callee)]: the callee's layer is above the caller's. layers: the lowest first."""
    def layer(path):
        name = path.split("/")[1]
        return layers.index(name) if path.count("/") > 1 and name in layers else None
    return sorted((a, b) for a in graph for b in graph[a]
                  if layer(a) is not None and layer(b) is not None and layer(b) > layer(a))


def duplicates(root):
    names = collections.Counter(os.path.basename(path) for folder in PRODUCT
                                for path in c_files(root, folder))
    return sorted(name for name, count in names.items() if count > 1)


def measure(root, layers):
    """({(folder, what): number}, lines that explain them)"""
    numbers, lines = {}, []
    for folder in PRODUCT:
        if not os.path.isdir(os.path.join(root, folder)):
            continue
        graph = calls(root, folder)
        rings, ups = cycles(graph), upward(graph, folder, layers.get(folder, ()))
        numbers[folder, "largest-cycle"] = len(rings[0]) if rings else 0
        numbers[folder, "upward-calls"] = len(ups)
        lines += ["%s: a cycle of %d files: %s" % (folder, len(ring), " ".join(
            os.path.basename(path) for path in sorted(ring))) for ring in rings]
        lines += ["%s: %s calls up to %s" % (folder, a, b) for a, b in ups]
    repeated = duplicates(root)
    numbers["product", "duplicate-names"] = len(repeated)
    lines += ["product: %s stands more than once" % name for name in repeated]
    return numbers, lines


def check(root, layers, found):
    """Adds a finding for each cycle, each call up and each base name that is not unique."""
    for line in measure(root, layers)[1]:
        folder, text = line.split(": ", 1)
        found.add(folder, 1, text)


def main(argv):
    import tidy
    root = argv[1] if len(argv) > 1 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    numbers, lines = measure(root, tidy.FLOORS)
    print("\n".join(lines))
    for (folder, what), number in numbers.items():
        print(folder, what, number)


if __name__ == "__main__":
    main(sys.argv)
