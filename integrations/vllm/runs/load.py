"""load: how long a stored prefix takes from start_load_kv to its last layer in vLLM's caches,
beside others that load the same rows from the same disk; in turn, medians, all bytes compared.

Rows as long as smollm2's and Llama-3-8B's (16 bits), 2,000 and 8,000 tokens up to whole blocks, in
caches of the CPU's layout; no engine (runs/contenders.py drives the connector's hooks).

    plain     the plugin's own load of the same bytes, into plain rows
    direct    the connector, into vLLM's caches; `writer`: by the backend's own hands
    layered   codes and 5 % exact rows, chosen by 32 rows of queries; or by one, as when decoding
    fs-tier, example, lmcache   vLLM's and LMCache's (runs/peers.py, docs/results/hosts.md)
    fio       the same bytes of the plugin's files, sequentially, io_uring, O_DIRECT

Nothing is read from the page cache: the plugin, fio, fs-tier and lmcache use O_DIRECT, and files of
example leave it before each load (asked of mincore). Exposed: what a load takes that computing does
not hide, where a layer computes for half as long as direct takes for one, and leaves the cores free
meanwhile, as a GPU does; without that, all of it is exposed. Then the same with the disk held at
--read-rate (root).

Floors: direct takes at most 1.4 times what plain does, and no longer than any peer does until rows
are in the caches (fs-tier in four jobs at once, as no load of vLLM's is, is told alone). At last a
byte of each one's files is changed: direct must tell that its load failed; what the others say is
printed. --quick: 2,000 tokens, three rounds, no LMCache, the disk as it is; times are not judged.
"""
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from . import engines
from .engines import Host, verdict

sys.path.insert(0, os.path.join(engines.ROOT, "bench"))
import read_rate  # noqa: E402

PEERS_ENV = os.environ.get("SPEC_PEERS_ENV", os.path.join(engines.ROOT, "build", "lmcache"))
SHAPES, LENGTHS, HELD_ROUNDS = ("smollm2", "llama-3-8b"), (2000, 8000), 5
ROUNDS, ROUNDS_BYTES = (7, 25), 3 << 30  # least and most; between them as many as load so much
LAYERED = ("layered", "layered, 1 row")
OURS, PEERS = ("plain", "direct", *LAYERED, "writer"), ("fs-tier", "fs-tier x 4", "example")
PLAIN_MOST = 1.4
QUIET = {"LMCACHE_TRACK_USAGE": "false", "LMCACHE_LOG_LEVEL": "ERROR"}  # it would tell its makers
L1_POOL = "/dev/shm/lmcache_l1_pool_spec_bench_{}"
FIO = os.path.join(engines.ROOT, "bench", "fio_job.py")


def fio_ns(facts):
    words = ["--engine", "io_uring", "--threads", "1", "--depth", "8", "--op-bytes", str(1 << 20),
             "--bytes", str(facts["bytes"]), facts["rank"]]
    done = subprocess.run([sys.executable, FIO, *words], check=True, capture_output=True, text=True)
    return int(done.stdout.split()[1])


def rounds_of(host, facts, names, rounds):
    """All in turn, each time in another order: {name: [what each load said]}."""
    said = {name: [] for name in ("fio", *names)}
    for i in range(rounds):
        order = list(said)
        for name in order[i % len(order):] + order[:i % len(order)]:
            said[name].append({"ns": fio_ns(facts)} if name == "fio" else host.call(
                "runs.contenders:load", who=name))
    return said


def median(said, what="ns"):
    return statistics.median(one[what] for one in said)


def spread(said):
    times = sorted(one["ns"] / 1e6 for one in said)
    return f"{times[0]:.0f} .. {times[-1]:.0f}"


def table(facts, said):
    plain, fio = median(said["plain"]), median(said["fio"])
    for name, loads in said.items():
        ns = median(loads)
        line = (f"  {name:14} {ns / 1e6:8.1f} ms ({spread(loads)})  {facts['bytes'] / ns:5.2f} GB/s"
                f"  {ns / plain:5.2f} x plain  {fio / ns:5.2f} of fio")
        if "cpu_ns" in loads[0]:
            line += f"  {median(loads, 'cpu_ns') / 1e6:6.1f} ms of processors"
        if "staged_ns" in loads[0]:
            line += f"  in its own memory after {median(loads, 'staged_ns') / 1e6:.1f} ms"
        if name in LAYERED:
            line += (f"  reads {median(loads, 'read_bytes') / facts['bytes']:.2f} of the bytes, "
                     f"wants {median(loads, 'wanted_bytes') / facts['bytes']:.2f}; waited for "
                     f"codes {median(loads, 'wait_ns') / 1e6:.1f} ms, chose "
                     f"{median(loads, 'select_ns') / 1e6:.1f}")
        print(line, flush=True)


def exposed(host, facts, said, rounds):
    """With a wait for each layer's computing."""
    window = median(said["direct"]) // (2 * facts["layers"])
    loads = {name: [] for name in ("direct", *LAYERED)}
    for _ in range(rounds):
        for name, list_ in loads.items():
            list_.append(host.call("runs.contenders:load", who=name, window_ns=window))
    print(f"  exposed, a layer computing for {window / 1e6:.2f} ms: " + ", ".join(
        f"{name} {median(list_, 'exposed_ns') / 1e6:.1f} of {median(list_) / 1e6:.1f} ms"
        for name, list_ in loads.items()), flush=True)


def judge(what, said, peers):
    direct, plain = median(said["direct"]), median(said["plain"])
    ok = verdict(f"{what}: direct is {direct / plain:.2f} x plain (at most {PLAIN_MOST})",
                 direct <= PLAIN_MOST * plain)
    for peer in peers:
        share = median(said[peer]) / direct
        if peer == "fs-tier x 4":  # no load of vLLM's is split so: told, not judged
            print(f"{what}: {peer} takes {share:.2f} x as long as direct")
            continue
        ok &= verdict(f"{what}: {peer} takes {share:.2f} x as long as direct (floor 1, aim 2)",
                      share >= 1)
    return ok


def rounds_for(args, facts):
    """Short loads are told apart by more rounds."""
    least, most = ROUNDS
    return args.rounds or (3 if args.quick else min(most, max(
        least, ROUNDS_BYTES // facts["bytes"])))


def measure(args, host, folder, what, facts, peers):
    """The disk as it is, and held; whether floors hold."""
    rounds = rounds_for(args, facts)
    print(f"{what}, blocks of {facts['block']}, {facts['bytes'] / 1e6:.0f} MB, {rounds} rounds, "
          "the disk as it is; median (least .. most)", flush=True)
    said = rounds_of(host, facts, (*OURS, *peers), rounds)
    table(facts, said)
    exposed(host, facts, said, rounds)
    if args.quick:
        return True
    ok = judge(what, said, peers)
    rounds = min(rounds, HELD_ROUNDS)
    try:
        with read_rate.held(folder, read_rate.bytes_per_s(args.read_rate), [host.process.pid]):
            print(f"{what}, the disk held at {args.read_rate} a second", flush=True)
            said = rounds_of(host, facts, ("plain", "direct", *LAYERED), rounds)
            table(facts, said)
            exposed(host, facts, said, rounds)
    except SystemExit as why:
        print(f"not held: {why}")
    return ok


def damaged(host, names):
    """A byte of their files is changed."""
    said = {name: host.call("runs.contenders:damaged", who=name) for name in names}
    for name, words in said.items():
        print(f"  a byte of {name}'s files was changed: {words}")
    return verdict("direct tells a damaged load as failed", said["direct"] == "told as failed")


def one(args, python, shape, tokens, peers, last):
    folder = args.on or os.path.join(engines.ROOT, "build")
    with tempfile.TemporaryDirectory(dir=folder) as folder:
        with Host(folder, f"load-{shape}-{tokens}", env=QUIET, python=python) as host:
            try:
                facts = host.call("runs.contenders:start", folder=folder, shape=shape,
                                  tokens=tokens, block=args.block[-1], names=[*OURS, *peers])
                ok = measure(args, host, folder, f"{shape}, {facts['tokens']} tokens", facts, peers)
                if last:
                    ok &= damaged(host, ("direct", *(p for p in peers if p != "fs-tier x 4")))
                host.call("runs.contenders:stop")
            finally:  # what a server of LMCache leaves that is killed
                pathlib.Path(L1_POOL.format(host.process.pid)).unlink(missing_ok=True)
    return ok


def main(args):
    if subprocess.run(["fio", "--version"], capture_output=True, check=False).returncode != 0:
        print("skipped: fio is absent")
        sys.exit(engines.SKIPPED)
    python, peers = os.path.join(engines.ENV, "bin", "python"), PEERS
    if os.path.exists(os.path.join(PEERS_ENV, "stamp")) and not args.quick:
        python, peers = os.path.join(PEERS_ENV, "bin", "python"), (*PEERS, "lmcache")
    elif not args.quick:
        print(f"no LMCache in {PEERS_ENV}: integrations/lmcache/setup-test makes it")
    ok = True
    cells = [(shape, tokens) for shape in SHAPES
             for tokens in (LENGTHS[:1] if args.quick else LENGTHS)]
    for cell in cells:
        ok &= one(args, python, *cell, peers, cell == cells[-1])
    if args.quick:
        print("quick: so little says that every load brings its bytes; times are not judged")
    return verdict("load", ok)
