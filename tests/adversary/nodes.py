"""Two nodes at one store."""

import errno
import os
import time

from harness import check
from scenario import on_s3


def pair(w, **contents):
    """Two nodes that know these files."""
    a = w.node("a")
    for key, body in contents.items():
        a.write(key, body)
    check(a.flush() == 0, "flush")
    b = w.node("b")
    for key, body in contents.items():
        b.sees(key, body)
    return a, b


@on_s3
def two_writers(w):
    """Both change what they have seen: one wins, the other's content is set aside and told of."""
    a, b = pair(w, f=b"one")
    w.store.cut_off()
    a.rewrite("f", b"by a")
    b.rewrite("f", b"by b")
    w.store.connect()
    codes = [node.flush() for node in (a, b)]
    check(codes != [0, 0], "lied: runfs flush, exit code 0 on both nodes")


@on_s3
def one_after_the_other(w):
    """Each sees what the other closed and changes it."""
    a, b = pair(w, f=b"0")
    for i in range(1, 5):
        node, other = (a, b) if i % 2 else (b, a)
        node.rewrite("f", b"%d" % i)
        check(node.flush() == 0, "flush")
        other.sees("f", b"%d" % i)


@on_s3
def removed_and_changed(w):
    """One removes what the other has changed meanwhile: the change stays."""
    a, b = pair(w, f=b"one", g=b"one")
    w.store.cut_off()
    a.unlink("f")
    b.rewrite("f", b"by b")
    b.unlink("g")
    a.rewrite("g", b"by a")
    w.store.connect()
    b.flush()
    a.flush()


@on_s3
def same_bytes(w):
    """Both write the same bytes: that is no conflict."""
    a, b = pair(w, f=b"one")
    w.store.cut_off()
    a.rewrite("f", b"two")
    b.rewrite("f", b"two")
    w.store.connect()
    check([node.flush() for node in (a, b)] == [0, 0], "identical bytes are taken for a conflict")
    check([node.umount() for node in (a, b)] == [0, 0], "identical bytes are taken for a conflict")


def attributes_of_what_another(w, does):
    a, b = pair(w, f=b"one")
    w.store.cut_off()
    os.chmod(b.path("f"), 0o600)
    b.freeze()
    w.store.connect()
    does(a)
    check(a.flush() == 0, "flush")
    b.thaw()
    b.flush()


@on_s3
def attributes_of_what_another_replaced(w):
    """A chmod of a file that another node replaced meanwhile brings no old content back."""
    attributes_of_what_another(w, lambda a: a.rewrite("f", b"two"))


@on_s3
def attributes_of_what_another_removed(w):
    """A chmod of a file that another node removed meanwhile does not bring it back."""
    attributes_of_what_another(w, lambda a: a.unlink("f"))


@on_s3
def directory_moved_beside_a_writer(w):
    """One moves a directory while the other changes a file in it: the change is somewhere.
    (Of more than 8 names this server looks at no condition.)"""
    a = w.node("a")
    os.mkdir(a.path("d"))
    for i in range(6):
        a.write(f"d/f{i}", b"%d" % i)
    check(a.flush() == 0, "flush")
    b = w.node("b")
    for i in (1, 4):
        b.sees(f"d/f{i}", b"%d" % i)
    w.store.cut_off()
    for i in (1, 4):
        b.rewrite(f"d/f{i}", b"%d by b" % i)
    os.rename(a.path("d"), a.path("e"))
    for i in range(6):
        for key in (f"d/f{i}", f"e/f{i}"): # which of the versions moves is the store's affair
            a.oracle.name(key).also_whole = lambda body, i=i: body in (b"%d" % i, b"%d by b" % i)
        a.oracle.wrote("a", f"e/f{i}", b"%d" % i).may_be_gone = i in (1, 4)
        a.oracle.removed("a", f"d/f{i}")
    w.store.connect()
    b.flush()
    a.flush()


@on_s3
def removal_behind_a_conflict(w):
    """Who loses a conflict removed another file after that: it is treated as after a reboot."""
    a, b = pair(w, f=b"one", g=b"one")
    w.store.cut_off()
    b.rewrite("f", b"by b")
    b.unlink("g")
    b.oracle.name("g").heads[-1].may_be_gone = True
    b.freeze()
    w.store.connect()
    a.rewrite("f", b"by a")
    check(a.flush() == 0, "flush")
    b.thaw()
    check(b.flush() != 0, "lied: runfs flush, exit code 0 with content set aside")
    check(w.stored("g") == b"one", "a removal that waited for what was set aside took effect")


@on_s3
def both_create(w):
    """Both make files of the same names at the same time, and write some of them twice: what one has closed and the
    other did not see is in the store or set aside."""
    a, b = w.node("a"), w.node("b")
    for i in range(30):
        first, second = (a, b) if i % 2 else (b, a)
        first.rewrite(f"f{i}", b"first %d" % i)
        time.sleep(0.013 * (i % 8))
        for again in range(1 + i % 3):
            try:
                second.rewrite(f"f{i}", b"second %d %d" % (i, again))
            except OSError as e:
                check(e.errno == errno.ESTALE, str(e)) # the conflict is seen already
                w.oracle.unacknowledged(second.name, f"f{i}", b"second %d %d" % (i, again))
            time.sleep(0.007 * (i % 5))


CASES = [two_writers, one_after_the_other, removed_and_changed, same_bytes, attributes_of_what_another_replaced,
         attributes_of_what_another_removed, directory_moved_beside_a_writer, removal_behind_a_conflict, both_create]
