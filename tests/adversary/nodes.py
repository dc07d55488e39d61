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
    check(not os.listdir(os.path.join(b.cache, "kept")), "what nobody changed here is set aside")


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


# ---- new names that one closes, and the other one stores first ----


def raced(w, make, meanwhile):
    """One is killed before what it has made goes up; the other one, which can't have seen it, is not."""
    a, b = w.node("a"), w.node("b")
    b.write("seen", b"before")
    check(b.flush() == 0, "flush")
    a.sees("seen", b"before")
    w.store.cut_off()
    make(a)
    a.kill()
    w.store.connect()
    meanwhile(b)
    check(b.flush() == 0, "flush")
    theirs = w.store.objects()
    a.up()
    check(a.flush(5) != 0, "lied: runfs flush, exit code 0 beside another node's version")
    for key, body in theirs.items():
        check(w.stored(key) == body, f"lost: what the other node had stored in {key}")
    return a, b


@on_s3
def new_names_of_a_killed_node(w):
    """Made and closed in each way that there is: the other node's versions stay, and it is told which lost."""
    names = ("made", "written", "empty", "synced", "renamed", "linked", "once-more", "seen")

    def make(a):
        a.rewrite("made", b"by a")
        a.write("written", b"by a")
        a.write("empty", b"")
        a.write("synced", b"by a", sync=True)
        a.write("x.tmp", b"by a")
        a.rename("x.tmp", "renamed")
        a.write("own", b"by a")
        os.link(a.path("own"), a.path("linked"))
        a.oracle.wrote("a", "linked", b"by a")
        a.write("once-more", b"by a")
        a.unlink("once-more")
        a.write("once-more", b"by a again")
        a.write("y.tmp", b"by a")
        a.rename("y.tmp", "seen")
    a, _ = raced(w, make, lambda b: [b.rewrite(key, b"by b") for key in names])
    for key in names:
        a.logs(f"/{key} was written by somebody else")
        check(a.read(key) == b"by b", f"{key} does not show what the store has")


@on_s3
def new_directories_of_both(w):
    """Both make the same directory, one file of the same name in it, and one of their own. The killed node's was
    another directory before."""
    def make(a):
        os.mkdir(a.path("d.tmp"))
        for key in ("both", "only-a"):
            a.rewrite(f"d.tmp/{key}", b"by a")
        a.move_folder("d.tmp", "d", ["d.tmp/both", "d.tmp/only-a"])

    def meanwhile(b):
        os.mkdir(b.path("d"))
        for key in ("both", "only-b"):
            b.rewrite(f"d/{key}", b"by b")
    a, b = raced(w, make, meanwhile)
    check(w.stored("d/only-a") == b"by a", "lost: what nobody else had made")
    b.sees("d/only-a", b"by a")
    a.sees("d/only-b", b"by b")


def new_kinds(w, make, meanwhile, theirs):
    """A file of one node and a directory of the other have one name, which this server does not take: told, until
    the name is another one."""
    a, _ = raced(w, make, meanwhile)
    a.logs("/d")
    if os.path.isdir(a.path("d")):
        a.move_folder("d", "e", ["d/f"])
    else:
        a.rename("d", "e")
    check(a.flush() == 0, "flush after the name was given up")
    a.sees(theirs, b"by b")


def make_directory(node, body):
    os.mkdir(node.path("d"))
    node.rewrite("d/f", body)


def make_marked_directory(node, body):
    """Its marker is stored before there is a file in it."""
    os.mkdir(node.path("d"))
    node.flush()
    node.rewrite("d/f", body)


@on_s3
def new_directory_beside_a_file(w):
    new_kinds(w, lambda a: make_directory(a, b"by a"), lambda b: b.rewrite("d", b"by b"), "d")


@on_s3
def new_file_beside_a_directory(w):
    new_kinds(w, lambda a: a.rewrite("d", b"by a"), lambda b: make_directory(b, b"by b"), "d/f")


@on_s3
def new_file_beside_a_marked_directory(w):
    new_kinds(w, lambda a: a.rewrite("d", b"by a"), lambda b: make_marked_directory(b, b"by b"), "d/f")


CASES = [new_names_of_a_killed_node, new_directories_of_both, new_directory_beside_a_file, new_file_beside_a_directory,
         new_file_beside_a_marked_directory, two_writers, one_after_the_other, removed_and_changed, same_bytes,
         attributes_of_what_another_replaced, attributes_of_what_another_removed, directory_moved_beside_a_writer, removal_behind_a_conflict, both_create]
