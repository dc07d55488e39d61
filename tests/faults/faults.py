"""What must hold when the store or the cache's disk fails: nothing that was closed is lost, no
object is truncated, everybody who asks gets a clear error, and no call hangs that need not.

usage: faults.py [CASE]...

Each case runs as the mount is, and with passthrough=off as well where passthrough is on.
"""

import errno
import hashlib
import os
import random
import shutil
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))

import harness
from harness import Failure, check, wait_for
from proxy import Proxy

MIB = 1 << 20
PROMPT = 3.0  # seconds: what needs no store answers within


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

    def trouble(self):
        """What status says of the cache's space; None when all is well."""
        return self.mount.status()["cache"]["trouble"]

    def read(self, name):
        with open(self.path(name), "rb") as f:
            return digest(f.read())

    def stored(self):
        found = {}
        for key, path in self.work.gateway.objects(self.prefix).items():
            with open(path, "rb") as f:
                found[key] = digest(f.read())
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


# ---- the store fails ------------------------------------------------------------------------


def server_stopped(work, name, options):
    """The server dies during uploads and comes back with another process."""
    with Place(work, name, (*options, "store_timeout=10s")) as p:
        p.proxy.rate(6 * MIB)
        for i in range(20):
            p.write(f"before-{i}", 2 * MIB)
        wait_for("the first upload", p.stored, 60)
        work.gateway.kill()
        p.nothing_torn()
        for i in range(10):
            p.prompt("a new file", lambda i=i: p.write(f"during-{i}", 300_000 + i))
        p.prompt("a file just written", lambda: p.read("during-3"))
        check(harness.owed(p.mount.status()) > 0, "status owes nothing although the server is gone")
        done = p.mount.run("flush", p.mount.mountpoint, "--timeout", "3", seconds=30)
        check(done.returncode != 0, "runfs flush: exit 0 although the server is gone")
        wait_for("an error in status", lambda: p.mount.status()["last_error"], 60)
        work.gateway.start()
        p.proxy.rate(0)
        p.mount.flush(120)
        p.all_stored()
        p.finish()


def server_stuck(work, name, options):
    """The server keeps its connections and answers nothing."""
    with Place(work, name, options) as p:
        p.write("complete", 100_000)
        p.mount.flush(60)
        p.proxy.rate(4 * MIB)
        for i in range(10):
            p.write(f"f{i}", 2 * MIB)
        p.proxy.freeze()
        p.prompt("ls", lambda: os.listdir(p.mount.mountpoint))
        p.prompt("a complete file", lambda: p.read("complete"))
        for i in range(5):
            p.prompt("a new file", lambda i=i: p.write(f"g{i}", 50_000))
        p.prompt("rename", lambda: os.rename(p.path("g0"), p.path("h0")))
        p.written["h0"] = p.written.pop("g0")
        p.prompt("unlink", lambda: os.unlink(p.path("g1")))
        del p.written["g1"]
        p.prompt("status", p.mount.status)
        p.nothing_torn()
        time.sleep(2)
        p.proxy.thaw()
        p.proxy.rate(0)
        p.finish()


def connections_cut(work, name, options):
    """Connections end in the middle of uploads and of downloads, again and again."""
    with Place(work, name, options) as p:
        rng = random.Random(1)
        p.proxy.rate(40 * MIB)
        for i in range(6):
            p.proxy.cut(rng.randrange(1, 3 * MIB), 2, "up")
            p.proxy.cut(rng.randrange(1, 200), 1, "down")
            p.write(f"f{i}", rng.randrange(1, 20 * MIB))
            p.nothing_torn()
        for _ in range(10):
            time.sleep(0.1)
            p.proxy.reset()
            p.nothing_torn()
        p.proxy.rate(0)
        p.mount.umount(120)
        p.all_stored()
        p.mount = p.new_mount(work.path(f"cold-{name}"))
        p.mount.start()
        p.proxy.reset()
        for key, value in p.written.items():
            p.proxy.cut(rng.randrange(1, 5 * MIB), 3, "down")
            p.proxy.reset()
            check(p.read(key) == value, f"{key}: reads differently over a line that is cut")
        check(p.proxy.stats()["cut"] > 0, "no connection was cut: the case proves nothing")
        p.mount.umount(60)


def umount_without_server(work, name, options):
    """umount can't drain: it says so and what it owes, and a later mount publishes it."""
    with Place(work, name, (*options, "store_timeout=5s")) as p:
        os.listdir(p.mount.mountpoint)
        p.proxy.refuse()
        for i in range(5):
            p.write(f"owed-{i}", 100_000)
        done = p.mount.run("umount", p.mount.mountpoint, "--timeout", "3", seconds=60)
        check(done.returncode != 0, "runfs umount: exit 0 although nothing was published")
        missing = [f"owed-{i}" for i in range(5) if f"owed-{i}" not in done.stdout]
        check(not missing, f"runfs umount does not name {missing}: {done.stdout.strip()}")
        p.mount.kill()
        listed = p.mount.run("recover", p.cache, "--list", seconds=60).stdout
        check(all(f"owed-{i}" in listed for i in range(5)), f"runfs recover --list: {listed.strip()}")
        p.proxy.accept()
        p.mount = p.new_mount()
        p.mount.start()
        p.finish()


def machine_rebooted(work, name, options):
    """Killed, and another boot id: what was synced is published; what was not is kept, replaces
    nothing, and is named by the log, status and recover."""
    with Place(work, name, options) as p:
        p.write("unsynced", 100_000)
        p.write("synced", 100_000)
        p.mount.flush(60)
        p.proxy.refuse()
        with open(p.path("unsynced"), "wb") as f:
            f.write(b"changed")
        with open(p.path("synced"), "wb") as f:
            f.write(b"changed")
            f.flush()
            os.fsync(f.fileno())
        p.written["synced"] = digest(b"changed")
        p.mount.kill()
        with open(os.path.join(p.cache, "boot"), "w") as f:
            f.write("00000000-0000-0000-0000-000000000000\n")
        p.proxy.accept()
        p.mount = p.new_mount()
        p.mount.start()
        status = p.mount.run("status", "--files", p.mount.mountpoint, seconds=30).stdout
        check("1 kept" in status, f"runfs status: {status.strip()}")
        check(any("kept" in line and "unsynced" in line for line in status.splitlines()),
              f"runfs status --files does not name what is kept: {status.strip()}")
        check("unsynced was changed but not synced" in p.mount.log_tail(), "the log does not tell of it")
        check(p.read("unsynced") == p.written["unsynced"], "unsynced: not the store's version")
        done = p.mount.run("umount", p.mount.mountpoint, "--timeout", "30", seconds=60)
        check(done.returncode != 0 and "unsynced" in done.stdout,
              f"runfs umount: exit {done.returncode} although something is kept: {done.stdout.strip()}")
        p.mount.wait_dead()
        p.all_stored()
        listed = p.mount.run("recover", p.cache, "--list", seconds=60).stdout
        check("unsynced" in listed, f"runfs recover --list: {listed.strip()}")
        exported = work.path(f"exported-{name}")
        p.mount.run("recover", p.cache, "--export", exported, seconds=60)
        with open(os.path.join(exported, "unsynced"), "rb") as f:
            check(f.read() == b"changed", "runfs recover --export: not what was written")


# ---- the cache is too small -----------------------------------------------------------------


class Peak:
    """The most that a folder takes, in blocks, while the case runs."""

    def __init__(self, folder):
        self.folder, self.bytes, self.ended = folder, 0, False
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.ended = True
        self.thread.join()

    def watch(self):
        while not self.ended:
            total = 0
            for where, _, files in os.walk(self.folder):
                for name in files:
                    try:
                        total += os.lstat(os.path.join(where, name)).st_blocks * 512
                    except OSError:
                        pass
            self.bytes = max(self.bytes, total)
            time.sleep(0.05)


def small_cache_many_files(work, name, options):
    """Three times the cache's limit as many files: writers wait, the limit holds."""
    limit = 64 * MIB
    with Place(work, name, (*options, f"cache_size={limit}")) as p:
        p.proxy.rate(60 * MIB)
        with Peak(p.cache) as peak:
            for i in range(48):
                p.write(f"f{i:02}", 4 * MIB)
                p.nothing_torn() if i % 16 == 15 else None
            p.mount.flush(120)
        for key in ("f00", "f47"):
            check(p.read(key) == p.written[key], f"{key}: reads differently")
        used = p.mount.status()["cache"]["used_bytes"]
        check(used <= limit, f"the cache uses {used} of {limit} bytes when nothing is dirty")
        check(peak.bytes <= limit * 1.25, f"the cache took {peak.bytes} of {limit} bytes")
        opens = p.mount.status()["frontend"]
        if opens["passthrough"]:
            check(opens["opens_passthrough"] > 0 and opens["opens_normal"] > 0,
                  f"opens are passthrough while there is room, normal when there is not: {opens}")
        p.finish()
        return f"peak {peak.bytes / limit:.2f} of the limit"


def small_cache_one_file(work, name, options):
    """Three times the cache's limit as one file: the limit gives way, and says so, until the file
    is in the store; nobody sees a part of it there."""
    limit = 64 * MIB

    with Place(work, name, (*options, f"cache_size={limit}")) as p:
        def still_open(_):
            wait_for("status tells of the limit", lambda: "over its limit" in (p.trouble() or ""), 10)
            check("big" not in p.stored(), "the store shows a file that is still open")

        p.proxy.rate(80 * MIB)
        with Peak(p.cache) as peak:
            p.write("small", 1000)
            p.write("big", 3 * limit, before_close=still_open)
            p.nothing_torn()
            p.mount.flush(120)
        check("over its limit" in p.mount.log_tail(), "the log does not tell of the limit")
        wait_for("the cache is within its limit", lambda: p.trouble() is None, 20)
        used = p.mount.status()["cache"]["used_bytes"]
        check(used <= limit, f"the cache uses {used} of {limit} bytes when nothing is dirty")
        check(p.read("big") == p.written["big"], "the file reads differently")
        p.write("after", 2 * MIB)
        p.finish()
        return f"peak {peak.bytes / limit:.2f} of the limit"


# ---- the cache's disk is full ---------------------------------------------------------------


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


def fill(p, size, count):
    """Writes files until one fails; the name of that one, or None. What a file had when its write
    failed is its content, as on any disk."""
    for i in range(count):
        name = f"f{i:03}"
        try:
            p.write(name, size)
        except OSError as e:
            check(e.errno == errno.ENOSPC, f"{name}: {e}, must be ENOSPC")
            return name
    return None


def held_back(p, name, size=4 * MIB):
    """The file whose write failed: what it holds is a beginning of what was meant, and the store
    never gets that. flush and status say so."""
    if not os.path.exists(p.path(name)):
        return
    with open(p.path(name), "rb") as f:
        data = f.read()
    check(content(name, size).startswith(data), f"{name} holds what nobody wrote")
    state = os.getxattr(p.path(name), "user.runfs.state")
    check(state == b"failed", f"{name}: its state is {state.decode()} after a write that failed")
    done = p.mount.run("flush", p.path(name), "--timeout", "30", seconds=60)
    check(done.returncode != 0 and "no room" in done.stdout,
          f"runfs flush of a file that is cut off: exit {done.returncode}: {done.stdout.strip()}")
    check(name not in p.stored(), f"the store shows {name}, cut off")


def disk_full_store_down(work, name, options):
    """The disk fills while the store is away: ENOSPC, and nothing that was closed is lost."""
    with SmallDisk(work, name, 128 * MIB) as disk:
        with Place(work, name, (*options, "store_timeout=5s"), disk.cache) as p:
            p.write("first", 1000)
            p.mount.flush(60)
            p.proxy.refuse()
            started = time.monotonic()
            failed = fill(p, 4 * MIB, 60)
            check(failed, "240 MiB went into a disk of 128 MiB")
            waited = time.monotonic() - started
            check(waited < 90, f"ENOSPC came after {waited:.0f} s only")
            for key in p.written.keys() - {"first"}:
                check(p.read(key) == p.written[key], f"{key}: reads differently while the disk is full")
            p.prompt("ls", lambda: os.listdir(p.mount.mountpoint))
            p.prompt("status", p.mount.status)
            check("ENOSPC" in (p.trouble() or ""), f"status says of the space: {p.trouble()}")
            p.mount.kill()
            p.proxy.accept()
            p.mount = p.new_mount()
            p.mount.start()
            held_back(p, failed)
            for key in p.written:
                check(p.read(key) == p.written[key], f"{key}: reads differently after a kill on the full disk")
            os.unlink(p.path(failed))
            p.mount.flush(120)
            p.all_stored()
            p.write("afterwards", 8 * MIB)
            p.finish()
            return f"{len(p.written)} files, ENOSPC after {waited:.0f} s"


def disk_full_store_up(work, name, options):
    """Three times the disk as many files while the store takes them: no error at all."""
    with SmallDisk(work, name, 128 * MIB) as disk:
        with Place(work, name, options, disk.cache) as p:
            p.proxy.rate(60 * MIB)
            failed = fill(p, 4 * MIB, 96)
            check(failed is None, f"{failed}: ENOSPC although the store took the uploads")
            p.mount.flush(120)
            p.all_stored()
            p.finish()


def disk_full_one_file(work, name, options):
    """One file larger than the disk: it goes through, or it ends with ENOSPC and stays whole."""
    with SmallDisk(work, name, 128 * MIB) as disk:
        with Place(work, name, (*options, "store_timeout=5s"), disk.cache) as p:
            p.write("small", 1000)
            p.write("gone", 1000)
            p.mount.flush(60)
            accepted = []

            def still_open(size):
                accepted.append(size)
                check(os.path.getsize(p.path("big")) == size, "a write that was accepted is not in the file")
                check("big" not in p.stored(), "the store shows a file that is still open")
                wait_for("status tells of the disk", lambda: "ENOSPC" in (p.trouble() or ""), 10)
                free = os.statvfs(disk.folder)
                if "passthrough=off" in options:
                    check(free.f_bavail * free.f_frsize > MIB, "the reserve of the disk is used up")
                check(p.read("small") == p.written["small"], "small: reads differently on a full disk")
                p.prompt("ls", lambda: os.listdir(p.mount.mountpoint))
                p.prompt("unlink", lambda: os.unlink(p.path("gone")))
                del p.written["gone"]

            try:
                p.write("big", 400 * MIB, before_close=still_open)
                raise Failure("400 MiB went into a disk of 128 MiB while the file was open")
            except OSError as e:
                check(e.errno == errno.ENOSPC, f"big: {e}, must be ENOSPC")
            check(os.path.getsize(p.path("big")) == accepted[0], "close() changed the file")
            said = f"ENOSPC at {accepted[0] // MIB} MiB"
            check("its disk is full" in p.mount.log_tail(), "the log does not tell of the disk")
            time.sleep(1)
            held_back(p, "big", 400 * MIB)
            p.write("big", 3 * MIB)
            p.mount.flush(60)
            wait_for("there is room again", lambda: p.trouble() is None, 20)
            p.write("after", 3 * MIB)
            p.finish()
            return said


def disk_filled_by_others(work, name, options):
    """Somebody else fills the cache's disk, and makes room again."""
    with SmallDisk(work, name, 128 * MIB) as disk:
        with Place(work, name, (*options, "store_timeout=5s"), disk.cache) as p:
            p.write("before", 3 * MIB)
            p.mount.flush(60)
            other = os.path.join(disk.folder, "other")
            with open(other, "wb", buffering=0) as f:
                try:
                    while True:
                        f.write(b"x" * MIB)
                except OSError as e:
                    check(e.errno == errno.ENOSPC, str(e))
            p.prompt("ls", lambda: os.listdir(p.mount.mountpoint))
            failed = None
            try:
                p.write("f000", 4 * MIB)
            except OSError as e:
                check(e.errno == errno.ENOSPC, f"a write on a full disk: {e}, must be ENOSPC")
                failed = "f000"
            os.unlink(other)
            if failed:
                held_back(p, failed)
                os.unlink(p.path(failed))
            p.write("after", 3 * MIB)
            check(p.read("before") == p.written["before"], "before: reads differently")
            p.finish()


CASES = [server_stopped, server_stuck, connections_cut, umount_without_server, machine_rebooted,
         small_cache_many_files, small_cache_one_file, disk_full_store_down, disk_full_store_up,
         disk_full_one_file, disk_filled_by_others]


def passthrough_works(work):
    m = work.mount("probe", name="probe", cache="cache-probe").start()
    found = m.status()["frontend"]["passthrough"]
    m.umount(30)
    return found


def main():
    chosen = [c for c in CASES if c.__name__ in sys.argv[1:]] if sys.argv[1:] else CASES
    if len(chosen) < len(sys.argv[1:]):
        sys.exit(f"cases: {' '.join(c.__name__ for c in CASES)}")
    tally = harness.Tally("faults")
    with harness.Workplace("faults") as work:
        work.start_gateway()
        modes = {"": ()}
        if passthrough_works(work):
            modes = {"": (), "-normal": ("passthrough=off",)}
        for case in chosen:
            for suffix, options in modes.items():
                name = case.__name__.replace("_", "-") + suffix
                tally.run(name, case, work, name, options)
                if work.gateway.process is None:
                    work.gateway.start()
                for folder in (f"cache-{name}", f"cold-{name}"):
                    shutil.rmtree(work.path(folder), ignore_errors=True)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
