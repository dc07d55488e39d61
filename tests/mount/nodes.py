"""Two mounts of one store, as on two nodes: what one changed the other sees when it opens the file
after attr_timeout (close-to-open), and never a mix of versions. Each case gets both mounts and a
folder of its own; QUICK in suite.py has the timeouts."""

import errno
import os
import shutil
import time

from harness import check, wait_for

ATTR_TIMEOUT = 1.0
LIST_TIMEOUT = 1.5


def put(path, data):
    with open(path, "wb") as f:
        f.write(data)


def get(path):
    with open(path, "rb") as f:
        return f.read()


def _paths(a, b, folder, name="f"):
    return f"{a.mountpoint}/{folder}/{name}", f"{b.mountpoint}/{folder}/{name}"


def replaced_content(a, b, folder):
    """Longer, shorter and of the same size; size and content agree at each open."""
    here, there = _paths(a, b, folder)
    put(here, b"0" * 50000)
    a.flush()
    wait_for("the other node sees the file", lambda: os.path.exists(there), 10)
    for i, size in enumerate((50000, 200000, 1000, 1000, 3000000, 2999999)):
        data = os.urandom(size)
        put(here, data)
        a.flush()
        time.sleep(ATTR_TIMEOUT + 0.1)
        with open(there, "rb") as f:
            found = os.fstat(f.fileno()).st_size
            check(found == size, f"change {i}: fstat after open says {found} for {size}")
            check(f.read() == data, f"change {i}: content")
        check(os.stat(there).st_size == size, f"change {i}: stat")


def reader_keeps_its_version(a, b, folder):
    here, there = _paths(a, b, folder)
    old, new = os.urandom(8 << 20), os.urandom(8 << 20)
    put(here, old)
    a.flush()
    wait_for("the other node sees the file", lambda: os.path.exists(there), 10)
    fd = os.open(there, os.O_RDONLY)
    check(os.pread(fd, 4096, 0) == old[:4096], "first block")
    put(here, new)
    a.flush()
    time.sleep(ATTR_TIMEOUT + 0.1)
    check(get(there) == new, "a new open")
    for off in range(0, len(old), 1 << 20):
        try:
            piece = os.pread(fd, 4096, off)
        except OSError as e:
            check(e.errno == 116, f"errno {e.errno} instead of ESTALE")
            continue
        check(piece == old[off:off + 4096], f"the old descriptor reads something new at {off}")
    os.close(fd)


def names_come_and_go(a, b, folder):
    here, there = _paths(a, b, folder)
    os.listdir(os.path.dirname(there))
    put(here, b"new")
    os.mkdir(f"{here}.d")
    put(f"{here}.d/in", b"in")
    a.flush()
    wait_for("new names", lambda: {"f", "f.d"} <= set(os.listdir(os.path.dirname(there))), 10)
    check(get(f"{there}.d/in") == b"in", "in the new directory")
    os.unlink(here)
    os.unlink(f"{here}.d/in")
    os.rmdir(f"{here}.d")
    a.flush()
    wait_for("removed names", lambda: not set(os.listdir(os.path.dirname(there))), 10)
    # The kernel is told by a thread of its own, a moment after the listing.
    wait_for("stat of a removed name", lambda: not os.path.exists(there), 10)


def renamed_over(a, b, folder):
    """The pointer file that trainers replace by a rename."""
    here, there = _paths(a, b, folder, "latest")
    put(here, b"step-1")
    a.flush()
    wait_for("the other node sees the file", lambda: os.path.exists(there), 10)
    for i in range(2, 5):
        put(f"{here}.tmp", f"step-{i}".encode())
        os.rename(f"{here}.tmp", here)
        a.flush()
        time.sleep(ATTR_TIMEOUT + 0.1)
        check(get(there) == f"step-{i}".encode(), f"after rename {i}: {get(there)}")


def loser_of_two_writers(a, b, folder):
    """What another node wrote meanwhile is not overwritten: the content from here is set aside."""
    here, there = _paths(a, b, folder)
    if not a.status()["store"].startswith("s3:"):
        return
    put(here, b"first")
    a.flush()
    wait_for("the other node sees the file", lambda: os.path.exists(there), 10)
    check(get(there) == b"first", "the content of before")
    kept = b.status()["queue"]["kept_files"]
    fd = os.open(there, os.O_RDWR)
    put(here, b"by the one who was first")
    a.flush()
    os.pwrite(fd, b"by the loser", 0)
    os.close(fd)
    wait_for("the content is set aside", lambda: b.status()["queue"]["kept_files"] == kept + 1, 20)

    def shows_the_winner():
        try:
            return get(there) == b"by the one who was first"
        except OSError as e:
            check(e.errno == errno.ESTALE, f"the loser's file opens with {e}")
            return False

    wait_for("the other's content", shows_the_winner, 10)
    check(get(here) == b"by the one who was first", "where it was written")
    with open(os.path.join(b.cache, "kept", folder, "f"), "rb") as f:
        check(f.read() == b"by the loser", "what was set aside")
    check(f"kept/{folder}/f" in b.log_tail(20000), "the log names it")
    # It is named at the end, too; then what was kept is thrown away here.
    done = b.run("umount", b.mountpoint, seconds=60)
    check(done.returncode == 1 and f"{folder}/f" in done.stdout, f"umount: {done.returncode}: {done.stdout}")
    b.kill()
    shutil.rmtree(os.path.join(b.cache, "kept"))
    b.start()


CASES = [replaced_content, reader_keeps_its_version, names_come_and_go, renamed_over, loser_of_two_writers]
