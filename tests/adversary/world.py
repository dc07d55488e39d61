"""One scenario's world: a store, and nodes that mount it with a cache each. Nodes do what programs do,
and tell the oracle what they were told; the store is read past every protocol."""

import base64
import json
import os
import re
import shutil
import signal
import subprocess

import harness
from harness import Failure, check, wait_for
from oracle import Oracle, describe
from mapping import Mapping
from plain_s3 import PlainS3
from proxy import Proxy
from sys_calls import RENAME_EXCHANGE, renameat2

OPTIONS = ("upload_interval=0", "settle=20ms", "attr_timeout=300ms", "list_timeout=300ms", "late_window=1s",
           "store_timeout=5s")


class S3:
    """A prefix of a real server, behind a proxy that can cut it off."""

    kind = "s3"

    def __init__(self, work, prefix):
        self.gateway, self.prefix = work.gateway, prefix
        self.proxy = Proxy(work.gateway.port).start()
        self.url = f"s3://{self.gateway.bucket}/{prefix}"
        self.options = (f"endpoint={self.proxy.endpoint}", f"region={harness.REGION}", "path_style")

    def objects(self):
        return read_files(self.gateway.objects(self.prefix))

    def cut_off(self):
        self.proxy.refuse()
        self.proxy.reset()

    def connect(self):
        self.proxy.accept()

    def tell(self):
        """What a failure's log says of the way to the server, and of the server."""
        return f"proxy on port {self.proxy.port}: {self.proxy.stats()}\n{sockets(self.proxy.port)}\n{self.gateway.stacks()}"

    def close(self):
        self.proxy.stop()


def sockets(port):
    """The kernel's lines of the port: state 01 is connected; then what waits to be sent, and to be read."""
    with open("/proc/net/tcp", encoding="ascii") as f:
        return "".join(line for line in f if f":{port:04X} " in line)


class Routed(S3):
    """Two prefixes of a real server in one tree: what is in each of them is known by the paths of the mount."""

    kind = "routed"
    PARTS = {"ckpt": ("checkpoint", "{run}", lambda name: name),
             "meta": ("metadata", "{run:b32}", lambda name: base64.b32decode(name).decode())}

    def __init__(self, work, prefix):
        super().__init__(work, prefix)
        settings = {"endpoint": self.proxy.endpoint, "region": harness.REGION, "path_style": True}
        whole = {"stores": {name: {"url": f"{self.url}-{name}", **settings} for name in self.PARTS},
                 "routes": [{"path": f"runs/{{run}}/{part}/**", "store": name, "key": f"{run}/**", "policy": part}
                            for name, (part, run, _) in self.PARTS.items()]}
        self.url, self.options = work.path(f"{prefix}.json"), ()
        with open(self.url, "w", encoding="ascii") as f:
            json.dump(whole, f)

    def objects(self):
        found = {}
        for name, (part, _, decode) in self.PARTS.items():
            for key, body in read_files(self.gateway.objects(f"{self.prefix}-{name}")).items():
                run, _, rest = key.partition("/")
                found[f"runs/{decode(run)}/{part}/{rest}"] = body
        return found


class Plain:
    """A server in memory that knows nothing but objects, and can be told to refuse names."""

    kind = "plain"

    def __init__(self, _, prefix):
        self.server, self.prefix = PlainS3(), prefix
        self.url = f"s3://bucket/{prefix}"
        self.options = (f"endpoint={self.server.endpoint}", f"region={harness.REGION}", "path_style")

    def objects(self):
        top = f"{self.prefix}/"
        return {key.decode().removeprefix(top): body for key, body in self.server.bodies().items()
                if key.startswith(top.encode()) and not key.endswith(b"/")}

    def close(self):
        self.server.stop()


class Folder:
    """A folder on this machine."""

    kind = "file"

    def __init__(self, work, prefix):
        self.folder = work.make(f"store-{prefix}")
        self.url = f"file://{self.folder}"
        self.options = ()

    def objects(self):
        found = {}
        for where, folders, files in os.walk(self.folder):
            folders[:] = [f for f in folders if not f.startswith(".runfs")]
            for name in files:
                path = os.path.join(where, name)
                found[os.path.relpath(path, self.folder)] = path
        return read_files(found)

    def close(self):
        pass


STORES = {"s3": S3, "routed": Routed, "plain": Plain, "file": Folder}


def read_file(path):
    with open(path, "rb") as f:
        return f.read()


def read_files(paths):
    """{key: content}, as {key: path} says."""
    found = {}
    for key, path in paths.items():
        try:
            found[key] = read_file(path)
        except FileNotFoundError:
            pass # replaced or removed meanwhile; who asks for a name waits for it
    return found


def is_stopped(pid):
    """Each thread: one may be just sending a request."""
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/stat", encoding="utf-8", errors="replace") as f:
            if f.read().rpartition(")")[2].split()[0] != "T":
                return False
    return True


class Node:
    """A machine with a mount and a cache."""

    def __init__(self, world, name, options=(), cache=None, limits=()):
        self.world, self.name = world, name
        self.oracle, self.store = world.oracle, world.store
        self.cache = cache or world.work.path(f"cache-{world.name}-{name}")
        self.options = (*OPTIONS, *world.options, *self.store.options, *options)
        self.mount = harness.Mount(self.store.url, world.work.path(f"mnt-{world.name}-{name}"), self.cache, self.options)
        command = self.mount.command
        self.mount.command = lambda: [*limits, *command()]
        world.work.mounts.append(self.mount)
        world.nodes.append(self)
        self.kept = []

    # ---- its life ----

    def up(self, env=None):
        self.mount.start(env)
        return self

    def is_up(self):
        return self.mount.process is not None

    def try_up(self):
        """A mount may refuse a cache that it can't trust, if it says why. Whether it is mounted."""
        try:
            self.mount.start()
        except Failure:
            self.mount.process.wait()
            self.mount.process = None
            check(self.log(), "a mount that was refused says nothing")
            return False
        return True

    def log(self):
        return read_file(self.mount.log).decode(errors="replace")

    def logs(self, text):
        """The log tells of it, or will in a moment: what is said under a lock is written a little later."""
        wait_for(f"the log tells of \"{text}\"", lambda: text in self.log(), 10)

    def flush(self, seconds=30):
        """runfs flush; its exit code."""
        done = self.mount.run("flush", self.mount.mountpoint, "--staged", "--timeout", str(seconds), seconds=seconds + 20)
        if done.returncode == 0:
            self.oracle.claimed(self.name, self.store.objects(), f"runfs flush on {self.name}")
        return done.returncode

    def umount(self, seconds=30):
        """runfs umount; its exit code. After another one than 0 the mount is still there."""
        done = self.mount.try_umount(seconds)
        if done.returncode == 0:
            self.oracle.claimed(self.name, self.store.objects(), f"runfs umount on {self.name}")
            check(self.mount.wait_dead() == 0, f"lied: runfs umount said 0, the daemon of {self.name} did not")
        return done.returncode

    def terminate(self, seconds=30):
        """SIGTERM, and until the daemon ended; its exit code."""
        self.mount.process.send_signal(signal.SIGTERM)
        code = self.mount.wait_dead(seconds)
        if code == 0:
            self.oracle.claimed(self.name, self.store.objects(), f"the daemon of {self.name}")
        return code

    def kill(self):
        self.mount.kill() # a frozen one, too

    def reboot(self, torn=False):
        """The machine goes down and comes back; `torn`: without the blocks that nobody synced."""
        self.kill()
        self.oracle.crashed(self.name, self.store.objects(), torn)
        if torn:
            self.tear()
        with open(os.path.join(self.cache, "boot"), "r+") as f: # what else it says stays
            f.write("00000000")

    def tear(self):
        """As ext4 does it: sizes and stamps are there, blocks are not. What was synced is whole under any name."""
        synced = [v.body for name in self.oracle.names.values() for v in name.versions if v.synced]
        for where, _, files in os.walk(os.path.join(self.cache, "mirror")):
            for path in (os.path.join(where, name) for name in files):
                if read_file(path) not in synced:
                    self.tear_file(path)

    @staticmethod
    def tear_file(path):
        st = os.stat(path)
        if st.st_size:
            subprocess.run(["fallocate", "-p", "-o", "0", "-l", str(st.st_size), path], check=True)
            os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))

    def move_cache(self, to):
        os.rename(self.cache, to)
        self.cache = self.mount.cache = to

    def freeze(self):
        """The daemon does nothing until thaw(): others come first. Nobody may touch the mount meanwhile."""
        pid = self.mount.process.pid
        self.mount.process.send_signal(signal.SIGSTOP)
        wait_for(f"the daemon of {self.name} to stop", lambda: is_stopped(pid), 10) # the signal is only sent

    def thaw(self):
        self.mount.process.send_signal(signal.SIGCONT)

    def retire(self):
        """The node is gone, and with it what only it had; another one may have its cache."""
        self.kill()
        self.world.nodes.remove(self)
        for _, version in self.oracle.owed_by(self.name):
            version.owners.discard(self.name)

    def set_aside(self):
        """The contents in kept/; a Failure when the node does not tell of one."""
        top = os.path.join(self.cache, "kept")
        paths = [os.path.join(where, f) for where, _, files in os.walk(top) for f in files]
        if not paths:
            return []
        listed = self.mount.run("recover", self.cache, "--list", seconds=60).stdout
        for path in paths:
            plain = re.sub(r"\.\d+(?=/|$)", "", os.path.relpath(path, top))
            check(plain in listed, f"lost: {plain} is in kept/ of {self.name}, and runfs recover does not list it: {listed}")
        return [read_file(path) for path in paths]

    def settle(self):
        """Once more up, all that can be is published, and down."""
        if not self.is_up() and not self.try_up():
            return
        code = self.umount()
        if code != 0:
            self.kill()
        self.kept = self.set_aside()
        check(code != 0 or not self.kept, f"lied: runfs umount on {self.name}, exit code 0, with content set aside")

    # ---- what its programs do ----

    def path(self, key=""):
        return os.path.join(self.mount.mountpoint, key)

    def write(self, key, body, sync=False):
        """A program replaces a file: open with O_TRUNC, write, close."""
        with open(self.path(key), "wb", buffering=0) as f:
            f.write(body)
            if sync:
                os.fsync(f.fileno())
        return self.oracle.wrote(self.name, key, body, synced=sync, blind=True)

    def rewrite(self, key, body):
        """The same, by one who has seen what he replaces."""
        fd = os.open(self.path(key), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            old = b"".join(iter(lambda: os.read(fd, 1 << 20), b""))
            if old:
                self.oracle.saw(self.name, key, old)
            os.ftruncate(fd, 0)
            os.pwrite(fd, body, 0)
        finally:
            os.close(fd)
        return self.oracle.wrote(self.name, key, body)

    def read(self, key):
        body = read_file(self.path(key))
        self.oracle.saw(self.name, key, body)
        return body

    def sees(self, key, body):
        """Waits until the node shows this content; None: until it shows no such name."""
        wait_for(f"{self.name} shows {describe(body)} in {key}", lambda: self._shows(key, body), 15, 0.1)

    def _shows(self, key, body):
        try:
            return self.read(key) == body
        except FileNotFoundError:
            return body is None

    def append(self, key, more):
        body = self.read(key) + more
        try:
            with open(self.path(key), "ab", buffering=0) as f:
                f.write(more)
        except OSError:
            self.oracle.unacknowledged(self.name, key, body)
            raise
        self.oracle.wrote(self.name, key, body)

    def write_mapped(self, key, beginning):
        body = self.read(key)
        with Mapping(self.path(key)) as m:
            m.write(beginning)
        self.oracle.wrote(self.name, key, beginning + body[len(beginning):])

    def exchange(self, one, two):
        bodies = self.read(one), self.read(two)
        renameat2(self.path(one), self.path(two), RENAME_EXCHANGE)
        self.oracle.renamed(one, two)
        self.oracle.renamed(two, one)
        self.oracle.wrote(self.name, one, bodies[1], blind=True)
        self.oracle.wrote(self.name, two, bodies[0], blind=True)

    def move_folder(self, old, new, keys):
        """A directory becomes another one that is not there, or is empty. `keys`: what is in it."""
        bodies = [self.read(key) for key in keys]
        os.rename(self.path(old), self.path(new))
        for key, body in zip(keys, bodies):
            self.oracle.renamed(key, new + key.removeprefix(old))
            self.oracle.wrote(self.name, new + key.removeprefix(old), body, blind=True)
            self.oracle.removed(self.name, key)

    def unlink(self, key):
        os.unlink(self.path(key))
        self.oracle.removed(self.name, key)

    def rename(self, old, new):
        body = self.read(old)
        os.rename(self.path(old), self.path(new))
        self.oracle.renamed(old, new)
        self.oracle.wrote(self.name, new, body, blind=True)
        self.oracle.removed(self.name, old)


class World:
    def __init__(self, work, name, store, options=()):
        self.work, self.name, self.options = work, name, options
        self.oracle = Oracle()
        self.store = STORES[store](work, name)
        self.nodes = []
        self.settled = False

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if exception[0] and isinstance(self.store, S3):
            print(f"        {self.store.tell()[:12000]}", flush=True)
        for node in self.nodes:
            node.kill()
            if exception[0] and os.path.exists(node.mount.log):
                print(f"        log of {node.name}: {node.mount.log_tail(800)}", flush=True)
        self.store.close()
        for node in self.nodes:
            shutil.rmtree(node.cache, ignore_errors=True)

    def node(self, name="a", options=(), cache=None, limits=(), env=None):
        """A node that is up. `limits`: the command that starts the daemon, as prlimit with its options."""
        return Node(self, name, options, cache, limits).up(env)

    def stored(self, key):
        return self.store.objects().get(key)

    def put(self, **contents):
        """What a node of its own has put there before."""
        other = self.node("other")
        for key, body in contents.items():
            other.write(key, body)
        check(other.umount() == 0, "umount")
        other.retire()

    def settle(self):
        """All is published that can be; a scenario calls it whose cache disks are its own."""
        for node in self.nodes:
            node.settle()
        self.settled = True

    def judge(self):
        if not self.settled:
            self.settle()
        self.oracle.judge(self.store.objects(), {node.name: node.kept for node in self.nodes if node.kept})
