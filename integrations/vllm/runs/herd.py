"""herd: a cold prompt that many requests compute at once is written once.

An engine without a prefix cache of its own is asked one prompt, then eight prompts that share its
length and 640 tokens with each other and have 20 tokens of their own, all at once. The plugin
counts the bytes that it wrote. The eight may write as much as the one, a third more, and the
blocks in which they differ; before requests shared what they store, they wrote eight times as much.
"""
import tempfile

from .engines import Host, verdict, words_of

COUNT, SHARED, OWN = 8, 640, 20
MOST = 1.3


def prompt_of(seed, own):
    return [5 + (7 * j + j * j % 13 + seed * 31) % 190 for j in range(SHARED)] + [
        10 + (own * 3 + j * 5) % 180 for j in range(OWN)]


class Herd:
    def __init__(self, args, block, folder):
        self.block = block
        self.words = words_of(args, block, folder, max_num_seqs=COUNT,
                              max_num_batched_tokens=COUNT * (SHARED + OWN))

    def written(self, host, prompts):
        """Bytes that storing these takes, asked at once."""
        before = host.call("runs.inside:write_bytes")
        host.ask(prompts, batch=True, tokens=4)  # a step later rows are stored
        host.call("runs.inside:settle", prompts=prompts,
                  count=(SHARED + OWN) // self.block * self.block)
        return host.call("runs.inside:write_bytes") - before

    def judge(self, host):
        host.start(self.words)
        one = self.written(host, [prompt_of(1, 0)])
        herd = self.written(host, [prompt_of(2, i) for i in range(COUNT)])
        host.stop()
        apart = one * (OWN + self.block) / (SHARED + OWN)  # a request's blocks that are its own
        return verdict(f"block {self.block}: one prompt wrote {one / 1e6:.2f} MB, {COUNT} that "
                       f"share {SHARED} tokens {herd / 1e6:.2f} MB, {herd / one:.2f} times as much",
                       herd <= MOST * one + (COUNT - 1) * apart)


def main(args):
    ok = True
    for block in args.block:
        with tempfile.TemporaryDirectory() as folder, Host(folder) as host:
            ok &= Herd(args, block, folder).judge(host)
    return verdict("herd", ok)
