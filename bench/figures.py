"""figures: one plot for each figure of the papers, in their axes, beside their numbers.

Theirs is drawn only where the text of a paper has the number; nothing is read off their drawings.
Each title says whether ours is measured or simulated.

    FIGURES   one entry a plot: the rows of docs/results/reproduction.md that it shows (their first
              cells begin so), the command that measures it, and how it is drawn

Tests: tests/unit/tools/test_plots.py."""
from plots import COLOURS, THEIRS, Figure, band, bars, curves, dots, doubling, level, number

MODELS = {"recall_ids": "opt-recall", "recall_text": "smollm2"}  # by the set that asks them


# ---- What is drawn. Each returns False if its table has nothing. ----


def ratios(table, figure, base, presets, cache=True):
    """[(cell's name, {preset: base's time / its time})] of a figure of bench/run impress."""
    cells = {}
    for row in table.rows("impress", figure=figure):
        if bool(number(row, "cache")) == cache or row["preset"] in ("recompute", "query"):
            cells.setdefault(row["cell"], {})[row["preset"]] = row
    out = []
    for cell, rows in cells.items():
        if base in rows and any(preset in rows for preset in presets):
            out.append((cell, {p: float(rows[base]["mean_ms"]) / float(rows[p]["mean_ms"])
                               for p in presets if p in rows}))
    return out


def short(cell):
    """opt-6.7b rte cache 0.70 -> 6.7b rte."""
    return cell.split(" cache")[0].replace("opt-", "").replace("llama-2-", "").replace(
        "openbookqa", "obqa")


def draw_2(ax, table):
    found = {}
    for row in table.rows("impress", figure="2"):
        key = row["cell"].split()[-1] if row["preset"] == "as-like" else row["preset"]
        found[key] = float(row["mean_ms"])
    if "query" not in found:
        return False
    keys = ("query", "memory", "disk", "recompute")
    bars(ax, ("query alone", "prefix from\nhost memory", "prefix\nfrom SSD", "recompute"),
         {"ours": [found[key] / found["query"] for key in keys]}, (None, None, None, 9))
    return True


def draw_2_smollm2(ax, table):
    found = table.means("ttft")
    series = ("query", "hosted", "reuse", "recompute")
    values = [found.get((f"smollm2 / series / {name}", "ns")) for name in series]
    if None in values:
        return False
    bars(ax, ("query alone", "prefix from\nhost memory", "prefix\nfrom disk", "recompute"),
         {"ours": [value / 1e6 for value in values]}, log=True)
    return True


def tokens_of(row):
    return int(row["cell"].split()[1])


def draw_3(ax, table):
    rows = table.rows("impress", figure="3")
    if not rows:
        return False
    series = {"recompute": [r for r in rows if r["preset"] == "recompute"]}
    for where, name in (("disk", "SSD"), ("memory", "host memory")):
        series[name] = [r for r in rows if r["preset"] == "as-like" and r["cell"].endswith(where)]
    curves(ax, {name: {(tokens_of(r), float(r["mean_ms"])) for r in some}
                for name, some in series.items()})
    doubling(ax)
    ax.set_yscale("log")
    return True


def draw_3_share(ax, table):
    rows = [r for r in table.rows("impress", figure="3", preset="as-like")
            if r["cell"].endswith("disk")]
    if not rows:
        return False
    curves(ax, {"ours, SSD": [(tokens_of(r), 100 * float(r["load_ms"]) / float(r["mean_ms"]))
                              for r in rows]})
    band(ax, 51, 98, "theirs: 51 to 98 %")
    doubling(ax)
    ax.set_ylim(0, 100)
    return True


def by_share(table, key, sets=MODELS):
    """{model: [(share of rows, mean)]} of bench/run similarity."""
    out = {}
    for (of, figure), mean in table.means("similarity").items():
        name, _, rho = of.partition(", rho ")
        if figure == key and name in sets and "," not in rho:
            out.setdefault(MODELS[name], []).append((100 * float(rho), mean))
    return out


def draw_4_recall(ax, table):
    found = by_share(table, "static")
    curves(ax, found)
    level(ax, .8, "theirs: above 0.80")
    ax.set_ylim(0, 1)
    return bool(found)


def accuracy_of(rows, contender, key):
    return next((number(row, key) for row in rows if row["contender"] == contender), None)


def draw_4_quality(ax, table):
    recall = table.rows("accuracy-static", group="all")
    squad = [] if table.quick else table.rows("squad")
    if not recall:
        return False
    values = {}
    for name, contender in (("static set", "static@.25"), ("guided", "impress@.25")):
        values[name] = []
        for rows, key in ((recall, "accuracy_choice"), (squad, "f1")):
            full, chosen = accuracy_of(rows, "full", key), accuracy_of(rows, contender, key)
            values[name].append(None if None in (full, chosen) else 100 * (full - chosen))
    bars(ax, ("accuracy\n(theirs RTE, ours recall)", "F1, SQuAD"), values, (5, 3.3))
    return True


def draw_5a(ax, table):
    found = table.means("similarity")
    values = [found.get((f"{name}, rho 0.5", "chunk")) for name in MODELS]
    bars(ax, tuple(MODELS.values()), {"ours": values})
    level(ax, .46, "theirs: 0.46, OPT-6.7B")
    return any(values)


def draw_5b(ax, table):
    points = [(int(of.rpartition(" ")[2]), mean) for (of, key), mean
              in table.means("similarity").items() if ", held by " in of and key == "important"]
    curves(ax, {"ours, smollm2": points})
    ax.set_ylim(0, 1)
    return bool(points)


def layers(table, key, rho):
    """{model: [(layer, mean)]}."""
    out = {}
    for (of, figure), mean in table.means("similarity").items():
        name, _, rest = of.partition(f", rho {rho}, layer ")
        if figure == key and rest and name in MODELS:
            out.setdefault(MODELS[name], []).append((int(rest), mean))
    return out


def draw_7b(ax, table):
    found = layers(table, "heads", "0.25")
    bars(ax, tuple(f"{model},\nlayer {len(points) // 2}" for model, points in found.items()) or
         ("none",), {"ours": [sorted(points)[len(points) // 2][1] for points in found.values()]
                     or [None]})
    level(ax, .95, "theirs: above 0.95, OPT-6.7B")
    return bool(found)


def draw_8(ax, table):
    found = {}
    for rho, name in (("0.1", "10 %"), ("0.4", "40 %")):
        for model, points in layers(table, "heads", rho).items():
            found[f"{model}, {name}"] = points
    curves(ax, dict(sorted(found.items())), ("o:", "o-"))
    level(ax, .48, "theirs: 0.48 and 0.68, OPT-30B")
    level(ax, .68, None)
    ax.set_ylim(0, 1)
    return bool(found)


def draw_examples(ax, table):
    theirs = {"7a": (1 / 3,), "9": (160, 76), "14": (20, 15)}
    rows = table.rows("examples")
    if not rows:
        return False
    dots(ax, [f"{r['figure']}: {r['what']}".replace("Jaccard index of", "Jaccard,")
              for r in rows], [number(r, "value") for r in rows],
         [value for figure in theirs.values() for value in figure])
    return True


def threshold_of(contender):
    """The similarity that probe heads need: (k / (2 - k)) ^ alpha, of a quarter of the rows."""
    return (.25 / 1.75) ** float(contender.partition("@")[2])


def alphas(table, key):
    """{model: [(contender, value)]} over all prefixes."""
    out = {}
    for row in table.rows("accuracy-alpha", group="all"):
        if row["contender"].startswith("alpha@"):
            out.setdefault(row["set"].partition(",")[0], []).append(
                (row["contender"], float(row[key])))
    return out


def draw_11(ax, table):
    found = {}
    for key, name in (("fallback", "layers with all keys"), ("accuracy_query", "accuracy")):
        for model, points in alphas(table, key).items():
            found[f"{model}, {name}"] = [(threshold_of(c), value) for c, value in points]
    curves(ax, dict(sorted(found.items(), reverse=True)), ("s--", "o-"))
    ax.plot((1, 0), (.791, .775), "D", color=THEIRS, markerfacecolor="white",
            label="theirs: accuracy, PIQA")
    ax.set_xlim(1.05, -.05)
    ax.set_ylim(-.05, 1.09)
    return bool(found)


def retention(table):
    """{(set, method): [(share of rows, points lost)]}, by the question alone if both were asked."""
    rows = table.rows("retention") or [row for name in (
        ("accuracy",) if table.quick else ("curve", "recall_ids")) for row in table.rows(name)]
    full, out = {}, {}
    for row in rows:
        key = "accuracy_query" if row.get("accuracy_query") else "accuracy_choice"
        kind, _, share = row["contender"].partition("@")
        if row["group"] not in ("all", "curve") or not row.get(key):
            continue
        if kind == "full":
            full[row["set"], row["group"]] = float(row[key])
        elif kind in ("impress", "h2o") and (row["set"], row["group"]) in full:
            lost = 100 * (float(row[key]) - full[row["set"], row["group"]])
            out.setdefault((row["set"], kind), {})[float(share)] = lost
    return out


def draw_15(ax, table):
    found = {f"{name.replace('smollm2, ', '')}, {kind}": list(points.items())
             for (name, kind), points in sorted(retention(table).items()) if len(points) > 1
             or table.quick}
    curves(ax, found, ("s--", "o-"))
    band(ax, -1, 0, "theirs: within 1 point")
    ax.set_xscale("log")
    ax.set_xlim(.6, .04)
    ax.set_xticks((.5, .25, .1, .05), ("0.5", "0.25", "0.1", "0.05"))
    ax.minorticks_off()
    return bool(found)


SYSTEMS = {"recompute": "ReComp", "as-like": "AS-like", "as-h2o-lfu": "AS+H2O+LFU",
           "impress": "IMPRESS"}


def draw_16(ax, table):
    cells = {}
    for figure in ("16", "18"):
        for row in table.rows("impress", figure=figure):
            if " cache 0.7" in row["cell"] and "prefixes" not in row["cell"]:
                times = cells.setdefault(short(row["cell"]), {})
                times[row["preset"]] = float(row["mean_ms"]) / 1e3
    names = sorted(cells, key=lambda name: (float(name.split("b")[0]), name))
    if names:
        bars(ax, names, {system: [cells[name].get(preset) for name in names]
                         for preset, system in SYSTEMS.items()})
    return bool(names)


def draw_16_times(ax, table):
    found = [(short(cell), gain["impress"]) for figure in ("16", "18")
             for cell, gain in ratios(table, figure, "as-h2o-lfu", ("impress",))
             if "prefixes" not in cell]
    found.sort(key=lambda each: (float(each[0].split("b")[0]), each))
    if found:
        bars(ax, [name for name, _ in found], {"ours": [gain for _, gain in found]})
    band(ax, 1.2, 2.8, "theirs: 1.2 to 2.8")
    return bool(found)


def draw_17(ax, table):
    waits = {}
    for row in [*table.rows("impress", figure="16"), *table.rows("impress", figure="18")]:
        if "rte cache 0.7" in row["cell"] and "prefixes" not in row["cell"] and row["load_ms"]:
            waits.setdefault(row["shape"], {})[row["preset"]] = float(row["load_ms"])
    shapes = sorted(waits, key=lambda shape: float(shape[4:-1]))
    if shapes:
        bars(ax, shapes, {"ours": [waits[s]["as-h2o-lfu"] / waits[s]["impress"] for s in shapes]})
    band(ax, 1.5, 3.8, "theirs: 1.5 to 3.8")
    return bool(shapes)


def draw_p99(ax, table):
    rows = [r for r in table.rows("impress", figure="p99") if " cache 0.7" in r["cell"]]
    if not any(r["p99_ms"] for r in rows):
        return False
    presets = {"recompute": "ReComp", "as-like": "AS-like", "none": "AS+H2O\n+LRU",
               "as-h2o-lfu": "AS+H2O\n+LFU", "impress": "IMPRESS"}
    series = {}
    for key, name in (("p99_ms", "ours"), ("queued_p99_ms", "ours, queued at 0.8 load")):
        found = {r["preset"]: number(r, key) for r in rows}
        series[name] = [found[p] / 1e3 if found.get(p) else None for p in presets]
    bars(ax, tuple(presets.values()), series, (3.9, 9.3, 6.6, 5.9, 2.95), log=True)
    return True


STEPS = ("as-h2o-lfu", "impress-itf", "impress-itf-ro", "impress")


def draw_18(ax, table):
    cells = {}
    for row in table.rows("impress", figure="18"):
        if " cache 0.7" in row["cell"]:
            cells.setdefault(short(row["cell"]), {})[row["preset"]] = float(row["mean_ms"])
    shown = [("30b rte,\ntheirs", (60, 30, 10)), ("13b copa,\ntheirs", (36, 8, 56))]
    for name, found in cells.items():
        times = [found[step] for step in STEPS]
        gain = times[0] - times[-1]
        shown.append((name + ",\nours", [100 * (a - b) / gain for a, b in zip(times, times[1:])]))
    shown.sort()
    bottom = [0] * len(shown)
    for i, step in enumerate(("+ITF", "+RO", "All (+score)")):
        values = [parts[i] for _, parts in shown]
        places = ax.bar([name for name, _ in shown], values, bottom=bottom, color=COLOURS[i],
                        label=step, width=.6)
        for place, (name, _) in zip(places, shown):
            place.set_hatch("///" if name.endswith("theirs") else "")
        bottom = [low + value for low, value in zip(bottom, values)]
    return bool(cells)


def draw_19(ax, table):
    rows = [r for r in table.rows("impress", preset="impress-itf") if r.get("rows_by_layer")
            and r["figure"] in ("16", "18")]
    rows.sort(key=lambda r: (r["shape"] != "opt-30b", r["set"] != "piqa"))
    if not rows:
        return False
    shares = [float(word) for word in rows[0]["rows_by_layer"].split()]
    ax.bar(range(len(shares)), shares, color=COLOURS[0],
           label=f"ours, {rows[0]['shape']}, {rows[0]['set']}, +ITF")
    ax.set_ylim(0, 1)
    return True


def draw_20(ax, table):
    values = {"sets alone": [], "loads by the connector": []}
    for model in MODELS.values():
        rows = {r["cell"]: r for r in table.rows("plan-reordered", model=model, scope="span")}
        for name, cell in zip(values, ("chunks 0.25", "chunk 25")):
            values[name].append(number(rows[cell], "ops_before") / number(rows[cell], "ops_after")
                                if cell in rows else None)
    bars(ax, tuple(MODELS.values()), values)
    level(ax, 1.2, "theirs: 1.2")
    return any(v for each in values.values() for v in each)


def found_above(table, figure, policies):
    """{(model, policy): {store's GB: share of important rows found in the upper tier}}."""
    sums = {}
    for row in table.rows("cache", figure=figure):
        if row["rows of chunks"] == "measured" and row["policy"] in policies:
            place = sums.setdefault((row["model"], row["policy"]), {}).setdefault(
                float(row["store_gb"]), [0, 0])
            place[0] += float(row["gpu_rows"])
            place[1] += float(row["rows"])
    return {key: {gb: part / all_ for gb, (part, all_) in each.items()}
            for key, each in sums.items()}


def draw_21(ax, table):
    policies = ("lru", "lfu", "score")
    found = found_above(table, "21", policies)
    models = sorted({model for model, _ in found})
    if models:
        bars(ax, policies, {model: [next(iter(found.get((model, policy), {0: None}).values()))
                                    for policy in policies] for model in models}, (None, .68, .8))
    return bool(models)


def draw_22(ax, table):
    found = {}
    for row in table.rows("impress", figure="22", set="rte"):
        preset, _, alpha = row["preset"].partition(" alpha ")
        if alpha:
            name = "rows" if preset.endswith("+range") else "slabs"
            found.setdefault(f"TTFT, {name}", []).append(
                (float(alpha), float(row["mean_ms"]) / 1e3))
    curves(ax, found)
    other = ax.twinx()
    other.set_ylabel("accuracy (dotted)")
    other.set_ylim(0, 1.05)
    for i, (model, points) in enumerate(alphas(table, "accuracy_query").items()):
        points = [(float(c.partition("@")[2]), value) for c, value in points]
        other.plot(*zip(*sorted(p for p in points if p[0] <= 2)), "^:", color=COLOURS[3 + i],
                   markersize=4)
        ax.plot([], [], "^:", color=COLOURS[3 + i], markersize=4, label=f"accuracy, {model}")
    ax.axvline(.6, color=THEIRS, linestyle="--", linewidth=1.2, label="theirs: 0.6 chosen")
    ax.set_ylim(0)
    return bool(found)


def draw_23(ax, table):
    found = {}
    for cell, gains in ratios(table, "23", "as-h2o-lfu", ("impress-itf", "impress-itf+range"),
                              cache=False):
        for preset, name in (("impress-itf", "slabs"), ("impress-itf+range", "rows")):
            found.setdefault(name, []).append((int(cell.rpartition(" ")[2]), gains[preset]))
    curves(ax, found)
    band(ax, 2.2, 2.4, "theirs: 2.2 to 2.4")
    doubling(ax)
    ax.set_ylim(0, 2.6)
    return bool(found)


def draw_24(ax, table):
    points = [(1 / float(cell.rpartition(" ")[2]), gains["impress"])
              for cell, gains in ratios(table, "24", "as-h2o-lfu", ("impress",))]
    curves(ax, {"ours": points})
    band(ax, 1.2, 2.0, "theirs: 1.2 to 2.0")
    ax.set_ylim(0)
    return bool(points)


def draw_24_rows(ax, table):
    found = found_above(table, "24", ("lfu", "score"))
    curves(ax, {f"{policy}, {model}": list(points.items())
                for (model, policy), points in sorted(found.items())})
    ax.set_ylim(0)
    return bool(found)


def draw_25(ax, table):
    found = ratios(table, "25", "as-h2o-lfu", ("impress",)) or ratios(
        table, "25", "as-h2o-lfu", ("impress-itf",), cache=False)
    if found:
        bars(ax, [short(cell) for cell, _ in found],
             {"ours": [next(iter(gains.values())) for _, gains in found]})
    band(ax, 1.7, 2.7, "theirs: 1.7 to 2.7")
    return bool(found)


def draw_overhead(ax, table):
    rows = {row["shape"]: row for row in table.rows("overhead")}
    if "opt-30b" not in rows:
        return False
    row, large = rows["opt-30b"], rows.get("opt-6.7b", rows["opt-30b"])
    kv_gb = float(row["kv_bytes"]) / float(row["tokens"]) * 2600 / 1e9
    times = {key: mean for key, mean in table.means("ttft-replay").items() if "impress-itf+range"
             in key[0]}
    spent = [mean for (_, figure), mean in times.items() if figure == "probe_ns"]
    asked = [mean for (_, figure), mean in times.items() if figure == "requests"]
    ttft = [mean for (of, figure), mean in times.items() if of.endswith("ttft") and figure == "ns"]
    moved = [number(r, "reorder_ms") for r in table.rows("plan-reordered", model="smollm2")
             if r.get("reorder_ms")]
    dots(ax, ("2.2: KV of 2,600 tokens, GB", "4.4.1: indexing, % of TTFT",
              "6.5: probing, % of TTFT", "6.5: mapping lists, % of rows",
              "6.5: probe keys, % of KV", "6.5: reordering, s"),
         (kv_gb, 100 * float(large["indexing_share"]),
          100 * sum(spent) / sum(asked) / ttft[0] * len(ttft) if ttft and spent else None,
          100 * float(large["lists_share"]), 100 * float(large["probe_share"]),
          moved[0] / 1e3 if moved else None), (3.4, 2, 6, .5, 1.2, 60))
    return True


def draw_probes(ax, table):
    rows = table.rows("accuracy-probes", group="all")
    names = ("impress:1@.25", "impress:2@.25", "impress@.25")
    values = [accuracy_of(rows, name, "kl") for name in names]
    if None in values:
        return False
    bars(ax, ("one", "two", "three"), {"ours": values}, log=True)
    return True


def draw_fallback(ax, table):
    """Draws impress at a quarter of the rows, and the cells of figure 16."""
    names = ("accuracy",) if table.quick else ("sets", "recall", "recall_ids")
    found = {}
    for row in table.rows("retention") or [row for name in names for row in table.rows(name)]:
        kind, _, share = row["contender"].partition("@")
        if (row["group"], kind) == ("all", "impress") and float(share) == .25:
            found[row["set"].replace("smollm2, ", "").replace(", ", ",\n")] = float(row["fallback"])
    cells = [float(r["fallback"]) for r in table.rows("impress", figure="16",
                                                       preset="impress-itf") if r["fallback"]]
    if cells:
        found["figure 16,\nmean"] = sum(cells) / len(cells)
    bars(ax, tuple(found) or ("none",), {"ours": list(found.values()) or [None]})
    level(ax, .2, "theirs: less than 0.20")
    return bool(found)


def draw_12a(ax, table):
    found = layers(table, "neighbours", "0.25")
    curves(ax, found)
    ax.axhline(.25 / 1.75, color="#777777", linestyle=":", label="random sets")
    ax.set_ylim(0, 1)
    return bool(found)


def draw_12b(ax, table):
    found = by_share(table, "neighbours")
    curves(ax, found)
    ax.plot(range(5, 55), [k / (200 - k) for k in range(5, 55)], ":", color="#777777",
            label="random sets")
    ax.set_ylim(0, 1)
    return bool(found)


def draw_recall(ax, table):
    found, keys = table.means("similarity"), {
        "sink": "first and\nlast", "static": "static", "layer_prediction": "layer",
        "before": "hint,\nbefore", "after": "hint,\nafter"}
    older = {"layer_prediction": "layer_guess"}  # of earlier versions
    series = {model: [found.get((f"{name}, rho 0.25", key),
                                found.get((f"{name}, rho 0.25", older.get(key)))) for key in keys]
              for name, model in MODELS.items()}
    bars(ax, tuple(keys.values()), series)
    ax.axhline(.25, color="#777777", linestyle=":", label="random rows")
    return any(v for each in series.values() for v in each)


def draw_hidden(ax, table):
    found, kinds = table.means("prefetch"), ("none", "random", "static", "layer", "before", "after")
    series = {model: [found.get((f"{name} / shares / {kind}", "hidden")) for kind in kinds]
              for name, model in MODELS.items()}
    bars(ax, kinds, series)
    return any(v for each in series.values() for v in each)


def draw_deciles(ax, table):
    found = {}
    for (of, figure), mean in table.means("prefetch").items():
        name, _, decile = of.partition(" / rankings, rho 0.25, decile ")
        if decile and figure == "layer" and name in MODELS:
            found.setdefault(MODELS[name], []).append((int(decile), mean))
    curves(ax, found)
    ax.set_ylim(0, 1)
    return bool(found)


def draw_speculation(ax, table):
    found, cells = table.means("ttft-replay-sim"), {}
    for (of, figure), mean in found.items():
        cell, _, run = of.partition(" / runs / ")
        preset, _, window = run.partition(", beside 0 / ")
        if figure == "ns" and window and preset in ("spec-itf+range", "impress-itf+range"):
            name = f"{cell.replace('guesses ', '').replace('opt-6.7b ', '')},\n{window}"
            cells.setdefault(name, {})[preset] = mean
    if cells:
        bars(ax, tuple(cells), {"ours": [each["spec-itf+range"] / each["impress-itf+range"]
                                         for each in cells.values()]})
    ax.axhline(1, color="#777777", linestyle=":", label="impress-itf+range")
    return bool(cells)


def draw_sota(ax, table):
    rows = [] if table.quick else table.rows("presets", shape="OPT-6.7B", row="16 KiB")
    times = {(r["preset"], r["fallback"]): number(r, "ttft_ms") for r in rows}
    groups = [f for preset, f in times if preset == "spec-itf+range"]
    base = next((preset for preset, _ in times if preset.startswith("as-h2o-lru and")), None)
    if not groups or base is None:
        return False
    bars(ax, [f"fallback {f}" for f in groups], {"ours": [
        times[base, f] / times["spec-itf+range", f] for f in groups]})
    level(ax, 2, "theirs: up to 2 (abstract), 2.8")
    level(ax, 2.8, None)
    return True


KV_BYTES = 524288  # a token's, of Cake's 7B


def cake(table, cell, kv="16 bits", **wanted):
    return [{key: number(row, key) if key not in ("cell", "kv") else row[key] for key in row}
            for row in table.rows("cake", cell=cell, kv=kv, **wanted)]


def draw_cake_2(ax, table):
    whole = cake(table, "5a")
    tenth = [row for row in cake(table, "8 14k") if row["share"] == 10]
    if not whole:
        return False
    rates = [rows[-1]["tokens"] * KV_BYTES / rows[-1]["compute_ns"] if rows else None
             for rows in (whole, tenth)]
    bars(ax, ("computes:\nA100", "a tenth\nof it", "HDD", "SATA\nSSD", "network\n20 Gbit/s",
              "NVMe\nSSD"), {"ours": [*rates, None, None, None, None]},
         (None, None, .2, .6, 2.5, 3))
    return True


def draw_cake_3(ax, table):
    times = [(0, 0), *sorted({(row["tokens"], row["compute_ns"]) for cell in ("5b", "5a")
                              for row in cake(table, cell)})]
    points = [((a + b) / 2 / 512, (d - c) / (b - a) * 512 / 1e6)
              for (a, c), (b, d) in zip(times, times[1:])]
    curves(ax, {"ours, mean of the chunks between two lengths": points})
    ax.set_ylim(0)
    return bool(points)


def draw_cake_5a(ax, table):
    rows = cake(table, "5a")
    if rows:
        bars(ax, [f"{row['mbit'] / 1e3:g}" for row in rows],
             {name: [row[key] / 1e9 for row in rows] for name, key in (
                 ("compute", "compute_ns"), ("fetch", "load_ns"), ("both ends", "both_ns"))},
             log=True)
    return bool(rows)


def saved(row, what):
    return 100 * (1 - row["both_ns"] / row[what])


def draw_cake_5a_saved(ax, table):
    rows = cake(table, "5a")
    curves(ax, {"compared with compute": [(r["mbit"] / 1e3, saved(r, "compute_ns")) for r in rows],
                "compared with fetch": [(r["mbit"] / 1e3, saved(r, "load_ns")) for r in rows]})
    level(ax, 31.5, "theirs, compute: up to 31.5 %")
    band(ax, 76.9, 93.5, "theirs, fetch: 76.9 to 93.5 %")
    ax.set_ylim(0, 100)
    return bool(rows)


def draw_cake_5b(ax, table):
    rows = cake(table, "5b")
    curves(ax, {"ours": [(r["tokens"] / 1024, 100 * r["computed"] / r["tokens"]) for r in rows]})
    ax.plot((2, 32), (85, 75), "D", color=THEIRS, markerfacecolor="white",
            label="theirs: 75 %, 10 points less")
    doubling(ax)
    ax.set_ylim(50, 100)
    return bool(rows)


def draw_cake_5b_time(ax, table):
    rows = cake(table, "5b")
    if not rows:
        return False
    parts = [(r["tokens"] / 1024, r["both_ns"] / r["compute_ns"]) for r in rows]
    curves(ax, {"ours": [(x, 100 * part / parts[0][1]) for x, part in parts]})
    ax.plot((32,), (85,), "D", color=THEIRS, markerfacecolor="white", label="theirs: 15 % less")
    doubling(ax)
    ax.set_ylim(70, 105)
    return True


def draw_cake_6(what, low, high):
    def draw(ax, table):
        rows = cake(table, "8 14k")
        curves(ax, {f"{share:g} % of the GPU": [(r["mbit"] / 1e3, saved(r, what)) for r in rows
                                                if r["share"] == share]
                    for share in sorted({r["share"] for r in rows})})
        band(ax, low, high, f"theirs: {low} to {high} %")
        ax.set_ylim(0, 100)
        return bool(rows)
    return draw


def draw_cake_7(ax, table):
    rows = cake(table, "7")
    if rows:
        bars(ax, ("without", "with"), {"ours": [rows[0]["compute_ns"] / 1e6,
                                               rows[0]["both_ns"] / 1e6]})
    return bool(rows)


def draw_cake_8(ax, table):
    kvs = [kv for kv in ("16 bits", "8 bits", "3.5 bits", "CacheGen")
           if cake(table, "8 14k", kv)]
    names = [name for name in ("8 14k", "8 9k") if cake(table, name)]
    series = {}
    for name in names:
        series[name[2:]] = [next((r["compute_ns"] / r["both_ns"] for r in cake(table, name, kv)
                                  if (r["share"], r["mbit"]) == (10, 5000)), None) for kv in kvs]
    if series:
        bars(ax, kvs, series, [11.83 if kv == "CacheGen" else None for kv in kvs])
    return bool(series)


def draw_cake_8_saved(ax, table):
    found = {}
    for name in ("8 14k", "8 9k"):
        raw = {(r["share"], r["mbit"]): r["both_ns"] for r in cake(table, name)}
        for row in cake(table, name, "CacheGen"):
            if (row["share"], row["mbit"]) in raw:
                gain = 100 * (1 - row["both_ns"] / raw[row["share"], row["mbit"]])
                found.setdefault(f"{name[2:]}, {row['share']:g} %", []).append(
                    (row["mbit"] / 1e3, gain))
    curves(ax, found)
    band(ax, 32.8, 73.5, "theirs: 32.8 to 73.5 %")
    ax.set_ylim(0, 100)
    return bool(found)


def draw_stand_ins(ax, table):
    kl = {row["contender"]: number(row, "kl")
          for row in table.rows("quality-variant", task="needle", group="all", measure="word")}
    if not kl:
        return False
    bars(ax, ("25 %", "10 %"), {name: [kl.get(f"{method}@{share}") for share in (".25", ".1")]
                                for name, method in (("dropped", "h2o"), ("stand-ins", "stand"))})
    return True


I, H, C = "IMPRESS ", "HyperInfer, SPEC: ", "Cake "
SIM, REAL, RULES = "simulated", "measured", "constants"
SETS = "bench/run similarity"
FIGURES = (
    Figure("2a", I + "2a, 2c, 2d: a prefix of 2,600 tokens, OPT-30B", ("2a, 2b, 2.2", "2c, 2d"),
           SIM, "", "TTFT / TTFT of the query alone", "bench/run impress --only 2", draw_2),
    Figure("2c", I + "2c, 2d: smollm2, 2,215 tokens", ("2c, 2d",), REAL, "", "TTFT, ms",
           "bench/run ttft", draw_2_smollm2),
    Figure("3", I + "3: TTFT by tier, OPT-6.7B", ("3, TTFT",), SIM, "prefix, tokens", "TTFT, ms",
           "bench/run impress --only 3", draw_3),
    Figure("3-load", I + "3: load / TTFT", ("3, TTFT",), SIM, "prefix, tokens",
           "load, % of TTFT", "bench/run impress --only 3", draw_3_share),
    Figure("4", I + "4: recall of a static set", ("4, recall",), REAL, "rows kept, %", "recall",
           SETS, draw_4_recall),
    Figure("4-quality", I + "4: quality lost, a quarter of the rows",
           ("4, accuracy", "4, F1"), REAL, "", "points lost", "bench/run accuracy --sets "
           "recall_ids --lessons 4 --contenders full,static@.25,impress@.25", draw_4_quality),
    Figure("5a", I + "5a: half of the rows important", ("5a",), REAL, "",
           "important / loaded rows", SETS, draw_5a),
    Figure("5b", I + "5b: importance by frequency, PIQA", ("5b",), REAL,
           "prefixes that hold the chunk", "important / rows", SETS, draw_5b),
    Figure("7b", I + "7b: heads of the middle layer", ("7b",), REAL, "", "mean Jaccard index",
           SETS, draw_7b),
    Figure("8", I + "8: heads, 10 % and 40 % of the rows", ("8,",), REAL, "layer",
           "mean Jaccard index", SETS, draw_8),
    Figure("examples", I + "7a, 9, 14: worked examples", ("7a", "9,", "14"), "checked",
           "", "", "bench/run examples", draw_examples),
    Figure("11", I + "11: similarity threshold, a quarter of the rows", ("11",), REAL,
           "similarity threshold", "share", "bench/run accuracy --sets recall_ids,recall_text "
           "--per-prefix 2 --select-by query --contenders full,alpha@0,alpha@.6,alpha@50",
           draw_11),
    Figure("15", I + "15: quality by retention", ("15",), REAL, "rows kept (ratio)",
           "accuracy - full KV's, points", "bench/run accuracy", draw_15),
    Figure("16", I + "16: mean TTFT, papers' caches", ("16,",), SIM, "", "TTFT, s",
           "bench/run impress --only 16", draw_16),
    Figure("16-times", I + "16: times faster than AS+H2O+LFU", ("16,",), SIM, "", "times faster",
           "bench/run impress --only 16", draw_16_times),
    Figure("17", I + "17: load time, RTE, times less", ("17",), SIM, "", "times less waiting",
           "bench/run impress --only 16", draw_17),
    Figure("p99", I + "6.2: p99, RTE, OPT-30B", ("6.2,",), SIM, "", "TTFT, s",
           "bench/run impress --only p99", draw_p99),
    Figure("18", I + "18: each step's share of the gain", ("18,",), SIM, "", "% of the gain",
           "bench/run impress --only 18", draw_18),
    Figure("19", I + "19: rows loaded by layer", ("19",), SIM, "layer", "rows loaded / all",
           "bench/run impress --only 16", draw_19),
    Figure("20", I + "20: chunks read, times fewer, a quarter of the rows", ("20",), REAL, "",
           "times fewer", "bench/run plan --reordered", draw_20),
    Figure("21", I + "21: important rows found in GPU memory", ("21",), SIM, "", "hit ratio",
           "bench/run cache --csv FILE", draw_21),
    Figure("22", I + "22: alpha, OPT-6.7B, RTE, no caches", ("22",), "simulated TTFT", "alpha",
           "TTFT, s", "bench/run impress --only 22", draw_22),
    Figure("23", I + "23: chunk size, OPT-6.7B, PIQA, no caches", ("23",), SIM, "tokens a chunk",
           "times AS+H2O+LFU", "bench/run impress --only 23", draw_23),
    Figure("24", I + "24: store size, OpenBookQA", ("24, store",), SIM, "store / memory",
           "times AS+H2O+LFU", "bench/run impress --only 24", draw_24),
    Figure("24-rows", I + "24: important rows found in GPU memory", ("24, share",), SIM,
           "store, GB", "hit ratio", "bench/run cache --csv FILE", draw_24_rows),
    Figure("25", I + "25: Llama-2, papers' caches", ("25",), SIM, "", "times AS+H2O+LFU",
           "bench/run impress --only 25", draw_25),
    Figure("overheads", I + "2.2, 4.4.1, 6.5: overheads", ("2.2,", "4.4.1", "6.5,"),
           "measured, OPT shapes", "", "", "bench/run overhead", draw_overhead),
    Figure("4.3-probes", I + "4.3: probe heads, smollm2", ("4.3, one",), REAL, "probe heads",
           "KL to full KV", "bench/run accuracy --sets recall_text --per-prefix 2 --contenders "
           "full,impress:1@.25,impress:2@.25,impress@.25", draw_probes),
    Figure("4.3-fallback", I + "4.3: layers that fall back", ("4.3, layers",), REAL, "",
           "share of layers", "bench/run accuracy", draw_fallback),
    Figure("H12a", "HyperInfer 12a: neighbouring layers", ("HyperInfer 12a",), REAL, "layer",
           "Jaccard index", SETS, draw_12a),
    Figure("H12b", "HyperInfer 12b: neighbouring layers, by share", ("HyperInfer 12b",), REAL,
           "rows kept, %", "Jaccard index", SETS, draw_12b),
    Figure("S-recall", H + "recall of predictors", ("both, III", "SPEC IV-C, first"), REAL, "",
           "recall, a quarter of the rows", SETS, draw_recall),
    Figure("S-hidden", H + "reads hidden, by predictor", ("both, II:",), REAL, "predictor",
           "share hidden", "bench/run prefetch", draw_hidden),
    Figure("S-ranks", H + "similarity by rank", ("SPEC IV-C, higher",), REAL,
           "tenth of the ranking", "precision", "bench/run prefetch", draw_deciles),
    Figure("S-window", H + "next layer's rows read ahead", ("both, IV-C",), SIM, "",
           "TTFT / impress-itf+range", "bench/run ttft --way replay --device sim --only guesses",
           draw_speculation),
    Figure("S-ttft", H + "times faster than AS+H2O+LRU", ("TTFT / state",), REAL, "",
           "times faster", "bench/run ttft --way replay", draw_sota),
    Figure("T", "TeX draft: rows that stand in for others, smollm2", ("TeX",), REAL, "rows kept",
           "KL to full KV", "bench/run quality --variant", draw_stand_ins),
    Figure("C2", C + "2: computing as a bandwidth", ("Cake 2",), RULES, "", "GB/s",
           "bench/run cake", draw_cake_2),
    Figure("C3", C + "3: latency of a chunk of 512", ("Cake 3",), RULES, "chunk", "ms",
           "bench/run cake", draw_cake_3),
    Figure("C5a", C + "5a: 32k tokens, whole GPU", ("Cake 5a",), SIM, "Gbit/s", "TTFT, s",
           "bench/run cake", draw_cake_5a),
    Figure("C5a-saved", C + "5a: time saved", ("Cake 5a",), SIM, "Gbit/s", "% of TTFT saved",
           "bench/run cake", draw_cake_5a_saved),
    Figure("C5b", C + "5b: computed share, 10 Gbit/s", ("Cake 5b",), SIM, "thousand tokens",
           "computed, %", "bench/run cake", draw_cake_5b),
    Figure("C5b-time", C + "5b: TTFT / compute, 2k tokens = 100", ("Cake 5b",), SIM,
           "thousand tokens", "%", "bench/run cake", draw_cake_5b_time),
    Figure("C6-compute", C + "6: saved vs compute, 14k", ("Cake 6",), SIM, "Gbit/s",
           "% of TTFT saved", "bench/run cake", draw_cake_6("compute_ns", 5.3, 68.1)),
    Figure("C6-fetch", C + "6: saved vs fetch, 14k", ("Cake 6",), SIM, "Gbit/s",
           "% of TTFT saved", "bench/run cake", draw_cake_6("load_ns", 27.4, 93.7)),
    Figure("C7", C + "7: a step with and without the call", ("Cake 7",), "call measured", "",
           "ms", "bench/run cake", draw_cake_7),
    Figure("C8", C + "8: times faster than compute, a tenth, 5 Gbit/s", ("Cake 8",), SIM, "",
           "times faster", "bench/run cake", draw_cake_8),
    Figure("C8-saved", C + "8: CacheGen, saved vs 16 bits, by GPU share", ("Cake 8",), SIM,
           "Gbit/s", "% of TTFT saved", "bench/run cake", draw_cake_8_saved),
)
