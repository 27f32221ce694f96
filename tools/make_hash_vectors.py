#!/usr/bin/env python3
"""Writes tests/data/hash-vectors.json: frozen vectors of docs/hashing-spec.md.

An implementation of its own, from the specification alone; the C code is compared with its output.
    python3 -m venv build/venv && build/venv/bin/pip install xxhash==3.5.0
    build/venv/bin/python tools/make_hash_vectors.py > tests/data/hash-vectors.json
Tokens are not listed: token i of a case is mix(seed + i) & mask, which both sides compute.
"""
import json
import struct

import xxhash

U64, I64, F64, BYTES, TEXT, HASH = 1, 2, 3, 4, 5, 6


def hash128(data):
    """16 bytes: low half, high half, little-endian."""
    value = xxhash.xxh3_128_intdigest(data)
    return struct.pack("<QQ", value & (2**64 - 1), value >> 64)


def digest(name, fields):
    out = b"sc-dig-1" + struct.pack("<Q", len(name)) + name.encode()
    for tag, kind, data in fields:
        out += struct.pack("<IIQ", tag, kind, len(data)) + data
    return hash128(out + struct.pack("<Q", len(fields)))


def root_of(family, epoch, salt, lora):
    return digest("chain-root", [(1, HASH, family), (2, BYTES, salt), (3, BYTES, lora),
                                 (4, U64, struct.pack("<Q", epoch))])


def marks_of(keys):
    at = {}
    for kind, first, count, value in keys:
        at.setdefault(first, []).append(digest("extra-key", [
            (1, U64, struct.pack("<Q", kind)), (2, U64, struct.pack("<Q", count)),
            (3, BYTES, value)]))
    marks = []
    for first in sorted(at):
        ordered = sorted(at[first], key=lambda d: int.from_bytes(d, "little"))
        mark = ordered[0]
        for other in ordered[1:]:
            mark = hash128(mark + other)
        marks.append((first, mark))
    return marks


def chain(root, tokens, marks, chunk_tokens):
    """The hash after every number of tokens: position -> 16 bytes."""
    result = {0: root}
    for p in range(1, len(tokens) + 1):
        g = (p - 1) // chunk_tokens * chunk_tokens
        inside = [(t, m) for t, m in marks if g <= t < p]
        message = result[g] + b"".join(struct.pack("<I", t) for t in tokens[g:p])
        if inside:
            fold = bytes(16)
            for t, m in inside:
                fold = hash128(fold + struct.pack("<Q", t - g) + m)
            message += fold
        result[p] = hash128(message + struct.pack("<II", p - g, len(inside)))
    return result


def mix(x):
    """splitmix64's finalizer."""
    x = (x + 0x9E3779B97F4A7C15) & (2**64 - 1)
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & (2**64 - 1)
    x = (x ^ x >> 27) * 0x94D049BB133111EB & (2**64 - 1)
    return x ^ x >> 31


def chain_case(seed, mask, chunk_tokens, count, salt, lora, keys, epoch=0):
    tokens = [mix(seed + i) & mask for i in range(count)]
    family = digest("family", [(1, U64, struct.pack("<Q", seed))])
    root = root_of(family, epoch, salt, lora)
    marks = marks_of(keys)
    hashes = chain(root, tokens, marks, chunk_tokens)
    return {
        "seed": seed, "mask": mask, "chunk_tokens": chunk_tokens, "token_count": count,
        "epoch": epoch, "salt": salt.hex(), "lora": lora.hex(),
        "keys": [{"kind": k, "first": f, "count": c, "value": v.hex()} for k, f, c, v in keys],
        "root": root.hex(),
        "marks": [{"token": t, "digest": m.hex()} for t, m in marks],
        "hashes": [hashes[p].hex() for p in range(count + 1)],
    }


def main():
    full = 2**32 - 1
    many = [(i % 3, (i * 37) % 300, 1 + i % 5, bytes([i] * (i % 19))) for i in range(40)]
    cases = [
        chain_case(1, 0xFFFF, 64, 200, b"", b"", []),
        chain_case(2, full, 64, 131, b"salt", b"", []),
        chain_case(3, full, 16, 50, b"", b"adapter-7", []),
        chain_case(4, 0x7FFFF, 256, 600, b"s", b"l", []),
        chain_case(5, 0xFFFF, 64, 200, b"", b"", [(1, 0, 10, b"image")]),
        chain_case(5, 0xFFFF, 64, 200, b"", b"", [(1, 70, 10, b"image"), (2, 70, 4, b"other"),
                                                  (1, 127, 300, b""), (1, 128, 1, bytes(300))]),
        chain_case(6, full, 64, 300, b"x", b"y", many),
        chain_case(7, full, 1, 5, b"", b"", [(9, 2, 1, b"v")]),
        chain_case(7, full, 1, 5, b"", b"", [(9, 2, 1, b"v")], epoch=1),
        chain_case(8, full, 64, 70, b"s", b"", [], epoch=2**40 + 3),
    ]
    fields = [(1, U64, struct.pack("<Q", 2**64 - 1)), (2, I64, struct.pack("<q", -3)),
              (5, F64, struct.pack("<d", 0.1)), (6, F64, struct.pack("<d", 0.0)),
              (7, F64, struct.pack("<Q", 0x7FF8000000000000)), (9, BYTES, b""),
              (10, TEXT, "größe".encode()), (4000000000, HASH, bytes(range(16)))]
    lengths = [0, 1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 280, 1024, 1025, 4096]
    plain = [{"bytes": n, "hash": hash128(bytes(i * 7 & 255 for i in range(n))).hex()}
             for n in lengths]
    print(json.dumps({"plain": plain, "digest_all_types": digest("all-types", fields).hex(),
                      "digest_empty": digest("", []).hex(), "chains": cases}, indent=1))


main()
