"""bench/run reproduce: all tables of docs/results/reproduction.md as CSV files.

Each is `bench/run NAME` as the docs name it, with --quick where that is asked for; what it measured
becomes docs/results/reproduce[-quick]-NAME.csv: its own table where it writes one, with intervals,
else a line a figure: mean and its 95 % interval, by bootstrap over rounds, requests or prefixes.
Counts, and times of a virtual clock, come out the same each time: of these low is high. What is
skipped, since a model, data or a tool is absent, or fails, is told, and stands in
reproduce[-quick].csv beside the seconds that each took; the others are run all the same.

Times on this machine's disk and processor say what they were in that run, no more.

At the end, one page with a plot of each figure (figures.py) is drawn from the tables that are then
in docs/results: docs/results/plots/reproduction[-quick].svg and .png. --only plots: that alone."""
import csv
import json
import os
import random
import subprocess
import sys
import tempfile
import time

import figures
import plots

ALPHAS = ",".join(f"alpha@{alpha}" for alpha in ("0", ".2", ".4", ".6", ".8", "1", "1.5", "50"))

# Table: words behind its name, and whether it writes a table of its own.
TABLES = {
    "examples": ((), True), "overhead": ((), True),
    "impress": ((), True), "cake": ((), True), "cache": ((), True), "similarity": ((), False),
    "accuracy": ((), True),
    "accuracy-alpha": (("--sets", "recall_ids,recall_text", "--per-prefix", "2", "--select-by",
                        "query", "--contenders", "full," + ALPHAS), True),
    "accuracy-static": (("--sets", "recall_ids", "--lessons", "4", "--per-prefix", "8",
                         "--contenders", "full,static@.25,impress@.25"), True),
    "accuracy-probes": (("--sets", "recall_text", "--per-prefix", "2", "--contenders",
                         "full,impress:1@.25,impress:2@.25,impress@.25"), True),
    "quality": ((), True), "quality-variant": (("--variant",), True),
    "prefetch": ((), False), "plan-reordered": (("--reordered",), True),
    "ttft": ((), False),
    "ttft-replay-sim": (("--way", "replay", "--device", "sim"), False),
    "ttft-replay": (("--way", "replay"), False),
}
SKIPPED, DRAWS = 77, 1000
CHUNK_ROWS = 64
FIELDS = ("of", "figure", "n", "mean", "low", "high")


def interval(groups):
    """Mean of all values, and the middle 95 % of it where groups of them are drawn anew."""
    def mean(some):
        return sum(map(sum, some)) / sum(map(len, some))
    dice = random.Random(1)
    draws = sorted(mean(dice.choices(groups, k=len(groups))) for _ in range(DRAWS))
    return mean(groups), draws[DRAWS // 40], draws[-DRAWS // 40 - 1]


def line(of, figure, groups):
    mean, low, high = interval(groups)
    return {"of": of, "figure": figure, "n": sum(map(len, groups)), "mean": mean, "low": low,
            "high": high}


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


BY_LAYER = {"heads": (.1, .25, .4), "neighbours": (.25,)}  # shares of rows that papers show


def line_of_rows(where, key, rows):
    """A line, or none, if the rows lack it; prefixes are drawn."""
    groups = {}
    for row in rows:
        if is_number(row.get(key)):
            groups.setdefault(row.get("id"), []).append(row[key])
    return [line(where, key, list(groups.values()))] if groups else []


def lines_of_layers(where, rho, rows):
    """A line a layer, of what the papers show by layer."""
    for key, shares in BY_LAYER.items():
        for layer in sorted({row["layer"] for row in rows if "layer" in row and rho in shares}):
            yield from line_of_rows(f"{where}, layer {layer}", key,
                                    [row for row in rows if row.get("layer") == layer])


def lines_of_chunks(where, rows):
    """Important rows / rows of chunks, by the number of prefixes that hold the chunk (5b)."""
    holders, shares = {}, {}
    for row in rows:
        for chunk, count in enumerate(row.get("chunks") or ()):
            holders.setdefault(chunk, {}).setdefault(row.get("id"), []).append(count / CHUNK_ROWS)
    for by_id in holders.values():
        for values in by_id.values():
            shares.setdefault(len(by_id), []).append(values)
    for count, groups in sorted(shares.items()):
        yield line(f"{where}, held by {count}", "important", groups)


def lines_of_deciles(where, rows):
    """How right each tenth of a predictor's ranking is, best first; no layer is below layer 0."""
    rows = [row for row in rows if row.get("layer") and "deciles" in row]
    for kind in dict.fromkeys(kind for row in rows for kind in row["deciles"]):
        for tenth in range(10):
            some = [{"id": row.get("id"), kind: row["deciles"][kind][tenth]} for row in rows
                    if kind in row["deciles"]]
            yield from line_of_rows(f"{where}, decile {tenth + 1}", kind, some)


def lines_of_rows(of, rows):
    """A line a figure and share of rows; prefixes are drawn."""
    for rho in sorted({row.get("rho", 0) for row in rows}):
        some = [row for row in rows if row.get("rho", 0) == rho]
        where = f"{of}, rho {rho:g}" if rho else of
        for key in dict.fromkeys(k for row in some for k in row if k not in
                                 ("rho", "question", "layer", "map")):
            yield from line_of_rows(where, key, some)
        yield from lines_of_layers(where, rho, some)
        yield from lines_of_chunks(where, some)
        yield from lines_of_deciles(where, some if "rankings" in of else ())


def lines_of(result, of=""):
    """A line for each series, list of rows and number in what a benchmark found."""
    if isinstance(result, dict) and "ns" in result and "name" in result:
        yield line(of, "ns", [[ns] for ns in result["ns"]])
    elif isinstance(result, dict):
        for key, value in result.items():
            if is_number(value):
                yield {"of": of, "figure": key, "n": 1, "mean": value, "low": value, "high": value}
            else:
                yield from lines_of(value, f"{of} / {key}" if of else str(key))
    elif isinstance(result, list) and result and all(isinstance(row, dict) for row in result):
        if any("ns" in row for row in result):
            for number, row in enumerate(result):
                yield from lines_of(row, f"{of} {number}")
        else:
            for row in result:  # times beside counts
                yield from (each for key, value in row.items() if isinstance(value, dict)
                            and "ns" in value for each in lines_of(value, f"{of} / {key}"))
            yield from lines_of_rows(of, result)


def write_csv(path, fields, lines):
    with open(path, "w", newline="", encoding="utf8") as f:
        writer = csv.DictWriter(f, fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()}
                         for row in lines)


def run_table(command, own_csv, path, folder):
    """What it ended with, and how many lines its file has."""
    raw = os.path.join(folder, "raw.json")
    words = [*command, "--json", raw, *(("--csv", path) if own_csv else ())]
    status = subprocess.run(words, check=False).returncode
    if not os.path.exists(raw):
        return status, 0
    if not own_csv:
        with open(raw, encoding="utf8") as f:
            write_csv(path, FIELDS, lines_of(json.load(f)["result"]))
    os.remove(raw)
    with open(path, encoding="utf8") as f:
        return status, sum(1 for _ in f) - 1


def reproduce(args, root):
    """All tables, or --only those whose names hold it: did each of them end as it should."""
    results = os.path.join(root, "docs", "results")
    stem = "reproduce-quick" if args.quick else "reproduce"
    common = [word for name in ("built", "data") if getattr(args, name)
              for word in ("--" + name, getattr(args, name))]
    told, ok = [], True
    with tempfile.TemporaryDirectory() as folder:
        for name, (words, own_csv) in TABLES.items():
            if args.only not in name:  # --only plots: none
                continue
            command = [sys.executable, os.path.join(root, "bench", "run"), name.split("-")[0],
                       *words, *common, *(("--quick",) if args.quick else ())]
            print(f"\n==== {name}", flush=True)
            begin = time.monotonic()
            status, count = run_table(command, own_csv,
                                      os.path.join(results, f"{stem}-{name}.csv"), folder)
            how = {0: "done", SKIPPED: "skipped"}.get(status, f"ended with {status}")
            told.append({"table": name, "how": how, "seconds": round(time.monotonic() - begin),
                         "lines": count})
            ok &= status in (0, SKIPPED)
    if not args.only:
        write_csv(os.path.join(results, stem + ".csv"), ("table", "how", "seconds", "lines"), told)
    plots.page(figures.FIGURES, results, os.path.join(root, "build"), args.quick)
    for row in told:
        print(f"{row['table']:16} {row['how']:14} {row['seconds']:6} s {row['lines']:6} lines")
    print(f"all: {sum(row['seconds'] for row in told)} s")
    return ok, {"tables": told}
