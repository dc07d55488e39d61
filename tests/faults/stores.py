"""The store fails, or the machine: a server that stops, hangs, refuses and cuts; a kill, another boot,
files that are half written then."""

import contextlib
import os
import random
import signal
import subprocess
import time

import answers
import harness
from harness import check, wait_for
from http_proxy import HttpProxy, storm
from place import MIB, Place, content, digest


def server_stopped(work, name, options):
    """The server dies during uploads and comes back with another process."""
    with Place(work, name, (*options, "store_timeout=25s")) as p:
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
        wait_for("an error in status", lambda: p.mount.status()["last_error"], 120)
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


CASES = [server_stopped, server_stuck, store_hangs, store_refuses, connections_cut, umount_without_server, machine_rebooted,
         ended_and_rebooted, half_files]
