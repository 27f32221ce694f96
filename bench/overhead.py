"""bench/run overhead: what the bookkeeping of selection and reordering costs (IMPRESS, 2.2, 4.4.1
and 6.5), by bench-overhead on the simulated device.

Sizes are of a connector that stored one prompt of a large model's shape, some of its layers, with
and without probe keys, mapping lists and averages; they come out the same each time. `kv_bytes` is
for all layers of the model.

Indexing is what a request's lookup and the planning of its reads take of the processor, on this
machine, over rows that were reordered. Time to first token is the simulated device's, with the
papers' disk, bus and GPU, for the layers that are stored. So the share is of one request that reads
everything from the disk."""
import json
import os
import statistics

from impress import BUS, DISK, OPS, OP_NS, write_rows
from replay import GPU_BYTES, GPU_FLOP, SHAPES

MODELS = {**SHAPES, "smollm2": (30, 3, 9, 64, 3_538_944)}
# Shape, tokens, layers that are stored. The first: section 2.2's prompt.
CELLS = (("opt-30b", 2600, 2), ("opt-6.7b", 4864, 4), ("llama-3-8b", 4864, 4), ("smollm2", 2215, 8))
QUICK = (("opt-30b", 320, 1), ("smollm2", 640, 2))
LISTS_MOST, INDEXING_MOST = .5, 2  # per cent, of the paper, for OPT
FIELDS = ("shape", "tokens", "layers", "model_layers", "kv_bytes", "probe_share", "lists_share",
          "lookup_us", "plan_us", "plan_us_not_reordered", "ttft_ms", "indexing_share")


def config(**more):
    return json.dumps({"path": "/sim/store", "load_policy": "load", "host_bytes": 0,
                       "disk_bytes": "64GiB", "staging_bytes": "512MiB",
                       "maintain": {"bytes_per_s": 0},
                       "sim": {"bytes_per_s": int(DISK), "op_ns": OP_NS, "ops_per_s": OPS}, **more})


def words(build, shape, tokens, stored, rounds):
    """The command: alpha 50 is never undercut, so every layer has one voted set."""
    _, kv, heads, size, params = MODELS[shape]
    out = [os.path.join(build, "bin", "bench-overhead"), "--plain-config", config(preset="as-like"),
           "--config", config(preset="impress-itf-ro", reorder={"interval_s": 0},
                              select={"alpha_milli": 50000})]
    for word, value in (("layers", stored), ("kv-heads", kv), ("query-heads", heads),
                        ("head-size", size), ("layer-params", params), ("tokens", tokens),
                        ("rounds", rounds), ("gpu-flop", GPU_FLOP), ("gpu-bytes", GPU_BYTES),
                        ("bus", BUS)):
        out += [f"--{word}", str(value)]
    return out


def line_of(shape, series, facts):
    """A cell's row of the table."""
    us = {name: statistics.median(row["ns"]) / 1e3 for name, row in series.items()}
    rows, layers = facts["row_bytes"], MODELS[shape][0]
    return {"shape": shape, "tokens": facts["tokens"], "layers": facts["layers"],
            "model_layers": layers, "kv_bytes": rows // facts["layers"] * layers,
            "probe_share": (facts["extent_bytes"] - facts["extent_bytes_plain"]) / rows,
            "lists_share": (facts["log_bytes"] - facts["log_bytes_plain"]) / rows,
            "lookup_us": us["lookup"], "plan_us": us["plan"],
            "plan_us_not_reordered": us["plan plain"], "ttft_ms": facts["ttft_ns"] / 1e6,
            "indexing_share": (us["lookup"] + us["plan"]) * 1e3 / facts["ttft_ns"]}


def judge(line, verdict):
    """The paper's limits hold for its models."""
    if not line["shape"].startswith("opt"):
        return True
    ok = verdict(f"{line['shape']}: mapping lists and averages, % of rows",
                 100 * line["lists_share"], LISTS_MOST, True)
    return verdict(f"{line['shape']}: indexing, % of time to first token",
                   100 * line["indexing_share"], INDEXING_MOST, True) & ok


def overhead(args, build, read_series, verdict):
    """All cells: do the floors hold, and the lines of the table."""
    lines, ok, cells = [], True, {}
    print(f"{'shape':12} {'tokens':>6} {'layers':>6} {'KV GB':>7} {'probes':>7} {'lists':>8} "
          f"{'lookup us':>9} {'plan us':>8} {'plain':>8} {'ttft ms':>8} {'indexing':>8}")
    for shape, tokens, stored in QUICK if args.quick else CELLS:
        series, facts = read_series(words(build, shape, tokens, stored, 9 if args.quick else 201))
        line = line_of(shape, series, facts)
        print(f"{shape:12} {tokens:6} {stored:6} {line['kv_bytes'] / 1e9:7.3f} "
              f"{line['probe_share']:7.4f} {line['lists_share']:8.5f} {line['lookup_us']:9.1f} "
              f"{line['plan_us']:8.1f} {line['plan_us_not_reordered']:8.1f} "
              f"{line['ttft_ms']:8.2f} {line['indexing_share']:8.4f}")
        ok &= judge(line, verdict)
        lines.append(line)
        cells[f"{shape} {tokens}"] = {"series": series, "facts": facts}
    if args.csv:
        write_rows(args.csv, FIELDS, lines)
    return ok, {"lines": lines, "cells": cells}
