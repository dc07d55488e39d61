"""Two mounts of one store, as on two nodes: what one changed the other sees when it opens the file
after attr_timeout (close-to-open), and never a mix of versions. Each case gets both mounts and a
folder of its own; QUICK in suite.py has the timeouts."""

import errno
import os
import shutil
import time

from harness import Failure, check, wait_for
from sys_calls import errno_of

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
    wait_for("the other node sees the file", lambda: os.path.exists(there))
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
    wait_for("the other node sees the file", lambda: os.path.exists(there))
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
    wait_for("new names", lambda: {"f", "f.d"} <= set(os.listdir(os.path.dirname(there))))
    check(get(f"{there}.d/in") == b"in", "in the new directory")
    os.unlink(here)
    os.unlink(f"{here}.d/in")
    os.rmdir(f"{here}.d")
    a.flush()
    wait_for("removed names", lambda: not set(os.listdir(os.path.dirname(there))))
    # The kernel is told by a thread of its own, a moment after the listing.
    wait_for("stat of a removed name", lambda: not os.path.exists(there))


def removed_while_open(a, b, folder):
    """A directory that a process on the other node has open, and works in, is removed, and a directory or a file takes
    its name, or none does. The process is told that what it names is not there, as on a local filesystem, or that it is
    stale; never EIO. Nothing that it tries brings the directory back."""
    for name in ("gone", "again", "file"):
        try:
            _removed_while_open(a, b, f"{folder}/{name}", name)
        except Failure as e:
            raise Failure(f"{name}: {e}") from e
    check(b.owed() == 0, "the other node owes something")


def _removed_while_open(a, b, folder, what):
    here, there = f"{a.mountpoint}/{folder}", f"{b.mountpoint}/{folder}"
    os.makedirs(f"{here}/sub")
    for name in ("f", "g", "sub/h"):
        put(f"{here}/{name}", b"content")
    a.flush()
    wait_for("the directory on the other node", lambda: os.path.exists(f"{there}/sub/h"), 20)
    top = os.open(there, os.O_RDONLY | os.O_DIRECTORY)
    sub = os.open("sub", os.O_RDONLY | os.O_DIRECTORY, dir_fd=top)
    unread = os.open("f", os.O_RDONLY, dir_fd=top)
    try:
        shutil.rmtree(here)
        if what == "again":
            os.mkdir(here)
            put(f"{here}/other", b"other")
        if what == "file":
            put(here, b"a file")
        a.flush()
        wait_for("the other node sees it", {"gone": lambda: not os.path.exists(there),
                                            "again": lambda: os.listdir(there) == ["other"],
                                            "file": lambda: os.path.isfile(there)}[what], 20)
        _work_in_what_is_gone(sub)
        if what != "again": # there the name, and so the open directory, is the new one's
            _work_in_what_is_gone(top)
        check(errno_of(os.pread, unread, 10, 0) == "ESTALE", "a file in it that was open, and not read yet")
        expected = {"gone": "ENOENT", "again": "", "file": "ENOTDIR"}[what]
        check(errno_of(os.listdir, there) == expected, f"ls of the name: {errno_of(os.listdir, there)}")
    finally:
        for fd in (top, sub, unread):
            os.close(fd)
    b.flush()
    check(os.path.exists(here) == (what != "gone"), "the directory came back")


def _work_in_what_is_gone(fd):
    at = f"/proc/self/fd/{fd}"
    check(os.listdir(at) == [], f"it lists {os.listdir(at)}")
    os.fstat(fd)
    for words, call in (("open", lambda: os.open("g", os.O_RDONLY, dir_fd=fd)),
                        ("create", lambda: os.open("new", os.O_CREAT | os.O_RDWR, dir_fd=fd)),
                        ("mkdir", lambda: os.mkdir("new", dir_fd=fd)),
                        ("symlink", lambda: os.symlink("to", "new", dir_fd=fd)),
                        ("stat", lambda: os.stat("g", dir_fd=fd)),
                        ("unlink", lambda: os.unlink("g", dir_fd=fd)),
                        ("rmdir", lambda: os.rmdir("sub", dir_fd=fd)),
                        ("rename", lambda: os.rename("g", "new", src_dir_fd=fd, dst_dir_fd=fd))):
        check(errno_of(call) in ("ENOENT", "ESTALE"), f"{words} in it: {errno_of(call) or 'no error'}")
    for words, call in (("chmod", lambda: os.fchmod(fd, 0o700)), ("utime", lambda: os.utime(fd)),
                        ("xattr", lambda: os.setxattr(fd, "user.x", b"1")), ("fsync", lambda: os.fsync(fd))):
        check(errno_of(call) in ("", "ENOENT", "ESTALE"), f"{words} of it: {errno_of(call)}")


def renamed_over(a, b, folder):
    """The pointer file that trainers replace by a rename."""
    here, there = _paths(a, b, folder, "latest")
    put(here, b"step-1")
    a.flush()
    wait_for("the other node sees the file", lambda: os.path.exists(there))
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
    wait_for("the other node sees the file", lambda: os.path.exists(there))
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

    wait_for("the other's content", shows_the_winner)
    check(get(here) == b"by the one who was first", "where it was written")
    with open(os.path.join(b.cache, "kept", folder, "f"), "rb") as f:
        check(f.read() == b"by the loser", "what was set aside")
    check(f"kept/{folder}/f" in b.log_tail(20000), "the log names it")
    # It is named at the end, too; then what was kept is thrown away here.
    done = b.run("umount", b.mountpoint, seconds=60)
    check(done.returncode == 3 and f"{folder}/f" in done.stdout, f"umount: {done.returncode}: {done.stdout}")
    b.kill()
    shutil.rmtree(os.path.join(b.cache, "kept"))
    b.start()


def retargeted_symlink(a, b, folder):
    """As a trainer moves `latest`: of the same length, and the other node had followed it."""
    here, there = _paths(a, b, folder, "latest")
    for name in ("step-1", "step-2"):
        os.mkdir(f"{os.path.dirname(here)}/{name}")
        put(f"{os.path.dirname(here)}/{name}/w", name.encode())
    os.symlink("step-1", here)
    a.flush()
    wait_for("the other node follows it", lambda: os.path.exists(there) and get(there + "/w") == b"step-1")
    os.readlink(there)
    time.sleep(2.1) # a server tells changes by the second
    os.unlink(here)
    os.symlink("step-2", here)
    a.flush()
    wait_for("the other node sees where it leads now", lambda: os.readlink(there) == "step-2", 20)
    check(get(there + "/w") == b"step-2", "it is followed")


def _same_attributes(one, other):
    return (one.st_mode, one.st_mtime_ns) == (other.st_mode, other.st_mtime_ns)


def changed_attributes(a, b, folder):
    """A backup on the other node sees by ctime that mode and times changed, whatever mtime says."""
    here, there = _paths(a, b, folder)
    put(here, b"x")
    a.flush()
    wait_for("the other node sees the file", lambda: os.path.exists(there))
    for change in (lambda: os.chmod(here, 0o700), lambda: os.utime(here, (1e9, 1e9)), lambda: os.chmod(here, 0o755)):
        before = os.stat(there)
        time.sleep(2.1)
        change()
        a.flush()
        wanted = os.stat(here)
        wait_for("the other node sees the change", lambda wanted=wanted: _same_attributes(os.stat(there), wanted), 20)
        check(os.stat(there).st_ctime_ns > before.st_ctime_ns, f"ctime: {os.stat(there)}, before {before}")


def appended_elsewhere_first(a, b, folder):
    """Who appends to what another node has just replaced, longer or shorter, appends to that, or loses to it as a
    whole: the kernel still knows the old size when the file is opened."""
    for i, other in enumerate((b"longer than it was\n", b"-\n")):
        here, there = _paths(a, b, folder, f"f{i}")
        put(there, b"0123456789\n")
        b.flush()
        wait_for("the file on the other node", lambda here=here: os.path.exists(here))
        get(here)
        time.sleep(ATTR_TIMEOUT + 0.1)
        put(there, other)
        b.flush()
        fd = os.open(here, os.O_WRONLY | os.O_APPEND)
        os.write(fd, b"appended")
        os.write(fd, b" twice")
        os.close(fd)
        check(get(here) == other + b"appended twice", f"{i}: shown here: {get(here)}")
        a.flush()
        time.sleep(ATTR_TIMEOUT + 0.1)
        check(get(there) == other + b"appended twice", f"{i}: shown there: {get(there)}")


CASES = [replaced_content, reader_keeps_its_version, names_come_and_go, removed_while_open, renamed_over,
         loser_of_two_writers, appended_elsewhere_first, retargeted_symlink, changed_attributes]
