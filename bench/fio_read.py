#!/usr/bin/env python3
"""fio_read.py FILE THREADS BYTES OP_BYTES: reads BYTES of FILE once with fio (psync, O_DIRECT,
sequential, THREADS threads) and prints "fio_ns N". It loops 8 times and divides, since fio tells
time in milliseconds."""
import json
import subprocess
import sys

LOOPS = 8
PAGE = 4096


def main():
    path = sys.argv[1]
    threads, total, op_bytes = (int(a) for a in sys.argv[2:5])
    op_bytes = max(PAGE, op_bytes // PAGE * PAGE)
    each = max(op_bytes, total // threads // op_bytes * op_bytes)
    job = ["fio", "--name=r", f"--filename={path}", "--readonly", "--rw=read", "--ioengine=psync",
           "--direct=1", f"--bs={op_bytes}", f"--numjobs={threads}", "--thread", f"--size={each}",
           f"--offset_increment={each}", f"--loops={LOOPS}", "--group_reporting",
           "--output-format=json"]
    out = subprocess.run(job, check=True, capture_output=True, text=True).stdout
    read = json.loads(out[out.index("{"):])["jobs"][0]["read"]
    seconds = read["runtime"] / 1000 / LOOPS
    scale = total / (read["io_bytes"] / LOOPS)
    print(f"fio_ns {int(seconds * scale * 1e9)}")


if __name__ == "__main__":
    main()
