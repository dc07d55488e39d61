"""The cache's disk fails: bad sectors, lost writes, a disk that dies, a filesystem that turns
read-only, a cache directory that is removed, a damaged journal, a machine that went down.

The disk is a real ext4 on a loop device whose sectors go bad on demand (flaky_disk.c).
"""

import errno
import glob
import os
import shutil
import subprocess
import time

from harness import check, wait_for
from place import MIB, FlakyDisk, Place, content, digest, drop_caches

HURT = {errno.EIO, errno.EROFS, errno.ENOSPC, errno.ENOENT, errno.ESTALE}


def mirror(p, name):
    return os.path.join(p.cache, "mirror", name)


def fails(what, call, *arguments):
    """The errno of a call that must fail, one that a failing disk explains."""
    try:
        call(*arguments)
    except OSError as e:
        check(e.errno in HURT, f"{what}: {e}: no answer for a disk that fails")
        return e.errno
    return 0


def flush_fails(p, *needles, name=""):
    done = p.mount.run("flush", p.path(name), "--timeout", "3", seconds=30)
    check(done.returncode != 0 and all(n in done.stdout for n in needles),
          f"runfs flush: exit {done.returncode}, without {needles}: {done.stdout.strip()}")


def told(p, cause, *where):
    """Status and log name the cause; `where` are fields of the status."""
    def everywhere():
        status = p.mount.status()
        texts = [(status[w] or {}).get("text", "") for w in where]
        return all(cause in t for t in texts) and cause in p.log()
    wait_for(f"status and log tell of \"{cause}\"", everywhere, 15, 0.2)


def synced(p, name, size):
    p.write(name, size)
    fd = os.open(p.path(name), os.O_RDWR)
    os.fsync(fd)
    os.close(fd)


def bad_sectors(work, name, options):
    """What must go up can't be read, and what is wanted from the store can't be kept."""
    with FlakyDisk(work, name, 128 * MIB) as disk, Place(work, name, (*options, "store_timeout=5s"), disk.cache) as p:
        p.write("fetched", 3 * MIB)
        p.mount.flush(60)
        p.proxy.refuse()
        synced(p, "unread", 5 * MIB)
        p.write("well", MIB)
        disk.spoil("read", mirror(p, "unread"))
        drop_caches(p.cache)
        check(fails("read", p.read, "unread") == errno.EIO, "a bad sector reads as what?")
        p.proxy.accept()
        wait_for("the others go up", lambda: "well" in p.stored(), 30)
        told(p, "can't read the cache", "last_error")
        flush_fails(p, "unread")
        p.nothing_torn()
        check("unread" not in p.stored(), "the store shows what could not be read")
        check(disk.failed() > 0, "no bad sector was met: the case proves nothing")
        disk.heal()
        p.mount.flush(60)
        p.finish()


def lost_writes(work, name, options):
    """The disk takes writes and loses them: what it has then is neither the old content nor the new."""
    with FlakyDisk(work, name, 128 * MIB) as disk, Place(work, name, (*options, "store_timeout=5s"), disk.cache) as p:
        for key in ("quiet", "asked"):
            synced(p, key, 4 * MIB)
        p.mount.flush(60)
        before = dict(p.written)
        p.proxy.refuse()
        for key in ("quiet", "asked"):
            disk.spoil("write", mirror(p, key))
        fd = os.open(p.path("asked"), os.O_WRONLY)
        os.pwrite(fd, content("newer", 4 * MIB), 0)
        check(fails("fsync", os.fsync, fd) == errno.EIO, "fsync says that all is well")
        fails("close", os.close, fd)
        with open(p.path("quiet"), "r+b") as f:
            f.write(content("newer", 2 * MIB))
        disk.sync()
        drop_caches(p.cache)
        check(disk.failed() > 0, "no write was lost: the case proves nothing")
        disk.heal()
        p.write("well", MIB)
        p.proxy.accept()
        wait_for("the others go up", lambda: "well" in p.stored(), 30)
        flush_fails(p, "quiet", "lost", name="quiet")
        for key in ("quiet", "asked"):
            check(p.stored()[key] == before[key], f"the store shows {key} with a content that the disk made up")
            check(os.getxattr(p.path(key), "user.runfs.state") == b"failed", f"{key}: its state is not failed")
            p.logs(f"{key}: the disk of the cache lost")
        p.mount.kill()
        p.mount = p.new_mount()
        p.mount.start()
        flush_fails(p, "quiet", "lost", name="quiet")
        check(p.stored()["quiet"] == before["quiet"], "after a remount the store shows what the disk made up")
        for key in ("quiet", "asked"):
            p.write(key, 3 * MIB)
        p.finish()


def upload_before_loss(p, disk, keys):
    """Files that are stored, and whose next sync loses them. False when the kernel wrote them out first."""
    for key in keys:
        synced(p, key, 4 * MIB)
    p.mount.flush(60)
    for key in keys:
        disk.spoil("write", mirror(p, key))
        with open(p.path(key), "r+b") as f:
            f.write(content("newer", 4 * MIB))
        p.written[key] = digest(content("newer", 4 * MIB))

    def refused():
        return any(os.getxattr(p.path(key), "user.runfs.state") == b"failed" for key in keys)

    # No flush: it could come before the release, and sync.
    wait_for("the uploads", lambda: p.stored() == p.written or refused(), 30)
    if refused():
        return False
    wait_for("nothing is owed", lambda: p.mount.owed() == 0, 30)
    return True


def lost_after_upload(work, name, options):
    """The disk loses what is in the store already: who reads gets the store's content, not the disk's."""
    with FlakyDisk(work, name, 128 * MIB) as disk, Place(work, name, options, disk.cache) as p:
        for _ in range(5): # a machine with little memory may write at once
            if upload_before_loss(p, disk, ("read", "appended")):
                break
            disk.heal()
        disk.sync()
        drop_caches(p.cache)
        check(disk.failed() > 0, "no write was lost: the case proves nothing")
        disk.heal()
        check(p.read("read") == p.written["read"], "a reader gets what the disk made up")
        with open(p.path("appended"), "ab") as f:
            f.write(b"more")
        p.written["appended"] = digest(content("newer", 4 * MIB) + b"more")
        p.mount.flush(60)
        p.all_stored()
        check("lost" in p.log(), "the log does not tell of it")
        p.finish()


def disk_dies(work, name, options):
    """All sectors fail while there are writers. The daemon lives, the store keeps whole files only; what
    was synced is published by the next mount on the repaired disk."""
    with FlakyDisk(work, name, 128 * MIB) as disk, Place(work, name, (*options, "store_timeout=5s"), disk.cache) as p:
        p.write("old", MIB)
        p.mount.flush(60)
        p.proxy.refuse()
        for i in range(4):
            synced(p, f"synced-{i}", 2 * MIB)
        sure = dict(p.written)
        disk.spoil("read")
        disk.spoil("write")
        drop_caches(p.cache)
        errors = set()
        for i in range(10):
            errors.add(fails("write", p.write, f"late-{i}", MIB))
            time.sleep(0.05)
        disk.sync()
        for i in range(3):
            errors.add(fails("create", p.write, f"later-{i}", MIB))
        p.proxy.accept()
        p.prompt("status", p.mount.status)
        told(p, "can't read the cache", "last_error")
        p.nothing_torn()
        flush_fails(p)
        p.mount.kill()
        disk.heal()
        disk.repair()
        p.mount = p.new_mount()
        p.mount.start()
        p.mount.run("flush", p.mount.mountpoint, "--timeout", "60", seconds=90)
        found = p.stored()
        for key, value in sure.items():
            check(found.get(key) == value, f"{key} was synced before the disk died, the store has {found.get(key)}")
        p.nothing_torn()
        return f"writers were told {', '.join(sorted(errno.errorcode.get(e, 'nothing') for e in errors))}"


def turns_read_only(work, name, options):
    """The filesystem of the cache turns read-only, as ext4 does after an error: what is there goes up."""
    with FlakyDisk(work, name, 128 * MIB) as disk, Place(
            work, name, (*options, "store_timeout=5s", "ask_timeout=3s", "list_timeout=0"), disk.cache) as p:
        p.write("old", MIB)
        p.mount.flush(60)
        p.write_elsewhere("absent", MIB)
        wait_for("a file of another node is seen", lambda: "absent" in os.listdir(p.mount.mountpoint), 20)
        p.proxy.refuse()
        for i in range(4):
            synced(p, f"dirty-{i}", 2 * MIB)
        with open(f"/sys/fs/ext4/{os.path.basename(disk.device)}/trigger_fs_error", "w") as f:
            f.write("1\n")
        e = fails("a new file", lambda: open(p.path("new"), "w").close())
        check(e == errno.EROFS, f"a new file: {errno.errorcode.get(e, 'no error')}, must be EROFS")
        e = fails("an overwrite", lambda: open(p.path("old"), "r+").close())
        check(e == errno.EROFS, f"an overwrite: {errno.errorcode.get(e, 'no error')}, must be EROFS")
        check(fails("unlink", os.unlink, p.path("old")), "unlink says that it worked")
        check(fails("rename", os.rename, p.path("old"), p.path("moved")), "rename says that it worked")
        check(fails("mkdir", os.mkdir, p.path("folder")), "mkdir says that it worked")
        p.proxy.accept()
        check(fails("a read from the store", p.read, "absent"), "a read says that it worked")
        wait_for("status tells of the disk", lambda: "read-only" in (p.trouble() or ""), 10)
        p.logs("read-only")
        p.mount.flush(60)
        p.all_stored()
        check(p.read("dirty-1") == p.written["dirty-1"], "a dirty file reads differently")
        p.mount.kill()
        disk.repair()
        p.mount = p.new_mount()
        p.mount.start()
        p.write("after", MIB)
        p.finish()


def cache_removed(work, name, options):
    """Somebody removes the cache directory below a running mount."""
    with Place(work, name, options) as p:
        p.write("stored", MIB)
        p.mount.flush(60)
        p.proxy.refuse()
        p.write("owed", MIB)
        open_file = open(p.path("open"), "wb")
        open_file.write(content("open", MIB))
        open_file.flush()
        shutil.rmtree(p.cache)
        e = fails("a new file", p.write, "new", 1000)
        check(e == errno.EIO, f"a new file: {errno.errorcode.get(e, 'no error')}, must be EIO")
        wait_for("status tells of it", lambda: "was removed" in (p.trouble() or ""), 10)
        p.logs("was removed")
        p.proxy.accept()
        flush_fails(p, "was removed")
        status = p.mount.run("status", "--files", p.mount.mountpoint, seconds=30).stdout
        # An upload that was under way has its descriptor still, and may end once it is let through.
        check("owed" in status or "owed" in p.stored(), f"runfs status does not name what is lost: {status.strip()}")
        fails("close", open_file.close)
        done = p.mount.try_umount(5, 30)
        check(done.returncode != 0 and "in use" not in done.stdout,
              f"runfs umount: exit {done.returncode} although something is lost: {done.stdout}")
        p.nothing_torn()
        p.mount.kill()
        p.mount = p.new_mount()
        p.mount.start()
        p.write("after", MIB)
        if "owed" not in p.stored():
            del p.written["owed"]
        p.finish()


def journal_damaged(work, name, options):
    """state.db is overwritten while the mount runs, and again while it does not: files are recovered from
    the mirror."""
    with Place(work, name, (*options, "store_timeout=5s")) as p:
        p.write("old", MIB)
        p.mount.flush(60)
        p.proxy.refuse()
        for i in range(3):
            p.write(f"dirty-{i}", MIB + i)
        for path in glob.glob(os.path.join(p.cache, "state.db*")):
            size = os.path.getsize(path)
            with open(path, "r+b") as f:
                f.write(os.urandom(max(size, 8192)))
        for i in range(3):
            p.write(f"later-{i}", MIB + i)
        fails("rename", os.rename, p.path("old"), p.path("moved"))
        p.mount.kill()
        with open(os.path.join(p.cache, "state.db"), "r+b") as f:
            f.write(os.urandom(65536))
        p.proxy.accept()
        p.mount = p.new_mount()
        p.mount.start()
        check("state.db is damaged" in p.log(), "the log does not tell of it")
        check(glob.glob(os.path.join(p.cache, "state.db.damaged-*")), "the damaged journal was not set aside")
        p.mount.flush(60)
        found = p.stored()
        for key, value in p.written.items():
            name_now = "moved" if key == "old" and "moved" in found else key
            check(found.get(name_now) == value, f"{key}: the store holds {found.get(name_now)}")
        p.mount.umount(60)


def torn_by_reboot(work, name, options):
    """The machine went down: sizes and stamps are there, blocks that nobody synced are not."""
    with Place(work, name, options) as p:
        for key in ("clean", "rewritten", "synced"):
            p.write(key, 2 * MIB)
        p.mount.flush(60)
        before = dict(p.written)
        p.proxy.refuse()
        p.write("new", 2 * MIB)
        with open(p.path("rewritten"), "wb") as f:
            f.write(content("newer", 2 * MIB))
        synced(p, "synced-new", 2 * MIB)
        p.mount.kill()
        for key in ("clean", "rewritten", "new"):
            st = os.stat(mirror(p, key))
            subprocess.run(["fallocate", "-p", "-o", str(MIB), "-l", str(MIB), mirror(p, key)], check=True)
            os.utime(mirror(p, key), ns=(st.st_atime_ns, st.st_mtime_ns))
        with open(os.path.join(p.cache, "boot"), "w") as f:
            f.write("00000000-0000-0000-0000-000000000000\n")
        p.proxy.accept()
        p.mount = p.new_mount()
        p.mount.start()
        for key in ("clean", "rewritten", "synced"):
            check(p.read(key) == before[key], f"{key}: not the store's version")
        del p.written["new"]
        status = p.mount.run("status", "--files", p.mount.mountpoint, seconds=30).stdout
        check("2 kept" in status and "new" in status and "rewritten" in status, f"runfs status: {status.strip()}")
        check("was changed but not synced" in p.log(), "the log does not tell of it")
        wait_for("what was synced goes up", lambda: "synced-new" in p.stored(), 30)
        p.all_stored()


CASES = [bad_sectors, lost_writes, lost_after_upload, disk_dies, turns_read_only, cache_removed, journal_damaged, torn_by_reboot]
