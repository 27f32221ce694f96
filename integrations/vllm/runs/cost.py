"""cost: with `fill: cut`, what a slow disk has stored is computed, and what a fast disk has is
loaded, because the connector tells the plugin what the engine's steps take.

An engine computes and stores some prompts and is asked them again, so that the plugin sees both
sides: over a slow disk it may stop loading there already. It ends, which keeps what it knows. A
second engine over the same store is asked the same prompts, and its answers say how many tokens
came from the store.

    slow        1 MB/s: loading takes many times as long as computing   nothing is loaded
    slow, untold  as slow, and the plugin is told of no step            all is loaded
    fast        the machine's own disk, with its page cache             it is loaded, all or a part

The slow disk is simulated: broken_io.c stands below the plugin's reads (LD_PRELOAD), which are told
to use pread, and delays each as a device would that serves one after the other. Nothing is kept in
host memory. What is loaded depends on times, but by factors: those the plugin knows are printed.
"""
import os
import subprocess
import tempfile
import time

from .engines import HERE, Host, prompts_of, verdict, words_of

SLOW_BYTES_PER_S = 1000000
PROMPTS, OWN, BATCH = 3, 724, 1024  # prompts of 980 tokens, each computed in one step
WARM = 8  # other prompts first: a process's first steps take many times as long as those after
PLUGIN = {"load_policy": "split", "io": {"backend": "pread"}, "host_bytes": 0}


class Disk:
    def __init__(self, args, folder, name):
        self.args, self.block, self.name = args, args.block[0], name
        self.folder = os.path.join(folder, name)
        os.makedirs(self.folder)
        library, switch = (os.path.join(folder, part) for part in ("slow_io.so", f"{name}.switch"))
        if not os.path.exists(library):
            subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library,
                            os.path.join(HERE, "runs", "broken_io.c"), "-ldl"], check=True)
        if name != "fast":
            with open(switch, "w", encoding="utf-8") as file:
                file.write("slow")
        self.env = {"LD_PRELOAD": library, "SPEC_BROKEN_IO": switch,
                    "SPEC_SLOW_IO": str(SLOW_BYTES_PER_S)}
        self.prompts = prompts_of(PROMPTS, 21, OWN)
        self.whole = len(self.prompts[0]) // self.block * self.block

    def start(self, host):
        host.start(words_of(self.args, self.block, self.folder, plugin=PLUGIN,
                            max_num_batched_tokens=BATCH))

    def ask(self, host, what):
        """Tokens of each prompt that came from the store."""
        begun = time.monotonic()
        answers = host.ask(self.prompts, tokens=4)["answers"]  # a step later rows are stored
        found = [answer["external"] for answer in answers]
        print(f"  {self.name}: {what}: {found} tokens from the store, "
              f"{time.monotonic() - begun:.2f} s", flush=True)
        return found

    def taught(self, host):
        """An engine that stores, and sees what loading and computing take."""
        self.start(host)
        if self.name == "slow, untold":
            host.call("runs.inside:untimed")
        host.ask(prompts_of(WARM, 51, OWN), tokens=1)
        self.ask(host, "first time")
        host.call("runs.inside:settle", prompts=self.prompts, count=self.whole)
        found = self.ask(host, "second time, nothing is known of loading")
        compute_ps, load_ps = host.call("runs.inside:costs")
        print(f"  {self.name}: a token is computed in {compute_ps / 1e6:.1f} us and loaded in "
              f"{load_ps / 1e6:.1f} us (0: not known)", flush=True)
        host.stop()
        return found

    def judge(self, holds, what):
        with Host(self.folder, self.name, env=self.env) as host:
            first = self.taught(host)
            self.start(host)
            found = self.ask(host, "another engine")
            host.stop()
        return verdict(f"{self.name}: {what}, {found} of {self.whole} tokens each",
                       first[0] and all(holds(self, count) for count in found))


def all_of(disk, count):
    return count >= disk.whole - disk.block  # the last token is computed


def main(args):
    with tempfile.TemporaryDirectory() as folder:
        ok = Disk(args, folder, "slow").judge(lambda _, count: count == 0, "all is computed")
        ok &= Disk(args, folder, "slow, untold").judge(all_of, "all is loaded")
        ok &= Disk(args, folder, "fast").judge(lambda _, count: count > 0, "it is loaded")
    return verdict("cost", ok)
