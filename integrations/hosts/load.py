"""load: how fast a host stores and loads the same bytes through spec_connector and through its own
back end for a disk, in the host's own classes, in turn, in one run.

usage: run load [--on FOLDER] [--rounds N] [--values N] [--empty]
  --on       a folder on the disk to be measured; default: build/
  --rounds   of both in turn, in alternating order, the first not counted; default 41
  --values   of 1 MiB each round, different ones in each; default 64
  --empty    begin with empty folders. Without it both first store more than spec_connector may
             hold, so that a put evicts and reuses pages, as in a store that has run for a while.

Every round compares all bytes, and fio reads as many of the same disk (bench/fio_job.py: 16 reads
of 1 MiB in flight): more than that no back end can load. Ratios are medians of the rounds' ratios.
A put ends when its bytes are on the disk: what a back end has left in the page cache is written out
(sync_file_range) and counts. Files of the host's own back end leave the page cache before a load.
CPU is of this process, all threads. At last one byte of each side's files is changed:
spec_connector must report that value as a miss; the host's own back end is printed as it is.
Exit status: 0 where all bytes were right and the changed byte was found."""
import argparse
import contextlib
import ctypes
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from storage_cases import ROOT, flip_byte, value_of

OURS, OWN, FIO = "spec_connector", "own", "fio"
# spec_connector's bounds; none of the hosts' own back ends has one. Holds end before the store has
# been filled anew, because otherwise only new values could be evicted.
DISK_BYTES = 1 << 30
CONFIG = {"disk_bytes": DISK_BYTES, "objects": {"hold_ms": 1000}}
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
WRITE_AND_WAIT = 7
FILL_IDS = 10**9  # the first value of fill_up: no round has it


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def leave_page_cache(folder):
    for root, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(root, name), "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def files_of(folder):
    return {os.path.join(root, name) for root, _, names in os.walk(folder) for name in names}


def write_out(paths):
    """Their bytes go from the page cache to the disk, without the file system's own records."""
    for path in paths:
        with open(path, "rb") as file:
            if LIBC.sync_file_range(file.fileno(), 0, 0, WRITE_AND_WAIT) != 0:
                raise OSError(ctypes.get_errno(), "sync_file_range", path)


def timed(call):
    """What the call answers, seconds, CPU seconds."""
    begun, cpu = time.perf_counter(), cpu_seconds()
    answer = call()
    return answer, time.perf_counter() - begun, cpu_seconds() - cpu


def are_right(driver, ids, loaded):
    return all(loaded) and all(driver.value(at) == value_of(i, driver.value_bytes)
                               for at, i in enumerate(ids))


def fill_up(driver):
    """Stores a quarter more than spec_connector may hold, whole batches of values."""
    count = DISK_BYTES // driver.value_bytes * 5 // 4 // driver.capacity * driver.capacity
    for first in range(FILL_IDS, FILL_IDS + count, driver.capacity):
        ids = range(first, first + driver.capacity)
        driver.fill(ids)
        assert all(driver.store(ids)), "a value was not stored"


def round_of(driver, folder, ids, is_own):
    """((put, get) in MB/s, (put, get) in CPU seconds a GB); None: something was wrong."""
    driver.fill(ids)
    before = files_of(folder) if is_own else set()
    stored, put_s, put_cpu_s = timed(lambda: driver.store(ids))
    written = files_of(folder) - before
    _, out_s, out_cpu_s = timed(lambda: write_out(written))
    if is_own:
        leave_page_cache(folder)
    driver.wipe()
    loaded, get_s, get_cpu_s = timed(lambda: driver.load(ids))
    if not all(stored) or not are_right(driver, ids, loaded):
        return None
    size = len(ids) * driver.value_bytes
    return ((size / (put_s + out_s) / 1e6, size / get_s / 1e6),
            ((put_cpu_s + out_cpu_s) / (size / 1e9), get_cpu_s / (size / 1e9)))


def fio_file(folder, size):
    path = os.path.join(folder, "fio.dat")
    with open(path, "wb") as file:
        file.write(os.urandom(size))
        os.fsync(file.fileno())
    return path


def fio_reads(path):
    """MB/s."""
    size = os.path.getsize(path)
    said = subprocess.run([sys.executable, os.path.join(ROOT, "bench", "fio_job.py"), "--engine",
                           "io_uring", "--threads", "1", "--depth", "16", "--op-bytes", "1048576",
                           "--bytes", str(size), path], check=True, capture_output=True, text=True)
    return size / int(said.stdout.split()[1]) * 1e3


def flipped(driver, folder, ids):
    """One byte changed on the disk: how many of the values that are delivered are wrong, and
    whether one was missed."""
    flip_byte(folder, value_of(ids[3], driver.value_bytes)[3000:3064])
    leave_page_cache(folder)
    driver.wipe()
    loaded = driver.load(ids)
    wrong = sum(ok and driver.value(at) != value_of(i, driver.value_bytes)
                for at, (i, ok) in enumerate(zip(ids, loaded)))
    return wrong, loaded.count(False)


def line(name, numbers, digits=(0, 0, 3, 3)):
    print(f"{name:24}" + "".join(
        f"{number:{width}.{digit}f}"
        for number, width, digit in zip(numbers, (10, 10, 14, 14), digits)))


def table(host, own_name, rounds):
    """rounds: [{OURS: ((put, get) MB/s, (put, get) CPU s/GB), OWN: the same, FIO: MB/s}]"""
    flat = {side: [said[side][0] + said[side][1] for said in rounds] for side in (OURS, OWN)}
    print(f"\n{host}: medians of {len(rounds)} rounds, all bytes compared")
    print(f"{'':24}{'put MB/s':>10}{'get MB/s':>10}{'put CPU s/GB':>14}{'get CPU s/GB':>14}")
    for side, name in ((OURS, OURS), (OWN, own_name)):
        line(name, [statistics.median(column) for column in zip(*flat[side])])
    ratios = [[ours / max(own, 1e-9) for ours, own in zip(*both)]
              for both in zip(flat[OURS], flat[OWN])]
    line("ratio", [statistics.median(column) for column in zip(*ratios)], (2, 2, 2, 2))
    beside = [statistics.median(said[side][0][1] / said[FIO] for said in rounds)
              for side in (OURS, OWN)]
    print(f"fio reads {statistics.median(said[FIO] for said in rounds):.0f} MB/s; get beside it: "
          f"{OURS} {beside[0]:.2f}, {own_name} {beside[1]:.2f}")


def main(make, host, own_name, words):
    parser = argparse.ArgumentParser(prog=f"integrations/{host}/run load")
    parser.add_argument("--on", default=os.path.join(ROOT, "build"))
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--values", type=int, default=64)
    parser.add_argument("--empty", action="store_true")
    args = parser.parse_args(words)
    count, is_right = min(args.values, make.capacity), True
    with contextlib.ExitStack() as end:
        folder = end.enter_context(tempfile.TemporaryDirectory(dir=args.on))
        sides, rounds = {}, []
        for side in (OURS, OWN):
            path = os.path.join(folder, side)
            os.mkdir(path)
            made = make(path, config=CONFIG, is_own=side == OWN)
            sides[side] = end.enter_context(contextlib.closing(made)), path
            if not args.empty:
                fill_up(made)
        read_by_fio = fio_file(folder, count * make.value_bytes)
        for turn in range(args.rounds):
            ids, said = range(1000 * turn, 1000 * turn + count), {FIO: fio_reads(read_by_fio)}
            for side in (OURS, OWN) if turn % 2 else (OWN, OURS):
                said[side] = round_of(*sides[side], ids, side == OWN)
                if said[side] is None:
                    print(f"round {turn}: {side} stored or loaded wrong bytes, or missed some")
            if None in said.values():
                is_right = False
            elif turn:
                rounds.append(said)
        table(host, own_name, rounds)
        for side, name in ((OURS, OURS), (OWN, own_name)):
            wrong, missed = flipped(*sides[side], ids)
            print(f"one byte changed on the disk: {name}: {wrong} wrong values delivered, "
                  f"{missed} missed")
            is_right = is_right and (side == OWN or (wrong, missed) == (0, 1))
    return 0 if is_right else 1
