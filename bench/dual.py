"""bench/run cache, the dual cache through the plugin (bench_dual.c): GPU memory, for which host
memory stands behind a bus, host memory and a simulated disk, on virtual time. Applications ask
about a prefix each, some more often than others; how many rows of each chunk are important is
measured in real models (docs/results/chunks-*.csv). Means over streams, with the half of their
95 % interval."""
import csv
import json
import math
import os
import random
import statistics
import subprocess
import sys

LAYERS = {"smollm2": 4, "opt-recall": 1}  # every so-manieth one: 8 of 30, 4 of 4
PREFIXES, REQUESTS, SKEW, SEEDS = 60, 1600, .8, (19, 20, 21, 22, 23)
CHUNK_ROWS, RHO = 64, .25
POLICIES = ("lru", "lfu", "score", "score+lfu")  # of both tiers, or above + in host memory
# IMPRESS, section 6.1: 10 GB of GPU and 32 GB of CPU memory for 60 GB on average.
GPU_GB, HOST_GB, STORE_GB = 10, 32, 60
STORES_GB = (65, 130, 200, 300, 400)  # Figure 24
T95 = {1: float("nan"), 2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # Student, two-sided, n - 1
FIELDS = ("figure", "model", "rows of chunks", "store_gb", "seed", "policy", "requests", "chunks",
          "rows", "gpu_rows", "host_rows", "disk_rows", "read_bytes", "bus_bytes", "risen", "sunk",
          "bus_ms", "mean_ms", "p50_ms", "p99_ms")


def profiles_of(path, every):
    """{prefix: {question: [important rows of each chunk, a layer]}}"""
    of = {}
    with open(path, encoding="utf8", newline="") as f:
        for prefix, question, layer, rows in list(csv.reader(f))[1:]:
            if int(layer) % every == 0:
                of.setdefault(prefix, {}).setdefault(question, []).append(
                    [int(n) for n in rows.split()])
    return of


def stream(path, profiles, seed, prefixes, requests, disperses):
    dice = random.Random(seed)
    apps = [profiles[dice.choice(sorted(profiles))] for _ in range(prefixes)]
    often = [(rank + 1) ** -SKEW for rank in range(prefixes)]
    with open(path, "w", encoding="utf8") as f:
        f.write(f"L {len(next(iter(apps[0].values())))}\n")
        for app in apps:
            f.write(f"P {len(next(iter(app.values()))[0])}\n")
            for question in sorted(app):
                counts = [n if disperses else round(CHUNK_ROWS * RHO)
                          for layer in app[question] for n in layer]
                f.write("Q " + " ".join(map(str, counts)) + "\n")
        for app in dice.choices(range(prefixes), often, k=requests):
            f.write(f"R {app} {dice.randrange(len(apps[app]))}\n")


def run(build, path, store_gb, chunks=None):
    """chunks: of all prefixes; None: as the program counts them, at the usual shares."""
    words = []
    if chunks is not None:
        words = ["--gpu", str(chunks * GPU_GB // store_gb), "--host",
                 str(chunks * HOST_GB // store_gb)]
    done = subprocess.run([os.path.join(build, "bin", "bench-dual"), "--stream", path, "--policies",
                           ",".join(POLICIES), *words], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"bench: bench-dual ended with {done.returncode}:\n{done.stderr}")
    return [json.loads(line)["counts"] for line in done.stdout.splitlines() if "counts" in line]


def chunks_of(path):
    with open(path, encoding="utf8") as f:
        layers = int(f.readline().split()[1])
        return layers * sum(int(line.split()[1]) for line in f if line.startswith("P"))


def half(values):
    """Of the 95 % interval of their mean."""
    if len(values) < 2:
        return 0.0
    return T95[len(values)] * statistics.stdev(values) / math.sqrt(len(values))


def cell(build, figure, model, profiles, disperses, store_gb, seeds, prefixes, requests):
    rows = []
    path = os.path.join(build, "cache-dual.txt")
    for seed in seeds:
        stream(path, profiles, seed, prefixes, requests, disperses)
        for counts in run(build, path, store_gb, chunks_of(path)):
            rows.append({"figure": figure, "model": model, "store_gb": store_gb, "seed": seed,
                         "rows of chunks": "measured" if disperses else "the same",
                         "policy": counts.pop("name"), **counts})
    os.remove(path)
    return rows


def of(rows, policy, value):
    return [value(row) for row in rows if row["policy"] == policy]


def show(title, rows):
    print(f"\n{title}\n{'policy':>9} {'rows of the GPU tier':>21} {'of host memory':>15} "
          f"{'of the disk':>12} {'read, MiB':>16} {'load, ms':>16} {'p99 ms':>8}")
    for policy in POLICIES:
        shares = [of(rows, policy, lambda r, t=t: r[t] / r["rows"])
                  for t in ("gpu_rows", "host_rows", "disk_rows")]
        read = of(rows, policy, lambda r: r["read_bytes"] / 2 ** 20 / r["requests"])
        load = of(rows, policy, lambda r: r["mean_ms"])
        mean = statistics.mean
        print(f"{policy:>9} {mean(shares[0]):12.4f} ± {half(shares[0]):6.4f} "
              f"{mean(shares[1]):15.4f} {mean(shares[2]):12.4f} "
              f"{mean(read):8.3f} ± {half(read):5.3f} {mean(load):8.3f} ± {half(load):5.3f} "
              f"{mean(of(rows, policy, p99)):8.2f}")


def p99(row):
    return row["p99_ms"]


def points(rows):
    """Of important rows found above, score over lfu, stream by stream."""
    score = of(rows, "score", lambda r: r["gpu_rows"] / r["rows"])
    lfu = of(rows, "lfu", lambda r: r["gpu_rows"] / r["rows"])
    return [100 * (s - b) for s, b in zip(score, lfu)]


def dual(quick, build, results, csv_path, verdict):
    ok, found = True, []
    seeds, prefixes, requests = (SEEDS[:1], 12, 120) if quick else (SEEDS, PREFIXES, REQUESTS)
    for model, every in LAYERS.items():
        profiles = profiles_of(os.path.join(results, f"chunks-{model}.csv"), every)
        for disperses in (True, False):
            rows = cell(build, "21", model, profiles, disperses, STORE_GB, seeds, prefixes,
                        requests)
            how = "as measured" if disperses else "the same everywhere"
            show(f"dual cache through the plugin, {model}, {how}: {GPU_GB} and {HOST_GB} of "
                 f"{STORE_GB} GB, {len(seeds)} streams of {requests} requests", rows)
            gain = points(rows)
            text = f"dual cache, {model}, {how}: points of score over lfu, ± {half(gain):.2f}"
            if model == "smollm2":
                ok &= verdict(text, statistics.mean(gain), 5 if disperses else -2)
            else:
                print(f"{text}: {statistics.mean(gain):.3f} (no floor)")
            found += rows
    profiles = profiles_of(os.path.join(results, "chunks-smollm2.csv"), LAYERS["smollm2"])
    for store_gb in STORES_GB[:1] if quick else STORES_GB:
        rows = cell(build, "24", "smollm2", profiles, True, store_gb, seeds[:3], prefixes, requests)
        show(f"dual cache, smollm2, a store of {store_gb} GB", rows)
        found += rows
    if csv_path:
        with open(csv_path, "w", encoding="utf8", newline="") as f:
            table = csv.DictWriter(f, FIELDS, lineterminator="\n")
            table.writeheader()
            table.writerows(found)
    return ok, {"dual": found}
