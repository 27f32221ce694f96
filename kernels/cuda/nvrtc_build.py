#!/usr/bin/env python3
"""nvrtc_build.py LIBRARY ROOT OUTPUT_DIR [SOURCE]: builds kernels with NVRTC, without nvcc. SOURCE:
a path in the tree, kernels/cuda/kernels.cu by default.
nvrtc_build.py LIBRARY: prints the targets that this library supports, e.g. `90;80`.

Writes kernels_sm_NN.cubin for each, and kernels_compute_80.ptx.  Exit 1: NVRTC's log.
Tests: tests/unit/kernels/test_cuda_ptxas.py
"""
import ctypes
import os
import sys

CUBINS = (80, 90, 100, 120)
PTX = 80
SOURCE = "kernels/cuda/kernels.cu"
OPTIONS = ["-std=c++17", "--fmad=false"]


class Failed(Exception):
    """NVRTC's error text."""


def check(code, what):
    if code != 0:
        raise Failed("%s: NVRTC error %d" % (what, code))


def known_targets(nvrtc):
    """The cubins of CUBINS that this library makes."""
    count = ctypes.c_int()
    check(nvrtc.nvrtcGetNumSupportedArchs(ctypes.byref(count)), "nvrtcGetNumSupportedArchs")
    targets = (ctypes.c_int * count.value)()
    check(nvrtc.nvrtcGetSupportedArchs(targets), "nvrtcGetSupportedArchs")
    return [target for target in CUBINS if target in list(targets)]


def text_of(nvrtc, program, what):
    """A result of a program: ProgramLog, CUBIN or PTX."""
    size = ctypes.c_size_t()
    check(getattr(nvrtc, "nvrtcGet%sSize" % what)(program, ctypes.byref(size)), what)
    text = ctypes.create_string_buffer(size.value)
    check(getattr(nvrtc, "nvrtcGet" + what)(program, text), what)
    return text.raw


def build(nvrtc, root, path, target, what):
    """path: of the source, from the root; target: sm_90 or compute_80; what: CUBIN or PTX."""
    source = b'#include "%s"\n' % path.encode()
    program = ctypes.c_void_p()
    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"kernels.cu", 0, None, None),
          "nvrtcCreateProgram")
    options = [*OPTIONS, "--gpu-architecture=" + target, "--include-path=" + root]
    array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    if nvrtc.nvrtcCompileProgram(program, len(options), array) != 0:
        raise Failed(text_of(nvrtc, program, "ProgramLog").decode(errors="replace"))
    result = text_of(nvrtc, program, what)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return result


def main(argv):
    if len(argv) not in (2, 4, 5):
        print("usage: nvrtc_build.py LIBRARY [ROOT OUTPUT_DIR [SOURCE]]", file=sys.stderr)
        return 2
    try:
        nvrtc = ctypes.CDLL(argv[1])
        if len(argv) == 2:
            print(";".join(str(target) for target in known_targets(nvrtc)))
            return 0
        root, output = argv[2:4]
        path = os.path.relpath(argv[4], root) if len(argv) == 5 else SOURCE
        for target in known_targets(nvrtc):
            with open(os.path.join(output, "kernels_sm_%d.cubin" % target), "wb") as file:
                file.write(build(nvrtc, root, path, "sm_%d" % target, "CUBIN"))
        with open(os.path.join(output, "kernels_compute_%d.ptx" % PTX), "wb") as file:
            file.write(build(nvrtc, root, path, "compute_%d" % PTX, "PTX").rstrip(b"\0"))
    except (Failed, OSError, AttributeError) as error:
        print("nvrtc_build.py: %s" % error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
