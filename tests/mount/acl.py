"""POSIX ACLs. A case in ALIKE gets an empty folder and tells what it saw there; it runs in a plain folder of the
local disk and on a mount, and both must tell the same. KEPT are about what a fresh mount shows; each gets a Place."""

import base64
import errno
import json
import os
import shutil
import stat
import struct
import subprocess
import tempfile
import urllib.parse

from attributes import check_same, not_in_index, plain_mount, requests, spent, store_clock_moves_on
from behaviour import put, same
from harness import Mount, check, s3_environment, wait_for

OWNER, NAMED, GROUPED, STRANGER = 4000, 4001, 4002, 4003 # users, each with a group of the same number
TEAM = 4100 # a group that GROUPED is in
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
TAGS = {"u": (1, 2), "g": (4, 8), "m": (0x10, 0x10), "o": (0x20, 0x20)}
NO_ID = 0xffffffff
MANY = 1000


# ---- ACLs as bytes and as text ----

def pack(text, version=2):
    """"u::rw-,u:4001:r--,..." as the kernel takes it, in the order of the text."""
    value = struct.pack("<I", version)
    for entry in text.split(",") if text else []:
        kind, who, bits = entry.split(":")
        perm = sum(b for b, c in zip((4, 2, 1), bits) if c != "-")
        value += struct.pack("<HHI", TAGS[kind][1 if who else 0], perm, int(who) if who else NO_ID)
    return value


def unpack(value):
    check(len(value) >= 4 and len(value) % 8 == 4 and value[:4] == b"\2\0\0\0", f"no ACL: {value!r}")
    names = {tag: kind for kind, tags in TAGS.items() for tag in tags}
    entries = []
    for at in range(4, len(value), 8):
        tag, perm, who = struct.unpack_from("<HHI", value, at)
        entries.append(f"{names[tag]}:{who if tag in (2, 8) else ''}:" + "".join(c if perm & b else "-" for b, c in zip((4, 2, 1), "rwx")))
    return ",".join(entries)


def attempt(call, *arguments, **more):
    """"", a value, or the name of the errno."""
    try:
        result = call(*arguments, **more)
        return "" if result is None else result
    except OSError as e:
        return errno.errorcode[e.errno]


def get(path, name):
    found = attempt(os.getxattr, path, name)
    return unpack(found) if isinstance(found, bytes) else found


def set_(path, name, text):
    return attempt(os.setxattr, path, name, pack(text))


def see(path):
    st = os.lstat(path)
    if stat.S_ISLNK(st.st_mode):
        return oct(st.st_mode)
    return oct(st.st_mode), (st.st_uid, st.st_gid), get(path, ACCESS), get(path, DEFAULT), \
        sorted(n for n in os.listxattr(path) if n.startswith("system."))


def seen_below(top):
    return {os.path.relpath(os.path.join(where, n), top): see(os.path.join(where, n))
            for where, folders, files in os.walk(top) for n in folders + files}


FULL = f"u::rw-,u:{NAMED}:rwx,g::r--,g:{TEAM}:rw-,m::rwx,o::---"
SHORT = f"u::rwx,u:{NAMED}:r-x,g::r-x,m::r-x,o::---"


# ---- as in a plain folder ----

def set_and_removed(d):
    put(f"{d}/f")
    os.mkdir(f"{d}/dir")
    os.symlink("f", f"{d}/link")
    os.mkfifo(f"{d}/fifo")
    seen = []
    for name in ("f", "dir", "fifo"):
        path = f"{d}/{name}"
        os.chmod(path, 0o640)
        seen.append(see(path))
        for text in (FULL, "u::rwx,g::r-x,o::--x", SHORT, f"u::r--,g::rw-,g:{TEAM}:---,m::r--,o::-w-", "u::rw-,g::r--,m::-w-,o::---", ""):
            seen += [text, set_(path, ACCESS, text), see(path)]
        seen += [set_(path, ACCESS, FULL), attempt(os.removexattr, path, ACCESS), see(path), attempt(os.removexattr, path, ACCESS)]
        for text in (SHORT, "u::rwx,g::rwx,o::---", ""):
            seen += [text, set_(path, DEFAULT, text), see(path)]
        seen += [set_(path, DEFAULT, SHORT), attempt(os.removexattr, path, DEFAULT), attempt(os.removexattr, path, DEFAULT), see(path)]
    os.setxattr(f"{d}/f", "user.x", b"beside")
    seen += [set_(f"{d}/f", ACCESS, FULL), sorted(os.listxattr(f"{d}/f")), os.getxattr(f"{d}/f", "user.x")]
    for flags in (os.XATTR_CREATE, os.XATTR_REPLACE):
        seen.append(attempt(os.setxattr, f"{d}/f", ACCESS, pack(SHORT), flags))
    for call, more in ((os.setxattr, (pack(SHORT),)), (os.getxattr, ()), (os.removexattr, ())):
        seen.append(attempt(call, f"{d}/link", ACCESS, *more, follow_symlinks=False))
    return seen + [see(f"{d}/f")]


def of_no_form(d):
    """Nothing that is not an ACL is taken, and what was there stays."""
    put(f"{d}/f")
    os.mkdir(f"{d}/dir")
    whole = pack(FULL)
    values = {"empty": b"", "short": whole[:3], "cut": whole[:-3], "one more byte": whole + b"\0", "version 1": pack(FULL, 1),
              "version 3": pack(FULL, 3), "tag 0": struct.pack("<IHHI", 2, 0, 7, 0), "tag 64": struct.pack("<IHHI", 2, 64, 7, 0),
              "bits": struct.pack("<I", 2) + struct.pack("<HHI", 1, 8, NO_ID) + whole[12:], "random": bytes(range(36))}
    for text in ("u::rw-", f"u:{NAMED}:r--,u::rw-,g::r--,m::r--,o::r--", "g::r--,u::rw-,o::r--", "u::rw-,u::rw-,g::r--,o::r--",
                 f"u::rw-,u:{NAMED}:r--,u:{NAMED}:r--,g::r--,m::r--,o::r--", f"u::rw-,u:{NAMED}:r--,g::r--,o::r--", "u::rw-,g::r--",
                 "u::rw-,g::r--,m::r--", "u::rw-,g::r--,o::r--,m::r--", f"u::rw-,u:{NO_ID}:r--,g::r--,m::r--,o::r--",
                 "u::rw-,o::r--", "u::rw-,g::r--,o::r--,o::r--"):
        values[text] = pack(text)
    seen = [set_(f"{d}/f", ACCESS, FULL), set_(f"{d}/dir", DEFAULT, SHORT)]
    for what, value in values.items():
        if what == "empty":
            continue # removes it, in some kernels
        for path, name in ((f"{d}/f", ACCESS), (f"{d}/dir", DEFAULT)):
            seen.append((what, name, attempt(os.setxattr, path, name, value), get(path, name)))
    return seen


def modes_and_masks(d):
    """chmod moves the mask, not the group's entry; setting an ACL moves the mode."""
    seen = []
    for make, name in ((put, "f"), (os.mkdir, "dir")):
        path = f"{d}/{name}"
        make(path)
        seen += [set_(path, ACCESS, FULL), set_(path, DEFAULT, SHORT), see(path)]
        for mode in (0o600, 0o777, 0o070, 0o1751, 0o6750, 0, 0o500):
            os.chmod(path, mode)
            seen += [oct(mode), see(path)]
        fd = os.open(path, os.O_RDONLY)
        os.fchmod(fd, 0o754)
        os.close(fd)
        seen += [see(path), set_(path, ACCESS, "u::rwx,g::rwx,o::---"), see(path)]
        os.chmod(path, 0o700)
        seen.append(see(path))
    return seen


def inherited(d):
    """Who is made in a directory with a default ACL has it, less what the caller did not ask for; the umask counts
    only without one."""
    defaults = {"full": f"u::rwx,u:{NAMED}:rwx,g::r-x,g:{TEAM}:-wx,m::rwx,o::r--", "short": "u::rwx,g::rwx,o::rwx",
                "masked": "u::rwx,g::rwx,m::r--,o::---", "none": "", "closed": f"u::---,u:{NAMED}:rwx,g::---,m::---,o::---"}
    seen = []
    before = os.umask(0)
    try:
        for name, text in defaults.items():
            for umask in (0, 0o22, 0o77):
                top = f"{d}/{name}-{umask}"
                os.mkdir(top, 0o755)
                seen.append((name, oct(umask), set_(top, DEFAULT, text)))
                os.umask(umask)
                for mode in (0o666, 0o600, 0o777, 0o444, 0):
                    os.close(os.open(f"{top}/f{mode}", os.O_CREAT | os.O_WRONLY, mode))
                for mode in (0o777, 0o700, 0o1770):
                    os.mkdir(f"{top}/d{mode}", mode)
                    seen.append(attempt(os.mkdir, f"{top}/d{mode}/deeper", mode))
                    seen.append(attempt(put, f"{top}/d{mode}/deeper/still", b""))
                os.mkfifo(f"{top}/fifo", 0o666)
                os.mknod(f"{top}/node", stat.S_IFREG | 0o660)
                if os.geteuid() == 0:
                    os.mknod(f"{top}/device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
                os.symlink("f", f"{top}/link")
                os.rename(f"{top}/node", f"{top}/moved")
                os.link(f"{top}/moved", f"{top}/linked")
                os.umask(0)
                seen.append(seen_below(top))
    finally:
        os.umask(before)
    run("chmod", "-R", "u+rwX", d) # what is left is read when the mount has ended
    return seen


def kept_by_other_changes(d):
    path = f"{d}/f"
    put(path, b"content")
    set_(path, ACCESS, FULL)
    seen = []
    for change in (lambda: os.rename(path, path + "2") or os.rename(path + "2", path), lambda: put(path, b"other"),
                   lambda: os.truncate(path, 2), lambda: os.utime(path, (1, 1)), lambda: os.setxattr(path, "user.x", b"1"),
                   lambda: os.removexattr(path, "user.x"), lambda: os.link(path, path + "3") or os.unlink(path),
                   lambda: os.rename(path + "3", path), lambda: os.geteuid() == 0 and os.chown(path, NAMED, TEAM)):
        change()
        seen.append(see(path if os.path.exists(path) else path + "3"))
    put(f"{d}/new")
    os.rename(f"{d}/new", path) # replaced by one that has none
    return seen + [see(path)]


def _as(user, call, *arguments):
    """The same by another user; GROUPED is in TEAM."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            os.setgroups([TEAM] if user == GROUPED else [])
            os.setgid(user)
            os.setuid(user)
            os.write(writing, repr(attempt(call, *arguments)).encode())
            os._exit(0)
        except BaseException as e:
            os.write(writing, repr(e).encode())
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as f:
        told = f.read()
    os.waitpid(child, 0)
    return told


def _rights(path, user):
    def one(flags):
        os.close(os.open(path, flags))

    return "".join("-" if _as(user, one, flags) != "''" else letter for flags, letter in ((os.O_RDONLY, "r"), (os.O_WRONLY, "w"))) + \
        ("x" if _as(user, os.access, path, os.X_OK) == "True" else "-")


def who_may_what(d):
    if os.geteuid() != 0:
        return []
    os.chmod(d, 0o755)
    seen = []
    for i, (acl, mode) in enumerate((
            (f"u::r--,u:{NAMED}:rwx,g::---,m::rwx,o::---", None), (f"u::---,u:{NAMED}:-w-,g::r--,g:{TEAM}:rw-,m::rwx,o::r-x", None),
            (f"u::rwx,u:{NAMED}:---,g::---,g:{TEAM}:---,m::---,o::rwx", None), (f"u::rw-,u:{NAMED}:rwx,g::rwx,m::-w-,o::r--", None),
            (f"u::rw-,u:{NAMED}:rwx,g:: r--".replace(" ", "") + f",g:{TEAM}:rwx,m::rwx,o::---", 0o640),
            (f"u::rw-,u:{NAMED}:rwx,g::r--,g:{TEAM}:rwx,m::rwx,o::---", 0o604), ("u::rw-,g::r--,o::---", 0o646))):
        path = f"{d}/{i}"
        put(path, b"#!")
        os.chown(path, OWNER, OWNER)
        seen.append(set_(path, ACCESS, acl))
        if mode is not None:
            os.chmod(path, mode)
        seen.append({user: _rights(path, user) for user in (OWNER, NAMED, GROUPED, STRANGER)})
        os.chown(path, STRANGER, TEAM)
        seen.append({user: _rights(path, user) for user in (OWNER, NAMED, GROUPED, STRANGER)})
    top = f"{d}/dir"
    os.mkdir(top, 0o700)
    put(f"{top}/f")
    os.chmod(f"{top}/f", 0o644)
    for acl in ("u::rwx,g::---,o::---", f"u::rwx,u:{NAMED}:--x,g::---,m::--x,o::---", f"u::rwx,u:{NAMED}:rwx,g::---,g:{TEAM}:r-x,m::rwx,o::---",
                f"u::rwx,u:{NAMED}:rwx,g::---,g:{TEAM}:r-x,m::r--,o::---"):
        seen.append(set_(top, ACCESS, acl))
        for user in (NAMED, GROUPED, STRANGER):
            seen.append((user, _as(user, os.listdir, top), _as(user, os.stat, f"{top}/none"), _rights(f"{top}/f", user),
                         _as(user, os.mkdir, f"{top}/{user}"), _as(user, os.rmdir, f"{top}/{user}")))
    # A right that was given or taken counts at once, also where the kernel had looked before.
    path = f"{d}/0"
    os.chown(path, OWNER, OWNER)
    for acl in ("u::rw-,g::---,o::---", f"u::rw-,u:{NAMED}:rw-,g::---,m::rw-,o::---") * 3:
        seen += [set_(path, ACCESS, acl), _rights(path, NAMED)]
    # Only an owner sets one, and who may look may read it.
    for user in (OWNER, NAMED, STRANGER):
        seen += [_as(user, set_, path, ACCESS, FULL), _as(user, get, path, ACCESS), _as(user, attempt, os.removexattr, path, ACCESS)]
    return seen


def set_group_id(d):
    """Who is not in the file's group can't leave it the bit by setting an ACL."""
    if os.geteuid() != 0:
        return []
    os.chmod(d, 0o755)
    seen = []
    for user, group in ((GROUPED, TEAM), (GROUPED, GROUPED), (GROUPED, NAMED), (OWNER, TEAM), (0, TEAM)):
        for make, name in ((put, "f"), (os.mkdir, "dir")):
            path = f"{d}/{name}-{user}-{group}"
            make(path)
            os.chown(path, user, group)
            for text in (SHORT, "u::rwx,g::r-x,o::---"):
                os.chmod(path, 0o6755)
                seen += [_as(user, set_, path, ACCESS, text), see(path)]
            os.chmod(path, 0o2755)
            seen += [_as(user, set_, path, DEFAULT, SHORT), see(path)]
    top = f"{d}/handed-on"
    os.mkdir(top)
    os.chown(top, 0, TEAM)
    os.chmod(top, 0o2777)
    set_(top, DEFAULT, f"u::rwx,u:{NAMED}:r-x,g::rwx,m::rwx,o::r-x")

    def fill():
        os.mkdir(f"{top}/dir")
        for mode in (0o2775, 0o2664):
            os.close(os.open(f"{top}/{mode}", os.O_CREAT | os.O_WRONLY, mode))

    for user in (GROUPED, OWNER):
        seen += [_as(user, fill), seen_below(top)]
        shutil.rmtree(f"{top}/dir")
        for mode in (0o2775, 0o2664):
            os.unlink(f"{top}/{mode}")
    # Bits fall by a stranger's write, and the ACL stays.
    path = f"{d}/program"
    put(path)
    os.chown(path, OWNER, TEAM)
    set_(path, ACCESS, f"u::rwx,u:{NAMED}:rwx,g::r-x,m::rwx,o::r-x")
    os.chmod(path, 0o6775)

    def write():
        with open(path, "ab") as f:
            f.write(b"x")

    return seen + [_as(NAMED, write), see(path)]


def run(*command, cwd=None):
    done = subprocess.run(command, cwd=cwd, env={**os.environ, "LC_ALL": "C"}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    return done.returncode, sorted(done.stdout.split("\n\n")) if command[0] == "getfacl" else done.stdout


def everyday_programs(d):
    for program in ("setfacl", "getfacl", "rsync", "tar"):
        if not shutil.which(program):
            return f"no {program} here"
    top = f"{d}/top"
    os.mkdir(top)
    os.mkdir(f"{top}/dir", 0o750)
    for name in ("plain", "dir/plain", "listed"):
        put(f"{top}/{name}")
        os.chmod(f"{top}/{name}", 0o640)
    seen = [run(*command, cwd=top) for command in (
        ("setfacl", "-m", f"u:{NAMED}:rw,g:{TEAM}:r", "listed"), ("setfacl", "-d", "-m", f"u:{NAMED}:rwX", "dir"),
        ("setfacl", "-R", "-m", f"u:{STRANGER}:rX", "dir"), ("touch", "dir/new"), ("mkdir", "dir/sub"), ("touch", "dir/sub/new"),
        ("getfacl", "-R", "."), ("chmod", "g-w", "dir/new"), ("chmod", "-R", "o+r", "dir"), ("getfacl", "-Rn", "."),
        ("cp", "-a", ".", "../copy"), ("cp", "-r", "--preserve=mode", "dir", "../copy-of-modes"), ("cp", "listed", "../copied"),
        ("install", "-m", "600", "listed", "../installed"), ("mv", "../copied", "dir/came"), ("cp", "plain", "dir/copied"),
        ("rsync", "-aAX", "./", "../synced/"), ("rsync", "-aAXi", "./", "../synced/"), ("rsync", "-a", "./", "../synced-without/"),
        ("tar", "--acls", "--xattrs", "-cf", "../t.tar", "."), ("mkdir", "../unpacked"),
        ("tar", "--acls", "--xattrs", "-xpf", "../t.tar", "-C", "../unpacked"))]
    seen.append(run("getfacl", "-Rn", *sorted(os.listdir(d)), cwd=d))
    listed = run("ls", "-lR", *sorted(os.listdir(d)), cwd=d)[1]
    seen.append(sorted(line.split()[0] + " " + line.split()[-1] for line in listed.splitlines() if line.startswith(("-", "d"))))
    with open(f"{d}/saved", "w") as f:
        f.write("\n\n".join(run("getfacl", "-Rn", "top", cwd=d)[1]))
    for command in (("setfacl", "-R", "-b", "top"), ("getfacl", "-Rn", "top"), ("setfacl", "--restore=saved"), ("getfacl", "-Rn", "top"),
                    ("setfacl", "-k", "top/dir"), ("setfacl", "-x", f"u:{NAMED}", "top/listed"), ("setfacl", "-m", "m::r", "top/listed"),
                    ("setfacl", "-n", "-m", f"u:{NAMED}:rwx", "top/listed"), ("getfacl", "-Rn", "top")):
        seen.append(run(*command, cwd=d))
    return seen


def unnamed_files(d):
    """O_TMPFILE; of no effect where the mount has none."""
    if not hasattr(os, "O_TMPFILE"):
        return []
    set_(d, DEFAULT, f"u::rwx,u:{NAMED}:r-x,g::r-x,m::rwx,o::---")
    seen = []
    for mode in (0o600, 0o666, 0o640):
        try:
            fd = os.open(d, os.O_TMPFILE | os.O_RDWR, mode)
        except OSError as e:
            check(e.errno in (errno.EOPNOTSUPP, errno.EISDIR), f"O_TMPFILE: {e}")
            return None
        where = os.open("/proc/self/fd", os.O_RDONLY)
        os.link(str(fd), f"{d}/{mode}", src_dir_fd=where, follow_symlinks=True)
        os.close(where)
        os.close(fd)
        seen.append(see(f"{d}/{mode}"))
    return seen


def _first_difference(found, expected, path=""):
    if isinstance(found, (list, tuple)) and isinstance(expected, (list, tuple)) and len(found) == len(expected):
        for i, (a, b) in enumerate(zip(found, expected)):
            if a != b:
                return _first_difference(a, b, f"{path}[{i}]")
    if isinstance(found, dict) and isinstance(expected, dict) and found.keys() == expected.keys():
        for k in found:
            if found[k] != expected[k]:
                return _first_difference(found[k], expected[k], f"{path}[{k!r}]")
    if isinstance(found, list) and isinstance(expected, list): # of another length
        found, expected = [x for x in found if x not in expected], [x for x in expected if x not in found]
    return f"{path}: {found!r:.400}, in a plain folder {expected!r:.400}"


def alike(case):
    def run_both(d):
        # In a folder of its own: the case may leave a default ACL.
        with tempfile.TemporaryDirectory(prefix="runfs-acl-") as plain:
            os.chmod(plain, 0o755)
            for name in ("probe", case.__name__):
                os.mkdir(f"{plain}/{name}")
            if set_(f"{plain}/probe", ACCESS, SHORT):
                return "no ACLs on the local disk to compare with"
            expected = case(f"{plain}/{case.__name__}")
        found = case(d)
        if found is None:
            return "not here"
        expected, found = _plain(expected), _plain(found)
        check(found == expected, _first_difference(found, expected))
    run_both.__name__ = case.__name__
    return run_both


def _plain(seen):
    """Lists and dicts all the way, so that both can be walked."""
    if isinstance(seen, dict):
        return {k: _plain(v) for k, v in seen.items()}
    if isinstance(seen, (list, tuple)):
        return [_plain(v) for v in seen]
    return seen


ALIKE = [set_and_removed, of_no_form, modes_and_masks, inherited, kept_by_other_changes, who_may_what, set_group_id,
         everyday_programs, unnamed_files]
CASES = [alike(case) for case in ALIKE]


# ---- on a fresh mount ----

def _tree(top):
    """Folders and files with and without ACLs, some of them inherited."""
    os.makedirs(f"{top}/handing-on")
    os.makedirs(f"{top}/empty")
    os.makedirs(f"{top}/plain")
    set_(f"{top}/handing-on", DEFAULT, f"u::rwx,u:{NAMED}:rwx,g::r-x,g:{TEAM}:-wx,m::rwx,o::---")
    set_(f"{top}/handing-on", ACCESS, f"u::rwx,u:{NAMED}:rwx,g::r-x,m::rwx,o::---")
    set_(f"{top}/empty", ACCESS, SHORT)
    set_(f"{top}/empty", DEFAULT, SHORT)
    os.mkdir(f"{top}/handing-on/empty")
    os.mkdir(f"{top}/handing-on/full", 0o750)
    for where in ("handing-on", "handing-on/full", "plain"):
        for i in range(9): # more than one HEAD's worth
            put(f"{top}/{where}/{i}", b"s" * (i % 3))
        os.symlink("0", f"{top}/{where}/link")
        os.mkfifo(f"{top}/{where}/fifo")
    for i in range(4):
        check(set_(f"{top}/plain/{i}", ACCESS, (FULL, SHORT, "u::rw-,g::---,m::rwx,o::---", "u::rwx,g::---,o::rwx")[i]) == "", "set")
    set_(f"{top}/plain/fifo", ACCESS, FULL)
    os.chmod(f"{top}/plain/1", 0o604)
    os.chmod(f"{top}/handing-on/full/1", 0o6640)
    os.setxattr(f"{top}/plain/2", "user.x", b"beside")
    os.removexattr(f"{top}/handing-on/full/2", ACCESS)
    os.rename(f"{top}/handing-on/full/3", f"{top}/plain/moved")
    same(run("cp", "-a", f"{top}/handing-on", f"{top}/copied"), (0, ""), "cp -a")
    os.rename(f"{top}/copied", f"{top}/moved")
    if os.geteuid() == 0:
        os.chown(f"{top}/plain/0", OWNER, TEAM)


def kept(place):
    a = place.mount()
    top = f"{a.mountpoint}/kept"
    _tree(top)
    expected = seen_below(top)
    check(len([e for e in expected.values() if len(e) > 1 and e[4]]) > 20, "nothing has an ACL")
    a.umount()
    if place.store == "file": # there they are the files' own
        same(seen_below(place.work.path(f"store-{place.name}/kept")), expected, "in the folder")
    b = place.mount()
    top = f"{b.mountpoint}/kept"
    check_same(seen_below(top), expected, "on a fresh mount")
    if os.geteuid() == 0:
        os.chmod(b.mountpoint, 0o755)
        same([_rights(f"{top}/plain/0", user) for user in (OWNER, NAMED, GROUPED, STRANGER)], ["rw-", "rwx", "rw-", "---"], "rights")
        same(_as(NAMED, put, f"{top}/handing-on/his"), "''", "a new file by one who is named")
    os.chmod(f"{top}/plain/0", 0o600)
    put(f"{top}/handing-on/full/later")
    os.mkdir(f"{top}/handing-on/empty/later")
    expected = seen_below(top)
    check(expected["handing-on/full/later"][2] != "ENODATA" and expected["handing-on/empty/later"][3] != "ENODATA", "not inherited")
    b.umount()
    for cache in (None, f"cache-{b.mountpoint.rsplit('/', 1)[1]}"):
        c = place.mount(cache=cache)
        check_same(seen_below(f"{c.mountpoint}/kept"), expected, f"again, {cache}")
        c.umount()
    return f"{len(expected)} names"


def kept_over_a_crash(place):
    """What was answered before SIGKILL is there on the same cache, and goes up."""
    cache = f"cache-{place.name}"
    a = place.mount(cache=cache)
    top = f"{a.mountpoint}/crash"
    _tree(top)
    a.flush()
    for i in range(9):
        set_(f"{top}/plain/{i}", ACCESS, (FULL, SHORT, "u::rwx,g::r-x,o::---")[i % 3])
        os.chmod(f"{top}/plain/{i}", (0o640, 0o770, 0o604)[i // 3])
    set_(f"{top}/plain", DEFAULT, FULL)
    os.mkdir(f"{top}/plain/inherits")
    put(f"{top}/plain/inherits/too")
    os.removexattr(f"{top}/empty", DEFAULT)
    expected = seen_below(top)
    a.kill()
    b = place.mount(cache=cache)
    check_same(seen_below(f"{b.mountpoint}/crash"), expected, "after the crash")
    b.umount()
    c = place.mount()
    check_same(seen_below(f"{c.mountpoint}/crash"), expected, "on a fresh mount")
    c.umount()


def turned_off(place):
    """With noacl there are none: whoever sets one is told so, and whoever only copies or looks meets no error. What the
    store has of them stays, and chmod moves its mask."""
    a = place.mount()
    top = f"{a.mountpoint}/off"
    _tree(top)
    a.umount()
    b = place.mount(options=["noacl"])
    top = f"{b.mountpoint}/off"
    for name in ("plain/0", "plain/8", "handing-on"):
        for acl in (ACCESS, DEFAULT) if os.path.isdir(f"{top}/{name}") else (ACCESS,):
            for call, more in ((os.setxattr, (pack(SHORT),)), (os.getxattr, ()), (os.removexattr, ())):
                same(attempt(call, f"{top}/{name}", acl, *more), "ENOTSUP", f"{call.__name__} {acl} of {name}")
        same([n for n in os.listxattr(f"{top}/{name}") if n.startswith("system.")], [], f"list of {name}")
    before = os.umask(0o77)
    put(f"{top}/handing-on/new")
    os.umask(before)
    same(oct(os.stat(f"{top}/handing-on/new").st_mode), "0o100600", "mode of a new file")
    if shutil.which("setfacl"):
        done = run("setfacl", "-m", f"u:{NAMED}:r", f"{top}/plain/0")
        check(done[0] != 0 and "not supported" in done[1], f"setfacl: {done}")
        same(run("getfacl", "-cp", f"{top}/plain/8"), (0, ["", "user::rw-\ngroup::r--\nother::r--"]), "getfacl")
    for command in (("cp", "-a", f"{top}/plain", f"{top}/plain2"), ("ls", "-l", f"{top}/plain"), ("chmod", "660", f"{top}/plain/0")):
        done = run(*command)
        check(done[0] == 0 and (command[0] == "ls" or not done[1]), f"{command}: {done}")
    os.setxattr(f"{top}/plain/0", "user.x", b"y")
    b.umount()
    c = place.mount()
    top = f"{c.mountpoint}/off"
    same(get(f"{top}/plain/0", ACCESS), f"u::rw-,u:{NAMED}:rwx,g::r--,g:{TEAM}:rw-,m::rw-,o::---", "with ACLs again")
    same(get(f"{top}/handing-on", DEFAULT)[:6], "u::rwx", "a default ACL with ACLs again")
    same(get(f"{top}/plain2/0", ACCESS), "ENODATA", "of a copy made without")
    c.umount()


def another_node_sets_one(place):
    if place.store == "mem":
        return
    quick = ["attr_timeout=0.3s", "list_timeout=0.5s", "entry_timeout=0.3s"]
    a, b = place.mount(options=quick), place.mount(options=quick)
    here, there = (f"{m.mountpoint}/set" for m in (a, b))
    for m in (a, b):
        os.chmod(m.mountpoint, 0o755)
    os.mkdir(here)
    put(f"{here}/f")
    a.flush()
    wait_for("the file on the other node", lambda: os.path.exists(f"{there}/f"), 20)
    for acl in (FULL, SHORT, "u::rw-,g::---,o::---"):
        store_clock_moves_on()
        set_(f"{here}/f", ACCESS, acl)
        set_(here, DEFAULT, acl)
        a.flush()
        expected = see(here), see(f"{here}/f")
        wait_for(f"{acl} of the file on the other node", lambda: os.listdir(there) and see(f"{there}/f") == expected[1], 20)
        wait_for(f"{acl} of the directory on the other node", lambda: os.listdir(there) and see(there) == expected[0], 20)
        if os.geteuid() == 0 and place.store == "s3": # a file of a folder that is in the cache keeps what it had
            same(_rights(f"{there}/f", NAMED), _rights(f"{here}/f", NAMED), "rights")
    for m in (a, b):
        m.umount()


def ls_costs_nothing_more(place):
    """A plus sign in `ls -l` costs no request to the store that the line did not cost."""
    a = place.mount()
    top = f"{a.mountpoint}/many"
    os.mkdir(top)
    for i in range(MANY):
        put(f"{top}/{i}")
        if i % 3 == 0:
            set_(f"{top}/{i}", ACCESS, f"u::rw-,u:{5000 + i}:rwx,g::r--,m::rwx,o::---")
    a.umount()
    b = place.mount(options=["attr_timeout=300s", "list_timeout=300s"])
    before = requests(b)
    listed = run("ls", "-l", f"{b.mountpoint}/many")[1]
    marked = sum(line[10:11] == "+" for line in listed.splitlines())
    same(marked, len(range(0, MANY, 3)), "lines with a plus sign")
    cost = spent(b, before)
    check(cost["requests"] <= 5 + not_in_index(MANY), f"{cost}")
    for i in range(MANY):
        check((get(f"{b.mountpoint}/many/{i}", ACCESS) == "ENODATA") == (i % 3 != 0), f"ACL of {i}")
    same(spent(b, before)["requests"], cost["requests"], "requests after asking for each")
    b.umount()
    return f"{cost['requests']} requests for {MANY} names"


def a_folder_without_acls(place):
    """On a filesystem that has none the mount has none, and says so at once; the data is stored."""
    if os.geteuid() != 0 or place.store != "file":
        return "not here"
    folder = place.work.make(f"store-{place.name}")
    subprocess.run(["mount", "-t", "ramfs", "ramfs", folder], check=True)
    try:
        put(f"{folder}/probe")
        if set_(f"{folder}/probe", ACCESS, SHORT) != "ENOTSUP":
            return "ramfs has ACLs here"
        m = place.mount()
        put(f"{m.mountpoint}/f", b"data")
        same([set_(f"{m.mountpoint}/f", ACCESS, SHORT), get(f"{m.mountpoint}/f", ACCESS)], ["ENOTSUP", "ENOTSUP"], "ACL")
        with tempfile.NamedTemporaryFile() as source:
            set_(source.name, ACCESS, FULL)
            done = [run("cp", "-a", source.name, f"{where}/{name}") for where, name in ((m.mountpoint, "copy"), (folder, "native"))]
            same(done[0][0], done[1][0], f"cp -a: {done}")
        m.umount()
        check({"copy", "f"} <= set(os.listdir(folder)), f"stored: {os.listdir(folder)}")
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


KEPT = [a_folder_without_acls, kept, kept_over_a_crash, turned_off, another_node_sets_one]
COUNTED = [ls_costs_nothing_more]


# ---- what the objects say ----

def the_metadata_of_objects(work, mode):
    """The set of extended attributes is s3fs's, and whatever others write there does no harm."""
    server, m = plain_mount(work, f"metadata-{mode}", options=["acl"])
    os.mkdir(f"{m.mountpoint}/d")
    set_(f"{m.mountpoint}/d", DEFAULT, SHORT)
    for name in ("f", "g"): # the server knows no copies with conditions: each is put once, complete
        path = f"{m.mountpoint}/tmp-{name}"
        put(path)
        set_(path, ACCESS, FULL)
        if name == "g":
            os.chmod(path, 0o640)
        os.rename(path, f"{m.mountpoint}/{name}")
    m.flush()
    said = {}
    for key in (b"p/f", b"p/g", b"p/d/"):
        meta = server.objects[key].meta
        found = json.loads(urllib.parse.unquote(meta["x-amz-meta-xattr"]))
        said[key] = {n: unpack(base64.b64decode(v)) for n, v in found.items()}
        same(meta["x-amz-meta-mode"], str(os.stat(f"{m.mountpoint}/{key[2:].decode()}").st_mode), f"mode of {key}")
    same(said, {b"p/f": {ACCESS: FULL}, b"p/g": {ACCESS: FULL.replace("m::rwx", "m::r--")}, b"p/d/": {DEFAULT: SHORT}}, "metadata")
    m.umount()
    for name, value in (("not-base64", "%%%"), ("empty", ""), ("head", pack("")), ("cut", pack(FULL)[:-2]), ("order", pack("o::rwx,u::rwx,g::rwx")),
                        ("others-mode", pack(FULL.replace("o::---", "o::rwx"))), ("minimal", pack("u::rwx,g::rwx,o::rwx")),
                        ("huge", pack(",".join(["u::rw-"] + [f"u:{i}:rwx" for i in range(1, 3000)] + ["g::---,m::rwx,o::---"])))):
        text = value if isinstance(value, str) else base64.b64encode(value).decode()
        server.put(b"p/bad-" + name.encode(), b"x", mode="33184", uid="0", gid="0", mtime="1",
                   xattr=urllib.parse.quote(json.dumps({ACCESS: text, DEFAULT: text, "user.x": "eA=="})))
    server.put(b"p/bad-json", b"x", mode="33184", xattr="%7B%22system.posix_acl_access")
    again = Mount(m.store, work.path(f"metadata-again-{mode}"), work.path(f"cache-metadata-again-{mode}"), m.options, s3_environment())
    work.mounts.append(again)
    again.start()
    for name in os.listdir(again.mountpoint):
        if not name.startswith("bad-"):
            continue
        path = f"{again.mountpoint}/{name}"
        expected = {"bad-others-mode": FULL.replace("m::rwx", "m::r--")}.get(name, "ENODATA")
        if name == "bad-huge":
            check(get(path, ACCESS) in ("E2BIG", "ERANGE", "ENODATA"), f"{name}: {get(path, ACCESS)}")
        else:
            same(see(path)[2:], (expected, "ENODATA", [ACCESS] if expected != "ENODATA" else []), name)
        same(os.stat(path).st_mode, 0o100640, f"mode of {name}")
    again.umount()


SERVED = [the_metadata_of_objects]
