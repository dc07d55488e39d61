"""Cache directories that were moved, copied, restored and rolled back."""

import os

from harness import check
from place import MIB, content
from scenario import cp_a, everywhere, on_s3, replace_cache, run


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


@on_s3
def two_copies(w):
    """Two nodes begin with copies of one cache (an image, a volume's clone), and both write."""
    a = w.node()
    a.write("f", b"one")
    check(a.umount() == 0, "umount")
    cp_a(a.cache, a.cache + "-copy")
    w.oracle.copied("a", "b")
    a.up()
    b = w.node("b", cache=a.cache + "-copy")
    a.sees("f", b"one")
    b.sees("f", b"one")
    w.store.cut_off()
    a.rewrite("f", b"by the first")
    b.rewrite("f", b"by the copy")
    w.store.connect()
    a.flush()
    b.flush()


@on_s3
def rolled_back(w):
    """A machine goes back to its snapshot of an hour ago, which owed an older version than the store has now."""
    a = w.node()
    a.write("f", b"one")
    a.write("g", b"one")
    check(a.flush() == 0, "flush")
    w.store.cut_off()
    a.rewrite("f", b"two")
    a.unlink("g")
    a.kill()
    known = w.oracle.seen_until_now("a")
    cp_a(a.cache, a.cache + "-snapshot")
    w.store.connect()
    a.up()
    check(a.flush() == 0, "flush")
    a.rewrite("f", b"three")
    a.write("g", b"again")
    check(a.umount() == 0, "umount")
    replace_cache(a, a.cache + "-snapshot")
    w.oracle.rolled_back("a", known, w.store.objects())
    if a.try_up():
        a.flush()


CASES = [moved, copied_by_cp_r, copied_by_rsync, two_copies, rolled_back]
