#!/usr/bin/env python3
"""fio_job.py --engine psync|io_uring --threads N --depth N --bytes N --op-bytes N [--write] PATH:
reads or writes bytes once, sequentially, with O_DIRECT, and prints "fio_ns N".

PATH is a file, or a directory whose seg-* files are read in their order (a store's rank). For write
it is a directory in which a file is made, filled and removed.
--random 16k/70:32k/30 --ops N: random reads of these sizes in these shares, at page borders of what
was written of the files, as many as a plan has: blocks that are allocated and were never written
are zeroes that no device is asked for. psync: each thread has its share, one operation at a time;
io_uring: each thread has `depth` operations in flight. Buffers lie in huge pages, where fio's own
would be 4 KiB pages: that is how fio does best. --beside N: and N bytes sequentially, in operations
of --op-bytes, by a thread of its own at the same time. fio tells time in milliseconds, so short
reads are repeated and divided: until 192 MiB were read, or --loops N times."""
import argparse
import glob
import json
import os
import subprocess
import sys

PAGE = 4096
# All buffers from one heap that grows in large steps, advised to lie in huge pages.
HUGE_PAGES = ("glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=1073741824:"
              "glibc.malloc.top_pad=67108864:glibc.malloc.arena_max=1")
BYTES_MIN = 192 << 20  # less is read several times; more is read once, as the store reads it: a
                       # second pass was 10 % faster, because only the first begins with no read
                       # in flight
RANDOM_BYTES = 48 << 20


def sources(path, total, op_bytes):
    """(file, bytes of it) that hold `total` bytes, whole operations of each."""
    files = sorted(glob.glob(os.path.join(path, "seg-*"))) if os.path.isdir(path) else [path]
    out = []
    for file in files:
        size = min(os.path.getsize(file), total) // op_bytes * op_bytes
        if size > 0:
            out.append((file, size))
            total -= size
    if total >= op_bytes * 2:
        sys.exit(f"fio_job: {path}: {total} bytes are missing")
    return out


def section(name, file, offset, size, loops):
    return [f"[{name}]", f"filename={file}", f"offset={offset}", f"size={size}", f"loops={loops}"]


def written(file):
    """Bytes from the file's beginning to the first block that was never written."""
    fd = os.open(file, os.O_RDONLY)
    try:
        return os.lseek(fd, 0, os.SEEK_HOLE) // PAGE * PAGE
    finally:
        os.close(fd)


def random_job(args):
    """Random reads over what was written: more of them than asked for, and divided. fio takes as
    much of each file, so one that was only begun (the last segment) is left out."""
    sizes = {file: written(file) for file in sorted(glob.glob(os.path.join(args.path, "seg-*")))}
    files = [file for file, size in sizes.items() if size >= max(sizes.values()) // 2]
    each_file = min(sizes[file] for file in files)
    loops = max(1, -(-RANDOM_BYTES // args.bytes))
    each = args.bytes * loops // args.threads
    lines = ["[global]", "rw=randread", f"ioengine={args.engine}", "direct=1", "thread=1",
             f"blockalign={PAGE}", "norandommap=1", "randrepeat=0",
             f"size={each_file * len(files)}",
             f"iodepth={args.depth}", "group_reporting=1", "mem=malloc"]
    if args.depth > 1:
        lines += ["iodepth_batch_submit=32", "iodepth_batch_complete_min=1",
                  f"iodepth_batch_complete_max={args.depth}"]
    for i in range(args.threads):
        lines += [f"[r{i}]", f"filename={':'.join(files)}", f"io_size={each}",
                  f"bssplit={args.random}"]
    if args.beside:
        depth = min(args.depth, 8)
        lines += ["[s]", "rw=read", f"filename={':'.join(files)}", f"iodepth={depth}",
                  "iodepth_batch_submit=1", f"iodepth_batch_complete_max={depth}",
                  f"bs={args.op_bytes // PAGE * PAGE}", f"io_size={args.beside * loops}",
                  "file_service_type=sequential"]
    return lines, loops


def job(args):
    if args.random:
        return random_job(args)
    op_bytes = max(PAGE, args.op_bytes // PAGE * PAGE)
    what = "write" if args.write else "read"
    lines = ["[global]", f"rw={what}", f"ioengine={args.engine}", "direct=1", "thread=1",
             f"bs={op_bytes}", f"iodepth={args.depth}", "group_reporting=1", "mem=malloc",
             "file_service_type=sequential"]
    if args.write:
        each = args.bytes // args.threads // op_bytes * op_bytes
        path = os.path.join(args.path, "fio-write.dat")
        lines += ["fallocate=posix", f"filesize={each * args.threads}"]
        for i in range(args.threads):
            lines += section(f"w{i}", path, i * each, each, 1)
        return lines, 1
    files = sources(args.path, args.bytes, op_bytes)
    loops = args.loops or max(1, -(-BYTES_MIN // args.bytes))
    if len(files) == 1:
        each = max(op_bytes, files[0][1] // args.threads // op_bytes * op_bytes)
        for i in range(args.threads):
            lines += section(f"r{i}", files[0][0], i * each, each, loops)
        return lines, loops
    for i in range(args.threads):
        mine = files[len(files) * i // args.threads:len(files) * (i + 1) // args.threads]
        size = sum(size for _, size in mine)
        lines += section(f"r{i}", ":".join(file for file, _ in mine), 0, size, loops)
    return lines, loops


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--random", default="")
    parser.add_argument("--ops", type=int, default=0)
    parser.add_argument("--beside", type=int, default=0)
    parser.add_argument("--engine", default="psync")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--depth", type=int, default=1)
    parser.add_argument("--loops", type=int, default=0)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--op-bytes", type=int, required=True)
    parser.add_argument("path")
    args = parser.parse_args()
    lines, loops = job(args)
    env = dict(os.environ, GLIBC_TUNABLES=HUGE_PAGES)
    command = ["fio", "--output-format=json"] + ([] if args.write else ["--readonly"]) + ["-"]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, env=env,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"fio_job: fio said {done.returncode}: {done.stderr}{done.stdout}")
    out = done.stdout
    moved = json.loads(out[out.index("{"):])["jobs"][0]["write" if args.write else "read"]
    if args.write:
        os.unlink(os.path.join(args.path, "fio-write.dat"))
    if moved["io_bytes"] < loops * args.bytes * 9 // 10:
        sys.exit(f"fio_job: {moved['io_bytes']} bytes were moved")
    scale = args.bytes / moved["io_bytes"]
    if args.beside:
        scale = (args.bytes + args.beside) / moved["io_bytes"]
    elif args.random:  # the shares are rounded: as many operations count, not as many bytes
        scale = args.ops / moved["total_ios"]
    print(f"fio_ns {int(moved['runtime'] * 1e6 * scale)}")


if __name__ == "__main__":
    main()
