"""several: two engines store into one directory at the same time (`store.writers`: `many`).

Engines A and B run at the same time. An engine without the connector has answered all prompts
before, and every answer of A and B has its ids and top 20 logprobs, bit for bit.

- Each engine loads what the other one stored. Counters show it: an engine that loads stores none of
  these tokens, and the engine that stored them loads none.
- Both are asked the same cold prompts at once. Each token is stored once: together they store no
  more than one engine does. The bytes that they write are printed: if both have written a pass
  before one of them commits it, that costs bytes, and is no failure.
- kill -9 of one engine while it stores: it ends itself when its last pass has been submitted, so
  how fast it runs does not matter. The other one, which is storing too, goes on: it stores, and
  loads what the killed engine had stored. The pass that was lost is stored when its tokens are
  computed again, 5 s later at the latest. Then an engine takes the place of the killed one. It
  loads what was stored meanwhile, and what the killed one had stored. --rounds: how often; the
  engine that survived is killed next.
- At the end spec-ctl verifies every row.

--prompts: of each set. Three more sets of as many are begun by an engine that is killed.
"""
import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time

from .engines import (STEP, WHOLE, Host, asking, differences, prompts_of, spec_ctl, verdict,
                      words_of)

PASSES = WHOLE // STEP  # of the first prompt, which are stored when an engine is killed
MORE_PASSES = 4  # by round; a prompt has at least one, and no engine comes to the last ones
KILL_SECONDS = (0, 0.001, 0.003, 0.01)  # that the killed engine's last pass has, by round
INTENT_SECONDS = 6  # others leave a pass to an engine that has begun it for 5 s, also if it is dead
SECONDS = 600
CORES = sorted(os.sched_getaffinity(0))


def counters(host):
    return host.call("runs.inside:counters")


def grown(host, before):
    return {name: value - before[name] for name, value in counters(host).items()}


class Several:
    """Two engines, and the prompts by set."""

    def __init__(self, args, block, folder):
        self.folder, self.ok, self.started = folder, True, 0
        self.rounds = args.rounds or (1 if args.quick else 4)
        self.name = f"{os.path.basename(args.model)}, block {block}"
        self.without = words_of(args, block)
        self.words = words_of(args, block, folder, plugin={"store": {"writers": "many"}})
        count = args.prompts or (4 if args.quick else 10)
        count += count % 2  # they come in pairs
        sizes = dict.fromkeys(("A's", "B's", "both's"), count)
        for i in range(self.rounds):
            sizes |= {f"survivor's {i}": count, f"killed one's {i}": 3 * count}
        made, self.prompts, self.plain = prompts_of(sum(sizes.values()), block), {}, {}
        for which, size in sizes.items():
            self.prompts[which], made = made[:size], made[size:]

    def judge(self, what, holds):
        self.ok &= verdict(f"{self.name}, {what}", holds)

    def host(self, stack, name):
        """A process for an engine, on the other core than the one that was started before it."""
        self.started += 1
        core = CORES[-1] if self.started % 2 else CORES[0]
        return stack.enter_context(
            Host(self.folder, name, env={"VLLM_CPU_OMP_THREADS_BIND": str(core)}))

    def compute(self, host):
        """The answers of an engine without the connector."""
        host.start(self.without)
        for which, prompts in self.prompts.items():
            self.plain[which] = host.ask(prompts)["answers"]
        host.stop()

    def same(self, which, answers):
        """Returns a text, and whether all answers are bit-identical."""
        wrong = len(differences(self.plain[which], answers))
        return f"{len(answers) - wrong} of {len(answers)} answers bit-identical", not wrong

    def settle(self, which, *hosts):
        """Waits until each engine sees all whole blocks of the prompts."""
        for host in hosts:
            host.call("runs.inside:settle", prompts=self.prompts[which], count=WHOLE)

    def members(self, *hosts):
        """The processes that spec-ctl says store into the directory are the engines'."""
        wanted, end = sorted(host.process.pid for host in hosts), time.monotonic() + SECONDS
        while (pids := self.pids()) != wanted and time.monotonic() < end:
            time.sleep(0.1)
        self.judge(f"spec-ctl names {len(pids)} processes that store, {len(hosts)} engines run",
                   pids == wanted)

    def pids(self):
        rank, = json.loads(spec_ctl("stat", self.folder, "--json"))["ranks"]
        return sorted(json.loads(line)["pid"] for line in rank["members"])

    def stores(self, host, other, which):
        """One engine computes and stores; returns its counters."""
        before, others = counters(host), counters(other)
        text, is_same = self.same(which, host.ask(self.prompts[which])["answers"])
        self.settle(which, host, other)
        told, others = grown(host, before), grown(other, others)
        self.judge(f"{host.name} computes: {text}, {told['stored_tokens']} tokens stored, "
                   f"{others['stored_tokens']} by {other.name}",
                   is_same and told["stored_tokens"] > 0 and others["stored_tokens"] == 0)
        return told

    def loads(self, host, which, what, other=None):
        """One engine loads every whole block of every prompt, and so stores nothing."""
        before, others = counters(host), other and counters(other)
        answers = host.ask(self.prompts[which])["answers"]
        text, is_same = self.same(which, answers)
        told, wanted = grown(host, before), WHOLE * len(answers)
        others = grown(other, others)["loaded"] if other else 0
        self.judge(f"{host.name} loads {what}: {text}, {told['loaded']} of {wanted} tokens loaded"
                   + (f", {others} by {other.name}" if other else "")
                   + f", {told['read_bytes'] / 1e6:.2f} MB read, {told['stored_tokens']} tokens "
                   f"stored, {told['failed']} loads failed",
                   is_same and all(a["external"] == WHOLE for a in answers)
                   and told["loaded"] == wanted and others == 0
                   and told["stored_tokens"] == 0 and told["failed"] == 0)

    def at_once(self, hosts, one_copy):
        """Both engines are asked the same cold prompts at the same moment."""
        before = [counters(host) for host in hosts]
        for host in hosts:
            host.send("ask", **asking(self.prompts["both's"]))
        said = [self.same("both's", host.reply()["answers"]) for host in hosts]
        self.settle("both's", *hosts)
        told = [grown(host, start) for host, start in zip(hosts, before)]
        what = "the same cold prompts at once"
        for host, one, (text, is_same) in zip(hosts, told, said):
            self.judge(f"{what}, {host.name}: {text}, {one['loaded']} tokens loaded, "
                       f"{one['stored_tokens']} stored", is_same)
        wrote = sum(one["write_bytes"] for one in told)
        stored = sum(one["stored_tokens"] for one in told)
        self.judge(f"{what}: {stored} tokens stored, {one_copy['stored_tokens']} are one copy; "
                   f"{wrote / 1e6:.2f} MB written, {wrote / one_copy['write_bytes']:.2f} times one "
                   "copy", stored <= one_copy["stored_tokens"])

    def kill(self, host, other, i):
        """One engine is killed while it stores, and the other one is storing other prompts."""
        host.call("runs.inside:die_storing", passes=PASSES + i % MORE_PASSES,
                  seconds=KILL_SECONDS[i % len(KILL_SECONDS)])
        other.send("ask", **asking(self.prompts[f"survivor's {i}"]))
        host.send("ask", **asking(self.prompts[f"killed one's {i}"]))
        status = host.process.wait(SECONDS)
        host.kill()  # what it started
        text, is_same = self.same(f"survivor's {i}", other.reply()["answers"])
        self.settle(f"survivor's {i}", other)
        self.judge(f"{host.name} is killed while it stores, {other.name} goes on: {text}",
                   is_same and status == -signal.SIGKILL)

    def survives(self, host, dead, i, before):
        """What an engine finds while the other one is dead."""
        self.members(host)
        self.loads(host, before, f"what was stored before {dead.name} was killed")
        self.loads(host, f"survivor's {i}", f"what it stored when {dead.name} was killed")
        first = self.prompts[f"killed one's {i}"][:1]
        host.call("runs.inside:settle", prompts=first, count=WHOLE)
        start = counters(host)
        answers = host.ask(self.prompts[f"killed one's {i}"])["answers"]
        text, is_same = self.same(f"killed one's {i}", answers)
        stored = grown(host, start)["stored_tokens"]
        found = [answer["external"] for answer in answers]
        # the second prompt of a pair shares tokens that this engine has just stored
        self.judge(f"{host.name} is asked what {dead.name} was computing: {text}, "
                   f"{sum(found[::2])} tokens were stored by {dead.name}, it stores {stored}",
                   is_same and found[0] == WHOLE and found[-2] == 0 and stored > 0)
        time.sleep(INTENT_SECONDS)
        text, is_same = self.same(f"killed one's {i}",
                                  host.ask(self.prompts[f"killed one's {i}"])["answers"])
        self.settle(f"killed one's {i}", host)
        self.judge(f"{host.name} is asked again: {text}, everything is stored", is_same)

    def again(self, host, other, dead, i, before):
        """What an engine finds that takes the place of the one that was killed."""
        self.members(other, host)
        for which, what in ((f"survivor's {i}", f"what {other.name} stored when {dead.name} died"),
                            (before, f"what was stored before {dead.name} was killed"),
                            (f"killed one's {i}", "what both stored of the rest")):
            self.loads(host, which, what, other)

    def run(self, stack):
        a, b = self.host(stack, "A"), self.host(stack, "B")
        self.compute(a)
        a.start(self.words)
        b.start(self.words)
        self.members(a, b)
        one_copy = self.stores(a, b, "A's")
        self.loads(b, "A's", "what A stored", a)
        self.stores(b, a, "B's")
        self.loads(a, "B's", "what B stored", b)
        self.at_once((a, b), one_copy)
        survivor, victim, before = a, b, "B's"
        for i in range(self.rounds):
            self.kill(victim, survivor, i)
            self.survives(survivor, victim, i, before)
            new = self.host(stack, f"{victim.name[0]}{i + 2}")
            new.start(self.words)
            self.again(new, survivor, victim, i, before)
            survivor, victim, before = new, survivor, f"survivor's {i}"
        survivor.stop()
        victim.stop()

    def verify(self):
        """What spec-ctl verify says of the store, which no process has open."""
        try:
            text, is_whole = spec_ctl("verify", self.folder), True
        except subprocess.CalledProcessError as error:
            text, is_whole = error.stdout + error.stderr, False
        self.judge(f"spec-ctl verify: {text.strip()}", is_whole)


def main(args):
    ok = True
    for block in args.block:
        with tempfile.TemporaryDirectory() as folder:
            several = Several(args, block, folder)
            with contextlib.ExitStack() as stack:
                several.run(stack)
            several.verify()
            ok &= several.ok
    return verdict("several", ok)
