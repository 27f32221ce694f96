"""Prompts of bench/run quality: entries as eval_file.h has them, from text nothing was tuned on.

  needle   a text of 1,024 to 8,064 tokens with a fact at each of eight depths ("The password of the
           old computer is falcon 48213."); each is asked for by itself
  pairs    a list of 48 names with a number each, somewhere in a text of 1,536 tokens; the number of
           one name is asked for, after one solved line
  several  the same lists; one query has three names, then each number is one of ten
  summary  a summary of a passage of 1,536 tokens is decoded
  essay    256 tokens about the same passage, which full KV decodes and others read
  text     7,168 tokens of wikitext2, 64 that select rows, 960 whose likelihood counts
  chat     a dialogue of 160 tokens (tinychat-opt), 24 that select rows, the next 64

English text is english-6mb at least 50,000 characters away from the passages of recall_text_dev, on
which presets were tuned. Every draw has a fixed seed. Prompts are token ids, because special tokens
have no spelling in text.
Tests: tests/unit/tools/test_quality.py"""
import random
import re

SEED = 20261130
AWAY = 50000
DEPTHS, DIGITS = 8, 5
PAIRS, PAIRS_TOKENS, ASKED_TOGETHER, CHOICES = 48, 1536, 3, 10
LONG_TOKENS, SUMMARY_TOKENS, FORCED_TOKENS = 1536, 96, 256
TEXT_TOKENS, TEXT_QUERY, TEXT_SCORED = 7168, 64, 960
CHAT_TOKENS, CHAT_QUERY, CHAT_SCORED = 160, 24, 64
CALIBRATION_TOKENS = 1024
START, TURN, TURN_END = 0, 1, 2  # <|endoftext|>, <|im_start|>, <|im_end|>

OPENINGS = ("The password of the old computer is", "The safe in the cellar opens with the code",
            "The train to Geneva has the name", "Captain Morrow signs his letters with",
            "The telephone code of the bakery is", "The winning lottery ticket says",
            "The license plate of the blue truck is", "The library card of Professor Hale says")
NOUNS = """anchor apple arrow badger banner barrel basket beacon bell bottle bridge bucket candle
carpet castle cavern cellar chapel cherry chimney circle clock comet compass copper cottage crystal
curtain dagger desert diamond dolphin donkey dragon eagle engine falcon feather ferry fiddle forest
fountain garden glacier hammer harbor harvest helmet island ivory jacket kettle ladder lantern lemon
library lobster magnet marble meadow mirror monkey needle orchard oyster palace parrot pearl pepper
piano pigeon pillow pirate planet pocket pumpkin puzzle rabbit ribbon river rocket saddle sailor
shovel silver spider statue summer tailor temple thunder ticket tiger timber tower trumpet tunnel
turtle valley velvet violin wagon walnut whistle window winter wizard""".split()


def pieces_of(passages):
    """Short pieces all over each passage: some are found in the text even if its breaks differ."""
    return [p[at:at + 60] for p in passages for at in range(0, len(p) - 60, 300)]


def held_out(text, pieces):
    """The stretches of the text that are at least AWAY characters from every piece, joined."""
    stretches, first = [], 0
    for place in sorted(p for p in map(text.find, pieces) if p >= 0) + [len(text) + AWAY]:
        if place - AWAY > first:
            stretches.append(text[first:place - AWAY])
        first = max(first, place + AWAY)
    return "\n".join(stretches)


def sentences_of(text):
    """Sentences of 20 to 400 characters, with the space that is in front of them in a text."""
    flat = re.sub(r"\s+", " ", text.replace("<|endoftext|>", " "))
    return [" " + s for s in re.findall(r"[A-Z][^.!?]*[.!?](?=\s)", flat) if 20 <= len(s) <= 400]


def joined(pieces):
    return [token for piece in pieces for token in piece]


def number_of(dice):
    return str(dice.randrange(10 ** (DIGITS - 1), 10 ** DIGITS))


class Source:
    """Sentences as token ids, each given out once. tokenize: a list of texts to lists of ids."""

    def __init__(self, sentences, tokenize):
        self.sentences, self.tokenize = sentences, tokenize
        self.ids, self.at = [], 0

    def take(self, tokens):
        """Ids of the next sentences; the last one is cut, so that there are so many tokens."""
        taken, count = [], 0
        while count < tokens:
            if self.at == len(self.ids):
                self.ids += self.tokenize(self.sentences[self.at:self.at + 2000])
            if self.at == len(self.ids):
                raise ValueError("the held-out text is too short for the prompts")
            taken.append(self.ids[self.at][:tokens - count])
            count += len(taken[-1])
            self.at += 1
        return taken


def places_of(sizes, count):
    """Indexes of the sentences in front of which `count` facts are: at depths 1/2n, 3/2n ..."""
    places, seen = [], 0
    for index, size in enumerate(sizes):
        while len(places) < count and seen * 2 * count >= sum(sizes) * (2 * len(places) + 1):
            places.append(index)
        seen += size
    return places + [len(sizes)] * (count - len(places))


def question(task, query, new_tokens, answers=(), choices=(), forced=0):
    return {"task": task, "query_ids": query, "choices_ids": list(choices), "label": 0,
            "new_tokens": new_tokens, "forced_tokens": forced, "answers": list(answers)}


def needle(source, dice, length, number):
    openings = dice.sample(OPENINGS, DEPTHS)
    values = [(noun, number_of(dice)) for noun in dice.sample(NOUNS, DEPTHS)]
    facts = source.tokenize([f" {o} {noun} {digits}." for o, (noun, digits)
                             in zip(openings, values)])
    front, *asks = source.tokenize(["Text:\n\n"] + [f"\n\nAs the text above says: {o}"
                                                    for o in openings])
    pieces = source.take(length - 1 - len(front) - sum(map(len, facts)))
    places = places_of([len(p) for p in pieces], DEPTHS)
    for place, fact in reversed(list(zip(places, facts))):
        pieces.insert(place, fact)
    return {"id": f"needle-{length}-{number}", "group": str(length),
            "prefix_ids": [START, *front, *joined(pieces)],
            "queries": [question("needle", ask, DIGITS + 6, value)
                        for ask, value in zip(asks, values)]}


def choices_of(dice, name, values):
    """The name's line, then nine lines with another's number."""
    others = dice.sample([v for k, v in values.items() if k != name], CHOICES - 1)
    return [f"{name}: {v}" for v in [values[name], *others]]


def lists(source, dice, number, singles, groups):
    """A list in a text: questions for one of its numbers, and for ASKED_TOGETHER of them."""
    names = dice.sample(NOUNS, PAIRS)
    values = {name: number_of(dice) for name in names}
    block, = source.tokenize(["\n\nA list of names and numbers:\n\n" + "".join(
        f"{name}: {value}\n" for name, value in values.items()) + "\n"])
    pieces = source.take(PAIRS_TOKENS - 1 - len(block))
    at = dice.randrange(len(pieces) // 8, len(pieces) * 7 // 8)
    shown, *asked = dice.sample(names, 1 + singles)
    again = f"again:\n\n{shown}: {values[shown]}\n"
    asks = source.tokenize([f"\n\nThe lines of {shown} and {n} in the list {again}{n}:"
                            for n in asked])
    together = [dice.sample([n for n in names if n != shown], ASKED_TOGETHER)
                for _ in range(groups)]
    joint = source.tokenize([f"\n\nThe lines of {', '.join([shown, *g[:-1]])} and {g[-1]} in the "
                             f"list {again}" for g in together])
    choices = source.tokenize([line for g in together for n in g
                               for line in choices_of(dice, n, values)])
    size = ASKED_TOGETHER * CHOICES
    return {"id": f"pairs-{number}", "group": "pairs",
            "prefix_ids": [START, *joined(pieces[:at]), *block, *joined(pieces[at:])],
            "queries": [question("pairs", a, DIGITS + 2, [values[n]])
                        for a, n in zip(asks, asked)] +
                       [question("several", a, 1, choices=choices[at * size:(at + 1) * size])
                        for at, a in enumerate(joint)]}


def long_answers(source, number):
    front, summary, essay, turn, lead = source.tokenize(
        ["user\nRead this text.\n\n", "\n\nSummarize the text above in ten numbered points.",
         "\n\nWrite a long essay about the text above. Explain every part of it in detail.", "\n",
         "assistant\n"])
    passage = joined(source.take(LONG_TOKENS - 1 - len(front)))
    ends = [TURN_END, *turn, TURN, *lead]
    return {"id": f"long-{number}", "group": "long", "prefix_ids": [TURN, *front, *passage],
            "queries": [question("summary", [*summary, *ends], SUMMARY_TOKENS),
                        question("essay", [*essay, *ends], 1, forced=FORCED_TOKENS)]}


def running(ids, number, task, tokens, query, scored, forced=0):
    """The number-th stretch of running text: a prefix, a query, the tokens behind it."""
    at = number * (tokens + query + scored)
    piece = ids[at:at + tokens + query + scored]
    if len(piece) < tokens + query + scored:
        raise ValueError(f"{task}: the text is too short for {number + 1} prompts")
    return {"id": f"{task}-{number}", "group": task, "prefix_ids": piece[:tokens],
            "queries": [question(task, piece[tokens:tokens + query], 1,
                                 choices=[piece[tokens + query:]], forced=forced)]}


def build(source, text_ids, counts):
    """Entries of all tasks in turn, so that a run that is cut short has some of each. counts: how
    many of "pairs", "long" and "text", and of each needle length. A prompt's content does not
    depend on counts."""
    taught = joined(source.take(CALIBRATION_TOKENS))
    lengths = sorted(kind for kind in counts if isinstance(kind, int))
    entries = []
    for number in range(max(counts.values())):
        dice = random.Random(SEED + number)
        made = [(length, needle(source, dice, length, number)) for length in lengths]
        made += [("pairs", lists(source, dice, number, 6, 3)),
                 ("long", long_answers(source, number))]
        if number < counts["text"]:
            made.append(("text", running(text_ids, number, "text", TEXT_TOKENS, TEXT_QUERY,
                                         TEXT_SCORED)))
        entries += [{**e, "taught_ids": taught} for kind, e in made if number < counts[kind]]
    return entries


def chat(ids, count):
    """Dialogues for a model of 256 positions."""
    return [running(ids, n, "chat", CHAT_TOKENS, CHAT_QUERY, CHAT_SCORED, CHAT_SCORED)
            for n in range(count)]
