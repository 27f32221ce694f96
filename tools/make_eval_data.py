#!/usr/bin/env python3
"""make_eval_data.py SOURCE [OUT]: writes bench/data from the sources that its README.md names.

SOURCE is a folder with eval/, text/ and traces/ as published by the sets' authors, converted to
JSON lines {"id", "ctx", "choices", "label"}. OUT: default bench/data. With --check the files of OUT
are compared with what would be written; exit status 1: one differs.

A set keeps the rows that the benchmarks use: the first are asked, the last 400 are solved examples.
`entail` is made here, from SQuAD, with a fixed seed. Agents' sessions (miniswe) become numbers of
blocks: two requests share a number if their texts are equal up to the block's end.

Holds: the same source gives the same rows. Does not: fetch anything.
Tests: tests/unit/tools/test_bench_inputs.py.
"""
import glob
import hashlib
import json
import lzma
import os
import random
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SEED = 20261130
SHOTS = 400
BLOCK_BYTES = 256  # of an agent's text: about 64 tokens
ENTAIL_ASKED, ENTAIL_SHOTS = 300, 400

# Output: (source, first rows, last rows); None: all of them.
PARTS = {
    "eval/piqa_valid.jsonl": ("eval/piqa_valid.jsonl", 500, SHOTS),
    "eval/copa_dev.jsonl": ("eval/copa_dev.jsonl", None, 0),
    "eval/copa_test.jsonl": ("eval/copa_test.jsonl", None, 0),
    "eval/openbookqa_test.jsonl": ("eval/openbookqa_test.jsonl", None, 0),
    "eval/openbookqa_train.jsonl": ("eval/openbookqa_train.jsonl", 0, SHOTS),
    "eval/recall_ids_dev.jsonl": ("eval/recall_ids_dev.jsonl", None, 0),
    "traces/mooncake_conversation_trace.jsonl": ("traces/mooncake_conversation_trace.jsonl",
                                                 None, 0),
    "traces/mooncake_synthetic_trace.jsonl": ("traces/mooncake_synthetic_trace.jsonl", None, 0),
    "share-alike/eval/arc-easy_test.jsonl": ("eval/arc-easy_test.jsonl", 500, SHOTS),
    "share-alike/eval/squad_xquad_en.jsonl": ("eval/squad_xquad_en.jsonl", None, 0),
    "share-alike/eval/recall_text_dev.jsonl": ("eval/recall_text_dev.jsonl", None, 0),
    "share-alike/text/english-6mb.txt": ("text/english-6mb.txt", None, 0),
    "share-alike/text/wikitext2.valid.txt": ("text/wikitext2.valid.txt", None, 0),
}


def part(path, first, last):
    """Lines of a file: all, or the first and the last ones."""
    with open(path, "rb") as f:
        lines = f.read().splitlines(keepends=True)
    return b"".join(lines if first is None else lines[:first] + lines[len(lines) - last:])


def json_lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def sentence_with(passage, answer):
    """The passage's first sentence with the answer in it, or None."""
    return next((s for s in re.split(r"(?<=[.!?])\s+", passage) if answer in s), None)


def entail_rows(rows, count, dice):
    """True or false statements about a sentence, in the form of RTE: the answer to a question of
    SQuAD, or an answer to another question about the same passage."""
    others, made = {}, []
    for row in rows:
        others.setdefault(row["ctx"], []).append(row["answers"][0])
    for row in rows:
        right = row["answers"][0]
        premise = sentence_with(row["ctx"], right)
        wrong = [a for a in others[row["ctx"]] if a not in right and right not in a]
        if premise is None or not wrong or len(made) == count:
            continue
        label = dice.randrange(2)
        said = dice.choice(wrong) if label else right
        made.append({"id": row["id"], "ctx": premise, "choices": ["True", "False"], "label": label,
                     "hypothesis": f"The answer to \"{row['question'].strip()}\" is \"{said}\"."})
    return made


def entail(source):
    """Asked rows and solved examples, of different passages."""
    with open(os.path.join(source, "eval", "squad_xquad_en.jsonl"), encoding="utf8") as f:
        rows = [json.loads(line) for line in f]
    passages = list(dict.fromkeys(row["ctx"] for row in rows))
    first = set(passages[:len(passages) // 2])
    dice = random.Random(SEED)
    return (entail_rows([r for r in rows if r["ctx"] in first], ENTAIL_ASKED, dice),
            entail_rows([r for r in rows if r["ctx"] not in first], ENTAIL_SHOTS, dice))


def miniswe(folder):
    """Requests in order of time, in the form of the Mooncake traces."""
    rows, numbers, out = [], {}, []
    for path in sorted(glob.glob(os.path.join(folder, "*.jsonl"))):
        with open(path, encoding="utf8") as f:
            rows += [json.loads(line) for line in f]
    for row in sorted(rows, key=lambda r: r["timestamp"]):
        text, blocks = row["input"].encode(), []
        prefix = hashlib.blake2b(digest_size=16)
        for at in range(0, len(text) - BLOCK_BYTES + 1, BLOCK_BYTES):
            prefix.update(text[at:at + BLOCK_BYTES])
            blocks.append(numbers.setdefault(prefix.digest(), len(numbers)))
        out.append({"timestamp": row["timestamp"] / 1e3, "input_length": len(text) // 4,
                    "hash_ids": blocks})
    return out


def made(source):
    """(name, bytes) of each file."""
    for name, (path, first, last) in PARTS.items():
        yield name, part(os.path.join(source, path), first, last)
    asked, shots = entail(source)
    yield "share-alike/eval/entail_dev.jsonl", json_lines(asked)
    yield "share-alike/eval/entail_train.jsonl", json_lines(shots)
    yield "traces/miniswe_trace.jsonl", json_lines(miniswe(os.path.join(source, "traces",
                                                                        "miniswe")))


def main(argv):
    check = "--check" in argv
    words = [word for word in argv[1:] if word != "--check"]
    if not 1 <= len(words) <= 2 or not os.path.isdir(words[0]):
        sys.exit("make_eval_data.py: expected SOURCE [OUT] [--check], SOURCE a folder")
    out = words[1] if len(words) == 2 else os.path.join(ROOT, "bench", "data")
    differ = 0
    for name, data in made(words[0]):
        path = os.path.join(out, name + ".xz")
        if check:
            with lzma.open(path) as f:
                same = f.read() == data
            differ += not same
            print(f"{name}: {'as shipped' if same else 'differs'}")
            continue
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
        print(f"{name}: {data.count(10)} lines, {len(data)} bytes, {os.path.getsize(path)} stored")
    return differ > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
