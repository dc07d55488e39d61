"""A large file that a program writes all the time: what it was when it was looked at reaches the store,
for fsync() with durability=store and for a flush, though the writer never pauses; in passthrough it
writes past the daemon. Each case gets a Place to mount, whose store it looks into by itself."""

import os
import threading
import time

from harness import check

SIZE = 20 << 20 # more than is copied into memory


class Writer:
    """Appends lines to the file until it is ended."""

    def __init__(self, path):
        self.path = path
        self.file = open(path, "ab", buffering=0)
        self.file.write(os.urandom(SIZE))
        self.ended = False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        line = 0
        while not self.ended:
            self.file.write(b"line %d of a log that nobody closes\n" % line)
            line += 1
            time.sleep(0.0005)

    def end(self):
        self.ended = True
        self.thread.join()
        self.file.close()


def check_prefix(place, name, writer, least):
    """The store has the file's beginning, as far as it was when it was asked for at least."""
    stored = place.read_stored(name)
    check(len(stored) >= least, f"the store has {len(stored)} bytes of {least}")
    with open(writer.path, "rb") as f:
        check(f.read(len(stored)) == stored, "the store has something that the file never was")


def fsync_beside_the_writer(place):
    mount = place.mount(options=["durability=store"])
    writer = Writer(f"{mount.mountpoint}/f.bin")
    try:
        for _ in range(2):
            least = os.fstat(writer.file.fileno()).st_size
            began = time.monotonic()
            os.fsync(writer.file.fileno())
            check(time.monotonic() - began < 30, "fsync() waited for what came after it")
            check_prefix(place, "f.bin", writer, least)
    finally:
        writer.end()
    mount.umount()


def flush_beside_the_writer(place):
    mount = place.mount()
    writer = Writer(f"{mount.mountpoint}/f.bin")
    try:
        mount.flush(seconds=60)
        check_prefix(place, "f.bin", writer, SIZE)
    finally:
        writer.end()
    size = os.path.getsize(writer.path)
    mount.umount()
    check(len(place.read_stored("f.bin")) == size, "the store has all of it after umount")


CASES = [fsync_beside_the_writer, flush_beside_the_writer]
