#!/usr/bin/env python3
"""quick_bench.py NAME BUILD: runs `bench/run NAME --quick` with what stands in BUILD, and judges
that it works: it ends with 0, without a traceback, prints its table with numbers in it, and every
series has samples. Figures and floors are not judged: the machine is shared with other tests.

Ends with 77 where the benchmark itself says that something is absent; it says what. That of a GPU
is no failure of a benchmark, which then ends with 0.
Tests: tests/unit/tools/test_bench.py (that a benchmark which breaks fails here)."""
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
SKIPPED = 77
NUMBER = r"-?\d[\d,]*(?:\.\d+)?"


def row(name):
    """A line of a table: name, rounds, median, min, max."""
    return rf"^{re.escape(name)} +[1-9]\d* +{NUMBER} +{NUMBER} +{NUMBER}"


def floor(text):
    """A figure that has a floor, which --quick does not judge."""
    return rf"^ *{re.escape(text)}.*: {NUMBER} .*\(floor .*\): not judged$"


# What has to stand in the output of each: (regular expression of a line, how many at the least).
LINES = {
    "engine": [(row(n), 1) for n in ("sgemm", "prefill", "stream", "decode")]
              + [(floor("prefill of 1,024 tokens"), 1), (floor("decode /"), 1)],
    "ttft": [(row(n), 1) for n in ("recompute", "resident", "reuse", "fio")]
            + [(floor("(reuse - resident"), 1), (floor("recompute / reuse"), 1)],
    "device": [(row("load"), 4), (row("fio"), 10), (row("batch8"), 4), (row("threads8"), 4),
               (row("columns"), 4),
               (rf"^ *\(the same load into vLLM's CPU layout / load: {NUMBER}", 4),
               (row("both"), 4), (row("bare"), 3), (row("store"), 12), (row("memcpy"), 6),
               (row("coded"), 2),
               (floor("full load / fio"), 4), (floor("verification, what it adds"), 4),
               (floor("store call / memcpy"), 6)],
    "lookup": [(rf"^ +{n}( +{NUMBER} \( *{NUMBER}\.\. *{NUMBER}\)){{3}}( +{NUMBER}){{5}}$", 2)
               for n in (1000, 10000, 50000)]
              + [(rf"^{n}: {NUMBER} us a chunk", 1) for n in ("insert", "evict")]
              + [(floor("50,000 tokens"), 2), (floor("lookup of 1,000 tokens"), 1)],
    "memory": [(rf"^(as-like|impress-itf|layered)( +{NUMBER}){{5}}$", 6),
               (floor("address space of"), 3)],
    "idle": [(rf"^(writer|beside|bare)( +{NUMBER}){{2}}$", 3), (floor("writer: us a tick"), 1),
             (floor("beside: us a tick"), 1)],
    "passes": [(rf"^ +(as fast as memory|{NUMBER} % of the device's rate): kept {NUMBER}", 5),
               (floor("kept / what staging"), 5), (floor("bytes written / kept"), 5)],
    "members": [(rf"^ +(alone|1|2|4|8)( +{NUMBER}){{9}}$", 10),
                (rf"^ +[01248]( +{NUMBER}){{8}}$", 5), (rf"^ +[1248]( +{NUMBER}){{5}}$", 4),
                (floor("8 processes store / one"), 2),
                (floor("p99 of lookups while 8 processes store"), 1),
                (floor("8 storing: worst ms"), 1), (floor("full disk: the directory's bytes"), 1),
                (floor("bytes written / bytes of one copy"), 1), (floor("all cells"), 1)],
    "objects": [(row(n), 2) for n in ("hit warm", "hit cold", "miss warm", "miss cold")]
               + [(rf"^ +{n}: {NUMBER} ns a key \({NUMBER} \.\. {NUMBER}\)$", 2)
                  for n in ("hit warm", "miss cold")]
               + [(row(n), 1) for n in ("put", "get", "fio write", "fio read", "memcpy")]
               + [(floor("put / fio"), 1), (floor("get / fio"), 1)],
    "recovery": [(row(n), 2) for n in ("killed", "clean", "pass")]
                + [(floor("open after kill -9"), 2)],
    "plan": [(rf"^ +\d\.\d\d (random|clustered)( \|?)*( +{NUMBER} *\|?){{9}}$", 20),
             (rf"^random \.25 +{NUMBER} +{NUMBER} +{NUMBER} \(", 3),
             (rf"^clustered \.25 +{NUMBER} +{NUMBER} +{NUMBER} \(", 3),
             (rf"^layered, {NUMBER} loads: {NUMBER} ms", 3),
             (floor("selected load / fio"), 2)],
    "kernels": [(row(n), 1) for n in ("topk ref", "memcpy f16", "unpack f16", "tag 4096",
                                      "read rows")]
               + [(rf"^{job} columns{size} {dtype} / memcpy {dtype}: {NUMBER}$", 1)
                  for job in ("unpack", "pack") for size in (64, 128) for dtype in ("f16", "f32")]
               + [(floor("unpack f16 / memcpy"), 1), (floor("tag 4096 / read rows"), 1)],
    "accuracy": [(rf"^{re.escape(n)} +[1-9]\d* +{NUMBER} \(", 1)
                 for n in ("full", "impress@.25", "h2o@.25", "random@.25", "mass@.9")]
                + [(r"impress' agreement .*: not judged$", 1)],
    "quality": [(rf"^{re.escape(n)} +{NUMBER} +{NUMBER}"
                 rf"( +{NUMBER} \({NUMBER}\.\.{NUMBER}\)){{8}}$", 1)
                for n in ("full KV", "fp8 (e4m3)", "int8")]
               + [(rf"^ +0\.(500|250) (layered|impress|H2O)", 6),
                  (r"^needle: layered - full KV, points: .*: not judged$", 1)],
    "similarity": [(rf"^ *0\.25( +{NUMBER}){{6}}", 1), (rf"^ +0( +{NUMBER}){{3}}", 1),
                   (r"recall of hint .*: not judged$", 1)],
    "prefetch": [(rf"^{n}( +{NUMBER}){{7}}$", 1)
                 for n in ("none", "random", "layer", "before", "after", "both")]
                + [(r"hint both: waste: .*: not judged$", 1)],
    "cache": [(rf"^ +1/2 of (all|reused) {n} +{NUMBER} +{NUMBER}", 12)
              for n in ("lru", "lfu", "value", "belady")]
             + [(r"value / lfu: .*: not judged$", 3), (r"value / Belady: .*: not judged$", 3),
                (rf"^ +score +lfu( +{NUMBER}){{4}}$", 4),
                (r"points of score over lfu: .*: not judged$", 2),
                (rf"^ *(lru|lfu|score|score.lfu) +{NUMBER} ± +{NUMBER}( +{NUMBER}){{3}} ±", 20),
                (r"points of score over lfu, ± .*: not judged$", 2)],
    "cuda": [(rf"^{re.escape(n)}.* {NUMBER} .*\[{NUMBER} \.\. {NUMBER}\] .*: not judged", 1)
             for n in ("place from the device, Llama-3-8B", "decode even widths, OPT-6.7B",
                       "a layer, pinned memory -> pages", "picks by a kernel over the bus",
                       "scores, Llama-3-8B", "a bf16 product", "a load, drive -> device",
                       "a load, host tier -> pages", "get_important with all in memory")],
    "cake": [(rf"^ +{NUMBER} +{NUMBER}% +{NUMBER}( +{NUMBER}){{5}}( +{NUMBER}%){{3}}$", 15),
             (floor("5a: worst both /"), 1), (floor("5b: worst both /"), 1),
             (floor("10 -> 2 Gbit/s half-way"), 1), (floor("a device that gives nothing"), 1),
             (floor("the tail alone /"), 1), (floor("a step with the call"), 1),
             (floor("8 2k, "), 3),
             (rf"^(best split|the same|H100|figure 2,|finding 2).* -?{NUMBER}( |$)", 11)],
    "impress": [(rf"^{re.escape(n)} +[1-9]\d* +{NUMBER} +{NUMBER}\.\.{NUMBER} ", least)
                for n, least in (("recompute", 18), ("as-like", 18), ("as-h2o-lfu", 8),
                                 ("impress-itf", 8), ("impress-itf+range", 3),
                                 ("impress-itf-ro", 4), ("impress", 4),
                                 ("impress-itf alpha 0", 1), ("impress-itf+range alpha 2", 1))]
               + [(rf"^figure 19: .*( {NUMBER}){{48}}$", 1),
                  (floor("scale: the most"), 1), (floor("18, opt-30b rte cache 0.70: "), 4)],
    "overhead": [(rf"^(opt-30b|smollm2)( +{NUMBER}){{10}}$", 2),
                 (floor("opt-30b: mapping lists and averages, % of rows"), 1),
                 (floor("opt-30b: indexing, % of time to first token"), 1)],
    "examples": [(rf"^figure (7a|9|14): .*: {NUMBER} \(\w+\)$", 5)],
    "cut": [(rf"^ +{NUMBER}( +{NUMBER}){{9}}$", 3), (floor("one pass: worst cut /"), 3)],
}


def series_of(result):
    """Every series of samples anywhere in the raw results."""
    if isinstance(result, dict):
        if "ns" in result and "name" in result:
            yield result
        for value in result.values():
            yield from series_of(value)
    elif isinstance(result, list):
        for value in result:
            yield from series_of(value)


def has_samples(series):
    """A thread's CPU clock leaves out what the host of a virtual machine stole, and stands still
    over a few microseconds where the kernel books that late (seen: 4 of 3,400,000 times 5 us). So
    a sample of that clock may be 0; the most of them may not, and none of a wall clock."""
    if series["name"].startswith("cpu "):
        return bool(series["ns"]) and min(series["ns"]) >= 0 and statistics.median(series["ns"]) > 0
    return bool(series["ns"]) and min(series["ns"]) > 0


def faults(name, status, out, err, result):
    """What is wrong with a run, as sentences. result: its --json, or None."""
    found = []
    if status != 0:
        found.append(f"ended with status {status}, expected 0")
    if "Traceback (most recent call last)" in out + err:
        found.append("a traceback")
    for pattern, least in LINES[name]:
        count = len(re.findall(pattern, out, re.M))
        if count < least:
            found.append(f"{count} lines like {pattern}, expected {least}")
    for word in re.findall(r"(?i)(?<![\w.])[-+]?(?:nan|inf)(?![\w.])", out):
        found.append(f"a figure is {word}")
    if "no verdict" not in out:
        found.append("it does not say that quick figures are no verdict")
    if result is None or not result.get("result"):
        return found + ["no raw results"]
    for series in series_of(result["result"]):
        if not has_samples(series):
            found.append(f"series {series['name']}: {len(series['ns'])} samples, the least "
                         f"{sorted(series['ns'])[:3]}, expected some, above 0")
    return found


def main():
    name, build = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        raw = os.path.join(folder, "raw.json")
        done = subprocess.run([sys.executable, os.path.join(ROOT, "bench", "run"), name, "--quick",
                               "--built", build, "--no-fetch", "--json", raw],
                              capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL)
        result = None
        if os.path.exists(raw):
            with open(raw, encoding="utf-8") as file:
                result = json.load(file)
    print(done.stdout)
    print(done.stderr)
    if done.returncode in (0, SKIPPED) and re.search(r"^skipped: \S", done.stdout, re.M):
        return SKIPPED
    wrong = faults(name, done.returncode, done.stdout, done.stderr, result)
    for fault in wrong:
        print(f"bench {name} --quick: {fault}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
