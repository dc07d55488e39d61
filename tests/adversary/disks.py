"""Cache disks that are full, quotas, and descriptors that run out."""

import errno
import os
import resource
import time

from harness import check
from place import MIB, SmallDisk, content
from scenario import on_s3, once


def fill(folder):
    """Not a byte is left, as far as anybody may go."""
    with open(os.path.join(folder, "others"), "wb", buffering=0) as f:
        for piece in (MIB, 4096, 1):
            try:
                while True:
                    f.write(b"x" * piece)
            except OSError as e:
                check(e.errno == errno.ENOSPC, str(e))


@on_s3
def full_local_disk(w):
    """The cache's disk is full: that is no full store, whose deletes would go first. The old checkpoint is
    there until the new one is."""
    with SmallDisk(w.work, w.name, 64 * MIB) as disk:
        a = w.node(cache=disk.cache)
        a.write("old.ckpt", content("old", 8 * MIB))
        check(a.flush() == 0, "flush")
        w.store.cut_off()
        a.write("new.ckpt", content("new", 20 * MIB))
        a.unlink("old.ckpt")
        fill(disk.folder)
        w.store.connect()
        end = time.monotonic() + 4
        while time.monotonic() < end:
            found = w.store.objects()
            check("old.ckpt" in found or "new.ckpt" in found,
                  "damaged: the old checkpoint is gone, the new one is not there")
            time.sleep(0.02)
        os.unlink(os.path.join(disk.folder, "others"))
        check(a.flush(60) == 0, f"flush after there is room again: {a.log()[-300:]}")
        w.settle()


@once
def many_open_files(w):
    """One program opens more files than the daemon may have descriptors: everybody else goes on."""
    n = 600
    a = w.node(limits=("prlimit", "--nofile=256:256"))
    for i in range(n):
        a.write(f"f{i}", b"%d" % i)
    check(a.flush(60) == 0, "flush")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    fds = []
    try:
        for i in range(n):
            fds.append(os.open(a.path(f"f{i}"), os.O_RDWR))
        a.write("another", b"of another program")
        check(a.read("f7") == b"7", "another program reads")
        a.mount.status()
        for i, fd in enumerate(fds):
            os.pwrite(fd, b"new", 0)
            a.oracle.wrote("a", f"f{i}", b"new")
    finally:
        for fd in fds:
            os.close(fd)
    check(a.flush(60) == 0, "flush")


CASES = [full_local_disk, many_open_files]
