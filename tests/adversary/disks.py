"""Cache disks that are full, quotas, and descriptors that run out."""

import errno
import os
import resource
import time

from harness import check
from place import MIB, SmallDisk, build_folder, content
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


class Steps:
    """What a node's disk refuses (failing_steps.c)."""

    def __init__(self, w):
        self.orders = w.work.path(f"steps-{w.name}")
        self.env = {"LD_PRELOAD": os.path.join(build_folder(), "tests", "libfailing_steps.so"),
                    "RUNFS_TEST_STEPS": self.orders}

    def order(self, text):
        with open(self.orders + ".new", "w") as f:
            f.write(text)
        os.rename(self.orders + ".new", self.orders)

    def end(self):
        """Whether what was ordered is still to come."""
        try:
            os.unlink(self.orders)
            return True
        except FileNotFoundError:
            return False


def write_until_refused(node, key, err, refuse):
    """Makes a file anew; its disk refuses after a part of it. The program closes it in spite of that."""
    fd = os.open(node.path(key), os.O_WRONLY | os.O_TRUNC)
    os.write(fd, content("half", 100_000))
    refuse()
    try:
        for i in range(20):
            os.write(fd, content(f"more {i}", 100_000))
        check(False, f"all writes are taken by a disk that refuses ({errno.errorcode[err]})")
    except OSError as e:
        check(e.errno == err, f"{e}, not {errno.errorcode[err]}")
    try:
        os.close(fd)
    except OSError:
        pass # told so


def half_is_held_back(w, a, key):
    check(a.flush(2) != 0, f"lied: runfs flush, exit code 0 with {key} cut off")
    check(w.stored(key) == b"one", f"damaged: the store has {key} as far as the disk had room")
    check(key in a.mount.run("status", "--files", a.path(), seconds=30).stdout, f"status does not name {key}")


@once
def no_room_by_any_name(w):
    """A full disk, a quota, a limit of file sizes: what was cut off replaces nothing, not in the next mount either,
    until it is made anew."""
    steps, errors = Steps(w), (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    a = w.node("a", ("passthrough=off",), env=steps.env)
    keys = [f"f{err}" for err in errors]
    for key in keys:
        a.write(key, b"one")
    check(a.flush() == 0, "flush")
    for key, err in zip(keys, errors):
        write_until_refused(a, key, err, lambda err=err: steps.order(f"write {err}"))
        steps.end()
        half_is_held_back(w, a, key)
    a.kill()
    a.up(steps.env)
    for key in keys:
        half_is_held_back(w, a, key)
        a.write(key, b"two")
    check(a.flush() == 0, "flush of what was made anew")


@once
def limit_of_file_sizes(w):
    """The daemon was started below a limit (ulimit -f): writers get EFBIG, and it lives."""
    a = w.node("a", ("passthrough=off",), limits=("prlimit", "--fsize=1048576"))
    a.write("f", b"one")
    check(a.flush() == 0, "flush")
    write_until_refused(a, "f", errno.EFBIG, lambda: None)
    half_is_held_back(w, a, "f")
    a.write("f", b"two")
    check(a.flush() == 0, "flush of what was made anew")


def fails_in_steps(w, change):
    """Two changed files, and a change of their names of which each step fails once (no descriptor is left, the disk
    turned read-only): all of it is made or nothing, and what was owed before stays owed."""
    steps = Steps(w)
    a = w.node("a", ("settle=1h",), env=steps.env) # only a flush uploads
    for key in ("f", "g"):
        a.write(key, b"one")
    check(a.flush() == 0, "flush")
    for n in range(1, 30):
        for key in ("f", "g"):
            a.write(key, b"%s before step %d fails" % (key.encode(), n))
        steps.order(f"change {n} {(errno.EMFILE, errno.EROFS)[n % 2]}")
        try:
            change(a)
        except OSError as e:
            check(e.errno in (errno.EMFILE, errno.EROFS), str(e))
        untouched = steps.end()
        check(a.flush() == 0, f"flush after a failure of step {n}: {a.log()[-300:]}")
        if untouched:
            check(n > 2, "no step of it has failed")
            return
    check(False, "it has no last step")


@once
def rename_fails_half_way(w):
    fails_in_steps(w, lambda a: a.rename("f", "g"))


@once
def exchange_fails_half_way(w):
    fails_in_steps(w, lambda a: a.exchange("f", "g"))


CASES = [full_local_disk, many_open_files, no_room_by_any_name, limit_of_file_sizes, rename_fails_half_way,
         exchange_fails_half_way]
