#!/usr/bin/env python3
"""op_stream.py BUILD [BUILD...]: do builds ask the same of the disk? Each runs the same work on the
simulated disk (tests/sim/io_sim.h), whose transfers are traced: kind, file, offset, bytes, lane,
time.

  replay NAME    bench-replay --mode sim: requests of two models with each preset, stored and loaded
  conformance    the tests of spec-conformance on the simulated disk. Those that do not pass there
                 (they use threads, processes or files) are left out.

Prints for each work the number of transfers and a digest of each build. With two or more builds the
exit status is 1 if any work differs, and the first transfer that differs is shown. One build: its
digests alone. Tests: none (a tool to judge changes that must not change behaviour)."""
import concurrent.futures
import hashlib
import json
import os
import subprocess
import sys
import tempfile

SIM = {"bytes_per_s": 5_000_000_000, "op_ns": 80_000, "ops_per_s": 700_000}
MODEL = {"layers": 4, "tokens": 1024, "prefixes": 2, "new-tokens": 64, "similarity": 0.8,
         "recall": 0.6, "fallback": 0.25, "hint-recall": 0.9, "gpu-flop": 1e14, "gpu-bytes": 1e12}
SHAPES = {"mha": {"kv-heads": 32, "query-heads": 32, "head-size": 128, "layer-params": 2e8},
          "gqa": {"kv-heads": 8, "query-heads": 32, "head-size": 128, "layer-params": 2e8}}
PRESETS = ("as-like", "as-h2o-lru", "as-h2o-lfu", "spi", "random", "impress-itf", "spec-itf",
           "impress-itf+range", "spec-itf+range", "impress-itf-ro", "impress", "spec", "cake",
           "attention-store", "hinted", "layered", "layered-uniform", "int8")
LIMIT_S = 240


def replays(build):
    """{name: command}"""
    out = {}
    for shape, numbers in SHAPES.items():
        words = [f"--{key}={value}" for key, value in {**MODEL, **numbers}.items()]
        words = [part for word in words for part in word.split("=")]
        for preset in PRESETS:
            config = json.dumps({"path": "/sim/store", "preset": preset, "host_bytes": "16MiB",
                                 "disk_bytes": "2GB", "staging_bytes": "128MiB", "sim": SIM})
            out[f"replay {shape} {preset}"] = [
                os.path.join(build, "bin", "bench-replay"), *words, "--mode", "sim", "--warm", "2",
                "--requests", "4", "--window-ns", "2000000", "--config", config,
                "--fill-config", config]
    return out


def conformance(build):
    judge = os.path.join(build, "bin", "spec-conformance")
    listed = subprocess.run([judge, "--list"], check=True, capture_output=True, text=True).stdout
    names = [word for line in listed.splitlines() for word in line.split() if
             word.startswith("abi_")]
    return {f"conformance {name}": [
        judge, os.path.join(build, "tests", "libspec_connector_sim.so"), "--only", name, "--limit",
        "10", "--config", json.dumps({"sim": SIM})] for name in names}


def traced(command):
    """Lines of the trace, and how the command ended."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace")
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False,
                                  timeout=LIMIT_S, env={**os.environ, "SC_SIM_TRACE": path,
                                                        "TMPDIR": folder}).returncode
        except subprocess.TimeoutExpired:
            done = "no end"
        lines = open(path).read().splitlines() if os.path.exists(path) else []
    return lines, done


def main(argv):
    builds = [os.path.abspath(build) for build in argv[1:]]
    if not builds or argv[1].startswith("-"):
        sys.exit(__doc__)
    works = {}
    for build in builds:
        for name, command in {**replays(build), **conformance(build)}.items():
            works.setdefault(name, []).append(command)
    works = {name: commands for name, commands in works.items() if len(commands) == len(builds)}
    differ = left_out = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for name, results in zip(works, pool.map(lambda commands: [traced(c) for c in commands],
                                                 works.values())):
            digests = [hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
                       for lines, _ in results]
            if any(done for _, done in results) and name.startswith("conformance"):
                left_out += 1
                continue
            is_same = len(set(digests)) == 1
            differ += not is_same
            print(f"{name}: {len(results[0][0])} transfers: {' '.join(digests)}"
                  f"{'' if is_same else '  DIFFERS'}", flush=True)
            if not is_same:
                for at, pair in enumerate(zip(*[lines for lines, _ in results])):
                    if len(set(pair)) > 1:
                        print(f"  transfer {at}: " + "  |  ".join(pair))
                        break
    print(f"{len(works)} works, {left_out} left out, {differ} differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
