"""What is measured side by side. Each system is one row of each table: a folder that is used like
any other, and a way to know when the store has what was written into it.

A peer is added as one more subclass of System in SYSTEMS.
"""

import os
import shutil
import subprocess

import harness


class System:
    """`folder` is where the benchmark reads and writes while the system is up."""

    name = "?"
    has_store = True  # what is written reaches an object store, and can be read cold from it

    def __init__(self, place):
        self.place = place
        self.folder = None

    def up(self, prefix, cold=True):
        """Starts on s3://bucket/prefix, with an empty cache when cold."""
        raise NotImplementedError

    def wait_stored(self):
        """Returns when the store has everything that was written."""
        raise NotImplementedError

    def down(self):
        """Stops; everything written is in the store."""
        raise NotImplementedError

    def pids(self):
        """The processes that do the system's work, for their memory and processor time."""
        return []


class Native(System):
    """A folder on the disk where the caches of the others live."""

    name = "native"
    has_store = False

    def up(self, prefix, cold=True):
        self.folder = self.place.make("native", prefix)

    def wait_stored(self):
        pass

    def down(self):
        pass


class Runfs(System):
    name = "runfs"
    options = ()

    def up(self, prefix, cold=True):
        cache = self.place.path(f"cache-{self.name}")
        if cold:
            shutil.rmtree(cache, ignore_errors=True)
        self.mount = self.place.mount(prefix, self.options, name=f"mnt-{self.name}", cache=cache).start()
        self.folder = self.mount.mountpoint

    def wait_stored(self):
        self.mount.flush(600)

    def down(self):
        self.mount.umount(600)
        self.place.mounts.remove(self.mount)

    def pids(self):
        return [self.mount.process.pid] if self.mount.process else []


class RunfsNormal(Runfs):
    """The same without kernel passthrough, as on a machine that has none."""

    name = "runfs-normal"
    options = ("passthrough=off",)


SYSTEMS = {s.name: s for s in (Native, Runfs, RunfsNormal)}


class Raw:
    """A parallel client without a filesystem: what the store and the wire can do."""

    name = "s5cmd"

    def __init__(self, place):
        self.place = place

    def run(self, *words):
        command = [os.environ["S5CMD"], "--endpoint-url", self.place.gateway.endpoint, "--log", "error", *words]
        subprocess.run(command, env=harness.s3_environment(), check=True, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL)

    def url(self, key):
        return f"s3://{self.place.gateway.bucket}/{key}"

    def upload(self, path, key):
        self.run("cp", "--concurrency", "16", "--part-size", "16", path, self.url(key))

    def download(self, key, path):
        self.run("cp", "--concurrency", "16", "--part-size", "16", self.url(key), path)

    def upload_tree(self, folder, prefix):
        self.run("cp", folder.rstrip("/") + "/", self.url(prefix) + "/")

    def list(self, prefix):
        self.run("ls", self.url(prefix) + "/")
