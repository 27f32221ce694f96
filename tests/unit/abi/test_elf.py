#!/usr/bin/env python3
"""test_elf.py SO ROOT CONFIG: what the plugin's file is, seen from outside.

The exports of abi/connector.map; NEEDED at most libc, libm and the loader; no symbol version above
GLIBC_2.34; no constructor or destructor of ours; SONAME and a text that say its version; no path of
the tree ROOT; no debug information where CONFIG is Release. Needs readelf and nm (binutils).
"""
import os
import re
import shutil
import subprocess
import sys
import unittest

PLUGIN, ROOT, CONFIG = "", "", ""
NEEDED_ALLOWED = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2",
                  "libdl.so.2", "libpthread.so.0"}  # parts of a glibc before 2.34
GLIBC_MAX = (2, 34)
POINTER_BYTES = 8
# What the compiler's own start files put there: crtbeginS.o and crti.o.
INIT_ALLOWED = {"frame_dummy"}
FINI_ALLOWED = {"__do_global_dtors_aux"}


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Elf(unittest.TestCase):
    """The shared object named on the command line."""

    def test_the_getters_of_the_tables_alone_are_exported(self):
        lines = output_of("nm", "-D", "--defined-only", PLUGIN).split("\n")
        with open(os.path.join(ROOT, "abi", "connector.map"), encoding="utf8") as file:
            getters = re.findall(r"^ +(\w+);$", file.read(), re.M)
        self.assertLessEqual(set(getters), {"spec_connector_api", "spec_connector_objects_api"})
        self.assertEqual(sorted(getters),
                         sorted(line.split()[-1].split("@")[0] for line in lines if line.strip()))

    def test_needed_are_the_c_library_and_the_loader_only(self):
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-dW", PLUGIN)))
        self.assertLessEqual(needed, NEEDED_ALLOWED)
        self.assertIn("libc.so.6", needed)

    def test_no_symbol_version_is_newer_than_glibc_2_34(self):
        text = output_of("readelf", "-VW", PLUGIN)
        versions = set(re.findall(r"Name: (\S+)", text))
        self.assertTrue(any(name.startswith("GLIBC_2.") for name in versions))
        for name in versions - {"GLIBC_PRIVATE"}:
            number = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", name)
            if number:
                self.assertLessEqual((int(number.group(1)), int(number.group(2))), GLIBC_MAX, name)
        self.assertNotIn("GLIBC_PRIVATE", versions)

    def test_no_constructor_or_destructor_of_ours(self):
        sections = output_of("readelf", "-SW", PLUGIN)
        for name, allowed in ((".init_array", INIT_ALLOWED), (".fini_array", FINI_ALLOWED)):
            self.assertLessEqual(set(self.entries(sections, name)), allowed, name)
        self.assertNotRegex(sections, r"\s\.(ctors|dtors|preinit_array)\s")

    def number_of(self, path, pattern):
        with open(os.path.join(ROOT, path), encoding="utf8") as file:
            return re.search(pattern, file.read(), re.M).group(1)

    def file_bytes(self):
        with open(PLUGIN, "rb") as file:
            return file.read()

    def test_soname_has_the_major_number_of_the_abi(self):
        major = self.number_of("abi/spec_connector.h", r"^#define SPEC_ABI_MAJOR (\d+)u")
        names = re.findall(r"\(SONAME\).*\[(.*)\]", output_of("readelf", "-dW", PLUGIN))
        self.assertEqual(["libspec_connector.so." + major], names)
        self.assertEqual("libspec_connector.so", os.path.basename(PLUGIN))

    def test_one_text_says_the_versions(self):
        product = self.number_of("python/pyproject.toml", r'^version = "(.*)"')
        major = self.number_of("abi/spec_connector.h", r"^#define SPEC_ABI_MAJOR (\d+)u")
        minor = self.number_of("abi/spec_connector.h", r"^#define SPEC_ABI_MINOR (\d+)u")
        stored = self.number_of("store/store.h", r"^#define SC_STORE_FORMAT_VERSION (\d+)u")
        text = f"spec_connector {product}, ABI {major}.{minor}, store format {stored}"
        self.assertEqual(1, self.file_bytes().count(b"\0" + text.encode() + b"\0"), text)

    def test_no_path_says_where_it_was_built(self):
        self.assertEqual(0, self.file_bytes().count(ROOT.encode() + b"/"))

    def test_a_release_has_no_debug_information(self):
        sections = output_of("readelf", "-SW", PLUGIN)
        self.assertIn(" .symtab ", sections)
        self.assertEqual(CONFIG in ("Release", "MinSizeRel"), " .debug_info " not in sections)

    def entries(self, sections, name):
        """The functions that a section of pointers names, by its relocations."""
        found = re.search(re.escape(name) + r"\s+\S+\s+([0-9a-f]+)\s+[0-9a-f]+\s+([0-9a-f]+)",
                          sections)
        if found is None:
            return []
        first, size = int(found.group(1), 16), int(found.group(2), 16)
        functions = {}
        for line in output_of("nm", PLUGIN).split("\n"):
            parts = line.split()
            if len(parts) == 3 and parts[1] in "tT":
                functions[int(parts[0], 16)] = parts[2]
        named = []
        for offset, target in re.findall(r"^([0-9a-f]+)\s+\S+\s+R_X86_64_RELATIVE\s+([0-9a-f]+)",
                                         output_of("readelf", "-rW", PLUGIN), re.M):
            if first <= int(offset, 16) < first + size:
                named.append(functions.get(int(target, 16), "at 0x" + target))
        self.assertEqual(size // POINTER_BYTES, len(named), "%s: entries and relocations" % name)
        return named


if __name__ == "__main__":
    CONFIG, ROOT, PLUGIN = sys.argv.pop(), sys.argv.pop(), sys.argv.pop()
    if not shutil.which("readelf") or not shutil.which("nm"):
        print("skipped: readelf or nm is not installed (binutils)")
        sys.exit(77)
    sys.exit(unittest.main(verbosity=0))
