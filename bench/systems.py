"""What is measured side by side. Each system is one line in each row: a folder that is used like
any other, and a way to know when the store has what was written into it.

The native disk and runfs are here, the filesystems of others in peers.py.
"""

import itertools
import os
import shutil
import time

import harness


_numbers = itertools.count()


def discard(place, folder):
    """Puts a folder aside and frees its space. Its inodes stay until empty_trash(): ext4 avoids inodes
    that were deleted within the last five seconds, which makes every create slower."""
    if not os.path.isdir(folder):
        return
    aside = os.path.join(place.make("trash"), str(next(_numbers)))
    os.rename(folder, aside)
    for where, _, names in os.walk(aside):
        for name in names:
            path = os.path.join(where, name)
            if not os.path.islink(path) and os.path.getsize(path) > 1 << 20:
                os.truncate(path, 0)


def empty_trash(place):
    shutil.rmtree(place.path("trash"), ignore_errors=True)
    time.sleep(6)


class System:
    """`folder` is where the benchmark reads and writes while the system is up."""

    name = "?"
    has_store = True    # what is written reaches an object store, and can be read cold from it
    can_pause = False   # uploads can be held back
    can_rename = True
    keeps_index = False # leaves behind what later walks are quicker with
    own_tree = False    # sees only what was written through it, not what other clients put there
    reads_like = None   # the system that this one is in rows that only read

    def __init__(self, place):
        self.place = place
        self.folder = None

    def missing(self):
        """Why it can't be had here, or None; may install it."""
        return None

    def up(self, prefix, paused=False):
        """Starts on s3://bucket/prefix with an empty cache; with `paused` nothing is uploaded."""
        raise NotImplementedError

    def wait_stored(self):
        """Returns when the store has everything that was written."""
        raise NotImplementedError

    def down(self):
        """Stops; everything written is in the store, unless uploads were paused."""
        raise NotImplementedError

    def pids(self):
        """The processes that do the system's work, for their memory and processor time."""
        return []

    def cache_folders(self):
        """Where it keeps content on the disk, so that its pages can be dropped."""
        return []

    def forget(self, prefix):
        """Removes what it keeps of a prefix beside the store."""

    def fill(self, prefix, write):
        """Has what write(folder) writes in the store below a prefix; not measured."""
        self.up(prefix)
        write(self.folder)
        self.wait_stored()
        self.down()


class Native(System):
    """A folder on the disk where the caches of the others live."""

    name = "native"
    has_store = False
    can_pause = True

    def up(self, prefix, paused=False):
        self.folder = self.place.make("native", prefix)

    def wait_stored(self):
        pass

    def down(self):
        pass

    def cache_folders(self):
        return [self.folder]

    def forget(self, prefix):
        discard(self.place, self.place.path("native", prefix))


class Runfs(System):
    name = "runfs"
    can_pause = True
    keeps_index = True
    options = ()
    binary = None   # the one that is measured unless told

    def up(self, prefix, paused=False):
        self.paused = paused
        self.cache = self.place.path(f"cache-{self.name}")
        discard(self.place, self.cache)
        options = [*self.options, *(["settle=1h"] if paused else [])]
        self.mount = self.place.mount(prefix, options, name=f"mnt-{self.name}", cache=self.cache,
                                      endpoint=self.place.endpoint)
        self.mount.binary = self.binary or self.mount.binary
        self.mount.start()
        self.folder = self.mount.mountpoint

    def wait_stored(self):
        self.mount.flush(600)

    def down(self):
        if self.paused:
            self.mount.kill()
        else:
            self.mount.umount(600)
        self.place.mounts.remove(self.mount)

    def pids(self):
        return [self.mount.process.pid] if self.mount.process else []

    def cache_folders(self):
        return [self.cache]


class RunfsNormal(Runfs):
    """The same without kernel passthrough, as on a machine that has none."""

    name = "runfs-normal"
    options = ("passthrough=off",)


class RunfsBefore(Runfs):
    """The build that RUNFS_BEFORE names, as it was before a change: both in one run, on one machine."""

    name = "runfs-before"
    binary = os.environ.get("RUNFS_BEFORE")

    def missing(self):
        return None if self.binary and os.access(self.binary, os.X_OK) else "RUNFS_BEFORE names no program"


OURS = {s.name: s for s in (Native, Runfs, RunfsNormal, RunfsBefore)}


def drop_pages(path, folders):
    """The kernel forgets the content of this file and of all files in these folders, on the disk they
    stay; only these, as others use this machine too."""
    paths = [path]
    for folder in folders:
        paths += [os.path.join(where, name) for where, _, names in os.walk(folder) for name in names]
    for path in paths:
        if os.path.isfile(path) and not os.path.islink(path):
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


