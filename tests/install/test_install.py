#!/usr/bin/env python3
"""test_install.py BUILD_DIRECTORY: what `cmake --install` copies, and that hosts build against it.

Installs into new prefixes below a temporary directory. Builds examples/minimal_host.c there, by
pkg-config and by the CMake package, and runs it on the installed library. Checks that the man pages
have every option of the programs, and NOTICES every library that is linked statically.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(sys.argv.pop(1))
PROGRAMS = ("spec-conformance", "spec-ctl", "spec-engine")
HEADERS = ("spec_connector.h", "spec_load.h", "spec_objects.h")
CONSUMER = """cmake_minimum_required(VERSION 3.16)
project(consumer LANGUAGES C)
find_package(spec_connector REQUIRED)
add_executable(minimal_host "%s/examples/minimal_host.c")
target_link_libraries(minimal_host PRIVATE spec_connector::spec_connector)
file(GENERATE OUTPUT plugin CONTENT "$<TARGET_FILE:spec_connector::spec_connector>")
"""


def output_of(*command, **options):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False, **options)
    if done.returncode != 0:
        raise AssertionError("%s: status %d\n%s" % (" ".join(command), done.returncode,
                                                   done.stdout))
    return done.stdout


def files_below(folder):
    return sorted(os.path.relpath(os.path.join(at, name), folder)
                  for at, _, names in os.walk(folder) for name in names)


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.root = cls.temporary.name
        cls.prefix = os.path.join(cls.root, "prefix")
        output_of("cmake", "--install", BUILD, "--prefix", cls.prefix)
        cls.lib = os.path.dirname(glob.glob(cls.prefix + "/lib*/**/libspec_connector.so",
                                            recursive=True)[0])
        cls.environment = dict(os.environ, PKG_CONFIG_PATH=os.path.join(cls.lib, "pkgconfig"))

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def pkg_config(self, *arguments):
        return output_of("pkg-config", *arguments, "spec_connector", env=self.environment).strip()

    def run_host(self, host, plugin, expected="every byte is what was stored"):
        with tempfile.TemporaryDirectory(dir=self.root) as folder:
            said = output_of(host, plugin, '{"path": "%s/store", "disk_bytes": "64MiB"}' % folder)
        self.assertIn(expected, said)

    def test_the_library_has_its_versioned_name_and_two_links(self):
        with open(os.path.join(ROOT, "abi/spec_connector.h"), encoding="utf-8") as file:
            major, minor = re.findall(r"^#define SPEC_ABI_M\w+ (\d+)u", file.read(), re.M)[:2]
        soname = "libspec_connector.so." + major
        self.assertEqual(os.readlink(self.lib + "/libspec_connector.so"), soname)
        self.assertEqual(os.readlink(self.lib + "/" + soname), "%s.%s" % (soname, minor))
        self.assertTrue(os.access(self.lib + "/" + soname, os.X_OK))

    def test_components_have_their_files(self):
        found = {}
        for component in ("library", "programs"):
            folder = os.path.join(self.root, component)
            output_of("cmake", "--install", BUILD, "--prefix", folder, "--component", component)
            found[component] = files_below(folder)
            for name in ("LICENSE", "NOTICES"):
                self.assertIn("share/doc/spec_connector/" + name, found[component])
        for name in HEADERS:
            self.assertIn("include/" + name, found["library"])
        self.assertIn("share/man/man3/spec_connector.3", found["library"])
        self.assertFalse([name for name in found["library"] if name.startswith("bin/")])
        self.assertEqual([name[4:] for name in found["programs"] if name.startswith("bin/")],
                         list(PROGRAMS))
        for name in PROGRAMS:
            self.assertIn("share/man/man1/%s.1" % name, found["programs"])
        self.assertFalse([name for name in found["programs"] if name.startswith("lib")])
        self.assertEqual(sorted(set(found["library"]) | set(found["programs"])),
                         files_below(self.prefix))

    def test_destdir_is_put_before_the_prefix(self):
        stage = os.path.join(self.root, "stage")
        output_of("cmake", "--install", BUILD, "--prefix", "/usr", "--component", "library",
                  env=dict(os.environ, DESTDIR=stage))
        links = glob.glob(stage + "/usr/lib*/**/libspec_connector.so", recursive=True)
        self.assertTrue(links and os.path.exists(links[0]), files_below(stage))

    def test_a_host_builds_by_pkg_config(self):
        host = os.path.join(self.root, "by_pkg_config")
        output_of("cc", ROOT + "/examples/minimal_host.c", "-o", host,
                  *self.pkg_config("--cflags").split())
        self.run_host(host, self.pkg_config("--variable=plugin"))

    def test_a_host_of_objects_builds_by_pkg_config(self):
        host = os.path.join(self.root, "objects")
        output_of("cc", ROOT + "/examples/minimal_objects.c", "-o", host,
                  *self.pkg_config("--cflags").split())
        with open(ROOT + "/abi/connector.map", encoding="utf-8") as file:
            if "spec_connector_objects_api" in file.read():
                self.run_host(host, self.pkg_config("--variable=plugin"),
                              "every byte is what was put")

    def test_a_host_links_the_library(self):
        source, host = (os.path.join(self.root, name) for name in ("links.c", "links"))
        with open(source, "w", encoding="utf-8") as file:
            file.write("#include <spec_connector.h>\n"
                       "int main(void) { return !spec_connector_api(SPEC_ABI_MAJOR); }\n")
        output_of("cc", source, "-o", host, *self.pkg_config("--cflags", "--libs").split())
        output_of(host, env=dict(os.environ, LD_LIBRARY_PATH=self.lib))

    def test_a_host_builds_by_the_cmake_package(self):
        source, build = (os.path.join(self.root, name) for name in ("consumer", "consumer-build"))
        os.mkdir(source)
        with open(source + "/CMakeLists.txt", "w", encoding="utf-8") as file:
            file.write(CONSUMER % ROOT)
        output_of("cmake", "-S", source, "-B", build, "-DCMAKE_PREFIX_PATH=" + self.prefix)
        output_of("cmake", "--build", build)
        with open(build + "/plugin", encoding="utf-8") as file:
            self.run_host(build + "/minimal_host", file.read())

    def test_a_prefix_may_be_moved(self):
        moved = os.path.join(self.root, "moved")
        shutil.copytree(self.prefix, moved, symlinks=True)
        folder = os.path.join(moved, os.path.relpath(self.lib, self.prefix))
        path = output_of("pkg-config", "--variable=plugin", "spec_connector",
                         env=dict(os.environ, PKG_CONFIG_PATH=folder + "/pkgconfig")).strip()
        self.assertEqual(os.path.realpath(path), os.path.realpath(folder + "/libspec_connector.so"))

    def test_programs_run(self):
        for name in PROGRAMS:
            said = output_of(os.path.join(self.prefix, "bin", name), "--version")
            self.assertRegex(said, r"^%s \d+\.\d+\.\d+, ABI " % name)
        said = output_of(self.prefix + "/bin/spec-conformance",
                         self.pkg_config("--variable=plugin"), "--only", "ABI-001")
        self.assertRegex(said, r"\n[1-9]\d* passed, 0 failed, 0 skipped\n$")

    def test_man_pages_have_the_options_of_the_programs(self):
        for name in PROGRAMS:
            said = output_of(os.path.join(self.prefix, "bin", name), "--help")
            with open(self.prefix + "/share/man/man1/%s.1" % name, encoding="utf-8") as file:
                page = file.read()
            options = set(re.findall(r"(?<![\w-])--([a-z][a-z-]+)", said)) | {"help", "version"}
            self.assertEqual(set(re.findall(r"^\.(?:It )?(?:Op )?Fl -([a-z-]+)", page, re.M)) |
                             set(re.findall(r"^\.(?:It )?Fl -[a-z-]+ \| -([a-z-]+)", page, re.M)),
                             options, name)
            if name == "spec-ctl":
                commands = set(re.findall(r"^  ([a-z][a-z-]+)  ", said, re.M))
                self.assertEqual(set(re.findall(r"^\.It Cm ([a-z-]+)$", page, re.M)), commands)

    def test_man_pages_are_well_formed(self):
        pages = glob.glob(self.prefix + "/share/man/man?/*")
        self.assertEqual(len(pages), 4)
        if shutil.which("mandoc"):
            self.assertEqual(output_of("mandoc", "-T", "lint", "-W", "warning", *pages), "")
        elif shutil.which("groff"):
            self.assertEqual(output_of("groff", "-ww", "-mdoc", "-z", *pages), "")

    def test_notices_name_every_library_that_is_linked_statically(self):
        with open(os.path.join(ROOT, "cmake/Dependencies.cmake"), encoding="utf-8") as file:
            archives = re.findall(r"ARCHIVE lib([\w-]+)\.a\b", file.read().split("sc_json_c", 1)[1])
        self.assertGreater(len(archives), 4)
        with open(os.path.join(ROOT, "NOTICES"), encoding="utf-8") as file:
            titles = [title.lower().replace("-", "").removeprefix("lib")
                      for title in re.findall(r"^(\S.*)\n-+$", file.read(), re.M)]
        for archive in archives:
            self.assertIn(archive.replace("-", ""), titles)

    def test_the_library_needs_no_cxx_compiler(self):
        build = os.path.join(self.root, "no-cxx")
        output_of("cmake", "-S", ROOT, "-B", build, "-DSC_TESTS=OFF", "-DSC_CUDA=OFF",
                  env=dict(os.environ, CXX="/nonexistent"))
        with open(build + "/CMakeCache.txt", encoding="utf-8") as file:
            self.assertNotIn("CMAKE_CXX_COMPILER:", file.read())


if __name__ == "__main__":
    unittest.main()
