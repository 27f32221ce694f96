#!/usr/bin/env python3
"""Makes the tokenizer cases beside it with Hugging Face's tokenizers; see README.md.

  python3 -m venv build/tok && build/tok/bin/pip install tokenizers==0.23.3
  build/tok/bin/python tests/data/bpe/make.py --train FILE... [--scores tok512.bin]

FILE...: any English text to learn merges from; the committed files learned from this repository's
own headers. Without --scores the cases of tok512.bin stay as they are.
"""
import argparse
import json
import os
import random
import struct

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
SEED = 21
WORDS = ["<unk>", "</s>", "the", "store", "reads", "a", "row", "?", "über", "行", "reads,"]
CHUNKS = [" ", "  ", "\n", "\t", "\r\n", "\u3000", "\u2028", "\u200b", "\u0085", "\u00a0",
          "'s", "'re", "'ll", "'LL", "'", "''", "don't", "42", "3.14", " 7", "x", "Ab", "é",
          "e\u0301", "١٢", "½", "Ⅷ", "…", "—", "the", " store", " chunk", "ß", "漢字", "仮名",
          "한국어", "ไทย", "🙂", "👩‍🚀", "\ufeff", "\ufffd", "\uffff", "\u180e", "\U0001d7d8",
          "\U00011de3", "\U00016ff5", "\U0001e5f0", "\U000105c0", "\U000e0067", "\U000f0000",
          "<|endoftext|>", "</s>", "\x00", "\x04", "\x1f", "\x7f"]
# "\U000105c0" and "\U0001e5f0" are letters since Unicode 16.0; "\U00011de3" is a digit since 17.0.


def write(path, text):
    """Writes UTF-8 under this folder."""
    path = os.path.join(HERE, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


def text_of(rng, train):
    """A short text of one of five sorts."""
    sort = rng.randrange(5)
    if sort == 0:
        start = rng.randrange(len(train) - 160)
        return train[start:start + rng.randrange(1, 160)]
    if sort == 1:
        return "".join(rng.choice("abcdest") for _ in range(rng.randrange(1, 60)))
    if sort == 2:
        return rng.choice("a -=\n0") * rng.randrange(1, 60)
    if sort == 3:
        return " ".join(rng.choice(WORDS + ["zzz"]) for _ in range(rng.randrange(1, 12)))
    return "".join(rng.choice(CHUNKS) for _ in range(rng.randrange(1, 16)))


def lines(texts, encode):
    """JSON lines; characters stand as themselves, because json-c 0.16 misreads some escapes."""
    return "".join(json.dumps({"text": text, "ids": encode(text)}, ensure_ascii=False) + "\n"
                   for text in texts)


def learn(train, pre_tokenizer, alphabet, specials):
    """A byte-level BPE of 700 tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([train], trainer)
    state = json.loads(tokenizer.to_str())
    # Names of special tokens become ordinary entries: they must not be recognised inside a text.
    for name in specials:
        state["model"]["vocab"][name] = len(state["model"]["vocab"])
    return state


def save_bpe(folder, state, texts, with_settings):
    """vocab.json, merges.txt, cases.jsonl, and tokenizer.json where the settings matter."""
    write(f"{folder}/vocab.json", json.dumps(state["model"]["vocab"], ensure_ascii=False) + "\n")
    write(f"{folder}/merges.txt",
          "#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in state["model"]["merges"]))
    tokenizer = Tokenizer.from_str(json.dumps(state))
    write(f"{folder}/cases.jsonl",
          lines(texts, lambda text: tokenizer.encode(text, add_special_tokens=False).ids))
    if with_settings:
        # The vocabulary and merges stand in their own files already.
        del state["model"]["vocab"], state["model"]["merges"]
        write(f"{folder}/tokenizer.json", json.dumps(state, indent=1) + "\n")


def save_words(texts):
    """The word-level model."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    write("words/vocab.json", json.dumps({w: i for i, w in enumerate(WORDS)}, ensure_ascii=False))
    write("words/tokenizer.json", tokenizer.to_str() + "\n")
    write("words/cases.jsonl", lines(texts, lambda text: tokenizer.encode(text).ids))


def save_classes():
    """The class of every character as tokenizers itself shows it: what joins what."""
    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = pre_tokenizers.Digits(individual_digits=True)

    def kind(char):
        for letter, other in (("L", "a"), ("N", "1"), ("O", "!")):
            if len(level.pre_tokenize_str(other + char)) == 1:
                return letter
        return "S"

    rows = {"pattern": [], "digits": []}
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000:
            continue
        char = chr(code)
        found = {"pattern": kind(char),
                 "digits": "D" if len(digits.pre_tokenize_str(char + char)) == 2 else "O"}
        for name, value in found.items():
            last = rows[name][-1] if rows[name] else None
            if last and last[2] == value and last[1] == code - 1:
                last[1] = code
            elif value != "O":
                rows[name].append([code, code, value])
    write("classes.txt", "".join(f"{value} {first:04X} {last:04X}\n" for name in rows
                                 for first, last, value in rows[name]))


def save_scores(path, texts):
    """Cases of llama2.c's tokenizer, by looking at every pair in every round."""
    with open(path, "rb") as file:
        data = file.read()
    tokens, at = [], 4
    while at < len(data):
        score, size = struct.unpack_from("<fi", data, at)
        tokens.append((data[at + 8:at + 8 + size], score))
        at += 8 + size
    ids = {text: i for i, (text, _) in enumerate(tokens)}

    def encode(text):
        row = [ids[b" "]] if text else []
        for char in text:
            raw = char.encode()
            row += [ids[raw]] if raw in ids else [3 + byte for byte in raw]
        while True:
            joins = [(-tokens[ids[both]][1], i) for i in range(len(row) - 1)
                     if (both := tokens[row[i]][0] + tokens[row[i + 1]][0]) in ids]
            if not joins:
                return row
            i = min(joins)[1]
            row[i:i + 2] = [ids[tokens[row[i]][0] + tokens[row[i + 1]][0]]]

    write("tok512.jsonl", lines(texts, encode))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", nargs="+", required=True)
    parser.add_argument("--scores")
    args = parser.parse_args()
    train = ""
    for path in args.train:
        with open(path, encoding="utf-8") as file:
            train += file.read()
    rng = random.Random(SEED)
    texts = [""] + [chunk for chunk in CHUNKS] + [text_of(rng, train) for _ in range(150)]
    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    save_bpe("gpt2", learn(train, level, alphabet, ["<|endoftext|>", "</s>"]), texts, False)
    # As SmolLM2's: 21 bytes have no symbol, digits stand alone.
    lacking = set("ÀÁñòõö÷øùúûüýþÿĄĆēĔĖĝ")
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), level])
    save_bpe("digits", learn(train, digits, [c for c in alphabet if c not in lacking], []), texts,
             True)
    save_words(texts)
    save_classes()
    if args.scores:
        save_scores(args.scores, texts)


if __name__ == "__main__":
    main()
