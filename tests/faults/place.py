"""What the fault tests share: a mount behind a proxy, and small disks for its cache."""

import errno
import hashlib
import os
import random
import re
import subprocess
import threading

import harness
from harness import Failure, check, wait_for
from proxy import Proxy

MIB = 1 << 20
# What needs no store answers within so many seconds: up to twice 2 s go by until the daemon
# takes it for unreachable, and those who do ask it wait for 25 s and more.
PROMPT = 15.0


def digest(data):
    return hashlib.sha256(data).hexdigest()


def content(name, size):
    rng = random.Random(name)
    return b"".join(rng.randbytes(min(MIB, size - off)) for off in range(0, size, MIB))


class Place:
    """One case's mount behind a proxy, under a prefix and with a cache of its own."""

    def __init__(self, work, name, options, cache=None):
        self.work = work
        self.prefix = name
        self.proxy = Proxy(work.gateway.port).start()
        self.cache = cache or work.path(f"cache-{name}")
        self.options = ("upload_interval=0", *options)
        self.written = {}
        self.mount = self.new_mount()

    def __enter__(self):
        self.mount.start()
        return self

    def __exit__(self, *exception):
        self.mount.kill()
        self.proxy.stop()
        if exception[0] and issubclass(exception[0], (Failure, OSError)):
            print(f"        log: {self.mount.log_tail(800)}", flush=True)

    def new_mount(self, cache=None):
        return self.work.mount(self.prefix, self.options, name=f"mnt-{self.prefix}",
                               cache=cache or self.cache, endpoint=self.proxy.endpoint)

    def path(self, name):
        return os.path.join(self.mount.mountpoint, name)

    def write(self, name, size, step=MIB, before_close=None):
        """Writes a file; it counts as written when close() returned. `before_close` is called while
        it is still open, also when a write failed, with how many bytes were accepted."""
        data = content(name, size)
        done = 0
        fd = os.open(self.path(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            while done < size:
                done += os.write(fd, data[done:done + step])
        finally:
            if before_close:
                before_close(done)
            os.close(fd)
        self.written[name] = digest(data)

    def write_elsewhere(self, name, size):
        """Another node writes a file: this mount knows it from the listing only."""
        m = self.work.mount(self.prefix, (), name=f"other-{self.prefix}", cache=f"cache-other-{self.prefix}").start()
        data = content(name, size)
        with open(os.path.join(m.mountpoint, name), "wb") as f:
            f.write(data)
        m.umount(60)
        self.written[name] = digest(data)

    def log(self):
        with open(self.mount.log, errors="replace") as f:
            return f.read()

    def logs(self, text):
        """The log tells of it, or will in a moment: what is said under a lock is written a little later."""
        wait_for(f"the log tells of \"{text}\"", lambda: text in self.log(), 10)

    def trouble(self):
        """What status says of the cache's space; None when all is well."""
        return self.mount.status()["cache"]["trouble"]

    def read(self, name):
        with open(self.path(name), "rb") as f:
            return digest(f.read())

    def stored(self):
        found = {}
        for key, path in self.work.gateway.objects(self.prefix).items():
            try:
                with open(path, "rb") as f:
                    found[key] = digest(f.read())
            except FileNotFoundError:
                pass # removed meanwhile
        return found

    def nothing_torn(self):
        for key, value in self.stored().items():
            check(value == self.written.get(key), f"the store holds {key} with a content that nobody closed")

    def all_stored(self):
        found = self.stored()
        for name in self.written.keys() | found.keys():
            check(found.get(name) == self.written.get(name),
                  f"{name}: the store holds {found.get(name)}, written was {self.written.get(name)}")

    def finish(self):
        """Everything reaches the store, umount says so, and an empty cache reads it back."""
        self.mount.umount(120)
        self.all_stored()
        self.mount = self.new_mount(self.work.path(f"cold-{self.prefix}"))
        self.mount.start()
        check(sorted(os.listdir(self.mount.mountpoint)) == sorted(self.written), "the names differ")
        for name, value in self.written.items():
            check(self.read(name) == value, f"{name}: reads differently with an empty cache")
        self.mount.umount(60)

    def prompt(self, what, call):
        """Runs something that must answer although the store does not."""
        result = []

        def run():
            try:
                result.append((call(), None))
            except OSError as e:
                result.append((None, e))

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(PROMPT)
        check(result, f"{what}: no answer in {PROMPT:g} s while the store is stuck")
        if result[0][1]:
            raise Failure(f"{what}: {result[0][1]}")
        return result[0][0]


class SmallDisk:
    """An ext4 of its own, in a file."""

    def __init__(self, work, name, size):
        self.image, self.folder = work.path(f"{name}.img"), work.make(f"disk-{name}")
        with open(self.image, "wb") as f:
            f.truncate(size)
        subprocess.run(["mkfs.ext4", "-q", self.image], check=True)

    def __enter__(self):
        subprocess.run(["mount", "-o", "loop", self.image, self.folder], check=True)
        self.cache = os.path.join(self.folder, "cache")
        return self

    def __exit__(self, *exception):
        subprocess.run(["umount", "-l", self.folder], check=True)


class FlakyDisk:
    """An ext4 on a disk whose sectors can be made bad, and good again: flaky_disk below a loop device,
    for want of device-mapper in many a machine."""

    def __init__(self, work, name, size):
        self.image, self.folder, self.under = work.path(f"{name}.img"), work.make(f"disk-{name}"), work.make(f"flaky-{name}")
        self.program = self.device = None
        with open(self.image, "wb") as f:
            f.truncate(size)
        subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", self.image], check=True)

    def __enter__(self):
        self.program = subprocess.Popen([os.path.join(build_folder(), "tests", "flaky_disk"), self.image, self.under],
                                        stdin=subprocess.DEVNULL)
        wait_for("the flaky disk", lambda: os.path.exists(os.path.join(self.under, "disk")), 10)
        done = subprocess.run(["losetup", "-f", "--show", os.path.join(self.under, "disk")], check=True,
                              stdout=subprocess.PIPE, text=True)
        self.device = done.stdout.strip()
        self.attach()
        self.cache = os.path.join(self.folder, "cache")
        return self

    def __exit__(self, *exception):
        self.heal()
        subprocess.run(["umount", "-l", self.folder], check=True)
        subprocess.run(["losetup", "-d", self.device], check=True)
        subprocess.run(["fusermount3", "-u", "-z", self.under], check=True)
        harness.end_process(self.program)

    def attach(self):
        subprocess.run(["mount", "-o", "errors=remount-ro", self.device, self.folder], check=True)

    def repair(self):
        """What an administrator does with a filesystem that gave up: unmount, check, mount."""
        # Who asks all mounts of the machine may have the cache open for a moment.
        wait_for("its unmount", lambda: subprocess.run(["umount", self.folder], check=False).returncode == 0, 20, 0.1)
        wait_for("nobody else has the disk mounted", lambda: is_free(self.device), 60, 0.1)
        done = subprocess.run(["e2fsck", "-p", "-f", self.device], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        check(done.returncode < 4, f"e2fsck: {done.stdout}")
        self.attach()

    def tell(self, line):
        fd = os.open(os.path.join(self.under, "control"), os.O_WRONLY)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)

    def heal(self):
        self.tell("heal")

    def sync(self):
        subprocess.run(["sync", "-f", self.folder], stderr=subprocess.DEVNULL, check=False)

    def failed(self):
        """How many requests met a bad sector."""
        with open(os.path.join(self.under, "control")) as f:
            return int(f.read())

    def spoil(self, verb, path=None):
        """The sectors of a file (which is synced), or all of the disk, fail to be read or written."""
        if path is None:
            self.tell(f"{verb} 0 {1 << 50}")
            return
        done = subprocess.run(["filefrag", "-e", "-b512", path], check=True, stdout=subprocess.PIPE, text=True)
        extents = re.findall(r"^\s*\d+:\s*\d+\.\.\s*\d+:\s*(\d+)\.\.\s*(\d+):", done.stdout, re.M)
        check(extents, f"{path} has no extents: {done.stdout}")
        for first, last in extents:
            self.tell(f"{verb} {int(first) * 512} {(int(last) + 1) * 512}")


def build_folder():
    return os.environ.get("RUNFS_BUILD") or os.path.dirname(harness.runfs_binary())


def is_free(device):
    """A mount namespace that another test made may hold its disk for a while."""
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
        return True
    except OSError as e:
        check(e.errno == errno.EBUSY, str(e))
        return False


def drop_caches(cache):
    """Pages of the mirror that are clean are read from the disk again. Those of other files stay: the
    whole machine would wait for its disk."""
    for where, _, files in os.walk(os.path.join(cache, "mirror")):
        for name in files:
            try:
                fd = os.open(os.path.join(where, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            except OSError:
                continue # gone, or on a bad sector
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
