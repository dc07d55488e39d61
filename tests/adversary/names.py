"""Names that the server refuses, and servers that know less."""

import os

from harness import check, wait_for
from scenario import on_plain


def refused(w, heal):
    """The server refuses a name for good: that is told by name, holds up nothing elsewhere, and ends with the name.
    Removals beside it wait for it."""
    a = w.node()
    for folder in ("here", "there"):
        os.mkdir(a.path(folder))
        a.write(f"{folder}/old", b"one")
    check(a.flush() == 0, "flush")
    w.store.server.forbidden = f"{w.store.prefix}/here/bad".encode()
    with open(a.path("here/bad"), "wb") as f: # acknowledged, and refused: the flush says so
        f.write(b"refused")
    a.write("here/good", b"good")
    for folder in ("here", "there"):
        a.unlink(f"{folder}/old")
    done = a.mount.run("flush", a.path(), "--timeout", "10", seconds=40)
    check(done.returncode != 0 and "here/bad" in done.stdout, f"lied: runfs flush, exit code {done.returncode}: {done.stdout}")
    wait_for("the others' changes are in the store",
             lambda: w.stored("there/old") is None and w.stored("here/good") == b"good", 15, 0.1)
    check(w.stored("here/old") == b"one", "lost: a removal did not wait for what was closed before it, in its directory")
    heal(a)
    wait_for("a flush that says 0", lambda: a.flush(20) == 0, 20, 0.2) # the first tells of a refused removal, if any
    check("again: \n" not in a.log(), f"the log tells of a failure without its reason: {a.log()[-500:]}")


def move(a):
    os.rename(a.path("here/bad"), a.path("fine"))
    a.oracle.wrote("a", "fine", b"refused")


@on_plain
def refused_name_removed(w):
    refused(w, lambda a: os.unlink(a.path("here/bad")))


@on_plain
def refused_name_moved(w):
    refused(w, move)


@on_plain
def refused_name_after_a_new_mount(w):
    def again(a):
        check(a.umount(3) != 0, "lied: runfs umount, exit code 0 with a name that was refused")
        a.kill()
        a.up()
        move(a)
    refused(w, again)


@on_plain
def attributes_without_copies_in_parts(w):
    """The server knows no copies in parts: what is stored can be changed all the same."""
    a = w.node()
    a.write("f", b"content")
    check(a.flush() == 0, "flush")
    os.chmod(a.path("f"), 0o640)
    os.utime(a.path("f"), (1_600_000_000, 1_600_000_000))
    os.setxattr(a.path("f"), "user.note", b"text")
    check(a.flush(20) == 0, f"flush: {a.log()[-500:]}")
    cold = w.node("cold")
    found = os.stat(cold.path("f"))
    check(found.st_mode & 0o777 == 0o640 and found.st_mtime == 1_600_000_000, f"lost: attributes, {found}")
    check(os.getxattr(cold.path("f"), "user.note") == b"text", "lost: an xattr")


CASES = [refused_name_removed, refused_name_moved, refused_name_after_a_new_mount, attributes_without_copies_in_parts]
