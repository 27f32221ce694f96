"""faults: whatever breaks below, answers are those of an engine without the connector, no request
is stuck, and the engine goes on.

A full disk, a tiny one, reads that fail, reads that stall for 10 s (and for 25, longer than a load
may take), a byte of a middle layer's slab, the store's directory removed while the engine runs, a
lease that is stale when it is attached (its blocks are reported), a poisoned plugin. The disk's
faults come from broken_io.c below the plugin, which is told to use pread.
"""
import os
import re
import shutil
import subprocess
import tempfile
import time

from .engines import HERE, WHOLE, Host, asking, differences, prompts_of, verdict, words_of

PLUGIN = {"io": {"backend": "pread"}}
STUCK_SECONDS = 240
STALL_SECONDS, LONG_STALL_SECONDS = 10, 25


class Case:
    def __init__(self, args, folder):
        library = os.path.join(folder, "broken_io.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library,
                        os.path.join(HERE, "runs", "broken_io.c"), "-ldl"], check=True)
        self.args, self.folder, self.ok = args, folder, True
        self.switch = os.path.join(folder, "broken")
        self.host = Host(folder, env={"LD_PRELOAD": library, "SPEC_BROKEN_IO": self.switch})
        self.prompts, self.plain = prompts_of(4, 11), None

    def store(self, name):
        path = os.path.join(self.folder, name)
        os.makedirs(path, exist_ok=True)
        return path

    def start(self, name, plugin=None):
        self.host.start(words_of(self.args, self.args.block[0], self.store(name),
                                 plugin={**PLUGIN, **(plugin or {})}))

    def filled(self, name):
        """An engine over a store that another one has filled: nothing of it is in memory."""
        if not os.path.exists(os.path.join(self.folder, "filled")):
            self.start("filled")
            self.host.ask(self.prompts)
            self.host.call("runs.inside:settle", prompts=self.prompts, count=WHOLE)
            self.host.stop()
        shutil.copytree(self.store("filled"), self.store(name), dirs_exist_ok=True)
        self.start(name)

    def broken(self, mode):
        if mode is None:
            os.remove(self.switch)
            return
        with open(f"{self.switch}.new", "w", encoding="utf-8") as file:
            file.write(mode)
        os.rename(f"{self.switch}.new", self.switch)

    def ask(self):
        return self.host.order("ask", STUCK_SECONDS, **asking(self.prompts))["answers"]

    def same(self, name, answers, holds=None):
        """holds: of the tokens that each answer had from the store."""
        found = [a["external"] for a in answers]
        wrong = differences(answers, self.plain[:len(answers)])
        self.ok &= verdict(f"{name}: {len(answers) - len(wrong)} of {len(answers)} answers "
                           f"bit-identical, {found} tokens from the store",
                           not wrong and (holds is None or holds(found)))


def nothing(found):
    return not any(found)


def full(case):
    case.start("full")
    case.broken("full")
    case.same("a full disk", case.ask())
    case.same("a full disk, again", case.ask(), nothing)
    case.broken(None)
    case.same("there is room again", case.ask())
    case.host.stop()


def tiny(case):
    case.start("tiny", {"disk_bytes": "4MiB", "segment_bytes": "1MiB"})
    for name in ("a tiny disk", "a tiny disk, again"):
        case.same(name, case.ask())
    case.host.stop()


def failing(case):
    case.filled("eio")
    case.broken("eio")
    case.same("reads that fail", case.ask())
    case.broken(None)
    case.same("reads that do not fail any more", case.ask())
    case.host.stop()


def stalled(case, seconds, holds):
    case.filled(f"stall-{seconds}")
    case.broken("stall")
    start = time.monotonic()
    case.host.send("ask", **asking(case.prompts[:1]))
    time.sleep(seconds)
    case.broken(None)
    answers = case.host.reply(STUCK_SECONDS)["answers"]
    took = time.monotonic() - start
    case.same(f"reads that stall for {seconds} s, an answer after {took:.1f} s", answers, holds)
    case.same("after it", case.ask())
    case.host.stop()


def flip(folder, part):
    """A bit at this part of what the segments hold."""
    for name in sorted(n for n in os.listdir(folder) if n.startswith("seg-")):
        with open(os.path.join(folder, name), "r+b") as file:
            data = file.read()
            used = len(data.rstrip(b"\0"))
            if used:
                at = int(used * part)
                file.seek(at)
                file.write(bytes([data[at] ^ 16]))


def corrupt(case):
    """A place in some slab, until one is found that is a middle layer's."""
    case.prompts, kept = case.prompts[:1], case.prompts
    case.start("one")
    case.ask()
    case.host.call("runs.inside:settle", prompts=case.prompts, count=WHOLE)
    case.host.stop()
    layers = []
    for tenth in range(1, 10):
        name = f"corrupt-{tenth}"
        shutil.copytree(case.store("one"), case.store(name), dirs_exist_ok=True)
        flip(os.path.join(case.store(name), "kv", "rank-0000-of-0001"), tenth / 10)
        seen = len(case.host.lines())
        case.start(name)
        answers = case.ask()
        case.host.stop()
        if differences(answers, case.plain[:1]):
            case.same(f"a bit at {tenth} tenths", answers)
        layers += [int(n) for line in case.host.lines()[seen:]
                   for n in re.findall(r"layer (\d+) was not loaded", line)]
        if any(0 < layer < 3 for layer in layers):
            break
    case.prompts = kept
    case.ok &= verdict(f"corrupt slabs of layers {layers}, found when layers before were loaded",
                       any(0 < layer < 3 for layer in layers))


def removed(case):
    case.filled("removed")
    case.same("before its directory is removed", case.ask(), all)
    shutil.rmtree(case.store("removed/kv"))
    for name in ("the directory removed", "the directory removed, again"):
        case.same(name, case.ask())
    case.host.stop()


def stale(case):
    case.filled("stale")
    case.host.call("runs.inside:make_stale")
    answers = case.ask()
    blocks = case.host.call("runs.inside:failed_blocks")
    case.same(f"a lease that is stale at attach, {blocks} blocks reported", answers)
    case.ok &= verdict("every block of the stale load", blocks == WHOLE // case.args.block[0])
    case.host.stop()


def poisoned(case):
    for when in ("lookup", "get_important_wait"):
        case.filled(f"poisoned-{when}")
        case.host.call("runs.inside:poison", first=when)
        for name in ("", ", again"):
            case.same(f"a plugin that is poisoned in {when}{name}", case.ask())
        case.host.stop()


def main(args):
    with tempfile.TemporaryDirectory() as folder:
        case = Case(args, folder)
        with case.host:
            words = words_of(args, args.block[0])
            case.plain = case.host.once(words, case.prompts)["answers"]
            for part in (full, tiny, failing, removed, stale, poisoned, corrupt):
                part(case)
            stalled(case, STALL_SECONDS, all)
            if not args.quick:
                stalled(case, LONG_STALL_SECONDS, None)
        return case.ok
