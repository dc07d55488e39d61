"""What a program may expect of a directory on a local filesystem. Each case gets an empty
directory in the mount."""

import errno
import mmap
import os
import shutil
import stat
import subprocess
import sys
import time

from harness import check
from sys_calls import (FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, RENAME_EXCHANGE, RENAME_NOREPLACE,
                       errno_of, fallocate, linkat_fd, renameat2, set_atime)


def put(path, data=b"x"):
    with open(path, "wb") as f:
        f.write(data)


def get(path):
    with open(path, "rb") as f:
        return f.read()


def same(found, expected, what):
    check(found == expected, f"{what}: {found!r:.200} instead of {expected!r:.200}")


# ---- names ----

def create_and_read(d):
    put(f"{d}/a", b"hello")
    same(get(f"{d}/a"), b"hello", "content")
    same(os.listdir(d), ["a"], "listing")
    st = os.stat(f"{d}/a")
    same((st.st_size, stat.S_ISREG(st.st_mode), st.st_nlink), (5, True, 1), "stat")
    same(errno_of(os.open, f"{d}/a", os.O_CREAT | os.O_EXCL | os.O_WRONLY), "EEXIST", "O_EXCL")
    same(errno_of(os.stat, f"{d}/b"), "ENOENT", "stat of nothing")
    same(errno_of(os.open, f"{d}/a/b", os.O_RDONLY), "ENOTDIR", "below a file")


def umask_and_modes(d):
    old = os.umask(0o027)
    try:
        os.close(os.open(f"{d}/f", os.O_CREAT | os.O_WRONLY, 0o666))
        os.mkdir(f"{d}/d", 0o777)
    finally:
        os.umask(old)
    same(stat.S_IMODE(os.stat(f"{d}/f").st_mode), 0o640, "mode of a file")
    same(stat.S_IMODE(os.stat(f"{d}/d").st_mode), 0o750, "mode of a directory")
    os.chmod(f"{d}/f", 0o600)
    same(stat.S_IMODE(os.stat(f"{d}/f").st_mode), 0o600, "chmod")


def directories(d):
    os.makedirs(f"{d}/a/b/c")
    same(errno_of(os.mkdir, f"{d}/a"), "EEXIST", "mkdir twice")
    same(errno_of(os.rmdir, f"{d}/a"), "ENOTEMPTY", "rmdir of a full one")
    same(errno_of(os.unlink, f"{d}/a") in ("EISDIR", "EPERM"), True, "unlink of a directory")
    put(f"{d}/f")
    same(errno_of(os.rmdir, f"{d}/f"), "ENOTDIR", "rmdir of a file")
    for path in ("a/b/c", "a/b", "a"):
        os.rmdir(f"{d}/{path}")
    same(os.listdir(d), ["f"], "listing after")


def big_directory(d):
    names = {f"entry-{i:05d}-" + "x" * (i % 40) for i in range(2000)}
    for name in names:
        os.close(os.open(f"{d}/{name}", os.O_CREAT | os.O_WRONLY))
    same(set(os.listdir(d)), names, "listing")
    seen = []
    with os.scandir(d) as entries: # removal while it is read
        for entry in entries:
            check(entry.is_file(follow_symlinks=False), f"{entry.name} is no file")
            seen.append(entry.name)
            os.unlink(entry.path)
    same(sorted(seen), sorted(names), "listing while it is emptied")
    same(os.listdir(d), [], "listing after")


def symlinks(d):
    os.symlink("target/with some text", f"{d}/l")
    same(os.readlink(f"{d}/l"), "target/with some text", "readlink")
    st = os.lstat(f"{d}/l")
    same((stat.S_ISLNK(st.st_mode), st.st_size), (True, 21), "lstat")
    same(errno_of(os.stat, f"{d}/l"), "ENOENT", "stat through a dangling link")
    put(f"{d}/file", b"1")
    os.symlink("file", f"{d}/last")
    same(get(f"{d}/last"), b"1", "read through")
    os.symlink("x" * 1000, f"{d}/long") # object metadata ends at 2 KiB
    same(len(os.readlink(f"{d}/long")), 1000, "long target")
    os.unlink(f"{d}/l")
    same(sorted(os.listdir(d)), ["file", "last", "long"], "listing")


def hard_links(d):
    put(f"{d}/a", b"one")
    os.link(f"{d}/a", f"{d}/b")
    a, b = os.stat(f"{d}/a"), os.stat(f"{d}/b")
    same((a.st_ino, a.st_nlink, b.st_nlink), (b.st_ino, 2, 2), "inode and links")
    with open(f"{d}/b", "ab") as f:
        f.write(b" two")
    same(get(f"{d}/a"), b"one two", "content through the other name")
    os.unlink(f"{d}/a")
    same((get(f"{d}/b"), os.stat(f"{d}/b").st_nlink), (b"one two", 1), "after unlink")
    same(errno_of(os.link, f"{d}/b", f"{d}/b"), "EEXIST", "link onto itself")


def most_names_of_one_file(d):
    """No program can ask for this limit: the C library derives LINK_MAX from the kind of filesystem, and knows none of
    FUSE's."""
    put(f"{d}/0", b"shared")
    for i in range(1, 1000):
        os.link(f"{d}/0", f"{d}/{i}")
    same(os.stat(f"{d}/999").st_nlink, 1000, "link count")
    same(errno_of(os.link, f"{d}/0", f"{d}/1000"), "EMLINK", "one more")
    os.unlink(f"{d}/500")
    os.link(f"{d}/0", f"{d}/1000")
    same(errno_of(os.link, f"{d}/1000", f"{d}/500"), "EMLINK", "one more after one less")
    os.rename(f"{d}/999", f"{d}/renamed")
    same(get(f"{d}/renamed"), b"shared", "content")
    for name in os.listdir(d):
        if name != "renamed":
            os.unlink(f"{d}/{name}")
    same(os.stat(f"{d}/renamed").st_nlink, 1, "link count of the last")


def special_files(d):
    os.mkfifo(f"{d}/fifo", 0o600)
    check(stat.S_ISFIFO(os.stat(f"{d}/fifo").st_mode), "not a fifo")
    reader = subprocess.Popen(["cat", f"{d}/fifo"], stdout=subprocess.PIPE)
    with open(f"{d}/fifo", "wb") as f:
        f.write(b"through")
    same(reader.communicate(timeout=20)[0], b"through", "through the fifo")
    if os.geteuid() == 0:
        os.mknod(f"{d}/null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        same(os.stat(f"{d}/null").st_rdev, os.makedev(1, 3), "device number")


def odd_names(d):
    names = ["ü€😀", "with space", "-dash", "a" * 255, "new\nline", "back\\slash", "per%cent", "'q\"", "..x"]
    for name in names:
        put(f"{d}/{name}", name.encode())
    same(sorted(os.listdir(d)), sorted(names), "listing")
    for name in names:
        same(get(f"{d}/{name}"), name.encode(), name)
        os.unlink(f"{d}/{name}")
    same(errno_of(put, f"{d}/{'a' * 256}"), "ENAMETOOLONG", "256 bytes")


# ---- rename ----

def rename_files(d):
    put(f"{d}/a", b"a")
    os.rename(f"{d}/a", f"{d}/b")
    same((os.listdir(d), get(f"{d}/b")), (["b"], b"a"), "simple")
    put(f"{d}/c", b"c")
    ino = os.stat(f"{d}/c").st_ino
    os.replace(f"{d}/c", f"{d}/b")
    same((os.listdir(d), get(f"{d}/b"), os.stat(f"{d}/b").st_ino), (["b"], b"c", ino), "replacing")
    os.mkdir(f"{d}/dir")
    same(errno_of(os.rename, f"{d}/b", f"{d}/dir"), "EISDIR", "file onto directory")
    same(errno_of(os.rename, f"{d}/dir", f"{d}/b"), "ENOTDIR", "directory onto file")
    same(errno_of(os.rename, f"{d}/none", f"{d}/b"), "ENOENT", "of nothing")
    os.rename(f"{d}/b", f"{d}/dir/b")
    same(get(f"{d}/dir/b"), b"c", "into another directory")


def rename_directories(d):
    os.makedirs(f"{d}/a/sub")
    put(f"{d}/a/sub/f", b"deep")
    os.rename(f"{d}/a", f"{d}/b")
    same(get(f"{d}/b/sub/f"), b"deep", "below a renamed directory")
    same(errno_of(os.rename, f"{d}/b", f"{d}/b/sub/x"), "EINVAL", "into itself")
    os.mkdir(f"{d}/empty")
    os.rename(f"{d}/b", f"{d}/empty")
    same(os.listdir(d), ["empty"], "onto an empty one")
    os.makedirs(f"{d}/full/x")
    check(errno_of(os.rename, f"{d}/empty", f"{d}/full") in ("ENOTEMPTY", "EEXIST"), "onto a full one")
    with open(f"{d}/empty/sub/f", "ab") as f: # open across the rename of its directory
        os.rename(f"{d}/empty", f"{d}/moved")
        f.write(b" and on")
    same(get(f"{d}/moved/sub/f"), b"deep and on", "written across the rename")


def rename_flags(d):
    put(f"{d}/a", b"a")
    put(f"{d}/b", b"b")
    same(errno_of(renameat2, f"{d}/a", f"{d}/b", RENAME_NOREPLACE), "EEXIST", "NOREPLACE onto a file")
    renameat2(f"{d}/a", f"{d}/c", RENAME_NOREPLACE)
    same(sorted(os.listdir(d)), ["b", "c"], "after NOREPLACE")
    renameat2(f"{d}/b", f"{d}/c", RENAME_EXCHANGE)
    same((get(f"{d}/b"), get(f"{d}/c")), (b"a", b"b"), "after EXCHANGE")
    same(errno_of(renameat2, f"{d}/b", f"{d}/none", RENAME_EXCHANGE), "ENOENT", "EXCHANGE with nothing")


def exchange_directories(d):
    os.makedirs(f"{d}/dir/sub")
    put(f"{d}/dir/in", b"1")
    put(f"{d}/dir/sub/deep", b"2")
    put(f"{d}/f", b"a")
    os.makedirs(f"{d}/up/other")
    put(f"{d}/up/other/in", b"3")
    with open(f"{d}/dir/sub/deep", "ab") as f: # open across it
        renameat2(f"{d}/dir", f"{d}/up/other", RENAME_EXCHANGE)
        f.write(b"4")
    same(sorted(os.listdir(f"{d}/up/other")), ["in", "sub"], "the one")
    same(os.listdir(f"{d}/dir"), ["in"], "the other")
    same((get(f"{d}/dir/in"), get(f"{d}/up/other/in"), get(f"{d}/up/other/sub/deep")), (b"3", b"1", b"24"), "content")
    renameat2(f"{d}/dir", f"{d}/up/other", RENAME_EXCHANGE)
    same((get(f"{d}/up/other/in"), get(f"{d}/dir/sub/deep")), (b"3", b"24"), "and back")
    same(errno_of(renameat2, f"{d}/up", f"{d}/up/other", RENAME_EXCHANGE), "EINVAL", "with one below it")
    same(errno_of(renameat2, f"{d}/up/other/in", f"{d}/up", RENAME_EXCHANGE), "EINVAL", "of a file with one above it")


def exchange_kinds(d):
    """A directory with what is none, in both orders."""
    for n, make in enumerate([lambda path: put(path, b"a"), lambda path: os.symlink("target", path), os.mkfifo]):
        os.makedirs(f"{d}/{n}/dir/sub/deep")
        put(f"{d}/{n}/dir/in", b"1")
        put(f"{d}/{n}/dir/sub/deep/f", b"2")
        make(f"{d}/{n}/other")
        kind = stat.S_IFMT(os.lstat(f"{d}/{n}/other").st_mode)
        numbers = [os.lstat(f"{d}/{n}/{name}").st_ino for name in ("dir", "other")]
        links = os.stat(f"{d}/{n}").st_nlink
        for a, b in (("dir", "other"), ("dir", "other"), ("other", "dir")):
            renameat2(f"{d}/{n}/{a}", f"{d}/{n}/{b}", RENAME_EXCHANGE)
        same(stat.S_IFMT(os.lstat(f"{d}/{n}/dir").st_mode), kind, "what the directory was")
        same(sorted(os.listdir(f"{d}/{n}/other")), ["in", "sub"], "what the other was")
        same((get(f"{d}/{n}/other/in"), get(f"{d}/{n}/other/sub/deep/f")), (b"1", b"2"), "content")
        same([os.lstat(f"{d}/{n}/{name}").st_ino for name in ("other", "dir")], numbers, "inode numbers")
        same(os.stat(f"{d}/{n}").st_nlink, links, "links of the directory above")
        same(errno_of(os.rmdir, f"{d}/{n}/dir"), "ENOTDIR", "rmdir")
        same(errno_of(os.unlink, f"{d}/{n}/other"), "EISDIR", "unlink")
    same((get(f"{d}/0/dir"), os.readlink(f"{d}/1/dir")), (b"a", "target"), "the others")
    with open(f"{d}/0/dir", "ab") as f, open(f"{d}/0/other/in", "ab") as inside: # open across it
        renameat2(f"{d}/0/dir", f"{d}/1/other", RENAME_EXCHANGE)
        renameat2(f"{d}/0/other", f"{d}/2/dir", RENAME_EXCHANGE)
        f.write(b"b")
        inside.write(b"3")
    same((get(f"{d}/1/other"), get(f"{d}/2/dir/in")), (b"ab", b"13"), "written across it")
    same((os.stat(f"{d}/0").st_nlink, os.stat(f"{d}/1").st_nlink, os.stat(f"{d}/2").st_nlink), (3, 2, 4), "links")


# ---- open files ----

def truncated_while_it_runs(d):
    program = f"{d}/program"
    shutil.copy(shutil.which("sleep"), program)
    size = os.stat(program).st_size
    with subprocess.Popen([program, "60"]) as running:
        try:
            for flags in (os.O_WRONLY, os.O_RDWR | os.O_TRUNC, os.O_RDONLY | os.O_TRUNC):
                same(errno_of(os.open, program, flags), "ETXTBSY", f"open with {flags:o}")
                same(os.stat(program).st_size, size, f"the size after {flags:o}")
        finally:
            running.kill()
    # Who looks at /proc just then keeps an ended program alive for a moment.
    end = time.monotonic() + 10
    while errno_of(lambda: os.close(os.open(program, os.O_RDONLY | os.O_TRUNC))) == "ETXTBSY" and time.monotonic() < end:
        time.sleep(0.05)
    same(os.stat(program).st_size, 0, "the size once it has ended")


def names_change_kind(d):
    """Where a file was a directory comes, and the reverse; what is owed from before waits for nothing
    that waits for it, which the flush at the end of these tests would find."""
    for settled in (False, True):
        base = f"{d}/{settled}"
        os.makedirs(f"{base}/from")
        put(f"{base}/file", b"file")
        put(f"{base}/from/moved", b"moved")
        put(f"{base}/spare", b"spare")
        os.makedirs(f"{base}/folder/in")
        put(f"{base}/folder/in/it", b"it")
        if settled:
            time.sleep(0.5)
        os.unlink(f"{base}/file")
        os.rename(f"{base}/from", f"{base}/file")
        shutil.rmtree(f"{base}/folder")
        os.rename(f"{base}/spare", f"{base}/folder")
        same((get(f"{base}/file/moved"), get(f"{base}/folder")), (b"moved", b"spare"), "content")
        same(sorted(os.listdir(base)), ["file", "folder"], "listing")


def unlinked_but_open(d):
    fd = os.open(f"{d}/f", os.O_CREAT | os.O_RDWR)
    os.write(fd, b"before")
    os.unlink(f"{d}/f")
    same(os.listdir(d), [], "listing")
    os.write(fd, b" after")
    same(os.pread(fd, 100, 0), b"before after", "content")
    same((os.fstat(fd).st_nlink, os.fstat(fd).st_size), (0, 12), "fstat")
    os.ftruncate(fd, 3)
    put(f"{d}/f", b"another")
    same((os.pread(fd, 100, 0), get(f"{d}/f")), (b"bef", b"another"), "beside a new file")
    os.close(fd)
    same(get(f"{d}/f"), b"another", "after close")


def renamed_while_open(d):
    put(f"{d}/old", b"replaced")
    keep = os.open(f"{d}/old", os.O_RDONLY)
    with open(f"{d}/tmp", "wb") as f:
        f.write(b"one")
        f.flush()
        os.rename(f"{d}/tmp", f"{d}/old")
        f.write(b" two")
    same(get(f"{d}/old"), b"one two", "new content")
    same(os.pread(keep, 100, 0), b"replaced", "through the old descriptor")
    os.close(keep)


def tmpfile(d):
    try:
        fd = os.open(d, os.O_TMPFILE | os.O_RDWR, 0o640)
    except OSError as e:
        if e.errno == errno.EOPNOTSUPP:
            return "not offered (libfuse before 3.17)"
        raise
    os.write(fd, b"unnamed")
    same(os.listdir(d), [], "listing")
    linkat_fd(fd, f"{d}/named")
    os.write(fd, b" named")
    os.close(fd)
    same(get(f"{d}/named"), b"unnamed named", "content")
    same(stat.S_IMODE(os.stat(f"{d}/named").st_mode), 0o640, "mode")
    os.close(os.open(d, os.O_TMPFILE | os.O_RDWR, 0o640)) # never named
    same(os.listdir(d), ["named"], "listing after")
    return None


def appending(d):
    put(f"{d}/f", b"0")
    a = os.open(f"{d}/f", os.O_WRONLY | os.O_APPEND)
    b = os.open(f"{d}/f", os.O_WRONLY | os.O_APPEND)
    for i in range(50):
        os.write(a, b"a")
        os.write(b, b"b")
    os.close(a)
    os.close(b)
    same(get(f"{d}/f"), b"0" + b"ab" * 50, "content")


def truncating(d):
    put(f"{d}/f", b"0123456789")
    os.truncate(f"{d}/f", 4)
    same(get(f"{d}/f"), b"0123", "shorter")
    os.truncate(f"{d}/f", 8)
    same(get(f"{d}/f"), b"0123\0\0\0\0", "longer")
    with open(f"{d}/f", "r+b") as f:
        f.truncate(2)
        same(os.stat(f"{d}/f").st_size, 2, "size while open")
        f.seek(5)
        f.write(b"x")
    same(get(f"{d}/f"), b"01\0\0\0x", "hole")
    put(f"{d}/f", b"new")
    same(get(f"{d}/f"), b"new", "O_TRUNC")


def sparse(d):
    size = 64 << 20
    with open(f"{d}/f", "wb") as f:
        f.seek(size - 1)
        f.write(b"e")
    fd = os.open(f"{d}/f", os.O_RDWR)
    try:
        check(os.fstat(fd).st_blocks * 512 < size // 4, "the hole takes blocks")
        same(os.lseek(fd, 0, os.SEEK_DATA) > 0, True, "SEEK_DATA")
        same(os.lseek(fd, 0, os.SEEK_HOLE), 0, "SEEK_HOLE")
        same(os.pread(fd, 10, size // 2), b"\0" * 10, "in the hole")
        os.pwrite(fd, b"d" * 8192, 8192)
        same(os.lseek(fd, 0, os.SEEK_DATA), 8192, "SEEK_DATA after a write")
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8192, 4096)
        same(os.pread(fd, 8192, 8192), b"\0" * 4096 + b"d" * 4096, "after a punch")
        fallocate(fd, 0, size, 4096)
        same(os.fstat(fd).st_size, size + 4096, "size after fallocate")
        fallocate(fd, FALLOC_FL_KEEP_SIZE, size + 4096, 4096)
        same(os.fstat(fd).st_size, size + 4096, "size after KEEP_SIZE")
    finally:
        os.close(fd)
    os.unlink(f"{d}/f")


def copying(d):
    data = os.urandom(3 << 20)
    put(f"{d}/a", data)
    with open(f"{d}/a", "rb") as a, open(f"{d}/b", "wb") as b:
        left = len(data)
        while left > 0:
            n = os.copy_file_range(a.fileno(), b.fileno(), left)
            check(n > 0, "copy_file_range ended early")
            left -= n
    check(get(f"{d}/b") == data, "copy differs")


def read_write_patterns(d):
    data = bytearray(os.urandom(1 << 20))
    fd = os.open(f"{d}/f", os.O_CREAT | os.O_RDWR)
    try:
        os.pwrite(fd, data, 0)
        for off, size in ((0, 1), (4095, 2), (65536, 100000), (1048575, 1), (1048576, 5000)):
            piece = os.urandom(size)
            os.pwrite(fd, piece, off)
            if len(data) < off + size:
                data.extend(b"\0" * (off + size - len(data)))
            data[off:off + size] = piece
            check(os.pread(fd, size, off) == piece, f"read back at {off}")
        os.fsync(fd)
        os.fdatasync(fd)
        check(os.pread(fd, len(data) + 10, 0) == data, "the whole")
        same(os.pread(fd, 10, len(data)), b"", "at the end")
    finally:
        os.close(fd)
    check(get(f"{d}/f") == data, "the whole, opened again")


def direct_io(d):
    buf = mmap.mmap(-1, 1 << 16)
    buf.write(os.urandom(1 << 16))
    try:
        fd = os.open(f"{d}/f", os.O_CREAT | os.O_RDWR | os.O_DIRECT)
    except OSError as e:
        if e.errno == errno.EINVAL:
            return "not offered here"
        raise
    os.writev(fd, [buf])
    back = mmap.mmap(-1, 1 << 16)
    os.preadv(fd, [back], 0)
    os.close(fd)
    check(back[:] == buf[:] and get(f"{d}/f") == buf[:], "content differs")
    return None


def mapped(d):
    put(f"{d}/f", b"\0" * 65536)
    fd = os.open(f"{d}/f", os.O_RDWR)
    with mmap.mmap(fd, 65536) as m:
        m[0:5] = b"begin"
        m[65531:] = b"ended"
        same(os.pread(fd, 5, 0), b"begin", "read sees the mapping")
        os.pwrite(fd, b"write", 100)
        same(m[100:105], b"write", "the mapping sees a write")
        m.flush()
        os.close(fd) # the mapping lives on
        m[200:205] = b"after"
    data = get(f"{d}/f")
    same((data[:5], data[100:105], data[200:205], data[65531:]), (b"begin", b"write", b"after", b"ended"),
         "content")
    with open(f"{d}/f", "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
        check(m[:] == data, "private view differs")


def executing(d):
    put(f"{d}/run.sh", b"#!/bin/sh\necho it runs\n")
    same(errno_of(os.execv, f"{d}/run.sh", ["x"]), "EACCES", "without the bit")
    os.chmod(f"{d}/run.sh", 0o755)
    done = subprocess.run([f"{d}/run.sh"], stdout=subprocess.PIPE, timeout=20, check=True)
    same(done.stdout, b"it runs\n", "output")


# ---- attributes ----

def times(d):
    before = time.time_ns()
    put(f"{d}/f")
    st = os.stat(f"{d}/f")
    check(before - 2 * 10**9 < st.st_mtime_ns < time.time_ns() + 2 * 10**9, "mtime of a new file")
    os.utime(f"{d}/f", ns=(10**18 + 1, 10**18 + 123456789))
    same(os.stat(f"{d}/f").st_mtime_ns, 10**18 + 123456789, "mtime after utime")
    with open(f"{d}/f", "ab") as f:
        f.write(b"y")
    check(os.stat(f"{d}/f").st_mtime_ns >= before - 2 * 10**9, "a write moves mtime")
    put(f"{d}/appended")
    with open(f"{d}/appended", "ab") as f:
        f.write(b"y")
    st = os.stat(f"{d}/appended")
    check(st.st_ctime_ns <= st.st_mtime_ns, f"a write: ctime {st.st_ctime_ns}, mtime {st.st_mtime_ns}")
    os.utime(f"{d}/f")
    check(abs(os.stat(f"{d}/f").st_mtime_ns - time.time_ns()) < 5 * 10**9, "mtime now")
    st = os.stat(d)
    time.sleep(0.02)
    put(f"{d}/g")
    check(os.stat(d).st_mtime_ns > st.st_mtime_ns, "a new name moves the directory's mtime")


def times_of_the_new(d):
    """What is told of a file when it is made stays true: the clock of the disk is another than the mount's."""
    def make(i):
        path = f"{d}/{i}"
        if i % 3 == 0:
            os.symlink("to", path)
        elif i % 3 == 1:
            os.mkfifo(path)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR))
        return path

    for i in range(60):
        path = make(i)
        before = os.lstat(path).st_mtime_ns
        if i % 2 == 0:
            os.chown(path, -1, os.getegid(), follow_symlinks=False)
        elif i % 3:
            set_atime(path, 1234567890)
            same(os.stat(path).st_atime, 1234567890, "atime")
        same(os.lstat(path).st_mtime_ns, before, f"mtime of {i}, which nobody changed")
    try:
        fd = os.open(d, os.O_TMPFILE | os.O_RDWR)
    except OSError as e:
        same(e.errno, errno.EOPNOTSUPP, "O_TMPFILE")
        return
    before = os.fstat(fd).st_mtime_ns
    os.fchmod(fd, 0o600)
    same(os.fstat(fd).st_mtime_ns, before, "mtime of one without a name")
    os.close(fd)


def ownership(d):
    if os.geteuid() != 0:
        return "not root"
    put(f"{d}/f")
    os.chown(f"{d}/f", 1234, 5678)
    st = os.stat(f"{d}/f")
    same((st.st_uid, st.st_gid), (1234, 5678), "owner")
    os.chmod(f"{d}/f", 0o6755)
    os.chown(f"{d}/f", 1, 1)
    same(stat.S_IMODE(os.stat(f"{d}/f").st_mode), 0o755, "chown takes the set-id bits")
    return None


def group_is_inherited(d):
    """Below a directory with the set-group-id bit."""
    if os.geteuid() != 0:
        return "not root"
    os.mkdir(f"{d}/shared")
    os.chown(f"{d}/shared", 0, 5678)
    os.chmod(f"{d}/shared", 0o2775)
    put(f"{d}/shared/f")
    os.mkdir(f"{d}/shared/sub")
    st = os.stat(f"{d}/shared/sub")
    same((os.stat(f"{d}/shared/f").st_gid, st.st_gid), (5678, 5678), "groups of file and directory")
    check(st.st_mode & stat.S_ISGID, "a new directory lacks the bit")
    return None


def _as_other(code, *arguments):
    """Runs Python code as another user, in the root's place."""
    drop = "import os,sys\nos.setgroups([])\nos.setgid(4000)\nos.setuid(4000)\n"
    return subprocess.run([sys.executable, "-c", drop + code, *arguments], timeout=20,
                          stderr=subprocess.PIPE, text=True)


def set_user_id_falls(d):
    """When another user writes, truncates or changes the owner."""
    if os.geteuid() != 0:
        return "not root"
    for i, (mode, left, code) in enumerate((
            (0o4777, 0o777, "os.write(os.open(sys.argv[1], os.O_WRONLY), b'other')"),
            (0o6777, 0o777, "os.pwrite(os.open(sys.argv[1], os.O_RDWR), b'other', 100)"),
            (0o4777, 0o777, "os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)"),
            (0o4777, 0o777, "os.truncate(sys.argv[1], 3)"),
            (0o2767, 0o767, "os.write(os.open(sys.argv[1], os.O_WRONLY), b'other')"))):
        path = f"{d}/f{i}"
        put(path, b"program")
        os.chmod(path, mode)
        done = _as_other(code, path)
        same((done.returncode, done.stderr), (0, ""), f"{code} as another user")
        same(oct(stat.S_IMODE(os.stat(path).st_mode)), oct(left), f"mode after {code}")
    os.chmod(path, 0o4755)
    with open(path, "ab") as f:
        f.write(b"by root")
    same(oct(stat.S_IMODE(os.stat(path).st_mode)), oct(0o4755), "mode after root's write")
    return None


def xattrs(d):
    put(f"{d}/f")
    os.setxattr(f"{d}/f", "user.one", b"1")
    os.setxattr(f"{d}/f", "user.bin", bytes(range(256)))
    same(os.getxattr(f"{d}/f", "user.bin"), bytes(range(256)), "value")
    listed = [n for n in os.listxattr(f"{d}/f") if not n.startswith("user.runfs.")]
    same(sorted(listed), ["user.bin", "user.one"], "list")
    same(errno_of(os.setxattr, f"{d}/f", "user.one", b"2", os.XATTR_CREATE), "EEXIST", "XATTR_CREATE")
    same(errno_of(os.setxattr, f"{d}/f", "user.two", b"2", os.XATTR_REPLACE), "ENODATA", "XATTR_REPLACE")
    os.removexattr(f"{d}/f", "user.one")
    same(errno_of(os.getxattr, f"{d}/f", "user.one"), "ENODATA", "after removal")
    os.rename(f"{d}/f", f"{d}/g")
    same(len(os.getxattr(f"{d}/g", "user.bin")), 256, "after a rename")
    os.mkdir(f"{d}/dir")
    os.setxattr(f"{d}/dir", "user.d", b"dir")
    same(os.getxattr(f"{d}/dir", "user.d"), b"dir", "of a directory")


def runfs_xattrs(d):
    put(f"{d}/f")
    state = os.getxattr(f"{d}/f", "user.runfs.state").decode()
    check(state in ("clean", "dirty", "uploading"), f"state is {state}")
    check(os.getxattr(f"{d}/f", "user.runfs.url").decode().endswith("/f"), "url")
    same(errno_of(os.setxattr, f"{d}/f", "user.runfs.state", b"clean"), "EPERM", "setting the state")


def statfs(d):
    st = os.statvfs(d)
    check(st.f_bavail > 0 and st.f_blocks >= st.f_bavail and st.f_bsize > 0, f"{st}")
    check(st.f_namemax == 255, f"f_namemax {st.f_namemax}")


def access_is_checked(d):
    if os.geteuid() != 0:
        return "not root"
    put(f"{d}/secret")
    os.chmod(f"{d}/secret", 0o600)
    done = _as_other("os.open(sys.argv[1], os.O_RDONLY)", f"{d}/secret")
    check("PermissionError" in done.stderr, f"another user's open: {done.stderr[-200:]}")
    done = _as_other("os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)", f"{d}/new")
    check("PermissionError" in done.stderr, f"another user's create: {done.stderr[-200:]}")
    os.chmod(d, 0o1777)
    put(f"{d}/mine")
    done = _as_other("os.unlink(sys.argv[1])", f"{d}/mine")
    check("PermissionError" in done.stderr, f"unlink in a sticky directory: {done.stderr[-200:]}")
    done = _as_other("os.mkdir(sys.argv[1]); os.rmdir(sys.argv[1])", f"{d}/theirs")
    same(done.stderr, "", "another user's own directory")
    return None


CASES = [create_and_read, umask_and_modes, directories, big_directory, symlinks, hard_links,
         most_names_of_one_file, special_files,
         odd_names, rename_files, rename_directories, rename_flags, exchange_directories, exchange_kinds,
         truncated_while_it_runs,
         names_change_kind, unlinked_but_open, renamed_while_open,
         tmpfile, appending, truncating, sparse, copying, read_write_patterns, direct_io, mapped, executing,
         times, times_of_the_new, ownership, group_is_inherited, set_user_id_falls, xattrs, runfs_xattrs, statfs, access_is_checked]
