"""hooks: what the connector costs where it has nothing to give.

By calls of its hooks in an engine's process that does nothing else, medians: without pending loads
a layer's hooks (wait_for_layer_load, save_kv_layer) take at most 3 us. With eight loads pending a
layer takes at most 60 us beside what the plugin's own calls take. The scheduler's side asks for a
request of 10,000 tokens in at most 1 ms, found and not.

With --model smollm2 by an engine with it beside one without, in turn, on all cores: the time to the
first token of prompts that nobody knows, which are stored meanwhile, is at most 1.05 times as long,
and decoding at least .97 times as fast; medians of ratios of neighbours in time. opt-recall is too
small to be asked: it computes a token in the time of a few hooks.
"""
import os
import statistics
import tempfile

from .engines import WHOLE, Host, prompts_of, verdict, words_of

TOKENS = 10_000
IDLE_US, LOADING_US, MATCH_US = 3, 60, 1000
PROMPT, ANSWER = 1024, 64  # tokens of a prompt that is timed to its first, and of an answer
COLD_PART, DECODING_PART = 1.05, .97
ALL_CORES = {"OMP_NUM_THREADS": str(os.cpu_count()), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


def speeds(args):
    """(time to the first token, tokens a second of decoding): ours by theirs."""
    colds, decodings, rounds = [], [], 4 if args.quick else 12
    with tempfile.TemporaryDirectory() as folder, \
            Host(folder, "without", env=ALL_CORES) as without, \
            Host(folder, "with", env=ALL_CORES) as ours:
        hosts = [without, ours]
        for host, store in ((without, None), (ours, folder)):
            host.start(words_of(args, args.block[0], store, max_model_len=2 * PROMPT,
                                kv_cache_memory_bytes=256 << 20))
        for i in range(-1, rounds):  # the first is for warming up
            words = {"prompt": [5 + (j * j * 7 + j * (i + 11)) % 180 for j in range(PROMPT)],
                     "short": [5 + (j * (i + 3)) % 180 for j in range(16)], "count": ANSWER}
            took = {}
            for host in hosts[::1 if i % 2 else -1]:
                took[host] = host.call("runs.inside:speeds", **words)
            if i >= 0:
                colds.append(took[ours][0] / took[without][0])
                decodings.append(took[without][1] / took[ours][1])
        counts = ours.call("runs.inside:stored_tokens")
        if counts < rounds * PROMPT:
            raise RuntimeError(f"{counts} tokens were stored: this was not what is to be timed")
    return statistics.median(colds), statistics.median(decodings)


def main(args):
    name = os.path.basename(args.model)
    if name == "opt-recall":
        return calls(args)
    cold, decoding = speeds(args)
    ok = verdict(f"{name}, first token of {PROMPT} that are not stored: {cold:.3f} of the time "
                 f"without a connector (at most {COLD_PART})", cold <= COLD_PART)
    ok &= verdict(f"{name}, decoding: {decoding:.3f} of the speed without (at least "
                  f"{DECODING_PART})", decoding >= DECODING_PART)
    return calls(args) and ok


def calls(args):
    ok = True
    with tempfile.TemporaryDirectory() as folder, Host(folder) as host:
        words = words_of(args, args.block[0], folder, max_num_seqs=16,
                         plugin={"max_request_tokens": 16384})
        host.start(words)
        prompts = prompts_of(16, 5)[::2]
        host.ask(prompts, tokens=1)
        host.call("runs.inside:settle", prompts=prompts, count=WHOLE)
        name = os.path.basename(args.model)
        idle = host.call("runs.inside:idle_us")
        ok &= verdict(f"{name}, no load: {idle:.2f} us a layer (at most {IDLE_US})",
                      idle <= IDLE_US)
        own, plugin = host.call("runs.inside:loading_us", prompts=prompts,
                                block=args.block[0])
        ok &= verdict(f"{name}, eight loads: {own:.1f} us a layer beside the plugin's {plugin:.1f} "
                      f"(at most {LOADING_US})", own <= LOADING_US)
        for kind, us in host.call("runs.inside:match_us", count=TOKENS).items():
            ok &= verdict(f"{name}, a request of {TOKENS} tokens, {kind}: {us:.0f} us (at most "
                          f"{MATCH_US})", us <= MATCH_US)
        host.stop()
    return ok
