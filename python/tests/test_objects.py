#!/usr/bin/env python3
"""Objects by key through ctypes, on a real store. Needs SPEC_CONNECTOR_LIBRARY."""
import ctypes
import gc
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import weakref
from array import array

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from spec_connector import abi, library  # noqa: E402
from spec_connector import objects_abi as c  # noqa: E402
from spec_connector.objects import Error, Objects, pack  # noqa: E402

try:
    library.load_objects()
except OSError as error:
    print(f"skipped: {error}")
    sys.exit(77)

VALUE = 8192


class Memory:
    """A buffer of count values, and their addresses."""

    def __init__(self, count, size=VALUE, fill=None):
        self.size, self.data = size, bytearray(count * size)
        if fill is not None:
            for i in range(count):
                self.data[i * size:(i + 1) * size] = fill(i)
        self.base = ctypes.addressof((ctypes.c_char * 1).from_buffer(self.data))
        self.addresses = array("Q", range(self.base, self.base + count * size, size))

    def value(self, i):
        return bytes(self.data[i * self.size:(i + 1) * self.size])


def value_of(i, size=VALUE):
    return random.Random(i).randbytes(size)


def keys_of(count, first=0):
    return [b"key %08d" % i for i in range(first, first + count)]


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.open()

    def open(self, **config):
        self.lines = []
        self.store = Objects({"path": self.folder.name, "disk_bytes": "64MiB", **config},
                             log=lambda level, form, *words: self.lines.append(form % words))
        self.addCleanup(self.store.close)
        self.domain = self.store.domain(b"model and layout")

    def put(self, count, first=0, domain=None):
        memory = Memory(count, fill=lambda i: value_of(first + i))
        statuses = (domain or self.domain).put(keys_of(count, first), memory.addresses, VALUE)
        self.assertEqual(set(statuses), {c.KEY_DONE})

    def assert_stored(self, count, first=0):
        memory = Memory(count)
        self.assertEqual(set(self.domain.get(keys_of(count, first), memory.addresses, VALUE)),
                         {c.KEY_DONE})
        for i in range(count):
            self.assertEqual(memory.value(i), value_of(first + i))

    def completions(self, count, domain=None):
        done = []
        while len(done) < count:
            more = (domain or self.domain).poll(timeout=30)
            self.assertTrue(more)
            done += more
        return done


class Values(Case):
    def test_what_was_put_is_got(self):
        self.put(20)
        self.assert_stored(20)

    def test_keys_of_any_kind_and_length(self):
        kinds = [[b"a", b"bb", b"\0\xff" * 100], ["a" * 64, "b" * 64], ["x", "long " * 50],
                 ["kö", "köln", "\ud800"]]
        for keys in kinds:
            domain, memory = self.store.domain(repr(keys).encode()), Memory(3, fill=value_of)
            addresses = memory.addresses[:len(keys)]
            self.assertEqual([*domain.put(keys, addresses, VALUE)], [c.KEY_DONE] * len(keys))
            again = Memory(3)
            self.assertEqual([*domain.get(keys[::-1], again.addresses[:len(keys)], VALUE)],
                             [c.KEY_DONE] * len(keys))
            for i in range(len(keys)):
                self.assertEqual(again.value(i), value_of(len(keys) - 1 - i))
        packed, _ = pack(["kö"])
        self.assertEqual((packed.data, packed.key_bytes), ("kö".encode(), 3))

    def test_pieces_are_one_value(self):
        memory = Memory(4, fill=value_of)
        order = array("Q", [memory.addresses[i] for i in (3, 0, 2, 1)])
        self.assertEqual([*self.domain.put([b"p", b"q"], order, VALUE, pieces=2)], [1, 1])
        self.assertEqual([*self.domain.sizes([b"p", b"no", b"q"])], [2 * VALUE, 0, 2 * VALUE])
        whole = Memory(2, 2 * VALUE)
        self.assertEqual([*self.domain.get([b"p", b"q"], whole.addresses, 2 * VALUE)], [1, 1])
        self.assertEqual(whole.value(0), value_of(3) + value_of(0))

    def test_sizes_of_each_piece(self):
        memory, sizes = Memory(3, fill=value_of), [1, 4097, VALUE]
        self.assertEqual([*self.domain.put(keys_of(3), memory.addresses, sizes)], [1, 1, 1])
        again = Memory(3)
        self.assertEqual([*self.domain.get(keys_of(3), again.addresses, array("Q", sizes))],
                         [1, 1, 1])
        for i, size in enumerate(sizes):
            self.assertEqual(again.value(i), value_of(i)[:size] + bytes(VALUE - size))

    def test_another_size_is_invalid_and_writes_nothing(self):
        self.put(2)
        memory = Memory(2)
        self.assertEqual([*self.domain.get(keys_of(2), memory.addresses, [VALUE - 1, VALUE])],
                         [abi.E_INVALID, c.KEY_DONE])
        self.assertEqual(memory.value(0), bytes(VALUE))

    def test_counts_that_differ_are_refused_before_the_call(self):
        with self.assertRaises(ValueError):
            self.domain.put(keys_of(2), [1], VALUE)
        with self.assertRaises(ValueError):
            self.domain.get(keys_of(2), [1, 2], [VALUE])

    def test_a_second_put_finds_it_stored(self):
        self.put(1)
        memory = Memory(1)
        self.assertEqual([*self.domain.put(keys_of(1), memory.addresses, VALUE)], [c.KEY_STORED])
        self.assert_stored(1)

    def test_domains_share_nothing(self):
        other = self.store.domain(b"another layout")
        self.put(1)
        memory = Memory(1)
        self.assertEqual([*other.get(keys_of(1), memory.addresses, VALUE)], [c.KEY_ABSENT])
        other.put(keys_of(1), Memory(1, fill=lambda i: value_of(99)).addresses, VALUE)
        self.assert_stored(1)
        self.assertEqual(self.store.domains(), {b"model and layout": VALUE,
                                                b"another layout": VALUE})

    def test_no_keys_are_no_call(self):
        self.assertEqual(self.domain.exists([]), (b"", 0))
        self.assertEqual([*self.domain.get([], [], 1)], [])
        self.assertEqual(self.domain.remove([]), b"")


class Keys(Case):
    def test_exists_one_and_many(self):
        self.put(3)
        keys = [*keys_of(2), b"no", *keys_of(1, 2)]
        self.assertEqual(self.domain.exists(keys), (b"\1\1\0\1", 2))
        self.assertEqual(self.domain.exists(keys, prefix=True, hold=True), (b"\1\1\0\0", 2))
        self.assertEqual([self.domain.exists_one(key) for key in keys], [1, 1, 0, 1])

    def test_more_keys_than_one_call_takes(self):
        self.put(10)
        keys = keys_of(10) * 7000
        self.assertEqual(self.domain.exists(keys)[1], 70000)
        keys[69999] = b"no"
        statuses, leading = self.domain.exists(keys)
        self.assertEqual((len(statuses), statuses.count(1), leading), (70000, 69999, 69999))
        keys[3] = b"no"
        self.assertEqual(self.domain.exists(keys, prefix=True), (b"\1" * 3 + bytes(69997), 3))

    def test_remove_clear_and_stats(self):
        self.put(5)
        self.domain.touch(keys_of(9))
        self.assertEqual(self.domain.remove(keys_of(2, 4)), b"\1\0")
        self.assertEqual(self.domain.exists(keys_of(5))[1], 4)
        self.assertEqual(self.domain.stats()["objects"], 4)
        self.domain.remove(keys_of(1), erase=True)
        self.domain.clear()
        self.assertEqual(self.domain.exists(keys_of(5))[0], bytes(5))
        self.assertEqual(self.store.stats()["bytes"], 0)

    def test_list_then_events(self):
        self.put(3)
        listing = self.domain.list()
        reader = self.domain.events(listing.sequence)
        listed = {key: size for keys, sizes in listing for key, size in zip(keys, sizes)}
        self.assertEqual(listed, dict.fromkeys(keys_of(3), VALUE))
        self.assertEqual([*reader], [])
        self.put(2, 3)
        self.domain.remove(keys_of(1))
        self.domain.clear()
        runs = [*reader]
        self.assertEqual([(kind, reason, sorted(keys)) for kind, reason, keys in runs],
                         [(c.EVENT_STORED, 0, keys_of(2, 3)),
                          (c.EVENT_REMOVED, c.REMOVED_DELETED, keys_of(1)),
                          (c.EVENT_CLEARED, 0, [b""])])
        self.assertFalse(reader.missed)
        self.assertEqual([*reader], [])
        early = self.domain.events(0)
        for _ in early:
            pass
        self.assertTrue(early.missed)
        early.restart(self.domain.list().sequence)
        self.assertEqual(([*early], early.missed), ([], False))


class Operations(Case):
    def test_submit_and_poll(self):
        source, back = Memory(4, fill=value_of), Memory(4)
        number = self.domain.put_submit(keys_of(4), source.addresses, VALUE, user="stored")
        done, = self.completions(1)
        self.assertEqual((done.operation, done.user, done.done_count, done.status),
                         (number, "stored", 4, abi.OK))
        self.domain.get_submit([*keys_of(3), b"no"], back.addresses, VALUE, user=("any", 1))
        done, = self.completions(1)
        self.assertEqual((done.user, done.done_count, done.status, [*done.statuses]),
                         (("any", 1), 3, abi.PENDING, [1, 1, 1, 0]))
        self.assertEqual(back.value(2), value_of(2))
        self.assertEqual(self.domain.poll(), [])

    def test_memory_lives_until_the_completion(self):
        memory = Memory(1, fill=value_of)
        alive = weakref.ref(memory)
        self.domain.put_submit(keys_of(1), memory.addresses, VALUE, keep=memory)
        del memory
        gc.collect()
        self.assertIsNotNone(alive())
        self.completions(1)
        gc.collect()
        self.assertIsNone(alive())

    def test_an_eventfd_is_written_for_each_completion(self):
        fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.addCleanup(os.close, fd)
        self.domain.event_fd_set(fd)
        memory = Memory(2, fill=value_of)
        for i in range(2):
            self.domain.put_submit([b"%d" % i], memory.addresses[i:i + 1], VALUE)
        told, end = 0, time.monotonic() + 30
        while told < 2 and time.monotonic() < end:
            if select.select([fd], [], [], 1)[0]:
                told += os.eventfd_read(fd)
        self.assertEqual(told, 2)
        self.assertEqual(len(self.completions(2)), 2)
        self.domain.event_fd_set(-1)

    def test_cancel_of_what_has_ended(self):
        memory = Memory(1, fill=value_of)
        number = self.domain.put_submit(keys_of(1), memory.addresses, VALUE)
        self.completions(1)
        self.assertFalse(self.domain.cancel(number))

    def test_an_error_of_submit_keeps_nothing(self):
        with self.assertRaises(Error):
            self.domain.put_submit([b""], [1], VALUE, keep=self)
        self.assertEqual(self.store._submitted, {})

    def test_closing_a_domain_of_two_openers_keeps_operations(self):
        again = self.store.domain(b"model and layout")
        memory = Memory(1, fill=value_of)
        self.domain.put_submit(keys_of(1), memory.addresses, VALUE, user=1)
        again.close()
        self.assertEqual([done.user for done in self.completions(1)], [1])
        self.domain.put_submit(keys_of(1), memory.addresses, VALUE)
        self.domain.close()
        self.assertEqual(self.store._submitted, {})

    def test_threads(self):
        failures = []

        def work(seed):
            chance, domain = random.Random(seed), self.store.domain(b"threads")
            try:
                for _ in range(60):
                    first = chance.randrange(40)
                    keys = keys_of(4, first)
                    if chance.random() < .5:
                        memory = Memory(4, fill=lambda i, first=first: value_of(first + i))
                        ok = min(domain.put(keys, memory.addresses, VALUE)) > 0
                    else:
                        memory = Memory(4)
                        statuses = domain.get(keys, memory.addresses, VALUE)
                        ok = all(memory.value(i) == value_of(first + i)
                                 for i, status in enumerate(statuses) if status == c.KEY_DONE)
                    domain.exists_one(keys[0])
                    if not ok:
                        failures.append((seed, first))
            except Exception as error:  # the assertion is in the main thread
                failures.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


class Opening(Case):
    def test_the_next_open_finds_them(self):
        self.put(4)
        self.store.close()
        self.open()
        self.assert_stored(4)

    def test_a_second_open_shares_the_objects(self):
        self.put(4)
        self.open()  # the first one is closed at the end
        self.assert_stored(4)

    def test_beside_one_writer_a_second_open_is_locked(self):
        self.store.close()
        config = {"path": self.folder.name, "disk_bytes": "64MiB", "store": {"writers": "one"}}
        self.store = Objects(config)
        with self.assertRaises(Error) as caught:
            Objects(config)
        self.assertEqual((caught.exception.status, caught.exception.name),
                         (abi.E_LOCKED, "SPEC_E_LOCKED"))
        self.assertIn("SPEC_E_LOCKED", str(caught.exception))

    def test_a_wrong_key_of_the_configuration_is_named(self):
        with self.assertRaises(Error) as caught:
            Objects({"path": self.folder.name, "disk_bites": 1})
        self.assertEqual(caught.exception.name, "SPEC_E_CONFIG")
        self.assertIn("disk_bites", str(caught.exception))

    def test_a_closed_store_refuses_calls(self):
        self.store.close()
        self.store.close()
        for call in (lambda: self.domain.exists(keys_of(1)), self.domain.poll,
                     lambda: self.domain.exists_one(b"k"), lambda: self.store.domain(b"d"),
                     self.store.stats, self.domain.list):
            with self.assertRaises(Error) as caught:
                call()
            self.assertEqual(caught.exception.status, abi.E_INVALID)
        self.domain.close()

    def child(self, code, beside=False):
        """beside: this process keeps the store open."""
        if not beside:
            self.store.close()
        return subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path[:0] = {[HERE, os.path.dirname(HERE)]}\n"
             f"folder = {self.folder.name!r}\nimport os, signal\nfrom test_objects import *\n"
             "store = Objects({'path': folder, 'disk_bytes': '64MiB'})\n"
             "domain = store.domain(b'model and layout')\n" + code], check=False)

    def test_what_was_stored_survives_kill_9(self):
        done = self.child("m = Memory(8, fill=value_of)\n"
                          "assert set(domain.put(keys_of(8), m.addresses, VALUE)) == {1}\n"
                          "os.kill(os.getpid(), signal.SIGKILL)")
        self.assertEqual(done.returncode, -signal.SIGKILL)
        self.open()
        self.assert_stored(8)

    def test_another_process_stores_and_removes(self):
        self.put(8)
        events = self.domain.events(self.domain.list().sequence)
        done = self.child("m = Memory(8, fill=lambda i: value_of(8 + i))\n"
                          "assert domain.exists(keys_of(8))[1] == 8\n"
                          "assert set(domain.put(keys_of(8, 8), m.addresses, VALUE)) == {1}\n"
                          "assert domain.remove(keys_of(4)) == bytes([1] * 4)\n"
                          "os.kill(os.getpid(), signal.SIGKILL)", beside=True)
        self.assertEqual(done.returncode, -signal.SIGKILL)
        told, end = {}, time.monotonic() + 60
        while len(told.get(c.EVENT_REMOVED, ())) < 4 and time.monotonic() < end:
            for kind, reason, keys in events:
                told.setdefault(kind, []).extend((reason, key) for key in keys)
            time.sleep(.01)
        self.assertFalse(events.missed)
        self.assertEqual({kind: sorted(keys) for kind, keys in told.items()}, {
            c.EVENT_STORED: [(0, key) for key in keys_of(8, 8)],
            c.EVENT_REMOVED: [(c.REMOVED_ELSEWHERE, key) for key in keys_of(4)]})
        self.assertEqual(self.domain.exists(keys_of(4))[0], bytes(4))
        self.assert_stored(12, 4)

    def test_a_store_that_nobody_closed_ends_with_its_process(self):
        done = self.child("m = Memory(64, fill=value_of)\n"
                          "domain.put_submit(keys_of(64), m.addresses, VALUE, keep=m)\n"
                          "del m, domain, store")
        self.assertEqual(done.returncode, 0)

    def test_a_process_ends_while_a_thread_of_it_waits_in_a_call(self):
        done = self.child("import threading\n"
                          "threading.Thread(target=domain.poll, args=(60,), daemon=True).start()\n"
                          "while not store._running:\n    time.sleep(.01)")
        self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
