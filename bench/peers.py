"""The filesystems of others over the same store, with the options that their own documentation
recommends for throughput where the defaults are far slower. bench/peer.sh installs them."""

import contextlib
import glob
import os
import signal
import subprocess

import harness
from systems import System, discard

HERE = os.path.dirname(os.path.abspath(__file__))


def descendants(pid):
    """This process and all below it."""
    found = [pid]
    for parent in found:
        for children in glob.glob(f"/proc/{parent}/task/*/children"):  # any thread may have started one
            with contextlib.suppress(OSError), open(children) as f:
                found += [int(word) for word in f.read().split()]
    return found


class Peer(System):
    """A program that mounts in the foreground."""

    installs = "?"  # what peer.sh calls it
    process = None

    def missing(self):
        done = subprocess.run([os.path.join(HERE, "peer.sh"), self.installs], text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode != 0:
            return (done.stderr.strip().splitlines() or ["?"])[-1]
        self.program = done.stdout.strip()
        return None

    def command(self, prefix):
        raise NotImplementedError

    def environment(self):
        return harness.s3_environment()

    def up(self, prefix, paused=False):
        self.prefix, self.paused = prefix, paused
        self.cache = self.place.path(f"cache-{self.name}")
        discard(self.place, self.cache)
        os.makedirs(self.cache)
        self.mountpoint = self.place.make(f"mnt-{self.name}")
        self.log = self.place.path(f"{self.name}.log")
        self.prepare(prefix)
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(self.command(prefix), env=self.environment(),
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.place.cleanups.append(self.end)
        harness.wait_for(f"mount of {self.name}", self.is_up, 60)
        self.folder = self.folder_of(prefix)

    def prepare(self, prefix):
        pass

    def folder_of(self, _prefix):
        return self.mountpoint

    def is_up(self):
        if self.process.poll() is not None:
            with open(self.log, errors="replace") as f:
                raise harness.Failure(f"{self.name} ended with {self.process.returncode}: {f.read()[-300:]}")
        return os.path.ismount(self.mountpoint)

    def wait_stored(self):
        pass

    def down(self):
        if not self.paused:
            self.wait_stored()
        self.end()
        self.place.cleanups.remove(self.end)

    def end(self):
        """Also when it hangs."""
        if not self.process:
            return
        for lazy in ([], ["-z"]):
            if harness.is_mountpoint(self.mountpoint):
                subprocess.run(["fusermount3", "-u", *lazy, self.mountpoint], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        below = descendants(self.process.pid)[1:]
        try:
            self.process.wait(2 if self.paused else 60)
        except subprocess.TimeoutExpired:
            harness.end_process(self.process, signal.SIGKILL if self.paused else signal.SIGTERM)
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def pids(self):
        return descendants(self.process.pid) if self.process else []

    def cache_folders(self):
        return [self.cache]


class Rclone(Peer):
    name = installs = "rclone"

    def command(self, prefix):
        bucket = self.place.gateway.bucket
        return [self.program, "mount", f":s3:{bucket}/{prefix}", self.mountpoint, "--config", "/dev/null",
                "--s3-provider", "Other", "--s3-env-auth", "--s3-endpoint", self.place.endpoint,
                "--s3-region", harness.REGION, "--s3-force-path-style", "--s3-no-check-bucket",
                "--s3-use-unsigned-payload", "true", "--s3-disable-checksum",
                "--s3-upload-concurrency", "8", "--s3-chunk-size", "16M", "--transfers", "16",
                "--use-server-modtime", "--vfs-cache-mode", "full", "--cache-dir", self.cache,
                "--vfs-write-back", "100ms", "--vfs-read-chunk-size", "4M", "--vfs-read-chunk-streams", "16"]

    def wait_stored(self):
        """Its statistics call it idle before a closed file is queued: what counts is what is there."""
        wanted = {}
        for where, _, names in os.walk(self.mountpoint):
            for name in names:
                path = os.path.join(where, name)
                wanted[os.path.relpath(path, self.mountpoint)] = os.stat(path).st_size

        def all_there():
            there = self.place.gateway.objects(self.prefix)
            return all(name in there and os.stat(there[name]).st_size == size for name, size in wanted.items())
        harness.wait_for("rclone has uploaded", all_there, 600)


class S3fs(Peer):
    """Mounts the bucket: it refuses a prefix that has no directory object."""

    name = installs = "s3fs"

    def command(self, prefix):
        options = [f"url={self.place.endpoint}", "use_path_request_style", f"endpoint={harness.REGION}",
                   f"use_cache={self.cache}", f"tmpdir={self.cache}", "enable_noobj_cache",
                   "parallel_count=8", "multipart_size=16"]
        return [self.program, self.place.gateway.bucket, self.mountpoint, "-f", "-o", ",".join(options)]

    def environment(self):
        return {**harness.s3_environment(), "AWSACCESSKEYID": harness.ACCESS_KEY,
                "AWSSECRETACCESSKEY": harness.SECRET_KEY}

    def folder_of(self, prefix):
        folder = os.path.join(self.mountpoint, prefix)
        os.makedirs(folder, exist_ok=True)
        return folder


class Juicefs(Peer):
    """A volume for each prefix, its names in SQLite on the disk of the caches: what other clients
    put into the bucket it does not see."""

    name = installs = "juicefs"
    own_tree = True
    options = ()
    metrics = harness.hold_port()

    def database(self, prefix):
        return self.place.path(f"{self.name}-{prefix}.db")

    def prepare(self, prefix):
        if os.path.exists(self.database(prefix)):
            return
        subprocess.run([self.program, "format", "--storage", "s3", "--bucket", self.bucket(), "--access-key",
                        harness.ACCESS_KEY, "--secret-key", harness.SECRET_KEY, "--trash-days", "0",
                        f"sqlite3://{self.database(prefix)}", prefix], check=True, env=self.environment(),
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def bucket(self):
        return f"{self.place.endpoint}/{self.place.gateway.bucket}"

    def command(self, prefix):
        return [self.program, "mount", "--no-usage-report", "--no-syslog", "--hide-internal",
                "--backup-meta", "0", "--metrics", f"127.0.0.1:{self.metrics.getsockname()[1]}",
                "--bucket", self.bucket(), "--cache-dir", self.cache,
                *self.options, *(["--upload-delay", "1h"] if self.paused else []),
                f"sqlite3://{self.database(prefix)}", self.mountpoint]

    def forget(self, prefix):
        for end in ("", "-wal", "-shm"):
            if os.path.exists(self.database(prefix) + end):
                os.unlink(self.database(prefix) + end)

    def wait_stored(self):
        def nothing_waits():
            with open(os.path.join(self.mountpoint, ".stats")) as f:
                values = dict(line.split(" ", 1) for line in f)
            return float(values.get("juicefs_staging_blocks", 0)) == 0
        harness.wait_for("JuiceFS has uploaded", nothing_waits, 600)

    def fill(self, prefix, write):
        """Several times faster than file by file."""
        before, self.options = self.options, ("--writeback",)
        super().fill(prefix, write)
        self.options = before


class JuicefsWriteback(Juicefs):
    name = "juicefs-writeback"
    can_pause = True
    reads_like = "juicefs"
    options = ("--writeback",)


class Mountpoint(Peer):
    name = installs = "mountpoint"
    can_rename = False  # S3 has none, and it copies nothing

    def command(self, prefix):
        return [self.program, self.place.gateway.bucket, f"{prefix}/", self.mountpoint, self.place.endpoint,
                harness.REGION]


PEERS = {p.name: p for p in (Rclone, S3fs, Juicefs, JuicefsWriteback, Mountpoint)}
