"""What KV of an engine's model depends on, as bytes: the same in every process of the engine.

Holds: weights that differ in their names, sizes, safetensors headers or the first and last MiB of a
file differ here; with full=True in any byte. Does not: import an engine.
"""
import hashlib
import os

MIB = 1 << 20
WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")
HEADER_BYTES_MAX = 100 * MIB


def _add(digest, name, value):
    """Tagged and with its length, so that no two lists of parts are one."""
    value = value if isinstance(value, bytes) else str(value).encode()
    digest.update(f"{name}:{len(value)}:".encode())
    digest.update(value)


def _add_file(digest, path, full):
    size = os.path.getsize(path)
    _add(digest, "size", size)
    with open(path, "rb") as file:
        if full:
            while part := file.read(16 * MIB):
                digest.update(part)
            return
        if path.endswith(".safetensors"):
            header = int.from_bytes(file.read(8), "little")
            if header <= HEADER_BYTES_MAX:
                _add(digest, "header", file.read(header))
        file.seek(0)
        _add(digest, "first", file.read(MIB))
        file.seek(max(0, size - MIB))
        _add(digest, "last", file.read(MIB))


def weights_id(folder, facts, full=False):
    """SHA-256 over the weight files of `folder` and `facts`, a mapping of names to values."""
    digest = hashlib.sha256()
    names = sorted(n for n in os.listdir(folder) if n.endswith(WEIGHTS))
    if not names:
        raise ValueError(f"{folder} has no weight files ({', '.join(WEIGHTS)})")
    for name in names:
        _add(digest, "file", name)
        _add_file(digest, os.path.join(folder, name), full)
    for name in sorted(facts):
        _add(digest, name, facts[name])
    return digest.digest()
