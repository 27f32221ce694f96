"""Tests that every host passes, in the host's own classes: what its storage path stores is loaded
equal by the next process, and by another that has the store open too, or is a miss.

A driver is a class made with (folder, config={...}, weights=..., is_own=False) that has (config: of
the store, without its path; is_own: the host's own back end for a disk, for `run load`)
  value_bytes, capacity   bytes of a value; how many values its host memory holds
  fill(ids)               writes the values of these ids into host memory
  store(ids)              stores them, by the host's path
  found(ids)              [bool]: which are stored, as the host asks for it
  wipe()                  zeroes host memory
  load(ids)               [bool]: loads them, by the host's path
  value(position)         bytes in host memory of the id at this position of load
  close()
A test module ends with storage_cases.main(Driver). Children of a test are that module again.
"""
import contextlib
import hashlib
import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ.setdefault("SPEC_CONNECTOR_LIBRARY",
                      os.path.join(ROOT, "build", "lib", "libspec_connector.so"))
MIB = 1 << 20
ANSWER = "answer: "
FOUND_SECONDS = 60  # until a process finds what another has stored; 0.2 s, unless all is slow
KILLED_BATCHES = 10  # of 4 values, that a process which is to be killed stores at most


def config_of(folder, config):
    """The configuration of a driver's store."""
    return {"path": folder, "disk_bytes": "256MiB", **(config or {})}


def value_of(number, size):
    return np.random.default_rng(number).integers(0, 256, size, dtype=np.uint8).tobytes()


def digest_of(value):
    return hashlib.sha256(value).hexdigest()


def flip_byte(folder, pattern):
    """Flips one bit behind the only place in the files of `folder` that has these bytes."""
    places = []
    for root, _, names in os.walk(folder):
        for path in (os.path.join(root, name) for name in names):
            if not os.path.isfile(path) or os.path.getsize(path) < len(pattern):
                continue
            with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
                at = memory.find(pattern)
                while at >= 0:
                    places.append((path, at))
                    at = memory.find(pattern, at + 1)
    if len(places) != 1:
        raise AssertionError(f"the pattern is at {places}")
    (path, at), = places
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))
        file.flush()
        os.fsync(file.fileno())


def weights_folder(folder, name):
    """A folder with a file of weights that differs by name."""
    path = os.path.join(folder, f"weights-{name}")
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "model.safetensors"), "wb") as file:
        file.write(name.encode() * 1000)
    return path


def put(driver, ids):
    stored = []
    for first in range(0, len(ids), driver.capacity):
        part = ids[first:first + driver.capacity]
        driver.fill(part)
        stored += driver.store(part)
    return stored


def get(driver, ids):
    """SHA-256 of the value of each id; None: a miss."""
    values = []
    for first in range(0, len(ids), driver.capacity):
        part = ids[first:first + driver.capacity]
        driver.wipe()
        values += [digest_of(driver.value(at)) if ok else None
                   for at, ok in enumerate(driver.load(part))]
    return values


def answer(words):
    print(ANSWER + json.dumps(words), flush=True)  # hosts print, too


def child(make, words):
    """What a child process does: JSON of its answer is a line of its output."""
    action, folder, weights, first, count = json.loads(words)
    driver, ids = make(folder, weights=weights), range(first, first + count)
    if action == "put":
        answer(put(driver, ids))
        driver.close()
    elif action == "put and be killed":
        answer(put(driver, ids))
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "be killed in a put":
        import threading
        threading.Timer(.02, os.kill, (os.getpid(), signal.SIGKILL)).start()
        while True:
            put(driver, ids)
            ids = range(ids.stop, ids.stop + count)
    elif action == "get":
        answer([driver.found(ids), get(driver, ids)])
        driver.close()
    elif action == "do as told":
        for line in sys.stdin:
            do_as_told(driver, *json.loads(line))
        driver.close()


def do_as_told(driver, action, first, count):
    ids = range(first, first + count)
    if action == "put":
        answer(put(driver, ids))
    elif action == "get":
        answer([driver.found(ids), get(driver, ids)])
    elif action == "put until killed":
        for at in range(first, first + 4 * KILLED_BATCHES, 4):
            answer(put(driver, range(at, at + 4)))
        signal.pause()


class Beside:
    """A process that has the store open, and does what it is told."""

    def __init__(self, store, weights):
        words = json.dumps(["do as told", store, weights, 0, 0])
        self.process = subprocess.Popen([sys.executable, sys.argv[0], "--child", words],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(self, action, first, count):
        self.process.stdin.write(json.dumps([action, first, count]) + "\n")
        self.process.stdin.flush()

    def answers(self):
        """Its answers, until it ends."""
        for line in self.process.stdout:
            if line.startswith(ANSWER):
                yield json.loads(line[len(ANSWER):])

    def reply(self):
        for said in self.answers():
            return said
        raise AssertionError(f"the process ended: {self.process.wait()}")

    def ask(self, action, first, count):
        self.send(action, first, count)
        return self.reply()

    def close(self):
        """Returns its exit status."""
        self.process.stdin.close()
        status = self.process.wait()
        self.process.stdout.close()
        return status


class StorageCases:
    make = None  # the driver's class

    def setUp(self):
        on = os.environ.get("SPEC_TEST_FOLDER")  # a folder on the disk to be tested
        self.folder = self.enterContext(tempfile.TemporaryDirectory(dir=on))
        self.store = os.path.join(self.folder, "store")
        self.weights = weights_folder(self.folder, "one")

    def driver(self, weights=None, **config):
        made = self.make(self.store, config=config, weights=weights or self.weights)
        return self.enterContext(contextlib.closing(made))

    def in_child(self, action, first, count, weights=None):
        words = json.dumps([action, self.store, weights or self.weights, first, count])
        done = subprocess.run([sys.executable, sys.argv[0], "--child", words],
                              stdout=subprocess.PIPE, text=True, check=False)
        if "kill" in action:
            self.assertEqual(done.returncode, -signal.SIGKILL)
        else:
            self.assertEqual(done.returncode, 0)
        lines = [line for line in done.stdout.splitlines() if line.startswith(ANSWER)]
        return json.loads(lines[-1][len(ANSWER):]) if lines else None

    def beside(self):
        """Another process over the same store, which ends with the test."""
        made = Beside(self.store, self.weights)

        def end():
            made.process.kill()
            made.close()
        self.addCleanup(end)
        return made

    def assert_found(self, process, first, count):
        """A process finds these values, and loads equal bytes."""
        end, found = time.monotonic() + FOUND_SECONDS, []
        while found != [True] * count:
            self.assertLess(time.monotonic(), end, f"of {first} to {first + count}: {found}")
            found, values = process.ask("get", first, count)
        self.assertEqual(values, self.expected(range(first, first + count)))

    def expected(self, ids):
        return [digest_of(value_of(i, self.make.value_bytes)) for i in ids]

    def assert_true_or_missed(self, ids, values):
        """Returns which ids were loaded."""
        loaded = []
        for i, value, right in zip(ids, values, self.expected(ids)):
            if value is not None:
                self.assertEqual(value, right, f"value {i}")
                loaded.append(i)
        return loaded

    def test_the_next_process_loads_equal_bytes(self):
        self.assertEqual(self.in_child("put", 0, 24), [True] * 24)
        found, values = self.in_child("get", 0, 30)
        self.assertEqual(found, [True] * 24 + [False] * 6)
        self.assertEqual(values, self.expected(range(24)) + [None] * 6)

    def test_kill_9_after_a_store_loses_nothing(self):
        self.assertEqual(self.in_child("put and be killed", 0, 16), [True] * 16)
        self.assertEqual(self.in_child("get", 0, 16), [[True] * 16, self.expected(range(16))])

    def test_kill_9_in_a_store_leaves_no_wrong_bytes(self):
        for attempt in range(2):
            self.in_child("be killed in a put", 100 * attempt, 8)
            ids = range(100 * attempt, 100 * attempt + 100)
            found, values = self.in_child("get", ids.start, 100)
            loaded = self.assert_true_or_missed(ids, values)
            self.assertEqual(len(loaded), found.count(True))

    def test_two_processes_find_what_either_has_stored(self):
        one, other = self.beside(), self.beside()
        self.assertEqual(one.ask("put", 0, 12), [True] * 12)
        self.assertEqual(other.ask("put", 12, 12), [True] * 12)
        for process in (one, other):
            self.assert_found(process, 0, 24)
        for process in (one, other):
            process.send("put", 24, 12)  # the same values at once
        for process in (one, other):
            self.assertEqual(process.reply(), [True] * 12)
        for process in (one, other):
            self.assert_found(process, 0, 36)
            self.assertEqual(process.close(), 0)
        self.assertEqual(self.in_child("get", 0, 36), [[True] * 36, self.expected(range(36))])

    def test_kill_9_of_one_of_two_processes_in_a_store(self):
        killed, other = self.beside(), self.beside()
        self.assertEqual(other.ask("put", 0, 4), [True] * 4)
        for first in (100, 200):
            killed.send("put until killed", first, 0)
            for _ in range(2):
                self.assertEqual(killed.reply(), [True] * 4)
            other.send("put", first + 50, 8)
            self.assertEqual(killed.reply(), [True] * 4)
            killed.process.kill()
            stored = 12 + 4 * len([*killed.answers()])
            self.assertEqual(killed.process.wait(), -signal.SIGKILL)
            self.assertEqual(other.reply(), [True] * 8)
            self.assert_found(other, first, stored)
            count = 4 * KILLED_BATCHES
            found, values = other.ask("get", first, count)
            self.assertEqual(len(self.assert_true_or_missed(range(first, first + count), values)),
                             found.count(True))
            killed = self.beside()  # takes the place of the one that was killed
            self.assert_found(killed, 0, 4)
            self.assert_found(killed, first, stored)
            self.assert_found(killed, first + 50, 8)
            self.assertEqual(killed.ask("put", first, count), [True] * count)
            self.assert_found(other, first, count)

    def test_one_flipped_byte_fails_that_value_alone(self):
        self.in_child("put", 0, 16)
        flip_byte(self.store, value_of(5, self.make.value_bytes)[3000:3064])
        found, values = self.in_child("get", 0, 16)
        right = self.expected(range(16))
        self.assertEqual(found, [True] * 16)
        self.assertEqual(values, [*right[:5], None, *right[6:]])
        self.assertEqual(self.in_child("put", 5, 1), [True])  # what the host computed again
        self.assertEqual(self.in_child("get", 0, 16), [[True] * 16, right])

    def test_what_exists_is_loaded_while_others_are_stored(self):
        driver, stored = self.driver(disk_bytes="64MiB", objects={"hold_ms": 500}), []
        for first in range(0, 192, 8):  # three times what fits
            self.assertEqual(put(driver, range(first, first + 8)), [True] * 8)
            stored += range(first, first + 8)
            asked = stored[-24:]  # what is held must leave room for what is stored
            found = [i for i, is_found in zip(asked, driver.found(asked)) if is_found]
            self.assertGreaterEqual(len(found), min(len(stored), 8))
            for part in (found[:8], found[-8:]):
                self.assertEqual(get(driver, part), self.expected(part))

    def test_a_full_store_keeps_its_limit_and_most_of_its_bytes(self):
        driver = self.driver(disk_bytes="64MiB")
        self.assertEqual(put(driver, range(128)), [True] * 128)
        used = sum(os.stat(os.path.join(root, name)).st_blocks * 512
                   for root, _, names in os.walk(self.store) for name in names)
        self.assertLessEqual(used, 64 * MIB)
        values = get(driver, range(128))
        loaded = self.assert_true_or_missed(range(128), values)
        self.assertGreaterEqual(len(loaded) * self.make.value_bytes, 0.8 * 64 * MIB)

    def test_other_weights_find_nothing(self):
        other = weights_folder(self.folder, "two")
        self.in_child("put", 0, 4)
        self.assertEqual(self.in_child("get", 0, 4, weights=other), [[False] * 4, [None] * 4])
        self.in_child("put", 4, 4, weights=other)
        self.assertEqual(self.in_child("get", 0, 8)[0], [True] * 4 + [False] * 4)


def main(make):
    if sys.argv[1:2] == ["--child"]:
        child(make, sys.argv[2])
    else:
        unittest.main()
