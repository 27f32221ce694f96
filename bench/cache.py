"""bench/run cache: what each eviction policy leaves to be read, or computed, of recorded streams of
requests (bench_cache.c says how), and what IMPRESS' score finds on the device. A working set is all
blocks of a stream, or those that more than one request has ("reused"): the rest can be of use to
nobody."""
import csv
import json
import os
import random
import subprocess

import inputs

POLICIES = ("lru", "lfu", "value", "belady")
PARTS, PARTS_QUICK = "1,2,3,4,6", "2"
# Name: file, and tokens of a block. miniswe has texts, of which a block is 256 bytes.
STREAMS = {"conversation": ("mooncake_conversation", 512),
           "synthetic": ("mooncake_synthetic", 512), "miniswe": ("miniswe", 64)}
TIERS = {"host": "host memory, filled by loads: bytes from the disk",
         "host+stores": "host memory, filled by loads and stores: bytes from the disk",
         "disk": "the disk, leaves first: what is computed although it had been stored"}


def requests_of(name, data):
    """Milliseconds, tokens and the numbers of the blocks of each request."""
    for row in inputs.read_rows(inputs.find(data, f"traces/{STREAMS[name][0]}_trace.jsonl")):
        yield row["timestamp"], row["input_length"], row["hash_ids"]


def stream(name, data, build, limit):
    path = os.path.join(build, f"cache-{name}.txt")
    with open(path, "w", encoding="utf8") as f:
        for number, (ms, tokens, blocks) in enumerate(requests_of(name, data)):
            if number == limit:
                break
            f.write(f"{ms:.0f} {tokens} {' '.join(map(str, blocks))}\n")
    return path


def ratio(a, b):
    """None: of nothing."""
    return a / b if b else 1.0 if not a else None


def shown(value, width):
    return f"{'-':>{width}}" if value is None else f"{value:{width}.3f}"


def table(counts, tier):
    print(f"\n{TIERS[tier]}\n{'working set':>14} {'policy':8} {'missed':>7} {'of reused':>9} "
          f"{'/lfu':>6} {'/belady':>7} {'p50 ms':>8} {'p99 ms':>8} {'p99 load ms':>11}")
    for row in counts.values():
        where, of, part, policy = row["name"].split()
        if where != tier:
            continue
        least = counts[f"{where} {of} {part} belady"]["missed"]
        lfu = counts.get(f"{where} {of} {part} lfu")
        beside = shown(ratio(row["missed"], lfu["missed"]) if lfu else None, 6)
        print(f"{part + ' of ' + of:>14} {policy:8} {row['missed']:7} "
              f"{row['missed'] / row['reused']:9.4f} {beside} "
              f"{shown(ratio(row['missed'], least), 7)} "
              f"{row['p50_ms']:8.1f} {row['p99_ms']:8.1f} {row['p99_load_ms']:11.1f}")


def judge(name, counts, verdict):
    def missed(policy):
        return counts[f"host all 1/2 {policy}"]["missed"]
    ok = verdict(f"{name}, half of the working set in host memory: bytes from the disk, value / "
                 "lfu", ratio(missed("value"), missed("lfu")), 1.02, True)
    return ok & verdict("  value / Belady", ratio(missed("value"), missed("belady")), 1.15, True)


# ---- Chunks of which some rows are important: how many, measured in real models ----

MEASURED = {  # model: (eval set, lengths, prefixes of each, questions)
    "opt-recall": ("recall_ids_dev", ("1024", "1900"), 4, 6),
    "smollm2": ("recall_text_dev", ("1024", "2048"), 2, 3),
}
CHUNK_ROWS, RHO = 64, .25


def measure(model, folder, data, build, out):
    """Important rows of each whole chunk, by prefix, question and layer, into a file."""
    name, lengths, each, questions = MEASURED[model]
    entries, seen = [], {}
    for row in inputs.read_rows(inputs.find(data, f"eval/{name}.jsonl")):
        length = row["id"].split("-")[0]
        seen[length] = seen.get(length, 0) + 1
        if length in lengths and seen[length] <= each:
            entries.append({**row, "group": length, "queries": row["queries"][:questions]})
    path = os.path.join(build, "cache-measured.jsonl")
    with open(path, "w", encoding="utf8") as f:
        f.writelines(json.dumps(entry) + "\n" for entry in entries)
    done = subprocess.run([os.path.join(build, "bin", "bench-similarity"), "--model", folder,
                           "--eval", path, "--questions", str(questions), "--chunks", "1",
                           "--rho", str(RHO)], check=True, stdout=subprocess.PIPE, text=True)
    os.remove(path)
    with open(out, "w", encoding="utf8", newline="\n") as f:
        rows = csv.writer(f, lineterminator="\n")
        rows.writerow(["prefix", "question", "layer", "important rows of each chunk"])
        for row in map(json.loads, done.stdout.splitlines()):
            rows.writerow([row["id"], row["question"], row["layer"],
                           " ".join(map(str, row["chunks"]))])


PREFIXES, REQUESTS, SKEW = 60, 2800, .8  # a quarter of the requests fills the tiers


def measured(path):
    """{prefix: {question: [important rows of the chunks, layer after layer]}}"""
    of = {}
    with open(path, encoding="utf8", newline="") as f:
        for prefix, question, _, rows in list(csv.reader(f))[1:]:
            of.setdefault(prefix, {}).setdefault(question, []).extend(map(int, rows.split()))
    return of


def tiers_stream(path, profiles, requests, disperses):
    """Applications that each ask about a prefix of their own, some more often than others."""
    dice, firsts, first = random.Random(19), [], 0
    apps = [profiles[dice.choice(sorted(profiles))] for _ in range(PREFIXES)]
    for app in apps:
        firsts.append(first)
        first += len(next(iter(app.values())))
    often = [(rank + 1) ** -SKEW for rank in range(PREFIXES)]
    with open(path, "w", encoding="utf8") as f:
        for number, app in enumerate(dice.choices(range(PREFIXES), often, k=requests)):
            rows = apps[app][dice.choice(sorted(apps[app]))]
            f.write(f"{number} 0 " + " ".join(
                f"{firsts[app] + i}:{n if disperses else round(CHUNK_ROWS * RHO)}"
                for i, n in enumerate(rows) if n > 0 or not disperses) + "\n")
    return path


def tiers_table(counts):
    print(f"{'device':>8} {'host':>6} {'important rows on the device':>29} "
          f"{'chunks from disk':>17} {'p50 ms':>8} {'p99 ms':>8}")
    for row in counts.values():
        device, host = row["name"].split()
        print(f"{device:>8} {host:>6} {row['device_rows'] / row['rows']:29.4f} "
              f"{row['disk_uses'] / row['requests']:17.2f} {row['p50_ms']:8.3f} "
              f"{row['p99_ms']:8.3f}")


def tiers(quick, build, results, read_series, verdict):
    """Floors are smollm2's: in opt-recall all chunks are about as important."""
    found, ok, requests = {}, True, 200 if quick else REQUESTS
    for model in MEASURED:
        profiles = measured(os.path.join(results, f"chunks-{model}.csv"))
        for disperses in (True, False):
            path = tiers_stream(os.path.join(build, "cache-tiers.txt"), profiles, requests,
                                disperses)
            _, _, counts = read_series([os.path.join(build, "bin", "bench-cache"), "--stream",
                                        path, "--tiers", "1"], True)
            os.remove(path)
            how = "as measured" if disperses else "the same everywhere"
            print(f"\n{model}: {PREFIXES} prefixes, {requests} requests, a sixth of the chunks on "
                  f"the device, half in host memory; important rows {how}")
            tiers_table(counts)
            score, lfu = counts["score lfu"], counts["lfu lfu"]
            gain = 100 * (score["device_rows"] - lfu["device_rows"]) / lfu["rows"]
            if model == "smollm2":
                ok &= verdict(f"{model}, {how}: important rows on the device, points of score over "
                              "lfu", gain, 5 if disperses else -2)
            else:
                print(f"{model}, {how}: points of score over lfu: {gain:.3f} (no floor)")
            found[f"{model} {how}"] = counts
    return ok, found


def cache(quick, build, data, results_folder, read_series, verdict):
    ok, results = tiers(quick, build, results_folder, read_series, verdict)
    for name, (_, tokens) in STREAMS.items():
        path = stream(name, data, build, 400 if quick else None)
        _, facts, counts = read_series(
            [os.path.join(build, "bin", "bench-cache"), "--stream", path, "--block-tokens",
             str(tokens), "--parts", PARTS_QUICK if quick else PARTS], True)
        os.remove(path)
        print(f"\n{name}: {facts['requests']:,} requests, {facts['uses']:,} uses of "
              f"{facts['blocks']:,} blocks of {tokens} tokens, {facts['reused_blocks']:,} of them "
              "used by more than one")
        for tier in TIERS:
            table(counts, tier)
        ok &= judge(name, counts, verdict)
        results[name] = {"facts": facts, "counts": counts}
    return ok, results
