"""layered: questions about long texts, smollm2; rows of a text by codes and the questions' choice.

Each question is a suffix of its text (recall_text, 1,024 and 2,048 tokens, 96 a length). Measured
beside the same engine's whole prefill: the first new token's distribution (KL), with rows from the
engine's own prefix cache (noise) and layered (preset layered, 5 % exact); the choice among ten
continuations, by the prefix cache and layered; what the plugin wanted of the store. Then, through
the same way with exact_ppm 1000000, logprobs that are bit-identical to lossless loads'; and four
requests in one batch, of which two load: each answers as alone.

--quick: two texts of 1,024 tokens, three questions each; --prompts N: N texts a length (of two or
more); --tokens N: texts of that length alone. --query-rows N: KL once more with the last N rows
asking, printed beside, not judged. float16 where the processor has AVX-512, else float32: rows have
twice the bytes there, codes do not; bytes are told at both widths.
"""
import json
import os
import sys
import tempfile
import time

from . import engines
from .engines import Host, verdict, words_of

DATA = os.path.join(engines.ROOT, "..", "shared", "data", "eval", "recall_text_dev.jsonl")
KL_MAX, BYTES_MAX = .002, .29
STEP, BLOCK = 4096, 32
SPEC = "spec"


def entries(args):
    lengths, texts, questions = ((1024,), 2, 3) if args.quick else ((1024, 2048), 12, 8)
    lengths, texts = args.tokens or lengths, args.prompts or texts
    with open(DATA, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [{**row, "queries": row["queries"][:questions]}
            for length in lengths for row in [r for r in rows if r["tokens"] == length][:texts]]


# ---- In the engine's process --------------------------------------------------------------------

class Seen:
    """The last step's hidden states, and logits of any of their rows."""

    def __init__(self, llm):
        engine = llm.llm_engine.engine_core.engine_core
        self.model = engine.model_executor.driver_worker.worker.model_runner.model
        self.states = None
        self.model.register_forward_hook(self.keep)
        self.llm = llm

    def keep(self, _module, _inputs, output):
        self.states = output

    def ask(self, prompts, spec=None, skip=False):
        """Log probabilities of what follows each new token of the one step that computes these."""
        import torch
        from vllm import SamplingParams
        params = SamplingParams(max_tokens=1, temperature=0.0, skip_reading_prefix_cache=skip,
                                extra_args={"kv_transfer_params": {SPEC: spec or {}}})
        said = self.llm.generate([{"prompt_token_ids": ids} for ids in prompts], params,
                                 use_tqdm=False)
        counts = [len(ids) - answer.num_cached_tokens for ids, answer in zip(prompts, said)]
        assert sum(counts) == len(self.states), (counts, len(self.states))
        return [part for part in self.states.split(counts)], [a.num_cached_tokens for a in said]

    def scores(self, states, count):
        import torch
        return torch.log_softmax(self.model.compute_logits(states[-count:]).double(), -1)


_seen = {}


def seen_of(llm):
    if id(llm) not in _seen:
        _seen.clear()
        _seen[id(llm)] = Seen(llm)
    return _seen[id(llm)]


def ids_of(llm, text):
    return llm.get_tokenizer().encode(text, add_special_tokens=False)


def pick(seen, prefix, query, choices, spec):
    """The likeliest continuation; each is a request with its own rows, all in one step."""
    ids = [ids_of(seen.llm, choice) for choice in choices]
    parts, _ = seen.ask([prefix + query + one for one in ids], spec)
    totals = []
    for states, one in zip(parts, ids):
        scores = seen.scores(states, len(one) + 1)
        totals.append(sum(float(scores[j, token]) for j, token in enumerate(one)))
    return totals.index(max(totals))


def plain(llm, folder, rows):
    """Whole prefills, kept; then the engine's own prefix cache beside them."""
    import torch
    seen, said = seen_of(llm), []
    for row in rows:
        prefix = ids_of(llm, row["prefix"])
        asked = [ids_of(llm, q["query"]) for q in row["queries"]]
        whole = [seen.scores(seen.ask([prefix + ids], skip=True)[0][0], 1)[0] for ids in asked]
        torch.save(torch.stack(whole), os.path.join(folder, row["id"] + ".pt"))
        seen.ask([prefix + [1]])
        for i, (query, ids) in enumerate(zip(row["queries"], asked)):
            (states,), (cached,) = seen.ask([prefix + ids])
            said.append({"kl": kl(whole[i], seen.scores(states, 1)[0]), "cached": cached,
                         "choice": pick(seen, prefix, ids, query["choices"], None)})
    return said


def kl(p, q):
    return float((p.exp() * (p - q)).sum())


def store(llm, side, prefix):
    """The text is computed, stored, seen by the scheduler, and its codes are made."""
    from .inside import SETTLE_SECONDS, settle
    seen_of(llm).ask([prefix + [1]])
    seen_of(llm).ask([[1]], {"store": False})  # saves go in front of the next step
    settle(llm, [prefix], len(prefix) // BLOCK * BLOCK)
    end = time.monotonic() + SETTLE_SECONDS
    while side.conn.stats()["building"]:
        if time.monotonic() > end:
            raise TimeoutError("codes are not made")
        time.sleep(0.05)


def side_of():
    from vllm.distributed.kv_transfer import get_kv_transfer_group
    return get_kv_transfer_group()._side


def loaded(llm, folder, rows, query_rows):
    """Texts are stored; then each question loads its text's rows, and stores nothing.

    Each asks once more for each of `query_rows`, KL alone.
    """
    import torch
    seen, side, said = seen_of(llm), side_of(), []
    for row in rows:
        prefix = ids_of(llm, row["prefix"])
        whole = torch.load(os.path.join(folder, row["id"] + ".pt"))
        store(llm, side, prefix)
        for i, query in enumerate(row["queries"]):
            ids, before = ids_of(llm, query["query"]), dict(side.layered.counts)
            (states,), (cached,) = seen.ask([prefix + ids], {"store": False})
            grown = {n: v - before[n] for n, v in side.layered.counts.items()}
            said.append({"kl": kl(whole[i], seen.scores(states, 1)[0]), "cached": cached, **grown,
                         "label": query["label"],
                         "choice": pick(seen, prefix, ids, query["choices"], {"store": False})})
            usual, by_rows = side.layered.query_rows, []
            for side.layered.query_rows in query_rows:
                (states,), _ = seen.ask([prefix + ids], {"store": False})
                by_rows.append(kl(whole[i], seen.scores(states, 1)[0]))
            side.layered.query_rows, said[-1]["kl_by_rows"] = usual, by_rows
    return said


def logprobs(llm, rows):
    """Bits of what follows each new token, of a question of each text."""
    seen, said = seen_of(llm), []
    for row in rows:
        ids = ids_of(llm, row["prefix"]) + ids_of(llm, row["queries"][0]["query"])
        (states,), (cached,) = seen.ask([ids], {"store": False})
        said.append([cached, seen.scores(states, 8).flatten().numpy().tobytes().hex()[:1 << 20]])
    return said


def batch(llm, rows):
    """Ids of four requests, two of which have stored texts: together, then each alone."""
    from vllm import SamplingParams
    params = SamplingParams(max_tokens=24, temperature=0.0, ignore_eos=True,
                            extra_args={"kv_transfer_params": {SPEC: {"store": False}}})
    side, prompts = side_of(), []
    for row in rows[:2]:
        prompts += [ids_of(llm, row["prefix"]) + ids_of(llm, row["queries"][0]["query"]),
                    ids_of(llm, row["prefix"])[300:700]]
    calls = [prompts] + [[ids] for ids in prompts]
    before, said = side.layered.counts["loads"], []
    for call in calls:
        for answer in llm.generate([{"prompt_token_ids": ids} for ids in call], params,
                                   use_tqdm=False):
            said.append([answer.num_cached_tokens, list(answer.outputs[0].token_ids)])
    return {"together": said[:4], "alone": said[4:],
            "loads": side.layered.counts["loads"] - before}


# ---- Beside it ----------------------------------------------------------------------------------

def dtype_here():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return "float16" if " avx512f " in file.read() else "float32"


def engine_words(args, store=None, ppm=50_000, layered=True, **more):
    return words_of(args, BLOCK, store, extra={"layered": layered},
                    plugin={"preset": "layered", "layered": {"exact_ppm": ppm}},
                    dtype=dtype_here(), max_model_len=STEP, max_num_batched_tokens=STEP,
                    kv_cache_memory_bytes=3 << 30, max_num_seqs=16, **more)


def row_bytes(args, width):
    with open(os.path.join(args.model, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return 2 * config["num_key_value_heads"] * size * width


def judge(args, rows, own, layered):
    """Prints a line; whether it holds."""
    count, width = len(layered), 2 if dtype_here() == "float16" else 4
    noise, mean = (sum(x["kl"] for x in said) / count for said in (own, layered))
    most = max(x["kl"] for x in layered)
    same = sum(x["choice"] == y["choice"] for x, y in zip(own, layered, strict=True))
    right = sum(x["choice"] == x["label"] for x in layered)
    wanted, exact = (sum(x[name] for x in layered) for name in ("wanted_bytes", "exact_rows"))
    whole = sum(x["rows"] for x in layered) * row_bytes(args, 2)
    share = (wanted - exact * row_bytes(args, width - 2)) / whole
    holds = (mean <= KL_MAX and same == count and share <= BYTES_MAX
             and all(x["loads"] == 1 and x["cached"] > 0 for x in layered))
    wide = f" (with 32-bit rows {wanted / whole:.3f})" if width > 2 else ""
    for asking, kls in zip(args.query_rows, zip(*(x["kl_by_rows"] for x in layered))):
        print(f"  the last {asking} rows asking: KL {sum(kls) / count:.5f} (most {max(kls):.4f})")
    return verdict(
        f"{rows[0]['tokens']} tokens, {count} questions, {dtype_here()}: KL {mean:.5f} (most "
        f"{most:.4f}; own prefix cache {noise:.1e}), {same} choices as by full KV, {right} right; "
        f"of 16-bit rows' bytes {share:.3f}{wide}", holds)


def site(folder):
    """A folder with the wheel in it: vLLM imports the package as an operator's does."""
    import subprocess
    python, here = os.path.join(engines.ENV, "bin", "python"), engines.HERE
    subprocess.run([os.path.join(engines.PACKAGE, "wheel"), "--local", python, folder],
                   check=True)
    wheel = next(name for name in os.listdir(folder) if name.endswith(".whl"))
    subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet",
                    "--no-deps", "--no-index", "--target", os.path.join(folder, "site"),
                    os.path.join(folder, wheel)], check=True)
    return {"PYTHONPATH": os.path.join(folder, "site") + os.pathsep + here}


def exactly(host, args, store, rows):
    """exact_ppm 1000000 beside lossless loads of the same store."""
    said = []
    for layered in (True, False):  # words write the configuration, so each before its engine
        host.start(engine_words(args, store, 10**6, layered))
        said.append(host.call("runs.layered:logprobs", rows=rows))
        host.stop()
    hits = min(cached for cached, _ in said[0])
    return verdict(f"exact_ppm 1000000: logprobs of {len(rows)} questions bit-identical to "
                   f"lossless loads', {hits} tokens or more from the store",
                   said[0] == said[1] and hits > 0)


def together(host, args, store, rows):
    host.start(engine_words(args, store))
    said = host.call("runs.layered:batch", rows=rows)
    host.stop()
    cached = [tokens for tokens, _ in said["together"]]
    same = sum(a == b for a, b in zip(said["together"], said["alone"]))
    return verdict(f"four requests in a batch, {cached} tokens loaded: {same} of 4 answer as alone",
                   same == 4 and said["loads"] == 4 and cached[0] > 0 and cached[2] > 0
                   and cached[1] == cached[3] == 0)


def need_smollm2(args):
    """The model, and questions about long texts, or the run is skipped with a reason."""
    if not os.path.exists(DATA):
        print(f"skipped: {DATA} is absent: ../shared is not part of the repository")
        sys.exit(engines.SKIPPED)
    args.model = engines.model_of("smollm2") if "opt-recall" in args.model else args.model
    if not os.path.isdir(args.model):
        print(f"skipped: {args.model} is absent: tools/fetch-smollm2 makes it")
        sys.exit(engines.SKIPPED)


def main(args):
    need_smollm2(args)
    rows = entries(args)
    with tempfile.TemporaryDirectory() as folder:
        with Host(folder, env=site(folder)) as host:
            ok = True
            for length in sorted({row["tokens"] for row in rows}):
                some = [row for row in rows if row["tokens"] == length]
                host.start(engine_words(args, None, enable_prefix_caching=True))
                own = host.call("runs.layered:plain", folder=folder, rows=some)
                host.stop()
                host.start(engine_words(args, folder))
                layered = host.call("runs.layered:loaded", folder=folder, rows=some,
                                    query_rows=args.query_rows)
                host.stop()
                ok &= judge(args, some, own, layered)
            ok &= exactly(host, args, folder, rows[:4])
            ok &= together(host, args, folder, rows)
    return ok
