"""equality: answers with the connector are those without it.

Equal shapes: one request at a time, prefixes that are a multiple of max_num_batched_tokens, so that
what is left is computed in the same shapes. Generated ids and the top 20 logprobs of each are
bit-identical: cold (while the store is filled), warm (the same engine again), restarted, with
vLLM's own prefix cache on, with chunks of 64 tokens, in engines whose scheduler and worker are
processes, of two engines in turn, after kill -9 of an engine that was saving, over a damaged store.
Batched: ids are equal, and logprobs differ no more than they do between vLLM's own prefix cache on
and off in the same run; also where a small pool forces preemptions.
Each prompt that is compared warm has tokens from the store; least and most are printed.

--part NAME, once or more: those parts alone (PARTS below), each of which makes its own answers
without the connector; of smollm2 the whole takes hours on one core.
--tp 2: an engine of two ranks, cold and restarted, against one of two ranks without the connector.
"""
import json
import os
import tempfile
import time

from .engines import (PREFIX, TOKENS, Host, asking, damage, differences, distance, prompts_of,
                      rank_of, spec_ctl, verdict, words_of)

ALIVE_SECONDS = 900


class Case:
    """One model and block size: its prompts, and the host that engines run in."""

    def __init__(self, args, block, host, folder, count):
        self.args, self.block, self.host, self.folder = args, block, host, folder
        self.name = f"{os.path.basename(args.model)}, block {block}"
        self.prompts, self.ok, self.without = prompts_of(count, block), True, None

    def words(self, store=None, **engine):
        return words_of(self.args, self.block, store and self.store(store), **engine)

    def store(self, name):
        path = os.path.join(self.folder, name)
        os.makedirs(path, exist_ok=True)
        return path

    def plain(self):
        """The answers, one at a time, of the engine without the connector; computed once."""
        if self.without is None:
            self.without = self.host.once(self.words(), self.prompts)["answers"]
        return self.without

    def filled(self, name):
        """A store that has all prompts."""
        path = self.store(name)
        if not os.path.exists(os.path.join(path, "kv")):
            self.host.once(self.words(name), self.prompts)
        return path

    def same(self, name, plain, run, least=None):
        """least: how many prompts must have tokens from the store; all of them unless given."""
        wrong, found = differences(plain, run), [r["external"] for r in run]
        hits, least = sum(f > 0 for f in found), len(run) if least is None else least
        self.ok &= verdict(
            f"{self.name}, {name}: {len(run) - len(wrong)} of {len(run)} answers bit-identical, "
            f"{hits} with tokens from the store ({min(found)} .. {max(found)})",
            not wrong and hits >= least)

    def noise(self, name, runs):
        """By how much logprobs of two of vLLM's own runs differ at most."""
        pairs = [distance(a, b) for i, a in enumerate(runs) for b in runs[:i]]
        self.ok &= verdict(f"{self.name}, {name}: vLLM's own runs answer with the same ids",
                           not any(other for other, _ in pairs))
        return max(most for _, most in pairs)

    def near(self, name, plain, run, noise, also=True, note=""):
        other, most = distance(plain, run["answers"])
        found = [r["cached"] for r in run["answers"]]
        self.ok &= verdict(
            f"{self.name}, {name}: {len(plain) - other} of {len(plain)} answers with the same ids, "
            f"logprobs differ by {most:.3g} (vLLM's own: {noise:.3g}), cached {min(found)} .. "
            f"{max(found)}, {run['counts']['external']} tokens from the store{note}",
            other == 0 and most <= noise and also)


def alone(case):
    """One at a time."""
    host, prompts, pairs = case.host, case.prompts, len(case.prompts) // 2
    plain = case.plain()
    case.ok &= verdict(f"{case.name}: the engine alone answers a prompt in one way",
                       not differences(plain, host.once(case.words(), prompts)["answers"]))
    host.start(case.words("one"))
    case.same("cold", plain, host.ask(prompts)["answers"], 0)
    host.call("runs.inside:settle", prompts=prompts, count=PREFIX)
    case.same("warm", plain, host.ask(prompts)["answers"])
    host.stop()
    case.same("restarted", plain, host.once(case.words("one"), prompts)["answers"])
    caching = host.once(case.words("one", enable_prefix_caching=True), prompts)["answers"]
    case.same("vLLM's prefix cache on", plain, caching)
    local = sum(a["cached"] > a["external"] for a in caching)
    case.ok &= verdict(f"{case.name}, vLLM's prefix cache on: {local} with tokens of both",
                       local >= pairs)


def in_turn(case):
    """Two engines on one directory, each of which goes on where the other one left."""
    plain = case.plain()
    third = len(plain) // 3
    for i, (first, end) in enumerate(((0, third), (0, 2 * third), (third, len(plain)),
                                      (0, len(plain)))):
        run = case.host.once(case.words("turn", enable_prefix_caching=i % 2 == 1),
                             case.prompts[first:end])["answers"]
        known = (0, third, third, len(plain))[i]  # as whole prompts
        case.same(f"engine {'AB'[i % 2]} in turn", plain[first:end], run, known)


def chunked(case):
    step = {"max_num_batched_tokens": 64}
    plain = case.host.once(case.words(**step), case.prompts)["answers"]
    for part, least in (("cold", 0), ("restarted", None)):
        run = case.host.once(case.words("chunked", **step), case.prompts)["answers"]
        case.same(f"chunks of 64, {part}", plain, run, least)


def own(host, words, prompts, tokens=TOKENS, count=2):
    """Answers of engines with vLLM's prefix cache alone: while it is filled, and out of it, in
    `count` orders, which make other batches: this one, the opposite one, every third, fifth ..."""
    size = len(prompts)
    orders = [range(size), range(size - 1, -1, -1)]
    orders += [sorted(range(size), key=lambda i, n=n: i % n) for n in range(3, 2 * count, 2)]
    runs = []
    for order in orders[:count]:
        host.start({**words, "enable_prefix_caching": True})
        for _ in range(2):
            said = host.ask([prompts[i] for i in order], batch=True, tokens=tokens)["answers"]
            at = dict(zip(order, said))
            runs.append([at[i] for i in range(size)])
        host.stop()
    return runs


def batched(case):
    host, prompts = case.host, case.prompts
    plain = host.once(case.words(), prompts, batch=True)["answers"]
    noise = case.noise("batched", [plain] + own(host, case.words(), prompts))
    for name, engine in (("cold", {}), ("restarted", {}),
                         ("vLLM's prefix cache on", {"enable_prefix_caching": True})):
        run = host.once(case.words("batched", **engine), prompts, batch=True)
        hits = sum(a["cached"] > 0 for a in run["answers"])
        case.near(f"batched, {name}", plain, run, noise, name == "cold" or (
            hits == len(prompts) and run["counts"]["external"] > 0))


def preempted(case):
    """A pool that two of four requests fit into when they have grown."""
    block, tokens = case.block, 2 * case.block + 40
    each = -(-(160 + tokens) // block)
    small, larger = ({"num_gpu_blocks_override": grown * each + 1, "max_model_len": each * block}
                     for grown in (2, 3))
    prompts = [prompt[:160] for prompt in case.prompts[:8]]
    how = {"batch": True, "tokens": tokens}
    plain = case.host.once(case.words(), prompts, **how)["answers"]
    runs = [plain, case.host.once(case.words(**small), prompts, **how)["answers"]]
    # Where requests are preempted, and so the batches that follow, depends on what was found: the
    # most of few runs is less than that of one run more, of vLLM's own as well. Four orders: with
    # two the most of smollm2 was 19 steps of a float, of one run more 20.
    for pool in ({}, small, larger):
        runs += own(case.host, case.words(**pool), prompts, tokens, 4)
    noise = case.noise("preempted", runs)
    for name in ("cold", "restarted"):
        run = case.host.once(case.words("preempted", **small), prompts, **how)
        count = run["counts"]["preemptions"]
        case.near(f"preempted, {name}", plain, run, noise,
                  count > 0 and run["counts"]["external"] > 0, f", {count} preemptions")


def await_stored(case, store, prompts):
    """Until the logs tell of all whole blocks: vLLM ends workers that take seconds to close."""
    tokens = sum((len(ids) + TOKENS - 1) // case.block * case.block for ids in prompts)
    tokens -= len(prompts) // 2 * PREFIX  # each pair's
    end, seen = time.monotonic() + ALIVE_SECONDS, 0
    while seen < tokens and time.monotonic() < end:
        time.sleep(.1)
        said = json.loads(spec_ctl("stat", case.store(store), "--json"))
        seen = min(rank["live_tokens"] for rank in said["ranks"])


def processes(case):
    """Scheduler and workers in processes of their own, as `vllm serve` has them."""
    ranks = {"tensor_parallel_size": case.args.tp} if case.args.tp > 1 else {}
    name = f"{case.args.tp} ranks" if ranks else "processes"
    prompts, cores = case.prompts[:16], sorted(os.sched_getaffinity(0))
    # left to itself vLLM wants a NUMA node a rank
    bind = {"VLLM_CPU_OMP_THREADS_BIND": "|".join(map(str, cores[:case.args.tp]))} if ranks else {}
    with Host(case.folder, "apart", env=bind, apart=True) as host:
        plain = host.once(case.words(**ranks), prompts)["answers"]
        host.start(case.words("apart", **ranks))
        case.same(f"{name}, cold", plain, host.ask(prompts)["answers"], 0)
        await_stored(case, "apart", prompts)
        host.stop()
        case.same(f"{name}, restarted", plain,
                  host.once(case.words("apart", **ranks), prompts)["answers"])


def killed(case):
    """An engine that computes and stores other prompts dies; then ours are asked again."""
    log = os.path.join(rank_of(case.filled("one")), "log")
    with Host(case.folder, "killed", apart=True) as host:
        host.start(case.words("one"))
        host.send("ask", **asking(prompts_of(40, 5000), tokens=200))
        before, end = os.path.getsize(log), time.monotonic() + ALIVE_SECONDS
        while host.process.poll() is None and os.path.getsize(log) == before:
            if time.monotonic() > end:
                break
            time.sleep(0.05)
        saving = os.path.getsize(log) > before and host.process.poll() is None
        host.kill()
    case.ok &= verdict(f"{case.name}: an engine was killed while it saved", saving)
    case.same("after a kill", case.plain(),
              case.host.once(case.words("one"), case.prompts)["answers"])


def damaged(case):
    damage(rank_of(case.filled("one")))
    run = case.host.once(case.words("one"), case.prompts)["answers"]
    case.same("damaged", case.plain(), run, 0)


PARTS = {"alone": alone, "in_turn": in_turn, "processes": processes, "killed": killed,
         "damaged": damaged, "chunked": chunked, "batched": batched, "preempted": preempted}
QUICK = ("alone", "damaged", "chunked", "batched", "preempted")


def main(args):
    parts = args.part or (QUICK if args.quick else PARTS)
    if args.tp > 1:
        parts = ["processes"]
    for unknown in set(parts) - set(PARTS):
        raise SystemExit(f"equality: no part {unknown}; there are {', '.join(PARTS)}")
    ok, count = True, args.prompts or (8 if args.quick else 200)
    for block in args.block:
        with tempfile.TemporaryDirectory() as folder, Host(folder) as host:
            case = Case(args, block, host, folder, count)
            for part in parts:
                PARTS[part](case)
            ok &= case.ok
    return ok
