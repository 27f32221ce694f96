"""vLLM in a process: engines come one after another, as orders come in, a line of JSON each.

usage: engine.py REPLIES       orders on stdin; REPLIES: the descriptor that replies are written to

start   {"engine": arguments of vllm.LLM}
ask     {"prompts": [[token id, ...], ...], "sampling": of SamplingParams, "batch": all at once,
         "turns": how many, "more": what each prompt has beside its ids (cache_salt)}
        turns above 1: each prompt is a conversation's first turn; the next one's prompt is all that
        was said, and the first again
        lora: [name, number, path] of an adapter
        -> {"answers": [{"prompt": how many tokens, "cached": how many of them were not computed,
            "external": how many of those the connector had (one at a time alone), "ids": [...],
            "logprobs": [{token: value}, ...], "prompt_logprobs": likewise}, ...],
            "counts": by how much the engine's counters grew}
call    {"name": "module:function", "args": {...}}: function(llm, **args), what it returns
stop    the engine ends as a whole; another may be started
An order that raises is replied to with {"error": its text}.

By default an engine's scheduler and worker are in this process (a start takes 2 s then, not 30);
with VLLM_ENABLE_V1_MULTIPROCESSING=1 each has one of its own, as `vllm serve` does it.
"""
import gc
import importlib
import json
import os
import sys
import traceback

# An engine with a connector keeps a core free and computes on fewer threads, whose sums differ.
DEFAULTS = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "WARNING",
            "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
COUNTERS = {"vllm:num_preemptions": "preemptions", "vllm:external_prefix_cache_hits": "external",
            "vllm:prefix_cache_hits": "local"}


class Host:
    def __init__(self):
        self.llm = None

    def start(self, engine):
        from vllm import LLM
        self.llm = LLM(disable_log_stats=False, **engine)

    def stop(self):
        llm, self.llm = self.llm, None
        llm.llm_engine.engine_core.shutdown()
        del llm
        gc.collect()

    def counts(self):
        """Prometheus counters are the process's: only how they grow is of this engine."""
        return {COUNTERS[m.name]: m.value for m in self.llm.get_metrics() if m.name in COUNTERS}

    def grown(self, before):
        return {name: value - before.get(name, 0) for name, value in self.counts().items()}

    def ask(self, prompts, sampling, batch, turns, more, lora=None):
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest
        adapter = LoRARequest(*lora) if lora else None
        params, prompts = SamplingParams(**sampling), [list(ids) for ids in prompts]
        first, answers, begun = [list(ids) for ids in prompts], [], self.counts()
        for _ in range(turns):
            asked = [{"prompt_token_ids": ids, **(more or {})} for ids in prompts]
            outputs = []
            for call in [asked] if batch else [[prompt] for prompt in asked]:
                before = self.counts()
                made = self.llm.generate(call, params, use_tqdm=False, lora_request=adapter)
                external = None if batch else self.grown(before).get("external")
                outputs += [(answer, external) for answer in made]
            for i, (answer, external) in enumerate(outputs):
                answers.append({**answer_of(answer), "external": external})
                prompts[i] += answers[-1]["ids"] + first[i]
        return {"answers": answers, "counts": self.grown(begun)}

    def call(self, name, args):
        module, function = name.split(":")
        return getattr(importlib.import_module(module), function)(self.llm, **args)


def values_of(steps):
    return [None if step is None else {str(t): p.logprob for t, p in step.items()}
            for step in steps or ()]


def answer_of(answer):
    output = answer.outputs[0]
    return {"prompt": len(answer.prompt_token_ids), "ids": list(output.token_ids),
            "cached": answer.num_cached_tokens, "logprobs": values_of(output.logprobs),
            "prompt_logprobs": values_of(answer.prompt_logprobs)}


def main(replies):
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    host = Host()
    with os.fdopen(replies, "w", encoding="utf-8") as out:
        for line in sys.stdin:
            order = json.loads(line)
            try:
                reply = {"result": getattr(host, order.pop("do"))(**order)}
            except Exception as error:  # pylint: disable=broad-except
                traceback.print_exc()
                reply = {"error": f"{type(error).__name__}: {error}"}
            out.write(json.dumps(reply) + "\n")
            out.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
