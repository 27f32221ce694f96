#!/usr/bin/env python3
"""spec-ctl on stores of objects by key that minimal_objects made (2 values of 64 KiB).

usage: test_ctl_objects.py SPEC_CTL MINIMAL_OBJECTS PLUGIN [unittest arguments]

Holds: domains and objects are listed with their keys and sizes; a damaged value is found, named and
changes the exit code; nothing in a store changes by being looked at."""
import fcntl
import glob
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

CTL, HOST, PLUGIN = "", "", ""
VALUE_BYTES = 65536


def run(*arguments):
    done = subprocess.run([CTL, *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0x10]))


class CtlObjects(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.root.name, "store")
        config = {"path": self.path, "disk_bytes": "64MiB", "segment_bytes": "1MiB"}
        subprocess.run([HOST, PLUGIN, json.dumps(config)], check=True, capture_output=True)

    def tearDown(self):
        self.root.cleanup()

    def domains(self, *options, code=0):
        got, out, err = run("objects", "--json", *options, self.path)
        self.assertEqual(got, code, err)
        return json.loads(out)

    def test_domains_and_objects_are_listed(self):
        domain, = self.domains("--list")
        self.assertEqual(domain["domain"], "minimal-objects")
        self.assertEqual((domain["objects"], domain["bytes"], domain["page_bytes"]),
                         (2, 2 * VALUE_BYTES, 2 * VALUE_BYTES))
        self.assertEqual(sorted((o["key"], o["bytes"]) for o in domain["list"]),
                         [("block-00", VALUE_BYTES), ("block-01", VALUE_BYTES)])
        code, out, _ = run("objects", "--list", self.path)
        self.assertEqual(code, 0)
        self.assertIn("block-00", out)
        self.assertIn("minimal-objects", out)

    def test_a_flipped_bit_of_a_value_is_found_and_named(self):
        self.assertEqual(self.domains("--verify")[0]["damaged"], 0)
        flip(sorted(glob.glob(self.path + "/objects-*/seg-*"))[0], VALUE_BYTES + 5)
        domain, = self.domains("--verify", "--list", code=1)
        self.assertEqual(domain["damaged"], 1)
        self.assertEqual(sum(o.get("is_damaged", False) for o in domain["list"]), 1)
        code, out, _ = run("objects", "--verify", self.path)
        self.assertEqual(code, 1)
        self.assertEqual(out.count("DAMAGED"), 1)

    def test_a_segment_that_is_gone_is_damage(self):
        for path in glob.glob(self.path + "/objects-*/seg-*"):
            os.remove(path)
        self.assertEqual(self.domains("--verify", code=1)[0]["damaged"], 2)

    def test_stat_counts_objects(self):
        code, out, _ = run("stat", "--json", self.path)
        self.assertEqual(code, 0)
        rank, = json.loads(out)["objects"]
        self.assertEqual((rank["objects"], rank["domains"], rank["bytes"], rank["writer"]),
                         (2, 1, 2 * VALUE_BYTES, ""))
        self.assertIn("2 objects by key", run("stat", self.path)[1])
        metrics = run("stat", "--format", "prometheus", self.path)[1]
        self.assertIn('spec_connector_objects{store="%s",rank="0"} 2\n' % self.path, metrics)

    def test_stat_names_the_processes_that_have_them_open(self):
        def members():
            rank, = json.loads(run("stat", "--json", self.path)[1])["objects"]
            return rank["members"]
        self.assertEqual(members(), [])
        with open(self.path + "/objects-0000-of-0001/members", "r+b") as file:
            what = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 256, 1, 0)
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, what)
            file.seek(256)
            file.write(b'{"pid":7,"host":"h"}\n'.ljust(256, b"\0"))
            file.flush()
            self.assertEqual(members(), ['{"pid":7,"host":"h"}'])
            self.assertIn('  member    {"pid":7', run("stat", self.path)[1])
        self.assertEqual(members(), [])

    def test_every_byte_of_the_log_may_be_wrong(self):
        log, = glob.glob(self.path + "/objects-*/log")
        for at in range(os.path.getsize(log)):
            flip(log, at)
            code, _, err = run("objects", "--list", "--verify", self.path)
            self.assertIn(code, (0, 1, 3), err)
            flip(log, at)
        self.assertEqual(self.domains("--verify")[0]["damaged"], 0)

    def test_commands_for_rows_name_what_is_done_instead(self):
        code, _, err = run("verify", self.path)
        self.assertEqual(code, 3)
        self.assertIn("objects --verify", err)
        code, _, err = run("erase", "--all", self.path)
        self.assertEqual(code, 3)
        self.assertIn("SPEC_REMOVE_ERASE", err)
        self.assertEqual(self.domains("--verify")[0]["objects"], 2)

    def test_looking_changes_nothing(self):
        def state():
            return {path: (os.path.getmtime(path), os.path.getsize(path))
                    for path in glob.glob(self.path + "/**", recursive=True)}
        before = state()
        run("objects", "--list", "--verify", self.path)
        run("stat", self.path)
        self.assertEqual(state(), before)

    def test_a_store_without_objects_says_so(self):
        for path in glob.glob(self.path + "/objects-*"):
            os.rename(path, os.path.join(self.root.name, "elsewhere"))
        self.assertIn("no objects", run("objects", self.path)[1])


if __name__ == "__main__":
    CTL, HOST, PLUGIN = sys.argv[1:4]
    del sys.argv[1:4]
    unittest.main()
