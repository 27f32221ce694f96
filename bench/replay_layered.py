"""bench/run ttft --way replay: layered KV beside full load and the papers' selections, on this
machine's disk or (--device sim) on a simulated one of 5 GB/s.

Cells: rows of 16, 20 and 4 KiB x share of layers that fall back x a layer's compute: none, and half
of what layered takes for a layer where there is none, the same for all presets of the cell. Under
it layered and full load submit a layer while the one below is computed.

Real: all presets in turn, some rounds; processor time counts, the GPU is the window alone.
Sim: the whole plugin on the simulated disk (tests/sim/io_sim.h), its executor one seeded loop, its
clock virtual: time passes while somebody waits for the device, and while the host computes. No
processor time is charged, neither scores, decoding, checksums and copies nor the GPU's scoring:
what is judged is what is read, in which order and how early, the same in every run.

Floors (verdicts), layered with its one setting, the preset's: full load / layered >= .80 of the
bound (on a disk: with what fio takes for the same reads), where a request is I/O-bound: the device
takes longer for it than its compute, and than its processor time spread over all cores; layered /
impress-itf+range (rho .25) <= 1.10, without fallbacks 1.25; I/O that is exposed (waited for in
get_important) under the window <= .6 of the load, which is TTFT without one."""
import concurrent.futures
import json
import os
import shutil
import statistics
import sys

import replay

# Bytes/s; latency of an operation, ns; operations/s, as SSDs of that rate have.
SIM = {"bytes_per_s": 5_000_000_000, "op_ns": 80_000, "ops_per_s": 700_000}
# Shape: layers on sim (all lie in memory: 1.2, 1.5 and 0.6 GiB of rows), on a disk.
SHAPES = {"opt-6.7b": (16, 8), "opt-13b": (16, 8), "llama-3-8b": (32, 16)}
FALLBACKS = (0.0, 0.2, 0.7)
TOKENS, WARM, REQUESTS = 4864, 2, 4  # requests: one a query variant; before them some that teach
MIX_RUNS = 5  # of fio
ROUNDS = 3  # of real cells, all presets in turn
# Preset: who filled its store, does it choose, when are hints given. They are queries of the hidden
# state before the layer below's attention, so that they can be given before its rows are asked for.
# Of the .05 most important rows smollm2's foresee .83, opt-recall's .61 (bench-similarity). Layered
# is judged without them: to rank them is to score a layer twice, and what they hide is little.
PRESETS = {"layered": ("layered", True, "none"), "layered, hints": ("layered", True, "before"),
           "layered, one call": ("layered", True, "none"),
           "layered-uniform": ("layered-uniform", True, "none"),
           "as-like": ("as-like", False, "none"), "impress-itf": ("impress-itf", True, "none"),
           "impress-itf+range": ("impress-itf", True, "none"),
           "hinted": ("layered-uniform", True, "before")}
# Where a layer is computed, the next one's destination is told ahead: layered by SPEC_ITEM_AHEAD,
# unless "one call" is what is shown; a full load needs no queries, and nothing is left to do of it.
AHEAD = ("layered", "layered-uniform", "layered, hints", "as-like")
HINT_RECALL = 0.8
WINDOWS = ("no window", "window")


class Cell:
    """One shape and share of fallbacks, on one device."""

    def __init__(self, shape, fallback, build, read_series, is_sim, layers=0):
        self.shape, self.build, self.read_series, self.is_sim = shape, build, read_series, is_sim
        layers = layers or SHAPES[shape][0 if is_sim else 1]
        self.args = {"layers": layers, "tokens": TOKENS, "prefixes": 1,
                     "new": 64, "similarity": 0.8, "recall": 0.6, "fallback": fallback,
                     "hint_recall": HINT_RECALL}
        self.line, self.t_op = SIM["bytes_per_s"], 1 / SIM["ops_per_s"]
        self.window_ns, self.rounds = 0, {}  # preset: [what a process said]
        self.mix_ns = 0  # fio: a layered request's reads; 0: not measured
        self.stores = {}

    def config(self, preset):
        if not self.is_sim:
            return replay.config(self.stores[PRESETS[preset][0]], preset)
        return json.dumps({**json.loads(replay.config("/sim/store", preset)), "sim": SIM})

    def goes_ahead(self, preset):
        """On sim submissions are served when they are waited for, which tells layered's codes
        apart from its rows, and gains nothing of a full load; and what a hint as the queries of a
        submission chooses would be read when it is too late: there it goes to prefetch_next."""
        return preset in AHEAD and not (self.is_sim and preset in ("as-like", "layered, hints"))

    def process(self, preset):
        """One round of a preset, without and with a window."""
        filled_by, selects, hints = PRESETS[preset]
        words = ["--mode", "sim" if self.is_sim else "windows", "--warm", str(WARM), "--requests",
                 str(REQUESTS), "--window-ns", str(self.window_ns), "--selects", str(int(selects)),
                 "--hints", hints, "--ahead", str(int(self.goes_ahead(preset))),
                 "--config", self.config(preset)]
        if self.is_sim:
            words += ["--fill-config", self.config(filled_by)]
        common = replay.common_words(self.shape, self.args, self.build)
        series, _, counts = self.read_series([*common, *words], True)
        return {window: {"ns": series[window]["ns"], **counts[window]} for window in WINDOWS}

    def measure_sim(self):
        """Two processes at a time: no clock of theirs is this machine's."""
        self.rounds["layered"] = [self.process("layered")]
        self.window_ns = self.rounds["layered"][0]["window"]["window_ns"]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            others = {preset: pool.submit(self.process, preset) for preset in PRESETS
                      if preset != "layered"}
        self.rounds.update((preset, [future.result()]) for preset, future in others.items())

    def measure_real(self):
        where = os.path.join(self.build, "bench-store")
        self.stores = {preset: f"{where}-{preset}"
                       for preset in ("as-like", "impress-itf", "layered", "layered-uniform")}
        try:
            for preset, store in self.stores.items():
                shutil.rmtree(store, ignore_errors=True)
                replay.fill_one(self.shape, self.args, self.build, store, preset)
            self.line, self.t_op = replay.device_model(
                os.path.join(self.stores["impress-itf"], "rank-0000-of-0001"),
                4 * replay.SHAPES[self.shape][1] * replay.SHAPES[self.shape][3])
            self.window_ns = self.process("layered")["window"]["window_ns"]
            for _ in range(ROUNDS):
                for preset in PRESETS:
                    self.rounds.setdefault(preset, []).append(self.process(preset))
            self.mix_ns = statistics.median(self.measure_mix() for _ in range(MIX_RUNS))
        finally:
            for store in self.stores.values():
                shutil.rmtree(store, ignore_errors=True)

    def measure_mix(self):
        """What fio takes for the reads of one layered request, in its store."""
        facts = self.rounds["layered"][0]["no window"]
        row_bytes = 4 * replay.SHAPES[self.shape][1] * replay.SHAPES[self.shape][3]
        rows = facts["read_rows"] // facts["requests"]
        in_order = facts["read_bytes"] // facts["requests"] - rows * row_bytes
        rank = os.path.join(self.stores["layered"], "rank-0000-of-0001")
        return replay.fio_random_ns(rank, row_bytes, rows, ["--beside", str(in_order)])

    # Figures. Times are medians of a round's requests; ratios medians over rounds.

    def ttft_ns(self, preset, window, one):
        return statistics.median(self.rounds[preset][one][window]["ns"])

    def exposed_ns(self, preset, window, one):
        """What a request waited for the device, as the connector says."""
        facts = self.rounds[preset][one][window]
        return facts["exposed_ns"] / facts["requests"]

    def over_rounds(self, figure):
        return statistics.median(figure(one) for one in range(len(self.rounds["layered"])))

    def ratio(self, a, b, window):
        return self.over_rounds(lambda one: self.ttft_ns(a, window, one)
                                / self.ttft_ns(b, window, one))

    def exposed_share(self, preset):
        """Of the load: all of TTFT without a window."""
        return self.over_rounds(lambda one: self.exposed_ns(preset, "window", one)
                                / self.ttft_ns(preset, "no window", one))

    def model_ns(self, preset, window):
        """What a request has to spend on the device model, under the better of its planners."""
        family = replay.family_of(preset)
        return min(replay.must_ns(self.rounds[other][0][window], self.line, self.t_op)
                   for other in self.rounds if replay.family_of(other) == family)

    def must_ns(self, preset, window):
        """The same; layered on a disk: not less than fio takes for its reads in this cell. (The
        model takes the larger of bytes and operations. A device that serves one operation after
        the other has both to do, and layered has much of both.)"""
        least_ns = self.mix_ns if replay.name_of(preset) == "layered" else 0
        return max(self.model_ns(preset, window), least_ns)

    def processor_ns(self, preset, window):
        """A request's processor time, were all cores busy with it; on sim none is charged."""
        def figure(one):
            facts = self.rounds[preset][one][window]
            return facts["cpu_ns"] / facts["requests"] / os.cpu_count()
        return 0 if self.is_sim else self.over_rounds(figure)

    def binds(self, preset, window):
        """What a request cannot be faster than: (its name, ns), the longest."""
        compute_ns = self.window_ns * self.args["layers"] if window == "window" else 0
        return max((("the device", self.must_ns(preset, window)), ("the compute", compute_ns),
                    (f"the processor ({os.cpu_count()} cores)",
                     self.processor_ns(preset, window))), key=lambda what: what[1])

    def bound(self, preset, window):
        return self.must_ns("as-like", window) / self.must_ns(preset, window)


def head(cell):
    args, facts = cell.args, cell.rounds["layered"][0]["window"]
    where = "the simulated device" if cell.is_sim else "this machine's disk (O_DIRECT)"
    print(f"\n{cell.shape} on {where}: {args['layers']} of {replay.SHAPES[cell.shape][0]} layers, "
          f"rows of {4 * replay.SHAPES[cell.shape][1] * replay.SHAPES[cell.shape][3] // 1024} KiB, "
          f"{args['tokens']} tokens, {len(cell.rounds['layered'])} round(s) of {REQUESTS} requests "
          f"after {WARM} that teach, caches off")
    print(f"planted (inputs): rho .25, head similarity {args['similarity']}, adjacent layers' "
          f"recall {args['recall']}, recall of hints {args['hint_recall']}, given before, layers "
          f"that fall back {args['fallback']}")
    print(f"device: {cell.line / 1e9:.2f} GB/s, {cell.t_op * 1e6:.2f} us an operation of a row at "
          f"depth ({'as simulated' if cell.is_sim else 'fio'}); the store measured "
          f"{facts['model_bytes_per_s'] / 1e9:.2f} GB/s, {facts['model_op_ns'] / 1e3:.2f} us")
    if cell.is_sim:
        print(f"virtual time: latency of an operation {SIM['op_ns'] / 1e3:.0f} us; processor time "
              "is charged as 0: the I/O part of TTFT only")
    print(f"window: {cell.window_ns / 1e6:.3f} ms of compute a layer, half of layered's load; the "
          "GPU's scoring is part of it")


def table(cell):
    columns = f"{'ttft ms':>8} {'I/O ms':>8} {'x full':>6} {'share':>6}"
    print(f"{'preset':21} {'MiB read':>8} {'ops':>6} {'amplif':>6} {'fallb':>5} {'bound':>6} | "
          f"{columns} | window: {columns} {'of load':>7} {'ahead':>5} {'waste':>5}")
    for preset, rounds in cell.rounds.items():
        none, half = (rounds[0][window] for window in WINDOWS)
        each, shown = none["requests"], []
        for window in WINDOWS:
            ttft = cell.over_rounds(lambda one, w=window: cell.ttft_ns(preset, w, one))
            exposed = cell.over_rounds(lambda one, w=window: cell.exposed_ns(preset, w, one))
            gain = cell.ratio("as-like", preset, window)
            shown.append(f"{ttft / 1e6:8.2f} {exposed / 1e6:8.2f} {gain:6.2f} "
                         f"{gain / cell.bound(preset, window):6.2f}")
        print(f"{preset:21} {none['read_bytes'] / each / 2**20:8.1f} {none['ops'] // each:6} "
              f"{none['read_bytes'] / none['wanted_bytes']:6.2f} "
              f"{none['fallbacks'] / each / none['layers']:5.2f} "
              f"{cell.bound(preset, 'no window'):6.2f} | {shown[0]} |         {shown[1]} "
              f"{cell.exposed_share(preset):7.2f} "
              f"{half['prefetched_rows'] / max(1, half['read_rows']):5.2f} "
              f"{half['unused_bytes'] / max(1, half['read_bytes']):5.2f}")


def check_planted(cell):
    for preset in ("impress-itf", "impress-itf+range"):
        facts = cell.rounds[preset][0]["no window"]
        if facts["planted_rows"] and facts["planted_found"] < 0.9 * facts["planted_rows"]:
            sys.exit(f"replay: {preset} did not find the planted sets: not a result")


def verdicts(cell, verdict):
    ok, slack = True, 1.25 if cell.args["fallback"] == 0 else 1.1
    if not cell.is_sim:
        gain = cell.ratio("as-like", "layered", "no window")
        model = cell.model_ns("as-like", "no window") / cell.model_ns("layered", "no window")
        print(f"no window: full load / layered {gain:.2f}, {gain / model:.2f} of {model:.2f}, the "
              "bound of a device that moves bytes while it begins operations; fio alone takes "
              f"{cell.mix_ns / 1e6:.1f} ms for layered's reads, as many bytes in order beside as "
              "many rows in random places")
    for window in WINDOWS:
        what = f"{window}: full load / layered, of the bound {cell.bound('layered', window):.2f}"
        share = cell.ratio("as-like", "layered", window) / cell.bound("layered", window)
        name, binds_ns = cell.binds("layered", window)
        if name == "the device":
            ok &= verdict(what, share, 0.8)
        else:
            device_ns = cell.must_ns("layered", window)
            print(f"{what}: {share:.3f} (not I/O-bound, no floor: {name} takes "
                  f"{binds_ns / 1e6:.1f} ms of a request, the device {device_ns / 1e6:.1f})")
        ok &= verdict(f"{window}: layered / impress-itf+range",
                      cell.ratio("layered", "impress-itf+range", window), slack, True)
    return ok & verdict("layered: I/O exposed under a window of half its load / its load",
                        cell.exposed_share("layered"), 0.6, True)


def replay_cells(quick):
    for shape in SHAPES if not quick else ("opt-6.7b",):
        for fallback in FALLBACKS if not quick else (0.2,):
            yield f"layered {shape} fallback {fallback}", shape, fallback


def replay_all(quick, build, read_series, verdict, only, is_sim, layers):
    """All cells, or those whose names hold `only`: do the floors hold, and the raw samples.
    layers: of the model, 0: as many as SHAPES says."""
    ok, out = True, {}
    for name, shape, fallback in replay_cells(quick):
        if only not in name:
            continue
        cell = Cell(shape, fallback, build, read_series, is_sim, layers)
        if is_sim:
            cell.measure_sim()
        else:
            cell.measure_real()
        head(cell)
        table(cell)
        check_planted(cell)
        ok &= verdicts(cell, verdict)
        out[name] = {"args": cell.args, "line": cell.line, "t_op": cell.t_op,
                     "rounds": cell.rounds}
    return ok, out
