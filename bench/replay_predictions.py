"""bench/run ttft --way replay --device sim, the cells "guesses": rows of the next layer that are
read ahead before they are chosen, by the papers' presets without a gate, under a window of compute.
OPT-6.7B on the simulated device and its clock (replay_layered.py says what that charges); no layer
falls back, so that all that differs is what is read, and when.

Floors (verdicts), recall of adjacent layers .6, window 8 ms a layer: spec-itf+range <= .86 of
impress-itf+range; spec-itf (whole slabs) <= 1.00 of impress-itf, and reads no slab twice;
random+range between the two; and another request, which asks for a whole layer while guesses are
read, waits for one operation of them at most."""
import concurrent.futures
import json
import statistics
import sys

import replay

SIM = {"bytes_per_s": 5_000_000_000, "op_ns": 80_000, "ops_per_s": 700_000}
OP_BYTES = (1 << 20) + (64 << 10)  # the longest operation: a frame
LAYERS, TOKENS, WARM, REQUESTS, WINDOW_NS = 8, 4864, 2, 4, 8_000_000
PRESETS = ("impress-itf", "spec-itf", "random", "impress-itf+range", "spec-itf+range",
           "random+range")
# Ours: guesses by layer, as spec-itf's, read where others wait less. Beside them little is read.
BY_RULE = "by contention"
RECALLS = (0.6, 0.8)
JUDGED = 0.6


class Cell:
    """One recall; all presets, each with another request beside it and without."""

    def __init__(self, recall, build, read_series, layers):
        self.args = {"layers": layers or LAYERS, "tokens": TOKENS, "prefixes": 1, "new": 64,
                     "similarity": 0.8, "recall": recall, "fallback": 0.0}
        self.build, self.read_series = build, read_series
        jobs = [(preset, beside) for beside in (0, 1) for preset in (*PRESETS, BY_RULE)]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            self.runs = dict(zip(jobs, pool.map(lambda job: self.process(*job), jobs)))

    def config(self, preset):
        more = {}
        if preset == BY_RULE:
            preset, more = "spec-itf+range", {"prefetch": {"min_precision_ppm": 750000}}
        return json.dumps({"path": "/sim/store", "preset": preset, "host_bytes": 0,
                           "disk_bytes": "20GB", "staging_bytes": "512MiB", "sim": SIM, **more})

    def process(self, preset, beside):
        """{"no window", "window": what was counted}."""
        series, _, counts = self.read_series(
            [*replay.common_words("opt-6.7b", self.args, self.build), "--mode", "sim", "--warm",
             str(WARM), "--requests", str(REQUESTS), "--window-ns", str(WINDOW_NS), "--beside",
             str(beside), "--config", self.config(preset), "--fill-config",
             self.config(PRESETS[0])], True)
        return {window: {"ns": series[window]["ns"], **counts[window]} for window in counts}

    def ttft_ns(self, preset):
        return statistics.median(self.runs[preset, 0]["window"]["ns"])

    def ratio(self, a, b):
        return self.ttft_ns(a) / self.ttft_ns(b)

    def beside_ns(self, preset):
        return max(counts["beside_ns"] for counts in self.runs[preset, 1].values())


def table(cell):
    args = cell.args
    print(f"\nguesses: opt-6.7b on the simulated device, {args['layers']} of "
          f"{replay.SHAPES['opt-6.7b'][0]} layers, {TOKENS} tokens, {REQUESTS} requests after "
          f"{WARM} that teach; recall of adjacent layers {args['recall']}, no layer falls back; "
          f"window {WINDOW_NS / 1e6:.0f} ms a layer; beside: what another request takes for a "
          "whole layer while guesses are read")
    print(f"{'preset':18} {'ttft ms':>8} {'exposed':>8} {'MiB read':>8} {'ops':>6} {'amplif':>6} "
          f"{'ahead':>5} {'waste':>5} {'MiB':>6} {'beside':>7}")
    for preset in (*PRESETS, BY_RULE):
        facts = cell.runs[preset, 0]["window"]
        each = facts["requests"]
        print(f"{preset:18} {cell.ttft_ns(preset) / 1e6:8.2f} "
              f"{facts['exposed_ns'] / each / 1e6:8.2f} {facts['read_bytes'] / each / 2**20:8.1f} "
              f"{facts['ops'] // each:6} {facts['read_bytes'] / facts['wanted_bytes']:6.2f} "
              f"{facts['prefetched_rows'] / max(1, facts['union_rows']):5.2f} "
              f"{facts['unused_bytes'] / facts['read_bytes']:5.2f} "
              f"{facts['unused_bytes'] / each / 2**20:6.1f} {cell.beside_ns(preset) / 1e6:7.3f}")


def verdicts(cell, verdict):
    spec, impress = "spec-itf+range", "impress-itf+range"
    ok = verdict(f"{spec} / {impress}", cell.ratio(spec, impress), 0.86, True)
    ok &= verdict("spec-itf / impress-itf", cell.ratio("spec-itf", "impress-itf"), 1.0, True)
    ok &= verdict(f"random+range / {impress}", cell.ratio("random+range", impress), 0.999, True)
    ok &= verdict(f"random+range / {spec}", cell.ratio("random+range", spec), 1.001)
    slabs = [cell.runs[preset, 0]["window"]["read_bytes"] for preset in PRESETS[:2]]
    ok &= verdict("bytes of spec-itf / of impress-itf (every slab holds a wanted row)",
                  slabs[1] / slabs[0], 1.0, True)
    op_ns = OP_BYTES / SIM["bytes_per_s"] * 1e9
    ok &= verdict(f"{BY_RULE} / {spec}, nobody beside", cell.ratio(BY_RULE, spec), 1.001, True)
    waste = [run["unused_bytes"] / run["read_bytes"] for run in cell.runs[BY_RULE, 1].values()]
    ok &= verdict(f"{BY_RULE}: waste beside another request", max(waste), 0.01, True)
    late_ns = max(cell.beside_ns(preset) for preset in PRESETS) - cell.beside_ns(impress)
    return ok & verdict("another request waits for guesses, of one operation", late_ns / op_ns, 1.0,
                        True)


def replay_all(quick, build, read_series, verdict, only, layers):
    """All cells, or those whose names hold `only`: do the floors hold, and what was counted."""
    ok, out = True, {}
    for recall in RECALLS if not quick else RECALLS[:1]:
        name = f"guesses opt-6.7b recall {recall}"
        if only not in name:
            continue
        cell = Cell(recall, build, read_series, 3 if quick else layers)
        table(cell)
        facts = cell.runs["impress-itf", 0]["window"]
        if facts["planted_found"] < 0.9 * facts["planted_rows"]:
            sys.exit("replay: impress did not find the planted sets: not a result")
        if recall == JUDGED:
            ok &= verdicts(cell, verdict)
        out[name] = {"args": cell.args, "runs": {f"{p}, beside {b}": run for (p, b), run
                                                 in cell.runs.items()}}
    return ok, out
