"""Times that programs set, of files that a node has in part, or not at all, or has just changed."""

import os

from harness import check
from place import MIB, content
from scenario import everywhere, on_s3

OLD = 1_000_000_000


def touch(path, at=None):
    """As touch(1): it opens the file for writing."""
    fd = os.open(path, os.O_WRONLY)
    os.utime(fd, None if at is None else (at, at))
    os.close(fd)


@everywhere
def touched_unread(w):
    """touch of what the store has and the node does not: nothing of it changes but the time."""
    w.put(large=content("large", 9 * MIB), begun=content("begun", 9 * MIB), small=b"small")
    a = w.node()
    with open(a.path("begun"), "rb", buffering=0) as f:
        f.read(4096)
        touch(a.path("begun"))
    for key in ("large", "small"):
        touch(a.path(key), OLD)
        check(os.stat(a.path(key)).st_mtime == OLD, "the time that was set")
    check(a.flush() == 0, "flush")
    check(a.read("large") == content("large", 9 * MIB), "damaged: what is shown after a touch")


@on_s3
def rewritten_with_its_old_time(w):
    """rsync --inplace -t, then a reboot: what nobody synced after the old version was is set aside."""
    a = w.node()
    a.write("f", b"one", sync=True)
    os.utime(a.path("f"), (OLD, OLD))
    check(a.flush() == 0, "flush")
    w.store.cut_off()
    a.rewrite("f", b"two")
    os.utime(a.path("f"), (OLD, OLD))
    a.reboot()
    w.store.connect()
    a.up()
    check(a.read("f") == b"one", "what the store has")


CASES = [touched_unread, rewritten_with_its_old_time]
