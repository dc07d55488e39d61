"""Passthrough and normal mode: which files get which, and the traps of each (docs of the kernel's
passthrough say one mode per inode at a time). Each case gets a Mount and a folder name of its own;
`again` mounts the same store with an empty cache, its daemon with more in its environment if asked."""

import errno
import mmap
import os
import resource
import subprocess
import time

from harness import check, find_number, runfs_binary, wait_for
from mapped import Mapping


def opens(mount):
    status = mount.status()
    return find_number(status, "opens_passthrough"), find_number(status, "opens_normal")


def has_passthrough(mount):
    return bool(find_flag(mount.status(), "passthrough"))


def find_flag(tree, name):
    if isinstance(tree, dict):
        if isinstance(tree.get(name), bool):
            return tree[name]
        for branch in tree.values():
            value = find_flag(branch, name)
            if value is not None:
                return value
    return None


def put(path, data):
    with open(path, "wb") as f:
        f.write(data)


def get(path):
    with open(path, "rb") as f:
        return f.read()


def new_files(mount, folder, again):
    """A new file and a complete one are passthrough where that is possible, else normal."""
    put(f"{mount.mountpoint}/{folder}/f", b"1" * 100000)
    p0, n0 = opens(mount)
    put(f"{mount.mountpoint}/{folder}/g", b"2" * 100000)
    get(f"{mount.mountpoint}/{folder}/f")
    p1, n1 = opens(mount)
    expected = (2, 0) if has_passthrough(mount) else (0, 2)
    check((p1 - p0, n1 - n0) == expected, f"passthrough, normal opens: {p1 - p0}, {n1 - n0}")


def incomplete_files(mount, folder, again):
    """A file that is not here yet is opened normally, also a second time while it is open, though
    it may be complete by then; after its last close it may be passthrough."""
    data = os.urandom(6 << 20)
    put(f"{mount.mountpoint}/{folder}/f", data)
    mount.flush()
    second = again()
    path = f"{second.mountpoint}/{folder}/f"
    p0, _ = opens(second)
    fd = os.open(path, os.O_RDONLY)
    check(os.pread(fd, 1000, 5 << 20) == data[5 << 20:(5 << 20) + 1000], "a range")
    check(get(path) == data, "the whole, beside an open descriptor")
    other = os.open(path, os.O_RDWR)
    os.pwrite(other, b"changed", 100)
    check(os.pread(fd, 7, 100) == b"changed", "a write seen through the first descriptor")
    check(opens(second)[0] == p0, "a passthrough open beside a normal one")
    os.close(fd)
    check(os.pread(other, 7, 100) == b"changed", "after the first close")
    os.close(other)
    expected = data[:100] + b"changed" + data[107:]
    check(get(path) == expected, "content after")
    if has_passthrough(second):
        wait_for("the complete file is opened passthrough",
                 lambda: get(path) == expected and opens(second)[0] > p0, 20)
    check(get(path) == expected, "content in the other mode")


def mapped_before_it_is_here(mount, folder, again):
    """A large file of which nothing is here yet: read past the kernel's pages, mapped both ways,
    sent, and changed by another descriptor, all of it through one that was opened at first."""
    data = bytearray(os.urandom(5 << 20) + b"the end")
    put(f"{mount.mountpoint}/{folder}/f", data)
    mount.flush()
    second = again()
    path = f"{second.mountpoint}/{folder}/f"
    fd = os.open(path, os.O_RDONLY)
    check(os.pread(fd, 3, 4097) == data[4097:4100], "three bytes")
    shared = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)
    private = mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    for name, m in (("shared", shared), ("private", private)):
        check(m[3 << 20:(3 << 20) + 5000] == data[3 << 20:(3 << 20) + 5000], f"{name}: a piece")
    private[0:4] = b"mine"
    with open(path, "r+b", buffering=0) as f:
        for at in (0, 4090, (2 << 20) + 1, len(data) - 4):
            f.seek(at)
            f.write(b"new!")
            data[at:at + 4] = b"new!"
            check(os.pread(fd, 10, at) == data[at:at + 10], f"read of the change at {at}")
            check(shared[at:at + 4] == b"new!", f"mapping of the change at {at}")
        f.truncate(4 << 20)
        del data[4 << 20:]
        check(os.pread(fd, 100, (4 << 20) - 10) == data[-10:], "the new end")
        check(os.pread(fd, 100, 4 << 20) == b"", "behind it")
        with open(f"{second.mountpoint}/{folder}/sent", "wb") as to:
            sent = 0
            while sent < len(data):
                sent += os.sendfile(to.fileno(), fd, sent, len(data) - sent)
        check(get(f"{second.mountpoint}/{folder}/sent") == data, "what was sent")
    check(private[0:4] == b"mine", "the private mapping's own bytes")
    os.replace(f"{second.mountpoint}/{folder}/sent", path)
    check(os.pread(fd, len(data), 0) == data, "the whole, replaced meanwhile")
    check(shared[:len(data)] == data, "the mapping, replaced meanwhile")
    shared.close()
    private.close()
    os.close(fd)
    check(get(path) == data, "content after")


def reads_in_the_middle(mount, folder, again):
    """What the kernel would read ahead of a random reader is not fetched, where it can be told
    not to (as with passthrough: Linux 6.6 and libfuse 3.17 or later)."""
    put(f"{mount.mountpoint}/{folder}/f", os.urandom(24 << 20))
    mount.flush()
    second = again()
    fd = os.open(f"{second.mountpoint}/{folder}/f", os.O_RDONLY)
    before = find_number(second.status(), "downloaded_bytes")
    for i in range(1, 20):
        check(len(os.pread(fd, 256 << 10, (i << 20) + (256 << 10))) == 256 << 10, "a short read")
    fetched = find_number(second.status(), "downloaded_bytes") - before
    os.close(fd)
    if has_passthrough(second):
        check(fetched <= 19 * (256 << 10) * 5 // 4, f"{fetched / (19 << 18):.2f} times what was asked")


def modes_in_turn(mount, folder, again):
    """Pages that the kernel keeps of a normal open are not shown after writes in passthrough."""
    data = os.urandom(1 << 20)
    put(f"{mount.mountpoint}/{folder}/f", data)
    mount.flush()
    second = again()
    path = f"{second.mountpoint}/{folder}/f"
    check(get(path) == data, "first read") # normal, fills the page cache
    for i in range(5):
        piece = os.urandom(5000)
        fd = os.open(path, os.O_RDWR)
        os.pwrite(fd, piece, 5000 * i)
        check(os.pread(fd, 5000, 5000 * i) == piece, f"read back {i}")
        os.close(fd)
        data = data[:5000 * i] + piece + data[5000 * (i + 1):]
        check(get(path) == data, f"content {i}")
    with open(path, "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
        check(m[:] == data, "mapping")


def both_modes_at_once(mount, folder, again):
    """Many opens of one file by many threads, whatever their mode, see each other's writes."""
    import threading

    put(f"{mount.mountpoint}/{folder}/f", b"\0" * (4 << 20))
    mount.flush()
    second = again()
    path = f"{second.mountpoint}/{folder}/f"
    wrong = []

    def work(k):
        try:
            for i in range(20):
                fd = os.open(path, os.O_RDWR)
                piece = bytes([k, i]) * 500
                os.pwrite(fd, piece, k * 4096)
                if os.pread(fd, 1000, k * 4096) != piece:
                    wrong.append((k, i))
                os.close(fd)
        except OSError as e:
            wrong.append(f"{k}: {e}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check(not wrong, f"{wrong[:3]}")
    data = get(path)
    check(all(data[k * 4096:k * 4096 + 1000] == bytes([k, 19]) * 500 for k in range(6)), "content")


def refused_for_a_while(mount, folder, again):
    """The kernel lacks something for a backing file once: that open is a normal one. Then it refuses one:
    what is open in passthrough by then can still be opened, read and written by others; everything else is
    opened normally from then on."""
    build = os.environ.get("RUNFS_BUILD") or os.path.dirname(runfs_binary())
    if not has_passthrough(mount) or os.path.basename(build) in ("asan", "tsan"): # they preload their own
        return "not here: nothing to refuse"
    mount.flush() # the folder is in the store
    refuse = f"{mount.mountpoint.rstrip('/')}.refuse"
    second = again({"LD_PRELOAD": os.path.join(build, "tests", "librefuse_backing.so"),
                    "RUNFS_TEST_REFUSE": refuse})
    path = f"{second.mountpoint}/{folder}"
    put(f"{path}/f", b"before")
    put(f"{path}/g", b"other")
    fd = os.open(f"{path}/f", os.O_RDWR)
    wait_for("only f is open", lambda: find_number(second.status(), "open_handles") == 1)
    check(has_passthrough(second), "refused already")
    for lacking in (errno.ENOMEM, errno.EMFILE, errno.ENOSPC):
        put(refuse, str(lacking).encode())
        _, n0 = opens(second)
        check(get(f"{path}/g") == b"other", "a file for which something is lacking")
        os.remove(refuse)
        check(opens(second)[1] == n0 + 1 and has_passthrough(second), f"{lacking} counts as a refusal")
    p0, _ = opens(second)
    check(get(f"{path}/g") == b"other" and opens(second)[0] == p0 + 1, "no passthrough after that")
    put(refuse, str(errno.EPERM).encode())
    check(get(f"{path}/g") == b"other", "a file that nobody has open")
    os.remove(refuse)
    check(not has_passthrough(second), "the refusal was not seen")
    check(get(f"{path}/f") == b"before", "a file that is open in passthrough")
    with open(f"{path}/f", "r+b") as f:
        f.write(b"after!")
    check(os.pread(fd, 6, 0) == b"after!", "a write by another open")
    os.close(fd)
    wait_for("nothing is open", lambda: find_number(second.status(), "open_handles") == 0)
    _, n0 = opens(second)
    check(get(f"{path}/f") == b"after!", "after the last close")
    check(opens(second)[1] == n0 + 1, "an open in passthrough after the refusal")
    second.flush()


def mapping_after_close(mount, folder, again):
    """The mmap trap: a mapping writes on after close(), after an upload, and after the upload of
    that; what it wrote last is in the store in the end."""
    path = f"{mount.mountpoint}/{folder}/f"
    put(path, b"\0" * 65536)
    m = Mapping(path, 65536)
    m.store(b"first")
    mount.flush()
    m.store(b"secnd") # the page was cleaned by the upload's fsync, or was not
    m.store(b"other", 4096)
    mount.flush()
    m.store(b"third")
    m.store(b"OTHER", 4096)
    m.close()
    check(get(path)[:5] == b"third", "seen through the mount")
    mount.flush()
    second = again()
    data = get(f"{second.mountpoint}/{folder}/f")
    check((data[:5], data[4096:4101]) == (b"third", b"OTHER"), f"in the store: {data[:5]} {data[4096:4101]}")


def mapping_lives_long(mount, folder, again):
    """The same with no flush in between: the mapping's last store comes long after close()."""
    path = f"{mount.mountpoint}/{folder}/f"
    put(path, b"\0" * 8192)
    m = Mapping(path, 8192)
    for i in range(8):
        m.store(b"%08d" % i)
        time.sleep(0.4)
    m.close()
    mount.flush()
    second = again()
    check(get(f"{second.mountpoint}/{folder}/f")[:8] == b"00000007", "the last store is not in the store")


FEW, MANY = 300, 800 # what the daemon has, and what one program opens


def many_open_files(mount, folder, again):
    """One program has more files open than the daemon has descriptors: written, read, removed, renamed and mapped ones.
    It, other programs and the status go on, and what was written is in the store."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] < 2 * MANY:
        return f"{limits[1]} descriptors at most"
    second = again(wrapper=["prlimit", f"--nofile={FEW}:{FEW}"])
    top = f"{second.mountpoint}/{folder}-many"
    os.mkdir(top)
    files = {}
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * MANY, limits[1]))
    try:
        for i in range(MANY):
            files[i] = os.open(f"{top}/{i}", os.O_RDWR | os.O_CREAT)
            os.write(files[i], b"%08d" % i)
        for i in range(0, MANY, 4):
            os.rename(f"{top}/{i}", f"{top}/moved{i}")
            os.unlink(f"{top}/{i + 1}")
        check(get_elsewhere(f"{top}/moved0") == b"%08d" % 0, "another program reads something else")
        check(find_number(second.status(), "descriptors") <= FEW, "more descriptors than there are")
        for i, fd in files.items():
            check(os.pread(fd, 99, 0) == b"%08d" % i, f"file {i} reads differently")
            os.pwrite(fd, b"more", 8)
            check(os.fstat(fd).st_size == 12, f"file {i} has {os.fstat(fd).st_size} bytes")
        with mmap.mmap(files[2], 12) as m:
            m[0:4] = b"maps"
    finally:
        for fd in files.values():
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    second.flush()
    third = again()
    for i in range(MANY):
        path = f"{third.mountpoint}/{folder}-many/{'' if i % 4 else 'moved'}{i}"
        wanted = b"%08dmore" % i if i != 2 else b"maps0002more"
        check(not os.path.exists(path) if i % 4 == 1 else get(path) == wanted, f"{path} in the store")


def get_elsewhere(path):
    return subprocess.run(["cat", path], stdout=subprocess.PIPE, timeout=30, check=True).stdout


def synchronous_writes(mount, folder, again):
    """A write through O_SYNC or O_DSYNC is noted as synced when it is answered (format.md, 2: S, with the size)."""
    for name, flags in (("sync", os.O_SYNC), ("dsync", os.O_DSYNC)):
        fd = os.open(f"{mount.mountpoint}/{folder}/{name}", os.O_WRONLY | os.O_CREAT | flags)
        for i in range(1, 4):
            os.write(fd, b"x" * 4096)
            words = os.getxattr(f"{mount.cache}/mirror/{folder}/{name}", "user.runfs.a").split()
            check(int(words[9], 16) & 8 and int(words[11]) == i * 4096, f"{name}: {words[9:]} after {i} writes")
        os.close(fd)


def readers_do_not_hold_an_upload_back(mount, folder, again):
    """A closed file goes to the store while somebody reads it, whoever opened it first."""
    for first in ("writer", "reader"):
        path = f"{mount.mountpoint}/{folder}/{first}"
        put(path, b"")
        if first == "reader":
            reader = os.open(path, os.O_RDONLY)
        writer = os.open(path, os.O_WRONLY)
        if first == "writer":
            reader = os.open(path, os.O_RDONLY)
        os.write(writer, b"content")
        os.close(writer)
        wait_for(f"the file that its {first} opened first is clean",
                 lambda path=path: os.getxattr(path, "user.runfs.state") == b"clean", 10)
        os.close(reader)


CASES = [synchronous_writes, readers_do_not_hold_an_upload_back, new_files, incomplete_files, mapped_before_it_is_here, reads_in_the_middle,
         modes_in_turn, both_modes_at_once, refused_for_a_while, mapping_after_close, mapping_lives_long,
         many_open_files]
