"""bench/run cake: both ends of a prompt on the simulated device (bench_cake.c), in the cells of Cake's
figures. Virtual time: the same each time, but for what a call of next_chunk costs."""
import csv
import json
import os
import statistics
import subprocess
import sys

RAW, BITS8, CACHEGEN = 1000, 1950, 7970  # thousandths: how often as short a token's bytes are
NAMES = {RAW: "16 bits", BITS8: "8 bits", CACHEGEN: "CacheGen"}
RATES = (2000, 5000, 10000)  # Mbit/s, the paper's
SWEEP = (2000, 4000, 5000, 6000, 8000, 10000)
SHARES = (10, 50, 90)
LENGTHS = (2048, 4096, 8192, 16384, 32768)
SHORT = 1536  # tokens with --scale 1: 768 MiB
# Floors.
ORACLE, ALONE, STEP, TURN = 1.03, 1.02, 1.01, 1.10
# Figure 5a: rate -> ours by the model, reductions against computing and against loading.
PAPER_5A = {2000: (4.58, -8.8, -93.3), 5000: (4.06, -19.1, -85.2), 10000: (3.44, -31.5, -75.0)}
PAPER_68 = {2000: -38, 5000: -60, 10000: -74}  # at a tenth of the GPU, 14k tokens


def run(program, *words):
    done = subprocess.run([program, *words], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"bench: bench-cake ended with {done.returncode}:\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def cells_of(lengths, shares, rates):
    return [f"{n}:{share}:{rate}" for n in lengths for share in shares for rate in rates]


def over(program, ratio):
    """Millionths of its rows' bytes that a load takes, rows as long as they are."""
    row, = run(program, "--scale", "1", "--ratio", str(ratio), "--tokens", str(SHORT), "--cells",
               f"{SHORT}:100:1000")
    return row["load_ns"] / row["bytes_ns"]


def ratio_of(row):
    return row["both_ns"] / row["oracle_ns"]


HEAD = (f"{'tokens':>7} {'GPU':>5} {'Gbit/s':>7} {'compute':>8} {'load':>8} {'both':>7} "
        f"{'oracle':>7} {'/ oracle':>9} {'vs compute':>11} {'vs load':>8} {'computed':>9}")


def line(row):
    both = row["both_ns"]
    return (f"{row['tokens']:7} {row['share']:4}% {row['mbit'] / 1000:7g} "
            f"{row['compute_ns'] / 1e9:8.3f} {row['load_ns'] / 1e9:8.3f} {both / 1e9:7.3f} "
            f"{row['oracle_ns'] / 1e9:7.3f} {ratio_of(row):9.4f} "
            f"{100 * (both / row['compute_ns'] - 1):10.1f}% {100 * (both / row['load_ns'] - 1):7.1f}% "
            f"{100 * row['computed'] / row['tokens']:8.1f}%")


def show(title, rows):
    print(f"\n{title}; s\n{HEAD}")
    for row in rows:
        print(line(row))
    return max(ratio_of(row) for row in rows)
