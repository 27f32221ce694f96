#!/usr/bin/env python3
"""test_cuda_ptxas.py NVCC ROOT CLANG NVRTC: what compilers make of the CUDA kernels.

ptxas for sm_80, sm_90 and sm_100: nothing is spilled, no stack frame, registers of a block fit, and
at most 48 KiB of static shared memory.  PTX: rows and values are moved by 16 bytes, those that go
through shared memory too; what is read is read by ld.global; no atomics; tensor cores where they
are meant, and nowhere else.  clang's PTX and NVRTC's images are accepted, where those are there.
One that is not is given as an empty word or NAME-NOTFOUND.
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

NVCC, ROOT, CLANG, NVRTC = "", "", "", ""
TARGETS = ("sm_80", "sm_90", "sm_100")
REGISTERS = 64 << 10
SHARED_BYTES = 48 << 10
SMALL = ("sc_cuda_score_join", "sc_cuda_score_total")  # 4 or 8 bytes a thread are all there is
TENSOR = ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
NARROW = ("cvt.rn.f16x2.f32", "cvt.rn.bf16x2.f32")
SHAPE_RE = re.compile(r"X\((sc_cuda_\w+), struct \w+, (\w+)\)")


def is_there(path):
    return bool(path) and not path.endswith("NOTFOUND") and os.path.exists(path)


def ran(*command):
    """What a command said; it has to end well."""
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise AssertionError("%s\n%s" % (" ".join(command), ended.stdout + ended.stderr))
    return ended.stdout + ended.stderr


def kernels():
    """{name: threads of a block}, as kernels/cuda/spec.h has them."""
    with open(os.path.join(ROOT, "kernels/cuda/spec.h"), encoding="utf-8") as file:
        text = file.read()
    threads = dict(re.findall(r"#define (SC_CUDA_\w+_THREADS)\s+(\d+)u", text))
    return {name: int(threads[macro]) for name, macro in SHAPE_RE.findall(text)}


def reports(said):
    """{kernel: what ptxas -v says of it}"""
    parts = re.split(r"Compiling entry function '(\w+)'", said)
    return dict(zip(parts[1::2], parts[2::2]))


def bodies(ptx):
    """{kernel: its PTX}"""
    parts = re.split(r"\.entry (\w+)\(", ptx)
    return dict(zip(parts[1::2], parts[2::2]))


class Compiled(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.source = os.path.join(ROOT, "kernels/cuda/kernels.cu")

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def nvcc(self, *options):
        if not is_there(NVCC):
            self.skipTest("no nvcc")
        return ran(NVCC, "-std=c++17", "-fmad=false", "-O3", "-I", ROOT, *options, self.source)

    def judge(self, said, target):
        found = reports(said)
        self.assertEqual(set(found), set(kernels()))
        for name, threads in kernels().items():
            what = "%s, %s: %s" % (name, target, found[name])
            self.assertRegex(found[name], r"\b0 bytes stack frame, 0 bytes spill stores, "
                             "0 bytes spill loads", what)
            registers = int(re.search(r"Used (\d+) registers", found[name]).group(1))
            self.assertLessEqual(registers * threads, REGISTERS, what)
            shared = re.search(r"(\d+) bytes smem", found[name])
            self.assertLessEqual(int(shared.group(1)) if shared else 0, SHARED_BYTES, what)

    def test_no_kernel_spills_or_asks_for_more_than_a_block_has(self):
        for target in TARGETS:
            self.judge(self.nvcc("-cubin", "-arch=" + target, "-Xptxas", "-v", "-o",
                                 self.path("kernels.cubin")), target)

    def test_rows_and_values_are_moved_by_16_bytes(self):
        self.nvcc("-ptx", "-arch=compute_80", "-o", self.path("kernels.ptx"))
        with open(self.path("kernels.ptx"), encoding="utf-8") as file:
            found = bodies(file.read())
        self.assertEqual(set(found), set(kernels()))
        for name, body in found.items():
            if name not in SMALL:
                self.assertRegex(body, r"st\.((global|shared)\.)?v4\.u32", name)
                self.assertRegex(body, r"ld\.global\.nc\.v4\.u32", name)
            self.assertNotRegex(body, r"\.local\b", name)
            self.assertNotRegex(body, r"\bld\.(u|s\d|b|f|v)", name + ": a load of no known space")
            if ".shared" in body:
                if name != "sc_cuda_codec_decode":  # rows' offsets of 8 bytes are all there are
                    self.assertRegex(body, r"ld\.shared\.v4\.(u32|f32)", name)
                self.assertNotRegex(body, r"\.shared \.align [1248] ", name)
                self.assertNotRegex(body, r"\bst\.(u|s\d|b|f|v)", name + ": no known space")
            self.assertNotRegex(body, r"\batom\.|\bred\.", name)
            self.assertNotRegex(body, r"\bmad\.f32|fma\.rn\.ftz", name)
            # cvt has one NaN: enough for scores and for decoded values, which are numbers, and for
            # nothing that is moved.
            self.assertNotRegex(body, r"cvt\.rn\.(b?)f16\.", name)
            is_tensor, is_decoder = name.endswith("_tensor"), name.endswith("_decode")
            for one in TENSOR:
                self.assertEqual(one in body, is_tensor, name + ": " + one)
            self.assertEqual(NARROW[0] in body, is_tensor or is_decoder, name + ": " + NARROW[0])
            self.assertEqual(NARROW[1] in body, is_decoder, name + ": " + NARROW[1])

    def test_clang_makes_ptx_that_is_accepted(self):
        if not is_there(CLANG):
            self.skipTest("no clang")
        ran(CLANG, "-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=sm_80", "-nocudainc",
            "-nocudalib", "-nogpuinc", "-nogpulib", "-Wno-unknown-cuda-version", "-std=c++17",
            "-O3", "-ffp-contract=off", "-I", ROOT, "-S", "-o", self.path("clang.ptx"),
            self.source)
        with open(self.path("clang.ptx"), encoding="utf-8") as file:
            text = file.read()
        self.assertEqual(set(bodies(text)), set(kernels()))
        self.assertNotRegex(text, r"\bcall\b")
        ptxas = os.path.join(os.path.dirname(NVCC), "ptxas")
        if is_there(ptxas):
            for target in TARGETS[:2]:
                said = ran(ptxas, "-v", "-arch=" + target, "-o", self.path("clang.cubin"),
                           self.path("clang.ptx"))
                self.assertEqual(set(reports(said)), set(kernels()))

    def test_nvrtc_makes_images_of_all_targets_that_it_knows(self):
        if not is_there(NVRTC):
            self.skipTest("no NVRTC")
        script = os.path.join(ROOT, "kernels/cuda/nvrtc_build.py")
        targets = ran(sys.executable, script, NVRTC).split()[0].split(";")
        ran(sys.executable, script, NVRTC, ROOT, self.folder.name)
        names = ["kernels_sm_%s.cubin" % target for target in targets] + ["kernels_compute_80.ptx"]
        for name in names:
            with open(self.path(name), "rb") as file:
                image = file.read()
            for kernel in kernels():
                self.assertIn(kernel.encode(), image, name)


if __name__ == "__main__":
    NVCC, ROOT, CLANG, NVRTC = sys.argv[1:5]
    if not any(is_there(path) for path in (NVCC, CLANG, NVRTC)):
        print("skipped: no CUDA compiler (nvcc, NVRTC or clang)")
        sys.exit(77)
    if not is_there(NVCC):
        print("skipped in part: no nvcc, so nothing is read of ptxas")
    sys.exit(unittest.main(argv=sys.argv[:1], verbosity=0))
