"""Cache directories that were moved, copied, restored and rolled back."""

import os

from harness import check
from places import everywhere


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


CASES = [moved]
