"""Writers that never close, write through mappings, sync, or never stop."""

import os
import threading
import time

from harness import check, wait_for
from mapping import Mapping
from place import MIB, content
from scenario import everywhere, on_s3


def stored_file(w, size=64 * 1024, key="f"):
    a = w.node()
    a.write(key, content("one", size))
    check(a.flush() == 0, "flush")
    return a


# ---- mappings ----


def mapped(w, between):
    """A program maps a file, closes it, and writes through the mapping. Then `between`."""
    a = stored_file(w)
    with Mapping(a.path("f")) as m:
        body = content("two", 64 * 1024)
        m.write(body)
        a.oracle.wrote("a", "f", body)
        between(a)


@everywhere
def mapped_and_touched(w):
    mapped(w, lambda a: os.utime(a.path("f"), (1_600_000_000, 1_600_000_000)))


@everywhere
def mapped_and_flushed(w):
    """Still mapped when it is asked for: without passthrough the kernel has not told anybody of the write yet."""
    mapped(w, lambda a: check(a.flush(20) == 0, "flush"))


@everywhere
def mapped_and_unmounted(w):
    mapped(w, lambda a: None)
    check(w.nodes[0].umount() == 0, "umount")


@everywhere
def mapped_and_terminated(w):
    """SIGTERM beside a mapping: what was stored by then reaches the store, or at least the cache."""
    mapped(w, lambda a: (a.terminate(), a.up()))


@everywhere
def mapped_and_changed_attributes(w):
    mapped(w, lambda a: os.chmod(a.path("f"), 0o600))


@everywhere
def mapped_renamed_and_killed(w):
    """The name under which it was mapped is another one when the daemon dies."""
    a = stored_file(w)
    with Mapping(a.path("f")) as m:
        body = content("two", 64 * 1024)
        m.write(body)
        m.sync()
        a.oracle.wrote("a", "f", body)
        a.rename("f", "g")
        a.kill()


# ---- what nobody closed ----


def unclosed(w, end):
    """A good version is being replaced: O_TRUNC, a fifth of it is written when the mount ends by `end`."""
    a = stored_file(w, 5 * MIB)
    fd = os.open(a.path("f"), os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(fd, content("two", MIB))
        end(a)
    finally:
        try:
            os.close(fd)
        except OSError:
            pass # its daemon is gone


@everywhere
def unclosed_and_killed(w):
    unclosed(w, lambda a: a.kill())
    w.nodes[0].up()


@everywhere
def unclosed_and_terminated(w):
    unclosed(w, lambda a: a.terminate(60))


@everywhere
def unclosed_and_flushed(w):
    """What nobody closed is not published half by a flush of everything. Once closed, it counts."""
    def flush(a):
        a.flush(2)
        a.oracle.look(a.store.objects(), "after a flush beside a writer")
        a.oracle.wrote("a", "f", content("two", MIB))
    unclosed(w, flush)


@everywhere
def unclosed_log_and_killed(w):
    """A log goes on: what its program wrote is published although nobody closed it."""
    a = w.node()
    a.write("run.log", b"line\n")
    check(a.flush() == 0, "flush")
    fd = os.open(a.path("run.log"), os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"another\n")
    a.oracle.wrote("a", "run.log", b"line\nanother\n")
    a.kill()
    try:
        os.close(fd)
    except OSError:
        pass


# ---- what was synced ----


def synced_by_open(w, flag):
    """Written through a descriptor that syncs, closed; then the machine's power fails."""
    a = stored_file(w)
    if w.store.kind == "s3":
        w.store.cut_off()
    body = content("two", 64 * 1024)
    fd = os.open(a.path("f"), os.O_WRONLY | os.O_TRUNC | flag)
    os.write(fd, body)
    os.close(fd)
    a.oracle.wrote("a", "f", body, synced=True)
    a.reboot(torn=True)
    if w.store.kind == "s3":
        w.store.connect()


@on_s3
def synced_by_o_sync(w):
    synced_by_open(w, os.O_SYNC)


@on_s3
def synced_by_o_dsync(w):
    synced_by_open(w, os.O_DSYNC)


@on_s3
def rewritten_in_place_after_sync(w):
    """fsync; then other bytes in place, of the same size, and the old time back (rsync --inplace -t). The
    power fails: the mark of the fsync says nothing of them."""
    a = stored_file(w)
    w.store.cut_off()
    fd = os.open(a.path("f"), os.O_RDWR)
    os.pwrite(fd, content("two", 64 * 1024), 0)
    os.fsync(fd)
    a.oracle.wrote("a", "f", content("two", 64 * 1024))
    times = os.fstat(fd)
    os.close(fd)
    fd = os.open(a.path("f"), os.O_RDWR)
    os.pwrite(fd, content("three", 64 * 1024), 0)
    os.close(fd)
    os.utime(a.path("f"), ns=(times.st_atime_ns, times.st_mtime_ns))
    a.oracle.wrote("a", "f", content("three", 64 * 1024))
    a.reboot(torn=True)
    w.store.connect()
    a.up()
    a.read("f")


# ---- what never rests ----


class Growing:
    """A log that gets a piece every few milliseconds, beside a scenario."""

    def __init__(self, node, key, size=20 * MIB):
        self.node, self.key = node, key
        self.body = content("log", size)
        self.stop = threading.Event()
        with open(node.path(key), "wb") as f:
            f.write(self.body)
        self.fd = os.open(node.path(key), os.O_WRONLY | os.O_APPEND)
        self.thread = threading.Thread(target=self.run, daemon=True)
        node.oracle.wrote(node.name, key, self.body)
        node.oracle.name(key).also_whole = self.is_prefix

    def is_prefix(self, body):
        return body is not None and len(body) >= 20 * MIB and self.body.startswith(body)

    def run(self):
        piece = content("piece", 1000)
        while not self.stop.wait(0.01):
            self.body += piece # before it is there: what is uploaded meanwhile is a prefix
            try:
                os.write(self.fd, piece)
            except OSError:
                return # its daemon has ended

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()
        if self.node.is_up():
            os.close(self.fd)
            self.node.oracle.wrote(self.node.name, self.key, self.body)


@on_s3
def growing_log(w):
    """It reaches the store again and again while it grows, and not at every moment all of it."""
    a = w.node("a", ("upload_interval=300ms",))
    with Growing(a, "run.log") as log:
        wait_for("the log is in the store", lambda: w.stored("run.log"), 20, 0.1)
        first = len(w.stored("run.log"))
        wait_for("more of it", lambda: len(w.stored("run.log") or b"") > first, 20, 0.1)
        check(log.is_prefix(w.stored("run.log")), "damaged: what is stored is no prefix of the log")


@on_s3
def growing_log_is_synced(w):
    """With durability=store an fsync beside a writer that never rests comes back, and what was there is stored."""
    a = w.node("a", ("durability=store",))
    with Growing(a, "run.log") as log:
        done = []
        fd = os.open(a.path("run.log"), os.O_RDWR)
        size = os.fstat(fd).st_size
        thread = threading.Thread(target=lambda: done.append(os.fsync(fd)), daemon=True)
        thread.start()
        thread.join(20)
        check(done, "fsync of a log that grows: not back after 20 s")
        stored = w.stored("run.log")
        check(stored and len(stored) >= size and log.is_prefix(stored),
              "lied: fsync came back, the store has not what was there")
        closer = threading.Thread(target=lambda: os.close(fd), daemon=True)
        closer.start()
        closer.join(20)
        check(not closer.is_alive(), "close of a log that grows: not back after 20 s")


@on_s3
def growing_log_at_the_end(w):
    """SIGTERM drains and ends although the log goes on to grow."""
    a = w.node()
    with Growing(a, "run.log") as log:
        a.terminate(30)
        stored = w.stored("run.log")
        check(stored and log.is_prefix(stored), "lost: what was there of the log")
        a.oracle.name("run.log").heads[0].may_be_gone = True # nobody closed it


@on_s3
def stored_names(w):
    """durability=store: after write, fsync, rename and fsync of the directory the store has the final name, and
    after a removal and such an fsync it has none."""
    a = w.node("a", ("durability=store",))
    top = os.open(a.path(), os.O_RDONLY | os.O_DIRECTORY)
    try:
        for i in range(3):
            body = content(f"checkpoint {i}", 100_000)
            a.write("f.tmp", body, sync=True)
            a.rename("f.tmp", "f")
            os.fsync(top)
            check(w.stored("f") == body, f"lied: fsync of the directory is back, the store has not what was renamed ({i})")
            check(w.stored("f.tmp") is None, f"lied: fsync of the directory is back, the store has the old name ({i})")
        a.unlink("f")
        os.fsync(top)
        check(w.stored("f") is None, "lied: fsync of the directory is back, the store has what was removed")
    finally:
        os.close(top)


@everywhere
def names_that_change_places(w):
    """Two names change places, and one of them again with a third while the first uploads may be on their way: what a
    flush then says is so."""
    a = w.node()
    for i, pause in enumerate((0, 0.01, 0.03, 0.06)):
        names = [f"{name}{i}" for name in "fgh"]
        for name in names:
            a.write(name, f"content of {name}".encode())
        check(a.flush() == 0, "flush")
        a.exchange(names[0], names[1])
        time.sleep(pause)
        a.exchange(names[0], names[2])
        check(a.flush() == 0, "flush")


@everywhere
def flushed_by_a_link(w):
    """`latest` names the checkpoint that it leads to, not only itself."""
    a = w.node(options=("settle=20s",))
    os.mkdir(a.path("ck-1"))
    os.symlink("ck-1", a.path("latest"))
    os.symlink("ck-1/model", a.path("model"))
    for link in ("latest", "latest/", "model"):
        body = f"flushed by {link}".encode()
        a.write("ck-1/model", body)
        flush = a.mount.run("flush", a.path(link), "--timeout", "15", seconds=30)
        check(flush.returncode == 0, f"runfs flush {link}: {flush.stdout}")
        check(w.stored("ck-1/model") == body, f"lied: runfs flush {link}, exit code 0, before what it leads to is stored")
    os.symlink("nowhere", a.path("dangling"))
    check(a.mount.run("flush", a.path("dangling"), seconds=30).returncode == 0, "runfs flush of a link that leads nowhere")
    for link in ("latest", "model", "dangling"): # the oracle knows files
        os.unlink(a.path(link))


# ---- a rotation that is faster than the store ----


def removed_between(a, body):
    a.write("ck-3", body, sync=True)
    a.unlink("ck-2")
    return "ck-3"


def replaced_between(a, body):
    a.write("ck-2.tmp", body, sync=True)
    a.rename("ck-2.tmp", "ck-2")
    return "ck-2"


@everywhere
def rotated_faster_than_stored(w):
    """One checkpoint is kept, and the one between was never stored when it goes: the store has the first until it has
    the last."""
    a = w.node(options=("settle=1s",))
    for go in (removed_between, replaced_between):
        a.write("ck-1", b"one")
        check(a.flush() == 0, "flush")
        a.write("ck-2", b"two", sync=True)
        a.unlink("ck-1")
        last = go(a, b"three")

        def arrived():
            first = w.stored("ck-1")
            there = w.stored(last) == b"three"
            check(first or there, "lost: the store has no checkpoint at all while the last is on its way")
            return there
        wait_for("the last checkpoint in the store", arrived, 20, 0.05)


CASES = [mapped_and_touched, mapped_and_flushed, mapped_and_unmounted, mapped_and_terminated, mapped_and_changed_attributes,
         mapped_renamed_and_killed, unclosed_and_killed, unclosed_and_terminated, unclosed_and_flushed,
         unclosed_log_and_killed, synced_by_o_sync, synced_by_o_dsync, rewritten_in_place_after_sync, growing_log,
         growing_log_is_synced, growing_log_at_the_end, stored_names, names_that_change_places,
         flushed_by_a_link, rotated_faster_than_stored]
