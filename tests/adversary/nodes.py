"""Two nodes at one store."""

from harness import check
from places import on_s3


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


CASES = [two_writers, one_after_the_other, removed_and_changed]
