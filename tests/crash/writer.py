#!/usr/bin/env python3
"""writer.py FOLDER LEDGER SEED TREE [--kill-after OPERATION --pid PID]

Changes the tree below FOLDER at random until the mount dies or SIGTERM comes, and keeps the
ledger. With --kill-after rename (or unlink, ...) it kills the daemon itself in the instant in
which the third such call returned; with half when the third new file is written by half.
"""

import argparse
import errno
import json
import mmap
import os
import random
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib"))

from ledger import Ledger, digest

# What a call answers when the daemon is gone.
DEAD = {errno.ENOTCONN, errno.ECONNABORTED}
FILES_MAX = 40


def is_of_the_kill(error, folder):
    """The kernel answers EIO for a request that it was just copying from or to the daemon (fs/fuse/dev.c,
    fuse_dev_do_read() and _write()): of a kill only if the daemon is gone a moment later."""
    if error.errno != errno.EIO:
        return error.errno in DEAD
    for _ in range(100):
        try:
            os.statvfs(folder)
        except OSError as e:
            return e.errno in DEAD
        time.sleep(0.01)
    return False


class Stop(Exception):
    pass


class Writer:
    def __init__(self, arguments):
        self.base = arguments.folder
        self.random = random.Random(arguments.seed)
        self.ledger = Ledger(arguments.ledger)
        with open(arguments.tree) as f:
            self.tree = json.load(f)
        self.kill_after, self.pid = arguments.kill_after, arguments.pid
        self.kills_left = 3
        self.count = 0
        self.stopped = False

    # ---- choosing ----

    def files(self):
        return sorted(p for p, e in self.tree.items() if e[0] == "f")

    def folders(self):
        return [""] + sorted(p for p, e in self.tree.items() if e[0] == "d")

    def new_name(self, suffix=""):
        self.count += 1
        folder = self.random.choice(self.folders())
        name = f"{self.random.choice('abc')}{self.random.randrange(10 ** 9)}{suffix}"
        return f"{folder}/{name}" if folder else name

    def some_file(self):
        files = self.files()
        return self.random.choice(files) if files else None

    def target_name(self):
        """A new name, or one that exists."""
        return self.some_file() if self.files() and self.random.random() < 0.4 else self.new_name()

    def content(self):
        kind = self.random.random()
        if kind < 0.05:
            size = 0
        elif kind < 0.75:
            size = self.random.randrange(1, 65536)
        elif kind < 0.97:
            size = self.random.randrange(65536, 2_000_000)
        else:
            size = self.random.randrange(9_000_000, 14_000_000)
        return self.random.randbytes(size)

    def at(self, path):
        return os.path.join(self.base, path)

    # ---- doing ----

    def run(self, name, delta, call, open_content=None, whole=False):
        self.ledger.begin(name, delta, open_content, whole)
        call()
        self.reached(name.split()[0])
        self.ledger.done()
        for path, entry in delta.items():
            if entry is None:
                self.tree.pop(path, None)
            else:
                self.tree[path] = entry

    def reached(self, what):
        if self.kill_after == what:
            self.kills_left -= 1
            if self.kills_left == 0:
                os.kill(self.pid, signal.SIGKILL)

    def put(self, path, data, flags, offset=0, sync_at=None):
        step = min(200_000, len(data) // 2 + 1)
        fd = os.open(self.at(path), flags, 0o644)
        try:
            done = 0
            while done < len(data):
                end = min(len(data), done + step)
                if sync_at is not None and done < sync_at:
                    end = min(end, sync_at)
                done += os.pwrite(fd, data[done:end], offset + done)
                if done == sync_at:
                    os.fsync(fd)
                    self.ledger.synced(data[:done])
                elif done < len(data) and sync_at is None and path not in self.tree:
                    self.reached("half")
        finally:
            os.close(fd)

    def write(self):
        path, data = self.target_name(), self.content()
        sync_at = self.random.randrange(1, len(data) + 1) if data and self.random.random() < 0.4 else None

        def call():
            # What O_TRUNC leaves half is kept, and removals that came after what it owed are
            # taken back: a ledger can't tell which.
            if path in self.tree:
                os.truncate(self.at(path), 0)
            self.put(path, data, os.O_WRONLY | os.O_CREAT, sync_at=sync_at)

        self.run(f"write {path}", {path: ["f", digest(data), len(data)]}, call, path, sync_at is None)

    def write_and_rename(self):
        temporary, path, data = self.new_name(".tmp"), self.target_name(), self.content()
        entry = ["f", digest(data), len(data)]
        self.run(f"write {temporary}", {temporary: entry},
                 lambda: self.put(temporary, data, os.O_WRONLY | os.O_CREAT | os.O_EXCL), temporary, True)
        self.run(f"rename {temporary} {path}", {temporary: None, path: entry},
                 lambda: os.rename(self.at(temporary), self.at(path)))

    def read_checked(self, path):
        with open(self.at(path), "rb") as f:
            data = f.read()
        if digest(data) != self.tree[path][1]:
            raise AssertionError(f"{path} reads as {len(data)} other bytes")
        return data

    def read(self):
        path = self.some_file()
        if path:
            self.read_checked(path)

    def patch(self):
        path = self.some_file()
        if not path:
            return
        old = self.read_checked(path)
        piece = self.random.randbytes(self.random.randrange(1, 30_000))
        offset = self.random.randrange(len(old) + 5_000)
        new = old.ljust(offset, b"\0")[:offset] + piece + old[offset + len(piece):]
        self.run(f"patch {path}", {path: ["f", digest(new), len(new)]},
                 lambda: self.put(path, piece, os.O_RDWR, offset), path)

    def map_and_write(self):
        path = self.some_file()
        if not path or self.tree[path][2] == 0:
            return
        old = self.read_checked(path)
        offset = self.random.randrange(len(old))
        piece = self.random.randbytes(min(5_000, len(old) - offset))
        new = old[:offset] + piece + old[offset + len(piece):]

        def call():
            fd = os.open(self.at(path), os.O_RDWR)
            try:
                mapped = mmap.mmap(fd, 0)
            finally:
                os.close(fd)
            with mapped:
                mapped[offset:offset + len(piece)] = piece
                mapped.flush()

        self.run(f"map {path}", {path: ["f", digest(new), len(new)]}, call, path)

    def truncate(self):
        path = self.some_file()
        if not path:
            return
        old = self.read_checked(path)
        size = self.random.randrange(len(old) + 10_000)
        new = old[:size].ljust(size, b"\0")
        self.run(f"truncate {path}", {path: ["f", digest(new), size]},
                 lambda: os.truncate(self.at(path), size), path)

    def unlink(self):
        paths = self.files() + sorted(p for p, e in self.tree.items() if e[0] == "l")
        if paths:
            path = self.random.choice(paths)
            self.run(f"unlink {path}", {path: None}, lambda: os.unlink(self.at(path)))

    def rename(self):
        path, to = self.some_file(), self.target_name()
        if path and path != to:
            self.run(f"rename {path} {to}", {path: None, to: self.tree[path]},
                     lambda: os.rename(self.at(path), self.at(to)))

    def rename_folder(self):
        folders = self.folders()[1:]
        if not folders:
            return
        folder, to = self.random.choice(folders), self.new_name()
        if to.startswith(folder + "/"):
            return
        below = {p: e for p, e in self.tree.items() if p == folder or p.startswith(folder + "/")}
        delta = {p: None for p in below}
        delta.update({to + p[len(folder):]: e for p, e in below.items()})
        self.run(f"renamedir {folder} {to}", delta, lambda: os.rename(self.at(folder), self.at(to)))

    def mkdir(self):
        path = self.new_name()
        if len(self.folders()) < 12:
            self.run(f"mkdir {path}", {path: ["d"]}, lambda: os.mkdir(self.at(path)))

    def rmdir(self):
        empty = [p for p in self.folders()[1:] if not any(o.startswith(p + "/") for o in self.tree)]
        if empty:
            path = self.random.choice(empty)
            self.run(f"rmdir {path}", {path: None}, lambda: os.rmdir(self.at(path)))

    def symlink(self):
        path, target = self.new_name(), f"to/{self.random.randrange(1000)}"
        self.run(f"symlink {path}", {path: ["l", target]}, lambda: os.symlink(target, self.at(path)))

    def step(self):
        crowded = len(self.files()) >= FILES_MAX
        weights = {self.write: 8, self.write_and_rename: 6, self.read: 4, self.patch: 4,
                   self.map_and_write: 2, self.truncate: 2, self.unlink: 30 if crowded else 4,
                   self.rename: 5, self.rename_folder: 2, self.mkdir: 3, self.rmdir: 2, self.symlink: 1}
        self.random.choices(list(weights), weights.values())[0]()

    def work(self):
        while not self.stopped:
            self.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("ledger")
    parser.add_argument("seed")
    parser.add_argument("tree")
    parser.add_argument("--kill-after")
    parser.add_argument("--pid", type=int)
    writer = Writer(parser.parse_args())

    def stop(*_):
        writer.stopped = True

    signal.signal(signal.SIGTERM, stop)
    try:
        writer.work()
    except OSError as e:
        if not is_of_the_kill(e, writer.base):
            writer.ledger.error(f"{e} (errno {errno.errorcode.get(e.errno)})")
            return 3
    except AssertionError as e:
        writer.ledger.error(str(e))
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
