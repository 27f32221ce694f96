"""load: how fast a host stores and loads the same bytes through spec_connector and through its own
back end for a disk, in the host's own classes, in turn, in one run.

usage: run load [--on FOLDER] [--rounds N] [--values N]
  --on       a folder on the disk to be measured; default: build/
  --rounds   of both in turn, in alternating order, the first not counted; default 9
  --values   of 1 MiB each round, different ones in each; default 32

Every round compares all bytes. Files of the host's own back end leave the page cache before a load.
CPU is of this process, all threads. At last one byte of each side's files is changed:
spec_connector must report that value as a miss; the host's own back end is printed as it is.
Exit status: 0 where all bytes were right and the changed byte was found."""
import argparse
import contextlib
import os
import resource
import statistics
import tempfile
import time

from storage_cases import ROOT, flip_byte, value_of

OURS, OWN = "spec_connector", "own"


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def leave_page_cache(folder):
    for root, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(root, name), "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def timed(call, ids, size):
    """What the call answers, MB/s, CPU seconds a GB."""
    begun, cpu = time.perf_counter(), cpu_seconds()
    answer = call(ids)
    took, cpu = time.perf_counter() - begun, cpu_seconds() - cpu
    done = len(ids) * size
    return answer, done / took / 1e6, cpu / (done / 1e9)


def are_right(driver, ids, loaded):
    return all(loaded) and all(driver.value(at) == value_of(i, driver.value_bytes)
                               for at, i in enumerate(ids))


def round_of(driver, folder, ids, is_own):
    """Put and get: (MB/s, CPU seconds a GB) of each; None: something was wrong."""
    driver.fill(ids)
    stored, *put = timed(driver.store, ids, driver.value_bytes)
    if is_own:
        leave_page_cache(folder)
    driver.wipe()
    loaded, *get = timed(driver.load, ids, driver.value_bytes)
    return (put, get) if all(stored) and are_right(driver, ids, loaded) else None


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


def table(host, own_name, rounds):
    print(f"\n{host}: medians of {len(rounds[OURS])} rounds, all bytes compared")
    print(f"{'':24}{'put MB/s':>10}{'get MB/s':>10}{'put CPU s/GB':>14}{'get CPU s/GB':>14}")
    rows = {}
    for side, name in ((OURS, OURS), (OWN, own_name)):
        rows[side] = [statistics.median(at[i][j] for at in rounds[side])
                      for j in (0, 1) for i in (0, 1)]
        print(f"{name:24}{rows[side][0]:10.0f}{rows[side][1]:10.0f}{rows[side][2]:14.3f}"
              f"{rows[side][3]:14.3f}")
    ratios = [ours / max(own, 1e-9) for ours, own in zip(rows[OURS], rows[OWN])]
    print(f"{'ratio':24}{ratios[0]:10.2f}{ratios[1]:10.2f}{ratios[2]:14.2f}{ratios[3]:14.2f}")


def main(make, host, own_name, words):
    parser = argparse.ArgumentParser(prog=f"integrations/{host}/run load")
    parser.add_argument("--on", default=os.path.join(ROOT, "build"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--values", type=int, default=32)
    args = parser.parse_args(words)
    count, is_right = min(args.values, make.capacity), True
    with contextlib.ExitStack() as end:
        folder = end.enter_context(tempfile.TemporaryDirectory(dir=args.on))
        sides, rounds = {}, {OURS: [], OWN: []}
        for side in rounds:
            path = os.path.join(folder, side)
            os.mkdir(path)
            made = make(path, config={"disk_bytes": "8GiB"}, is_own=side == OWN)
            sides[side] = end.enter_context(contextlib.closing(made)), path
        for turn in range(args.rounds):
            ids = range(1000 * turn, 1000 * turn + count)
            for side in (OURS, OWN) if turn % 2 else (OWN, OURS):
                said = round_of(*sides[side], ids, side == OWN)
                if said is None:
                    print(f"round {turn}: {side} stored or loaded wrong bytes, or missed some")
                    is_right = False
                elif turn:
                    rounds[side].append(said)
        table(host, own_name, rounds)
        for side, name in ((OURS, OURS), (OWN, own_name)):
            wrong, missed = flipped(*sides[side], ids)
            print(f"one byte changed on the disk: {name}: {wrong} wrong values delivered, "
                  f"{missed} missed")
            is_right = is_right and (side == OWN or (wrong, missed) == (0, 1))
    return 0 if is_right else 1
