"""What must hold when the store or the cache's disk fails: nothing that was closed is lost, no
object is truncated, everybody who asks gets a clear error, and no call hangs that need not.

usage: faults.py [CASE]...

Each case runs as the mount is, and with passthrough=off as well where passthrough is on; those of
answers.py, where that makes no difference, run once. Several run at a time.
"""

import contextlib
import errno
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))

import answers
import disks
import harness
from harness import Failure, check, wait_for
from http_proxy import HttpProxy, storm
from place import MIB, Place, SmallDisk, content, digest

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


def says(text, *words):
    for word in words:
        check(word in text, f"it does not say {word!r}: {text.strip()}")


def stalled(mount):
    return mount.status()["stalled"]


def store_hangs(work, name, options):
    """A server that is stopped: status, metrics, the log and who waits tell of it; and that it is over."""
    with Place(work, name, (*options, "list_timeout=300s")) as p: # nobody asks while it is stopped
        p.write("precious", 100_000)
        p.mount.flush(60)
        check(stalled(p.mount) is None, f"status of an idle mount: {stalled(p.mount)}")
        work.gateway.process.send_signal(signal.SIGSTOP)
        try:
            p.write("owed", 100_000)
            wait_for("status tells that it stalls", lambda: stalled(p.mount))
            done = p.mount.run("flush", p.mount.mountpoint, "--timeout", "1", seconds=60)
            check(done.returncode == 3, f"runfs flush: exit {done.returncode} when its time is over")
            says(done.stdout, f"waiting for s3://bucket/{name}: no answer for", "; retried until ",
                 f"in the cache {p.cache}", "runfs status --files", ": owed")
            says(p.mount.run("status", p.mount.mountpoint, seconds=30).stdout, "stalled       changes: no answer for")
            done = p.mount.try_umount(1, 60)
            says(done.stdout, f"waiting for s3://bucket/{name}: no answer for", "stays mounted", ": owed")
            told = stalled(p.mount)
            check(told["what"] == "changes" and told["since_seconds"] >= 5, f"status: {told}")
            with open(p.path(".runfs/metrics")) as f:
                says(f.read(), "\nrunfs_store_stalled_seconds ")
            wait_for("the log tells that it began", lambda: "uploads and other changes: no answer for" in p.log())
        finally:
            work.gateway.process.send_signal(signal.SIGCONT)
        p.mount.flush(120)
        check(stalled(p.mount) is None, f"status after the stall: {stalled(p.mount)}")
        wait_for("the log tells that it is over", lambda: "the stall is over after" in p.log())
        p.finish()


def store_refuses(work, name, options):
    """A server that answers 503 to all changes, and writers that a full cache holds meanwhile."""
    with HttpProxy(work.gateway.port) as proxy:
        cache = work.path(f"cache-{name}")
        m = work.mount(name, ("cache_size=16777216", "passthrough=off", *options), name=f"mnt-{name}",
                       cache=cache, endpoint=proxy.endpoint).start() # what the kernel writes past us waits for nothing
        proxy.rule(answers.CHANGES, storm())
        for i in range(6):
            with open(os.path.join(m.mountpoint, f"f{i}"), "wb") as f:
                f.write(content(f"f{i}", 2 * MIB))
        wait_for("the store stalls", lambda: stalled(m), 60) # then who waits is told with it
        held = subprocess.Popen(["dd", "if=/dev/zero", "bs=1M", "count=8", f"of={m.mountpoint}/next"],
                                stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            done = m.run("flush", m.mountpoint, "--timeout", "12", seconds=60)
            says(done.stdout, f"waiting for s3://bucket/{name}: no success for", "SlowDown",
                 f"in the cache {cache}", "runfs status --files", " and ")
            wait_for("status counts who waits", lambda: m.status()["cache"]["waiting_writers"] == 1, 20)
            wait_for("the log tells of who waits", lambda: "1 writers wait, as it is full" in m.log_tail(20000), 20)
            says(m.log_tail(20000), "and the store stalls")
        finally:
            proxy.clear()
            held.wait(60)
        check(held.returncode == 0, "the writer got an error")
        m.umount(120)


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
        done = p.mount.try_umount(3, 60)
        check(done.returncode != 0, "runfs umount: exit 0 although nothing was published")
        missing = [f"owed-{i}" for i in range(5) if f"owed-{i}" not in done.stdout]
        check(not missing, f"runfs umount does not name {missing}: {done.stdout.strip()}")
        done = p.mount.run("flush", p.mount.mountpoint, "--timeout", "6", seconds=60)
        check(done.returncode == 7, f"runfs flush: exit {done.returncode} although nobody listens there")
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
        check("unsynced was changed but not synced" in p.log(), "the log does not tell of it")
        check(p.read("unsynced") == p.written["unsynced"], "unsynced: not the store's version")
        done = p.mount.try_umount(30, 60)
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


def ended_and_rebooted(work, name, options):
    """The store is away, the daemon is told to end, the machine boots again: what was closed and
    removed before is believed, though nobody synced it."""
    with Place(work, name, (*options, "drain_timeout=1s")) as p:
        p.write("changed", 100_000)
        p.write("removed", 100_000)
        p.mount.flush(60)
        p.proxy.refuse()
        p.write("changed", 200_000)
        os.unlink(p.path("removed"))
        del p.written["removed"]
        harness.end_process(p.mount.process, seconds=60)
        p.mount.wait_dead()
        with open(os.path.join(p.cache, "boot"), "r+") as f:
            f.write("00000000")
        p.proxy.accept()
        p.mount = p.new_mount()
        p.mount.start()
        check(p.read("changed") == p.written["changed"], "changed: not what was closed")
        check(not os.path.exists(p.path("removed")), "removed: it is back")
        p.finish()


def begin_half(p, name):
    """Makes a file anew and leaves it open; a child that inherited the descriptor closes its own."""
    fd = os.open(p.path(name), os.O_WRONLY | os.O_TRUNC)
    os.write(fd, b"h" * MIB)
    subprocess.run(["true"], check=True)
    os.write(fd, b"h" * MIB)
    return fd


def left_alone(fd):
    with contextlib.suppress(OSError): # its daemon is gone
        os.close(fd)


def half_files(work, name, options):
    """A whole version is not replaced by a half one: not after a kill, not by a flush, not at the end
    of the mount; but when somebody asks for it by name."""
    with Place(work, name, options) as p:
        p.write("whole", 8 * MIB)
        p.mount.flush(60)
        fd = begin_half(p, "whole")
        done = p.mount.run("flush", p.mount.mountpoint, "--timeout", "20", seconds=30)
        check(done.returncode != 0 and "whole is being written" in done.stdout, f"runfs flush: {done.stdout.strip()}")
        p.all_stored()
        p.mount.kill()
        left_alone(fd)
        p.mount = p.new_mount().start()
        check(p.read("whole") == p.written["whole"], "after a kill: not the whole version")
        check("whole was being written" in p.log(), "the log does not tell of it")
        fd = begin_half(p, "whole")
        harness.end_process(p.mount.process, seconds=60)
        check(p.mount.wait_dead() != 0, "the daemon ended with 0 although a file was half")
        left_alone(fd)
        p.all_stored()
        p.mount = p.new_mount().start()
        check(p.read("whole") == p.written["whole"], "after an end: not the whole version")
        listed = p.mount.run("status", "--files", p.mount.mountpoint, seconds=30).stdout
        check("2 kept" in listed, f"runfs status: {listed.strip()}")
        fd = begin_half(p, "whole")
        done = p.mount.run("flush", "--open", p.path("whole"), "--timeout", "20", seconds=30)
        check(p.stored()["whole"] == digest(b"h" * 2 * MIB), f"runfs flush --open: {done.stdout.strip()}")
        os.close(fd)
        p.mount.kill()


# ---- an upload in parts is broken off ------------------------------------------------------


def sessions(p, name):
    """The ids of a file's unfinished uploads at the server, each with how many parts it has. As
    versitygw keeps them: a folder for each, in one for the key."""
    key = hashlib.sha256(f"{p.prefix}/{name}".encode()).hexdigest()
    top = os.path.join(p.work.gateway.folder, "data", p.work.gateway.bucket, ".sgwtmp", "multipart", key)
    return {os.path.basename(where): sum(part.isdigit() for part in files)
            for where, _, files in os.walk(top) if where != top}


def killed_in_parts(p, name, size, parts):
    """Writes a file over a slow line and kills the daemon when some parts are there; how many the
    server has then."""
    p.proxy.rate(16 * MIB)
    p.write(name, size)
    wait_for(f"{parts} parts at the server", lambda: max(sessions(p, name).values(), default=0) >= parts, 60)
    p.mount.kill()
    p.proxy.reset()
    p.proxy.rate(0)
    p.work.gateway.kill() # what had arrived whole could still become a part
    found = sessions(p, name)
    p.work.gateway.start()
    check(len(found) == 1, f"{len(found)} unfinished uploads at the server, expected one")
    return next(iter(found.values()))


def upload_resumed(work, name, options):
    """Killed in the middle of a large upload: the next daemon sends what is missing, and only that."""
    size, part = 64 * MIB, 8 * MIB
    with Place(work, name, (*options, "part_size=8MiB", "upload_jobs=2")) as p:
        there = killed_in_parts(p, "large", size, 3)
        check(there < size // part, "the upload was over before the daemon was killed")
        before = p.proxy.stats()["up"]
        p.mount = p.new_mount()
        p.mount.start()
        p.mount.flush(60)
        sent = p.proxy.stats()["up"] - before
        left = sessions(p, "large")
        check("large" in p.stored() and not left, f"unfinished uploads are left: {left}")
        p.all_stored()
        missing = size - there * part
        check(missing <= sent < missing + part // 2,
              f"{there} of {size // part} parts were there, and {sent / MIB:.1f} MiB were sent again")
        p.finish()
        return f"{there} of {size // part} parts were there, {sent / MIB:.1f} MiB sent"


def upload_of_changed_file(work, name, options):
    """Killed in the middle of an upload, and the file is another one when it can go on: the old
    parts count for nothing, and are not left behind."""
    with Place(work, name, (*options, "part_size=8MiB", "upload_jobs=2")) as p:
        killed_in_parts(p, "changed", 48 * MIB, 2)
        p.mount = p.new_mount()
        p.proxy.rate(4 * MIB) # it is changed before it has gone up
        p.mount.start()
        with open(p.path("changed"), "r+b") as f:
            f.seek(5)
            f.write(b"!")
        check("changed" not in p.stored(), "it had gone up before it was changed: the case proves nothing")
        with open(p.path("changed"), "rb") as f:
            p.written["changed"] = digest(f.read())
        p.proxy.rate(0)
        p.mount.flush(60)
        left = sessions(p, "changed")
        check(not left, f"unfinished uploads are left: {left}")
        p.all_stored()
        # Removed while it was broken off.
        killed_in_parts(p, "removed", 48 * MIB, 2)
        os.unlink(os.path.join(p.cache, "mirror", "removed"))
        del p.written["removed"]
        p.mount = p.new_mount()
        p.mount.start()
        p.mount.flush(60)
        left = sessions(p, "removed")
        check(not left, f"unfinished uploads are left: {left}")
        p.finish()


def has_crash_points():
    with open(harness.runfs_binary(), "rb") as f:
        return b"RUNFS_CRASH_AT" in f.read()


def killed_around_parts(work, name, options):
    """Killed when the server has begun the upload, before its id was noted; and when it was completed,
    before that was noted. Nothing is left, and what is complete is not sent again."""
    if not has_crash_points():
        return "not in a release build: it has no crash points"
    size = 24 * MIB
    with Place(work, name, (*options, "part_size=8MiB")) as p:
        sent = {}
        for step in ("session-begun", "session-committed"):
            p.mount.umount(30)
            p.mount = p.new_mount()
            p.mount.start(extra_env={"RUNFS_CRASH_AT": step})
            p.write(step, size)
            p.mount.wait_dead(30)
            p.mount.kill()
            left = sessions(p, step)
            check(len(left) == (step == "session-begun"), f"at {step}: unfinished uploads {left}")
            before = p.proxy.stats()["up"]
            p.mount = p.new_mount()
            p.mount.start()
            p.mount.flush(60)
            left = sessions(p, step)
            check(not left, f"after {step}: unfinished uploads are left: {left}")
            sent[step] = p.proxy.stats()["up"] - before
        check(sent["session-begun"] >= size, f"sent: {sent}")
        check(sent["session-committed"] < MIB, f"what was complete is sent again: {sent}")
        p.finish()
    return None


def killed_around_copies(work, name, options):
    """New attributes are a copy in parts at the server: killed within one, the next mount ends its
    session and copies once more."""
    if not has_crash_points():
        return "not in a release build: it has no crash points"
    with Place(work, name, options) as p:
        steps = {"copy-session-begun": 1, "copy-session-recorded": 1, "copy-session-ended": 0}
        for step, n in steps.items():
            p.write(step, MIB)
            p.mount.umount(30)
            p.mount = p.new_mount()
            p.mount.start(extra_env={"RUNFS_CRASH_AT": step})
            os.chmod(p.path(step), 0o640)
            p.mount.wait_dead(30)
            p.mount.kill()
            left = sessions(p, step)
            check(len(left) == n, f"at {step}: unfinished uploads {left}")
            p.mount = p.new_mount()
            p.mount.start()
            p.mount.flush(60)
            left = sessions(p, step)
            check(not left, f"after {step}: unfinished uploads are left: {left}")
        p.mount.umount(30)
        p.mount = p.new_mount(work.path(f"cold-{name}"))
        p.mount.start()
        for step in steps:
            mode = os.stat(p.path(step)).st_mode & 0o7777
            check(mode == 0o640, f"{step}: mode {mode:o} on another node")
        p.finish()
    return None


def damaged_at_the_server(work, name, options):
    """Bytes of a stored object change: what arrives of it does not count as the file, and says so."""
    with Place(work, name, (*options, "part_size=8MiB")) as p:
        p.write("large", 40 * MIB)
        p.mount.umount(60)
        stored = work.gateway.objects(name)["large"]
        with open(stored, "r+b") as f:
            f.seek(20 * MIB)
            old = f.read(1)
            f.seek(20 * MIB)
            f.write(bytes([old[0] ^ 1]))
        p.mount = p.new_mount(work.path(f"cold-{name}"))
        p.mount.start()
        done = p.mount.run("fetch", p.path("large"), seconds=60)
        check(done.returncode != 0, f"runfs fetch: exit 0 although a byte is wrong: {done.stdout}")
        check("checksum" in p.log(), "the log does not tell of the checksum")
        with open(stored, "r+b") as f:
            f.seek(20 * MIB)
            f.write(old)
        time.sleep(1.1)
        done = p.mount.run("fetch", p.path("large"), seconds=60)
        check(done.returncode == 0, f"runfs fetch: {done.stdout.strip()}")
        check(p.read("large") == p.written["large"], "large: reads differently")
        p.mount.umount(30)


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
            p.write("whole", MIB)
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
            p.finish()


CASES = [server_stopped, server_stuck, store_hangs, store_refuses, connections_cut, umount_without_server, machine_rebooted,
         ended_and_rebooted, half_files,
         upload_resumed, upload_of_changed_file, killed_around_parts, killed_around_copies,
         damaged_at_the_server, small_cache_many_files, small_cache_one_file, disk_full_store_down, disk_full_store_up,
         disk_full_one_file, disk_full_then_ended, disk_filled_by_others]
SLOW = [disk_full_store_down, server_stopped, small_cache_one_file, small_cache_many_files]
LANES = 5 # cases at a time: most of them wait most of the time


def passthrough_works(work):
    m = work.mount("probe", name="probe", cache="cache-probe").start()
    found = m.status()["frontend"]["passthrough"]
    m.umount(30)
    return found


def jobs_of(chosen, passthrough):
    """[(name, function of a workplace)], of the cases or names chosen or of all: the slowest first, so that no lane
    is left alone with one."""
    modes = {"": (), "-normal": ("passthrough=off",)} if passthrough else {"": ()}
    jobs = []
    for case in SLOW + [c for c in CASES + disks.CASES if c not in SLOW]:
        for suffix, options in modes.items():
            name = case.__name__.replace("_", "-") + suffix
            if not chosen or {case.__name__, name} & chosen:
                jobs.append((name, lambda work, name=name, case=case, options=options: case(work, name, options)))
    for name, case in answers.CASES.items():
        if not chosen or name in chosen:
            jobs.append((name, lambda work, name=name, case=case: case(work, name, answers.plant(work))))
    return jobs


class Lane(threading.Thread):
    """Runs one case after the other at a server of its own."""

    def __init__(self, work, jobs, tally):
        super().__init__(daemon=True)
        self.work, self.jobs, self.tally, self.mistake = work, jobs, tally, None

    def take(self):
        try:
            return self.jobs.pop(0) # other lanes take from it as well
        except IndexError:
            return None

    def run(self):
        try:
            while job := self.take():
                name, case = job
                self.tally.run(name, case, self.work)
                if self.work.gateway.process is None:
                    self.work.gateway.start()
                for folder in (f"cache-{name}", f"cold-{name}"):
                    shutil.rmtree(self.work.path(folder), ignore_errors=True)
        except Exception as e:
            self.mistake = e
            raise


def main():
    chosen = set(sys.argv[1:])
    known = {c.__name__ for c in CASES + disks.CASES} | {name for name, _ in jobs_of(set(), True)}
    if not known.issuperset(chosen):
        sys.exit(f"cases: {' '.join(sorted(known))}")
    tally = harness.Tally("faults")
    with contextlib.ExitStack() as stack:
        works = [stack.enter_context(harness.Workplace("faults")) for _ in range(LANES)]
        for work in works:
            work.start_gateway()
        jobs = jobs_of(chosen, passthrough_works(works[0]))
        lanes = [Lane(work, jobs, tally) for work in works]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            while lane.is_alive(): # so that a signal is heard
                lane.join(1)
    code = tally.close()
    return 1 if any(lane.mistake for lane in lanes) else code


if __name__ == "__main__":
    sys.exit(main())
