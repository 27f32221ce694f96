#!/usr/bin/env python3
"""test_gpu_check.py BUILD FAKE: what tools/gpu_check carries away, run with FAKE, a folder with a
fake driver that has all kernels: every part runs on a little, what fails is told and is the
status, and without a driver nothing is judged.

The fake stands in for a driver; a script, for compute-sanitizer."""
import csv
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
SANITIZER = """#!/bin/sh
[ "$1 $3 $4" = "--tool --error-exitcode 9" ] || exit 99
echo "========= $2"
shift 4
exec "$@"
"""


class Packed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.packed = os.path.join(cls.folder, "gpu")
        cls.sanitizer = os.path.join(cls.folder, "compute-sanitizer")
        with open(cls.sanitizer, "w", encoding="utf8") as file:
            file.write(SANITIZER)
        os.chmod(cls.sanitizer, 0o755)
        subprocess.run([os.path.join(ROOT, "tools", "gpu_check"), "pack", BUILD, cls.packed],
                       check=True)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def run_all(self, packed=None, **changes):
        """The status, and the summary's lines."""
        out = os.path.join(self.folder, "out")
        env = dict(os.environ, SC_GPU_TINY="1", SC_FAKE_CUDA="lazy:1", LD_LIBRARY_PATH=FAKE,
                   SC_GPU_SANITIZER=self.sanitizer)
        env.update(changes)
        done = subprocess.run([os.path.join(packed or self.packed, "run_all"), out], check=False,
                              capture_output=True, text=True, env=env)
        print(done.stdout, done.stderr)
        with open(os.path.join(out, "summary.txt"), encoding="utf8") as file:
            summary = file.read()
        self.assertEqual(sorted(name for name in os.listdir(out) if not name.startswith("cuda-")),
                         ["run.log", "summary.txt"])
        return done.returncode, summary

    def test_every_part_runs_and_passes(self):
        status, summary = self.run_all(SC_GPU_SLOWER="20")  # other tests run beside this one
        self.assertEqual(status, 0, summary)
        for part, count in (("gpu/ on this driver", 1), ("test_cuda_device_rows", 5),
                            ("test_cuda_device_importance", 1), ("test_cuda_device_rows by", 1),
                            ("bench cuda: ", 8), ("conformance: clauses of device memory", 1),
                            ("conformance through the device, part", 2), ("memcheck of", 2),
                            ("racecheck of", 2), ("synccheck of", 2)):
            lines = [line for line in summary.splitlines()
                     if line.startswith("passed ") and part in line]
            self.assertGreaterEqual(len(lines), count, (part, summary))
        self.assertIn("all passed", summary)
        out = os.path.join(self.folder, "out")
        name, = (name for name in os.listdir(out) if name.startswith("cuda-"))
        self.assertRegex(name, r"^cuda-fake-device-0-[0-9a-z-]+\.csv$")
        with open(os.path.join(out, name), encoding="utf8") as file:
            figures = list(csv.DictReader(file))
        self.assertEqual(len(figures), 41)
        for figure in figures:
            self.assertEqual((figure["device"], figure["driver"], figure["verdict"],
                              figure["value"]), ("fake device 0", "13.0", "works", ""))

    def test_what_fails_or_hangs_is_told_and_is_the_status(self):
        broken = os.path.join(self.folder, "broken")
        shutil.copytree(self.packed, broken)
        for name, text in (("test_cuda_device_rows", "echo 'byte 3 is 7, expected 9'; exit 1"),
                           ("test_cuda_device_importance", "exit 0"),
                           ("test_cuda_device_bitplanes", "sleep 600"),
                           ("test_cuda_device_codec", "echo 'skipped: no CUDA device: gone'")):
            with open(os.path.join(broken, "programs", name), "w", encoding="utf8") as file:
                file.write("#!/bin/sh\n%s\n" % text)
        shutil.rmtree(os.path.join(broken, "images"))
        os.mkdir(os.path.join(broken, "images"))
        status, summary = self.run_all(broken, SC_GPU_SECONDS="310", SC_GPU_SANITIZER="")
        self.assertEqual(status, 1, summary)
        for line in ("FAILED    test_cuda_device_rows: status 1", "byte 3 is 7, expected 9",
                     "NOT DONE  test_cuda_device_bitplanes: more than", "it had reached: ",
                     "NOT ALL PASSED",
                     "FAILED    test_cuda_device_codec: no CUDA device: gone",
                     "not here  compute-sanitizer"):
            self.assertIn(line, summary)

    def test_without_a_driver_nothing_is_judged(self):
        status, summary = self.run_all(LD_LIBRARY_PATH="")
        if "skipped: no CUDA device: " not in summary:
            self.skipTest("there is a CUDA device")
        self.assertEqual(status, 1, summary)
        self.assertIn("nothing was judged", summary)


if __name__ == "__main__":
    BUILD, FAKE = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    unittest.main()
