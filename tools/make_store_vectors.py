#!/usr/bin/env python3
"""Makes the vectors of docs/reference/store-format.md: prints the table of tags, and
writes the layers and the log that tests/data/store holds. Written after that page alone: it shares
nothing with store/ but libxxhash.

    python3 tools/make_store_vectors.py            prints the table
    python3 tools/make_store_vectors.py --write    writes tests/data/store/*.bin as well
"""
import ctypes
import pathlib
import struct
import sys

U64 = (1 << 64) - 1
LAYERS, ROWS, K_BYTES, PROBE_BYTES, POSITION, KEY = 2, 10, 16, 6, 60, 5
CHUNK, COPY = 64, 0x0102030405060708
DIGEST = bytes(range(1, 17))

xxhash = ctypes.CDLL("libxxhash.so.0")
xxhash.XXH3_64bits_withSeed.restype = ctypes.c_uint64
xxhash.XXH3_64bits_withSeed.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]


def xxh3(data, seed=0):
    return xxhash.XXH3_64bits_withSeed(data, len(data), seed)


def tag(digest, piece_hash, copy, layer, part, position, data):
    base = xxh3(digest + piece_hash + struct.pack("<QII", copy, layer, part))
    x = (base + position * 0x9E3779B97F4A7C15) & U64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & U64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & U64
    return xxh3(data, x ^ (x >> 31))


def table():
    digest, piece_hash = bytes(range(16)), bytes(range(16, 32))
    data = bytes((7 * i + i // 251) % 256 for i in range(16384))
    for copy, layer, part, position, count in (
            (0, 0, 0, 0, 16), (1, 0, 0, 0, 16), (0, 0, 0, 0, 1024),
            (0x0102030405060708, 3, 1, 77, 768), (1 << 63, 31, 2, 4000000000, 16384),
            (U64, 11, 3, 4095, 192), (77, 5, 4, 128, 1000)):
        found = tag(digest, piece_hash, copy, layer, part, position, data[:count])
        print(f"| 0x{copy:x} | {layer} | {part} | {position:,} | {count:,} | 0x{found:016x} |")


# ---- Layers: rows and hashes as tests/unit/store/store_fixture.c has them ------------------------

def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & U64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & U64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & U64
    return x ^ (x >> 31)


def row_of(layer, position):
    word, out = mix(KEY ^ mix(layer * 1000003 + position)), b""
    while len(out) < 2 * K_BYTES:
        word = (word * 6364136223846793005 + 1442695040888963407) & U64
        out += struct.pack("<Q", word)
    return out


def hash_of(position):
    return struct.pack("<QQ", KEY, mix(KEY + position))


def up(value, multiple):
    return -(-value // multiple) * multiple


def layer_bytes(layer, is_split):
    positions = range(POSITION, POSITION + ROWS)
    pieces = [[p for p in positions if p < CHUNK], [p for p in positions if p >= CHUNK]]
    probes = probe_tags = tags = rows = b""
    for piece in pieces:
        piece_hash = hash_of(piece[-1] + 1)
        for position in piece:
            row = row_of(layer, position)
            k, v = row[:K_BYTES], row[K_BYTES:]

            def put(part, data):
                return struct.pack("<Q", tag(DIGEST, piece_hash, COPY, layer, part, position, data))

            probes += k[:PROBE_BYTES]
            probe_tags += put(3, k[:PROBE_BYTES])
            tags += put(1, k) + put(2, v) if is_split else put(0, row)
        rows_of = [row_of(layer, position) for position in piece]
        if is_split:
            rows += b"".join(r[:K_BYTES] for r in rows_of) + b"".join(r[K_BYTES:] for r in rows_of)
        else:
            rows += b"".join(rows_of)
    lead = probes.ljust(up(len(probes), 8), b"\0") + probe_tags + tags
    lead = lead.ljust(up(len(lead), 64), b"\0")
    return (lead + rows).ljust(up(len(lead + rows), 64), b"\0")


# ---- A log: frames of format 4, then of format 5 -----------------------------------------------

def log_bytes():
    """Payloads are numbers from 1 on and a word; 5 is torn, 6 lost its race, 7 is a reset."""
    seed = xxh3(bytes(range(16)) + struct.pack("<II", 2, 8))
    chain, out, resets = seed, b"", 0

    def numbered(number):
        return struct.pack("<I", number) + b" record"

    def frame(number, place):
        payload = numbered(number)
        head = b"SCL2" + struct.pack("<IQQ", len(payload), place | resets << 48, chain)
        return head + struct.pack("<Q", xxh3(payload, xxh3(head, seed))) + payload

    for sequence in (1, 2):
        payload = numbered(sequence)
        head = b"SCL1" + struct.pack("<IQ", len(payload), sequence)
        chain = xxh3(payload, xxh3(head, chain))
        out += head + struct.pack("<Q", chain) + payload
    for number in (3, 4, 7, 8):
        if number == 7:
            lost = frame(6, len(out))
            out += frame(5, len(out))[:-3] + lost
        resets += number == 7
        made = frame(number, len(out))
        chain = struct.unpack_from("<Q", made, 24)[0]
        out += made
    return out


def main():
    table()
    if sys.argv[1:] != ["--write"]:
        return
    folder = pathlib.Path(__file__).resolve().parent.parent / "tests/data/store"
    for name, is_split in (("paired", False), ("split", True)):
        data = b"".join(layer_bytes(layer, is_split) for layer in range(LAYERS))
        (folder / f"layers-{name}.bin").write_bytes(data)
    (folder / "log.bin").write_bytes(log_bytes())


if __name__ == "__main__":
    main()
