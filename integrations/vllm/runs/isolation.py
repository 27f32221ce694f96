"""isolation: what a request holds approximately is nobody else's.

The named tests of tests/test_isolation.py, vLLM's own scheduler over the connector, which find more
when isolation is switched off; then in an engine that keeps prefixes: a request loads a text
layered; another one over the same text gets no token of it from vLLM's cache, one that asks for
exact rows gets them from the store; what the first one stored says LOSSY in spec-ctl, and is not
offered to who asks for exact rows.
"""
import json
import os
import subprocess
import tempfile

from . import engines
from .engines import WHOLE, Host, prompts_of, spec_ctl, verdict, words_of
from .layered import site

BLOCK = 32


def named_tests():
    done = subprocess.run([os.path.join(engines.ENV, "bin", "python"),
                           os.path.join(engines.HERE, "tests", "test_isolation.py")],
                          env={**os.environ, "SPEC_CONNECTOR_LIBRARY": engines.LIBRARY},
                          capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    ran = next((line for line in lines if line.startswith("Ran ")), "")
    if done.returncode != 0:
        print(done.stderr[-4000:])
    return verdict(f"named tests, vLLM's scheduler: {ran}", done.returncode == 0 and ran)


def asked(host, prompt, spec=None, tokens=1):
    """(tokens from vLLM's own cache, tokens from the store, what was said)."""
    said = host.ask([prompt], tokens=tokens, logprobs=None,
                    extra_args={"kv_transfer_params": {"spec": spec or {}}})
    return (int(said["counts"]["local"]), int(said["counts"]["external"]),
            said["answers"][0]["ids"])


def engine_tests(args, host, store):
    text = prompts_of(1, 5, 0)[0]
    question, other = [7, 8, 9] * 20, [9, 8, 7] * 20
    words = words_of(args, BLOCK, store, extra={"layered": True}, enable_prefix_caching=True,
                     max_num_batched_tokens=1024)
    host.start(words)
    asked(host, text + [3])
    asked(host, [3], {"store": False})  # what is saved goes in front of the next step
    host.call("runs.inside:settle", prompts=[text], count=WHOLE)
    host.stop()
    host.start(words)  # with nothing in its own cache
    found = {}
    *found["layered"], said = asked(host, text + question, tokens=70)
    *found["another over the text"], _ = asked(host, text + other)
    *found["exact"], _ = asked(host, text + other, {"exact": True})
    *found["another after the exact one"], _ = asked(host, text + [12] * 60)
    lossy = (len(text + question + said) - 1) // BLOCK * BLOCK - WHOLE
    turn = text + question + said + other
    host.call("runs.inside:settle", prompts=[turn], count=WHOLE + lossy)
    *found["the conversation goes on"], _ = asked(host, turn)
    *found["the conversation, exact"], _ = asked(host, turn[:-1] + [3], {"exact": True})
    host.stop()
    want = {"layered": [0, WHOLE], "another over the text": [0, WHOLE], "exact": [0, WHOLE],
            "another after the exact one": [WHOLE, 0], "the conversation goes on": [WHOLE, lossy],
            "the conversation, exact": [WHOLE, 0]}
    for what, counts in found.items():
        print(f"  {what}: {counts[0]} tokens from vLLM's cache, {counts[1]} from the store"
              + ("" if counts == want[what] else f"; {want[what]} expected"))
    return verdict("requests in an engine with layered loads", found == want)


def stored(store):
    """What spec-ctl shows of the rows that were computed on lossy ones, and of the others."""
    kinds = [record["computed_on"]
             for record in map(json.loads, spec_ctl("dump", store).splitlines())
             if "computed_on" in record]
    return verdict(f"spec-ctl: {kinds.count(1)} extents were computed on lossy rows, "
                   f"{kinds.count(0)} on exact ones", kinds.count(1) > 0 and kinds.count(0) > 0)


def main(args):
    ok = named_tests()
    with tempfile.TemporaryDirectory() as folder, Host(folder, env=site(folder)) as host:
        ok &= engine_tests(args, host, folder)
        ok &= stored(folder)
    return ok
