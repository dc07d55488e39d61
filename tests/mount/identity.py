"""Who may do what on a mount that others may use (allow_other, default_permissions). Each case gets an
empty directory in the mount, and does nothing where it can't become somebody else. A case in ALIKE tells what it
saw; it runs in a plain folder of the local disk, too, and both must tell the same."""

import errno
import os
import socket
import stat
import struct
import tempfile

from behaviour import put, same
from sys_calls import errno_of, ioctl_in

OWNER, MEMBER, STRANGER = 4000, 4001, 4002 # users, each with a group of the same number
TEAM, OTHERS = 4100, 4200 # groups; OWNER and MEMBER are in the first


def do(user, code, *arguments):
    """Runs Python code as a user; "" or the name of the errno that it ends with."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([TEAM] if user in (OWNER, MEMBER) else [])
            os.setgid(user)
            os.setuid(user)
            exec(code, {"os": os, "a": arguments})
            os._exit(0)
        except OSError as e:
            os._exit(e.errno)
        except BaseException:
            os._exit(255)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return errno.errorcode[ended] if ended else ""


def mode_of(path):
    return oct(stat.S_IMODE(os.stat(path).st_mode))


def for_root(case):
    def run(d):
        if os.geteuid() != 0:
            return "not root"
        os.chmod(d, 0o755)
        return case(d)
    run.__name__ = case.__name__
    return run


@for_root
def an_owners_rights(d):
    f = f"{d}/f"
    put(f)
    os.chown(f, OWNER, OWNER)
    for user, code, expected in (
            (OWNER, "os.chmod(a[0], 0o640)", ""),
            (OWNER, f"os.chown(a[0], -1, {TEAM})", ""),
            (OWNER, f"os.chown(a[0], {OWNER}, -1)", ""),
            (OWNER, f"os.chown(a[0], -1, {OTHERS})", "EPERM"),
            (OWNER, f"os.chown(a[0], {MEMBER}, -1)", "EPERM"),
            (OWNER, "os.utime(a[0], (1, 1))", ""),
            (OWNER, "os.setxattr(a[0], 'user.x', b'1')", ""),
            (MEMBER, "open(a[0]).read()", ""),
            (MEMBER, "open(a[0], 'a')", "EACCES"),
            (MEMBER, "os.utime(a[0])", "EACCES"),
            (MEMBER, "os.setxattr(a[0], 'user.x', b'2')", "EACCES"),
            (STRANGER, "open(a[0]).read()", "EACCES"),
            (STRANGER, "os.getxattr(a[0], 'user.x')", "EACCES"),
            (STRANGER, "os.truncate(a[0], 0)", "EACCES"),
            (OWNER, "os.chmod(a[0], 0o666)", ""),
            (STRANGER, "os.utime(a[0])", ""), # who may write may say that it is now
            (STRANGER, "os.utime(a[0], (1, 1))", "EPERM"),
            (STRANGER, "os.chmod(a[0], 0o666)", "EPERM"),
            (STRANGER, f"os.chown(a[0], {STRANGER}, -1)", "EPERM"),
            (STRANGER, "os.unlink(a[0])", "EACCES"),
            (STRANGER, "os.link(a[0], a[0] + '2')", "EACCES"),
            (STRANGER, "os.setxattr(a[0], 'trusted.x', b'1')", "EPERM")):
        same(do(user, code, f), expected, f"{code} by {user}")
    same((os.stat(f).st_uid, os.stat(f).st_gid), (OWNER, TEAM), "owner and group")


@for_root
def supplementary_groups(d):
    """They open what belongs to one of them, and a new file gets the first group, or the directory's."""
    os.mkdir(f"{d}/team")
    os.chown(f"{d}/team", 0, TEAM)
    os.chmod(f"{d}/team", 0o770)
    os.mkdir(f"{d}/team/shared")
    os.chown(f"{d}/team/shared", 0, TEAM)
    os.chmod(f"{d}/team/shared", 0o2775)
    write = "open(a[0], 'x').write('x')"
    same(do(MEMBER, write, f"{d}/team/m"), "", "a member's file")
    same(do(MEMBER, write, f"{d}/team/shared/m"), "", "one in a directory that hands its group on")
    same(do(OWNER, "os.mkdir(a[0])", f"{d}/team/shared/dir"), "", "a directory there")
    same(do(STRANGER, write, f"{d}/team/s"), "EACCES", "a stranger's file")
    same(do(STRANGER, "os.listdir(a[0])", f"{d}/team"), "EACCES", "a stranger's ls")
    same(os.stat(f"{d}/team/m").st_gid, MEMBER, "group of a file")
    same(os.stat(f"{d}/team/shared/m").st_gid, TEAM, "group of a file in the shared directory")
    same((os.stat(f"{d}/team/shared/dir").st_gid, os.stat(f"{d}/team/shared/dir").st_mode & stat.S_ISGID), (TEAM, stat.S_ISGID),
         "a directory in the shared directory")


@for_root
def sticky_directories(d):
    """Only a name's owner, the directory's and root take it away."""
    top = f"{d}/tmp"
    os.mkdir(top)
    os.chown(top, OWNER, OWNER)
    os.chmod(top, 0o1777)
    for name in ("one", "two", "three"):
        same(do(MEMBER, "open(a[0], 'x')", f"{top}/{name}"), "", "a new file")
    same(do(MEMBER, "os.mkdir(a[0])", f"{top}/dir"), "", "a new directory")
    same(do(STRANGER, "open(a[0], 'x')", f"{top}/mine"), "", "a stranger's file")
    for code in ("os.unlink(a[0] + '/one')", "os.rename(a[0] + '/one', a[0] + '/x')", "os.rmdir(a[0] + '/dir')",
                 "os.rename(a[0] + '/mine', a[0] + '/one')", "os.rename(a[0] + '/dir', a[0] + '/x')"):
        same(do(STRANGER, code, top), "EPERM", f"{code} by a stranger")
    same(do(STRANGER, "os.rename(a[0] + '/mine', a[0] + '/mine2'); os.unlink(a[0] + '/mine2')", top), "", "one's own")
    same(do(MEMBER, "os.rename(a[0] + '/one', a[0] + '/two')", top), "", "over one's own")
    same(do(OWNER, "os.unlink(a[0] + '/two')", top), "", "by the directory's owner")
    os.unlink(f"{top}/three")
    same(os.listdir(top), ["dir"], "what is left")


@for_root
def set_id_bits(d):
    """They fall when somebody without privilege changes the content, by whatever call, and when the file changes hands;
    one who is not in the file's group can't set them for it."""
    source = f"{d}/source"
    put(source, b"s" * 100)
    os.chmod(source, 0o644)
    open_it = "f = os.open(a[0], os.O_RDWR); "
    for code in ("os.write(f, b'x')", "os.ftruncate(f, 2)", "os.posix_fallocate(f, 0, 9000)", "os.writev(f, [b'x', b'y'])",
                 "os.copy_file_range(os.open(a[1], os.O_RDONLY), f, 50)", "os.sendfile(f, os.open(a[1], os.O_RDONLY), 0, 50)",
                 "os.write(os.open(a[0], os.O_WRONLY | os.O_APPEND), b'x')"):
        path = f"{d}/{len(os.listdir(d))}"
        put(path, b"program")
        os.chown(path, OWNER, TEAM)
        os.chmod(path, 0o6777)
        same(do(MEMBER, open_it + code, path, source), "", code)
        same(mode_of(path), "0o777", f"mode after {code} by another")
    os.chmod(path, 0o6755)
    same(do(OWNER, f"os.chown(a[0], -1, {OWNER})", path), "", "chgrp")
    same(mode_of(path), "0o755", "mode after chgrp")
    os.chown(path, OWNER, OTHERS)
    same(do(OWNER, "os.chmod(a[0], 0o6755)", path), "", "chmod")
    same(mode_of(path), "0o4755", "the bit of a group that the owner is not in")
    # What the kernel would act on (here CAP_NET_RAW) is not kept: it would come back from a store.
    capability = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)
    for name in ("security.capability", "trusted.x"):
        same(errno_of(os.setxattr, path, name, capability), "ENOTSUP", f"{name} is set")
        same(errno_of(os.getxattr, path, name), "ENODATA", name)
    os.mkdir(f"{d}/dir")
    os.chmod(f"{d}/dir", 0o2775)
    os.chown(f"{d}/dir", OWNER, TEAM)
    same(mode_of(f"{d}/dir"), "0o2775", "a directory keeps its bit")


# ---- as in a plain folder ----

def _make(kind, path):
    if kind == "socket":
        with socket.socket(socket.AF_UNIX) as s:
            where = os.open(os.path.dirname(path), os.O_PATH) # a socket's path is short
            s.bind(f"/proc/self/fd/{where}/{os.path.basename(path)}")
            os.close(where)
    elif kind == "file":
        put(path, b"program")
    elif kind == "dir":
        os.mkdir(path)
    else:
        os.mknod(path, 0o600 | {"fifo": stat.S_IFIFO, "char": stat.S_IFCHR, "block": stat.S_IFBLK}[kind], os.makedev(1, 3))


SET_ID_MODES = (0o6775, 0o6767, 0o2010, 0o4666)


def set_id_bits_and_chown(d):
    """Of every kind, by root, the owner and a member of the group."""
    seen = {}
    for kind in ("file", "dir", "fifo", "socket", "char", "block"):
        for mode in SET_ID_MODES:
            for user, group in ((0, TEAM), (0, OTHERS), (OWNER, TEAM), (OWNER, OTHERS)):
                for change in (f"os.chown(a[0], -1, {OWNER})", "os.chown(a[0], -1, -1)", f"os.chown(a[0], {OWNER}, -1)"):
                    path = f"{d}/{kind}"
                    _make(kind, path)
                    os.chown(path, OWNER, group)
                    os.chmod(path, mode)
                    said = do(user, change, path)
                    seen[f"{kind} {mode:o} {group}: {change} by {user}"] = said, mode_of(path)
                    (os.rmdir if kind == "dir" else os.unlink)(path)
    return seen


def set_id_bits_and_changes(d):
    """Of a file whose content changes, by root, its owner, a member of its group and a stranger."""
    seen = {}
    for mode in SET_ID_MODES:
        for user in (0, OWNER, MEMBER, STRANGER):
            for group in (TEAM, OTHERS):
                for change in ("os.write(os.open(a[0], os.O_WRONLY), b'x')", "os.truncate(a[0], 3)",
                               "os.open(a[0], os.O_WRONLY | os.O_TRUNC)",
                               "os.posix_fallocate(os.open(a[0], os.O_WRONLY), 0, 9000)"):
                    path = f"{d}/f"
                    put(path, b"program")
                    os.chown(path, OWNER, group)
                    os.chmod(path, mode)
                    said = do(user, change, path)
                    seen[f"{mode:o} {group}: {change} by {user}"] = said, mode_of(path)
                    os.unlink(path)
    return seen


def alike(case):
    @for_root
    def run_both(d):
        with tempfile.TemporaryDirectory(prefix="runfs-identity-") as plain:
            os.chmod(plain, 0o755)
            expected = case(plain)
        found = case(d)
        same({k: v for k, v in found.items() if v != expected[k]}, {},
             f"of {len(expected)} where a plain folder says {[v for k, v in expected.items() if v != found[k]]}")
    run_both.__name__ = case.__name__
    return run_both


# ---- flags of the inode ----

FLAG_CALLS = {"FS_IOC_GETFLAGS": (0x80086601, 8), "FS_IOC_SETFLAGS": (0x40086602, 8),
              "FS_IOC_FSGETXATTR": (0x801c581f, 28), "FS_IOC_FSSETXATTR": (0x401c5820, 28)}


def inode_flags(d):
    """What no object can carry (chattr +i, project numbers) is refused, also where the cache's disk could do it."""
    put(f"{d}/f")
    os.mkdir(f"{d}/dir")
    for name in (".", "f", "dir"):
        for call, (number, size) in FLAG_CALLS.items():
            same(errno_of(ioctl_in, f"{d}/{name}", number, size), "ENOTTY", f"{call} of {name}")
    put(f"{d}/f", b"changed")


ALIKE = [set_id_bits_and_chown, set_id_bits_and_changes]
CASES = [an_owners_rights, supplementary_groups, sticky_directories, set_id_bits, inode_flags] + [alike(case) for case in ALIKE]
