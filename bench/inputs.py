"""Where the benchmarks' inputs are: bench/data, whose README.md lists them, or a folder of --data.

A file is looked for in --data, then in bench/data (licences that allow any use), then in
bench/data/share-alike, then in build/data, where tools/fetch-eval writes. Shipped files are
compressed (.xz). A bare file wins over a compressed one of the same folder.
Tests: tests/unit/tools/test_bench_inputs.py."""
import json
import lzma
import os
import subprocess
import sys

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
FETCHED = {"eval/rte_dev.jsonl": "tools/fetch-eval", "eval/rte_train.jsonl": "tools/fetch-eval",
           "models/tinychat-opt": "none: its weights have no licence (bench/data/README.md)"}


class Missing(Exception):
    """No folder has the file; the text says where it could come from."""


def folders(data):
    root = os.path.dirname(os.path.dirname(HERE))
    return [*([data] if data else []), HERE, os.path.join(HERE, "share-alike"),
            os.path.join(root, "build", "data"), root]


def find(data, name):
    """The path of a file, or of a folder of files."""
    for folder in folders(data):
        for path in (os.path.join(folder, name), os.path.join(folder, name + ".xz")):
            if os.path.exists(path):
                return path
    how = FETCHED.get(name)
    raise Missing(f"{name} is absent" + (f"; source: {how}" if how else f" from {HERE}"))


def has(data, name):
    try:
        return bool(find(data, name))
    except Missing:
        return False


def read_text(path):
    """The text of a file. Bytes that are not UTF-8 become U+FFFD, as the benchmarks always had."""
    opened = lzma.open if path.endswith(".xz") else open
    with opened(path, "rt", encoding="utf8", errors="replace") as f:
        return f.read()


def read_rows(path):
    """The objects of a file of JSON lines."""
    return [json.loads(line) for line in read_text(path).split("\n") if line]


def fetch_smollm2(root, out):
    """Runs tools/fetch-smollm2 if the model is absent. Returns true if the model is there."""
    if os.path.isfile(os.path.join(out, "config.json")):
        return True
    done = subprocess.run([sys.executable, os.path.join(root, "tools", "fetch-smollm2"), out],
                          check=False, stdout=sys.stderr, stdin=subprocess.DEVNULL)
    return done.returncode == 0
