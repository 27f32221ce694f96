#!/usr/bin/env python3
"""check_wheel.py WHEEL: a wheel that is released has all its parts, and none that is stale.

The library with its one exported symbol's table and CUDA kernels, headers, programs, licences, the
README, and the Python modules of this tree, byte for byte.
"""
import os
import sys
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGE = os.path.join(ROOT, "python", "spec_connector")


def expected():
    """{name in the wheel: file of the tree, or None}; names end in what is listed."""
    parts = {"spec_connector/libspec_connector.so": None, ".data/scripts/spec-ctl": None,
             ".data/scripts/spec-conformance": None, ".dist-info/licenses/LICENSE": "LICENSE",
             ".dist-info/licenses/NOTICES": "NOTICES", ".dist-info/METADATA": None}
    for name in ("spec_connector.h", "spec_load.h", "spec_objects.h"):
        parts["spec_connector/include/" + name] = "abi/" + name
    for at, _, names in os.walk(PACKAGE):
        for name in names:
            if name.endswith(".py"):
                path = os.path.relpath(os.path.join(at, name), ROOT)
                parts[path[len("python/"):]] = path
    return parts


def problems(wheel):
    found = []
    names = wheel.namelist()
    for part, source in expected().items():
        name = next((n for n in names if n.endswith(part)), None)
        if name is None:
            found.append("%s is absent" % part)
        elif source:
            with open(os.path.join(ROOT, source), "rb") as file:
                if file.read() != wheel.read(name):
                    found.append("%s is not %s of this tree" % (name, source))
    metadata = next(wheel.read(n).decode() for n in names if n.endswith(".dist-info/METADATA"))
    with open(os.path.join(ROOT, "python", "README.md"), encoding="utf-8") as file:
        if file.read().strip() not in metadata:
            found.append("METADATA lacks the README")
    return found


def main(argv):
    with zipfile.ZipFile(argv[1]) as wheel:
        found = problems(wheel)
        library = wheel.read("spec_connector/libspec_connector.so") if not found else b""
    if not found and b"compute_80" not in library and b".target sm_80" not in library:
        found.append("the library has no CUDA kernels")
    for problem in found:
        print("%s: %s" % (os.path.basename(argv[1]), problem), file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
