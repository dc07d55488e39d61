"""The cache is too small for what is written, or its disk is full."""

import errno
import os
import threading
import time

from harness import Failure, check, wait_for
from place import MIB, Place, SmallDisk, content

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
        wait_for("the cache is within its limit", lambda: p.mount.status()["cache"]["used_bytes"] <= limit, 10)
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
        p.logs("over its limit")
        wait_for("the cache is within its limit", lambda: p.trouble() is None, 20)
        used = p.mount.status()["cache"]["used_bytes"]
        check(used <= limit, f"the cache uses {used} of {limit} bytes when nothing is dirty")
        check(p.read("big") == p.written["big"], "the file reads differently")
        p.write("after", 2 * MIB)
        p.finish()
        return f"peak {peak.bytes / limit:.2f} of the limit"


# ---- the cache's disk is full ---------------------------------------------------------------


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
            check(waited < 240, f"ENOSPC came after {waited:.0f} s only")
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
            if os.path.exists(p.path(failed)): # else there was no room to create it
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
                p.write("big", 160 * MIB, before_close=still_open)
                raise Failure("160 MiB went into a disk of 128 MiB while the file was open")
            except OSError as e:
                check(e.errno == errno.ENOSPC, f"big: {e}, must be ENOSPC")
            check(os.path.getsize(p.path("big")) == accepted[0], "close() changed the file")
            said = f"ENOSPC at {accepted[0] // MIB} MiB"
            p.logs("its disk is full")
            time.sleep(1)
            held_back(p, "big", 160 * MIB)
            p.write("big", 3 * MIB)
            p.mount.flush(60)
            wait_for("there is room again", lambda: p.trouble() is None, 20)
            p.write("after", 3 * MIB)
            p.finish()
            return said


def reads_as_written(place, key):
    try:
        return place.read(key) == place.written[key]
    except OSError as e:
        check(e.errno == errno.ENOSPC, f"{key}: {e}, must be ENOSPC")
        return False


def disk_filled_by_others(work, name, options):
    """Somebody else fills the cache's disk, and makes room again."""
    with SmallDisk(work, name, 128 * MIB) as disk:
        with Place(work, name, (*options, "store_timeout=5s", "list_timeout=0"), disk.cache) as p:
            p.write("before", 3 * MIB)
            p.mount.flush(60)
            p.write_elsewhere("absent", 20 * MIB)
            # Nothing can be evicted between a write that fails and its close, where that is guessed.
            p.mount.run("pin", p.path("before"))
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
            try:
                check(p.read("absent") == p.written["absent"], "absent: reads differently")
            except OSError as e:
                check(e.errno == errno.ENOSPC, f"a read that the disk has no room for: {e}, must be ENOSPC")
                wait_for("status and log tell why", lambda: "No space left" in p.log() and
                         "No space left" in (p.mount.status()["last_read_error"] or {}).get("text", ""), 10)
            wait_for("status tells of the disk", lambda: "full" in (p.trouble() or ""), 10)
            p.logs("disk is full")
            os.unlink(other)
            wait_for("status tells that it is over", lambda: p.trouble() is None, 10)
            if failed and os.path.exists(p.path(failed)):
                held_back(p, failed)
                os.unlink(p.path(failed))
            p.write("after", 3 * MIB)
            # That a download failed is remembered for a moment.
            wait_for("reads as written", lambda: all(reads_as_written(p, k) for k in ("before", "absent")), 10)
            p.finish()


def disk_full_then_ended(work, name, options):
    """A file that a full disk cut off can't be written any more once the mount ends: its daemon ends, too,
    after everything else is in the store, and the next mount has the file."""
    with SmallDisk(work, name, 64 * MIB) as disk:
        with Place(work, name, options, disk.cache) as p:
            # Room that an eviction makes between the failure and the close hides it from the daemon (docs/format.md):
            # this makes less than the daemon looks for.
            p.write("whole", 100_000)
            p.mount.flush(60)
            for end in ("terminated", "unmounted"):
                try:
                    p.write("cut", 80 * MIB)
                    check(False, "80 MiB went into a disk of 64 MiB")
                except OSError as e:
                    check(e.errno == errno.ENOSPC, f"{e}, must be ENOSPC")
                p.mount.process.terminate() if end == "terminated" else p.mount.detach()
                check(p.mount.wait_dead(60) != 0, "exit 0, though the store lacks a file")
                check("not in the store: write cut" in p.log(), "the log does not name what is left")
                check(p.stored().keys() == {"whole"}, f"stored: {sorted(p.stored())}")
                p.mount.detach()
                p.mount.start()
                check(os.getxattr(p.path("cut"), "user.runfs.state") == b"failed", "the next mount lost it")
                os.unlink(p.path("cut"))
                wait_for("room", lambda: os.statvfs(disk.folder).f_bavail * os.statvfs(disk.folder).f_frsize > 40 * MIB)
            p.finish()


def fill_up(folder):
    """Somebody takes the last block of the disk."""
    with open(os.path.join(folder, "other"), "ab", buffering=0) as f:
        for size in (MIB, 4096):
            try:
                while True:
                    f.write(b"x" * size)
            except OSError as e:
                check(e.errno == errno.ENOSPC, str(e))


def disk_full_then_killed(work, name, options):
    """Others take the last block of the disk, files are removed, and the daemon is killed: what it owes is
    listed, copied out, and published by the next mount, though there is no room still."""
    with SmallDisk(work, name, 64 * MIB) as disk:
        with Place(work, name, (*options, "store_timeout=5s"), disk.cache) as p:
            for i in range(20):
                p.write(f"gone-{i}", 1000)
            p.mount.flush(60)
            p.proxy.refuse()
            for i in range(4):
                p.write(f"owed-{i}", MIB)
            fill_up(disk.folder)
            for i in range(20):
                os.unlink(p.path(f"gone-{i}"))
                del p.written[f"gone-{i}"]
                fill_up(disk.folder)
            p.mount.kill()
            fill_up(disk.folder)
            done = p.mount.run("recover", p.cache, "--list", seconds=60)
            check(done.returncode == 0 and all(f"owed-{i}" in done.stdout for i in range(4)),
                  f"runfs recover --list: exit {done.returncode}: {done.stdout.strip()}")
            done = p.mount.run("recover", p.cache, "--export", work.path(f"exported-{name}"), seconds=60)
            check(done.returncode == 0, f"runfs recover --export: exit {done.returncode}: {done.stdout.strip()}")
            fill_up(disk.folder)
            p.proxy.accept()
            p.mount = p.new_mount()
            p.mount.start()
            p.mount.flush(120)
            p.all_stored()
            p.finish()


CASES = [small_cache_many_files, small_cache_one_file, disk_full_store_down, disk_full_store_up, disk_full_one_file,
         disk_full_then_ended, disk_full_then_killed, disk_filled_by_others]
