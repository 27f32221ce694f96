"""bench/run cache: what each eviction policy leaves to be read, or computed, of recorded streams of
requests (bench_cache.c says how). A working set is all blocks of a stream, or those that more than
one request has ("reused"): the rest can be of use to nobody."""
import glob
import hashlib
import json
import os

TEXT_BYTES = 256  # of a block of miniswe, which has texts: about 64 tokens
POLICIES = ("lru", "lfu", "value", "belady")
PARTS, PARTS_QUICK = "1,2,3,4,6", "2"
# Name: tokens of a block.
STREAMS = {"conversation": 512, "synthetic": 512, "miniswe": TEXT_BYTES // 4}
TIERS = {"host": "host memory, filled by loads: bytes from the disk",
         "host+stores": "host memory, filled by loads and stores: bytes from the disk",
         "disk": "the disk, leaves first: what is computed although it had been stored"}


def mooncake(path):
    with open(path, encoding="utf8") as f:
        for line in f:
            row = json.loads(line)
            yield row["timestamp"], row["input_length"], row["hash_ids"]


def miniswe(folder):
    rows, numbers = [], {}
    for path in glob.glob(os.path.join(folder, "*.jsonl")):
        with open(path, encoding="utf8") as f:
            rows += [json.loads(line) for line in f]
    for row in sorted(rows, key=lambda r: r["timestamp"]):
        text, blocks = row["input"].encode(), []
        prefix = hashlib.blake2b(digest_size=16)
        for at in range(0, len(text) - TEXT_BYTES + 1, TEXT_BYTES):
            prefix.update(text[at:at + TEXT_BYTES])
            blocks.append(numbers.setdefault(prefix.digest(), len(numbers)))
        yield row["timestamp"] / 1e3, len(text) // 4, blocks


def requests_of(name, traces):
    if name == "miniswe":
        return miniswe(os.path.join(traces, name))
    return mooncake(os.path.join(traces, f"mooncake_{name}_trace.jsonl"))


def stream(name, traces, build, limit):
    path = os.path.join(build, f"cache-{name}.txt")
    with open(path, "w", encoding="utf8") as f:
        for number, (ms, tokens, blocks) in enumerate(requests_of(name, traces)):
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


def cache(quick, build, traces, read_series, verdict):
    results, ok = {}, True
    for name, tokens in STREAMS.items():
        path = stream(name, traces, build, 400 if quick else None)
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
