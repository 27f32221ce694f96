"""hooks: what the connector's hooks cost, by calls of them in an engine's process that does nothing
else; medians.

Without pending loads a layer's hooks (wait_for_layer_load, save_kv_layer) take at most 3 us. With
eight loads pending a layer takes at most 60 us beside what the plugin's own calls take. The
scheduler's side asks for a request of 10,000 tokens in at most 1 ms, found and not.
"""
import os
import tempfile

from .engines import Host, prompts_of, verdict, words_of

TOKENS = 10_000
IDLE_US, LOADING_US, MATCH_US = 3, 60, 1000


def main(args):
    ok = True
    with tempfile.TemporaryDirectory() as folder, Host(folder) as host:
        words = words_of(args, args.block[0], folder, max_num_seqs=16,
                         plugin={"max_request_tokens": 16384})
        host.start(words)
        prompts = prompts_of(16, 5)[::2]
        host.ask(prompts, tokens=1)
        host.call("runs.inside:settle", prompts=prompts, count=256)
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
