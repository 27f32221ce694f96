"""One vLLM engine in a process of its own: a job of JSON comes in, results go to a file.

usage: engine.py JOB.json RESULT.json

job     {"engine": arguments of vllm.LLM, "sampling": of SamplingParams, "batch": all prompts at
         once, "turns": how many, "prompts": [[token id, ...], ...]}
        turns above 1: each prompt is a conversation's first turn; the next one's prompt is all that
        was said, and the first again
result  [{"prompt": how many tokens, "cached": how many of them were not computed, "ids": [...],
          "logprobs": [{token: value}, ...]}, ...]
"""
import json
import os
import sys

# An engine with a connector keeps a core free and computes on fewer threads, whose sums differ.
DEFAULTS = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "WARNING",
            "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_NUM_OF_RESERVED_CPU": "0"}


def main(job_path, result_path):
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    from vllm import LLM, SamplingParams
    with open(job_path, encoding="utf-8") as file:
        job = json.load(file)
    llm = LLM(**job["engine"])
    sampling = SamplingParams(**job["sampling"])
    prompts, results = [list(ids) for ids in job["prompts"]], []
    for _ in range(job["turns"]):
        asked = [{"prompt_token_ids": ids} for ids in prompts]
        calls = [asked] if job["batch"] else [[prompt] for prompt in asked]
        answers = [a for call in calls for a in llm.generate(call, sampling, use_tqdm=False)]
        for i, answer in enumerate(answers):
            output = answer.outputs[0]
            results.append({
                "prompt": len(prompts[i]), "ids": list(output.token_ids),
                "cached": answer.num_cached_tokens,
                "logprobs": [{str(t): p.logprob for t, p in step.items()}
                             for step in output.logprobs or ()]})
            prompts[i] += results[-1]["ids"] + job["prompts"][i]
    with open(result_path, "w", encoding="utf-8") as file:
        json.dump(results, file)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
