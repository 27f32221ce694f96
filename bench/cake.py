"""bench/run cake: both ends of a prompt on the simulated device (bench_cake.c), in the cells of
Cake's figures. Virtual time: the same each time, but for what a call of next_chunk costs.

Compressed KV: rows are stored quantised, too, and loaded so (decision 0062). Bytes are those that
such a load asks for. Dequantising takes DECODE's rate on the thread that loads.

Cells of other GPUs and models, and averages, follow from constants: the best split, without the
plugin."""
import csv
import json
import os
import statistics
import subprocess
import sys

RAW, BITS8, BITS35, CACHEGEN = "16 bits", "8 bits", "3.5 bits", "CacheGen"
# K, V, allocation. CacheGen's size, 16 / 7.97 bits a value, is nearest to 1.5 bits with scales; its
# quality is nearer to 3.5 bits.
CODECS = {BITS8: ("8", "8", "uniform"), BITS35: ("4", "3", "uniform"),
          CACHEGEN: ("1.5", "1.5", "per_channel")}
SCALE, LAYERS = 16, 2  # rows shorter, or layers fewer: the longest prompt has a GiB at most
DECODE = 8000  # MB/s of 16-bit rows: the slowest of several runs of 1.5 bits, both cores busy
DECODE_H200 = 2120000  # uniform bits, the slowest of cuda-nvidia-h200-9fa6379f-variants.csv
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


def best_s(tokens, share, mbit, token_bytes=TOKEN_BYTES, speed=1.0):
    """The best split's seconds: compute_s times `speed` / share in front, the link behind."""
    low, high, link = 0, tokens, token_bytes / (mbit * 1.25e5)
    while low < high:
        cut = (low + high) // 2
        if speed * compute_s(cut) / share >= (tokens - cut) * link:
            high = cut
        else:
            low = cut + 1
    return max(speed * compute_s(low) / share, (tokens - low) * link)


def run(program, *words):
    print("running bench-cake", *words, file=sys.stderr)
    done = subprocess.run([program, *words], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"bench: bench-cake ended with {done.returncode}:\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def cells_of(lengths, shares, rates):
    return [f"{n}:{share}:{rate}" for n in lengths for share in shares for rate in rates]


def codec_words(kv):
    bits_k, bits_v, allocation = CODECS[kv]
    return ("--scale", "1", "--layers", str(LAYERS), "--bits-k", bits_k, "--bits-v", bits_v,
            "--allocation", allocation)


def run_cells(program, kv, cells, tokens, *words):
    """Where rows are shorter than they would be, a load of SHORT tokens takes as long as theirs."""
    if kv == RAW:
        row, = run(program, "--scale", "1", "--tokens", str(SHORT), "--cells", f"{SHORT}:0:1000")
        words += ("--scale", str(SCALE), "--over", f"{1e6 * row['load_ns'] / row['bytes_ns']:.0f}")
    else:
        words += codec_words(kv) + ("--decode", str(DECODE))
    return run(program, *words, "--tokens", str(tokens), "--cells", ",".join(cells))


def ratio_of(row):
    return row["both_ns"] / row["oracle_ns"]


def loss_of(row):
    """What both ends take more than the best cut, of an engine's step and a block where they met:
    neither side takes less at a time."""
    share, met = row["share"] / 100, row["computed"]
    step_s = (compute_s(met) - compute_s(max(met - STEP_TOKENS * share, 0))) / share
    block_s = BLOCK_TOKENS * row["token_bytes"] / (row["mbit"] * 1.25e5)
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


def judge_cells(name, rows, kv, verdict):
    """With a tenth of the GPU (CacheGen's rows at 5 Gbit/s), which the floor is of, beside the best
    cut; all of them beside what one side takes at a time."""
    loss = max(loss_of(row) for row in rows)
    ok = verdict(f"{name}: worst loss / a step and a block", loss, LOSS, True)
    some = [ratio_of(row) for row in rows if row["tokens"] == 14336 and row["share"] == 10
            and (kv != CACHEGEN or row["mbit"] == 5000)]
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
            ok &= judge_cells(f"{name}, {RAW}", named[name], RAW, verdict)
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


def step_with_call(calls):
    """Figure 7: the least step, alone and with the slower call of next_chunk, in real time."""
    step_ns = 1e9 * compute_s(STEP_TOKENS)
    call_ns = max(statistics.median(row["ns"]) for row in calls)
    return {**dict.fromkeys(FIELDS[2:], ""), "tokens": STEP_TOKENS, "share": 100,
            "compute_ns": round(step_ns), "both_ns": round(step_ns + call_ns), "steps": 1}


def judge_quantised(kv, name, rows, verdict):
    bits_k, bits_v, allocation = CODECS[kv]
    show(f"figure 8: {name}, {kv}: K {bits_k} and V {bits_v} bits, {allocation}, "
         f"{rows[0]['token_bytes']:.0f} bytes a token, {TOKEN_BYTES / rows[0]['token_bytes']:.2f} "
         f"times fewer; decoded at {DECODE / 1e3:g} GB/s (this kernel, now: "
         f"{rows[0]['decoded_bytes_per_s'] / 1e9:.1f})", rows)
    return judge_cells(f"{name}, {kv}", rows, kv, verdict)


def beside(rows, row):
    """The same cell, of other KV."""
    return next((r for r in rows if all(r[k] == row[k] for k in ("tokens", "share", "mbit"))), None)


def percents(values):
    return f"{min(values):.1f} to {max(values):.1f} %"


def compressed_told(table):
    """Section 5.4. Returns rows of (number, theirs, ours)."""
    told = []
    for kv, theirs in ((BITS8, "1.95"), (CACHEGEN, "7.97"), (BITS35, "none")):
        for tokens in ("14k", "9k"):
            rows, raw = table.get((kv, f"8 {tokens}"), []), table.get((RAW, f"8 {tokens}"), [])
            pairs = [(row, beside(raw, row)) for row in rows if beside(raw, row)]
            if not pairs:
                continue
            first = f"{kv}, {tokens}: "
            told += [(first + "loading alone, times as fast as 16 bits", theirs,
                      f"{max(r['load_ns'] / q['load_ns'] for q, r in pairs):.2f}"),
                     (first + "both ends beside both ends with 16 bits, all cells",
                      "-32.8 to -73.5 %" if kv == CACHEGEN else "none",
                      percents([100 * (q["both_ns"] / r["both_ns"] - 1) for q, r in pairs]))]
            told += [(first + f"times as fast as computing, 10 % of the GPU, {q['mbit'] // 1000} "
                      "Gbit/s", "11.83" if kv == CACHEGEN else "none",
                      f"{q['compute_ns'] / q['both_ns']:.2f}")
                     for q, _ in pairs if q["share"] == 10 and q["mbit"] in RATES]
            told += [(first + "beside loading alone, 90 % of the GPU",
                      "-66.4 %" if kv == CACHEGEN else "none",
                      percents([against(q, "load_ns") for q, _ in pairs if q["share"] == 90]))]
    return told


def raw_told(table):
    """Sections 1, 5.2, 5.3, of the cells that were run."""
    rows = [row for name in ("8 14k", "8 9k") for row in table.get((RAW, name), [])]
    if not rows:
        return []
    tenth = [row for row in table[RAW, "8 14k"] if row["share"] == 10]
    most = [row for row in table[RAW, "8 14k"] if row["share"] == 90]
    delay = (tenth[0]["compute_ns"] - most[0]["compute_ns"]) / 1e9
    return [("mean of 14k and 9k cells, beside computing", "-36.7 %, cells not named",
             f"{statistics.mean(against(row, 'compute_ns') for row in rows):.1f} %"),
            ("mean of 14k and 9k cells, beside loading", "-60.55 %, cells not named",
             f"{statistics.mean(against(row, 'load_ns') for row in rows):.1f} %"),
            ("computing 14k with 10 % of the GPU / with 90 %", "8.22, 14.34 s more",
             f"{tenth[0]['compute_ns'] / most[0]['compute_ns']:.2f}, {delay:.2f} s more"),
            ("14k, 10 % of the GPU, beside loading", "-27.4 to -65.1 %",
             percents([against(row, "load_ns") for row in tenth]))]


def constants_told():
    """Best splits of what the plugin did not run: averages, an H100, Llama-2-13B."""
    lengths = [5000 + round(11000 * i / 19) for i in range(20)]
    cells = [(n, share / 100, mbit) for n in lengths for share in SHARES for mbit in SWEEP]

    def load_s(tokens, mbit, token_bytes=TOKEN_BYTES):
        return tokens * token_bytes / (mbit * 1.25e5)

    told = [("best split, 20 lengths of 5k to 16k, all shares and rates: mean beside computing",
             "-36.7 %, cells not named",
             f"{100 * statistics.mean(best_s(*c) * c[1] / compute_s(c[0]) - 1 for c in cells):.1f}"
             " %"),
            ("the same beside loading", "-60.55 %, cells not named",
             f"{100 * statistics.mean(best_s(*c) / load_s(c[0], c[2]) - 1 for c in cells):.1f} %")]
    long = 32768
    # Cake's -80.2 % at 10 Gbit/s and -26.7 % give one time of computing 32k tokens.
    speeds = {"H100 by Cake's own percentages":
              (1 - .802) * load_s(long, 10000) / (1 - .267) / compute_s(long),
              "H100 by data sheets (989 and 312 Tflop/s)": 312 / 989}
    for name, speed in speeds.items():
        both = [best_s(long, 1, mbit, speed=speed) for mbit in RATES]
        told += [(f"{name}: computes 32k tokens in {speed * compute_s(long):.2f} s; beside loading",
                  "-80.2 to -94.6 %",
                  percents([100 * (b / load_s(long, m) - 1) for b, m in zip(both, RATES)])),
                 (f"{name}: beside computing", "up to -26.7 %",
                  percents([100 * (b / speed / compute_s(long) - 1) for b in both]))]
    # Llama-2-13B: 13.016 and 6.738 10^9 parameters; 40 layers of 5,120 and 32 of 4,096 channels.
    seconds13 = 13.016 / 6.738 * 1.003e-4 * long + 40 * 5120 / (32 * 4096) * 1.615e-9 * long ** 2
    bytes13 = 40 * 5120 * 4 * long
    speed = speeds["H100 by Cake's own percentages"]
    told += [(f"figure 2, {gpu}, {model}: computing 32k tokens gives KV at", "a bar, no number",
              f"{count / (f * took) / 1e9:.2f} GB/s")
             for gpu, f in (("A100", 1), ("H100", speed))
             for model, count, took in (("7B", TOKEN_BYTES * long, compute_s(long)),
                                        ("13B", bytes13, seconds13))]
    told += [("finding 2: 10,000 tokens of 7B on an A100", "about 1 s",
              f"{compute_s(10000):.2f} s")]
    return told


def told_print(rows):
    print(f"\nnumbers of the text\n{'number':86} {'the paper':>25} {'here':>20}")
    for number, theirs, ours in rows:
        print(f"{number:86} {theirs:>25} {ours:>20}")


def with_h200(program, table, quick):
    """The cells of a tenth of the GPU once more, dequantised by a device."""
    told = []
    for kv in CODECS:
        rows = [row for row in table.get((kv, "8 14k"), [])
                if row["share"] == 10 and row["mbit"] in RATES]
        if quick or not rows:
            continue
        by_gpu = run(program, *codec_words(kv), "--decode", str(DECODE_H200), "--tokens", "14336",
                     "--cells", ",".join(f"14336:10:{row['mbit']}" for row in rows))
        told += [(f"{kv}, 14k: times as fast as computing, 10 % of the GPU, "
                  f"{row['mbit'] // 1000} Gbit/s, decoded by an H200",
                  "11.83" if kv == CACHEGEN else "none",
                  f"{row['compute_ns'] / row['both_ns']:.2f}") for row in by_gpu]
    return told


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
    table = {(RAW, name): cells for name, cells in named.items()}
    results["calls"] = calls
    table[RAW, "7"] = [step_with_call(calls)]
    for kv in CODECS:
        lengths = (2048,) if quick else (14336,) if kv == BITS35 else (14336, 9216)
        quantised = run_cells(program, kv,
                              cells_of(lengths, SHARES, (5000,) if quick else SWEEP), lengths[0])
        for tokens in lengths:
            name = f"8 {tokens // 1024}k"
            some = table[kv, name] = [r for r in quantised if r["tokens"] == tokens]
            ok &= judge_quantised(kv, name, some, verdict)
    results["told"] = (raw_told(table) + compressed_told(table) + with_h200(program, table, quick)
                       + constants_told())
    told_print(results["told"])
    results["cells"] = {f"{kv}, {name}": cells for (kv, name), cells in table.items()}
    if csv_path:
        write_csv(csv_path, table)
    return ok, results
