#!/usr/bin/env python3
"""demo.py: shows on one prefix what the connector does: compute again, store, reuse from disk,
reuse only what matters.

usage: tools/demo.py [smollm2]

  1  builds spec-engine and the plugin into build/ (Release)
  2  recomputed:  spec-engine without a connector, every question over the whole prefix
  3  first run:   with the connector and an empty store under build/demo-store
  4  second run:  a new process over the same store; the connector reads with O_DIRECT, so the
                  bytes come from the disk and not from the kernel's page cache
  5  selective:   the same store; at each layer only a quarter of the rows, chosen for the question
                  by the keys of the first heads
  6  layered:     the same store; at each layer all rows as codes of 4 and 2 bits, one in twenty
                  exactly, chosen for the question by the codes of all heads' keys
  7  replay:      whole and selected, rows as long as OPT-6.7B's; its GPU is a wait (bench_replay.c)

opt-recall (in models/) answers from facts that stand in 1,900 tokens of generated text; smollm2
(fetched once) answers questions about this repository's LICENSE.

Holds: everything shown is computed from what spec-engine reported; exit status 1 and one line when
a run fails, when the second run reused nothing, or when it answered other tokens than recomputing.
Tests: tests/unit/tools/test_demo.py.
"""
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import run_tests  # noqa: E402  (the same way to configure and build)

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ENGINE = os.path.join(ROOT, "build", "bin", "spec-engine")
REPLAY = os.path.join(ROOT, "build", "bin", "bench-replay")
CONNECTOR = os.path.join(ROOT, "build", "lib", "libspec_connector.so")
WORK = os.path.join(ROOT, "build", "demo")
STORE = os.path.join(ROOT, "build", "demo-store")
PRESET = "impress-itf+range"
# Loads are the disk's, whatever host memory would keep.
DISK = {"path": STORE, "load_policy": "load", "host_bytes": 0}
# What first and second run use: probe keys are stored, every row is delivered.
# Codes are made of it too, in the background: the first run waits for them at its end.
WHOLE = {**DISK, "preset": PRESET,
         "layered": {"quantise": "yes", "bit_allocation": "per_channel", "bits_k": 3},
         "select": {"retain_ppm": 1000000, "probe_heads": 3}}
# A quarter of the rows; what is computed on them is not stored, so that later runs find exact rows.
SELECTIVE = {**DISK, "preset": PRESET, "store": {"pruned": "no"}}
LAYERED = {**DISK, "preset": "layered"}  # every row, one in twenty exactly
SETTLE = ("--settle",)
HINT = ("--hint", "after", "--probe-heads", "1024")  # queries of all heads for the next layer
NO_NETWORK = 3  # of tools/fetch-smollm2

RECALL_TOKENS = 1900  # of the prefix, the start token included
RECALL_FACTS = 120
RECALL_QUESTIONS = 8
RECALL_SEED = 1
DOCUMENT_TOKENS_MIN = 2000

# Questions about LICENSE, and words that a right answer holds.
DOCUMENT_QUESTIONS = (
    ("What is the title of this license?", "Apache License"),
    ("Which version of the license is this?", "2.0"),
    ("What is the web address of this license?", "apache.org/licenses/LICENSE-2.0"),
    ("On what basis does the Licensor provide the Work?", "AS IS"),
    ("What happens to the patent license of someone who starts patent litigation?", "terminate"),
    ("Does this license grant permission to use the trade names of the Licensor?", "not grant"),
)


class DemoError(Exception):
    """One line for a person: what, and what was expected."""


class Task:
    """What is asked of the engine: its arguments, and each question with its right answer."""

    def __init__(self, model, kv_dtype, max_new, prefix, queries, questions, about, row_bytes):
        self.model, self.kv_dtype, self.max_new = model, kv_dtype, max_new
        self.row_bytes = row_bytes  # K and V of a token in a layer
        self.prefix, self.queries = prefix, queries  # arguments of spec-engine
        self.questions = questions  # [(as shown, right answer)]
        self.about = about

    def command(self, json_path, config, more=()):
        command = [ENGINE, "--model", self.model, "--kv-dtype", self.kv_dtype,
                   "--max-new", str(self.max_new), "--json", json_path]
        if config:
            command += ["--connector", CONNECTOR, "--config", json.dumps(config)]
        return command + list(more) + self.prefix + self.queries


def say(text):
    print(text, flush=True)


# ---- The two tasks -----------------------------------------------------------------------------

def recall_text(vocab, seed=RECALL_SEED, tokens=RECALL_TOKENS, facts=RECALL_FACTS,
                questions=RECALL_QUESTIONS):
    """Facts `key value` scattered among filler words, in the form that opt-recall was trained on
    (models/opt-recall/README.md). Returns (words, [(key, value)] asked, early to late)."""
    words = {number: word for word, number in vocab.items()}
    rng = random.Random(seed)
    pairs = list(zip(rng.sample(range(16, 272), facts), rng.sample(range(272, 528), facts)))
    filler_count = tokens - 1 - 2 * facts  # the engine puts the start token in front
    filler = rng.choices(range(528, 1024), [1 / rank for rank in range(1, 497)], k=filler_count)
    places = sorted(rng.sample(range(filler_count + 1), facts))
    out, at = [], 0
    for (key, value), place in zip(pairs, places):
        out += filler[at:place] + [key, value]
        at = place
    out += filler[at:]
    asked = [pairs[(2 * i + 1) * facts // (2 * questions)] for i in range(questions)]
    return [words[i] for i in out], [(words[key], words[value]) for key, value in asked]


def recall_task():
    model = os.path.join(ROOT, "models", "opt-recall")
    with open(os.path.join(model, "vocab.json"), encoding="utf-8") as file:
        words, asked = recall_text(json.load(file))
    prefix = os.path.join(WORK, "prefix.txt")
    with open(prefix, "w", encoding="utf-8") as file:
        file.write(" ".join(words) + "\n")
    questions = [("? %s" % key, value) for key, value in asked]
    return Task(model, "f32", 1, ["--prefix", prefix], ["--query", *[q for q, _ in questions]],
                questions, "opt-recall: %d facts scattered in a text of %d tokens"
                % (RECALL_FACTS, RECALL_TOKENS), 2 * 4 * 32 * 4)


def tokenize(model, texts):
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    done = subprocess.run([ENGINE, "--model", model, "--tokenize"], input=lines, text=True,
                          capture_output=True, check=False)
    if done.returncode != 0:
        raise DemoError("spec-engine --tokenize: %s" % last_line(done.stderr))
    return [json.loads(line)["ids"] for line in done.stdout.splitlines()]


def document_task(model):
    """A chat of SmolLM2's form: <|im_start|> (1) and <|im_end|> (2) are given as ids."""
    with open(os.path.join(ROOT, "LICENSE"), encoding="utf-8") as file:
        document = file.read()
    head = "user\nRead this document and then answer a question about it.\n\n"
    ids = tokenize(model, [head + document + "\n\n", "\n", "assistant\n"]
                   + ["Question: " + question for question, _ in DOCUMENT_QUESTIONS])
    prefix = [1] + ids[0]
    if len(prefix) < DOCUMENT_TOKENS_MIN:
        raise DemoError("LICENSE has %d tokens, expected at least %d"
                        % (len(prefix), DOCUMENT_TOKENS_MIN))
    path = os.path.join(WORK, "prefix.ids")
    with open(path, "w", encoding="utf-8") as file:
        file.write(",".join(map(str, prefix)))
    queries = [",".join(map(str, question + [2] + ids[1] + [1] + ids[2])) for question in ids[3:]]
    return Task(model, "f16", 32, ["--prefix-ids", path], ["--query-ids", *queries],
                list(DOCUMENT_QUESTIONS),
                "SmolLM2-135M-Instruct: questions about LICENSE, a document of %d tokens"
                % len(prefix), 2 * 3 * 64 * 2)


# ---- Running -----------------------------------------------------------------------------------

def last_line(text):
    lines = [line for line in text.split("\n") if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"


def run_engine(task, name, config, more=()):
    """Runs spec-engine once and returns its requests. On a terminal its own table is shown."""
    path = os.path.join(WORK, name + ".json")
    if os.path.exists(path):
        os.remove(path)
    start = time.monotonic()
    shown = None if sys.stdout.isatty() else subprocess.DEVNULL
    with open(os.path.join(WORK, name + ".err"), "w+", encoding="utf-8") as errors:
        done = subprocess.run(task.command(path, config, more), stdin=subprocess.DEVNULL,
                              stdout=shown, stderr=None if sys.stderr.isatty() else errors,
                              check=False)
        errors.seek(0)
        if done.returncode != 0:
            raise DemoError("%s run: spec-engine ended with %d, expected 0: %s"
                            % (name, done.returncode, last_line(errors.read())))
    say("      %.1f s" % (time.monotonic() - start))
    with open(path, encoding="utf-8") as file:
        requests = json.load(file)["requests"]
    if len(requests) != len(task.questions):
        raise DemoError("%s run: %d results, expected %d"
                        % (name, len(requests), len(task.questions)))
    return requests


def disk_bytes(folder):
    """Bytes that the files of a folder occupy."""
    total = 0
    for path, _, names in os.walk(folder):
        total += sum(os.lstat(os.path.join(path, name)).st_blocks * 512 for name in names)
    return total


# ---- Showing -----------------------------------------------------------------------------------

def ms(ns):
    return "%.2f ms" % (ns / 1e6)


def mb(count):
    return "%.1f MB" % (count / 1e6) if count >= 1e5 else "%.1f kB" % (count / 1e3)


def short(text, width):
    text = " ".join((text or "").replace("<|im_end|>", " ").split())
    return text if len(text) <= width else text[:width - 3] + "..."


def is_right(text, right):
    return right.lower() in " ".join((text or "").split()).lower()


def median(requests, key):
    return statistics.median(r[key] for r in requests)


def question_rows(task, runs, width):
    """The questions: what is right, and each run's answer and time to the first token."""
    rows = [["question", "right"] + [cell for title, _ in runs for cell in (title, "TTFT")]]
    for i, (question, right) in enumerate(task.questions):
        row = [question, right]
        for _, requests in runs:
            row += [short(requests[i]["text"], width), ms(requests[i]["ttft_ns"])]
        rows.append(row)
    return rows


def question_blocks(task, runs):
    """The same where questions and answers are sentences: a block for each question."""
    lines = []
    for i, (question, right) in enumerate(task.questions):
        lines.append('  %d  %s (right: holds "%s")' % (i + 1, question, right))
        for title, requests in runs:
            text = requests[i]["text"]
            lines.append("     %-10s  %12s  %-5s  %s" % (
                title, ms(requests[i]["ttft_ns"]), "right" if is_right(text, right) else "wrong",
                short(text, 62)))
    return lines


def part_rows(recomputed, first, second):
    """Where the time went. The first run shows its first question, the one that found nothing."""
    rows = [["part", "recomputed", "first run", "second run"],
            ["", "median", "question 1", "median"]]
    columns = (recomputed, first[:1], second)
    for title, key in (("lookup", "lookup_ns"), ("probe", "probe_ns"),
                       ("waiting for the disk", "io_exposed_ns"), ("compute", "compute_ns"),
                       ("time to first token", "ttft_ns")):
        rows.append([title] + [ms(median(c, key)) for c in columns])
    for title, key, how in (("tokens matched", "matched_tokens", "{:,.0f}".format),
                            ("tokens computed", "new_tokens", "{:,.0f}".format),
                            ("bytes wanted", "bytes_wanted", mb), ("bytes read", "bytes_read", mb),
                            ("reads", "io_ops", "{:,.0f}".format)):
        rows.append([title] + [how(median(c, key)) for c in columns])
    return rows


def table(rows, left):
    """Aligned lines; the first `left` columns and all texts stand left, numbers right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.ljust(widths[i]) if i in left else cell.rjust(widths[i])
                 for i, cell in enumerate(row)]
        lines.append("  " + "  ".join(cells).rstrip())
    return lines


def seen(task, recomputed, first, second, stored_bytes):
    """Four lines on what was seen."""
    cold, hit = first[0], second[0]
    tokens = hit["matched_tokens"] + hit["new_tokens"]
    before, after = median(recomputed, "ttft_ns"), median(second, "ttft_ns")
    same = sum(a["tokens"] == b["tokens"] for a, b in zip(recomputed, second))
    right = [sum(is_right(r["text"], answer) for r, (_, answer) in zip(run, task.questions))
             for run in (recomputed, second)]
    count = len(task.questions)
    return [
        "The first run met an empty store: it matched %d tokens of question 1 and computed %s; "
        "the store's files then took %s, reserved in whole segments." % (
            cold["matched_tokens"], "{:,}".format(cold["new_tokens"]), mb(stored_bytes)),
        "The second run, a new process, matched %s of question 1's %s tokens and computed %d; "
        "a question read %s in %s reads." % (
            "{:,}".format(hit["matched_tokens"]), "{:,}".format(tokens), hit["new_tokens"],
            mb(median(second, "bytes_read")), "{:,.0f}".format(median(second, "io_ops"))),
        "Time to first token, median of %d: %s recomputed, %s from disk, %.1f x less; %s of it "
        "waited for the disk." % (count, ms(before), ms(after), before / after,
                                  ms(median(second, "io_exposed_ns"))),
        "Answers: %d of %d are token for token as recomputed; %d of %d are right recomputed, %d "
        "from disk." % (same, count, right[0], count, right[1]),
    ]


def seen_selective(task, recomputed, second, selective):
    """What choosing rows did, and why it gains little where rows are short."""
    layers = sum(r["layers_loaded"] for r in selective)
    fell, whole = (sum(r[key] for r in selective) for key in ("fallback_layers", "dense_layers"))
    kept = sum(r["rows_selected"] for r in selective) / sum(r["rows_matched"] for r in selective)
    read, all_read = median(selective, "bytes_read"), median(second, "bytes_read")
    same = sum(a["tokens"] == b["tokens"] for a, b in zip(recomputed, selective))
    right = sum(is_right(r["text"], answer) for r, (_, answer) in zip(selective, task.questions))
    return [
        "The selective run delivered %.0f %% of the rows. Of %d layers, %d had one set for all "
        "heads; in %d the probe heads disagreed, so each head got its own and the layer was read "
        "whole; %d were delivered whole." % (100 * kept, layers, layers - fell - whole, fell,
                                             whole),
        "It read %s a question, %.2f of the second run's %s. A row of this model is %d bytes, %d "
        "to a page of 4,096, so a quarter of the rows lies in most pages; rows of large models are "
        "whole pages, which is what the replay shows." % (
            mb(read), read / all_read, mb(all_read), task.row_bytes, 4096 // task.row_bytes),
        "Time to first token, median: %s with all rows, %s with chosen ones. Answers: %d of %d are "
        "token for token as recomputed, %d are right." % (
            ms(median(second, "ttft_ns")), ms(median(selective, "ttft_ns")), same,
            len(task.questions), right),
    ]


def seen_layered(task, recomputed, second, layered):
    """What codes for all rows and a few exact ones did."""
    wanted, all_wanted = median(layered, "bytes_wanted"), median(second, "bytes_wanted")
    read, all_read = median(layered, "bytes_read"), median(second, "bytes_read")
    same = sum(a["tokens"] == b["tokens"] for a, b in zip(recomputed, layered))
    right = sum(is_right(r["text"], answer) for r, (_, answer) in zip(layered, task.questions))
    return [
        "The layered run delivered every row: one in twenty as it was stored, the others as values "
        "of their codes. A question wanted %s, %.2f of the second run's %s, and read %s in whole "
        "pages, %.2f of its %s." % (mb(wanted), wanted / all_wanted, mb(all_wanted), mb(read),
                                    read / all_read, mb(all_read)),
        "Time to first token, median: %s with all rows exact, %s layered. Answers: %d of %d are "
        "token for token as recomputed, %d are right." % (
            ms(median(second, "ttft_ns")), ms(median(layered, "ttft_ns")), same,
            len(task.questions), right),
    ]


def replay_rows(results):
    """[(name, facts, median ns)] as a table."""
    rows = [["preset", "time to first token", "read a request", "reads", "rows delivered"]]
    for name, facts, ns in results:
        each = facts["requests"]
        rows.append([name, ms(ns), mb(facts["read_bytes"] / each),
                     "{:,}".format(facts["ops"] // each), "{:,}".format(facts["rows"] // each)])
    return rows


def judge_selective(selective):
    """Raises where nothing was chosen."""
    for i, result in enumerate(selective, 1):
        if result["matched_tokens"] == 0 or result["rows_selected"] >= result["rows_matched"]:
            raise DemoError("question %d: the selective run delivered %d of %d rows, expected fewer"
                            % (i, result["rows_selected"], result["rows_matched"]))


def judge_layered(layered):
    """Raises where rows were left out, or nothing was reused."""
    for i, result in enumerate(layered, 1):
        if result["matched_tokens"] == 0 or result["rows_selected"] != result["rows_matched"]:
            raise DemoError("question %d: the layered run delivered %d of %d rows, expected all"
                            % (i, result["rows_selected"], result["rows_matched"]))


def judge(recomputed, first, second):
    """Raises where the runs contradict what the demo is about. A time is shown, never judged."""
    if first[0]["matched_tokens"] != 0:
        raise DemoError("the first run matched %d tokens in an empty store, expected 0"
                        % first[0]["matched_tokens"])
    for i, (a, b, c) in enumerate(zip(recomputed, first, second), 1):
        if c["matched_tokens"] == 0:
            raise DemoError("question %d: the second run matched 0 tokens, expected the prefix"
                            % i)
        if a["tokens"] != b["tokens"] or a["tokens"] != c["tokens"]:
            raise DemoError("question %d: tokens %s recomputed, %s in the first run, %s in the "
                            "second, expected the same" % (i, a["tokens"], b["tokens"],
                                                           c["tokens"]))


def show(task, recomputed, first, second, stored_bytes):
    runs = (("recomputed", recomputed), ("first run", first), ("second run", second))
    say("")
    if task.max_new == 1:
        say("\n".join(table(question_rows(task, runs, 14), (0, 1, 2, 4, 6))))
    else:
        say("\n".join(question_blocks(task, runs)))
    say("")
    say("\n".join(table(part_rows(recomputed, first, second), (0,))))
    say("")
    say("\n".join(seen(task, recomputed, first, second, stored_bytes)))


# ---- The demo ----------------------------------------------------------------------------------

def build():
    say("[1/7] building spec-engine, the plugin and bench-replay into build/ (Release)")
    step, tail = run_tests.build("build", "gcc", "g++", "Release",
                                 targets=("spec-engine", "spec_connector", "bench-replay"))
    if step:
        say(tail)
        raise DemoError("%s failed, expected a build of spec-engine, spec_connector and "
                        "bench-replay" % step)


# OPT-6.7B's rows, some of its layers, in a store of 540 MB. How many layers fall back, how alike
# heads and layers are, are inputs: planted in the keys that are stored.
REPLAY_OPTIONS = ("--layers", "8", "--tokens", "2048", "--prefixes", "2", "--requests", "8",
                  "--similarity", "0.8", "--fallback", "0.2", "--recall", "0.6")
REPLAY_PRESETS = (("as-like", "0"), ("impress-itf+range", "1"), ("spec-itf+range", "1"))


def replay():
    """[(preset, facts, median ns of a request)]"""
    results = []
    shutil.rmtree(STORE, ignore_errors=True)
    runs = [("fill", preset) for preset in REPLAY_PRESETS[:2]]  # rows of one layout, of the other
    runs += [("run", preset) for preset in REPLAY_PRESETS]
    for mode, (preset, selects) in runs:
        config = {**DISK, "preset": preset, "staging_bytes": "512MiB"}
        done = subprocess.run(
            [REPLAY, "--mode", mode, "--connector", CONNECTOR, "--config", json.dumps(config),
             "--selects", selects, *REPLAY_OPTIONS], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise DemoError("bench-replay ended with %d, expected 0: %s"
                            % (done.returncode, last_line(done.stderr)))
        if mode == "run":
            facts, series = (json.loads(line) for line in done.stdout.splitlines())
            results.append((preset, facts["facts"], statistics.median(series["ns"])))
    shutil.rmtree(STORE, ignore_errors=True)
    return results


def fetch():
    """The directory of the language model; None without network."""
    script = os.path.join(ROOT, "tools", "fetch-smollm2")
    status = subprocess.run([sys.executable, script], check=False).returncode
    if status == NO_NETWORK:
        return None
    if status != 0:
        raise DemoError("fetch-smollm2 ended with %d, expected 0" % status)
    return os.path.join(ROOT, "build", "models", "smollm2")


def demo(name):
    os.makedirs(WORK, exist_ok=True)
    shutil.rmtree(STORE, ignore_errors=True)
    os.makedirs(STORE)
    model = fetch() if name == "smollm2" else None
    if name == "smollm2" and model is None:
        return
    build()
    task = recall_task() if name == "opt-recall" else document_task(model)
    say(task.about)
    say("[2/7] recomputed: %d questions, no connector" % len(task.questions))
    recomputed = run_engine(task, "recomputed", None)
    say("[3/7] first run: the connector with an empty store")
    first = run_engine(task, "first", WHOLE, SETTLE)
    stored_bytes = disk_bytes(STORE)
    say("[4/7] second run: a new process reads what the first one stored")
    second = run_engine(task, "second", WHOLE)
    say("[5/7] selective run: a new process reads what matters to each question")
    selective = run_engine(task, "selective", SELECTIVE)
    say("[6/7] layered run: a new process reads all rows as codes, and exactly what matters most")
    layered = run_engine(task, "layered", LAYERED, HINT)
    show(task, recomputed, first, second, stored_bytes)
    judge(recomputed, first, second)
    judge_selective(selective)
    judge_layered(layered)
    say("\n".join(seen_selective(task, recomputed, second, selective)))
    say("\n".join(seen_layered(task, recomputed, second, layered)))
    say("")
    say("[7/7] replay: rows of 16 KiB (OPT-6.7B), %s of its 32 layers, prefixes of %s tokens"
        % (REPLAY_OPTIONS[1], REPLAY_OPTIONS[3]))
    say("\n".join(table(replay_rows(replay()), (0,))))
    say("  (the disk and the bytes are real, compute is a wait; a fifth of the layers is planted "
        "to fall back; bench/run ttft --way replay has all presets)")


def main(argv):
    if len(argv) > 2 or (len(argv) == 2 and argv[1] not in ("smollm2", "opt-recall")):
        print("demo: %s is unknown, expected: ./demo [smollm2]" % " ".join(argv[1:]),
              file=sys.stderr)
        return 2
    try:
        demo(argv[1] if len(argv) == 2 else "opt-recall")
    except DemoError as error:
        print("demo: %s" % error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
