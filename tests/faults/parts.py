"""An upload in parts is broken off, a copy too, and what the server damages."""

import hashlib
import os
import time

import harness
from harness import check, wait_for
from place import MIB, Place, digest


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


CASES = [upload_resumed, upload_of_changed_file, killed_around_parts, killed_around_copies, damaged_at_the_server]
