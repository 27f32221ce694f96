"""bench/run accuracy and bench/run similarity: eval sets, tables, intervals, CSV, charts.

accuracy    every question over the whole prefix and over chosen rows: share of answers equal to
            full KV's, KL of the first new token's logits, accuracy, each with a 95 % interval
            (bootstrap over prefixes, 2,000 draws); a curve over the share of rows; perplexity of
            continuations
similarity  what sets of important rows have in common: heads, neighbouring layers, questions, and
            how much of a layer's set each predictor finds before its queries exist

Eval sets come from bench/data (inputs.py; --data DIR is searched first); a model or set that is
absent is skipped with a message. Nothing is written but the files that are
asked for and the store under build/.
Tests: none (a measurement)."""
import csv
import glob
import hashlib
import json
import math
import os
import random
import shutil
import statistics
import string
import subprocess
import sys
import time

import inputs
import plots
import quality_tasks
import replay
from inputs import read_rows

DRAWS = 2000
PPL_QUERY, PPL_TOKENS = 64, 192  # tokens that choose rows; tokens whose likelihood counts
SHOT_SETS = ("piqa", "rte", "copa", "openbookqa", "arc-easy")
BY_LENGTH = ("piqa", "openbookqa", "arc-easy")  # a harness compares these by likelihood a byte
SQUAD_TOKENS = 16
SHOT_PIECE = 8  # questions of one prefix that are asked at a time

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
         "entail": ("entail_dev", "entail_train", rte_text),
         "arc-easy": ("arc-easy_test", "arc-easy_test", piqa_text)}


class Session:
    """What a run was asked for, and where things lie."""

    def __init__(self, args, root, build):
        self.args = args
        self.root = root
        self.build = build
        self.data = args.data
        self.work = os.path.join(build, "bench-accuracy")
        self.connector = os.path.join(build, "lib", "libspec_connector.so")
        with open(self.connector, "rb") as f:
            self.connector_sum = hashlib.sha256(f.read()).hexdigest()
        self.started = time.monotonic()
        self.store = os.path.join(build, "bench-store")
        os.makedirs(self.work, exist_ok=True)

    def program(self, name):
        return os.path.join(self.build, "bin", name)

    def eval(self, name):
        return inputs.find(self.data, f"eval/{name}.jsonl")

    def text(self, name):
        return inputs.read_text(inputs.find(self.data, "text/" + name))

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


def shot_set(session, model, name, tokens, questions, shot_count=None, piece=SHOT_PIECE):
    """One prefix of solved examples, so many of them or so many tokens, asked about the first
    questions of the set, piece by piece."""
    asked_file, shot_file, text = SHOTS[name]
    asked = read_rows(session.eval(asked_file))[:questions]
    shots = read_rows(session.eval(shot_file))[-400:]
    solved = [front + choices[row["label"]] + "\n\n"
              for row in shots for front, choices in [text(row)]]
    prefix = "".join(solved[:shot_count]) if shot_count else filled(session, model, solved, tokens)
    queries = [{"query": front, "choices": choices, "label": row["label"]}
               for row in asked for front, choices in [text(row)]]
    return [{"id": f"{name}-{at}", "group": name, "prefix": prefix,
             "queries": queries[at:at + piece]} for at in range(0, len(queries), piece)]


def held_out(session, model, lengths, per_length, questions):
    """Questions as recall_text_dev asks them over passages that it does not hold: nothing may be
    tuned on these. The opening of a sentence; which of ten continuations follows?"""
    text = session.text("english-6mb.txt")
    known = [place for place in map(text.find, quality_tasks.pieces_of(
        row["prefix"] for row in read_rows(session.eval("recall_text_dev")))) if place >= 0]
    dice, entries = random.Random(20261121), []
    for length in lengths:
        while sum(e["group"] == str(length) for e in entries) < per_length:
            at, chars = dice.randrange(len(text) - 50000), length * 5
            if any(abs(found - at) < 50000 for found in known):
                continue
            for _ in range(4):  # of so many tokens, by and by
                chars = chars * length // len(session.tokens(model, [text[at:at + chars]])[0])
            asked = sentence_questions(text[at:at + chars], dice, questions)
            if len(asked) == questions:
                entries.append({"id": f"held-{length}-{at}", "group": str(length),
                                "prefix": text[at:at + chars], "queries": asked})
    return entries


def sentence_questions(passage, dice, count):
    """Openings of seven words, continuations of four; other choices stand elsewhere in it."""
    words = passage.replace("<|endoftext|>", " ").split()
    starts = [i for i in range(1, len(words) - 12)
              if words[i - 1][-1] in ".!?" and words[i][0].isupper()
              and not any(w[-1] in ".!?" for w in words[i:i + 10])
              and " ".join(words[i:i + 11]) in passage]
    dice.shuffle(starts)
    asked = []
    for start in starts[:count]:
        right = " " + " ".join(words[start + 7:start + 11])
        choices = {right}
        while len(choices) < 10:
            other = dice.randrange(len(words) - 4)
            if abs(other - start) > 12:
                choices.add(" " + " ".join(words[other:other + 4]))
        choices = dice.sample(sorted(choices), 10)
        asked.append({"query": "\n\nAs the text above says: " + " ".join(words[start:start + 7]),
                      "choices": choices, "label": choices.index(right)})
    return asked


def held_out_ids(lengths, per_length, questions):
    """What recall_ids_dev asks, of facts and filler drawn anew in the form that opt-recall was
    trained on (models/opt-recall/README.md)."""
    dice, entries = random.Random(20261122), []
    for number, length in enumerate(length for length in lengths for _ in range(per_length)):
        facts = dice.randint(length // 26 + 9, min(200, length // 7))
        keys, values = dice.sample(range(16, 272), facts), dice.sample(range(272, 528), facts)
        count = length - 1 - 2 * facts
        ids = dice.choices(range(528, 1024), [1 / rank for rank in range(1, 497)], k=count)
        places = sorted(dice.sample(range(count + 1), facts), reverse=True)
        for key, value, place in zip(keys, values, places):
            ids[place:place] = [key, value]
        asked = []
        for key, value in dice.sample(list(zip(keys, values)), questions):
            choices = [value] + dice.sample([v for v in values if v != value], 9)
            dice.shuffle(choices)
            asked.append({"query_ids": [4, key], "choices_ids": [[v] for v in choices],
                          "label": choices.index(value)})
        entries.append({"id": f"held-{length}-{number}", "group": str(length),
                        "prefix_ids": [2, *ids], "queries": asked})
    return entries


def filled(session, model, shots, tokens):
    """As many of the shots, from the first on, as fit."""
    text, count = "", 0
    for shot, ids in zip(shots, session.tokens(model, shots)):
        if count + len(ids) > tokens:
            break
        text, count = text + shot, count + len(ids)
    return text


def squad_set(session, model, tokens, passages, questions):
    """Solved examples and then a passage; questions about the passage, answered in words."""
    by_passage = {}
    for row in read_rows(session.eval("squad_xquad_en")):
        by_passage.setdefault(row["ctx"], []).append(row)
    every = list(by_passage.values())
    shots = ["".join([f"Passage: {rows[0]['ctx']}\n"] + [
        f"Question: {row['question']}\nAnswer: {row['answers'][0]}\n" for row in rows[:3]]) + "\n"
        for rows in every[len(every) // 2:][::3]]
    asked = every[:len(every) // 2][::max(1, len(every) // 2 // passages)][:passages]
    ends = [f"Passage: {rows[0]['ctx']}\n" for rows in asked]
    entries = []
    for rows, end, ids in zip(asked, ends, session.tokens(model, ends)):
        entries.append({"id": str(rows[0]["id"]), "group": "squad",
                        "prefix": filled(session, model, shots, tokens - len(ids)) + end,
                        "queries": [{"query": f"Question: {row['question']}\nAnswer:",
                                     "choices": [], "label": 0, "new_tokens": SQUAD_TOKENS,
                                     "answers": row["answers"]} for row in rows[:questions]]})
    return entries


def stories_of(text):
    """Of shuffled passages those that a model of children's stories knows."""
    return "\n".join(part.strip() for part in text.split("<|endoftext|>")
                     if part.strip().startswith("Once upon a time"))


def text_set(session, model, text, lengths, count, query=PPL_QUERY, scored=PPL_TOKENS):
    """Running text: a prefix, tokens that choose, tokens whose likelihood counts."""
    text = text[:count * sum(n + query + scored for n in lengths) * 8]
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


PIECE_SECONDS = 20  # a call of bench-accuracy is given more prefixes until it takes so long


def entry_key(session, entry):
    """Names a prefix with its questions and the connector that is asked about them."""
    text = json.dumps(entry, sort_keys=True) + session.connector_sum
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def next_piece(missing, count):
    """At most count prefixes from the front of missing that lack the same contenders."""
    end = 1
    while end < min(count, len(missing)) and missing[end][1] == missing[0][1]:
        end += 1
    return missing[:end], missing[end:]


def clear_stores(session):
    for path in glob.glob(glob.escape(session.store) + "*"):  # layered ones have a suffix
        shutil.rmtree(path, ignore_errors=True)


def run_piece(session, model, path, entries, contenders, select_by):
    with open(path, "w", encoding="utf8") as f:
        f.writelines(json.dumps(entry) + "\n" for entry in entries)
    clear_stores(session)
    command = [session.program("bench-accuracy"), "--model", model, "--eval", path, "--by",
               session.args.by, "--pass", select_by, "--contenders", ",".join(contenders),
               "--store", session.store, "--connector", session.connector]
    if session.args.threads:
        command += ["--threads", str(session.args.threads)]
    try:
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL).stdout
    finally:
        clear_stores(session)
    return [json.loads(line) for line in out.decode("utf8", "replace").splitlines()]


def ways_of(select_by):
    """The ways rows are chosen: by each choice with the query, by the query alone."""
    return ("choice", "query") if select_by == "both" else (select_by,)


def run_set(session, model, name, entries, contenders, select_by):
    """Rows of bench-accuracy for the entries, in order. What is done is kept in a file, prefix by
    prefix and contender by contender; with --resume a later run goes on from there."""
    title = f"{os.path.basename(os.path.normpath(model))}-{name}-{session.args.by}"
    kept_path = os.path.join(session.work, title + ".rows.jsonl")
    if not session.args.resume and os.path.exists(kept_path):
        os.remove(kept_path)
    kept = {}
    for row in read_rows(kept_path) if os.path.exists(kept_path) else ():
        kept_row = kept.setdefault((row["key"], row["contender"]), {}).setdefault(
            row["question"], {})
        kept_row.update(row)  # rows of the other way of choosing have the same counts
    kept = {name: rows for name, rows in kept.items()
            if all("by_" + way in row for row in rows.values() for way in ways_of(select_by))}
    keys = [entry_key(session, entry) for entry in entries]
    missing = [(entry, lacks) for entry, key in zip(entries, keys)
               for lacks in [[c for c in contenders if (key, c) not in kept]] if lacks]
    count = 1
    while missing:
        print(f"bench-accuracy: {title}, {len(missing)} prefixes to go", file=sys.stderr)
        if session.args.seconds and time.monotonic() - session.started > session.args.seconds:
            sys.exit(f"bench accuracy: stopped after {session.args.seconds} s, {len(missing)} "
                     f"prefixes of {title} to go; the same command with --resume goes on")
        began = time.monotonic()
        piece, missing = next_piece(missing, count)
        asked = {entry["id"]: entry_key(session, entry) for entry, _ in piece}
        lacks = ["full"] + [c for c in piece[0][1] if c != "full"]
        rows = run_piece(session, model, os.path.join(session.work, title + ".jsonl"),
                         [entry for entry, _ in piece], lacks, select_by)
        fresh = [{"key": asked[row["id"]], **row} for row in rows]
        with open(kept_path, "a", encoding="utf8") as f:
            f.writelines(json.dumps(row) + "\n" for row in fresh)
        for row in fresh:
            kept.setdefault((row["key"], row["contender"]), {})[row["question"]] = row
        count *= 2 if time.monotonic() - began < PIECE_SECONDS / 2 else 1
    return [row for key in keys for c in contenders for row in kept[key, c].values()]


def picked(scores, lengths):
    """The index of the likeliest choice, a unit of length."""
    return max(range(len(scores)), key=lambda i: scores[i] / lengths[i])


def enrich(rows, entries, ways, by_length):
    """Adds right and agrees, a way; by_length: choices are compared by likelihood a byte."""
    lengths, full = {}, {}
    for entry in entries:
        for number, query in enumerate(entry["queries"]):
            choices = query.get("choices") or query["choices_ids"]
            lengths[entry["id"], number] = [len(c.encode()) if by_length else 1 for c in choices]
    for row in rows:
        key = row["id"], row["question"]
        for way in ways:
            choice = picked(row["by_" + way], lengths[key])
            if row["contender"] == "full":
                full[key] = choice
            row["right_" + way] = float(choice == row["label"])
            row["agrees_" + way] = float(choice == full[key])
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
    if len(clusters) == 1 or rows[0]["group"] in SHOTS:
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
    pairs = [{"id": key[0], "group": pair[first]["group"], "a": pair[first], "b": pair[second]}
             for key, pair in both.items()]
    return interval(pairs, lambda drawn: measure([p["a"] for p in drawn], [p["b"] for p in drawn]))


def shown(triple, digits=3):
    return f"{triple[0]:.{digits}f} ({triple[1]:.{digits}f}..{triple[2]:.{digits}f})"


# ---- Tables ----

WAYS = {"choice": "query and choice", "query": "query alone"}


def head(ways):
    return (f"{'contender':14} {'n':>5} " + " ".join(
        f"{'right, ' + WAYS[way]:>24} {'as full KV':>20}" for way in ways)
        + f" {'KL':>23} {'top1':>5} {'rows':>5} {'union':>6} {'fallback':>8} {'wanted':>7} "
        f"{'read':>6}")


def costs_wanted(rows, row_bytes):
    return share_of("wanted_bytes", "matched")(rows) / row_bytes


def costs(rows, row_bytes):
    """What of the prefix was used: shares of rows and of the bytes of its 16-bit KV."""
    return {"kl": interval(rows, mean_of("kl")), "top1": mean_of("top1")(rows),
            "rows": share_of("selected", "matched")(rows),
            "union": share_of("union", "selected")(rows),
            "fallback": share_of("fallback", "layers")(rows),
            "dense": share_of("dense", "layers")(rows),
            "wanted": costs_wanted(rows, row_bytes),
            "read": share_of("read_bytes", "matched")(rows) / row_bytes}


def table_line(name, rows, row_bytes, ways):
    line = {"contender": name, "n": len(rows)}
    for way in ways:
        line["accuracy_" + way] = interval(rows, mean_of("right_" + way))
        line["agreement_" + way] = interval(rows, mean_of("agrees_" + way))
    return {**line, **costs(rows, row_bytes)}


def shown_costs(line):
    return (f"{shown(line['kl'], 4):>23} {line['top1']:5.3f} {line['rows']:5.3f} "
            f"{line['union']:6.2f} {line['fallback']:8.2f} {line['wanted']:7.3f} "
            f"{line['read']:6.3f}")


def print_line(line, ways):
    print(f"{line['contender']:14} {line['n']:5} " + " ".join(
        f"{shown(line['accuracy_' + way]):>24} {shown(line['agreement_' + way]):>20}"
        for way in ways) + " " + shown_costs(line))


def tables(title, rows, contenders, row_bytes, ways):
    """A table a prefix length, then all lengths together; their lines."""
    lines = []
    groups = sorted({r["group"] for r in rows}, key=lambda g: (len(g), g))
    for group in (groups if len(groups) > 1 else []) + [None]:
        here = [r for r in rows if group in (None, r["group"])]
        print(f"\n{title}, {'all prefixes' if group is None else 'prefixes of ' + group}")
        print(head(ways))
        for name in contenders:
            line = table_line(name, [r for r in here if r["contender"] == name], row_bytes, ways)
            print_line(line, ways)
            lines.append({"set": title, "group": group or "all", **line})
    return lines


judges = True  # bench/run sets it: --quick judges no floor


def verdict(text, value, holds, floor):
    word = "not judged" if not judges else "holds" if holds else "DOES NOT HOLD"
    print(f"{text}: {value} (floor {floor}): {word}")
    return holds or not judges


def acceptance(rows, is_recall, way):
    """What impress has to keep beside exact H2O, random rows, and with a mass budget, where rows
    were chosen that way."""
    names = {r["contender"] for r in rows}
    right, agrees = mean_of("right_" + way), mean_of("agrees_" + way)
    ok = True
    print(f"rows chosen by the {WAYS[way]}:")
    if {"impress@.25", "h2o@.25"} <= names:
        value = paired(rows, "impress@.25", "h2o@.25",
                       lambda a, b: agrees(a) / max(1e-9, agrees(b)))
        ok &= verdict("  impress' agreement with full KV / exact H2O's", shown(value),
                      value[0] >= .95, ">= .95")
    if not is_recall:
        return ok

    def points(a, b):
        return 100 * (right(a) - right(b))
    for first, second, text, floor in (
            ("impress@.25", "h2o@.25", "impress - exact H2O, points", -1),
            ("impress@.25", "random@.25", "impress - random rows, points", 10),
            *((name, "full", f"{name} - full KV, points", -1)
              for name in sorted(names) if name.startswith("mass@"))):
        if {first, second} <= names:
            value = paired(rows, first, second, points)
            kept = share_of("selected", "matched")([r for r in rows if r["contender"] == first])
            text += f", rho {kept:.3f}" if first.startswith("mass") else ""
            ok &= verdict("  " + text, shown(value, 1), value[0] >= floor, f">= {floor}")
    return ok


def layered_acceptance(rows, row_bytes):
    """At no more bytes than another contender wants, and .40 at most, layered's KL has to be a
    fifth of its own, for one of the settings that were asked; with an interval, drawn together."""
    names = list(dict.fromkeys(r["contender"] for r in rows))
    wanted = {name: costs_wanted([r for r in rows if r["contender"] == name], row_bytes)
              for name in names}
    layered = [n for n in names if n.startswith(("layered:", "preset:layered"))]
    kl, ok = mean_of("kl"), True
    for other in (n for n in ("impress@.25", "h2o@.25") if n in names and layered):
        most, held = min(.4, wanted[other]), False
        for name in layered:
            if wanted[name] <= most:
                value = paired(rows, name, other, lambda a, b: kl(a) / max(1e-12, kl(b)))
                held |= value[0] <= .2
                print(f"  {name} / {other}: KL {shown(value)} at {wanted[name]:.3f} of the bytes")
        ok &= verdict(f"  layered's KL / {other}'s, bytes at most {most:.2f}",
                      "by one of them" if held else "by none", held, "<= .2")
    return ok


def perplexity(title, rows, contenders, row_bytes):
    """exp of the mean loss a token of the continuations, as a ratio to full KV's."""
    def ppl(of):
        return math.exp(-sum(r["by_query"][0] for r in of) / sum(r["tokens"][0] for r in of))
    lines = []
    print(f"\n{title}: perplexity of {rows[0]['tokens'][0]} tokens behind those that chose rows")
    print(f"{'contender':14} {'prefix':>7} {'n':>4} {'perplexity':>11} {'/ full KV':>20} "
          f"{'KL':>23} {'top1':>5} {'rows':>5} {'union':>6} {'fallback':>8} {'wanted':>7} "
          f"{'read':>6}")
    for group in sorted({r["group"] for r in rows}, key=int) + [None]:
        here = [r for r in rows if group in (None, r["group"])]
        for name in contenders:
            own = [r for r in here if r["contender"] == name]
            ratio = paired(here, name, "full", lambda a, b: ppl(a) / ppl(b)) if name != "full" \
                else (1.0, 1.0, 1.0)
            line = {"set": title, "group": group or "all", "contender": name, "n": len(own),
                    "perplexity": ppl(own), "ratio": ratio, **costs(own, row_bytes)}
            print(f"{name:14} {group or 'all':>7} {len(own):4} {ppl(own):11.3f} "
                  f"{shown(ratio):>20} {shown_costs(line)}")
            lines.append(line)
    return lines


def words_of(text):
    """As SQuAD compares answers: lower case, no punctuation, no articles."""
    plain = "".join(c for c in text.lower() if c not in string.punctuation)
    return [word for word in plain.split() if word not in ("a", "an", "the")]


def f1(text, answers):
    """The best overlap of words with one of the answers."""
    best = 0.0
    for answer in answers:
        given, wanted = words_of(text), words_of(answer)
        both = sum(min(given.count(w), wanted.count(w)) for w in set(given))
        if both:
            best = max(best, 2 * both / (len(given) + len(wanted)))
        elif not given and not wanted:
            best = 1.0
    return best


def answers_in_words(title, rows, entries, contenders, row_bytes):
    """Decoded answers: F1 with the right ones, and how many are full KV's to the letter."""
    answers = {(e["id"], n): q["answers"] for e in entries for n, q in enumerate(e["queries"])}
    full = {(r["id"], r["question"]): r["text"] for r in rows if r["contender"] == "full"}
    for row in rows:
        key = row["id"], row["question"]
        said = row["text"].split("\n")[0]
        row["f1"] = f1(said, answers[key])
        row["agrees"] = float(said == full[key].split("\n")[0])
    lines = []
    print(f"\n{title}: the first line decoded, F1 as SQuAD counts it")
    print(f"{'contender':14} {'n':>5} {'F1':>20} {'F1 - full KV, points':>22} {'as full KV':>20} "
          f"{'KL':>23} {'top1':>5} {'rows':>5} {'union':>6} {'fallback':>8} {'wanted':>7} "
          f"{'read':>6}")
    for name in contenders:
        own = [r for r in rows if r["contender"] == name]
        lost = (0.0, 0.0, 0.0) if name == "full" else paired(
            rows, name, "full", lambda a, b: 100 * (mean_of("f1")(a) - mean_of("f1")(b)))
        line = {"set": title, "group": "all", "contender": name, "n": len(own),
                "f1": interval(own, mean_of("f1")), "f1_points": lost,
                "agreement_query": interval(own, mean_of("agrees")), **costs(own, row_bytes)}
        print(f"{name:14} {len(own):5} {shown(line['f1']):>20} {shown(lost, 1):>22} "
              f"{shown(line['agreement_query']):>20} {shown_costs(line)}")
        lines.append(line)
    return lines


# ---- accuracy ----


def model_of(session, name):
    if session.args.model:
        return session.args.model
    if name == "smollm2":
        return os.path.join(session.build, "models", "smollm2")
    try:
        return inputs.find(session.data, f"models/{name}")
    except inputs.Missing:
        return os.path.join("models", name)


def shape_of(model):
    with open(os.path.join(model, "config.json"), encoding="utf8") as f:
        config = json.load(f)
    heads = config["num_attention_heads"]
    size = config.get("head_dim") or config["hidden_size"] // heads
    kv_heads = config.get("num_key_value_heads") or heads
    return {"row_bytes": 4 * size * kv_heads, "kv_heads": kv_heads,
            "positions": config["max_position_embeddings"]}


def plan(args):
    """(set, model) pairs of a run, in order."""
    default = [("recall_ids", "opt-recall"), ("recall_text", "smollm2")]
    if args.model:
        default = [("recall_text", "given")]
    more = [("wikitext2", "smollm2"), *((name, "smollm2") for name in SHOT_SETS),
            ("squad", "smollm2"), ("chat", "tinychat-opt"), ("stories", "stories260K")]
    if args.model:
        more = more[:-2]
    if args.sets:
        every = dict([("recall_ids_held", "opt-recall"), *default, *more])
        return [(name, every.get(name, "smollm2")) for name in args.sets.split(",")]
    return default if args.quick else default + more


def entries_of(session, name, model, quick):
    if name == "recall_ids":
        return recall_set(session, "recall_ids_dev", ("256", "512", "1024", "1900"),
                          2 if quick else 12, 8)
    if name == "recall_text":
        return recall_set(session, "recall_text_dev", ("512", "1024") if quick else
                          ("512", "1024", "2048"), 1 if quick else 12, 3 if quick else 8)
    if name == "recall_held":
        return held_out(session, model, (512, 1024, 2048), 1 if quick else 12, 8)
    if name == "recall_ids_held":
        return held_out_ids((256, 512, 1024, 1900), 1 if quick else 12, 8)
    if name == "wikitext2":
        lengths = [n for n in (512, 1024, 2048)
                   if n + PPL_QUERY + PPL_TOKENS <= shape_of(model)["positions"]]
        return text_set(session, model, session.text("wikitext2.valid.txt"), lengths,
                        1 if quick else 6)
    if name == "chat":
        return text_set(session, model, inputs.read_text(os.path.join(model, "chat_val.txt")),
                        [160], 24, 24, 64)
    if name == "stories":
        return text_set(session, model, stories_of(session.text("english-6mb.txt")), [320], 24, 32,
                        128)
    if name == "squad":
        room = min(1900, shape_of(model)["positions"] - 100)
        return squad_set(session, model, room, 4 if quick else 24, 2 if quick else 4)
    if name in SHOTS:
        room = min(1900, shape_of(model)["positions"] - 300)
        return shot_set(session, model, name, room, 10 if quick else session.args.questions or 100)
    sys.exit(f"bench accuracy: no set {name}: recall_ids, recall_text, recall_held, "
             f"recall_ids_held, wikitext2, chat, stories, squad, {', '.join(SHOT_SETS)}")


CONTENDERS = ("full", "impress@.25", "h2o@.25", "one@.25", "random@.25", "mass@.9", "mass@.95")
CURVE = (.5, .25, .1, .05)


def curve_of(session, name, model, entries, title):
    """The same questions, two a prefix, over the share of rows; 1 is full KV, bit for bit."""
    fewer = [{**e, "queries": e["queries"][:2]} for e in entries]
    wanted = ["full"] + [f"{k}@{rho:g}" for rho in CURVE for k in ("impress", "h2o", "random")]
    ways = ways_of(session.args.select_by)[-1:]
    rows = enrich(run_set(session, model, name, fewer, wanted, ways[0]), fewer, ways, False)
    print(f"\n{title}: over the share of rows, two questions a prefix")
    print(head(ways))
    lines = []
    for contender in wanted:
        line = table_line(contender, [r for r in rows if r["contender"] == contender],
                          shape_of(model)["row_bytes"], ways)
        print_line(line, ways)
        lines.append({"set": title, "group": "curve", **line})
    return lines


def choice_set(session, name, model, entries, contenders, title):
    """Questions with choices. Acceptance is judged as a harness asks where that was asked for."""
    args = session.args
    ways = ways_of(args.select_by)
    rows = enrich(run_set(session, model, name, entries, contenders, args.select_by), entries, ways,
                  name in BY_LENGTH)
    lines = tables(title, rows, contenders, shape_of(model)["row_bytes"], ways)
    holds = [acceptance(rows, name.startswith("recall"), way) for way in ways]
    holds[0] &= layered_acceptance(rows, shape_of(model)["row_bytes"])
    curve = []
    if not args.quick and not args.contenders and name.startswith("recall"):
        curve = curve_of(session, name, model, entries, title)
    return holds[0], {"rows": rows, "lines": lines, "curve": curve}


def that_fit(session, model, entries):
    """Without the prefixes that leave no room for a question among the model's positions."""
    positions = shape_of(model)["positions"]
    texts = [e["prefix"] for e in entries if "prefix" in e]
    sizes = iter(session.tokens(model, texts) if texts else [])
    return [e for e in entries for ids in [e.get("prefix_ids") or next(sizes)]
            if len(ids) + PPL_QUERY <= positions]


def with_lessons(entries, count):
    """The first questions of each prefix are asked before, so that there are averages of what
    mattered; they are not judged."""
    return [{**e, "lessons": e["queries"][:count], "queries": e["queries"][count:]}
            for e in entries if len(e["queries"]) > count]


def one_set(session, name, model, args):
    entries = that_fit(session, model, entries_of(session, name, model, args.quick))
    if not entries:
        print(f"{name}: skipped: no prefix of it fits {shape_of(model)['positions']} positions")
        return True, {"rows": [], "lines": [], "curve": []}
    if args.per_length:
        entries = [e for i, e in enumerate(entries)
                   if sum(o["group"] == e["group"] for o in entries[:i]) < args.per_length]
    if args.prefixes:
        entries = entries[:args.prefixes]
    if args.per_prefix:
        entries = [{**e, "queries": e["queries"][:args.per_prefix]} for e in entries]
    if args.lessons:
        entries = with_lessons(entries, args.lessons)
    contenders = args.contenders.split(",") if args.contenders else (
        *CONTENDERS[:1], *(["static@.25"] if args.lessons else []), *CONTENDERS[1:])
    contenders = [*contenders, *("preset:" + name for name in args.preset)]
    title = f"{os.path.basename(os.path.normpath(model))}, {name}"
    if name in ("wikitext2", "chat", "stories"):
        rows = run_set(session, model, name, entries, contenders, "query")
        return True, {"rows": rows, "curve": [], "lines": perplexity(
            title, rows, contenders, shape_of(model)["row_bytes"])}
    if name == "squad":
        rows = run_set(session, model, name, entries, contenders, "query")
        lines = answers_in_words(title, rows, entries, contenders, shape_of(model)["row_bytes"])
        return True, {"rows": rows, "curve": [], "lines": lines}
    return choice_set(session, name, model, entries, contenders, title)


def here(session, name):
    """The set, or `entail` for RTE if that is absent: its terms do not allow shipping it."""
    if name != "rte" or inputs.has(session.data, "eval/rte_dev.jsonl"):
        return name
    print("rte is absent (tools/fetch-eval): entail is asked instead")
    return "entail"


def accuracy(args, root, build):
    session = Session(args, root, build)
    results, ok = {}, True
    for name, wanted in plan(args):
        name = here(session, name)
        model = model_of(session, wanted)
        if not os.path.isfile(os.path.join(model, "config.json")):
            print(f"{name}: skipped: no model at {model}")
            continue
        holds, results[name] = one_set(session, name, model, args)
        ok &= holds
    write_csv(args.csv, [line for r in results.values() for line in r["lines"] + r["curve"]])
    plot_curves(args.plot, build, results)
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
        writer = csv.DictWriter(f, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()}
                         for row in flat)


def pyplot(directory, build):
    """matplotlib without a display, or None with a message."""
    plt = plots.pyplot(build) if directory else None
    if plt is None and directory:
        print("--plot: skipped: matplotlib is not there and could not be installed")
    elif directory:
        os.makedirs(directory, exist_ok=True)
    return plt


def kind_of(contender):
    """What is one line in a chart: of layered, without exact rows, all numbers of bits are."""
    kind, _, share = contender.partition("@")
    bits = kind.removeprefix("layered:").split("+")
    return "plain b bits" if kind != bits[0] and share == "0" and bits[0] == bits[1] else kind


def plot_points(plt, path, lines, x, y, labels):
    """One line a kind of contender, through its shares; labels: of the axes, and the title."""
    figure, axes = plt.subplots()
    kinds = {}
    for line in lines:
        if line["contender"] != "full":
            kinds.setdefault(kind_of(line["contender"]), []).append(line)
    for kind, own in kinds.items():
        points = sorted((x(line), *y(line)) for line in own)
        middle = [p[1] for p in points]
        bars = [[max(0, m - p[2]) for m, p in zip(middle, points)],
                [max(0, p[3] - m) for m, p in zip(middle, points)]]
        axes.errorbar([p[0] for p in points], middle, yerr=bars, marker="o", capsize=3, label=kind)
    if labels[1].startswith("KL"):
        axes.set_yscale("log")
    axes.set(xlabel=labels[0], ylabel=labels[1], title=labels[2])
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1))
    figure.savefig(path, bbox_inches="tight")
    plt.close(figure)


def plot_curves(directory, build, results):
    plt = pyplot(directory, build)
    for name, result in results.items() if plt else ():
        if not result["lines"]:
            continue
        lines = result["curve"] or [l for l in result["lines"] if l["group"] == "all"]
        title = lines[0]["set"]
        way = next((w for w in WAYS if "accuracy_" + w in lines[0]), None)
        if result["curve"]:
            plot_points(plt, os.path.join(directory, f"accuracy-{name}.png"), lines,
                        lambda l: l["rows"], lambda l, w=way: l["accuracy_" + w],
                        ("share of rows", f"right, rows by {WAYS[way]}", title))
        plot_points(plt, os.path.join(directory, f"kl-{name}.png"), lines, lambda l: l["wanted"],
                    lambda l: l["kl"], ("bytes wanted, share of 16-bit KV",
                                        "KL of the first new token to full KV", title))


# ---- similarity ----

MEASURES = (("heads", "heads"), ("probes", "probes"), ("neighbours", "neigh."),
            ("layer_prediction", "layer"), ("before", "before"), ("after", "after"),
            ("static", "static"), ("runs", "runs"), ("sink", "sink"), ("chunk", "chunk"))


def similarity_rows(session, model, name, entries, more=(), questions=3):
    path = os.path.join(session.work, name + "-similarity.jsonl")
    with open(path, "w", encoding="utf8") as f:
        f.writelines(json.dumps(entry) + "\n" for entry in entries)
    print(f"running bench-similarity: {name}, {len(entries)} prefixes …", file=sys.stderr)
    out = subprocess.run([session.program("bench-similarity"), "--model", model, "--eval", path,
                          "--questions", str(2 if session.args.quick else questions), *more],
                         check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def chunk_figure(session, model):
    """Requests with more and fewer solved examples in front: a chunk is asked for by every one that
    reaches it; is what stands in it more important for that?"""
    asked = [shot_set(session, model, "piqa", None, 2, shots) for shots in range(5, 21, 5)]
    entries = [{**entries[0], "id": f"piqa-{n}"} for n, entries in enumerate(asked)]
    rows = similarity_rows(session, model, "chunks", entries, ("--chunks", "1", "--rho", ".5"))
    reached = {}
    for row in rows:
        for chunk, count in enumerate(row["chunks"]):
            reached.setdefault(chunk, []).append((row["id"], count / 64))
    print("\nchunks of 64 rows, half of the rows important, by how many of the 4 prefixes hold the "
          "chunk (PIQA, 5 to 20 solved examples)")
    print(f"{'prefixes':>8} {'chunks':>7} {'important':>10}")
    for times in sorted({len({i for i, _ in seen}) for seen in reached.values()}):
        shares = [[s for _, s in seen] for seen in reached.values()
                  if len({i for i, _ in seen}) == times]
        every = [s for own in shares for s in own]
        print(f"{times:8} {len(shares):7} {sum(every) / len(every):10.3f}")
    return rows


def means(rows):
    return {key: sum(r[key] for r in rows if key in r) / n
            for key, _ in MEASURES for n in [sum(key in r for r in rows)] if n}


def similarity(args, root, build):
    session = Session(args, root, build)
    results, ok = {}, True
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
        gain = 100 * (here["after"] - here["layer_prediction"])
        ok &= verdict(f"{wanted}: recall of hint (after) - layer at rho .25, points",
                      f"{gain:.1f}", gain >= 10, ">= 10")
        results[name] = rows
        if wanted == "smollm2":
            results["chunks"] = chunk_figure(session, model)
    return ok, results


# ---- reordering ----

SCOPES = ("span", "node")


def reorder_rows(session, model, name, entries, scope):
    path = os.path.join(session.work, name + "-reorder.jsonl")
    with open(path, "w", encoding="utf8") as f:
        f.writelines(json.dumps(entry) + "\n" for entry in entries)
    print(f"running bench-reorder: {name}, {scope}, {len(entries)} prefixes …", file=sys.stderr)
    stores = [f"{session.store}-{which}" for which in ("stored", "ordered")]
    for store in stores:
        shutil.rmtree(store, ignore_errors=True)
    try:
        out = subprocess.run([session.program("bench-reorder"), "--model", model, "--eval", path,
                              "--questions", "4" if session.args.quick else "8", "--scope", scope,
                              "--store", session.store, "--connector",
                              os.path.join(session.build, "lib", "libspec_connector.so")],
                             check=True, stdout=subprocess.PIPE, text=True).stdout
    finally:
        for store in stores:
            shutil.rmtree(store, ignore_errors=True)
    return [json.loads(line) for line in out.splitlines()]


def reorder_sums(rows):
    """Operations and bytes of a cell's layer, on average, with what is read to choose."""
    sums = {}
    for row in rows:
        cell = sums.setdefault((row["ordered"], row["cell"]), [0, 0, 0])
        cell[0] += row["ops"]
        cell[1] += row["bytes"]
        cell[2] += row["layers"]
    return {key: (ops / layers, size / layers) for key, (ops, size, layers) in sums.items()}


def reorder_sets(session, model, name, wanted, entries, table):
    """Of the sets themselves, whatever a row's bytes are: stretches of rows that lie side by side,
    as they are read where a row is a page or more, and chunks of 64 that hold one."""
    rows = similarity_rows(session, model, name, entries, questions=8)
    rows = [r for r in rows if r["question"] >= (1 if session.args.quick else 4)]  # as many lessons
    ok = True
    for rho, parts in ((.25, (("chunks_held", "chunks_reordered", "chunks", 1.2),
                              ("runs", "runs_reordered", "stretches", 2))),
                       (.05, (("runs", "runs_reordered", "stretches", 3),))):
        seen = [r for r in rows if r["rho"] == rho and "runs_reordered" in r]
        for before, after, what, floor in parts:
            pair = [sum(r[key] for r in seen) / len(seen) for key in (before, after)]
            table.append([wanted, "span", f"{what} {rho}",
                          f"{pair[0]:.2f}", "", f"{pair[1]:.2f}", "", ""])
            ok &= verdict(f"{wanted}, {what} of a set of {rho}: {pair[0]:.1f} -> {pair[1]:.1f}",
                          f"{pair[0] / pair[1]:.2f} x fewer", pair[0] / pair[1] >= floor,
                          f">= {floor} x")
    return ok


def reorder_drift(session, model, name, wanted, entries, table):
    """When a second reordering is due, and what it is good for, in a simulation over the importance
    that the model gives to rows."""
    path = os.path.join(session.work, name + "-drift.jsonl")
    with open(path, "w", encoding="utf8") as f:
        f.writelines(json.dumps(entry) + "\n" for entry in entries)
    print(f"running bench-drift: {name}, {len(entries)} prefixes …", file=sys.stderr)
    out = subprocess.run([session.program("bench-drift"), "--model", model, "--eval", path,
                          "--questions", "8"],
                         check=True, stdout=subprocess.PIPE, text=True).stdout
    lines, ok = [json.loads(line) for line in out.splitlines()], True
    print("chunks of 64 that hold a request's own quarter of the rows, a layer; reorderings again, "
          "and the highest share outside, in all of them")
    print(f"{'case':10} {'rule':7} {'early':>6} {'end':>6} {'moved':>6} {'late':>6} {'again':>12} "
          f"{'outside':>13}")
    for case in ("noise", "questions", "halves"):
        for rule in (2, .25):
            rows = [r for r in lines if r["case"] == case and r["outside"] == rule]
            mean = {key: sum(r[key] for r in rows) / len(rows)
                    for key in ("early", "end", "moved", "late")}
            most = [max(r[key] for r in rows) for key in ("most", "most_moved")]
            runs, again = sum(r["seeds"] for r in rows), sum(r["repeats"] for r in rows)
            moved = sum(r["repeats_moved"] for r in rows)
            rule_name = "never" if rule == 2 else f"{rule}"
            print(f"{case:10} {rule_name:7} " + " ".join(f"{x:6.2f}" for x in mean.values()) +
                  f" {again:4} +{moved:4}/{runs:<3}{most[0]:6.3f} {most[1]:6.3f}")
            table.append([wanted, "node", f"drift {case} {rule_name}",
                          *(f"{x:.2f}" for x in mean.values()), ""])
            if case == "noise" and rule != 2:
                ok &= verdict(f"{wanted}: reorderings again by noise alone, {runs} runs",
                              f"{again}", again == 0, "0")
            if case == "halves" and rule != 2:
                ok &= verdict(f"{wanted}: chunks after the second reordering / before importance "
                              "moved", f"{mean['late'] / mean['end']:.2f}",
                              mean["late"] <= 1.1 * mean["end"], "<= 1.1")
    return ok


def reorder_again(wanted, scope, done, moved, means, table):
    """The same questions after requests that wanted what they want, and a second reordering."""
    before, after = means[True, "chunk 25"], means[True, "again chunk 25"]
    print(f"{'again':10} {before[0]:10.1f} {after[0]:10.1f} {before[0] / after[0]:6.2f}x "
          f"{before[1] / 1024:9.1f} {after[1] / 1024:9.1f} {before[1] / after[1]:6.2f}x"
          "  (chunk 25, reordered once, and again for these questions)")
    table.append([wanted, scope, "again", *(f"{x:.2f}" for x in before + after), ""])
    for name, row in (("first", done), ("second", moved)):
        rate = row["write_bytes"] / row["reorder_ns"]
        print(f"{name} reordering: {row['write_bytes'] / 2**20:.1f} MiB written in "
              f"{row['reorder_ns'] / 1e6:.0f} ms, {rate:.2f} GB/s; 55 GB at that rate: "
              f"{55 / rate / 60:.1f} minutes")


def reorder(args, root, build):
    """Two stores that are filled and taught alike, one of them reordered: what each question reads
    of both, and that it gets the same answer."""
    session = Session(args, root, build)
    results, ok, table = {}, True, []
    for name, wanted in (("recall_ids", "opt-recall"), ("recall_text", "smollm2")):
        model = model_of(session, wanted)
        if not os.path.isfile(os.path.join(model, "config.json")):
            print(f"{name}: skipped: no model at {model}")
            continue
        entries = entries_of(session, name, model, args.quick)[::4 if args.quick else 3]
        for scope in SCOPES[:1] if args.quick else SCOPES:
            lines = reorder_rows(session, model, name, entries, scope)
            rows = [r for r in lines if "cell" in r]
            done, moved = (r for r in lines if "reordered_chunks" in r)
            means = reorder_sums(rows)
            answers = {}
            for r in rows:
                answers.setdefault((r["cell"], r["id"], r["question"]), set()).add(r["logits"])
            same = sum(len(a) == 1 for a in answers.values())
            print(f"\n{wanted}, {name}, scope {scope}: {len(entries)} prefixes, "
                  f"{done['reordered_chunks']} of {done['chunks']} chunks reordered in "
                  f"{done['reorder_ns'] / 1e6:.0f} ms, {done['write_bytes'] / 2**20:.1f} MiB; "
                  "of a layer")
            print(f"{'':10} {'operations':>21} {'spared':>7} {'KiB':>19} {'spared':>7}")
            for cell in ("chunk 25", "chunk 5", "range 25", "range 5", "whole"):
                before, after = means[False, cell], means[True, cell]
                print(f"{cell:10} {before[0]:10.1f} {after[0]:10.1f} {before[0] / after[0]:6.2f}x "
                      f"{before[1] / 1024:9.1f} {after[1] / 1024:9.1f} "
                      f"{before[1] / after[1]:6.2f}x")
                table.append([wanted, scope, cell, *(f"{x:.2f}" for x in before + after),
                              f"{done['reorder_ns'] / 1e6:.1f}"])
            reorder_again(wanted, scope, done, moved, means, table)
            if scope == "span":
                ok &= reorder_sets(session, model, name, wanted, entries, table)
                ok &= reorder_drift(session, model, name, wanted, entries, table)
            took = {side: statistics.median(r["load_ns"] for r in rows if r["ordered"] == side
                                            and r["cell"] == "whole") for side in (False, True)}
            print(f"whole loads, median {took[False] / 1e6:.2f} ms before, {took[True] / 1e6:.2f} "
                  "after, the device and the processor")
            whole = means[True, "whole"][1] / means[False, "whole"][1]
            ok &= verdict(f"{wanted}, {scope}: bytes of whole loads after / before", f"{whole:.3f}",
                          whole <= 1.05, "<= 1.05")
            ok &= verdict(f"{wanted}, {scope}: answers with the same logits",
                          f"{same} of {len(answers)}", same == len(answers), "all")
            results[f"{name} {scope}"] = {"rows": rows, "reordered": done}
            if args.csv:
                with open(args.csv, "w", encoding="utf8", newline="") as f:
                    head = ["model", "scope", "cell", "ops_before", "bytes_before", "ops_after",
                            "bytes_after", "reorder_ms"]
                    csv.writer(f).writerows([head, *table])
    return ok, results


# ---- prefetch ----

DEVICE_FILE_BYTES = 512 << 20
PREDICTORS = ("none", "random", "sink", "static", "layer", "before", "after", "both")


def device_of(session):
    """By fio, of this disk: line rate, bytes a ns, and how long a lone 4 KiB read takes, ns."""
    file_bytes = DEVICE_FILE_BYTES // (8 if session.args.quick else 1)
    folder = os.path.join(session.build, "bench-disk")
    segment = os.path.join(folder, "seg-00000000")
    os.makedirs(folder, exist_ok=True)
    try:
        with open(segment, "wb") as f:
            for _ in range(file_bytes >> 20):
                f.write(os.urandom(1 << 20))
            os.fsync(f.fileno())
        line_ns = replay.fio_ns(["--engine", "io_uring", "--threads", "1", "--depth", "8",
                                 "--bytes", str(file_bytes), "--op-bytes", str(1 << 20),
                                 folder])
        out = subprocess.run(
            ["fio", "--output-format=json", "--readonly", "--name=r", f"--filename={segment}",
             "--rw=randread", "--ioengine=psync", "--direct=1", "--norandommap", "--bs=4096",
             f"--runtime={500 if session.args.quick else 2000}ms", "--time_based"],
            check=True, capture_output=True, text=True).stdout
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    read = json.loads(out[out.index("{"):])["jobs"][0]["read"]
    return file_bytes / line_ns, read["clat_ns"]["percentile"]["50.000000"]


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


def prefetch_line(name, rows, counters, shape, device):
    """Layer 0 is nobody's next layer: it is not counted. waste: rows that were read ahead and not
    wanted, of those read ahead (where heads part, and are more than the probes, all are wanted, to
    be scored). With pages: bytes read ahead that were not wanted rows; what a read on demand pays
    for pages counts as well. hidden: demanded bytes that were there or on the way, of what the
    window between prefetch_next and get_important could carry, at most what was demanded: the
    line rate for as long as the window outlasts one operation. rate alone: as if none took time."""
    rate, latency_ns = device
    later = [r for r in rows if r["predictor"] == name and r["layer"] > 0]
    requests = len({(r["id"], r["question"]) for r in later})
    issued = counters[name]["speculated_bytes"]
    waste = counters[name]["unused_bytes"] / issued if issued else 0
    demand = [shape["row_bytes"] * (r["matched"] if r["fallback"] and shape["kv_heads"] > 3
                                    else r["wanted"]) for r in later]
    there = [d * r["ahead"] / r["wanted"] for d, r in zip(demand, later)]
    shares = []
    for lost_ns in (latency_ns, 0):
        could = [min(d, max(0, r["window_ns"] - lost_ns) * rate) for d, r in zip(demand, later)]
        shares.append(sum(map(min, there, could)) / max(1, sum(could)))
    there = sum(there)
    exposed = sum(r["exposed_ns"] for r in later) / requests / 1e6
    print(f"{name:8} {issued / 2**20:9.1f} {waste:7.3f} {max(0, 1 - there / max(1, issued)):10.3f} "
          f"{there / sum(demand):9.3f} {shares[0]:7.3f} {shares[1]:10.3f} {exposed:12.2f}")
    return waste, shares[0]


def decile_lines(rows):
    """How right each tenth of a ranking is, best first: SPEC reads from the highest rank on."""
    for kind in ("sink", "static", "layer", "before", "after"):
        seen = [r["deciles"][kind] for r in rows if kind in r["deciles"] and r["layer"] > 0]
        if seen:
            shares = [f"{sum(tenth) / len(tenth):.2f}" for tenth in zip(*seen)]
            print(f"precision by rank decile: {kind:6} {' '.join(shares)}")


def prefetch(args, root, build):
    session = Session(args, root, build)
    results, ok = {}, True
    device = device_of(session)
    print(f"this disk, by fio: {device[0]:.2f} GB/s, a lone read of 4 KiB {device[1] / 1e3:.0f} us")
    for name, wanted in (("recall_ids", "opt-recall"), ("recall_text", "smollm2")):
        model = model_of(session, wanted)
        if not os.path.isfile(os.path.join(model, "config.json")):
            print(f"{name}: skipped: no model at {model}")
            continue
        entries = entries_of(session, name, model, args.quick)[::4 if args.quick else 3]
        rows, counters = prefetch_rows(session, model, name, entries)
        ranks = [r for r in similarity_rows(session, model, name, entries) if r["rho"] == .25]
        print(f"\n{wanted}, {name}: a quarter of the rows, {len(entries)} prefixes, range planner; "
              "counters of the connector; recall of the rankings in the reference engine")
        print(f"{'':8} {'MiB ahead':>9} {'waste':>7} {'with pages':>10} {'of demand':>9} "
              f"{'hidden':>7} {'rate alone':>10} {'exposed ms':>12}")
        shape = shape_of(model)
        seen = {kind: prefetch_line(kind, rows, counters, shape, device) for kind in PREDICTORS}
        here = means(ranks)
        print("recall@k: " + ", ".join(f"{kind} {here[key]:.3f}" for kind, key in (
            ("sink", "sink"), ("static", "static"), ("layer", "layer_prediction"),
            ("before", "before"), ("after", "after"))))
        decile_lines(ranks)
        gain = 100 * (here["after"] - here["layer_prediction"])
        ok &= verdict(f"{wanted}: recall of hint - layer, points", f"{gain:.1f}", gain >= 10,
                      ">= 10")
        for kind in ("before", "after", "both"):
            waste, hidden = seen[kind]
            ok &= verdict(f"{wanted}: hint {kind}: waste", f"{waste:.3f}", waste <= .25, "<= .25")
            ok &= verdict(f"{wanted}: hint {kind}: hidden", f"{hidden:.3f}", hidden >= .4,
                          ">= .40")
        results[name] = {"layers": rows, "counters": counters, "rankings": ranks, "shares": {
            kind: {"waste": waste, "hidden": hidden} for kind, (waste, hidden) in seen.items()}}
    return ok, results
