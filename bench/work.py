"""What the rows have programs do with a folder, and the clock that stands beside it."""

import concurrent.futures
import contextlib
import mmap
import os
import random
import signal
import subprocess
import time

import harness
from results import moved_bytes, peak_memory, processor_seconds

MIB = 1 << 20
SMALL = 16 * 1024
THREADS = 8


class Source:
    """A checkpoint's bytes, in the memory of the machine before anything is timed."""

    def __init__(self, path, size):
        self.path, self.size = path, size
        with open(path, "wb") as f:
            for _ in range(0, size, MIB):
                f.write(os.urandom(MIB))
        with open(path, "rb") as f:
            self.map = mmap.mmap(f.fileno(), size, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self.bytes = memoryview(self.map)

    def write_to(self, f, size=None):
        for offset in range(0, size or self.size, MIB):
            f.write(self.bytes[offset:offset + MIB])


def save(source, folder, rename=True):
    """As trainers do: write, fsync, rename."""
    path = os.path.join(folder, "model.pt")
    with open(path + ".tmp" if rename else path, "wb", buffering=0) as f:
        source.write_to(f)
        os.fsync(f.fileno())
    if rename:
        os.rename(path + ".tmp", path)


def save_zip(source, folder):
    """As torch.save() does: a stored zip, whose first header is patched when all else is written."""
    size = source.size * 7 // 8
    with open(os.path.join(folder, "model.zip"), "wb", buffering=0) as f:
        f.write(b"PK\3\4" + bytes(60))
        source.write_to(f, size)
        f.write(b"PK\1\2" + bytes(124))
        f.seek(14)
        f.write(b"\1\2\3\4" * 3)


def read_all(path, source):
    buffer = memoryview(bytearray(MIB))
    offset = 0
    with open(path, "rb", buffering=0) as f:
        while count := f.readinto(buffer):
            if buffer[:64] != source.bytes[offset:offset + 64]:
                raise harness.Failure(f"{path} is not what was written, at {offset}")
            offset += count
    if offset != source.size:
        raise harness.Failure(f"{path} has {offset} bytes, must have {source.size}")


def read_mapped(path, size):
    buffer = memoryview(bytearray(MIB))
    with open(path, "rb") as f, mmap.mmap(f.fileno(), size, prot=mmap.PROT_READ) as m:
        with memoryview(m) as view:
            for offset in range(0, size, MIB):
                part = view[offset:offset + MIB]
                buffer[:len(part)] = part
                part.release()


def read_first(path):
    with open(path, "rb", buffering=0) as f:
        f.read(4096)


def random_ranges(size):
    """A tenth of a file in pieces of 4 KiB to 1 MiB, the same for every system."""
    dice, ranges, left = random.Random(7), [], size // 10
    while left > 0:
        length = min(int(2 ** dice.uniform(12, 20)), left)
        ranges.append((dice.randrange(0, size - length + 1), length))
        left -= length
    return ranges


def read_ranges(path, ranges):
    fd = os.open(path, os.O_RDONLY)
    try:
        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            counts = pool.map(lambda r: len(os.pread(fd, r[1], r[0])), ranges)
            if sum(counts) != sum(length for _, length in ranges):
                raise harness.Failure(f"short reads of {path}")
    finally:
        os.close(fd)


def write_small(folder, count, size=SMALL):
    data = b"x" * size
    for i in range(count):
        fd = os.open(os.path.join(folder, f"f{i:06}"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(fd, data)
        os.close(fd)


def make_runs(folder, count, files):
    """Run folders with small files in them."""
    for i in range(count):
        where = os.path.join(folder, f"run-{i:06}")
        os.makedirs(where)
        for j in range(files):
            with open(os.path.join(where, f"file-{j}.json"), "w") as f:
                f.write("{}")


def list_names(folder, count):
    names = os.listdir(folder)
    if len(names) != count:
        raise harness.Failure(f"{len(names)} names are listed in {folder}, must be {count}")


def list_long(folder, count):
    done = subprocess.run(["ls", "-lR", folder], check=True, stdout=subprocess.PIPE, text=True)
    found = done.stdout.count(".json")
    if found != count:
        raise harness.Failure(f"{found} files are listed below {folder}, must be {count}")


def stat_all(paths, seconds):
    """Again and again for so long, at least once; how many there were."""
    end, count = time.monotonic() + seconds, 0
    while count == 0 or time.monotonic() < end:
        for path in paths:
            os.stat(path)
        count += len(paths)
    return count


@contextlib.contextmanager
def limit(seconds):
    """What hangs ends with a Failure."""
    def stop(*_):
        raise harness.Failure(f"not done after {seconds} s")
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Clock:
    """Time, and what the system's processes and the server used, since it was made."""

    def __init__(self, bench, system):
        self.results, self.system = bench.results, system
        self.server = bench.place.gateway.process.pid
        self.daemon_cpu, self.server_cpu = self._used()
        self.moved = moved_bytes(self.server)
        self.started = time.monotonic()

    def _used(self):
        return processor_seconds(self.system.pids()), processor_seconds([self.server])

    def seconds(self, row, scale=1):
        """Adds the time until now to a row."""
        value = (time.monotonic() - self.started) * scale
        self.results.add(row, self.system.name, value, self._used()[1] - self.server_cpu)

    def rate(self, row, count):
        """Adds how many a second."""
        self.results.add(row, self.system.name, count / (time.monotonic() - self.started))

    def processor(self, row):
        """Adds what the system's own processes used until now."""
        self.results.add(row, self.system.name, self._used()[0] - self.daemon_cpu,
                         self._used()[1] - self.server_cpu)

    def sent(self, row, asked):
        """Adds how much the server has sent, as a multiple of what was asked."""
        self.results.add(row, self.system.name, (moved_bytes(self.server)[1] - self.moved[1]) / asked)

    def received(self, row, given):
        self.results.add(row, self.system.name, (moved_bytes(self.server)[0] - self.moved[0]) / given)

    def memory(self):
        self.results.add_peak(self.system.name, peak_memory(self.system.pids()))
