#!/usr/bin/env python3
"""Writes tests/data/hash-vectors.json: frozen vectors of docs/reference/hashing.md.

An implementation of its own, from the specification alone; the C code is compared with its output.
Needs libxxhash.so.0 (0.8) and Python's hashlib.
    python3 tools/make_hash_vectors.py > tests/data/hash-vectors.json
Tokens are not listed: token i of a case is mix(seed + i) & mask, which both sides compute.

`salts` are two of 700 bytes that XXH3-128 with its own secret takes for one at byte 74 of any
message: what format 3 made its roots of. `blocks` are token blocks of 16 whose steps collide under
the secret of the first case, behind any hash: what one who has read the secret can do.
"""
import ctypes
import hashlib
import json
import struct

U64, I64, F64, BYTES, TEXT, HASH = 1, 2, 3, 4, 5, 6


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


xxh = ctypes.CDLL("libxxhash.so.0")
xxh.XXH3_128bits.restype = Hash128
xxh.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
xxh.XXH3_128bits_withSecret.restype = Hash128
xxh.XXH3_128bits_withSecret.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p,
                                        ctypes.c_size_t]


def hash128(data, lanes=None):
    """16 bytes: low half, high half, little-endian."""
    value = xxh.XXH3_128bits(data, len(data)) if lanes is None else \
        xxh.XXH3_128bits_withSecret(data, len(data), lanes, len(lanes))
    return struct.pack("<QQ", value.low, value.high)


def digest(name, fields):
    """32 bytes."""
    out = b"sc-dig-2" + struct.pack("<Q", len(name)) + name.encode()
    for tag, kind, data in fields:
        out += struct.pack("<IIQ", tag, kind, len(data)) + data
    return hashlib.sha256(out + struct.pack("<Q", len(fields))).digest()


def lanes_of(secret):
    return b"".join(digest("chain-lanes", [(1, BYTES, secret), (2, U64, struct.pack("<Q", i))])
                    for i in range(6))


def root_of(secret, family, epoch, salt, lora):
    return digest("chain-root", [(1, BYTES, secret), (2, HASH, family),
                                 (3, U64, struct.pack("<Q", epoch)), (4, BYTES, salt),
                                 (5, BYTES, lora)])


def salt_name_of(secret, salt):
    return digest("salt", [(1, BYTES, secret), (2, BYTES, salt)])[:16]


def marks_of(keys):
    at = {}
    for kind, first, count, value in keys:
        at.setdefault(first, []).append(digest("extra-key", [
            (1, U64, struct.pack("<Q", kind)), (2, U64, struct.pack("<Q", count)),
            (3, BYTES, value)]))
    marks = []
    for first in sorted(at):
        ordered = sorted(at[first])
        mark = ordered[0]
        if len(ordered) > 1:
            mark = digest("extra-keys", [(i + 1, BYTES, d) for i, d in enumerate(ordered)])
        marks.append((first, mark))
    return marks


def chain(lanes, root, tokens, marks, chunk_tokens):
    """The hash after every number of tokens: position -> 16 bytes."""
    result = {0: root[:16]}
    for p in range(1, len(tokens) + 1):
        g = (p - 1) // chunk_tokens * chunk_tokens
        inside = [(t, m) for t, m in marks if g <= t < p]
        message = result[g] + b"".join(struct.pack("<I", t) for t in tokens[g:p])
        if inside:
            fold = bytes(16)
            for t, m in inside:
                fold = hash128(fold + struct.pack("<Q", t - g) + m, lanes)
            message += fold
        result[p] = hash128(message + struct.pack("<II", p - g, len(inside)), lanes)
    return result


def mix(x):
    """splitmix64's finalizer."""
    x = (x + 0x9E3779B97F4A7C15) & (2**64 - 1)
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & (2**64 - 1)
    x = (x ^ x >> 27) * 0x94D049BB133111EB & (2**64 - 1)
    return x ^ x >> 31


def secret_of(seed):
    return b"".join(struct.pack("<Q", mix(seed + 1000 + i)) for i in range(4))


def chain_case(seed, mask, chunk_tokens, count, salt, lora, keys, epoch=0):
    tokens = [mix(seed + i) & mask for i in range(count)]
    secret = secret_of(seed)
    family = digest("family", [(1, U64, struct.pack("<Q", seed))])[:16]
    root = root_of(secret, family, epoch, salt, lora)
    marks = marks_of(keys)
    hashes = chain(lanes_of(secret), root, tokens, marks, chunk_tokens)
    return {
        "seed": seed, "mask": mask, "chunk_tokens": chunk_tokens, "token_count": count,
        "secret": secret.hex(), "epoch": epoch, "salt": salt.hex(), "lora": lora.hex(),
        "keys": [{"kind": k, "first": f, "count": c, "value": v.hex()} for k, f, c, v in keys],
        "root": root.hex(), "salt_name": salt_name_of(secret, salt).hex(),
        "marks": [{"token": t, "digest": m.hex()} for t, m in marks],
        "hashes": [hashes[p].hex() for p in range(count + 1)],
    }


def colliding_salts():
    """A stripe adds, to each lane, low half x high half of (input ^ secret), and the input itself
    to the lane beside it. Where the low half is the secret's, the product is 0, so two words of a
    lane in two stripes may change as long as their sum does not. xxHash's own secret is published:
    XXH3_kSecret of xxhash.h."""
    k_secret = bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
        "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
        "3c2852bb91c300cb88d0658b532ea371644897a20df94e3819ef46a9deacd8a8"
        "fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364ea"
        "c5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b"
        "16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")
    at, lane, salts = 74, 2, []
    for change in (0, 1):
        salt = bytearray(i * 7 & 255 for i in range(700))
        for stripe, step in ((3, change), (5, -change)):
            key, = struct.unpack_from("<I", k_secret, 8 * (stripe + lane))
            struct.pack_into("<II", salt, 64 * stripe + 8 * lane - at, key, 1000 + step)
        salts.append(bytes(salt))
    for before in (b"a", b"b"):
        hashes = {hash128(before * at + salt + bytes(40)) for salt in salts}
        assert len(hashes) == 1 and salts[0] != salts[1]
    return salts


def colliding_blocks(secret):
    """A step over 16 tokens is 88 bytes. Bytes 16 to 31, the first four tokens, are two words a, b
    that come in as fold((a ^ k0) * (b ^ k1)) and as a + b alone: both products are 0 where a is k0,
    or b is k1."""
    lanes = lanes_of(secret)
    k0, k1 = struct.unpack_from("<QQ", lanes, 32)
    rest = [mix(77 + i) & 0xFFFF for i in range(12)]
    blocks = []
    for a, b in ((k0, 12345), ((k0 + 12345 - k1) & (2**64 - 1), k1)):
        blocks.append(list(struct.unpack("<IIII", struct.pack("<QQ", a, b))) + rest)
    for root in (bytes(32), secret):
        assert len({chain(lanes, root, block, [], 16)[16] for block in blocks}) == 1
    return {"secret": secret.hex(), "tokens": blocks}


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
    texts = {n: bytes(i * 7 & 255 for i in range(n)) for n in lengths}
    plain = [{"bytes": n, "hash": hash128(texts[n]).hex(),
              "keyed": hash128(texts[n], lanes_of(secret_of(0))).hex()} for n in lengths]
    salts = [salt.hex() for salt in colliding_salts()]
    print(json.dumps({"plain": plain, "plain_secret": secret_of(0).hex(),
                      "digest_all_types": digest("all-types", fields).hex(),
                      "digest_empty": digest("", []).hex(), "salts": salts,
                      "blocks": colliding_blocks(secret_of(1)), "chains": cases}, indent=1))


main()
