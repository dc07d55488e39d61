"""Cache directories that were moved, copied, restored and rolled back."""

import os

from harness import check
from place import MIB, content
from scenario import everywhere, replace_cache, run


def read_some(node, key, size):
    """A program reads the beginning: the file is here in part."""
    with open(node.path(key), "rb", buffering=0) as f:
        f.read(size)


@everywhere
def moved(w):
    """The cache directory is moved while it owes something: the next mount publishes it."""
    a = w.node()
    a.write("f", b"one")
    check(a.flush() == 0, "flush")
    a.write("f", b"two")
    a.kill()
    os.rename(a.cache, a.cache + "-moved")
    w.oracle.copied("a", "b")
    a.retire()
    b = w.node("b", cache=a.cache + "-moved")
    check(b.read("f") == b"two", "lost: what the cache owed")


def without_xattrs(w, copy):
    """A cache comes back from a copy that knows no xattrs: what it has was made by no protocol."""
    w.put(large=content("large", 24 * MIB))
    a = w.node()
    a.write("small", b"from before")
    check(a.flush() == 0, "flush")
    read_some(a, "large", 4096)
    check(a.umount() == 0, "umount")
    copy(a.cache, a.cache + "-copy")
    replace_cache(a, a.cache + "-copy")
    if a.try_up():
        a.flush()


@everywhere
def copied_by_cp_r(w):
    without_xattrs(w, lambda old, new: run("cp", "-r", old, new))


@everywhere
def copied_by_rsync(w):
    without_xattrs(w, lambda old, new: run("rsync", "-a", f"{old}/", new))


CASES = [moved, copied_by_cp_r, copied_by_rsync]
