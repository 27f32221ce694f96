#!/usr/bin/env python3
"""The package without vLLM: rows stored and loaded through it, leases between two processes' roles,
errors as exceptions, threads on every core. SPEC_CONNECTOR_LIBRARY names the plugin."""
import array
import ctypes
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from spec_connector import Connector, Error, Model, abi, identity  # noqa: E402
from spec_connector.connector import Identity  # noqa: E402

LAYERS, HEADS, SIZE, TOKENS = 3, 2, 16, 200
ROW = HEADS * SIZE * 2


def ids(seed, count=TOKENS):
    return array.array("I", [seed * 1000 + i for i in range(count)]).tobytes()


def rows(seed, layer, part, count=TOKENS):
    return b"".join(((seed * 7919 + layer * 31 + part * 17 + i) % 65536).to_bytes(2, "little")
                    * (ROW // 2) for i in range(count))


class Rows:
    """K and V of one layer, packed."""

    def __init__(self, count, k=b"", v=b""):
        self.k = ctypes.create_string_buffer(k or bytes(count * ROW), count * ROW)
        self.v = ctypes.create_string_buffer(v or bytes(count * ROW), count * ROW)
        self.memory = abi.Memory(
            dtype=abi.DTYPE_F16, k_base=ctypes.addressof(self.k), v_base=ctypes.addressof(self.v),
            k_bytes=count * ROW, v_bytes=count * ROW, token_stride_bytes=ROW,
            head_stride_bytes=SIZE * 2)


class Package(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.config = {"path": os.path.join(self.folder.name, "store"), "disk_bytes": "64MiB",
                       "segment_bytes": "1MiB"}
        self.model = Model(LAYERS, HEADS, HEADS, SIZE, abi.DTYPE_F16, b"test")

    def tearDown(self):
        self.folder.cleanup()

    def open(self, **more):
        return Connector(self.config, self.model, **more)

    def store(self, conn, seed, identity=Identity()):
        found = conn.lookup(ids(seed), identity=identity)
        for layer in range(LAYERS):
            source = Rows(TOKENS, rows(seed, layer, 0), rows(seed, layer, 1))
            step = (abi.StoreParams * 1)(abi.StoreParams(
                request=found.request, layer=layer, token_count=TOKENS,
                memory=ctypes.pointer(source.memory)))
            tickets = conn.store(step, want_tickets=True)
            self.assertEqual(tickets[0] != 0, layer + 1 == LAYERS)
        self.assertEqual(conn.wait(tickets), [abi.OK])
        conn.release(found.request)

    def check(self, conn, request, seed, count):
        for layer in range(LAYERS):
            target = Rows(count)
            item = (abi.Important * 1)(abi.Important(request=request, layer=layer,
                                                     destination=ctypes.pointer(target.memory)))
            ticket = conn.submit(item)
            self.assertEqual(conn.wait_for(ticket), abi.OK)
            self.assertEqual(item[0].row_count, count)
            self.assertEqual(target.k.raw, rows(seed, layer, 0, count))
            self.assertEqual(target.v.raw, rows(seed, layer, 1, count))

    def test_rows_come_back(self):
        with self.open() as conn:
            self.store(conn, 1)
            found = conn.lookup(ids(1))
            self.assertEqual((found.matched_tokens, found.stored_tokens), (TOKENS - 1, TOKENS))
            self.check(conn, found.request, 1, TOKENS - 1)
            conn.release(found.request)
            self.assertEqual(conn.stats()["stored_tokens"], TOKENS)

    def test_a_bypass_ends_when_it_is_told_or_in_time(self):
        lines = []
        with self.open(log=lambda level, form, *words: lines.append(form % words)) as conn:
            self.store(conn, 4)
            for end in (lambda: conn.bypass(0), lambda: conn.bypass(0.02)):
                conn.bypass()
                self.assertEqual(conn.lookup(ids(4), peek=True).matched_tokens, 0)
                self.assertEqual(conn.stats()["bypassing"], 1)
                end()
                end_s = time.monotonic() + 60
                while conn.stats()["bypassing"]:
                    self.assertLess(time.monotonic(), end_s, "the bypass does not end")
                    time.sleep(0.01)
                self.assertEqual(conn.lookup(ids(4), peek=True).matched_tokens, TOKENS - 1)
            self.assertEqual(conn.stats()["bypassed_lookups"], 2)
        self.assertTrue(any(line.startswith("bypass ends") for line in lines), lines)

    def test_what_is_erased_is_a_miss_and_then_gone(self):
        with self.open() as conn:
            self.store(conn, 7)
            conn.erase(b"another's salt")
            end_s = time.monotonic() + 60
            while conn.stats()["erasing"]:
                self.assertLess(time.monotonic(), end_s, "nothing is erased")
                time.sleep(0.01)
            self.assertEqual(conn.lookup(ids(7), peek=True).matched_tokens, TOKENS - 1)
            conn.erase()
            self.assertEqual(conn.lookup(ids(7), peek=True).matched_tokens, 0)
            while conn.stats()["erasing"]:
                self.assertLess(time.monotonic(), end_s, "nothing is erased")
                time.sleep(0.01)
            self.assertEqual(conn.stats()["erased"], 2)

    def test_a_reader_peeks_and_the_writer_attaches(self):
        self.config["lease_ns_max"] = 3600 * 10**9  # however long a thread stops
        with self.open(role=abi.ROLE_WRITER) as writer, self.open(role=abi.ROLE_READER) as reader:
            self.store(writer, 2)
            end_s = time.monotonic() + 60  # 100 ms by contract, where its threads get to run
            while True:
                found = reader.lookup(ids(2), peek=True, multiple_of=32)
                if found.matched_tokens >= 192:
                    break
                self.assertLess(time.monotonic(), end_s, "the reader does not follow")
                time.sleep(0.01)
            self.assertEqual((found.request, found.matched_tokens), (0, 192))
            attached = writer.attach(found.lease, from_token=64)
            target = Rows(128)
            item = (abi.Important * 1)(abi.Important(request=attached.request, layer=1,
                                                     destination=ctypes.pointer(target.memory)))
            self.assertEqual(writer.get(item), abi.OK)
            self.assertEqual(target.k.raw, rows(2, 1, 0)[64 * ROW:192 * ROW])
            writer.release(attached.request)

    def test_lines_of_the_plugin_are_logged(self):
        lines = []

        def log(level, form, *words):
            lines.append((level, form % words))
        with self.open(), self.open(log=log, log_level=abi.LOG_INFO) as reader:
            reader.stats()
        self.assertTrue([text for level, text in lines
                         if level == logging.INFO and text.startswith("opens as a reader")], lines)

    def test_identity_parts_prompts(self):
        one = Identity(salt=b"a", lora=b"x", extra=((1, 10, 5, b"image"),))
        with self.open() as conn:
            self.store(conn, 3, one)
            self.assertEqual(conn.lookup(ids(3), peek=True, identity=one).matched_tokens,
                             TOKENS - 1)
            for other, matched in ((Identity(), 0), (Identity(b"b", b"x", one.extra), 0),
                                   (Identity(b"a", b"y", one.extra), 0),
                                   (Identity(b"a", b"x", ((1, 10, 5, b"other"),)), 10)):
                self.assertEqual(conn.lookup(ids(3), peek=True, identity=other).matched_tokens,
                                 matched)
            conn.reset()
            self.assertEqual(conn.lookup(ids(3), peek=True, identity=one).matched_tokens, 0)

    def weights(self, folder, size, changed=None, full=False):
        """The identity of a sparse safetensors file with a byte changed, and one beside it."""
        header = json.dumps({"__metadata__": {"format": "pt"}, **{
            name: {"dtype": "U8", "shape": [end - first], "data_offsets": [first, end]}
            for name, first, end in (("a", 0, 30 << 20), ("b", 30 << 20, (30 << 20) + 7),
                                     ("c", (30 << 20) + 7, size))}}).encode()
        path = os.path.join(folder, "model.safetensors")
        with open(path, "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(file.tell() + size)
            if changed is not None:
                file.seek(8 + len(header) + changed)
                file.write(b"x")
        return identity.weights_id(folder, {"dtype": "bf16"}, full)

    def test_weights_that_were_trained_further_are_others(self):
        small, large = 40 << 20, 80 << 20
        with tempfile.TemporaryDirectory() as folder:
            seen = {self.weights(folder, size) for size in (small, large)}
            places = [(small, 17 << 20), (large, 100), (large, large - 100),
                      (large, (30 << 20) + 3), (large, 44 << 20)]  # the last: a page of each 4 MiB
            for size, changed in places:
                seen.add(self.weights(folder, size, changed))
            self.assertEqual(len(seen), 2 + len(places))
            self.assertIn(self.weights(folder, large, 43 << 20), seen)  # this takes "full"
            seen |= {self.weights(folder, large, changed, True) for changed in (None, 43 << 20)}
            self.assertEqual(len(seen), 4 + len(places))

    def test_weights_whose_header_is_none_are_read_all_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            seen = set()
            for text in (b"[]", b"{", b'{"a": 1}', b'{"a": {"data_offsets": ["x"]}}',
                         b'{"a": {"data_offsets": [-99999999999]}}', b"\xff", b"[" * 99999,
                         b'{"a": {"data_offsets": [1e999]}}', b'{"a": {"data_offsets": [%s]}}'
                         % (b"9" * 9999)):
                path = os.path.join(folder, "model.safetensors")
                with open(path, "wb") as file:
                    file.write(len(text).to_bytes(8, "little") + text)
                    file.truncate(65 << 20)
                seen.add(identity.weights_id(folder, {}))
            self.assertEqual(len(seen), 9)

    def test_weights_of_a_million_tensors_are_read_once(self):
        tensors = ",".join(f'"{i}":{{"data_offsets":[{i},{i + 1}]}}' for i in range(10**6))
        with (tempfile.TemporaryDirectory() as folder,
              mock.patch.object(identity.os, "pread", side_effect=AssertionError("page by page"))):
            with open(os.path.join(folder, "model.safetensors"), "wb") as file:
                file.write((len(tensors) + 2).to_bytes(8, "little") + f"{{{tensors}}}".encode())
                file.truncate(65 << 20)
            identity.weights_id(folder, {})

    def test_weights_that_are_no_files_are_refused(self):
        for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path),
                     lambda path: os.symlink("/nowhere", path)):
            with tempfile.TemporaryDirectory() as folder:
                make(os.path.join(folder, "model.bin"))
                self.assertRaisesRegex(ValueError, "is not a file", identity.weights_id, folder, {})

    def test_weights_that_are_cut_short_meanwhile_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            self.weights(folder, 4096)
            with mock.patch.object(identity.os.path, "getsize", return_value=9999):
                self.assertRaisesRegex(ValueError, "cut short", identity.weights_id, folder, {})

    def test_errors_are_exceptions_with_their_words(self):
        self.config["chunk_tokens"] = 17
        with self.assertRaisesRegex(Error, "chunk_tokens"):
            self.open()
        del self.config["chunk_tokens"]
        with self.open() as conn:
            with self.assertRaises(Error) as caught:
                conn.attach(b"x" * 64)
            self.assertLess(caught.exception.status, 0)
            with self.assertRaises(Error):
                conn.lookup(b"")
        conn.close()  # again: nothing

    def test_threads_may_run_on_every_core(self):
        everywhere = set()  # all that this process may have, also where it is bound to less itself
        before = set(os.listdir("/proc/self/task"))
        bound = []

        def run():
            os.sched_setaffinity(0, range(os.cpu_count()))
            everywhere.update(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {min(everywhere)})
            with self.open():
                for task in set(os.listdir("/proc/self/task")) - before:
                    try:
                        cores = os.sched_getaffinity(int(task))
                    except ProcessLookupError:
                        continue  # the thread that opened it is ending
                    if int(task) != threading.get_native_id():
                        bound.append(cores)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        self.assertTrue(bound)
        self.assertTrue(all(cores == everywhere for cores in bound))

    def test_importing_the_package_imports_nothing_else(self):
        done = subprocess.run(
            [sys.executable, "-c", "import sys, spec_connector\n"
             "print([m for m in ('vllm', 'torch', 'numpy') if m in sys.modules])"],
            capture_output=True, text=True, check=True, cwd=os.path.dirname(HERE))
        self.assertEqual(done.stdout.strip(), "[]")


if __name__ == "__main__":
    unittest.main()
