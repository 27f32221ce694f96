"""bench/run cut: compute or load on the simulated device (bench_cut.c), load rates swept around the
one at which loading the whole prefix takes as long as computing it. Virtual time: the same each
time."""
import json
import os
import subprocess
import sys

# Of the rate at which both take as long; of 50 times, both ways.
FACTORS = "0.02,0.05,0.1,0.2,0.5,0.8,1,1.25,2,5,10,20,50"
QUICK = "0.1,1,10"
CELLS = (("one pass", ()), ("passes of 2,048", ("--pass", "2048")))
MANY = ("--requests", "768")  # some look whether a slow device is still slow: their share, not luck
# Floors; SLOW: where the device is slower than computing, and of what a store costs.
LEAST, ORACLE, SLOW = 1.05, 1.15, 1.02


def run(program, factors, words):
    command = [program, "--factors", factors, *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"bench: bench-cut ended with {done.returncode}:\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def show(name, rows):
    """Worst ratios of the rows: to the better of recompute and full load, to the oracle, to
    recompute where the device is slower; of store to recompute."""
    print(f"\n{name}: {rows[0]['tokens']} tokens and a query of 64, 512 KiB a token, "
          "T(n) = 1.003e-4 n + 1.615e-9 n² s; ms")
    print(f"{'rate':>6} {'GB/s':>8} {'recompute':>10} {'load':>9} {'cut':>8} {'promised':>9} "
          f"{'best cut':>9} {'both ends':>10} {'/ better':>9} {'/ oracle':>9}")
    worst = [0.0, 0.0, 0.0]
    store = max(row["store_ns"] / row["recompute_ns"] for row in rows)
    for row in rows:
        better = min(row["recompute_ns"], row["load_ns"])
        oracle = min(row["oracle_ns"], row["best_ns"])
        ratios = [row["cut_ns"] / better, row["cut_ns"] / oracle]
        if row["load_ns"] > row["recompute_ns"]:
            ratios.append(row["cut_ns"] / row["recompute_ns"])
        worst = [max(pair) for pair in zip(worst, ratios + worst[len(ratios):])]
        print(f"{row['factor']:6g} {row['bytes_per_s'] / 1e9:8.2f} "
              f"{row['recompute_ns'] / 1e6:10.1f} {row['load_ns'] / 1e6:9.1f} "
              f"{row['cut_ns'] / 1e6:8.1f} {row['promised']:9.0f} {row['best_ns'] / 1e6:9.1f} "
              f"{row['oracle_ns'] / 1e6:10.1f} {ratios[0]:9.3f} {ratios[1]:9.3f}")
    return *worst, store


def cut(build, quick, verdict):
    program = os.path.join(build, "bin", "bench-cut")
    ok, results = True, {}
    for name, words in CELLS[:1] if quick else CELLS:
        rows = run(program, QUICK if quick else FACTORS,
                   ("--tokens", "2048", *words) if quick else (*MANY, *words))
        results[name] = rows
        better, oracle, slow, store = show(name, rows)
        ok &= verdict(f"{name}: worst cut / min(recompute, load)", better, LEAST, True)
        if name == "one pass":  # both ends of a prompt that is computed in passes are another bound
            ok &= verdict(f"{name}: worst cut / oracle", oracle, ORACLE, True)
        ok &= verdict(f"{name}: worst cut / recompute where loading takes longer", slow, SLOW, True)
        ok &= verdict(f"{name}: worst store / recompute", store, SLOW, True)
    return ok, results
