"""bench/run ttft --way replay --device sim, cells "depth ...": how much of a full load (as-like) is
waited for, where a layer's compute takes as long as its load, or longer. All but the first layer
can be read while another one is computed, so one layer's load is the ideal; the floor is 1.10
times that.

The simulated device and its virtual clock, as replay_layered.py has them: nothing but I/O counts.
Half of the staging memory is for what is read ahead. Cells with less of it than two layers take
have no floor: they show what is lost then."""
import json

import replay
from replay_layered import SIM

# Shape, tokens, layers (they lie in memory: 1.2 GiB of rows, 1.2 and 2.0).
SHAPES = (("opt-6.7b", 4864, 16), ("opt-6.7b", 10000, 8), ("llama-3-8b", 32000, 16))
WINDOWS = (1.0, 1.5)  # of one layer's load
STAGES = (512, 256)   # MiB: as the other cells of replay have it, and the default
FILL_MIB = 1024       # for storing, which needs two layers of room
WARM, REQUESTS = 1, 2
FLOOR = 1.10


def config(stage_mib):
    return json.dumps({"path": "/sim/store", "preset": "as-like", "host_bytes": 0,
                       "disk_bytes": "20GB", "staging_bytes": f"{stage_mib}MiB", "sim": SIM})


def counts_of(shape, tokens, layers, stage_mib, window_ns, build, read_series):
    """What the requests under the window waited for, in all."""
    args = {"layers": layers, "tokens": tokens, "prefixes": 1, "new": 64, "similarity": 0.8,
            "recall": 0.6, "fallback": 0.0}
    words = ["--mode", "sim", "--warm", str(WARM), "--requests", str(REQUESTS), "--window-ns",
             str(window_ns), "--selects", "0", "--stage-bytes", str(FILL_MIB << 20),
             "--fill-config", config(FILL_MIB), "--config", config(stage_mib)]
    _, _, counts = read_series([*replay.common_words(shape, args, build), *words], True)
    return counts["window"]


def cell(shape, tokens, layers, stages, build, read_series, verdict):
    row_bytes = 4 * replay.SHAPES[shape][1] * replay.SHAPES[shape][3]
    first = counts_of(shape, tokens, layers, STAGES[0], 1, build, read_series)
    load_ns = first["read_bytes"] / REQUESTS / layers / SIM["bytes_per_s"] * 1e9
    print(f"\n{shape}, {tokens:,} tokens, rows of {row_bytes // 1024} KiB, {layers} layers, "
          f"as-like on the simulated device of {SIM['bytes_per_s'] / 1e9:.0f} GB/s: a layer is "
          f"{load_ns * SIM['bytes_per_s'] / 1e9 / 2**20:.0f} MiB, its load {load_ns / 1e6:.1f} ms")
    print(f"{'staging':>8} {'compute a layer':>16} {'exposed ms':>11} {'ideal':>7} {'ratio':>6}")
    ok, rows = True, []
    for stage_mib in stages:
        for window in WINDOWS:
            counts = counts_of(shape, tokens, layers, stage_mib, int(load_ns * window), build,
                               read_series)
            exposed_ns = counts["exposed_ns"] / REQUESTS
            print(f"{stage_mib:4} MiB {window:10.1f} loads {exposed_ns / 1e6:11.1f} "
                  f"{load_ns / 1e6:7.1f} {exposed_ns / load_ns:6.2f}")
            rows.append({"stage_mib": stage_mib, "window": window, "load_ns": load_ns, **counts})
            if stage_mib == STAGES[0]:
                ok &= verdict("I/O exposed / one layer's load", exposed_ns / load_ns, FLOOR, True)
    return ok, rows


def replay_all(quick, build, read_series, verdict, only):
    """All cells, or those whose names hold `only`: does the floor hold, and the counts."""
    ok, out = True, {}
    for shape, tokens, layers in SHAPES[:1] if quick else SHAPES:
        name = f"depth {shape} {tokens}"
        if only in name:
            holds, out[name] = cell(shape, tokens, 4 if quick else layers,
                                    STAGES[:1] if quick else STAGES, build, read_series, verdict)
            ok &= holds
    return ok, out
