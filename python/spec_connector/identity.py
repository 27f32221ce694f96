"""What KV of an engine's model depends on, as bytes: the same in every process of the engine.

Holds: weights that differ in their names, sizes, safetensors headers, anywhere in a file of up to
64 MiB, or in what is read of a larger one (its first and last MiB, a page of every 4 MiB, the
first page of every tensor) differ here; with full=True in any byte. So a model that was trained
further differs, whichever of its layers were frozen. Does not: import an engine.
"""
import hashlib
import os
import re

PAGE, MIB = 4096, 1 << 20
WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")
WHOLE_BYTES_MAX, STEP = 64 * MIB, 4 * MIB
HEADER_BYTES_MAX = 100 * MIB
BEGIN = re.compile(rb'"data_offsets"\s*:\s*\[\s*(\d{1,19})\b')


def _add(digest, name, value):
    """Tagged and with its length, so that no two lists of parts are one."""
    value = value if isinstance(value, bytes) else str(value).encode()
    digest.update(f"{name}:{len(value)}:".encode())
    digest.update(value)


def _tensors(header, end):
    """Where tensors begin behind a safetensors header that ends at `end`. It is not parsed: so a
    million tensors take no time, and what is no header is refused by who loads the weights."""
    return [end + int(at) for at in BEGIN.findall(header)]


def _add_whole(digest, file, size):
    file.seek(0)
    while size > 0 and (part := file.read(min(size, 16 * MIB))):
        digest.update(part)
        size -= len(part)
    if size > 0:
        raise ValueError(f"{file.name} was cut short while it was read")


def _add_file(digest, path, full):
    if not os.path.isfile(path):  # a pipe would be waited for, a device read for ever
        raise ValueError(f"{path} is not a file")
    size = os.path.getsize(path)
    _add(digest, "size", size)
    with open(path, "rb") as file:
        if full or size <= WHOLE_BYTES_MAX:
            _add_whole(digest, file, size)
            return
        pages = set(range(0, size, STEP))
        if path.endswith(".safetensors"):
            header = int.from_bytes(file.read(8), "little")
            if header <= HEADER_BYTES_MAX:
                _add(digest, "header", text := file.read(header))
                pages.update(at for at in _tensors(text, 8 + header) if 0 <= at < size)
        if len(pages) * PAGE > size:
            _add_whole(digest, file, size)
            return
        for name, at in (("first", 0), ("last", size - MIB)):
            _add(digest, name, os.pread(file.fileno(), MIB, at))
        for at in sorted(pages):
            _add(digest, "page", os.pread(file.fileno(), PAGE, at))


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
