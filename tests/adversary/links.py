"""Files with several names, beside a second node."""

import os

from harness import check, wait_for
from scenario import on_s3


def link(node, old, new):
    os.link(node.path(old), node.path(new))
    node.oracle.wrote(node.name, new, node.oracle.current(node.name, old))


@on_s3
def replaced_under_one_name(w):
    """Another node replaces one of two names of a file; what is appended through the other name loses nobody's version."""
    a = w.node("a")
    a.write("h1", b"one.")
    link(a, "h1", "h2")
    check(a.flush() == 0, "flush")
    b = w.node("b")
    b.sees("h1", b"one.")
    b.rewrite("h1", b"by b.")
    check(b.flush() == 0, "flush")
    a.sees("h1", b"by b.")
    fd = os.open(a.path("h2"), os.O_RDWR)
    try:
        old = os.read(fd, 100)
        a.oracle.name("h2").also_whole = lambda body: body == b"by b."
        a.oracle.saw("a", "h2", old)
        os.pwrite(fd, b"more", len(old))
    finally:
        os.close(fd)
    a.oracle.wrote("a", "h2", old + b"more")
    if a.mount.process and os.stat(a.path("h1")).st_ino == os.stat(a.path("h2")).st_ino:
        a.oracle.wrote("a", "h1", old + b"more")
    a.flush()


@on_s3
def removed_by_another(w):
    """A file has names in two directories, and another node removes one: its directory is empty, and can be removed."""
    a = w.node("a")
    os.mkdir(a.path("d"))
    os.mkdir(a.path("e"))
    a.write("d/h1", b"one")
    link(a, "d/h1", "e/h2")
    check(a.flush() == 0, "flush")
    b = w.node("b")
    b.sees("d/h1", b"one")
    b.unlink("d/h1")
    check(b.flush() == 0, "flush")
    wait_for("a shows the removal", lambda: not os.listdir(a.path("d")), 15, 0.1)
    os.rmdir(a.path("d"))
    check(a.read("e/h2") == b"one", "the other name")
    check(a.umount() == 0, "umount")
    a.up()
    check(os.listdir(a.path()) == ["e"], f"after a new mount: {os.listdir(a.path())}")


CASES = [replaced_under_one_name, removed_by_another]
