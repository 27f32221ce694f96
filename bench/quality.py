"""bench/run quality: what KV in fewer bytes costs on tasks that readers of today know.

Each prompt of quality_tasks.py is computed once, stored once, and asked of every method over the
same stored rows (bench-accuracy). A query selects rows once; decoding goes on over what its pass
left in the cache. Bytes are those that the loads wanted, probe keys and fallbacks included, as a
share of the prefix's 16-bit KV. H2O counts twice: the bytes of its rows, and those it has to read.

Tables: every method by task, with 95 % intervals (bootstrap over prompts) and the KL of the first
new token to full KV's; methods at equal bytes; retrieval by length and depth. Writes --csv and
--plot. --variant compares H2O with stand-ins.
Tests: tests/unit/tools/test_quality.py"""
import os
import statistics
import sys

import accuracy
import inputs
import quality_tasks as tasks

# (contender of bench-accuracy, name in tables, family: one line of the plot)
METHODS = (
    ("full", "full KV", "full KV"),
    ("fp8", "fp8 (e4m3)", "fp8"),
    ("preset:int8", "int8", "int8"),
    ("free64:4+4@.2", "layered 4 + 4 bits, 20 % exact", "layered"),
    ("preset:layered", "layered (preset: 3 + 2 bits, 5 % exact)", "layered"),
    ("free64:1.5+1@.02", "layered 1.5 + 1 bits, 2 % exact", "layered"),
    ("impress@.25", "impress, 25 % of the rows", "impress, 3 probe heads"),
    ("impress:1@.25", "impress, 1 probe head, 25 %", "impress, 1 probe head"),
    ("impress:1@.08", "impress, 1 probe head, 8 %", "impress, 1 probe head"),
    ("h2o@.5", "H2O, 50 % of the rows", "H2O"),
    ("h2o@.25", "H2O, 25 %", "H2O"),
    ("h2o@.125", "H2O, 12.5 %", "H2O"),
    ("random@.25", "random rows, 25 %", "random rows"),
)
VARIANT_METHODS = (
    ("full", "full KV", "full KV"), ("h2o@.25", "H2O, 25 %", "H2O"),
    ("stand@.25", "the same with stand-ins", "stand-ins"), ("h2o@.1", "H2O, 10 %", "H2O"),
    ("stand@.1", "the same with stand-ins at 10 %", "stand-ins"),
)
# Presets load prompts as short as these whole; the same settings without a limit:
CHAT_METHODS = (
    ("full", "full KV", "full KV"),
    ("fp8", "fp8 (e4m3)", "fp8"),
    ("layered:8+8@0", "int8", "int8"),
    ("free64:3+2@.05", "layered 3 + 2 bits, 5 % exact", "layered"),
    ("impress@.25", "impress, 25 % of the rows", "impress, 3 probe heads"),
    ("h2o@.25", "H2O, 25 %", "H2O"),
    ("random@.25", "random rows, 25 %", "random rows"),
)
FAMILIES = ("fp8", "int8", "layered", "impress", "H2O")
QUICK = ("full", "fp8", "preset:int8", "preset:layered", "impress:1@.25", "h2o@.25")
COUNTS = {1024: 3, 2048: 3, 4096: 2, 8064: 1, "pairs": 6, "long": 5, "text": 2}
QUICK_COUNTS = {1024: 1, "pairs": 1, "long": 1, "text": 0}
VARIANT_COUNTS = {1024: 2, "pairs": 2, "long": 2, "text": 0}
CHAT_COUNT = 24
TARGETS = (1 / 2, 1 / 4, 1 / 8)
NEAR = 1.45  # a configuration is at a target if its bytes are at most so many times off
MEASURES = {  # task: [(measure, head of the column, more is better)]
    "needle": [("word", "needle: word", True), ("right", "needle: number", True)],
    "pairs": [("right", "1 of 48", True)],
    "several": [("right", "3 of 48", True)],
    "summary": [("rouge1", "ROUGE-1", True), ("rougeL", "ROUGE-L", True)],
    "essay": [("equal", "equal tokens", True), ("run", "until first", True)],
    "text": [("perplexity", "ppl / full", False)],
    "chat": [("equal", "chat: equal", True), ("run", "chat: until first", True),
             ("perplexity", "chat: ppl / full", False)]}


# ---- Measures ----


def longest_common(a, b):
    """Length of the longest common subsequence."""
    last = [0] * (len(b) + 1)
    for x in a:
        row = [0]
        for j, y in enumerate(b):
            row.append(last[j] + 1 if x == y else max(row[j], last[j + 1]))
        last = row
    return last[-1]


def f_measure(common, a, b):
    return 2 * common / (len(a) + len(b)) if a or b else 1.0


def rouge(text, reference):
    """ROUGE-1 and ROUGE-L, F measure, of lower-case words without punctuation."""
    a, b = (["".join(c for c in w if c.isalnum()) for w in t.lower().split()]
            for t in (text, reference))
    a, b = [w for w in a if w], [w for w in b if w]
    both = sum(min(a.count(w), b.count(w)) for w in set(a))
    return f_measure(both, a, b), f_measure(longest_common(a, b), a, b)


def is_right(text, answer):
    """The number that was decoded first is the answer, whole."""
    digits = text.strip()[:len(answer) + 1]
    return digits[:len(answer)] == answer and not digits[len(answer):].isdigit()


def measured(row, query, full):
    """Returns the measures of one answer; full: full KV's row of the same question."""
    task = query["task"]
    if task == "needle":
        noun, digits = query["answers"]
        said = row["text"].strip()
        return {"word": float(said.startswith(noun)),
                "right": float(said.startswith(noun)
                               and is_right(said.removeprefix(noun), digits))}
    if task == "pairs":
        return {"right": float(is_right(row["text"], query["answers"][0]))}
    if task == "several":
        groups = [row["by_query"][at:at + tasks.CHOICES]
                  for at in range(0, len(row["by_query"]), tasks.CHOICES)]
        return {"right": statistics.mean(float(g[0] == max(g)) for g in groups)}
    if task == "summary":
        one, longest = rouge(row["text"], full["text"])
        return {"rouge1": one, "rougeL": longest}
    found = {}
    if "said" in row:
        found = {"equal": row["forced_equal"] / row["said"], "run": row["forced_run"] / row["said"]}
    if row["by_query"]:
        found.update(loss=-row["by_query"][0], full_loss=-full["by_query"][0],
                     tokens=row["tokens"][0])
    return found


def records_of(rows, entries):
    queries = {(e["id"], n): q for e in entries for n, q in enumerate(e["queries"])}
    full = {(r["id"], r["question"]): r for r in rows if r["contender"] == "full"}
    return [{**row, "task": queries[key]["task"], **measured(row, queries[key], full[key])}
            for row in rows for key in [(row["id"], row["question"])]]


def perplexity_ratio(rows):
    """Perplexity / full KV's, of all tokens together."""
    lost = sum(r["loss"] - r["full_loss"] for r in rows) / sum(r["tokens"] for r in rows)
    return accuracy.math.exp(lost)


def measure_of(name):
    return perplexity_ratio if name == "perplexity" else accuracy.mean_of(name)


# ---- Tables ----


def lines_of(records, row_bytes):
    """One line a method, task, group ("all", and each length of needle) and measure."""
    lines = []
    for task, measures in MEASURES.items():
        own = [r for r in records if r["task"] == task]
        groups = sorted({r["group"] for r in own}, key=int) if task == "needle" else []
        for group in [None, *groups]:
            for contender in dict.fromkeys(r["contender"] for r in own):
                rows = [r for r in own if r["contender"] == contender
                        and group in (None, r["group"])]
                for measure, _, _ in measures:
                    lines.append({"task": task, "group": group or "all", "contender": contender,
                                  "measure": measure, "prompts": len({r["id"] for r in rows}),
                                  "n": len(rows), "bytes": accuracy.costs_wanted(rows, row_bytes),
                                  "rows": accuracy.share_of("selected", "matched")(rows),
                                  "value": accuracy.interval(rows, measure_of(measure)),
                                  "kl": accuracy.interval(rows, accuracy.mean_of("kl"))})
    return lines


def cell(lines, contender, task, measure, group="all"):
    return next((l for l in lines if (l["contender"], l["task"], l["measure"], l["group"])
                 == (contender, task, measure, group)), None)


def method_of(contender):
    every = METHODS + CHAT_METHODS + VARIANT_METHODS
    return next((m for m in every if m[0] == contender), (contender,) * 3)


def name_of(contender):
    return method_of(contender)[1]


def family_of(contender):
    return method_of(contender)[2]


def columns_of(lines):
    return [(task, measure, head) for task, measures in MEASURES.items()
            for measure, head, _ in measures if any(l["task"] == task for l in lines)]


def over_tasks(lines, contender, value):
    """The mean over tasks of a value that all measures of a task share."""
    own = {l["task"]: value(l) for l in lines
           if l["contender"] == contender and l["group"] == "all"}
    return statistics.mean(own.values())


def bytes_of(lines, contender):
    return over_tasks(lines, contender, lambda line: line["bytes"])


def has_bytes(lines, contender):
    """The bytes that decide where a method stands: H2O's are those of its rows."""
    if family_of(contender) == "H2O":
        return float(contender.split("@")[1])
    return bytes_of(lines, contender)


def print_methods(lines, contenders, columns):
    print(f"\n{'':40} {'bytes':>6} {'KL':>7} " + " ".join(f"{h:>22}" for _, _, h in columns))
    for contender in contenders:
        cells = [cell(lines, contender, task, measure) for task, measure, _ in columns]
        kl = over_tasks(lines, contender, lambda line: line["kl"][0])
        print(f"{name_of(contender):40} {bytes_of(lines, contender):6.3f} {kl:7.4f} " + " ".join(
            f"{accuracy.shown(c['value']) if c else '':>22}" for c in cells))


def nearest(lines, contenders, family, target):
    """The family's method nearest to the target, or None."""
    own = [(max(b / target, target / b), c) for c in contenders
           if family_of(c).startswith(family) for b in [has_bytes(lines, c)]]
    off, contender = min(own, default=(NEAR + 1, None))
    return contender if off <= NEAR else None


def print_equal_bytes(lines, contenders, columns):
    print("\nat equal bytes: the method of each family that is nearest; full KV above all")
    print(f"{'target':>7} {'':40} {'bytes':>6} " + " ".join(f"{h:>12}" for _, _, h in columns))
    for target, family in [(1, "full KV")] + [(t, f) for t in TARGETS for f in FAMILIES]:
        contender = nearest(lines, contenders, family, target)
        if contender is None:
            print(f"{target:7.3f} {family:40} {'none':>6}")
            continue
        cells = [cell(lines, contender, task, measure) for task, measure, _ in columns]
        print(f"{target:7.3f} {name_of(contender):40} {bytes_of(lines, contender):6.3f} "
              + " ".join(f"{c['value'][0]:12.3f}" if c else f"{'':12}" for c in cells))


def print_depths(records, contenders):
    """Retrieval by length and by depth."""
    own = [r for r in records if r["task"] == "needle"]
    lengths = sorted({r["group"] for r in own}, key=int)
    print(f"\nneedle, share right: {'':19} " + " ".join(f"{g:>6}" for g in lengths)
          + "  | depth " + " ".join(f"{(2 * d + 1) / (2 * tasks.DEPTHS):6.3f}"
                                    for d in range(tasks.DEPTHS)))
    for contender in contenders:
        rows = [r for r in own if r["contender"] == contender]
        right = accuracy.mean_of("right")
        print(f"{name_of(contender):40} " + " ".join(
            f"{right([r for r in rows if r['group'] == g]):6.3f}" for g in lengths)
            + "  |       " + " ".join(f"{right([r for r in rows if r['question'] == d]):6.3f}"
                                      for d in range(tasks.DEPTHS)))


# ---- Floors ----


def difference(records, task, contender, other):
    """Points of right answers between two methods, with an interval over prompts."""
    own = [r for r in records if r["task"] == task]
    right = accuracy.mean_of("right")
    return accuracy.paired(own, contender, other, lambda a, b: 100 * (right(a) - right(b)))


def floors(records):
    """That the tasks tell methods apart, and that layered KV at a quarter of the bytes keeps what
    full KV retrieves."""
    ok = True
    for task in sorted({r["task"] for r in records} & {"needle", "pairs"}):
        value = difference(records, task, "preset:layered", "full")
        ok &= accuracy.verdict(f"{task}: layered - full KV, points", accuracy.shown(value, 1),
                               value[0] >= -5, ">= -5")
        if any(r["contender"] == "random@.25" for r in records):
            value = difference(records, task, "full", "random@.25")
            ok &= accuracy.verdict(f"{task}: full KV - random rows, points",
                                   accuracy.shown(value, 1), value[0] >= 30, ">= 30")
    return ok


# ---- The plot ----

PANELS = (("needle", "right", "needle: word and number right"),
          ("pairs", "right", "1 of 48 numbers: right"),
          ("summary", "rougeL", "summary: ROUGE-L with full KV's"),
          ("essay", "equal", "essay: tokens equal to full KV's"),
          ("essay", "run", "essay: share before the first difference"),
          ("text", "perplexity", "8k tokens: perplexity / full KV's"))


def points_of(lines, task, measure, by_rows):
    """{family: [(bytes, value, low, high)]}; by_rows: H2O at the bytes of its rows."""
    found = {}
    for line in lines:
        if (line["task"], line["measure"], line["group"]) == (task, measure, "all"):
            family = family_of(line["contender"])
            share = line["rows"] if by_rows else line["bytes"]
            if family == "H2O" or not by_rows:
                found.setdefault(family, []).append((share, *line["value"]))
    return found


def draw_panel(axes, lines, task, measure, title):
    names = list(dict.fromkeys(family for _, _, family in METHODS))
    for by_rows in (False, True):
        for family, points in points_of(lines, task, measure, by_rows).items():
            points.sort()
            middle = [p[1] for p in points]
            bars = [[max(0, p[1] - p[2]) for p in points], [max(0, p[3] - p[1]) for p in points]]
            axes.errorbar([p[0] for p in points], middle, yerr=bars, marker="o", markersize=4,
                          capsize=2, linewidth=1, color=f"C{names.index(family)}",
                          label=f"{family}, bytes of its rows" if by_rows else family,
                          linestyle="--" if by_rows else "-")
    axes.set_xscale("log", base=2)
    axes.set_xticks((.125, .25, .5, 1), ("1/8", "1/4", "1/2", "1"))
    axes.set_title(title, fontsize=9)


def plot(directory, build, lines):
    plt = accuracy.pyplot(directory, build)
    if plt is None:
        return
    figure, grid = plt.subplots(2, 3, figsize=(13, 7))
    for axes, (task, measure, title) in zip(grid.flat, PANELS):
        draw_panel(axes, lines, task, measure, title)
        axes.set_xlabel("bytes of KV wanted / bytes of 16-bit KV", fontsize=8)
    handles, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=5, fontsize=8)
    figure.tight_layout(rect=(0, .08, 1, 1))
    for kind in ("png", "svg"):
        figure.savefig(os.path.join(directory, f"quality.{kind}"), dpi=110,
                       metadata={"Date": None} if kind == "svg" else None)
    plt.close(figure)


# ---- Runs ----


def english(session, model):
    known = [row["prefix"] for row in inputs.read_rows(session.eval("recall_text_dev"))]
    text = tasks.held_out(session.text("english-6mb.txt"), tasks.pieces_of(known))
    return tasks.Source(tasks.sentences_of(text), lambda texts: session.tokens(model, texts))


def smollm2_records(session, model, contenders, counts):
    size = tasks.TEXT_TOKENS + tasks.TEXT_QUERY + tasks.TEXT_SCORED
    running = session.text("wikitext2.valid.txt")[:counts["text"] * size * 8]
    ids = session.tokens(model, [running])[0] if running else []
    entries = tasks.build(english(session, model), ids, counts)
    if session.args.prefixes:
        entries = entries[:session.args.prefixes]
    rows = accuracy.run_set(session, model, "quality", entries, contenders, "query")
    return records_of(rows, entries)


def chat_records(session):
    """tinychat-opt, where it is: an OPT, short prompts, fewer methods."""
    model = accuracy.model_of(session, "tinychat-opt")
    if not os.path.isfile(os.path.join(model, "chat_val.txt")):
        print("chat: skipped: no model tinychat-opt (--data DIR with models/tinychat-opt)")
        return [], 1
    ids = session.tokens(model, [inputs.read_text(os.path.join(model, "chat_val.txt"))[:60000]])[0]
    entries = tasks.chat(ids, CHAT_COUNT)
    rows = accuracy.run_set(session, model, "quality-chat", entries,
                            [c for c, _, _ in CHAT_METHODS], "query")
    return records_of(rows, entries), accuracy.shape_of(model)["row_bytes"]


def report(lines, records, contenders):
    columns = columns_of(lines)
    print_methods(lines, contenders, columns)
    if records:
        print_equal_bytes(lines, contenders, columns)
        print_depths(records, contenders)


def quality(args, root, build):
    session = accuracy.Session(args, root, build)
    model = accuracy.model_of(session, "smollm2")
    if not os.path.isfile(os.path.join(model, "config.json")):
        print("skipped: build/models/smollm2 is absent (tools/fetch-smollm2)")
        sys.exit(77)
    counts = VARIANT_COUNTS if args.variant else QUICK_COUNTS if args.quick else COUNTS
    methods = VARIANT_METHODS if args.variant else METHODS
    contenders = (args.contenders.split(",") if args.contenders
                  else QUICK if args.quick and not args.variant else [c for c, _, _ in methods])
    records = smollm2_records(session, model, contenders, counts)
    lines = lines_of(records, accuracy.shape_of(model)["row_bytes"])
    report(lines, [] if args.variant else records, contenders)
    if not args.quick and not args.variant:
        chat_lines = lines_of(*chat_records(session))
        if chat_lines:
            report(chat_lines, [], [c for c, _, _ in CHAT_METHODS])
        lines += chat_lines
    ok = args.variant or floors(records)
    accuracy.write_csv(args.csv, lines)
    plot(args.plot, build, lines)
    return ok, {"lines": lines}
