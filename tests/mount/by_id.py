"""`.runfs/by-id`: of a mount with the layout torchx and raw names, the runs by their ids. Each case has a store of its own
(routes.Tree), into which other programs put runs, too."""

import base64
import os
import pwd
import shutil
import stat
import subprocess

import acl
from harness import check, wait_for
from routes import LIST_TIMEOUT, get, put
from sys_calls import errno_of, forget_names
from ways import NOBODY

RAW = {"layout": {"name": "torchx", "names": "raw"}}
CONTROL = 16 # inode numbers below it are `.runfs` and its files
# An id, and how the mount shows it.
IDS = {"a": "a", "local_cwd://session/app-1": "local_cwd:%2F%2Fsession%2Fapp-1", "50%": "50%25", "two\nlines": "two%0Alines",
       "\x7f": "%7F", "nul\0": "nul%00", ".": "%2E", "..": "%2E%2E", ".runfs": "%2E%72%75%6E%66%73", "by-id": "by-id",
       "snow\N{SNOWMAN}": "snow\N{SNOWMAN}", "x" * 150: "x" * 150}
NONE = ["me======", "MF======", "ME", "lineage", base64.b32encode(b"\xff").decode(), "A"]
SPELLINGS = ["b", "%61", "local_cwd:%2f%2fsession%2fapp-1", "50%", "two\nlines", "lineage", "%FF", "\N{SNOWMAN}", "x" * 151,
             "x" * 250, "file"]


def encoded(run):
    return base64.b32encode(run.encode()).decode()


def mounted(tree, cache="cache", options=()):
    m = tree.mount(tree.config(names=("one",), more=RAW), cache, options)
    return m, f"{m.mountpoint}/.runfs/by-id"


def put_runs(tree, runs):
    for run in runs:
        tree.put_raw("one", f"{encoded(run)}/metadata/m", run.encode())


def runs_have_their_ids(tree):
    put_runs(tree, IDS)
    for name in NONE:
        tree.put_raw("one", f"{name}/metadata/m", b"none")
    tree.put_raw("one", encoded("file"), b"no directory")
    m, by_id = mounted(tree)
    for spelling in SPELLINGS: # before anything was listed, and after
        check(errno_of(os.lstat, f"{by_id}/{spelling}") == "ENOENT", f"{spelling} is there")
    check(get(f"{by_id}/{IDS['50%']}/metadata/m") == b"50%", "a run by its id, before a listing")
    check(sorted(os.listdir(by_id)) == sorted(IDS.values()), f"by-id has {sorted(os.listdir(by_id))}")
    check(sorted(os.listdir(f"{m.mountpoint}/.runfs")) == ["by-id", "locked", "metrics", "status.json"], ".runfs")
    for run, shown in IDS.items():
        check(os.readlink(f"{by_id}/{shown}") == f"../../{encoded(run)}", f"the target of {shown}")
        check(get(f"{by_id}/{shown}/metadata/m") == run.encode(), f"what {shown} leads to")
    for spelling in SPELLINGS:
        check(errno_of(os.lstat, f"{by_id}/{spelling}") == "ENOENT", f"{spelling} is there")
    put(f"{by_id}/a/metadata/new", b"through the link")
    check(get(f"{m.mountpoint}/{encoded('a')}/metadata/new") == b"through the link", "written through the link")
    check(os.path.realpath(f"{by_id}/a/metadata") == f"{os.path.realpath(m.mountpoint)}/{encoded('a')}/metadata", "realpath")
    m.umount()
    check(get(tree.raw("one", f"{encoded('a')}/metadata/new")) == b"through the link", "stored")


def thousands_of_runs(tree):
    """The numbers are those of the listing, each run's own, and the same as long as the mount is there."""
    runs = [f"local_cwd://session/app-{i}" for i in range(3000)]
    put_runs(tree, runs)
    m, by_id = mounted(tree, options=["attr_timeout=1h", "list_timeout=1h"])
    with os.scandir(by_id) as found:
        numbers = {e.name: e.inode() for e in found if e.is_symlink()}
    check(set(numbers) == {run.replace("/", "%2F") for run in runs}, f"{len(numbers)} of {len(runs)} are there")
    others = [os.lstat(f"{m.mountpoint}/{where}").st_ino
              for where in ("", ".runfs", ".runfs/by-id", ".runfs/metrics", ".runfs/status.json")]
    check(len(set(others)) == len(others), f"numbers of .runfs: {others}")
    check(len(set(numbers.values())) == len(runs), "a number twice")
    check(all(CONTROL <= n < 1 << 63 for n in numbers.values()), f"a number such as {min(numbers.values())}")
    for name, number in numbers.items():
        st = os.lstat(f"{by_id}/{name}")
        check((st.st_ino, st.st_nlink, st.st_size) == (number, 1, len(os.readlink(f"{by_id}/{name}"))), f"{name}: {st}")
    if os.geteuid() == 0:
        forget_names(m.mountpoint)
    with os.scandir(by_id) as found:
        check({e.name: e.inode() for e in found} == numbers, "other numbers later")
    check(all(os.lstat(f"{by_id}/{name}").st_ino == n for name, n in numbers.items()), "another number later")
    requests = m.status()["requests"]["requests"]
    subprocess.run(["ls", "-l", by_id], check=True, stdout=subprocess.DEVNULL)
    asked = m.status()["requests"]["requests"] - requests
    check(asked < 20, f"ls -l asks the store {asked} times")
    m.umount()


def runs_come_and_go(tree):
    """Here at once, however long the kernel may believe names; of other nodes once the root is listed again."""
    put_runs(tree, ["a"])
    m, by_id = mounted(tree, options=["entry_timeout=1h", "attr_timeout=1h"])
    root = m.mountpoint
    check(os.listdir(by_id) == ["a"], "the first run")
    os.mkdir(f"{root}/{encoded('b')}")
    check(sorted(os.listdir(by_id)) == ["a", "b"] and os.path.isdir(f"{by_id}/b"), "a run that was made")
    os.rename(f"{root}/{encoded('b')}", f"{root}/{encoded('c')}")
    check(errno_of(os.lstat, f"{by_id}/b") == "ENOENT", "its old name")
    check(os.readlink(f"{by_id}/c") == f"../../{encoded('c')}", "its new name")
    os.rmdir(f"{root}/{encoded('c')}")
    check(errno_of(os.lstat, f"{by_id}/c") == "ENOENT" and os.listdir(by_id) == ["a"], "a run that was removed")
    put(f"{root}/{encoded('c')}", b"a file now")
    check(errno_of(os.lstat, f"{by_id}/c") == "ENOENT" and os.listdir(by_id) == ["a"], "a file")
    os.unlink(f"{root}/{encoded('c')}")
    m.flush()
    put_runs(tree, ["late"])
    wait_for("another node's run", lambda: os.path.isdir(f"{by_id}/late"), 20 * LIST_TIMEOUT)
    check(get(f"{by_id}/late/metadata/m") == b"late" and sorted(os.listdir(by_id)) == ["a", "late"], "another node's run")
    shutil.rmtree(tree.raw("one", encoded("late")))
    wait_for("its removal", lambda: errno_of(os.lstat, f"{by_id}/late") == "ENOENT", 20 * LIST_TIMEOUT)
    check(os.listdir(by_id) == ["a"], "what another node removed")
    m.umount()


def nothing_can_be_changed(tree):
    put_runs(tree, ["a"])
    m, by_id = mounted(tree)
    refused = {"EPERM", "EACCES"}
    for what, call, *words in (("mkdir", os.mkdir, f"{by_id}/b"), ("a file", put, f"{by_id}/b", b""),
                               ("symlink", os.symlink, "x", f"{by_id}/b"), ("unlink", os.unlink, f"{by_id}/a"),
                               ("rename", os.rename, f"{by_id}/a", f"{by_id}/b"),
                               ("rename into it", os.rename, f"{m.mountpoint}/{encoded('a')}", f"{by_id}/b"),
                               ("rename out of it", os.rename, f"{by_id}/a", f"{m.mountpoint}/b"),
                               ("rmdir of it", os.rmdir, by_id), ("chmod of it", os.chmod, by_id, 0o777),
                               ("rename of it", os.rename, by_id, f"{m.mountpoint}/b"),
                               ("times", lambda: os.utime(f"{by_id}/a", follow_symlinks=False)),
                               ("a hard link", lambda: os.link(f"{by_id}/a", f"{m.mountpoint}/b", follow_symlinks=False))):
        check(errno_of(call, *words) in refused, f"{what}: {errno_of(call, *words)}")
    check(os.listdir(by_id) == ["a"] and os.listdir(m.mountpoint) == [encoded("a")], "something has changed")
    m.umount()
    for layout in ("plain", "torchx"):
        m = tree.mount(tree.config(names=("one",), more={"layout": layout}), layout)
        check(sorted(os.listdir(f"{m.mountpoint}/.runfs")) == ["locked", "metrics", "status.json"], f".runfs of {layout}")
        check(errno_of(os.lstat, f"{m.mountpoint}/.runfs/by-id") == "ENOENT", f"by-id of {layout}")
        m.umount()


def others_see_what_the_root_lets_them(tree):
    """Its mode and its ACL count, at once."""
    if os.geteuid() != 0:
        return "needs root"
    os.chmod(tree.work.folder, 0o755)
    nobody = pwd.getpwnam("nobody").pw_uid
    put_runs(tree, ["a"])
    m, by_id = mounted(tree, options=["allow_other", "acl", "attr_timeout=1h"])

    def may(*command):
        return subprocess.run([*NOBODY, *command], cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def rights():
        return may("ls", by_id), may("cat", f"{by_id}/a/metadata/m")

    for mode, wanted in ((0o755, (True, True)), (0o711, (False, True)), (0o744, (False, False)), (0o700, (False, False)),
                         (0o755, (True, True))):
        os.chmod(m.mountpoint, mode)
        check(rights() == wanted, f"{mode:o}: lists and reads: {rights()}")
        check(stat.S_IMODE(os.stat(by_id).st_mode) == mode & 0o555, "its mode")
    for entry, wanted in (("--x", (False, True)), ("r-x", (True, True)), ("---", (False, False))):
        told = acl.set_(m.mountpoint, acl.ACCESS, f"u::rwx,u:{nobody}:{entry},g::r-x,m::r-x,o::r-x")
        check(told == "", f"the ACL of the root: {told}")
        check(rights() == wanted, f"an ACL with {entry}: lists and reads: {rights()}")
    m.umount()
    return None


CASES = [runs_have_their_ids, thousands_of_runs, runs_come_and_go, nothing_can_be_changed, others_see_what_the_root_lets_them]
