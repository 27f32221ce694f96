"""bench/run accuracy and bench/run similarity: eval sets, tables, intervals, CSV, charts.

accuracy    every question over the whole prefix and over chosen rows: share of answers equal to
            full KV's, KL of the first new token's logits, accuracy, each with a 95 % interval
            (bootstrap over prefixes, 2,000 draws); a curve over the share of rows; perplexity of
            continuations
similarity  what sets of important rows have in common: heads, neighbouring layers, questions, and
            how much of a layer's set each predictor finds before its queries exist

Eval sets come from the shared data beside the repository (--data DIR); what is absent is skipped
with a message. Nothing is written but the files that are asked for and the store under build/.
Tests: none (a measurement)."""
import csv
import json
import math
import os
import random
import shutil
import subprocess
import sys

DRAWS = 2000
PPL_QUERY, PPL_TOKENS = 64, 192  # tokens that choose rows; tokens whose likelihood counts
SHOT_SETS = ("piqa", "rte", "copa", "openbookqa", "arc-easy")

# Real models' tasks: text in front of a choice, and choices, as the LM evaluation harness has them.


def piqa_text(row):
    return f"Question: {row['ctx']}\nAnswer:", [" " + c for c in row["choices"]]


def rte_text(row):
    return (f"{row['ctx']}\nQuestion: {row['hypothesis']} True or False?\nAnswer:",
            [" True", " False"])


def copa_text(row):
    word = {"cause": "because", "effect": "therefore"}[row["asks"]]
    return (f"{row['ctx'].strip().rstrip('.')} {word}",
            [" " + c[0].lower() + c[1:] for c in row["choices"]])


def plain_text(row):
    return row["ctx"], [" " + c for c in row["choices"]]


SHOTS = {"piqa": ("piqa_valid", "piqa_valid", piqa_text), "rte": ("rte_dev", "rte_train", rte_text),
         "copa": ("copa_dev", "copa_test", copa_text),
         "openbookqa": ("openbookqa_test", "openbookqa_train", plain_text),
         "arc-easy": ("arc-easy_test", "arc-easy_test", piqa_text)}


def read_rows(path):
    with open(path, encoding="utf8") as f:
        return [json.loads(line) for line in f]


class Session:
    """What a run was asked for, and where things lie."""

    def __init__(self, args, root, build):
        self.args = args
        self.root = root
        self.build = build
        self.data = args.data or os.path.join(root, "..", "shared", "data")
        self.work = os.path.join(build, "bench-accuracy")
        self.store = os.path.join(build, "bench-store")
        os.makedirs(self.work, exist_ok=True)

    def program(self, name):
        return os.path.join(self.build, "bin", name)

    def eval(self, name):
        return os.path.join(self.data, "eval", name + ".jsonl")

    def tokens(self, model, texts):
        """Token ids of texts, by the model's own tokenizer."""
        lines = "".join(json.dumps({"text": t}) + "\n" for t in texts)
        out = subprocess.run([self.program("spec-engine"), "--model", model, "--tokenize"],
                             input=lines, capture_output=True, text=True, check=True).stdout
        return [json.loads(line)["ids"] for line in out.splitlines()]


# ---- Eval sets: lists of entries as eval_file.h has them ----


def recall_set(session, name, groups, per_group, questions):
    """The sets that ask for what stands in the prefix; by prefix length."""
    entries, seen = [], {}
    for row in read_rows(session.eval(name)):
        group = row["id"].split("-")[0]
        seen[group] = seen.get(group, 0) + 1
        if group in groups and seen[group] <= per_group:
            entries.append({**row, "group": group, "queries": row["queries"][:questions]})
    return entries


def shot_set(session, model, name, tokens, questions):
    """One prefix of solved examples, asked about the first questions of the set."""
    asked_file, shot_file, text = SHOTS[name]
    asked = read_rows(session.eval(asked_file))[:questions]
    shots = read_rows(session.eval(shot_file))[-400:]
    solved = [front + choices[row["label"]] + "\n\n"
              for row in shots for front, choices in [text(row)]]
    prefix, count = "", 0
    for shot, ids in zip(solved, session.tokens(model, solved)):
        if count + len(ids) > tokens:
            break
        prefix, count = prefix + shot, count + len(ids)
    queries = [{"query": front, "choices": choices, "label": row["label"]}
               for row in asked for front, choices in [text(row)]]
    return [{"id": name, "group": name, "prefix": prefix, "queries": queries}]


def text_set(session, model, path, lengths, count, query=PPL_QUERY, scored=PPL_TOKENS):
    """Running text: a prefix, tokens that choose, tokens whose likelihood counts."""
    with open(path, encoding="utf8", errors="replace") as f:
        text = f.read(count * sum(n + query + scored for n in lengths) * 8)
    ids, at, entries = session.tokens(model, [text])[0], 0, []
    for length in lengths:
        for i in range(count):
            piece = ids[at:at + length + query + scored]
            at += len(piece)
            if len(piece) == length + query + scored:
                entries.append({"id": f"{length}-{i}", "group": str(length),
                                "prefix_ids": piece[:length],
                                "queries": [{"query_ids": piece[length:length + query],
                                             "choices_ids": [piece[length + query:]],
                                             "label": 0}]})
    return entries


# ---- Running ----


def run_set(session, model, name, entries, contenders, by_query=False):
    """Rows of bench-accuracy for the entries, in order."""
    path = os.path.join(session.work, name + ".jsonl")
    with open(path, "w", encoding="utf8") as f:
        f.writelines(json.dumps(entry) + "\n" for entry in entries)
    shutil.rmtree(session.store, ignore_errors=True)
    command = [session.program("bench-accuracy"), "--model", model, "--eval", path, "--by",
               session.args.by, "--pass", "query" if by_query else session.args.choose_by,
               "--contenders", ",".join(contenders), "--store", session.store,
               "--connector", os.path.join(session.build, "lib", "libspec_connector.so")]
    print(f"running bench-accuracy: {name}, {len(entries)} prefixes …", file=sys.stderr)
    sys.stdout.flush()
    try:
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    finally:
        shutil.rmtree(session.store, ignore_errors=True)
    return [json.loads(line) for line in out.splitlines()]


def picked(row, lengths=None):
    """The index of the likeliest choice; with lengths, a unit of length."""
    scores = row["scores"]
    return max(range(len(scores)), key=lambda i: scores[i] / (lengths[i] if lengths else 1))


def enrich(rows, entries, by_length):
    """Adds right and agrees; by_length: choices are compared by likelihood a byte."""
    lengths = {}
    for entry in entries:
        for number, query in enumerate(entry["queries"]):
            if by_length:
                lengths[entry["id"], number] = [len(c.encode()) for c in query["choices"]]
    full = {}
    for row in rows:
        key = row["id"], row["question"]
        choice = picked(row, lengths.get(key))
        if row["contender"] == "full":
            full[key] = choice
        row["right"] = float(choice == row["label"])
        row["agrees"] = float(choice == full[key])
    return rows


def by_prefix(rows):
    groups = {}
    for row in rows:
        groups.setdefault(row["id"], []).append(row)
    return list(groups.values())


def interval(rows, measure):
    """The measure, and the middle 95 % of its bootstrap: prefixes are drawn, or, where one prefix
    serves all, questions."""
    clusters = by_prefix(rows)
    if len(clusters) == 1:
        clusters = [[row] for row in rows]
    dice = random.Random(1)
    draws = sorted(measure([row for cluster in dice.choices(clusters, k=len(clusters))
                            for row in cluster]) for _ in range(DRAWS))
    return measure(rows), draws[DRAWS // 40], draws[-DRAWS // 40 - 1]


def mean_of(key):
    return lambda rows: sum(row[key] for row in rows) / len(rows)


def share_of(top, bottom):
    return lambda rows: sum(r[top] for r in rows) / max(1, sum(r[bottom] for r in rows))


def paired(rows, first, second, measure):
    """measure(first's rows, second's rows) with its interval, drawn together."""
    both = {}
    for row in rows:
        if row["contender"] in (first, second):
            both.setdefault((row["id"], row["question"]), {})[row["contender"]] = row
    pairs = [{"id": key[0], "a": pair[first], "b": pair[second]} for key, pair in both.items()]
    return interval(pairs, lambda drawn: measure([p["a"] for p in drawn], [p["b"] for p in drawn]))


def shown(triple, digits=3):
    return f"{triple[0]:.{digits}f} ({triple[1]:.{digits}f}..{triple[2]:.{digits}f})"


# ---- Tables ----

HEAD = (f"{'contender':14} {'n':>5} {'accuracy':>22} {'as full KV':>22} {'KL':>27} {'top1':>6} "
        f"{'rows':>5} {'union':>6} {'fallback':>8} {'wanted':>7} {'read':>6}")


def table_line(name, rows, row_bytes):
    matched = sum(r["matched"] for r in rows) * row_bytes
    wanted = share_of("wanted_bytes", "matched")(rows) / row_bytes if matched else 0
    read = share_of("read_bytes", "matched")(rows) / row_bytes if matched else 0
    return {"contender": name, "n": len(rows), "accuracy": interval(rows, mean_of("right")),
            "agreement": interval(rows, mean_of("agrees")), "kl": interval(rows, mean_of("kl")),
            "top1": mean_of("top1")(rows), "rows": share_of("selected", "matched")(rows),
            "union": share_of("union", "selected")(rows),
            "fallback": share_of("fallback", "layers")(rows),
            "dense": share_of("dense", "layers")(rows), "wanted": wanted, "read": read}


def print_line(line):
    print(f"{line['contender']:14} {line['n']:5} {shown(line['accuracy']):>22} "
          f"{shown(line['agreement']):>22} {shown(line['kl'], 4):>27} {line['top1']:6.3f} "
          f"{line['rows']:5.3f} {line['union']:6.2f} {line['fallback']:8.2f} "
          f"{line['wanted']:7.3f} {line['read']:6.3f}")


def tables(title, rows, contenders, row_bytes):
    """A table a prefix length, then all lengths together; their lines."""
    lines = []
    groups = sorted({r["group"] for r in rows}, key=lambda g: (len(g), g))
    for group in (groups if len(groups) > 1 else []) + [None]:
        here = [r for r in rows if group in (None, r["group"])]
        print(f"\n{title}, {'all prefixes' if group is None else 'prefixes of ' + group}")
        print(HEAD)
        for name in contenders:
            line = table_line(name, [r for r in here if r["contender"] == name], row_bytes)
            print_line(line)
            lines.append({"set": title, "group": group or "all", **line})
    return lines


def verdict(text, value, holds, floor):
    word = "holds" if holds else "DOES NOT HOLD"
    print(f"{text}: {value} (floor {floor}): {word}")
    return holds


def acceptance(rows, is_recall):
    """What impress has to keep beside exact H2O, random rows, and with a mass budget."""
    names = {r["contender"] for r in rows}
    ok = True
    if {"impress@.25", "h2o@.25"} <= names:
        def kept(a, b):
            return mean_of("agrees")(a) / max(1e-9, mean_of("agrees")(b))
        value = paired(rows, "impress@.25", "h2o@.25", kept)
        ok &= verdict("impress' agreement with full KV / exact H2O's", shown(value),
                      value[0] >= .95, ">= .95")
    if not is_recall:
        return ok

    def points(a, b):
        return 100 * (mean_of("right")(a) - mean_of("right")(b))
    for first, second, text, floor, sign in (
            ("impress@.25", "h2o@.25", "impress - exact H2O, points", -1, ">= -1"),
            ("impress@.25", "random@.25", "impress - random rows, points", 10, ">= 10"),
            ("mass@.95", "full", "mass budget - full KV, points", -1, ">= -1")):
        if {first, second} <= names:
            value = paired(rows, first, second, points)
            ok &= verdict(text, shown(value, 1), value[0] >= floor, sign)
    mass = [r for r in rows if r["contender"] == "mass@.95"]
    if mass:
        print(f"  the mass budget (.95 of the importance, at most half of the rows) kept "
              f"{share_of('selected', 'matched')(mass):.3f} of the rows")
    return ok


def perplexity(title, rows, contenders):
    """exp of the mean loss a token of the continuations, as a ratio to full KV's."""
    def ppl(of):
        return math.exp(-sum(r["scores"][0] for r in of) / sum(r["tokens"][0] for r in of))
    lines = []
    print(f"\n{title}: perplexity of {PPL_TOKENS} tokens behind {PPL_QUERY} that chose the rows")
    print(f"{'contender':14} {'prefix':>7} {'n':>4} {'perplexity':>11} {'/ full KV':>22} "
          f"{'rows':>6}")
    for group in sorted({r["group"] for r in rows}, key=int) + [None]:
        here = [r for r in rows if group in (None, r["group"])]
        for name in contenders:
            own = [r for r in here if r["contender"] == name]
            ratio = paired(here, name, "full", lambda a, b: ppl(a) / ppl(b)) if name != "full" \
                else (1.0, 1.0, 1.0)
            kept = share_of("selected", "matched")(own)
            print(f"{name:14} {group or 'all':>7} {len(own):4} {ppl(own):11.3f} "
                  f"{shown(ratio):>22} {kept:6.3f}")
            lines.append({"set": title, "group": group or "all", "contender": name, "n": len(own),
                          "perplexity": ppl(own), "ratio": ratio, "rows": kept})
    return lines


# ---- accuracy ----


def model_of(session, name):
    if session.args.model:
        return session.args.model
    return {"opt-recall": os.path.join(session.root, "models", "opt-recall"),
            "smollm2": os.path.join(session.build, "models", "smollm2"),
            "tinychat-opt": os.path.join(session.data, "models", "tinychat-opt"),
            "stories260K": os.path.join(session.data, "models", "stories260K")}[name]


def shape_of(model):
    with open(os.path.join(model, "config.json"), encoding="utf8") as f:
        config = json.load(f)
    heads = config["num_attention_heads"]
    size = config.get("head_dim") or config["hidden_size"] // heads
    return {"row_bytes": 4 * size * (config.get("num_key_value_heads") or heads),
            "positions": config["max_position_embeddings"]}


def plan(args):
    """(set, model) pairs of a run, in order."""
    default = [("recall_ids", "opt-recall"), ("recall_text", "smollm2")]
    more = [("wikitext2", "smollm2"), ("openbookqa", "smollm2"), ("chat", "tinychat-opt"),
            ("english", "stories260K")]
    if args.sets:
        every = dict(default + more)
        return [(name, every.get(name, "smollm2")) for name in args.sets.split(",")]
    return default if args.quick else default + more


def entries_of(session, name, model, quick):
    text = os.path.join(session.data, "text")
    if name == "recall_ids":
        return recall_set(session, "recall_ids_dev", ("512", "1024", "1900"), 3 if quick else 12, 8)
    if name == "recall_text":
        return recall_set(session, "recall_text_dev", ("512", "1024") if quick else
                          ("512", "1024", "2048"), 1 if quick else 12, 4)
    if name == "wikitext2":
        lengths = [n for n in (512, 1024, 2048)
                   if n + PPL_QUERY + PPL_TOKENS <= shape_of(model)["positions"]]
        return text_set(session, model, os.path.join(text, "wikitext2.valid.txt"), lengths,
                        1 if quick else 6)
    if name == "chat":
        return text_set(session, model, os.path.join(model, "chat_val.txt"), [160], 24, 24, 64)
    if name == "english":
        return text_set(session, model, os.path.join(text, "english-6mb.txt"), [320], 24, 32, 128)
    if name in SHOTS:
        room = min(1900, shape_of(model)["positions"] - 300)
        return shot_set(session, model, name, room, 10 if quick else 100)
    sys.exit(f"bench accuracy: no set {name}: recall_ids, recall_text, wikitext2, chat, english, "
             f"{', '.join(SHOT_SETS)}")


CONTENDERS = ("full", "impress@.25", "h2o@.25", "one@.25", "random@.25", "mass@.95")
CURVE = (.5, .25, .1, .05)


def one_set(session, name, model, args):
    entries = entries_of(session, name, model, args.quick)
    contenders = args.contenders.split(",") if args.contenders else CONTENDERS
    title = f"{os.path.basename(os.path.normpath(model))}, {name}"
    is_text = name in ("wikitext2", "chat", "english")
    rows = run_set(session, model, name, entries, contenders, is_text)
    if is_text:
        lines = perplexity(title, rows, contenders)
        return True, {"rows": rows, "lines": lines, "curve": []}
    rows = enrich(rows, entries, name in ("piqa", "openbookqa", "arc-easy"))
    row_bytes = shape_of(model)["row_bytes"]
    lines = tables(title, rows, contenders, row_bytes)
    ok = acceptance(rows, name.startswith("recall"))
    curve = []
    if not args.quick and not args.contenders and name.startswith("recall"):
        fewer = [{**e, "queries": e["queries"][:2]} for e in entries]
        wanted = ["full"] + [f"{kind}@{rho:g}" for rho in CURVE
                             for kind in ("impress", "h2o", "random")]
        more = enrich(run_set(session, model, name + "-curve", fewer, wanted), fewer, False)
        print(f"\n{title}: over the share of rows, two questions a prefix")
        print(HEAD)
        for contender in wanted:
            line = table_line(contender, [r for r in more if r["contender"] == contender],
                              row_bytes)
            print_line(line)
            curve.append({"set": title, "group": "curve", **line})
    return ok, {"rows": rows, "lines": lines, "curve": curve}


def accuracy(args, root, build):
    session = Session(args, root, build)
    results, ok = {}, True
    if not os.path.isdir(session.data):
        print(f"bench accuracy: skipped: no eval sets at {session.data} (--data DIR)")
        return True, {}
    for name, wanted in plan(args):
        model = model_of(session, wanted)
        if not os.path.isfile(os.path.join(model, "config.json")):
            print(f"{name}: skipped: no model at {model}")
            continue
        holds, results[name] = one_set(session, name, model, args)
        ok &= holds
    write_csv(args.csv, [line for r in results.values() for line in r["lines"] + r["curve"]])
    plot_curves(args.plot, results)
    return ok, results


def write_csv(path, lines):
    if not path:
        return
    flat = []
    for line in lines:
        out = {}
        for key, value in line.items():
            if isinstance(value, tuple):
                out[key], out[key + "_low"], out[key + "_high"] = value
            else:
                out[key] = value
        flat.append(out)
    names = list(dict.fromkeys(key for line in flat for key in line))
    with open(path, "w", newline="", encoding="utf8") as f:
        writer = csv.DictWriter(f, names)
        writer.writeheader()
        writer.writerows(flat)


def pyplot(directory):
    """matplotlib without a display, or None with a message."""
    if not directory:
        return None
    try:
        import matplotlib
    except ImportError:
        print("--plot: skipped: matplotlib is not installed")
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    os.makedirs(directory, exist_ok=True)
    return plt


def plot_curves(directory, results):
    plt = pyplot(directory)
    for name, result in results.items() if plt else ():
        if not result["curve"]:
            continue
        figure, axes = plt.subplots()
        for kind in ("impress", "h2o", "random"):
            points = sorted((line["rows"], line["accuracy"][0]) for line in result["curve"]
                            if line["contender"].split("@")[0] == kind)
            axes.plot(*zip(*points), marker="o", label=kind)
        axes.set(xlabel="share of rows", ylabel="accuracy", title=result["curve"][0]["set"])
        axes.legend()
        figure.savefig(os.path.join(directory, f"accuracy-{name}.png"))
        plt.close(figure)


# ---- similarity ----

MEASURES = (("heads", "heads"), ("probes", "probes"), ("neighbours", "neigh."),
            ("layer_guess", "layer"), ("before", "before"), ("after", "after"),
            ("static", "static"), ("sink", "sink"), ("chunk", "chunk"))


def similarity_rows(session, model, name, entries):
    path = os.path.join(session.work, name + "-similarity.jsonl")
    with open(path, "w", encoding="utf8") as f:
        f.writelines(json.dumps(entry) + "\n" for entry in entries)
    print(f"running bench-similarity: {name}, {len(entries)} prefixes …", file=sys.stderr)
    out = subprocess.run([session.program("bench-similarity"), "--model", model, "--eval", path,
                          "--questions", "2" if session.args.quick else "3"],
                         check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def means(rows):
    return {key: sum(r[key] for r in rows if key in r) / n
            for key, _ in MEASURES for n in [sum(key in r for r in rows)] if n}


def similarity(args, root, build):
    session = Session(args, root, build)
    results, ok = {}, True
    if not os.path.isdir(session.data):
        print(f"bench similarity: skipped: no eval sets at {session.data} (--data DIR)")
        return True, {}
    sets = [("recall_ids", "opt-recall"), ("recall_text", "smollm2"), ("chat", "tinychat-opt")]
    for name, wanted in sets:
        model = model_of(session, wanted)
        if not os.path.isfile(os.path.join(model, "config.json")):
            print(f"{name}: skipped: no model at {model}")
            continue
        entries = entries_of(session, name, model, True)
        if not args.quick and name == "recall_text":
            entries = recall_set(session, "recall_text_dev", ("512", "1024", "2048"), 2, 3)
        rows = similarity_rows(session, model, name, entries)
        print(f"\n{wanted}, {name}: {len(entries)} prefixes; mean over layers")
        print(f"{'rho':>5} " + " ".join(f"{label:>7}" for _, label in MEASURES))
        for rho in sorted({r["rho"] for r in rows}):
            here = means([r for r in rows if r["rho"] == rho])
            print(f"{rho:5g} " + " ".join(f"{here[k]:7.3f}" if k in here else f"{'':>7}"
                                          for k, _ in MEASURES))
        print("by layer, rho .25:")
        quarter = [r for r in rows if r["rho"] == .25]
        for layer in sorted({r["layer"] for r in quarter}):
            here = means([r for r in quarter if r["layer"] == layer])
            print(f"{layer:5} " + " ".join(f"{here[k]:7.3f}" if k in here else f"{'':>7}"
                                           for k, _ in MEASURES))
        here = means(quarter)
        gain = 100 * (here["after"] - here["layer_guess"])
        ok &= verdict(f"{wanted}: recall of hint (after) - layer at rho .25, points",
                      f"{gain:.1f}", gain >= 10, ">= 10")
        results[name] = rows
    return ok, results


# ---- prefetch ----

PREDICTORS = ("none", "random", "sink", "static", "layer", "before", "after", "both")


def prefetch_rows(session, model, name, entries):
    path = os.path.join(session.work, name + "-prefetch.jsonl")
    with open(path, "w", encoding="utf8") as f:
        f.writelines(json.dumps(entry) + "\n" for entry in entries)
    shutil.rmtree(session.store, ignore_errors=True)
    print(f"running bench-prefetch: {name}, {len(entries)} prefixes …", file=sys.stderr)
    try:
        out = subprocess.run([session.program("bench-prefetch"), "--model", model, "--eval", path,
                              "--questions", "2" if session.args.quick else "4", "--store",
                              session.store, "--connector",
                              os.path.join(session.build, "lib", "libspec_connector.so")],
                             check=True, stdout=subprocess.PIPE, text=True).stdout
    finally:
        shutil.rmtree(session.store, ignore_errors=True)
    lines = [json.loads(line) for line in out.splitlines()]
    return ([r for r in lines if "layer" in r],
            {r["counters"]: r for r in lines if "counters" in r})


def prefetch_line(name, rows, counters):
    """Layer 0 is nobody's next layer: it is not counted."""
    later = [r for r in rows if r["predictor"] == name and r["layer"] > 0]
    requests = len({(r["id"], r["question"]) for r in later})
    issued = counters[name]["speculated_bytes"]
    waste = counters[name]["unused_bytes"] / issued if issued else 0
    hidden = share_of("ahead", "wanted")(later)
    exposed = sum(r["exposed_ns"] for r in later) / requests / 1e6
    print(f"{name:8} {issued / 2**20:9.1f} {waste:7.3f} {hidden:7.3f} {exposed:12.2f}")
    return waste, hidden


def prefetch(args, root, build):
    session = Session(args, root, build)
    results, ok = {}, True
    if not os.path.isdir(session.data):
        print(f"bench prefetch: skipped: no eval sets at {session.data} (--data DIR)")
        return True, {}
    for name, wanted in (("recall_ids", "opt-recall"), ("recall_text", "smollm2")):
        model = model_of(session, wanted)
        if not os.path.isfile(os.path.join(model, "config.json")):
            print(f"{name}: skipped: no model at {model}")
            continue
        entries = entries_of(session, name, model, True)
        rows, counters = prefetch_rows(session, model, name, entries)
        ranks = [r for r in similarity_rows(session, model, name, entries) if r["rho"] == .25]
        print(f"\n{wanted}, {name}: a quarter of the rows, {len(entries)} prefixes, range planner; "
              "counters of the connector; recall of the rankings in the reference engine")
        print(f"{'':8} {'MiB ahead':>9} {'waste':>7} {'hidden':>7} {'exposed ms':>12}")
        seen = {kind: prefetch_line(kind, rows, counters) for kind in PREDICTORS}
        here = means(ranks)
        print("recall@k: " + ", ".join(f"{kind} {here[key]:.3f}" for kind, key in (
            ("sink", "sink"), ("static", "static"), ("layer", "layer_guess"),
            ("before", "before"), ("after", "after"))))
        gain = 100 * (here["after"] - here["layer_guess"])
        ok &= verdict(f"{wanted}: recall of hint - layer, points", f"{gain:.1f}", gain >= 10,
                      ">= 10")
        for kind in ("before", "after", "both"):
            waste, hidden = seen[kind]
            ok &= verdict(f"{wanted}: hint {kind}: waste", f"{waste:.3f}", waste <= .25, "<= .25")
            ok &= verdict(f"{wanted}: hint {kind}: hidden", f"{hidden:.3f}", hidden >= .4,
                          ">= .40")
        results[name] = {"layers": rows, "counters": counters, "rankings": ranks}
    return ok, results
