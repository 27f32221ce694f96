"""bench/run impress: IMPRESS' evaluation (FAST '25, section 6) on the simulated device, in its
settings: a whole model's layers, lengths drawn from 2k to 10k (OPT-30B: to 4k), important rows that
are a real model's (bench_impress.c says how a dump becomes another shape's), SSD of 5 GB/s, bus of
25 GB/s, half of an A100, one request after the other.

Requests that warm caches, and teach in which order rows are to lie, ask other questions than those
that are measured.

The clock is virtual: it comes out the same each time, on a busy machine too. Requests differ in
prefix and question; intervals (95 %) are of the mean over requests, by bootstrap; ratios are of
means over the same requests, drawn together. p99 is told of 2,000 requests or more.

Least: a request cannot be faster than the longest of what it read / the device's rate, its
operations / their rate, and the GPU's layers with the bus transfers between them. The run fails if
a mean is below its least. Bound: the base's time / the preset's least. It says how many times
faster than the base the preset would be if all its waits overlapped; no measured ratio exceeds it.

With caches: host memory and a tier above it that stands for the GPU's (upper_bytes) share what the
cell gives as 32 and 10 GB do in the paper, for each preset; the plugin charges the bus then, for
rows that do not lie above. The warm requests run twice; presets that reorder do so between, unless
one before them has (`reordered`: chunks that came into order). A preset that the plugin refuses is
told and passed over.

Queue: of the figure p99 also how long it takes when requests wait for each other: one engine, first
come first served, Poisson arrivals of QUEUE_BUSY of what recompute can serve, the same for all. A
request waits for those before it and takes what it took alone; how long answers take after their
first token is left out. QUEUES times requests and arrivals are drawn anew, the first of them
(QUEUE_FILLS) only to fill the queue: the mean, and where 95 % of the times lie. What takes longer
than requests are apart has no p99."""
import csv
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile

import accuracy
from replay import GPU_BYTES, GPU_FLOP, SHAPES

DISK, OP_NS, OPS, BUS = 5e9, 80_000, 700_000, 25e9
DRAWS = 1000
P99_REQUESTS = 2000
QUEUES, QUEUE_BUSY, QUEUE_FILLS = 40, .8, 200
SETS = ("piqa", "rte", "copa", "openbookqa")
QUESTIONS, QUICK_QUESTIONS = 8, 4
TAUGHT, QUICK_TAUGHT = 4, 2  # of them warm requests ask; those measured ask the others
LAYOUTS = ("paired", "split")  # of a store each; presets that select rows have K and V apart
PAPERS_CACHE = 42 / 60  # 10 + 32 GB of 55 to 65
GPU_OF_CACHE = 10 / 42
RANKED = {"as-like": "lru", "impress-itf": "lfu", "impress-itf-ro": "lfu"}  # else the preset's own
REORDERING = ("impress-itf-ro", "impress")
BASE, LEADING = "as-like", "as-h2o-lfu"
STEPS = (LEADING, "impress-itf", "impress-itf-ro", "impress")  # figure 18
# K rows of whole pages at that scale, but for Llama-3-8B (2 KiB): rows are read as they would be.
ROW_SCALE = {"opt-6.7b": 2, "llama-2-7b": 2, "llama-3-8b": 1}
SLAB_SCALE = 8  # whole slabs: a slab has whole pages
FIELDS = ("figure", "cell", "shape", "set", "preset", "rho", "tokens", "chunk_tokens", "cache",
          "requests", "mean_ms", "mean_low", "mean_high", "p50_ms", "p99_ms", "queued_p99_ms",
          "queued_p99_low", "queued_p99_high", "load_ms", "mib_read", "ops",
          "amplification", "rows_read", "fallback", "fallback_rows", "host_rows", "gpu_rows",
          "reordered", "rows_by_layer", "least_ms", "x_as_like", "x_as_like_low",
          "x_as_like_high", "bound_as_like",
          "x_leading", "x_leading_low", "x_leading_high", "bound_leading", "x_recompute")


def lengths(count, least, most):
    """Tokens of the prefixes, in no order: u^1.5 makes 2k .. 10k 5.2k on average, as the paper's
    4.8k to 5.7k; u by the golden section, evenly."""
    spread = [((i + 1) * 0.61803398874989485) % 1 for i in range(count)]
    return [round(least + (most - least) * u ** 1.5) for u in spread]


# ---- Dumps ----


class Dumps:
    """Which rows matter, of real models; made once, under build/dumps."""

    def __init__(self, args, root, build):
        self.session, self.quick = accuracy.Session(args, root, build), args.quick
        self.folder = os.path.join(build, "dumps")
        os.makedirs(self.folder, exist_ok=True)
        self.has_entail = accuracy.here(self.session, "rte") == "entail"
        self.known = {}

    def entries(self, model):
        """What is asked: solved examples and the first questions of each set; or, of opt-recall,
        what stands in the prefix."""
        questions = self.questions()
        if model.endswith("opt-recall"):
            return accuracy.recall_set(self.session, "recall_ids_dev", ("1900",), 1, questions)
        return [entry for name in SETS for entry in accuracy.shot_set(
            self.session, model, self.told(name), 1024 if self.quick else 4096, questions)]

    def told(self, name):
        """The set's name in tables: entail if RTE, which cannot be shipped, is absent."""
        return "entail" if name == "rte" and self.has_entail else name

    def questions(self):
        return QUICK_QUESTIONS if self.quick else QUESTIONS

    def taught(self):
        return QUICK_TAUGHT if self.quick else TAUGHT

    def make(self, name):
        """The dump's path."""
        model = accuracy.model_of(self.session, name)
        where = os.path.join(self.folder, f"{name}{'-quick' * self.quick}-{self.questions()}"
                             f"{'-entail' * self.has_entail}")
        if not os.path.exists(where + ".dump"):
            with open(where + ".jsonl", "w", encoding="utf8") as f:
                f.writelines(json.dumps(entry) + "\n" for entry in self.entries(model))
            print(f"running bench-similarity --dump: {name} …", file=sys.stderr)
            subprocess.run([self.session.program("bench-similarity"), "--model", model, "--eval",
                            where + ".jsonl", "--questions", str(self.questions()), "--dump",
                            where + ".part"], check=True, stderr=subprocess.DEVNULL)
            os.rename(where + ".part", where + ".dump")
        if where not in self.known:
            with open(where + ".dump", "rb") as f:
                self.known[where] = hashlib.sha256(f.read()).hexdigest()
            print(f"dump: {name}, sha256 {self.known[where]}")
        return where + ".dump"

    def has_smollm2(self):
        return os.path.isfile(os.path.join(accuracy.model_of(self.session, "smollm2"),
                                           "config.json"))

    def of(self, name):
        """(dump, entry) of a set."""
        if name == "recall" or not self.has_smollm2():
            return self.make("opt-recall"), 0
        return self.make("smollm2"), SETS.index(name)


# ---- A cell ----


class Cell:
    """One store's worth of prefixes; presets in turn over the same requests."""

    def __init__(self, figure, name, shape, dataset, presets, tokens, scale, requests, **more):
        self.figure, self.name, self.shape, self.dataset = figure, name, shape, dataset
        self.presets, self.tokens, self.scale, self.requests = presets, tokens, scale, requests
        self.rho = more.pop("rho", .5 if dataset == "copa" else .25)
        self.warm, self.new = more.pop("warm", 4), more.pop("new", 64)
        self.chunk, self.cache = more.pop("chunk", 64), more.pop("cache", 0)
        self.own, self.again = more.pop("own", 0), more.pop("again", 1)
        assert self.again or not self.cache
        self.variants = more.pop("variants", {"": {}})  # suffix of a preset's name: keys
        assert not more
        self.series, self.counts, self.facts = {}, {}, {}
        self.told = dataset  # the set whose rows were taken: run() sets it

    def store_bytes(self):
        """Rows alone, as they lie on the simulated disk."""
        layers, kv, _, size, _ = SHAPES[self.shape]
        return sum(self.tokens) * layers * kv * size * 4 // self.scale

    def layer_bytes(self):
        """The longest prefix's, as it lies on the simulated disk."""
        return self.store_bytes() * max(self.tokens) // sum(self.tokens) // SHAPES[self.shape][0]

    def staging_bytes(self):
        """As little beside a layer as 512 MiB are, and enough to load one."""
        return max(16 << 20, (512 << 20) // self.scale, 2 * self.layer_bytes() + (2 << 20))

    def fill_bytes(self):
        """Staging while the store is filled: room for a whole pass, which is then stored in as few
        extents as fit. A longer pass is divided into extents of a chunk, each of which holds a
        frame until its next layer comes."""
        return max(self.staging_bytes(), 3 * SHAPES[self.shape][0] * self.layer_bytes())

    def config(self, preset, cache=None, keys=None):
        share = self.cache if cache is None else cache
        cached = int(self.store_bytes() * share)
        config = {"path": "/sim/store", "preset": preset, "load_policy": "load",
                  "host_bytes": int(cached * (1 - GPU_OF_CACHE)),
                  "upper_bytes": int(cached * GPU_OF_CACHE), "disk_bytes": "256GiB",
                  "upper_bus_bytes_per_s": int(BUS / self.scale),
                  "maintain": {"bytes_per_s": 0}, "reorder": {"interval_s": 0},
                  "staging_bytes": self.staging_bytes(), "max_requests": 4,
                  "max_request_tokens": max(self.tokens) + 1, "chunk_tokens": self.chunk,
                  "select": {"retain_ppm": round(self.rho * 1e6)},
                  "io": {"op_bytes": max(64 << 10, (1 << 20) // self.scale),
                         "in_flight_bytes": max(1 << 20, (8 << 20) // self.scale)},
                  "sim": {"bytes_per_s": int(DISK / self.scale), "op_ns": OP_NS,
                          "ops_per_s": OPS}}
        if preset == "as-like":
            del config["select"]  # every row
        if cached and preset in RANKED:
            config["host_policy"] = RANKED[preset]
        for key, value in (keys or {}).items():
            group, _, leaf = key.partition(".")
            if leaf:
                config.setdefault(group, {})[leaf] = value
            else:
                config[group] = value
        return json.dumps(config)

    def layout(self, preset, keys):
        """Returns the layout that the preset reads, unless the variant's keys name one."""
        return keys.get("store.layout", "paired" if preset == BASE else "split")

    def words(self, build, dump, entry, taught):
        layers, kv, heads, size, params = SHAPES[self.shape]
        words = [os.path.join(build, "bin", "bench-impress"), "--dump", dump]
        for word, value in (("entry", entry), ("layers", layers), ("kv-heads", kv),
                            ("query-heads", heads), ("head-size", size), ("layer-params", params),
                            ("scale", self.scale), ("lengths", ",".join(map(str, self.tokens))),
                            ("requests", self.requests), ("warm", self.warm), ("own", self.own),
                            ("again", self.again), ("taught", taught),
                            ("new-tokens", self.new), ("stage-bytes", self.staging_bytes()),
                            ("gpu-flop", GPU_FLOP), ("gpu-bytes", GPU_BYTES), ("bus", BUS)):
            words += [f"--{word}", str(value)]
        return words

    def run(self, build, dumps, read_series):
        """Both layouts, of which each has a store of its own."""
        dump, entry = dumps.of(self.dataset)
        self.told = dumps.told(self.dataset)
        for layout in LAYOUTS:
            mine = [(preset, suffix, keys) for preset in self.presets
                    for suffix, keys in self.variants.items()
                    if self.layout(preset, keys) == layout
                    and (preset != BASE or not any(k.startswith("select.") for k in keys))]
            if not mine:
                continue
            with tempfile.NamedTemporaryFile("w", suffix=".tsv") as f:
                for preset, suffix, keys in mine:
                    letters = "s" * (preset != BASE) + "r" * (preset in REORDERING)
                    f.write(f"{preset}{suffix}\t{letters}\t{self.config(preset, keys=keys)}\n")
                f.flush()
                fill = self.config("impress-itf", cache=0, keys={
                    "store.layout": layout, "staging_bytes": self.fill_bytes()})
                series, facts, counts = read_series(
                    [*self.words(build, dump, entry, dumps.taught()), "--fill-config", fill,
                     "--configs", f.name], True)
            self.series.update(series)
            self.counts.update(counts)
            self.facts = facts
        for name, count in self.counts.items():
            if "refused" in count:
                print(f"skipped: {name}: {count['refused']}")
            elif count["found"] != count["sure"]:
                sys.exit(f"impress: {name} chose {count['found']} of {count['sure']} rows that all "
                         "its probe heads want: not a result")
        self.counts = {n: c for n, c in self.counts.items() if "refused" not in c}

    # Figures.

    def ns(self, name):
        return self.series[name]["ns"]

    def mean_ns(self, name):
        return sum(self.ns(name)) / len(self.ns(name))

    def least_ns(self, name):
        """Returns the least mean time of the preset's requests: of the device, or of the GPU."""
        count = self.counts[name]
        device_ns = max(count["read_bytes"] * self.scale / DISK, count["ops"] / OPS) * 1e9
        return max(device_ns, count["wait_ns"]) / count["requests"]

    def check_least(self):
        """Ends the run if a preset is faster than its least: then a count is wrong."""
        for name in self.counts:
            if self.mean_ns(name) < self.least_ns(name):
                sys.exit(f"impress: {self.name}, {name}: {self.mean_ns(name):.0f} ns are less than "
                         f"the least, {self.least_ns(name):.0f} ns: not a result")

    def gain(self, base, name):
        """Returns how many times faster than base, with its interval, and the bound."""
        if base not in self.counts:
            return None
        return (*ratio_interval(self.ns(base), self.ns(name)),
                self.mean_ns(base) / self.least_ns(name))

    def worst(self, name):
        """p99, alone and with a queue, of requests that are enough."""
        ns = self.ns(name)
        if len(ns) < P99_REQUESTS:
            return {}
        gap_ns = sum(self.ns("recompute")) / len(ns) / QUEUE_BUSY
        told = {"p99_ms": p99_of(ns) / 1e6}
        if sum(ns) / len(ns) < gap_ns:
            told.update(zip(("queued_p99_ms", "queued_p99_low", "queued_p99_high"),
                            (each / 1e6 for each in queued_p99(ns, gap_ns))))
        return told

    def line(self, name):
        count, ns = self.counts[name], self.ns(name)
        each, tokens = count["requests"], sorted(self.tokens)
        mean, low, high = mean_interval(ns)
        row = {"figure": self.figure, "cell": self.name, "shape": self.shape, "set": self.told,
               "preset": name, "rho": self.rho,
               "tokens": f"{tokens[0]}-{tokens[-1]}" if len(tokens) > 1 else str(tokens[0]),
               "chunk_tokens": self.chunk, "cache": self.cache, "requests": each,
               "mean_ms": mean / 1e6, "mean_low": low / 1e6, "mean_high": high / 1e6,
               "p50_ms": sorted(ns)[each // 2] / 1e6,
               **self.worst(name),
               "load_ms": sum(self.ns(name + " load")) / each / 1e6,
               "mib_read": count["read_bytes"] * self.scale / each / 2**20,
               "ops": count["ops"] / each,
               "amplification": count["read_bytes"] / max(1, count["wanted_bytes"]),
               "rows_read": count["union_rows"] / count["all_rows"],
               "fallback": count["fallbacks"] / each / count["layers"],
               "fallback_rows": count["fallback_rows"] / max(1, count["fallback_all_rows"]),
               "host_rows": count["host_rows"] / max(1, count["union_rows"]),
               "gpu_rows": count["gpu_rows"] / max(1, count["union_rows"]),
               "reordered": count["reordered"], "rows_by_layer": self.rows_by_layer(name),
               "least_ms": self.least_ns(name) / 1e6,
               "x_recompute": sum(self.ns("recompute")) / sum(ns)}
        for column, base in (("as_like", BASE), ("leading", LEADING)):
            gain = self.gain(base, name)
            if gain:
                keys = (f"x_{column}", f"x_{column}_low", f"x_{column}_high", f"bound_{column}")
                row.update(zip(keys, gain))
        return row

    def rows_by_layer(self, name):
        """Figure 19: rows that some head wants / all, layer by layer, of presets that select."""
        count = self.counts[name]
        every = count["all_rows"] / count["layers"]
        shares = [rows / every for rows in count["layer_rows"]]
        return " ".join(f"{share:.2f}" for share in shares) if min(shares) < 1 else ""

    def computed(self, name):
        """What the GPU's table says alone, in a row of its own."""
        mean, low, high = mean_interval(self.ns(name))
        ns, each = sorted(self.ns(name)), len(self.ns(name))
        tokens = sorted(self.tokens)
        return {"figure": self.figure, "cell": self.name, "shape": self.shape, "set": self.told,
                "preset": name, "requests": each, "mean_ms": mean / 1e6, "mean_low": low / 1e6,
                "mean_high": high / 1e6, "p50_ms": ns[each // 2] / 1e6,
                "tokens": f"{tokens[0]}-{tokens[-1]}" if len(tokens) > 1 else str(tokens[0]),
                **self.worst(name)}

    def lines(self):
        return [self.computed(name) for name in ("recompute", "query")] + [
            self.line(name) for name in self.counts]


def drawn(count):
    """Numbers of requests, drawn again and again; the same for all that are compared."""
    dice = random.Random(1)
    return ([dice.randrange(count) for _ in range(count)] for _ in range(DRAWS))


def middle(values):
    values = sorted(values)
    return values[DRAWS // 40], values[-DRAWS // 40 - 1]


def mean_interval(ns):
    return sum(ns) / len(ns), *middle([sum(ns[i] for i in draw) / len(ns) for draw in
                                       drawn(len(ns))])


def ratio_interval(a, b):
    return sum(a) / sum(b), *middle([sum(a[i] for i in draw) / sum(b[i] for i in draw)
                                     for draw in drawn(len(a))])


def p99_of(ns):
    return sorted(ns)[len(ns) * 99 // 100]


def queued(ns, gaps):
    """From arrival to first token, one after the other: gaps, from arrival to arrival."""
    free, now, times = 0, 0, []
    for each, gap in zip(ns, gaps):
        now += gap
        free = max(free, now) + each
        times.append(free - now)
    return times


def queued_p99(ns, gap_ns):
    """p99 in a queue whose requests come gap_ns apart on average: mean over queues, and 95 % of
    them."""
    dice, worst = random.Random(1), []
    for _ in range(QUEUES):
        drawn_ns = dice.choices(ns, k=len(ns) + QUEUE_FILLS)
        gaps = [dice.expovariate(1 / gap_ns) for _ in drawn_ns]
        worst.append(p99_of(queued(drawn_ns, gaps)[QUEUE_FILLS:]))
    worst.sort()
    return sum(worst) / QUEUES, worst[QUEUES // 40], worst[-QUEUES // 40 - 1]


# ---- The figures ----

WHOLE = ("as-like", LEADING, "impress-itf")


def long(shape, quick, count):
    """As many as that; of quick ones two short ones."""
    if quick:
        return lengths(2, 500, 1000)
    return lengths(count, 2000, 4000 if shape == "opt-30b" else 10000)


def slab_cell(figure, shape, dataset, quick, presets=WHOLE, **more):
    """By whole slabs, as the papers read."""
    return Cell(figure, f"{shape} {dataset}", shape, dataset, presets,
                long(shape, quick, 4), SLAB_SCALE, 6 if quick else 16, **more)


def cached_cell(figure, shape, dataset, quick, **more):
    """In the papers' own setting: whole slabs, both caches at their shares, all steps."""
    return Cell(figure, f"{shape} {dataset} cache {PAPERS_CACHE:.2f}", shape, dataset,
                (BASE, *STEPS), long(shape, quick, 6), SLAB_SCALE, 6 if quick else 48,
                warm=4 if quick else 36, cache=PAPERS_CACHE, **more)


def row_cell(figure, shape, dataset, quick, name="", **more):
    """By whole slabs and by rows, where these have whole pages at that scale."""
    return Cell(figure, f"{shape} {dataset} rows{name}", shape, dataset,
                (*WHOLE, "impress-itf+range", "spec-itf+range"), long(shape, quick, 3),
                ROW_SCALE[shape], 6 if quick else 10, **more)


def cells_16(quick):
    """And 17, 19."""
    whole = {"opt-6.7b": SETS[:1]} if quick else {
        "opt-6.7b": SETS, "opt-13b": ("piqa", "rte"), "opt-30b": ("rte", "piqa")}
    for shape, sets in whole.items():
        for dataset in sets:
            yield slab_cell("16", shape, dataset, quick)
            if (shape, dataset) != ("opt-30b", "rte"):  # of 18
                yield cached_cell("16", shape, dataset, quick)
    if not quick:  # as many as the papers' 60 GB are: the upper tier has room for four
        yield Cell("16", f"opt-6.7b rte cache {PAPERS_CACHE:.2f}, 24 prefixes", "opt-6.7b", "rte",
                   (BASE, *STEPS), long("opt-6.7b", quick, 24), 16, 96, warm=144,
                   cache=PAPERS_CACHE)
    for dataset in ("rte",) if quick else ("rte", "copa", "recall"):
        yield row_cell("16", "opt-6.7b", dataset, quick)
    if not quick:
        yield row_cell("16", "opt-6.7b", "rte", quick, ", own heads", own=1)


def cells_25(quick):
    for shape in ("llama-2-7b",) if quick else ("llama-2-7b", "llama-2-13b"):
        for dataset in ("piqa",) if quick else ("piqa", "copa"):
            yield slab_cell("25", shape, dataset, quick)
            if not quick:
                yield cached_cell("25", shape, dataset, quick)
    if not quick:
        yield row_cell("25", "llama-3-8b", "piqa", quick)


def cells_p99(quick):
    """2,000 requests. Without caches each prefix comes from the disk, and a request that comes
    again takes as long as before; with the papers' all are simulated."""
    yield Cell("p99", "opt-30b rte cache 0.00", "opt-30b", "rte", WHOLE,
               long("opt-30b", quick, 12), 16, 40 if quick else P99_REQUESTS, warm=2,
               again=0)
    yield Cell("p99", f"opt-30b rte cache {PAPERS_CACHE:.2f}", "opt-30b", "rte", (BASE, *STEPS),
               long("opt-30b", quick, 12), 16, 6 if quick else P99_REQUESTS,
               warm=4 if quick else 72, cache=PAPERS_CACHE)


def cells_18(quick):
    """Without caches, and with the papers' share."""
    for shape, dataset in (("opt-30b", "rte"), ("opt-13b", "copa"))[:1 if quick else 2]:
        yield Cell("18", f"{shape} {dataset} cache 0.00", shape, dataset, STEPS,
                   long(shape, quick, 6), SLAB_SCALE, 6 if quick else 24, warm=4 if quick else 36)
        yield cached_cell("18", shape, dataset, quick)


def cells_22(quick):
    alphas = (0, 600, 2000) if quick else (0, 200, 400, 600, 800, 1000, 1500, 2000)
    for dataset in ("rte",) if quick else ("rte", "copa", "recall"):
        yield Cell("22", f"opt-6.7b {dataset}", "opt-6.7b", dataset,
                   ("impress-itf", "impress-itf+range"), long("opt-6.7b", quick, 3),
                   ROW_SCALE["opt-6.7b"],
                   6 if quick else 8, variants={f" alpha {a / 1000:g}": {"select.alpha_milli": a}
                                                 for a in alphas})


def cells_23(quick):
    for chunk in (16, 64, 256) if quick else (16, 32, 64, 128, 256):
        yield Cell("23", f"opt-6.7b piqa chunk {chunk}", "opt-6.7b", "piqa",
                   (*WHOLE, "impress-itf+range"), long("opt-6.7b", quick, 3),
                   ROW_SCALE["opt-6.7b"],
                   6 if quick else 8, chunk=chunk)


def cells_24(quick):
    """Memory, of both tiers, for all of the store to a sixth."""
    for cache in (1, 1 / 6) if quick else (1, 1 / 2, 1 / 3, 1 / 6):
        yield Cell("24", f"opt-6.7b openbookqa cache {cache:.2f}", "opt-6.7b", "openbookqa",
                   (BASE, *STEPS), long("opt-6.7b", quick, 8), 16,
                   10 if quick else 48, warm=6 if quick else 32, cache=cache)


def cells_3(quick):
    """From the SSD, and from host memory that holds all; recompute and what is left to compute by
    the table."""
    for shape in ("opt-6.7b",):
        for tokens in (128, 2048) if quick else (128, 256, 512, 1024, 2048, 4096, 8192):
            for cache in (0, 1.5):
                yield Cell("3", f"{shape} {tokens} {'memory' if cache else 'disk'}", shape, "rte",
                           (BASE,), [tokens], SLAB_SCALE, 4, cache=cache, warm=2)


def cells_2(quick):
    """2,600 tokens before a query of 750, OPT-30B."""
    for cache in (0, 1.5):
        yield Cell("2", f"opt-30b {'memory' if cache else 'disk'}", "opt-30b", "rte", (BASE,),
                   [650 if quick else 2600], SLAB_SCALE, 4, cache=cache, warm=2, new=750)


def cells_scale(quick):
    """That the scale does not tell: the same requests in full size and smaller."""
    for scale in (1, 4, 8, 16):
        yield Cell("scale", f"opt-6.7b rte scale {scale}", "opt-6.7b", "rte", WHOLE,
                   [256 if quick else 1536], scale, 4, warm=1)


FIGURES = {"scale": cells_scale, "2": cells_2, "3": cells_3, "16": cells_16, "25": cells_25,
           "18": cells_18, "22": cells_22, "23": cells_23, "24": cells_24, "p99": cells_p99}


def head(cell):
    layers, kv, _, size, _ = SHAPES[cell.shape]
    print(f"\nfigure {cell.figure}: {cell.name}: {layers} of {layers} layers, rows of "
          f"{4 * kv * size // 1024} KiB (scale {cell.scale}), {len(cell.tokens)} prefixes of "
          f"{min(cell.tokens)} to {max(cell.tokens)} tokens, mean "
          f"{sum(cell.tokens) / len(cell.tokens):.0f}, {cell.store_bytes() * cell.scale / 1e9:.0f} "
          f"GB in all, memory for {cell.cache:.2f} of it; rho {cell.rho}, chunks of "
          f"{cell.chunk}, {cell.new} new tokens; rows of {cell.facts['source']}, "
          f"{cell.facts['entry']} ({cell.facts['entry_tokens']} tokens, {cell.facts['questions']} "
          f"questions, {cell.facts['taught']} of them taught)")
    print(f"{'preset':30} {'n':>5} {'ttft ms':>8} {'95 %':>17} {'p99':>8} {'queued':>8} "
          f"{'load':>8} {'MiB':>7} {'ops':>6} {'ampl':>5} {'rows':>5} {'fallb':>5} {'of':>4} "
          f"{'host':>5} {'gpu':>5} {'x asl':>6} {'bound':>6} {'x lead':>6} {'95 %':>11} "
          f"{'bound':>6}")


def shown(value, width, digits):
    return f"{value:{width}.{digits}f}" if isinstance(value, (int, float)) else " " * width


def table(cell):
    head(cell)
    for row in cell.lines():
        between = f"{row['mean_low']:.1f}..{row['mean_high']:.1f}"
        lead = (f"{row['x_leading_low']:.2f}..{row['x_leading_high']:.2f}"
                if "x_leading" in row else "")
        print(f"{row['preset']:30} {row['requests']:5} {row['mean_ms']:8.1f} {between:>17} "
              + " ".join(shown(row.get(key), width, digits) for key, width, digits in (
                  ("p99_ms", 8, 1), ("queued_p99_ms", 8, 1), ("load_ms", 8, 1),
                  ("mib_read", 7, 1), ("ops", 6, 0), ("amplification", 5, 2), ("rows_read", 5, 2),
                  ("fallback", 5, 2), ("fallback_rows", 4, 2), ("host_rows", 5, 2),
                  ("gpu_rows", 5, 2), ("x_as_like", 6, 2), ("bound_as_like", 6, 2),
                  ("x_leading", 6, 2)))
              + f" {lead:>11} {shown(row.get('bound_leading'), 6, 2)}")
    if cell.figure in ("16", "18") and "impress-itf" in cell.counts:
        print("figure 19: rows that some head wants / all, by layer: "
              + cell.rows_by_layer("impress-itf"))


def read_csv(path):
    """What an earlier run left there; none: []."""
    if not os.path.exists(path):
        return []
    with open(path, newline="", encoding="utf8") as f:
        lines = list(csv.DictReader(f))
    for line in lines:
        if line["figure"] not in FIGURES or set(line) != set(FIELDS):
            sys.exit(f"{path}: made by another version: a line of figure {line['figure']}, other "
                     f"columns: {', '.join(map(str, set(line) ^ set(FIELDS))) or 'none'}")
    return lines


def merged(before, lines):
    """Lines of cells that were run now in the place of those of earlier runs; figures in order."""
    cells = {(line["figure"], line["cell"]) for line in lines}
    kept = [line for line in before if (line["figure"], line["cell"]) not in cells]
    order = list(FIGURES)
    return sorted(kept + lines, key=lambda line: (order.index(line["figure"]), line["cell"]))


def write_csv(path, lines):
    write_rows(path, FIELDS, lines)


def write_rows(path, fields, lines):
    """A table with numbers of five digits, written whole or not at all."""
    with open(path + ".part", "w", newline="", encoding="utf8") as f:
        writer = csv.DictWriter(f, fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.5g}" if isinstance(v, float) else v for k, v in line.items()}
                         for line in lines)
    os.replace(path + ".part", path)


def judge(cells, verdict):
    """What must hold wherever it was measured."""
    ok, whole = True, [c for c in cells if c.figure == "scale"]
    if whole:
        full = whole[0]
        worst = max(abs(sum(c.ns(p)) / sum(full.ns(p)) - 1) for c in whole for p in c.counts)
        ok &= verdict("scale: the most that a request's time differs from full size", worst, 0.05,
                      True)
    for cell in cells:
        steps = [p for p in STEPS if p in cell.counts]
        for before, after in zip(steps, steps[1:]) if cell.figure == "18" else ():
            ratio = sum(cell.ns(after)) / sum(cell.ns(before))
            if cell.cache:  # the papers' own setting
                ok &= verdict(f"18, {cell.name}: {after} / {before}", ratio, 1.0, True)
            else:
                print(f"18, {cell.name}: {after} / {before}: {ratio:.3f}")
        if cell.cache and cell.figure in ("16", "18", "25") and {LEADING, "impress"} <= {*steps}:
            ok &= verdict(f"{cell.figure}, {cell.name}: {LEADING} / impress",
                          sum(cell.ns(LEADING)) / sum(cell.ns("impress")), 1.2, False)
    return ok


def impress(args, root, build, read_series, verdict):
    """All figures, or --only one, or those of its cells whose names hold what stands behind it: do
    the floors hold, and the lines of the table. With --only, and not --quick, --csv FILE keeps what
    it has of other cells."""
    dumps, cells, lines = Dumps(args, root, build), [], []
    before = read_csv(args.csv) if args.csv and args.only and not args.quick else []
    if not dumps.has_smollm2():
        print("smollm2 is absent (tools/fetch-smollm2): all sets are opt-recall's, whose heads are "
              "trained to differ")
    for figure, make in FIGURES.items():
        only, _, some = args.only.partition(" ")
        if only not in ("", figure):
            continue
        for cell in make(args.quick):
            if some not in cell.name:
                continue
            cell.run(build, dumps, read_series)
            cell.check_least()
            table(cell)
            sys.stdout.flush()
            cells.append(cell)
            lines += cell.lines()
            if args.csv:
                write_csv(args.csv, merged(before, lines))
    return judge(cells, verdict), {"lines": lines, "cells": {
        f"{cell.figure} {cell.name}": {"series": cell.series, "counts": cell.counts}
        for cell in cells}}
