"""bench/run cake: both ends of a prompt on the simulated device (bench_cake.c), in the cells of
Cake's figures. Virtual time: the same each time, but for what a call of next_chunk costs."""
import csv
import json
import os
import statistics
import subprocess
import sys

RAW, BITS8, CACHEGEN = 1000, 1950, 7970  # thousandths: how often as short a token's bytes are
NAMES = {RAW: "16 bits", BITS8: "8 bits", CACHEGEN: "CacheGen"}
SCALES = {RAW: 16, BITS8: 4, CACHEGEN: 1}  # so that the longest prompt has about a GiB
RATES = (2000, 5000, 10000)  # Mbit/s, the paper's
SWEEP = (2000, 4000, 5000, 6000, 8000, 10000)
SHARES = (10, 50, 90)
LENGTHS = (2048, 4096, 8192, 16384, 32768)
SHORT = 1536  # tokens with rows as long as they are: 768 MiB
ORACLE, LOSS, ALONE, STEP, TURN = 1.03, 1, 1.02, 1.01, 1.10  # floors
STEP_TOKENS, BLOCK_TOKENS, TOKEN_BYTES = 512, 64, 524288
HEAD = (f"{'tokens':>7} {'GPU':>5} {'Gbit/s':>7} {'compute':>8} {'load':>8} {'both':>7} "
        f"{'oracle':>7} {'/ oracle':>9} {'vs compute':>11} {'vs load':>8} {'computed':>9}")
FIELDS = ("cell", "kv", "tokens", "share", "mbit", "later_mbit", "compute_ns", "load_ns", "both_ns",
          "oracle_ns", "computed", "cut", "steps")


def compute_s(tokens):
    return 1.003e-4 * tokens + 1.615e-9 * tokens ** 2


def run(program, *words):
    print("running bench-cake", *words, file=sys.stderr)
    done = subprocess.run([program, *words], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"bench: bench-cake ended with {done.returncode}:\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def cells_of(lengths, shares, rates):
    return [f"{n}:{share}:{rate}" for n in lengths for share in shares for rate in rates]


def run_cells(program, ratio, cells, tokens, *words):
    """Where rows are shorter than they would be, a load of SHORT tokens takes as long as theirs."""
    if SCALES[ratio] > 1:
        row, = run(program, "--scale", "1", "--ratio", str(ratio), "--tokens", str(SHORT),
                   "--cells", f"{SHORT}:0:1000")
        words += ("--over", f"{1e6 * row['load_ns'] / row['bytes_ns']:.0f}")
    return run(program, "--scale", str(SCALES[ratio]), "--ratio", str(ratio), "--tokens",
               str(tokens), "--cells", ",".join(cells), *words)


def ratio_of(row):
    return row["both_ns"] / row["oracle_ns"]


def loss_of(row, ratio):
    """What both ends take more than the best cut, of an engine's step and a block where they met:
    neither side takes less at a time."""
    share, met = row["share"] / 100, row["computed"]
    step_s = (compute_s(met) - compute_s(max(met - STEP_TOKENS * share, 0))) / share
    block_s = BLOCK_TOKENS * TOKEN_BYTES * 1000 / ratio / (row["mbit"] * 1.25e5)
    return (row["both_ns"] - row["oracle_ns"]) / 1e9 / (step_s + block_s)


def against(row, what):
    return 100 * (row["both_ns"] / row[what] - 1)


def show(title, rows, paper=""):
    """Prints them, and what the paper has; the worst ratio to the best cut."""
    print(f"\n{title}; s\n{HEAD}")
    for row in rows:
        print(f"{row['tokens']:7} {row['share']:4}% {row['mbit'] / 1000:7g} "
              f"{row['compute_ns'] / 1e9:8.3f} {row['load_ns'] / 1e9:8.3f} "
              f"{row['both_ns'] / 1e9:7.3f} {row['oracle_ns'] / 1e9:7.3f} {ratio_of(row):9.4f} "
              f"{against(row, 'compute_ns'):10.1f}% {against(row, 'load_ns'):7.1f}% "
              f"{100 * row['computed'] / row['tokens']:8.1f}%")
    if paper:
        print(f"the paper: {paper}")
    return max(ratio_of(row) for row in rows)


def constants():
    """Figures 2 and 3, which nothing of the plugin is in."""
    bytes_s = 32768 * 524288 / compute_s(32768)
    print("\nfigure 2, from the constants alone: computing 32,768 tokens gives KV at "
          f"{bytes_s / 1e9:.2f} GB/s ({bytes_s * 8e-9:.1f} Gbit/s; a tenth of the GPU "
          f"{bytes_s * .8e-9:.1f}); the paper: comparable to an SSD or network")
    steps = [compute_s((i + 1) * 512) - compute_s(i * 512) for i in (0, 15, 31, 63)]
    print("figure 3, from the constants alone: chunks of 512, number 1, 16, 32, 64: "
          + ", ".join(f"{1e3 * step:.1f}" for step in steps)
          + " ms; the paper: linear in the index")
    return {"equivalent_bytes_per_s": bytes_s, "chunk_s": steps}


def lengths_told(rows):
    first, last = rows[0], rows[-1]
    points = 100 * (first["computed"] / first["tokens"] - last["computed"] / last["tokens"])
    of_compute = [row["both_ns"] / row["compute_ns"] for row in (first, last)]
    print(f"from {first['tokens']} to {last['tokens']} tokens the share that is computed falls by "
          f"{points:.1f} points (the paper: 10), the time from {100 * of_compute[0]:.1f} to "
          f"{100 * of_compute[1]:.1f} % of computing, by "
          f"{100 * (of_compute[0] - of_compute[1]):.1f} points, "
          f"{100 * (1 - of_compute[1] / of_compute[0]):.1f} % (the paper: 15 %)")


def raw_cells(quick):
    long = 4096 if quick else 32768
    lengths = (2048, 4096) if quick else LENGTHS
    return [("5a", cells_of((long,), (100,), RATES)),
            ("5b", cells_of(lengths, (100,), (10000,))),
            ("8 14k", cells_of((14336,), SHARES, SWEEP) if not quick else []),
            ("8 9k", cells_of((9216,), SHARES, SWEEP) if not quick else []),
            ("turn", [f"{long}:100:10000>2000"]),
            ("mute", [f"{long}:100:0", f"{long}:100:1"]),
            ("alone", [f"{long}:0:{rate}" for rate in RATES])]


def split(rows, groups):
    rows, named = list(rows), {}
    for name, cells in groups:
        named[name], rows = rows[:len(cells)], rows[len(cells):]
    return named


def judge_cells(name, rows, ratio, verdict):
    """With a tenth of the GPU (CacheGen's rows at 5 Gbit/s), which the floor is of, beside the best
    cut; all of them beside what one side takes at a time."""
    loss = max(loss_of(row, ratio) for row in rows)
    ok = verdict(f"{name}: worst loss / a step and a block", loss, LOSS, True)
    some = [ratio_of(row) for row in rows if row["tokens"] == 14336 and row["share"] == 10
            and (ratio != CACHEGEN or row["mbit"] == 5000)]
    return ok & verdict(f"{name}, a tenth of the GPU: worst both / oracle", max(some), ORACLE,
                        True) if some else ok


def judge_raw(named, calls, verdict):
    ok = verdict("5a: worst both / oracle", show(
        "figure 5a: the whole GPU", named["5a"],
        "on an A100 up to -31.5 % against computing, -76.9 to -93.5 % against loading; the model: "
        "4.58, 4.06, 3.44 s"), ORACLE, True)
    ok &= verdict("5b: worst both / oracle",
                  show("figure 5b: over lengths", named["5b"]), ORACLE, True)
    lengths_told(named["5b"])
    for name in ("8 14k", "8 9k"):
        if named[name]:
            show(f"figures 6, 8: {name[2:]}, shares of the GPU", named[name],
                 "14k: -5.3 to -68.1 % against computing, -27.4 to -93.7 % against loading")
            ok &= judge_cells(f"{name}, {NAMES[RAW]}", named[name], RAW, verdict)
    ok &= verdict("10 -> 2 Gbit/s half-way: both / the best that knows it", show(
        "the rate falls from 10 to 2 Gbit/s half-way", named["turn"]), TURN, True)
    worst = max((row["both_ns"] - row["compute_ns"]) / row["block_ns"] for row in named["mute"])
    print("\na device that never answers, and one of 1 Mbit/s: "
          + ", ".join(f"{row['both_ns'] / 1e9:.3f}" for row in named["mute"])
          + f" s, computing alone {named['mute'][0]['compute_ns'] / 1e9:.3f}")
    ok &= verdict("a device that gives nothing: (both - compute) / a block's compute", worst, 1,
                  True)
    print("\nnobody computes: the tail " + ", ".join(f"{row['load_ns'] / 1e9:.3f}"
                                                      for row in named["alone"])
          + " s, all layers by get_important "
          + ", ".join(f"{row['whole_ns'] / 1e9:.3f}" for row in named["alone"]))
    ok &= verdict("the tail alone / all layers, load_policy load", max(
        row["load_ns"] / row["whole_ns"] for row in named["alone"]), ALONE, True)
    step_ns = 1e9 * compute_s(512)
    cost = [statistics.median(row["ns"]) for row in calls]
    print(f"\nfigure 7: next_chunk takes {cost[0]:.0f} ns (a range), {cost[1]:.0f} ns (MET), the "
          f"least step {step_ns / 1e6:.1f} ms; the paper: negligible")
    return ok & verdict("a step with the call / without", 1 + max(
        max(row["ns"]) for row in calls) / step_ns, STEP, True)


def judge_quantised(ratio, name, rows, raw, verdict):
    show(f"figure 8: {name}, rows of {NAMES[ratio]}: {ratio / 1000:g} times as short, "
         "token bytes alone (nothing is coded)", rows)
    for row in rows:
        beside = [r for r in raw if all(r[k] == row[k] for k in ("tokens", "share", "mbit"))]
        if row["share"] == 10 and row["mbit"] == 5000 and beside:
            print(f"at 10 % and 5 Gbit/s: {row['compute_ns'] / row['both_ns']:.2f} times as fast "
                  f"as computing (the paper, CacheGen: 11.83), "
                  f"{100 * (row['both_ns'] / beside[0]['both_ns'] - 1):.1f} % beside 16 bits (the "
                  "paper, CacheGen, all cells: -32.8 to -73.5)")
    return judge_cells(f"{name}, {NAMES[ratio]}", rows, ratio, verdict)


def write_csv(path, named):
    with open(path, "w", newline="", encoding="utf8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(FIELDS)
        for (kv, name), rows in named.items():
            for row in rows:
                table.writerow([name, kv] + [row[field] for field in FIELDS[2:]])


def cake(build, quick, csv_path, verdict):
    program = os.path.join(build, "bin", "bench-cake")
    print("virtual time; the device and the GPU are simulated, 512 KiB of KV a token, T(n) = "
          "1.003e-4 n + 1.615e-9 n² s")
    results = {"constants": constants()}
    groups = raw_cells(quick)
    rows = run_cells(program, RAW, [cell for _, cells in groups for cell in cells],
                     4096 if quick else 32768, "--calls", "1000" if quick else "32768")
    calls = rows[-2:]
    named = split(rows, groups)
    ok = judge_raw(named, calls, verdict)
    table = {(NAMES[RAW], name): cells for name, cells in named.items()}
    results["calls"] = calls
    for ratio in (BITS8, CACHEGEN):
        lengths = (2048,) if quick else (14336, 9216)
        quantised = run_cells(program, ratio,
                              cells_of(lengths, SHARES, (5000,) if quick else SWEEP), lengths[0])
        for tokens in lengths:
            name = f"8 {tokens // 1024}k"
            some = table[NAMES[ratio], name] = [r for r in quantised if r["tokens"] == tokens]
            ok &= judge_quantised(ratio, name, some, named.get(name, []), verdict)
    results["cells"] = {f"{kv}, {name}": cells for (kv, name), cells in table.items()}
    if csv_path:
        write_csv(csv_path, table)
    return ok, results
