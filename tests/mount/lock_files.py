"""`-o del_locks`: programs that lock a checkpoint by a file beside it, as Ray's Checkpoint.as_directory() does
(ray/train/_checkpoint.py): its steps, done by hand in processes of their own, without Ray."""

import glob
import os
import shutil
import signal
import subprocess
import sys

from harness import check, wait_for
from sys_calls import errno_of

# What Ray does of its own locks: takes one, tells that it reads, and at the end gives it back; the last one out removes.
READER = r"""
import glob, os, shutil, sys
path = sys.argv[1]
lock = path.rstrip("/") + ".del_lock_" + str(os.getpid())
open(lock, "a").close()
try:
    print("reads", flush=True)
    sys.stdin.readline()
    with open(path + "/model", "rb") as f:
        print(f.read().decode(), flush=True)
finally:
    os.remove(lock)
if not glob.glob(path.rstrip("/") + ".del_lock_*"):
    shutil.rmtree(path, ignore_errors=True)
print("out", flush=True)
sys.stdin.readline()
"""


class Reader:
    def __init__(self, path, *wrapper):
        self.process = subprocess.Popen([*wrapper, sys.executable, "-c", READER, path], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.says("reads")

    def says(self, wanted):
        line = self.process.stdout.readline().strip()
        check(line == wanted, f"a reader says {line!r} instead of {wanted!r}")

    def goes_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def reads_and_leaves(self):
        self.goes_on()
        self.says("weights")
        self.says("out")

    def ends(self):
        self.goes_on()
        check(self.process.wait(20) == 0, "a reader failed")

    def killed(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(20)


def locking(tree, cache="cache"):
    """A mount with a checkpoint, and the path of that."""
    m = tree.mount(tree.config(names=("one",), more={"options": {"del_locks": True}}), cache)
    path = f"{m.mountpoint}/ckpt"
    os.makedirs(path, exist_ok=True)
    with open(f"{path}/model", "w") as f:
        f.write("weights")
    m.flush()
    check("ckpt/model" in tree.keys("one"), f"the store has {tree.keys('one')}")
    return m, path


def the_last_one_out_removes(tree):
    m, path = locking(tree)
    first, second = Reader(path), Reader(path)
    check(len(glob.glob(f"{path}.del_lock_*")) == 2, f"two locks: {os.listdir(m.mountpoint)}")
    check(errno_of(shutil.rmtree, path) == "EBUSY", "somebody else removes it")
    check(errno_of(os.rename, path, f"{path}-old") == "EBUSY", "somebody else moves it")
    first.reads_and_leaves() # its rmtree finds another lock, or is refused
    check(os.listdir(path) == ["model"], "it went under a reader")
    second.reads_and_leaves()
    check(not os.path.exists(path), "nobody removed it")
    first.ends()
    second.ends()
    m.flush()
    check(not [key for key in tree.keys("one") if "ckpt" in key], f"the store has {tree.keys('one')}")
    m.umount()


def a_killed_reader_leaves_no_lock(tree):
    m, path = locking(tree)
    reader = Reader(path)
    check(errno_of(os.unlink, f"{path}/model") == "EBUSY", "its model goes under a reader")
    reader.killed()
    wait_for("the end of its lock", lambda: not glob.glob(f"{path}.del_lock_*"), 10)
    last = Reader(path)
    last.reads_and_leaves()
    check(not os.path.exists(path), "the last one removed nothing")
    last.ends()
    m.umount()


def two_users_of_one_process_share_its_lock(tree):
    m, path = locking(tree)
    lock = f"{path}.del_lock_{os.getpid()}"
    for _ in range(2):
        open(lock, "a").close()
    other = Reader(path)
    os.remove(lock)
    check(os.path.exists(lock), "the other user's went, too")
    other.reads_and_leaves()
    check(os.path.exists(f"{path}/model"), "it went under the second user")
    os.remove(lock)
    check(not os.path.exists(lock) and errno_of(os.remove, lock) == "ENOENT", "the lock stays")
    shutil.rmtree(path)
    other.ends()
    m.umount()


def another_namespace_s_number_is_its_own(tree):
    """A container's process is bound by the number that it has there, and holds a lock as any other."""
    if os.geteuid() != 0:
        return "needs root"
    m, path = locking(tree)
    reader = Reader(path, "unshare", "--pid", "--fork", "--kill-child")
    names = glob.glob(f"{path}.del_lock_*")
    check(len(names) == 1 and int(names[0].rsplit("_", 1)[1]) < 100, f"not the number of its namespace: {names}")
    check(errno_of(os.unlink, f"{path}/model") == "EBUSY", "its model goes under it")
    # The same number, asked for by a process that has another one: an ordinary file, which locks nothing.
    open(f"{m.mountpoint}/x.del_lock_1", "w").close()
    open(f"{m.mountpoint}/x", "w").close()
    os.unlink(f"{m.mountpoint}/x")
    m.flush()
    check("x.del_lock_1" in tree.keys("one"), f"an ordinary file is not in the store: {tree.keys('one')}")
    reader.reads_and_leaves()
    check(not os.path.exists(path), "the last one removed nothing")
    reader.ends()
    m.umount()
    return None


CASES = [the_last_one_out_removes, a_killed_reader_leaves_no_lock, two_users_of_one_process_share_its_lock,
         another_namespace_s_number_is_its_own]
