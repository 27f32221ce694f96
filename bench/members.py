"""bench/run members: processes that store into one directory at once (bench_members.c), beside one
process that stores in the same manner. Every cell has a fresh directory. Rounds take all cells in
turn, in an order by lot, and a ratio is the median over rounds: what slows a round slows both."""
import json
import os
import random
import shutil
import statistics

COUNTS = (1, 2, 4, 8)
MIB = 1 << 20
# Name, layers, tokens of a prompt, prompts that are stored in total; rows of 4 KiB.
SHAPES = (("32 layers, prompts of 256 tokens (32 MiB)", 32, 256, 32),
          ("4 layers, prompts of 64 tokens (1 MiB)", 4, 64, 1024))
DISK = 16384 * MIB  # nothing is evicted
RATE_LEAST = 0.95  # of one process's
P99_MOST = 1.1  # times one process's
FOUND_MS_MOST = 200
COPIES_MOST = 2.2  # needs intents: without them each of the four processes writes a copy


class Cells:
    """Runs cells, and keeps the largest share of disk_bytes that any had on disk."""

    def __init__(self, build, read_series):
        self.build, self.read_series = build, read_series
        self.store = os.path.join(build, "bench-store")
        self.share, self.samples = 0.0, 0

    def run(self, mode, processes, *words, disk=DISK, writers="many", **keys):
        shutil.rmtree(self.store, ignore_errors=True)
        config = {"path": self.store, "disk_bytes": disk, "load_policy": "load", "host_bytes": 0,
                  "staging_bytes": "128MiB", "store": {"writers": writers}, **keys}
        try:
            series, facts = self.read_series([
                os.path.join(self.build, "bin", "bench-members"), "--connector",
                os.path.join(self.build, "lib", "libspec_connector.so"), "--config",
                json.dumps(config), "--store", self.store, "--mode", mode, "--processes",
                str(processes), *map(str, words)])
        finally:
            shutil.rmtree(self.store, ignore_errors=True)
        facts["share"] = facts["bytes_max"] / disk
        self.share = max(self.share, facts["share"])
        self.samples += facts["samples"]
        return series, facts


def rate_of(facts):
    return facts["stored"] * facts["prompt_bytes"] / facts["took_ns"]


def median(values):
    return statistics.median(list(values))


def by_lot(names, turn):
    return random.Random(turn).sample(names, len(names))


def rates(cells, quick, shape, verdict):
    """Stored bytes per second of 1 to 8 processes together, beside one that has the store alone."""
    name, layers, tokens, prompts = shape
    words = ("--layers", layers, "--tokens", tokens,
             "--prompts", prompts // 4 if quick else prompts)
    rounds = [{n: cells.run("rate", 1 if n == "alone" else n, *words,
                            writers="one" if n == "alone" else "many")[1]
               for n in by_lot(("alone", *COUNTS), turn)} for turn in range(1 if quick else 7)]
    print(f"\nrate, {name}, {rounds[0][1]['stored']} of them, {len(rounds)} rounds; alone: "
          "store.writers one\n"
          f"{'processes':>9} {'GB/s':>6} {'min':>6} {'max':>6} {'/ 1':>6} {'CPU s/GB':>9} "
          f"{'switches/GB':>11} {'log bytes/GB':>12} {'lock waits':>10} {'refused':>7}")
    ratios = {}
    for n in ("alone", *COUNTS):
        row = [one[n] for one in rounds]
        each = [rate_of(facts) for facts in row]
        gb = [facts["stored"] * facts["prompt_bytes"] / 1e9 for facts in row]
        ratios[n] = median(rate_of(one[n]) / rate_of(one[1]) for one in rounds)
        per_gb = {key: median(facts[key] / size for facts, size in zip(row, gb))
                  for key in ("cpu_ns", "switches", "log_bytes")}
        print(f"{n:>9} {median(each):6.2f} {min(each):6.2f} {max(each):6.2f} {ratios[n]:6.2f} "
              f"{per_gb['cpu_ns'] / 1e9:9.2f} {per_gb['switches']:11,.0f} "
              f"{per_gb['log_bytes']:12,.0f} {sum(f['lock_waits'] for f in row):10,} "
              f"{sum(f['refused'] for f in row):7,}")
    ok = True
    for n in COUNTS[1:]:
        ok &= verdict(f"{n} processes store / one", ratios[n], RATE_LEAST)
    return ok, rounds


def p99(samples):
    return sorted(samples)[len(samples) * 99 // 100]


def looks(cells, quick, bytes_per_s, verdict):
    """What lookups of one process cost while others store, all of them together at one rate."""
    words = ("--seconds", 1 if quick else 2, "--bytes-per-s", bytes_per_s)
    rounds = [{n: cells.run("looks", n, *words) for n in by_lot((0, *COUNTS), turn)}
              for turn in range(1 if quick else 11)]
    print(f"\nlookups of 256 stored tokens while others store {bytes_per_s / 1e9:.2f} GB/s in "
          f"total, {len(rounds)} rounds; us\n{'storing':>7} {'stored GB/s':>11} {'p50':>7} "
          f"{'p99':>7} {'max':>8} {'p99 / 1':>8} {'p99 / 0':>8} {'CPU p99':>8} {'/ 1':>6}")
    ratios = {}
    for n in (0, *COUNTS):
        wall = [one[n][0]["looks"]["ns"] for one in rounds]
        cpu = [one[n][0]["cpu looks"]["ns"] for one in rounds]
        to_one, to_none = (median(p99(one[n][0]["looks"]["ns"]) / p99(one[m][0]["looks"]["ns"])
                                  for one in rounds) for m in (1, 0))
        cpu_to_one = median(p99(one[n][0]["cpu looks"]["ns"]) / p99(one[1][0]["cpu looks"]["ns"])
                            for one in rounds)
        ratios[n] = to_one
        stored = median(one[n][1]["stored"] * one[n][1]["prompt_bytes"] / one[n][1]["took_ns"]
                        if one[n][1]["took_ns"] else 0 for one in rounds)
        print(f"{n:7} {stored:11.2f} {median(median(w) for w in wall) / 1e3:7.1f} "
              f"{median(map(p99, wall)) / 1e3:7.1f} {max(map(max, wall)) / 1e3:8.0f} "
              f"{to_one:8.2f} {to_none:8.2f} {median(map(p99, cpu)) / 1e3:8.1f} "
              f"{cpu_to_one:6.2f}")
    ok = True
    for n in COUNTS[1:]:
        ok &= verdict(f"p99 of lookups while {n} processes store / while one does", ratios[n],
                      P99_MOST, True)
    return ok, rounds


def finds(cells, quick, bytes_per_s, verdict):
    """From the return of the wait for a ticket to the lookup in another process that finds it."""
    words = ("--seconds", 1 if quick else 10, "--tokens", 64, "--bytes-per-s", bytes_per_s)
    result, ok = {}, True
    print(f"\nfound by another process, prompts of 64 tokens (8 MiB), {bytes_per_s / 1e9:.2f} GB/s "
          f"in total; ms\n{'storing':>7} {'prompts':>7} {'mean':>7} {'p50':>7} {'p99':>7} "
          f"{'worst':>7}")
    for n in COUNTS:
        series, facts = result[n] = cells.run("finds", n, *words)
        ms = [ns / 1e6 for ns in series["finds"]["ns"]]
        print(f"{n:7} {len(ms):7} {statistics.mean(ms):7.1f} {median(ms):7.1f} {p99(ms):7.1f} "
              f"{max(ms):7.1f}")
        if len(ms) != facts["stored"]:
            print(f"{facts['stored']} were stored")
        ok &= verdict(f"{n} storing: worst ms until another process finds a prompt", max(ms),
                      FOUND_MS_MOST, True)
    return ok, result


def full(cells, quick, verdict):
    """A disk that is full all the time: what the directory has of it at most."""
    disk = (128 if quick else 512) * MIB
    _, facts = cells.run("rate", 4, "--tokens", 64, "--prompts", 32 if quick else 256, disk=disk,
                         segment_bytes="8MiB", lease_ns_max=50_000_000)
    stored = facts["stored"] * facts["prompt_bytes"]
    print(f"\nfour processes store {stored / MIB:,.0f} MiB into {disk // MIB} MiB: "
          f"{rate_of(facts):.2f} GB/s, {facts['refused']} prompts refused and stored later; "
          f"{facts['bytes_max'] / MIB:,.1f} MiB on disk at most, {facts['samples']} samples")
    ok = verdict("full disk: the directory's bytes / disk_bytes, the largest share",
                 facts["share"], 1.0, True)
    return ok, facts


def same(cells, quick, verdict):
    """16 requests of four processes compute one cold prompt at the same moment."""
    prompts = 4 if quick else 24
    _, facts = cells.run("same", 4, "--prompts", prompts)
    copies = facts["write_bytes"] / (prompts * facts["prompt_bytes"])
    print(f"\n16 requests over one cold prompt, four processes, {prompts} prompts of 256 tokens: "
          f"{facts['stored']} tickets OK, {facts['refused']} refused")
    ok = verdict("bytes written / bytes of one copy", copies, COPIES_MOST, True)
    return ok, facts


def members(build, quick, read_series, verdict):
    cells, results, ok = Cells(build, read_series), {}, True
    for shape in SHAPES:
        more, results[shape[0]] = rates(cells, quick, shape, verdict)
        ok &= more
    half = int(median(rate_of(one[1]) for one in results[SHAPES[0][0]]) * 1e9 / 2)
    for name, part in (("looks", looks), ("finds", finds)):
        more, results[name] = part(cells, quick, half, verdict)
        ok &= more
    for name, part in (("full", full), ("same", same)):
        more, results[name] = part(cells, quick, verdict)
        ok &= more
    print(f"\nall cells: {cells.samples:,} samples of the directory's bytes")
    ok &= verdict("all cells: the directory's bytes / disk_bytes, the largest share", cells.share,
                  1.0, True)
    return ok, results
