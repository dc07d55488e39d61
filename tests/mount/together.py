"""What several programs that use a directory at once may expect of a local filesystem: locks, and names that
many make and move. Each case gets an empty directory in the mount."""

import errno
import fcntl
import os
import struct
import subprocess
import sys
import threading
import time

from behaviour import get, put, same
from harness import check

# ---- locks ----

def _in_child(function):
    """The exit code of a child that runs function()."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(function())
        except BaseException:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _try(lock):
    try:
        lock()
    except OSError as e:
        return 1 if e.errno in (errno.EAGAIN, errno.EACCES) else 2
    return 0


def locks(d):
    put(f"{d}/f", b"0123456789")

    def flock_other():
        with open(f"{d}/f", "r+b") as f:
            return _try(lambda: fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB))

    def posix_other():
        with open(f"{d}/f", "r+b") as f:
            return _try(lambda: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 5))

    def ofd(f):
        fcntl.fcntl(f, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)) # F_OFD_SETLK

    def ofd_other():
        with open(f"{d}/f", "r+b") as f:
            return _try(lambda: ofd(f))

    for name, lock, other in (("flock", lambda f: fcntl.flock(f, fcntl.LOCK_EX), flock_other),
                              ("posix", lambda f: fcntl.lockf(f, fcntl.LOCK_EX), posix_other),
                              ("ofd", ofd, ofd_other)):
        same(_in_child(other), 0, f"{name}: free")
        with open(f"{d}/f", "r+b") as f:
            lock(f)
            same(_in_child(other), 1, f"{name}: held")
        same(_in_child(other), 0, f"{name}: free again")


def lock_waits_and_is_interrupted(d):
    put(f"{d}/f")
    with open(f"{d}/f", "r+b") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        waiter = subprocess.Popen([sys.executable, "-c",
                                   "import fcntl,sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX)", f"{d}/f"])
        time.sleep(0.3)
        check(waiter.poll() is None, "did not wait")
        waiter.terminate()
        same(waiter.wait(10), -15, "after SIGTERM")


# ---- many at once ----

def parallel_creates(d):
    errors = []

    def work(k):
        try:
            for i in range(60):
                path = f"{d}/t{k}-{i}"
                put(path, path.encode())
                if get(path) != path.encode():
                    errors.append(path)
                if i % 3 == 0:
                    os.rename(path, path + "r")
                elif i % 3 == 1:
                    os.unlink(path)
        except OSError as e:
            errors.append(str(e))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check(not errors, f"{errors[:3]}")
    same(len(os.listdir(d)), 8 * 40, "names left")


def one_winner(d):
    """Of many that create a name with O_EXCL one gets it."""
    for i in range(20):
        won = []

        def race(path=f"{d}/f{i}", won=won):
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                won.append(1)
            except FileExistsError:
                pass

        threads = [threading.Thread(target=race) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        same(len(won), 1, "winners")


CASES = [locks, lock_waits_and_is_interrupted, parallel_creates, one_winner]
