"""chat: conversations of five turns, several at once, in an engine that keeps prefixes itself; then
again in a new engine, which does not: every whole block of every turn's prompt comes from the
store, tokens that were decoded too, and the answers are the first one's. Answers are compared by
their ids: requests that run together come in other shapes."""
import os
import tempfile

from .engines import Host, verdict, words_of


def chat(args, block, host, folder):
    count, turns = (4, 3) if args.quick else (10, 5)
    prompts = [[5 + (j * 7 + i * 31) % 190 for j in range(70)] for i in range(count)]
    how = {"batch": True, "tokens": 50, "turns": turns}
    first = host.once(words_of(args, block, folder, enable_prefix_caching=True), prompts, **how)
    second = host.once(words_of(args, block, folder), prompts, **how)
    same = sum(a["ids"] == b["ids"] for a, b in zip(first["answers"], second["answers"]))
    found = sum(r["cached"] == (r["prompt"] - 1) // block * block for r in second["answers"])
    return verdict(f"{os.path.basename(args.model)}, block {block}, chat: {same} of "
                   f"{count * turns} answers equal, {found} with every whole block from the store",
                   same == found == count * turns)


def main(args):
    ok = True
    with tempfile.TemporaryDirectory() as folder, Host(folder) as host:
        for block in args.block:
            store = os.path.join(folder, str(block))
            os.mkdir(store)
            ok &= chat(args, block, host, store)
    return ok
