"""bench/run accuracy --figure 15: accuracy over the share of rows kept (IMPRESS, figure 15).

Each question is asked over the whole prefix, and over 0.5, 0.25, 0.1 and 0.05 of its rows as chosen
by IMPRESS, by exact H2O, and at random. At least --questions (default 200 here) of each set are
asked: recall sets have many prefixes, the others one prefix of solved examples.

A line a set and contender: accuracy, the difference to the whole prefix in points, answers that are
equal to the whole prefix's, KL, and the share of layers that fall back, each with its 95 % interval
(accuracy.interval). With --resume what an earlier run finished is kept; ways of choosing rows may
be measured one after the other (--select-by query, then choice, then both to write the table).
Tests: tests/unit/tools/test_bench_inputs.py."""
import os

import accuracy
import inputs

SHARES = (.5, .25, .1, .05)
KINDS = ("impress", "h2o", "random")
CONTENDERS = ("full", *(f"{kind}@{share:g}" for share in SHARES for kind in KINDS))
SETS = {"recall_ids": "opt-recall", "piqa": "smollm2", "rte": "smollm2", "entail": "smollm2",
        "copa": "smollm2", "openbookqa": "smollm2", "recall_text": "smollm2"}
QUESTIONS, QUICK_QUESTIONS = 200, 8
PREFIX_TOKENS = 1024  # of solved examples
PIECE = 40            # questions of one prefix that are asked by one run of bench-accuracy


def entries_of(session, name, model, questions):
    """Prefixes of a set with so many questions in all, or a few more."""
    if name in accuracy.SHOTS:
        entries = accuracy.shot_set(session, model, name, PREFIX_TOKENS, questions, piece=PIECE)
    else:
        entries = accuracy.entries_of(session, name, model, session.args.quick)
        each = -(-questions // len(entries))
        entries = [{**e, "queries": e["queries"][:each]} for e in entries]
    return accuracy.that_fit(session, model, entries)


def line_of(title, name, rows, row_bytes, ways):
    """A contender's line: differences to the whole prefix, and the fallback's interval. Bytes are
    other figures' matter."""
    own = [r for r in rows if r["contender"] == name]
    line = {"set": title, "group": "all", **accuracy.table_line(name, own, row_bytes, ways)}
    for way in ways:
        right = accuracy.mean_of("right_" + way)
        line["points_" + way] = (0.0, 0.0, 0.0) if name == "full" else accuracy.paired(
            rows, name, "full", lambda a, b, of=right: 100 * (of(a) - of(b)))
    line["fallback"] = accuracy.interval(own, accuracy.share_of("fallback", "layers"))
    return {key: value for key, value in line.items() if key not in ("wanted", "read")}


def shown(line, ways):
    cells = [f"{line['contender']:13} {line['n']:4}"]
    for way in ways:
        cells += [f"{accuracy.shown(line['accuracy_' + way]):>21}",
                  f"{accuracy.shown(line['points_' + way], 1):>22}",
                  f"{line['agreement_' + way][0]:9.3f}"]
    cells += [f"{accuracy.shown(line['kl'], 4):>26}", f"{accuracy.shown(line['fallback']):>22}"]
    return " ".join(cells)


def one_set(session, name, model):
    questions = QUICK_QUESTIONS if session.args.quick else session.args.questions or QUESTIONS
    entries = entries_of(session, name, model, questions)
    ways = accuracy.ways_of(session.args.select_by)
    rows = accuracy.enrich(
        accuracy.run_set(session, model, name + "-retention", entries, CONTENDERS,
                         session.args.select_by), entries, ways, name in accuracy.BY_LENGTH)
    title = f"{os.path.basename(os.path.normpath(model))}, {name}"
    prefixes = {e.get("prefix") or str(e["prefix_ids"]) for e in entries}
    print(f"\n{title}: {sum(len(e['queries']) for e in entries)} questions, {len(prefixes)} "
          "prefixes; rows chosen by the " + " and by the ".join(accuracy.WAYS[w] for w in ways))
    print(f"{'contender':13} {'n':>4} " + " ".join(
        f"{'right, ' + accuracy.WAYS[way]:>21} {'- full, points':>22} {'as full':>9}"
        for way in ways) + f" {'KL':>26} {'fallback':>22}")
    lines = []
    for contender in CONTENDERS:
        line = line_of(title, contender, rows, accuracy.shape_of(model)["row_bytes"], ways)
        print(shown(line, ways), flush=True)
        lines.append(line)
    return {"rows": rows, "lines": lines}


def retention(args, root, build):
    """All sets, or those of --sets. A set that is absent is told and passed over."""
    session = accuracy.Session(args, root, build)
    results = {}
    for name in args.sets.split(",") if args.sets else SETS:
        model = accuracy.model_of(session, SETS.get(name, "smollm2"))
        try:
            if not os.path.isfile(os.path.join(model, "config.json")):
                raise inputs.Missing(f"no model at {model}")
            results[name] = one_set(session, name, model)
        except inputs.Missing as missing:
            print(f"{name}: skipped: {missing}")
    accuracy.write_csv(args.csv, [line for r in results.values() for line in r["lines"]])
    return bool(results), results
