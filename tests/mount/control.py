"""The control directory `.runfs` and the control attribute of the root."""

import json
import os
import stat

from harness import check
from sys_calls import errno_of


def hidden_directory(mount):
    root = mount.mountpoint
    check(".runfs" not in os.listdir(root), "in the root's listing")
    check(stat.S_ISDIR(os.stat(f"{root}/.runfs").st_mode), "no directory")
    check(sorted(os.listdir(f"{root}/.runfs")) == ["locked", "metrics", "status.json"], "its listing")
    check(errno_of(os.mkdir, f"{root}/.runfs") == "EEXIST", "mkdir of it")
    check(errno_of(os.rmdir, f"{root}/.runfs") in ("EPERM", "EACCES"), "rmdir of it")
    check(errno_of(os.mkdir, f"{root}/.runfs/x") in ("EPERM", "EACCES"), "mkdir in it")
    check(errno_of(os.rename, f"{root}/.runfs", f"{root}/other") in ("EPERM", "EACCES"), "rename of it")
    check(errno_of(os.unlink, f"{root}/.runfs/metrics") in ("EPERM", "EACCES"), "unlink in it")
    check(errno_of(os.open, f"{root}/.runfs/metrics", os.O_WRONLY) == "EACCES", "opened for writing")
    check(errno_of(os.stat, f"{root}/.runfs/none") == "ENOENT", "nothing in it")


def status_file(mount):
    with open(f"{mount.mountpoint}/.runfs/status.json") as f:
        status = json.load(f)
    check(status["mountpoint"] == mount.mountpoint, f"mountpoint {status['mountpoint']}")
    with open(f"{mount.mountpoint}/.runfs/status.json") as f: # again, in pieces
        text = ""
        while piece := f.read(7):
            text += piece
    check(json.loads(text)["mountpoint"] == mount.mountpoint, "read in pieces")


def metrics_file(mount):
    with open(f"{mount.mountpoint}/.runfs/metrics") as f:
        lines = [line for line in f.read().splitlines() if line and not line.startswith("#")]
    names = {line.split()[0].split("{")[0]: float(line.split()[1]) for line in lines}
    check(all(name.startswith("runfs_") for name in names), f"{sorted(names)[:3]}")
    check("runfs_dirty_files" in names, f"no runfs_dirty_files in {sorted(names)}")


def control_attribute(mount):
    path = os.getxattr(mount.mountpoint, "user.runfs.control")
    check(stat.S_ISSOCK(os.stat(path).st_mode), f"{path} is no socket")


CASES = [hidden_directory, status_file, metrics_file, control_attribute]
