"""One vLLM engine in a process of its own: a job of JSON comes in, results go to a file.

usage: engine.py JOB.json RESULT.json

job     {"engine": arguments of vllm.LLM, "sampling": of SamplingParams, "batch": all prompts at
         once, "prompts": [[token id, ...], ...]}
result  [{"ids": [...], "logprobs": [{token: value}, ...], "cached": tokens not computed}, ...]
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
    prompts = [{"prompt_token_ids": ids} for ids in job["prompts"]]
    calls = [prompts] if job["batch"] else [[prompt] for prompt in prompts]
    results = []
    for call in calls:
        for answer in llm.generate(call, sampling, use_tqdm=False):
            output = answer.outputs[0]
            results.append({
                "ids": list(output.token_ids), "cached": answer.num_cached_tokens,
                "logprobs": [{str(t): p.logprob for t, p in step.items()}
                             for step in output.logprobs or ()]})
    with open(result_path, "w", encoding="utf-8") as file:
        json.dump(results, file)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
