"""Prompts of bench/run quality: lists of entries as eval_file.h has them, from held-out text.

  needle   a text with a fact at each of eight depths ("The secret number of the lantern is 48213."),
           each asked by itself; 1,024 to 8,064 tokens
  pairs    a list of 72 keys with a number each; one of them is asked for
  several  the same lists; three of them are asked for in one answer
  long     a passage; its summary is decoded
  text     7,168 tokens of wikitext2, 64 that select rows, 960 whose likelihood counts

Every draw has a fixed seed. Text is english-6mb away from the passages of recall_text_dev, on
which presets were tuned, and wikitext2, on which nothing was. Prompts are token ids: this model's
turns begin and end with special tokens.
Tests: tests/unit/tools/test_quality.py"""
import gzip
import json
import os
import random
import re

SEED = 20261130
DEPTHS = 8
DIGITS = 5
PAIRS, ASKED_TOGETHER = 72, 3
CALIBRATION_TOKENS = 1024
TURN, TURN_END = 1, 2  # <|im_start|>, <|im_end|>
LONG_TOKENS, FORCED_TOKENS, SUMMARY_TOKENS = 1536, 256, 96
TEXT_PREFIX, TEXT_QUERY, TEXT_SCORED = 7168, 64, 960
AWAY = 50000  # characters between a passage that was tuned on and one that is used

NOUNS = """anchor apple arrow badger banner barrel basket beacon bell bottle bridge bucket candle
carpet castle cavern cellar chapel cherry chimney circle clock comet compass copper cottage crystal
curtain dagger desert diamond dolphin donkey dragon eagle engine falcon feather ferry fiddle forest
fountain garden glacier hammer harbor harvest helmet island ivory jacket kettle ladder lantern lemon
library lobster magnet marble meadow mirror monkey needle orchard oyster palace parrot pearl pepper
piano pigeon pillow pirate planet pocket pumpkin puzzle rabbit ribbon river rocket saddle sailor
shovel silver spider statue summer tailor temple thunder ticket tiger timber tower trumpet tunnel
turtle valley velvet violin wagon walnut whistle window winter wizard""".split()


def read_text(data, name):
    """The text NAME of the data: plain under text/, or packed."""
    for path in (os.path.join(data, "text", name), os.path.join(data, name)):
        if os.path.exists(path):
            with open(path, encoding="utf8", errors="replace") as f:
                return f.read()
        if os.path.exists(path + ".gz"):
            with gzip.open(path + ".gz", "rt", encoding="utf8", errors="replace") as f:
                return f.read()
    raise FileNotFoundError(f"{data}: holds no {name}, plain or with .gz, there or under text/")


def tuned_on(data):
    """A piece of each passage that presets were tuned on."""
    path = os.path.join(data, "eval", "recall_text_dev.jsonl")
    with open(path, encoding="utf8") as f:
        return [json.loads(line)["prefix"][100:300] for line in f]


def held_out(text, pieces):
    """The stretches of the text that lie at least AWAY from every piece, joined."""
    places = sorted(place for place in map(text.find, pieces) if place >= 0)
    stretches, first = [], 0
    for place in places + [len(text) + AWAY]:
        if place - AWAY > first:
            stretches.append(text[first:place - AWAY])
        first = max(first, place + AWAY)
    return "\n".join(stretches)


def sentences_of(text):
    """Sentences of 20 to 400 characters, each with the space in front that it has in a text."""
    flat = re.sub(r"\s+", " ", text.replace("<|endoftext|>", " "))
    found = re.findall(r"[A-Z][^.!?]*[.!?](?=\s)", flat)
    return [" " + s for s in found if 20 <= len(s) <= 400]


class Source:
    """Sentences of held-out text with their token ids; each is used once."""

    def __init__(self, sentences, tokenize):
        self.sentences, self.tokenize, self.at = sentences, tokenize, 0
        self.ids = []

    def take(self, tokens):
        """Ids of the next sentences, cut to so many tokens, sentence by sentence."""
        taken, count = [], 0
        while count < tokens:
            if self.at == len(self.ids):
                self.ids += self.tokenize(self.sentences[self.at:self.at + 2000])
            if self.at == len(self.ids):
                raise ValueError("the held-out text is too short for the prompts")
            piece = self.ids[self.at][:tokens - count]
            self.at += 1
            taken.append(piece)
            count += len(piece)
        return taken


def number_of(dice):
    return str(dice.randrange(10 ** (DIGITS - 1), 10 ** DIGITS))


def joined(pieces):
    return [token for piece in pieces for token in piece]


def depth_places(sizes, count):
    """Indexes of the sentences in front of which `count` facts stand: at evenly spaced depths."""
    total, places, seen = sum(sizes), [], 0
    for index, size in enumerate(sizes):
        while len(places) < count and seen >= total * (2 * len(places) + 1) / (2 * count):
            places.append(index)
        seen += size
    return places + [len(sizes)] * (count - len(places))


def needle(source, length, number, dice):
    """One text of `length` tokens with DEPTHS facts."""
    nouns = dice.sample(NOUNS, DEPTHS)
    values = [number_of(dice) for _ in nouns]
    facts = source.tokenize([f" The secret number of the {noun} is {value}."
                             for noun, value in zip(nouns, values)])
    front, *asks = source.tokenize(
        ["user\nSome secret numbers are hidden in the text below. Remember them.\n\n"]
        + [f"\n\nWhat is the secret number of the {noun}?" for noun in nouns])
    leads = source.tokenize([f"assistant\nThe secret number of the {noun} is" for noun in nouns])
    turn = source.tokenize(["\n"])[0]
    room = length - 1 - len(front) - sum(map(len, facts))
    pieces = source.take(room)
    places = depth_places([len(p) for p in pieces], DEPTHS)
    for place, fact in reversed(list(zip(places, facts))):
        pieces.insert(place, fact)
    return {"id": f"needle-{length}-{number}", "group": str(length),
            "prefix_ids": [TURN, *front, *joined(pieces)],
            "queries": [{"query_ids": [*ask, TURN_END, *turn, TURN, *lead], "choices": [],
                         "label": 0, "new_tokens": DIGITS + 2, "answers": [value]}
                        for ask, lead, value in zip(asks, leads, values)]}


def pair_list(source, number, dice, asked, several):
    """One list of PAIRS keys; `asked` questions for one key, `several` for ASKED_TOGETHER."""
    keys = [f"{a} {b}" for a, b in zip(dice.sample(NOUNS, PAIRS), dice.sample(NOUNS, PAIRS))]
    values = {key: number_of(dice) for key in keys}
    lines = "".join(f"{key}: {value}\n" for key, value in values.items())
    singles = [[key] for key in dice.sample(keys, asked)]
    groups = [dice.sample(keys, ASKED_TOGETHER) for _ in range(several)]
    entries = []
    front, turn = source.tokenize(["user\nRemember this list of keys and their numbers.\n\n"
                                   + lines, "\n"])
    for name, wanted in (("pairs", singles), ("several", groups)):
        asks = source.tokenize([f"\nRepeat the lines of {', '.join(g)}." for g in wanted])
        leads = source.tokenize([f"assistant\n{g[0]}:" for g in wanted])
        entries.append({
            "id": f"{name}-{number}", "group": name, "prefix_ids": [TURN, *front],
            "queries": [{"query_ids": [*ask, TURN_END, *turn, TURN, *lead], "choices": [],
                         "label": 0, "new_tokens": (DIGITS + 1) + (len(g) - 1) * 14,
                         "answers": [values[key] for key in g]}
                        for g, ask, lead in zip(wanted, asks, leads)]})
    return entries


def long_answer(source, number):
    front, ask, turn, lead = source.tokenize(
        ["user\nRead this text.\n\n", "\n\nSummarize the text above in your own words.", "\n",
         "assistant\n"])
    passage = joined(source.take(LONG_TOKENS - 1 - len(front)))
    return {"id": f"long-{number}", "group": "long", "prefix_ids": [TURN, *front, *passage],
            "queries": [{"query_ids": [*ask, TURN_END, *turn, TURN, *lead], "choices": [],
                         "label": 0, "new_tokens": SUMMARY_TOKENS,
                         "forced_tokens": FORCED_TOKENS}]}
