#!/usr/bin/env python3
"""test_package.py: `pip install ./python`, and a wheel from the sdist, in new environments.

Below a temporary directory: an environment that builds, and one that gets the result. Exit status
77, and a line `skipped: REASON`, if the build tools cannot be had from PyPI.
"""
import glob
import os
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGE = os.path.join(ROOT, "python")
TOOLS = ("scikit-build-core>=0.10", "build")
sys.path.insert(0, PACKAGE)
import check_wheel  # noqa: E402

TEMPORARY = tempfile.TemporaryDirectory()
BUILDER = os.path.join(TEMPORARY.name, "builder")
REFUSED = """
import os, sys, zipfile
sys.path.insert(0, sys.argv[1])
import backend

def build_wheel(folder, settings, metadata):
    zipfile.ZipFile(os.path.join(folder, "x.whl"), "w").close()
    return "x.whl"

backend.skbuild.build_wheel = build_wheel
try:
    backend.build_wheel(sys.argv[2])
except RuntimeError as error:
    print(error)
"""


def run(*command, fails=False, **environment):
    """What a command printed; fails: it has to."""
    done = subprocess.run(["nice", *command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False, cwd=TEMPORARY.name,
                          env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1",
                               "CMAKE_ARGS": "-DSC_CUDA=OFF", **environment})
    if (done.returncode != 0) != fails:
        raise AssertionError("%s: status %d\n%s" % (" ".join(command), done.returncode,
                                                   done.stdout[-6000:]))
    return done.stdout


def environment(name):
    """A new environment; the path of its folder of programs."""
    folder = os.path.join(TEMPORARY.name, name)
    run(sys.executable, "-m", "venv", folder)
    return os.path.join(folder, "bin")


def folder(name):
    path = os.path.join(TEMPORARY.name, name)
    os.mkdir(path)
    return path


class Package(unittest.TestCase):
    def judge(self, programs, has_conformance):
        """The package that is installed in an environment."""
        said = run(programs + "/python", "-c", "import spec_connector as s; a = s.load(); "
                   "print(a.major, a.minor, s.__file__)")
        self.assertIn(TEMPORARY.name, said)
        self.assertRegex(run(programs + "/spec-ctl", "--version"), r"^spec-ctl \d+\.\d+\.\d+, ABI ")
        if has_conformance:
            library = os.path.join(os.path.dirname(said.split()[2]), "libspec_connector.so")
            said = run(programs + "/spec-conformance", library, "--only", "ABI-001")
            self.assertRegex(said, r"\n[1-9]\d* passed, 0 failed, 0 skipped\n$")

    def test_the_tree_installs(self):
        programs = environment("of-tree")
        run(programs + "/python", "-m", "pip", "install", "--no-deps", PACKAGE)
        self.judge(programs, os.path.exists(programs + "/spec-conformance"))

    def test_a_wheel_from_the_sdist_has_all_its_parts(self):
        out = folder("sdist")
        run(BUILDER + "/bin/python", "-m", "build", "--no-isolation", "--sdist", "--outdir", out,
            PACKAGE)
        sdist = glob.glob(out + "/*.tar.gz")[0]
        with tarfile.open(sdist) as archive:
            names = [name.split("/", 1)[1] for name in archive.getnames() if "/" in name]
        self.assertLessEqual({"LICENSE", "NOTICES", "PKG-INFO", "backend.py", "pyproject.toml",
                              "source/plugin/connector.c", "source/LICENSE"}, set(names))
        self.assertFalse([n for n in names if n.endswith((".so", ".o", ".pyc")) or "broken" in n])
        run(BUILDER + "/bin/python", "-m", "pip", "wheel", "--no-deps", "--no-build-isolation",
            "-w", out, sdist)
        path = glob.glob(out + "/*.whl")[0]
        self.assertRegex(os.path.basename(path), r"^spec_connector-[\d.]+-py3-none-linux_\w+\.whl$")
        with zipfile.ZipFile(path) as wheel:
            found = check_wheel.problems(wheel)
        self.assertEqual([p for p in found if "spec-conformance is absent" not in p], [])
        programs = environment("of-wheel")
        run(programs + "/python", "-m", "pip", "install", "--no-index", path)
        self.judge(programs, not found)

    def test_a_missing_library_is_named_by_its_package(self):
        out = folder("missing")
        ignored = "/usr/lib/%s-linux-gnu;/usr/include" % os.uname().machine
        said = run(BUILDER + "/bin/python", "-m", "pip", "wheel", "--no-deps",
                   "--no-build-isolation", "-w", out, PACKAGE, fails=True,
                   CMAKE_ARGS="-DCMAKE_IGNORE_PATH='%s'" % ignored)
        self.assertRegex(said, r"apt-get install\s+libjson-c-dev\s+libmsgpack-dev")
        self.assertEqual(os.listdir(out), [])

    def test_no_wheel_is_made_without_the_library(self):
        out = folder("empty")
        said = run(BUILDER + "/bin/python", "-c", REFUSED, PACKAGE, out)
        self.assertIn("the wheel lacks spec_connector/libspec_connector.so", said)
        self.assertEqual(os.listdir(out), [])


def main():
    environment("builder")
    try:
        run(BUILDER + "/bin/python", "-m", "pip", "install", "--quiet", *TOOLS)
    except AssertionError as error:
        if "No matching distribution" not in str(error):
            raise
        print("skipped: PyPI cannot be reached, or lacks %s" % " ".join(TOOLS))
        return 77
    return 0 if unittest.main(exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    with TEMPORARY:
        sys.exit(main())
