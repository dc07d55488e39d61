"""Random operations by several threads against a model in memory; every read is checked against
what was written. A failure names the seed that repeats it."""

import mmap
import os
import random
import threading

from harness import Failure, check

MAX_SIZE = 3 << 20


class Worker:
    """Owns some names in a directory that it shares with the others."""

    def __init__(self, folder, index, seed):
        self.folder, self.index = folder, index
        self.random = random.Random(f"{seed}-{index}")
        self.files = {} # name: bytearray, what it must hold
        self.open = []  # (descriptor, bytearray) of files that may have lost their name
        self.count = 0
        self.log = []

    def path(self, name):
        return os.path.join(self.folder, name)

    def say(self, *words):
        self.log.append(" ".join(str(w) for w in words))
        del self.log[:-20]

    def pick(self):
        return self.random.choice(sorted(self.files))

    def expect(self, found, expected, what):
        if found != expected:
            at = next((i for i, (a, b) in enumerate(zip(found, expected)) if a != b),
                      min(len(found), len(expected)))
            raise Failure(f"{what}: {len(found)} bytes for {len(expected)}, first difference at {at}; "
                          f"before: {'; '.join(self.log)}")

    # ---- the operations ----

    def create(self):
        name = f"w{self.index}-{self.count}"
        self.count += 1
        size = self.random.choice((0, 1, 4096, self.random.randrange(MAX_SIZE)))
        data = bytearray(self.random.randbytes(size))
        self.say("create", name, size)
        with open(self.path(name), "wb") as f:
            f.write(data)
        self.files[name] = data

    def read_all(self):
        name = self.pick()
        self.say("read", name)
        with open(self.path(name), "rb") as f:
            self.expect(f.read(), bytes(self.files[name]), f"read of {name}")

    def read_some(self):
        name = self.pick()
        data = self.files[name]
        off = self.random.randrange(len(data) + 100)
        size = self.random.randrange(200000)
        self.say("pread", name, size, "at", off)
        fd = os.open(self.path(name), os.O_RDONLY)
        try:
            self.expect(os.pread(fd, size, off), bytes(data[off:off + size]), f"pread of {name} at {off}")
        finally:
            os.close(fd)

    def write_some(self):
        name = self.pick()
        data = self.files[name]
        off = self.random.randrange(len(data) + 5000)
        piece = self.random.randbytes(self.random.randrange(1, 100000))
        self.say("pwrite", name, len(piece), "at", off)
        fd = os.open(self.path(name), self.random.choice((os.O_WRONLY, os.O_RDWR)))
        try:
            done = 0
            while done < len(piece):
                done += os.pwrite(fd, piece[done:], off + done)
            if self.random.random() < 0.1:
                os.fsync(fd)
        finally:
            os.close(fd)
        self.model_write(data, piece, off)

    @staticmethod
    def model_write(data, piece, off):
        if len(data) < off:
            data.extend(b"\0" * (off - len(data)))
        data[off:off + len(piece)] = piece

    def append(self):
        name = self.pick()
        piece = self.random.randbytes(self.random.randrange(1, 5000))
        self.say("append", name, len(piece))
        with open(self.path(name), "ab") as f:
            f.write(piece)
        self.files[name] += piece

    def truncate(self):
        name = self.pick()
        data = self.files[name]
        size = self.random.randrange(len(data) + 10000)
        self.say("truncate", name, size)
        os.truncate(self.path(name), size)
        if size < len(data):
            del data[size:]
        else:
            data.extend(b"\0" * (size - len(data)))

    def rename(self):
        old = self.pick()
        new = self.pick() if self.random.random() < 0.3 else f"w{self.index}-{self.count}"
        self.count += 1
        self.say("rename", old, new)
        os.rename(self.path(old), self.path(new))
        if new != old:
            self.files[new] = self.files.pop(old)

    def unlink(self):
        name = self.pick()
        self.say("unlink", name)
        os.unlink(self.path(name))
        del self.files[name]

    def stat(self):
        name = self.pick()
        self.say("stat", name)
        size = os.stat(self.path(name)).st_size
        check(size == len(self.files[name]),
              f"stat of {name}: {size} for {len(self.files[name])}; before: {'; '.join(self.log)}")

    def map_and_write(self):
        name = self.pick()
        data = self.files[name]
        if not data:
            return
        off = self.random.randrange(len(data))
        piece = self.random.randbytes(min(len(data) - off, self.random.randrange(1, 20000)))
        self.say("mmap", name, len(piece), "at", off)
        fd = os.open(self.path(name), os.O_RDWR)
        with mmap.mmap(fd, len(data)) as m:
            os.close(fd)
            self.expect(m[off:off + len(piece)], bytes(data[off:off + len(piece)]), f"mapping of {name}")
            m[off:off + len(piece)] = piece
        self.model_write(data, piece, off)

    def hold(self):
        """Opens a file and takes its name away."""
        if len(self.open) >= 3:
            fd, data = self.open.pop(0)
            self.say("check of a nameless file")
            self.expect(os.pread(fd, len(data) + 1, 0), bytes(data), "nameless file")
            os.close(fd)
            return
        name = self.pick()
        self.say("hold", name)
        self.open.append((os.open(self.path(name), os.O_RDWR), self.files.pop(name)))
        os.unlink(self.path(name))

    def step(self):
        if len(self.files) < 3:
            self.create()
            return
        operations = (self.create, self.read_all, self.read_some, self.read_some, self.write_some,
                      self.write_some, self.append, self.truncate, self.rename, self.unlink, self.stat,
                      self.map_and_write, self.hold)
        self.random.choice(operations)()

    def check_all(self):
        for fd, data in self.open:
            self.expect(os.pread(fd, len(data) + 1, 0), bytes(data), "nameless file")
            os.close(fd)
        self.open = []
        for name, data in self.files.items():
            with open(self.path(name), "rb") as f:
                self.expect(f.read(), bytes(data), f"at the end, {name}")


def run_workers(workers, steps):
    failures = []

    def work(worker):
        try:
            for _ in range(steps):
                if failures:
                    return
                worker.step()
            worker.check_all()
        except (Failure, OSError) as e:
            failures.append(f"worker {worker.index}: {e}; before: {'; '.join(worker.log[-5:])}")

    threads = [threading.Thread(target=work, args=(w,)) for w in workers]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for w in workers:
        for fd, _ in w.open:
            os.close(fd)
        w.open = []
    check(not failures, failures[0] if failures else "")


def start(folder, seed, threads=4):
    return [Worker(folder, i, seed) for i in range(threads)]


def move(workers, folder):
    """The same files, seen in another place (a second mount)."""
    for w in workers:
        w.folder = folder


def check_names(workers):
    names = {n for w in workers for n in w.files}
    found = set(os.listdir(workers[0].folder))
    check(found == names, f"listing: not there {sorted(names - found)}, too many {sorted(found - names)}")
