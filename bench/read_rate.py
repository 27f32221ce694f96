"""Holds what this process and those that it starts read from a disk at a rate, with the kernel's
block I/O controller (cgroup v1's blkio.throttle or v2's io.max): a slow device on a machine that
has a fast one; what they write as well, where that is asked for. Takes root; holds nobody else."""
import contextlib
import os
import sys

# Where groups are made, the controller in /proc/self/cgroup, the files of the limits of reads and
# of writes, and a line of each.
ROOTS = (("/sys/fs/cgroup/blkio", "blkio", ("blkio.throttle.read_bps_device", "{disk} {rate}"),
          ("blkio.throttle.write_bps_device", "{disk} {rate}")),
         ("/sys/fs/cgroup", "", ("io.max", "{disk} rbps={rate}"), ("io.max", "{disk} wbps={rate}")))
UNITS = {"GB": 10**9, "MB": 10**6}


def bytes_per_s(text):
    """of 1.5GB or 800MB"""
    unit = UNITS.get(text[-2:])
    if unit is None:
        raise ValueError(f"a rate of {text!r}, expected one as 1.5GB or 800MB (a second)")
    return int(float(text[:-2]) * unit)


def disk_of(directory):
    """MAJOR:MINOR of the whole disk that the directory is on: of a partition, its disk's."""
    device = os.stat(directory).st_dev
    sys_path = os.path.realpath(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    if os.path.exists(os.path.join(sys_path, "partition")):
        sys_path = os.path.dirname(sys_path)
    with open(os.path.join(sys_path, "dev"), encoding="ascii") as f:
        return f.read().strip()


def write(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def group_of(controller):
    """The path of this process's group."""
    with open("/proc/self/cgroup", encoding="ascii") as f:
        for line in f:
            _, controllers, path = line.strip().split(":", 2)
            if controller in controllers.split(","):
                return path
    return "/"


@contextlib.contextmanager
def held(directory, rate, others=(), writes=False):
    """rate: bytes a second. others: processes beside this one. Ends the program where the kernel
    offers no controller."""
    for root, controller, *limits in ROOTS:
        group = os.path.join(root, f"spec-bench-{os.getpid()}")
        try:
            if not controller:
                write(os.path.join(root, "cgroup.subtree_control"), "+io")
            os.mkdir(group)
        except OSError:
            continue
        home = root + group_of(controller)
        try:
            for limit, line in limits if writes else limits[:1]:
                write(os.path.join(group, limit), line.format(disk=disk_of(directory), rate=rate))
            for pid in (os.getpid(), *others):
                write(os.path.join(group, "cgroup.procs"), str(pid))
            yield
            return
        finally:
            for pid in (os.getpid(), *others):
                write(os.path.join(home, "cgroup.procs"), str(pid))
            os.rmdir(group)
    sys.exit("--read-rate: no block I/O controller of the kernel can be used here (root, cgroup v1 "
             "blkio or v2 io)")
