#!/usr/bin/env python3
"""spec-ctl on stores that minimal_host made (150 tokens, 2 layers, float32).

usage: test_ctl.py SPEC_CTL MINIMAL_HOST PLUGIN BUILD_HOST [unittest arguments]

Holds: every command's table and --json; exit codes; damage is found where it was made; nothing in
a store changes by being looked at."""
import fcntl
import glob
import hashlib
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

CTL, HOST, PLUGIN, BUILDER = "", "", "", ""
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
TOKENS = [1000 + i * i % 97 for i in range(150)]
ROW_BYTES = 2 * 3 * 16 * 4


def run(*arguments, stdin=None):
    done = subprocess.run([CTL, *arguments], capture_output=True, text=True, input=stdin,
                          check=False)
    return done.returncode, done.stdout, done.stderr


def digest(path):
    """Of every file of the store: names and bytes."""
    total = hashlib.sha256()
    for name in sorted(glob.glob(path + "/**", recursive=True)):
        total.update(name.encode())
        if os.path.isfile(name):
            with open(name, "rb") as f:
                total.update(f.read())
    return total.hexdigest()


def parse_metrics(case, text):
    """Reads Prometheus' text format strictly: HELP and TYPE before the samples of each metric, no
    sample twice."""
    samples, types, helps = {}, {}, set()
    name = None
    for line in text.splitlines():
        head = re.fullmatch(r"# (HELP|TYPE) (\w+) (.+)", line)
        if head and head.group(1) == "HELP":
            name = head.group(2)
            case.assertNotIn(name, helps)
            helps.add(name)
        elif head:
            case.assertEqual(head.group(2), name)
            types[name] = head.group(3)
        else:
            sample = re.fullmatch(r'(\w+)\{((?:\w+="(?:[^"\\]|\\.)*",?)+)\} (\d+)', line)
            case.assertIsNotNone(sample, line)
            case.assertEqual(sample.group(1), name)
            labels = tuple(sorted(
                (key, re.sub(r"\\(.)", lambda m: "\n" if m.group(1) == "n" else m.group(1), value))
                for key, value in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', sample.group(2))))
            case.assertNotIn((name, labels), samples)
            samples[name, labels] = int(sample.group(3))
    case.assertEqual(set(types), helps)
    return samples, types


class Ctl(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.root.name, "store")
        self.store()

    def tearDown(self):
        self.root.cleanup()

    def store(self, **config):
        # load_policy load: measurements are not written, so the log has the same records each time
        config = {"path": self.path, "disk_bytes": "64MiB", "segment_bytes": "1MiB",
                  "load_policy": "load", **config}
        subprocess.run([HOST, PLUGIN, json.dumps(config)], check=True, capture_output=True)

    def json(self, command, *arguments, code=0, stdin=None):
        got, out, err = run(command, "--json", *arguments, self.path, stdin=stdin)
        self.assertEqual(got, code, err)
        return json.loads(out)

    def damage(self, section="row_offset"):
        """Flips one bit of a stored row, or in the middle of another section of its layer."""
        segment = glob.glob(self.path + "/rank-*/seg-*")[0]
        dump = [json.loads(line) for line in run("dump", self.path)[1].splitlines()]
        extent = next(r for r in dump if r["type"] == "extent")
        at = extent["parts"][0]["offset"] + extent["stride"] + extent[section]
        each = {"row_offset": ROW_BYTES, "probe_offset": extent["probe_row_bytes"],
                "probe_tag_offset": 8, "tag_offset": 8}
        at += 70 * each[section] + 5  # layer 1, row 70: the second chunk
        with open(segment, "r+b") as f:
            f.seek(at)
            byte = f.read(1)
            f.seek(at)
            f.write(bytes([byte[0] ^ 0x10]))
        return at

    def test_ls_names_the_model_and_its_sizes(self):
        found = self.json("ls")
        self.assertEqual(len(found["namespaces"]), 1)
        space = found["namespaces"][0]
        self.assertEqual((space["tokens"], space["layers"], space["row_bytes"], space["epoch"]),
                         (150, 2, ROW_BYTES, 0))
        self.assertEqual(space["bytes"], 150 * 2 * ROW_BYTES)
        self.assertEqual(space["model"]["kv_heads"], 3)
        code, out, _ = run("ls", self.path)
        self.assertEqual(code, 0)
        self.assertIn(space["namespace"][:12], out)
        head, line = out.splitlines()
        self.assertEqual(line.split()[:3],
                         ["0/1", space["namespace"][:12], space["family"][:12]])
        model = f"weights {space['model']['weights']}, KV heads 3 x 16, float32"
        self.assertEqual(line[head.index("model"):], model)

    def test_stat_counts_what_lives_and_who_writes(self):
        rank = self.json("stat")["ranks"][0]
        self.assertEqual((rank["live_tokens"], rank["live_pieces"], rank["records_not_believed"]),
                         (150, 3, 0))
        self.assertEqual(rank["log_bytes"], rank["log_bytes_believed"])
        self.assertIsNone(rank["writer"])
        with open(self.path + "/rank-0000-of-0001/lock", "r+b") as lock:
            what = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            fcntl.fcntl(lock, fcntl.F_OFD_SETLK, what)
            held = self.json("stat")["ranks"][0]["writer"]
        self.assertIn("pid", held)

    def test_stat_tells_claims_and_readers(self):
        def told():
            rank = self.json("stat")["ranks"][0]
            samples, _ = self.metrics()
            of_rank = (("rank", "0"), ("store", self.path))
            numbers = (rank["segments_claimed"], rank["is_followed"])
            self.assertEqual((samples["spec_connector_segments_claimed", of_rank],
                              samples["spec_connector_readers_open", of_rank]), numbers)
            self.assertIn(f"{numbers[0]} segments are claimed; readers: "
                          f"{'yes' if numbers[1] else 'none'}", run("stat", self.path)[1])
            return numbers

        self.assertEqual(told(), (0, False))
        paths = sorted(glob.glob(self.path + "/rank-*/seg-*"))
        for name, kind, then in ((paths[0], fcntl.F_WRLCK, (1, False)),
                                 (os.path.dirname(paths[0]) + "/log", fcntl.F_RDLCK, (0, True))):
            with open(name, "r+b") as file:
                what = struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0)
                fcntl.fcntl(file, fcntl.F_OFD_SETLK, what)
                self.assertEqual(told(), then)
        self.assertEqual(told(), (0, False))

    def test_stat_tells_the_processes_that_store(self):
        def told():
            rank = self.json("stat")["ranks"][0]
            samples, _ = self.metrics()
            self.assertEqual(samples["spec_connector_members", (("rank", "0"),
                                                                ("store", self.path))],
                             len(rank["members"]))
            return rank["members"]

        self.assertEqual(told(), [])
        with open(self.path + "/rank-0000-of-0001/members", "r+b") as file:
            what = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 256, 1, 0)
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, what)
            file.seek(256)
            file.write(b'{"pid":7,"host":"h"}\n'.ljust(256, b"\0"))
            file.flush()
            self.assertEqual(told(), ['{"pid":7,"host":"h"}'])
            self.assertIn('  member    {"pid":7', run("stat", self.path)[1])
        self.assertEqual(told(), [])

    def metrics(self, *arguments, code=0):
        """{(name, labels as a sorted tuple): value} and {name: type} of --format prometheus."""
        got, out, err = run("stat", "--format", "prometheus", *arguments, self.path)
        self.assertEqual(got, code, err)
        return parse_metrics(self, out)

    def test_metrics_are_what_stat_counts(self):
        samples, types = self.metrics()
        rank = self.json("stat")["ranks"][0]
        of_rank = (("rank", "0"), ("store", self.path))
        for name, member in (("stored_tokens", "live_tokens"), ("stored_bytes", "live_bytes"),
                             ("segment_bytes", "segment_bytes"), ("log_bytes", "log_bytes"),
                             ("log_records", "records"), ("stored_pieces", "live_pieces")):
            self.assertEqual(samples["spec_connector_" + name, of_rank], rank[member], name)
        self.assertEqual(samples["spec_connector_readable", of_rank], 1)
        self.assertEqual(samples["spec_connector_writer_open", of_rank], 0)
        for name, kind in types.items():
            self.assertEqual(kind, "counter" if name.endswith("_total") else "gauge", name)

    def test_metrics_of_a_rank_that_cannot_be_read(self):
        log = self.path + "/rank-0000-of-0001/log"
        os.remove(log)
        os.mkdir(log)
        samples, _ = self.metrics(code=3)
        self.assertEqual({name: value for (name, _), value in samples.items()},
                         {"spec_connector_store_info": 1, "spec_connector_readable": 0})

    def test_labels_are_escaped(self):
        os.rename(self.path, self.path + ' "\\')
        self.path += ' "\\'
        samples, _ = self.metrics()
        self.assertTrue(all(dict(labels)["store"] == self.path for _, labels in samples))

    def test_output_replaces_a_file_in_one_step(self):
        out = os.path.join(self.root.name, "store.prom")
        with open(out, "w", encoding="utf-8") as f:
            f.write("old")
        before = os.stat(out).st_ino
        arguments = ("stat", "--format", "prometheus", "--output", out)
        self.assertEqual(run(*arguments, self.path + "-absent")[0], 3)
        with open(out, encoding="utf-8") as f:
            self.assertEqual(f.read(), "old")
        self.assertEqual(run(*arguments, self.path), (0, "", ""))
        with open(out, encoding="utf-8") as f:
            self.assertEqual(f.read(), run("stat", "--format", "prometheus", self.path)[1])
        self.assertNotEqual(os.stat(out).st_ino, before)
        self.assertEqual(os.listdir(self.root.name).count("store.prom.tmp"), 0)
        self.assertEqual(run(*arguments[:3], "--output", out + "/x", self.path)[0], 2)

    def test_formats_and_files_are_options_of_stat(self):
        self.assertEqual(run("ls", "--format", "json", self.path)[0], 2)
        self.assertEqual(run("verify", "--output", "x", self.path)[0], 2)
        code, _, err = run("stat", "--format", "xml", self.path)
        self.assertEqual((code, "text, json or prometheus" in err), (2, True))
        self.assertEqual(run("stat", "--format", "json", self.path)[1],
                         run("stat", "--json", self.path)[1])

    def test_verify_reads_every_row(self):
        found = self.json("verify")
        self.assertEqual((found["rows"], found["bad"]), (300, []))
        self.assertGreaterEqual(found["bytes"], 300 * ROW_BYTES)

    def test_verify_names_the_slab_whose_bit_was_flipped(self):
        self.damage()
        bad = self.json("verify", code=1)["bad"]
        self.assertEqual([(b["layer"], b["first_position"], b["tokens"]) for b in bad],
                         [(1, 64, 64)])
        code, out, _ = run("verify", self.path)
        self.assertEqual(code, 1)
        self.assertIn("layer 1, tokens 64 .. 128", out)

    def test_verify_reads_probe_keys_too(self):
        shutil.rmtree(self.path)
        self.store(select={"probe_heads": 2})
        self.assertEqual(self.json("stat")["ranks"][0]["tokens_with_probe_keys"], 150)
        self.assertEqual(self.json("verify")["bad"], [])
        for section in ("probe_offset", "probe_tag_offset", "tag_offset", "row_offset"):
            with self.subTest(section):
                shutil.rmtree(self.path)
                self.store(select={"probe_heads": 2})
                self.damage(section)
                bad = self.json("verify", code=1)["bad"]
                self.assertEqual([(b["layer"], b["first_position"]) for b in bad], [(1, 64)])

    def test_keys_that_were_built_later_are_counted_and_verified(self):
        shutil.rmtree(self.path)
        config = {"path": self.path, "disk_bytes": "64MiB", "segment_bytes": "1MiB",
                  "load_policy": "load"}
        after = {**config, "select": {"probe_heads": 2}}
        subprocess.run([BUILDER, PLUGIN, json.dumps(config), json.dumps(after)], check=True,
                       capture_output=True)
        rank = self.json("stat")["ranks"][0]
        self.assertEqual([rank[key] for key in ("tokens_with_probe_keys", "tokens_with_built_keys",
                                                "probe_key_bytes", "records_not_believed")],
                         [150, 150, 150 * 2 * (2 * 16 * 2 + 8), 0])
        self.assertIn("150 built later", run("stat", self.path)[1])
        self.assertEqual(self.json("verify")["bad"], [])
        dump = [json.loads(line) for line in run("dump", self.path)[1].splitlines()]
        section = next(r for r in dump if r["type"] == "section")
        self.assertEqual(section["id"], next(r for r in dump if r["type"] == "extent")["id"])
        place = section["parts"][0]
        path = glob.glob(self.path + "/rank-*")[0] + f"/seg-{place['segment']:08x}"
        for offset, each in (("probe_offset", section["probe_row_bytes"]), ("probe_tag_offset", 8)):
            with self.subTest(offset), open(path, "r+b") as f:
                at = place["offset"] + section["stride"] + section[offset] + 70 * each + 3
                f.seek(at)
                byte = f.read(1)
                f.seek(at)
                f.write(bytes([byte[0] ^ 4]))
                f.flush()
                bad = self.json("verify", code=1)["bad"]
                self.assertEqual([(b["layer"], b["first_position"]) for b in bad], [(1, 64)])
                f.seek(at)
                f.write(byte)

    def store_with_codes(self, **layered):
        """150 tokens whose codes were made when the store was opened again."""
        shutil.rmtree(self.path)
        config = {"path": self.path, "disk_bytes": "64MiB", "segment_bytes": "1MiB",
                  "load_policy": "load"}
        after = {**config, "layered": {"quantise": "yes", "bits_k": 5, **layered}}
        subprocess.run([BUILDER, PLUGIN, json.dumps(config), json.dumps(after)], check=True,
                       capture_output=True)
        dump = [json.loads(line) for line in run("dump", self.path)[1].splitlines()]
        return next(r for r in dump if r["type"] == "section")

    def test_codes_are_counted_and_dumped(self):
        codes = self.store_with_codes()
        self.assertEqual([codes[key] for key in ("id", "kind", "bits_k", "bits_v", "scale_bytes",
                                                 "k_code_bytes", "v_code_bytes")],
                         [1, 3, 5, 2, 4 * 48, 30, 12])
        self.assertEqual(codes["parts"][0]["layers"], 2)
        rank = self.json("stat")["ranks"][0]
        pages = (2 * codes["stride"] + 4095) // 4096 * 4096
        self.assertEqual([rank[key] for key in ("pieces_with_codes", "tokens_with_codes",
                                                "quantised_bytes", "code_bits",
                                                "tokens_with_built_keys",
                                                "records_not_believed")],
                         [3, 150, pages, [{"bits_k": 5, "bits_v": 2, "pieces": 3}], 0, 0])
        self.assertIn("3 of 5 bits K, 2 V", run("stat", self.path)[1])

    def test_codes_of_bits_per_channel_are_dumped_and_their_tables_verified(self):
        codes = self.store_with_codes(bit_allocation="per_channel", bits_k=4.5, bits_v=2.5)
        self.assertEqual([codes[key] for key in ("bits_k", "bits_v", "scale_bytes", "k_code_bytes",
                                                 "v_code_bytes")], [4, 2, 4 * 48, 27, 15])
        self.assertEqual(codes["form"] & 5, 5)
        found = self.json("verify")
        self.assertEqual((found["bad"], found["blocks"]), ([], 2 * 3 * 2))
        self.assertIn("3 of 4 bits K, 2 V", run("stat", self.path)[1])
        place, table = codes["parts"][0], 48 // 2
        fixed = 16 + table + codes["scale_bytes"]
        path = glob.glob(self.path + "/rank-*")[0] + f"/seg-{place['segment']:08x}"
        k_block, v_block = fixed + 64 * 27, 3 * fixed + 150 * 27 + fixed + 64 * 15  # of piece 1
        for at in (k_block + 2, k_block + 8, k_block + 8 + table - 1, k_block + 8 + table,
                   k_block + fixed + 64 * 27 - 9, v_block + 2, v_block + 8 + table // 2,
                   v_block + fixed + 64 * 15 - 1):
            with self.subTest(at), open(path, "r+b") as f:
                at += place["offset"] + codes["stride"]  # layer 1
                f.seek(at)
                byte = f.read(1)
                f.seek(at)
                f.write(bytes([byte[0] ^ 4]))
                f.flush()
                bad = self.json("verify", code=1)["bad"]
                self.assertEqual([(b["layer"], b["first_position"], b["what"]) for b in bad],
                                 [(1, 64, "codes")])
                f.seek(at)
                f.write(byte)
        self.assertEqual(self.json("verify")["bad"], [])

    def test_verify_checks_every_block_of_codes(self):
        codes = self.store_with_codes()
        found = self.json("verify")
        self.assertEqual((found["bad"], found["blocks"]), ([], 2 * 3 * 2))
        place, fixed = codes["parts"][0], 16 + codes["scale_bytes"]
        path = glob.glob(self.path + "/rank-*")[0] + f"/seg-{place['segment']:08x}"
        k_block, v_block = fixed + 64 * 30, 3 * fixed + 150 * 30 + fixed + 64 * 12  # of piece 1
        for at in (k_block, k_block + 1, k_block + 20, k_block + fixed + 64 * 30 - 9,
                   k_block + fixed + 64 * 30 - 1, v_block, v_block + fixed + 64 * 12 - 8):
            with self.subTest(at), open(path, "r+b") as f:
                at += place["offset"] + codes["stride"]  # layer 1
                f.seek(at)
                byte = f.read(1)
                f.seek(at)
                f.write(bytes([byte[0] ^ 4]))
                f.flush()
                bad = self.json("verify", code=1)["bad"]
                self.assertEqual([(b["layer"], b["first_position"], b["what"]) for b in bad],
                                 [(1, 64, "codes")])
                self.assertIn("tokens 64 .. 128", run("verify", self.path)[1])
                f.seek(at)
                f.write(byte)

    def test_verify_tells_of_a_segment_that_is_gone(self):
        os.unlink(glob.glob(self.path + "/rank-*/seg-*")[0])
        self.assertEqual(len(self.json("verify", code=1)["bad"]), 6)

    def damage_any(self, rng):
        """Cuts, overwrites, extends, removes or replaces one file of the store."""
        names = [name for name in glob.glob(self.path + "/**", recursive=True)
                 if os.path.isfile(name)]
        name = rng.choice(names)
        size = os.path.getsize(name)
        what = rng.randrange(6)
        if what == 0:
            os.truncate(name, rng.randint(0, size))
        elif what == 1:
            os.unlink(name)
        elif what == 2:
            os.unlink(name)
            os.mkdir(name)
        elif what == 3:
            strange = rng.choice(["seg-ffffffff", "log.new", "mail", "x" * 200])
            with open(os.path.join(os.path.dirname(name), strange), "wb") as f:
                f.write(rng.randbytes(rng.randint(0, 5000)))
        else:
            with open(name, "r+b") as f:
                f.seek(rng.randint(0, size + 100))
                f.write(rng.randbytes(rng.choice([1, 8, 300])))

    def test_any_damage_is_told_and_never_a_crash(self):
        rng = random.Random(1)
        whole = self.path
        for damaged in range(24):
            self.path = os.path.join(self.root.name, f"damaged-{damaged}")
            shutil.copytree(whole, self.path)
            for _ in range(rng.randint(1, 3)):
                self.damage_any(rng)
            for command in (["ls"], ["stat", "--json"], ["verify"], ["dump", "--show-tokens"]):
                code, _, err = run(*command, self.path)
                self.assertIn(code, (0, 1, 3), f"{damaged}: {command}: {err}")

    def test_dump_hides_tokens_unless_asked(self):
        lines = [json.loads(line) for line in run("dump", self.path)[1].splitlines()]
        pieces = [line for line in lines if line["type"] == "piece"]
        self.assertEqual([p["rows"] for p in pieces], [64, 64, 22])
        self.assertTrue(all("tokens" not in p for p in pieces))
        lines = [json.loads(line)
                 for line in run("dump", "--show-tokens", self.path)[1].splitlines()]
        tokens = sum((line["tokens"] for line in lines if line["type"] == "piece"), [])
        self.assertEqual(tokens, TOKENS)

    def test_nothing_shows_the_secret(self):
        with open(os.path.join(self.path, "store.msgpack"), "rb") as file:
            identity = file.read()
        at = identity.index(b"\xa6secret\xc4\x20") + 9
        secret = identity[at:at + 32]
        self.assertEqual(len(secret), 32)
        for command in (["ls"], ["ls", "--json"], ["stat"], ["stat", "--json"], ["verify"],
                        ["verify", "--json"], ["dump", "--show-tokens"], ["why"]):
            _, out, err = run(*command, self.path)
            shown = (out + err).lower().replace(" ", "")
            for part in (secret.hex(), secret[:8].hex(), secret[-8:].hex()):
                self.assertNotIn(part, shown)

    def test_a_torn_log_is_dumped_up_to_the_tear(self):
        log = self.path + "/rank-0000-of-0001/log"
        with open(log, "r+b") as f:
            f.truncate(os.path.getsize(log) - 3)
        code, out, err = run("dump", self.path)
        self.assertEqual(code, 0)
        self.assertEqual(sum('"piece"' in line for line in out.splitlines()), 2)
        self.assertIn("believed up to byte", err)

    def log_frames(self):
        """The log's path, its bytes, and where each frame begins."""
        path = self.path + "/rank-0000-of-0001/log"
        with open(path, "rb") as f:
            log = f.read()
        begins, at = [], 0
        while at < len(log):
            begins.append(at)
            at += 32 + struct.unpack_from("<I", log, at + 4)[0]
        return path, log, begins

    def test_a_damaged_record_is_restored_and_told(self):
        whole = self.json("stat")["ranks"][0]
        self.assertEqual((whole["records_damaged"], whole["log_lost_ranges"]), (0, 0))
        path, log, begins = self.log_frames()
        rng = random.Random(4)
        for begin in begins:
            for at in (begin + rng.randrange(32), begin + 32 + rng.randrange(20)):
                with open(path, "wb") as f:
                    f.write(log[:at] + bytes([log[at] ^ 1 << rng.randrange(8)]) + log[at + 1:])
                before = digest(self.path)
                found = self.json("stat")["ranks"][0]
                self.assertEqual(found["records_damaged"], 1)
                self.assertEqual(found["live_tokens"], whole["live_tokens"])
                self.assertEqual(found["log_bytes_believed"], len(log))
                self.assertEqual(self.json("verify", code=1)["damaged_records"], 1)
                for command, code in (("ls", 0), ("stat", 0), ("verify", 1)):
                    got, out, err = run(command, self.path)
                    self.assertEqual(got, code)
                    self.assertIn(f"1 damaged records were restored, the first at byte {begin}\n",
                                  err)
                    self.assertTrue(command == "ls" or "1 " in out and "restored" in out)
                self.assertEqual(digest(self.path), before)

    def test_a_record_that_cannot_be_restored_is_told(self):
        whole = self.json("stat")["ranks"][0]
        path, log, begins = self.log_frames()
        for at, lost in ((begins[-2], begins[-1] - begins[-2]), (begins[-1], 0)):
            with open(path, "wb") as f:
                f.write(log[:at + 32] + bytes(40) + log[at + 72:])
            found = self.json("stat")["ranks"][0]
            self.assertEqual(found["log_bytes_believed"], len(log) if lost else at)
            self.assertEqual((found["records_damaged"], found["log_lost_ranges"]),
                             (0, int(lost > 0)))
            self.assertEqual(found["log_lost_bytes"], lost)
            self.assertLess(found["live_tokens"], whole["live_tokens"])
            self.assertEqual(self.json("verify", code=1 if lost else 0)["lost_ranges"],
                             int(lost > 0))
            for command in ("ls", "stat", "verify"):
                self.assertEqual("are damaged: their records are lost"
                                 in run(command, self.path)[2], lost > 0)

    def test_why_names_the_first_field_that_differs(self):
        self.store(chunk_tokens=32)
        found = self.json("why", code=1)
        self.assertEqual(len(found), 1)
        self.assertEqual((found[0]["field"], found[0]["value"], found[0]["other_value"]),
                         ("chunk_tokens", 32, 64))
        self.assertIn("chunk_tokens is 32 here and 64 there", run("why", self.path)[1])

    def why_tokens(self, tokens, code):
        return self.json("why", "--tokens", "-", code=code, stdin=" ".join(map(str, tokens)))

    def test_why_names_the_first_token_that_parts(self):
        self.assertEqual(self.why_tokens(TOKENS, 0)["stored"], 150)
        for at in (0, 1, 63, 64, 100, 149):
            other = list(TOKENS)
            other[at] = 5
            found = self.why_tokens(other, 1)
            self.assertEqual((found["stored"], found["token"], found["stored_token"]),
                             (at, 5, TOKENS[at]))
        longer = self.why_tokens(TOKENS + [9], 1)
        self.assertEqual((longer["stored"], longer["stored_token"]), (150, None))
        code, out, _ = run("why", "--tokens", "-", self.path, stdin="[1000, 1001, 7]")
        self.assertEqual(code, 1)
        self.assertIn("at token 2 the prompt has 7, what is stored has 1004", out)

    def test_looking_changes_nothing(self):
        before = digest(self.path)
        for command in ("ls", "stat", "verify", "dump", "why"):
            run(command, self.path)
        self.assertEqual(digest(self.path), before)

    def test_bench_device_cleans_up(self):
        code, out, err = run("bench-device", "--json", "--only", "pread", "--bytes", "16777216",
                             self.path)
        self.assertEqual(code, 0, err)
        found = json.loads(out)[0]
        self.assertEqual(found["backend"], "pread")
        self.assertTrue(all(r["random_bytes_per_s"] > 0 for r in found["reads"]))
        self.assertEqual(glob.glob(self.path + "/spec-ctl-bench*"), [])

    def test_wrong_usage_is_said_with_what_was_expected(self):
        for words in ((), ("frobnicate", self.path), ("ls",), ("ls", "--rank", "x", self.path),
                      ("ls", self.path, "more"), ("ls", "--no-such-option", self.path),
                      ("bench-device", "--only", "tape", self.path)):
            code, _, err = run(*words)
            self.assertEqual(code, 2, words)
            self.assertNotEqual(err, "")

    def files_with(self, what):
        """Files of the store that have these bytes somewhere."""
        found = []
        for name in glob.glob(self.path + "/**", recursive=True):
            if os.path.isfile(name):
                with open(name, "rb") as f:
                    if what in f.read():
                        found.append(name)
        return found

    def row(self, layer=1, row=70):
        """Bytes of a stored row."""
        dump = [json.loads(line) for line in run("dump", self.path)[1].splitlines()]
        extent = next(r for r in dump if r["type"] == "extent")
        with open(glob.glob(self.path + "/rank-*/seg-*")[0], "rb") as f:
            f.seek(extent["parts"][0]["offset"] + layer * extent["stride"] + extent["row_offset"] +
                   row * ROW_BYTES)
            return f.read(64)

    def test_erase_leaves_no_byte_of_everything(self):
        tokens = struct.pack("<8I", *TOKENS[70:78])
        row = self.row()
        self.assertTrue(self.files_with(tokens) and self.files_with(row))
        found = self.json("erase", "--all")
        self.assertEqual((found["ranks_erased"], found["ranks_erased_by_their_process"]), (1, 0))
        self.assertGreater(found["overwritten_bytes"], 300 * ROW_BYTES)
        self.assertEqual(self.files_with(tokens) + self.files_with(row), [])
        self.assertEqual(self.json("ls")["namespaces"][0]["tokens"], 0)
        self.assertEqual(self.json("erase", "--all")["overwritten_bytes"], 0)
        self.store()
        self.assertEqual(self.json("ls")["namespaces"][0]["tokens"], 150)
        self.assertEqual(self.json("verify")["bad"], [])

    def test_erase_of_a_salt_leaves_what_has_another(self):
        self.assertEqual(self.json("erase", "--salt", "tenant a")["ranks_erased"], 1)
        self.assertEqual(self.json("ls")["namespaces"][0]["tokens"], 150)
        self.assertEqual(self.json("verify")["bad"], [])

    def test_erase_waits_for_the_process_that_has_the_rank(self):
        tokens = struct.pack("<8I", *TOKENS[70:78])
        with open(self.path + "/rank-0000-of-0001/lock", "r+b") as lock:
            what = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            fcntl.fcntl(lock, fcntl.F_OFD_SETLK, what)
            code, _, err = run("erase", "--all", "--timeout", "0", self.path)
        self.assertEqual(code, 3)
        self.assertIn("not erased after 0 s", err)
        self.assertEqual(os.listdir(self.path + "/erase"), ["0000-of-0001-all"])
        self.assertTrue(self.files_with(tokens))
        self.assertEqual(run("erase", "--salt", "x", self.path)[0], 0)  # carries both out
        self.assertEqual(os.listdir(self.path + "/erase"), ["0000-of-0001-done"])
        self.assertEqual(self.files_with(tokens), [])

    def test_erase_is_told_what(self):
        for words in ((), ("--all", "--salt", "x"), ("--salt", ""), ("--timeout", "x", "--all")):
            code, _, err = run("erase", *words, self.path)
            self.assertEqual(code, 2, words)
            self.assertNotEqual(err, "")
        self.assertFalse(os.path.exists(self.path + "/erase"))

    def test_each_command_has_help_of_its_own(self):
        everything = run("--help")[1]
        commands = re.findall(r"^  ([a-z][a-z-]*) +\S", everything, re.M)
        self.assertEqual(commands, ["ls", "stat", "objects", "verify", "dump", "why", "erase",
                                    "bench-device"])
        options = re.findall(r"^  (--[a-z-]+)", everything, re.M)
        seen = set()
        for command in commands:
            code, out, err = run(command, "--help")
            self.assertEqual((code, err), (0, ""))
            self.assertEqual(re.findall(r"^  ([a-z][a-z-]*) +\S", out, re.M), [command])
            listed = re.findall(r"^  (--[a-z-]+)", out, re.M)
            self.assertIn("--json", listed)
            seen.update(listed)
        self.assertEqual(seen, set(options))
        self.assertNotIn("--tokens", run("ls", "--help")[1])

    def test_it_says_its_version(self):
        with open(os.path.join(ROOT, "python", "pyproject.toml"), encoding="utf8") as f:
            product = re.search(r'^version = "(.*)"', f.read(), re.M).group(1)
        code, out, err = run("--version")
        self.assertEqual((code, err), (0, ""))
        stored = self.json("stat")["format"]
        self.assertRegex(out, rf"^spec-ctl {re.escape(product)}, ABI \d+\.\d+, "
                         rf"store format {stored}\n$")

    def test_a_folder_that_is_no_store_is_named(self):
        for command in ("ls", "stat", "verify", "dump", "why"):
            code, out, err = run(command, self.root.name)
            self.assertEqual((code, out), (3, ""))
            self.assertEqual(err.count("\n"), 1)
            self.assertIn(f"spec-ctl: {self.root.name} is no store: it has no store.msgpack", err)
        code, _, err = run("ls", self.path + "/store.msgpack")
        self.assertEqual(code, 3)
        self.assertIn("Not a directory, expected a store's directory", err)

    def test_what_is_no_store_is_said(self):
        for words in (("ls", self.root.name), ("stat", self.path + "/absent"),
                      ("verify", "--rank", "7", self.path),
                      ("why", "--tokens", "/no/such/file", self.path)):
            code, _, err = run(*words)
            self.assertEqual(code, 3, words)
            self.assertIn("spec-ctl: ", err)


if __name__ == "__main__":
    CTL, HOST, PLUGIN, BUILDER = sys.argv[1:5]
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
