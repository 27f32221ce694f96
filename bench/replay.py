"""bench/run ttft --way replay: every preset over the same stored prefixes, rows as long as a large
model's, the plugin, the disk and the bytes real, the GPU a wait (bench_replay.c says what is
planted and what is charged). Layered KV has cells of its own: replay_layered.py.

Device: what a preset has to spend on the device is max(bytes / line rate, operations x t_op), with
both from fio in the same run. The column `device` is as-like's device time / the preset's: what the
preset would gain if the device were the only limit. It is no bound: as-like can lose more to other
waits than the preset does."""
import json
import os
import shutil
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))

# Name: layers of the model, KV heads, query heads, head size, parameters of a layer (attention and
# feed-forward matrices). OPT: 12 h^2. Llama: 4 h^2 (2 h^2 and 2 h x KV width with GQA) + 3 h x ffn.
SHAPES = {
    "opt-6.7b": (32, 32, 32, 128, 201_326_592),
    "opt-13b": (40, 40, 40, 128, 314_572_800),
    "opt-30b": (48, 56, 56, 128, 616_562_688),
    "llama-2-7b": (32, 32, 32, 128, 202_375_168),
    "llama-2-13b": (40, 40, 40, 128, 317_194_240),
    "llama-3-8b": (32, 8, 32, 128, 218_103_808),
}
# A100 80 GB: 312 Tflop/s in bf16, of which half is reached; 2.0 TB/s (NVIDIA A100 data sheet).
GPU_FLOP, GPU_BYTES = 156e12, 2.0e12
PAPERS_DISK = 5e9  # bytes/s of the papers' SSD; a slower disk slows the GPU by the same factor

# Preset: (its store: presets of one layout share one, does it choose rows, does it give hints).
# With caches off as-h2o-lfu is as-h2o-lru. Static sets: averages that impress's requests leave.
PRESETS = {
    "as-like": ("paired", False, False),
    "as-h2o-lru": ("split", True, False), "as-h2o-lru+range": ("split", True, False),
    "random": ("split", True, False), "random+range": ("split", True, False),
    "impress-itf": ("split", True, False), "impress-itf+range": ("split", True, False),
    "spi": ("split", True, False), "spi+range": ("split", True, False),
    "spec-itf": ("split", True, False), "spec-itf+range": ("split", True, False),
    "spec-itf+range, hints": ("split", True, True),
}
FILLED_BY = {"paired": "as-like", "split": "impress-itf"}
UNPLANTED = ("as-h2o-lru", "spi")  # sets a head, or not the request's
ROUNDS = 2  # of all presets in turn
OPS = 8192  # of fio, to tell what one costs


def name_of(preset):
    """The plugin's name of it, without what the caller does."""
    return preset.split(",")[0]


def family_of(preset):
    """Its name without the planner; what is read is the same of all in it."""
    return name_of(preset).split("+")[0]


def config(store, preset):
    out = {"path": store, "preset": name_of(preset), "load_policy": "load", "host_bytes": 0,
           "disk_bytes": "20GB", "staging_bytes": "512MiB"}
    if ", hints" in preset:
        out["prefetch"] = {"predictor": "hint"}
    return json.dumps(out)


def fio_ns(words):
    out = subprocess.run([sys.executable, os.path.join(HERE, "fio_job.py"), *words], check=True,
                         capture_output=True, text=True).stdout
    return float(out.split()[1])


def fio_random_ns(rank, row_bytes, ops, more):
    """Reads of `ops` rows, 128 in flight."""
    row_bytes = max(4096, row_bytes // 4096 * 4096)
    return fio_ns(["--engine", "io_uring", "--threads", "1", "--depth", "128", "--random",
                   f"{row_bytes}/100", "--ops", str(ops), "--bytes", str(ops * row_bytes),
                   "--op-bytes", str(512 << 10), *more, rank])


def device_model(rank, row_bytes):
    """Line rate (bytes/s) and what an operation of a row costs at depth (s), by fio."""
    size = sum(os.path.getsize(os.path.join(rank, f)) for f in os.listdir(rank)
               if f.startswith("seg-"))
    size = min(size, 1 << 30)
    line = size / (fio_ns(["--engine", "io_uring", "--threads", "1", "--depth", "8", "--bytes",
                           str(size), "--op-bytes", str(1 << 20), rank]) / 1e9)
    return line, fio_random_ns(rank, row_bytes, OPS, []) / OPS / 1e9


def must_ns(facts, line, t_op):
    """What one request has to spend on the device."""
    each = facts["requests"]
    return max(facts["read_bytes"] / each / line, facts["ops"] / each * t_op) * 1e9


def best_must_ns(preset, results, line, t_op):
    """The same by the better of its planners: whole slabs or rows."""
    family = family_of(preset)
    return min(must_ns(facts, line, t_op) for other, (_, facts) in results.items()
               if family_of(other) == family)


def head(shape, args, device, facts, fell):
    """fell: share of the layers of the requests, which ask for some prefixes more than others."""
    line, t_op, slower = device
    print(f"{shape}: {args['layers']} of {SHAPES[shape][0]} layers, rows of "
          f"{4 * SHAPES[shape][1] * SHAPES[shape][3] // 1024} KiB, {args['prefixes']} prefixes of "
          f"{args['tokens']} tokens, {args['requests']} requests with {args['new']} new tokens, "
          f"caches off, reads O_DIRECT; {ROUNDS} rounds of all presets in turn")
    print(f"planted (inputs): rho .25, head similarity {args['similarity']}, adjacent layers' "
          f"recall {args['recall']}, recall of hints .9; layers that fall back: planted "
          f"{args['fallback']} of all, in requests {fell:.2f}")
    print(f"device: line rate {line / 1e9:.2f} GB/s, an operation of a row {t_op * 1e6:.1f} us at "
          f"depth 128 (fio); GPU: {GPU_FLOP / 1e12:.0f} Tflop/s, {GPU_BYTES / 1e12:.1f} TB/s (half "
          f"of an A100's), slowed x {slower:.2f} as the disk is slower than the papers' 5 GB/s; a "
          f"layer's compute {facts['layer_wait_ns'] / 1e6:.2f} ms")


def row(name, results, line, t_op):
    series, facts = results[name]
    base = results["as-like"]
    ns = sorted(series["ttft"]["ns"])
    each = facts["requests"]
    median = statistics.median(ns)
    device = best_must_ns("as-like", results, line, t_op) / best_must_ns(name, results, line, t_op)
    gain = statistics.median(base[0]["ttft"]["ns"]) / median
    layers = each * facts["layers"]
    print(f"{name:22} {median / 1e6:8.1f} {ns[0] / 1e6:7.1f} {statistics.fmean(ns) / 1e6:7.1f} "
          f"{ns[-1] / 1e6:7.1f} {facts['read_bytes'] / each / 2**20:8.1f} "
          f"{facts['ops'] // each:6} {facts['read_bytes'] / facts['wanted_bytes']:6.2f} "
          f"{facts['fallbacks'] / layers:5.2f} {facts['denses'] / layers:5.2f} "
          f"{facts['exposed_ns'] / each / 1e6:8.1f} {facts['probe_ns'] / each / 1e6:8.1f} "
          f"{facts['prefetched_rows'] / max(1, facts['union_rows']):5.2f} "
          f"{facts['unused_bytes'] / max(1, facts['read_bytes']):5.2f} {gain:7.2f} {device:6.2f} "
          f"{gain / device:6.2f}")


def add(sums, series, facts):
    """A round's samples and counts to those of the rounds before."""
    if not sums:
        return series, dict(facts)
    sums[0]["ttft"]["ns"] += series["ttft"]["ns"]
    for key, value in facts.items():
        if key not in ("layers", "layer_wait_ns", "recompute_ns"):
            sums[1][key] += value
    return sums


def common_words(shape, args, build):
    _, kv, heads, size, params = SHAPES[shape]
    words = []
    for word, value in (("layers", args["layers"]), ("kv-heads", kv), ("query-heads", heads),
                        ("head-size", size), ("layer-params", params), ("tokens", args["tokens"]),
                        ("prefixes", args["prefixes"]), ("new-tokens", args["new"]),
                        ("similarity", args["similarity"]), ("recall", args["recall"]),
                        ("fallback", args["fallback"]),
                        ("hint-recall", args.get("hint_recall", 0.9)), ("gpu-flop", GPU_FLOP),
                        ("gpu-bytes", GPU_BYTES)):
        words += [f"--{word}", str(value)]
    return [os.path.join(build, "bin", "bench-replay"), *words]


def fill_one(shape, args, build, store, preset):
    subprocess.run([*common_words(shape, args, build), "--mode", "fill", "--config",
                    config(store, preset)], check=True)


def fill(shape, args, presets, build, where):
    """A store a layout, filled anew; returns their directories."""
    stores = {}
    for layout in dict.fromkeys(PRESETS[p][0] for p in presets):
        stores[layout] = f"{where}-{layout}"
        shutil.rmtree(stores[layout], ignore_errors=True)
        fill_one(shape, args, build, stores[layout], FILLED_BY[layout])
    return stores


def measure(shape, args, presets, build, stores, read_series):
    """All presets in turn, ROUNDS times; returns the device and {preset: (series, facts)}."""
    results = {}
    rank = os.path.join(next(iter(stores.values())), "rank-0000-of-0001")
    line, t_op = device_model(rank, 4 * SHAPES[shape][1] * SHAPES[shape][3])
    slower = max(1.0, PAPERS_DISK / line)
    for i in range(ROUNDS):
        first, end = (args["requests"] * n // ROUNDS for n in (i, i + 1))
        for preset in presets:
            layout, selects, hints = PRESETS[preset]
            results[preset] = add(results.get(preset), *read_series(
                [*common_words(shape, args, build), "--mode", "run", "--requests",
                 str(end - first), "--first", str(first + 1), "--slower", str(slower), "--config",
                 config(stores[layout], preset), "--selects", str(int(selects)), "--hints",
                 "after" if hints else "none"]))
    return (line, t_op, slower), results


def cell(shape, args, presets, build, read_series):
    """One combination of planted inputs, all presets."""
    where, stores = os.path.join(build, "bench-store"), {}
    try:
        stores = fill(shape, args, presets, build, where)
        device, results = measure(shape, args, presets, build, stores, read_series)
    finally:
        for layout in FILLED_BY:
            shutil.rmtree(f"{where}-{layout}", ignore_errors=True)
    print_cell(shape, args, results, device)
    return {"device": device, "args": dict(args), "results": results}


def print_cell(shape, args, results, device):
    line, t_op, slower = device
    first = results["as-like"][1]
    print()
    chose = next((facts for name, (_, facts) in results.items()
                  if family_of(name) == "impress-itf"), first)
    head(shape, args, device, first, chose["fallbacks"] / chose["requests"] / chose["layers"])
    print(f"{'preset':22} {'ttft ms':>8} {'min':>7} {'mean':>7} {'max':>7} {'MiB read':>8} "
          f"{'ops':>6} {'amplif':>6} {'fallb':>5} {'dense':>5} {'exposed':>8} {'scoring':>8} "
          f"{'ahead':>5} {'waste':>5} {'x asl.':>7} {'device':>6} {'share':>6}")
    recompute = first["recompute_ns"] * slower
    print(f"{'recompute':22} {recompute / 1e6:8.1f}  (computed from the same table)")
    for preset, (_, facts) in results.items():
        row(preset, results, line, t_op)
        if facts["planted_rows"] and family_of(preset) not in UNPLANTED:
            found = facts["planted_found"] / facts["planted_rows"]
            if found < 0.9:
                sys.exit(f"replay: {preset} found {found:.2f} of the planted sets: not a result")


# Share of layers that fall back, recall of adjacent layers, new tokens (they make a layer's
# compute: the window for prefetching), presets: if only the prediction changes, those that predict.
PREDICTIONS = ("as-like", "spec-itf", "spec-itf+range", "spec-itf+range, hints")
CELLS = ((0.0, 0.6, 64, tuple(PRESETS)), (0.2, 0.6, 64, tuple(PRESETS)),
         (0.7, 0.6, 64, tuple(PRESETS)), (0.2, 0.4, 64, PREDICTIONS), (0.2, 0.8, 64, PREDICTIONS),
         *((0.2, recall, 1024, ("as-like", "impress-itf+range", "random+range", *PREDICTIONS[1:]))
           for recall in (0.6, 0.8)))
QUICK = ((0.2, 0.6, 64, ("as-like", "impress-itf", "impress-itf+range", "spec-itf+range")),)


def cells(quick):
    """(name, shape, arguments, presets) of every cell."""
    for shape in ["opt-6.7b"] if quick else ["opt-6.7b", "opt-13b", "llama-3-8b"]:
        for fallback, recall, new, presets in QUICK if quick else CELLS:
            args = {"layers": 4, "tokens": 2048 if quick else 4864, "prefixes": 2 if quick else 4,
                    "requests": 10 if quick else 30, "new": new, "similarity": 0.8,
                    "recall": recall, "fallback": fallback}
            yield f"{shape} fallback {fallback} recall {recall} new {new}", shape, args, presets


def replay(quick, build, read_series, only=""):
    """The raw samples of all cells, or those whose names hold `only`."""
    return {name: cell(shape, args, presets, build, read_series)
            for name, shape, args, presets in cells(quick) if only in name}
