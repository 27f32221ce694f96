"""sharpen: what it gives, and costs, that decoded tokens go on choosing exact rows, smollm2.

Questions about long texts (recall_text, 2,048 tokens), whose texts' rows come layered. The same
engine's whole prefill decodes an answer first; then one whose answer chooses no rows
(sharpen_tokens 0), one whose first tokens do, and one whose every token does. KL of each token
behind the first, as long as it follows the same ones; milliseconds a decoded token. Nothing
but that rows are chosen is judged.

--quick: one text, two questions; --prompts N: N texts, of three questions each.
"""
import os
import tempfile
import time
from statistics import median

from . import layered
from .engines import Host, verdict
from .layered import engine_words, ids_of, kl, seen_of, side_of

TOKENS, FIRST = 32, 8
WAYS = (0, FIRST, TOKENS)


# ---- In the engine's process --------------------------------------------------------------------

def follow(llm, ids, spec=None):
    """An answer: its ids, log probabilities of each, milliseconds a token behind the second."""
    import torch
    from vllm import SamplingParams
    seen, states, times = seen_of(llm), [], []

    def keep(_module, _inputs, output):
        states.append(output[-1:].clone())
        times.append(time.perf_counter())

    hook = seen.model.register_forward_hook(keep)
    params = SamplingParams(max_tokens=TOKENS, temperature=0.0, ignore_eos=True,
                            extra_args={"kv_transfer_params": {layered.SPEC: spec or {}}})
    answer, = llm.generate([{"prompt_token_ids": ids}], params, use_tqdm=False)
    hook.remove()
    assert len(states) == TOKENS, len(states)
    return (list(answer.outputs[0].token_ids), seen.scores(torch.cat(states), TOKENS),
            (times[-1] - times[1]) / (TOKENS - 2) * 1e3)


def asked(llm, rows):
    for row in rows:
        prefix = ids_of(llm, row["prefix"])
        for i, query in enumerate(row["queries"]):
            yield f"{row['id']}-{i}.pt", prefix, prefix + ids_of(llm, query["query"])


def plain(llm, folder, rows):
    import torch
    took = []
    for name, _, ids in asked(llm, rows):
        said, scores, ms = follow(llm, ids)
        torch.save((said, scores), os.path.join(folder, name))
        took.append(ms)
    return took


def loaded(llm, folder, rows):
    """By question and way: KL of each token as long as it follows the same, time, choices."""
    import torch
    side, stored, all_said = side_of(), None, []
    for name, prefix, ids in asked(llm, rows):
        if stored != prefix:
            layered.store(llm, side, prefix)
            stored = prefix
        whole, scores = torch.load(os.path.join(folder, name))
        ways = []
        for count in WAYS:
            side.layered.sharpen_tokens, before = count, dict(side.layered.counts)
            said, own, ms = follow(llm, ids, {"store": False})
            grown = {n: side.layered.counts[n] - before[n] for n in ("loads", "rescored_layers")}
            same = next((i for i in range(TOKENS) if said[i] != whole[i]), TOKENS)
            ways.append({"kl": [kl(*pair) for pair in zip(scores[:same + 1], own)], "ms": ms,
                         "same": same, **grown})
        all_said.append(ways)
    return all_said


# ---- Beside it ----------------------------------------------------------------------------------

def main(args):
    layered.need_smollm2(args)
    texts, questions = (1, 2) if args.quick else (args.prompts or 4, 3)
    args.quick, args.tokens, args.prompts = False, [2048], texts
    rows = [{**row, "queries": row["queries"][:questions]} for row in layered.entries(args)]
    with tempfile.TemporaryDirectory() as folder:
        with Host(folder, env=layered.site(folder)) as host:
            host.start(engine_words(args, None, enable_prefix_caching=True))
            took = host.call("runs.sharpen:plain", folder=folder, rows=rows)
            host.stop()
            host.start(engine_words(args, folder))
            said = host.call("runs.sharpen:loaded", folder=folder, rows=rows)
            host.stop()
    print(f"{len(said)} answers of {TOKENS} tokens behind 2,048; whole: {median(took):.1f} ms a "
          "token")
    for i, count in enumerate(WAYS):
        ways = [one[i] for one in said]
        parts = [[x for way in ways for x in way["kl"][first:end]]
                 for first, end in ((1, FIRST + 1), (FIRST + 1, TOKENS))]
        print(f"  sharpen_tokens {count}: KL of tokens 2 to {FIRST + 1} {told(parts[0])}, of later "
              f"ones {told(parts[1])}; as by full KV for {sum(way['same'] for way in ways)} of "
              f"{TOKENS * len(ways)} tokens; {median([way['ms'] for way in ways]):.1f} ms a token")
    return verdict("each loads once, and chooses rows in its answer where it is to",
                   all(way["loads"] == 1 and (way["rescored_layers"] > 0) == (count > 0)
                       for one in said for count, way in zip(WAYS, one)))


def told(values):
    return (f"{sum(values) / len(values):.5f} (most {max(values):.4f}, {len(values)} tokens)"
            if values else "of none")
