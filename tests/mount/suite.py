"""Runs the cases of this folder over mounts of every kind of store and in both modes.

suite.py [--seed N] [PATTERN]   only cases whose "store/mode/case" contains PATTERN
"""

import argparse
import hashlib
import os
import pwd
import random
import shutil
import subprocess
import sys

import acl
import attributes
import behaviour
import control
import counts
import growing
import hostile
import identity
import mapped
import modes
import nodes
import oracle
import others
import waiting
import ways
from harness import Failure, Mount, Tally, Workplace, check, runfs_binary, wait_for
from proxy import Proxy

QUICK = ["settle=0.1s", "attr_timeout=2s", "list_timeout=5s"] + (["allow_other"] if os.geteuid() == 0 else ["acl"])
# The debug preset has the system's libfuse: where that knows no passthrough both modes are one.
MODES = ("auto",) if os.environ.get("RUNFS_BUILD", "").endswith("/debug") else ("auto", "off")
WAITING = ["store_timeout=60s", "attr_timeout=300s", "list_timeout=300s"]


class Place:
    """The mounts of one kind of store in one mode."""

    def __init__(self, work, store, mode, name=None):
        self.work, self.store, self.mode = work, store, mode
        self.name = f"{name or store}-{mode}"
        self.options = QUICK + ([] if mode == "auto" else ["passthrough=off"])
        self.n = 0

    def mount(self, cache=None, options=(), env=None, wrapper=()):
        """A mount of this store; a cache directory of its own unless one is named. `env`: more for
        the daemon's environment; `wrapper`: a command that executes it."""
        self.n += 1
        name = f"{self.name}-{self.n}"
        options = self.options + list(options)
        cache = self.work.path(cache or f"cache-{name}")
        if self.store == "s3":
            m = self.work.mount(self.name, options, name=name, cache=cache)
        else:
            url = "mem:" if self.store == "mem" else self.work.make(f"store-{self.name}")
            m = Mount(url, self.work.path(name), cache, options)
            self.work.mounts.append(m)
        m.wrapper = list(wrapper)
        return m.start(env)

    def bucket(self):
        """The folder in which the server keeps the prefix."""
        return os.path.join(self.work.gateway.folder, "data", self.work.gateway.bucket, self.name)

    def write_as_others(self, key, data):
        """An object without any metadata, as a tool of its own would make it."""
        path = os.path.join(self.bucket() if self.store == "s3" else self.work.path(f"store-{self.name}"), key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)

    def read_stored(self, name):
        """What the store has under the name."""
        top = self.bucket() if self.store == "s3" else self.work.path(f"store-{self.name}")
        with open(os.path.join(top, name), "rb") as f:
            return f.read()

    def stored(self):
        """{name: digest} of the files in the store; None when it can't be looked into."""
        if self.store == "mem":
            return None
        if self.store == "file":
            return digests(self.work.path(f"store-{self.name}"))
        return {name: digest_of(path) for name, path in self.work.gateway.objects(self.name).items()}


def digest_of(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def digests(top):
    found = {}
    for where, _, files in os.walk(top):
        for name in files:
            path = os.path.join(where, name)
            if os.path.isfile(path) and not os.path.islink(path):
                found[os.path.relpath(path, top)] = digest_of(path)
    return found


class Suite:
    def __init__(self, pattern, seed):
        self.tally = Tally("mount")
        self.pattern, self.seed = pattern, seed

    def run(self, name, function, *arguments):
        if self.pattern in name:
            self.tally.run(name, function, *arguments)

    def wants(self, prefix, cases):
        return any(self.pattern in f"{prefix}/{c}" for c in cases)

    # ---- a local filesystem's behaviour ----

    def behaviour(self, place):
        names = [c.__name__ for c in behaviour.CASES + identity.CASES + acl.CASES + control.CASES] + ["published"]
        if not self.wants(f"{place.name}", names):
            return
        mount = place.mount()
        for case in behaviour.CASES + identity.CASES + acl.CASES:
            folder = f"{mount.mountpoint}/{case.__name__}"
            os.mkdir(folder)
            self.run(f"{place.name}/{case.__name__}", case, folder)
        for case in control.CASES:
            self.run(f"{place.name}/{case.__name__}", case, mount)
        self.run(f"{place.name}/published", self.published, place, mount)

    @staticmethod
    def published(place, mount):
        """After umount the store holds what the mount showed."""
        shown = digests(mount.mountpoint)
        mount.umount()
        stored = place.stored()
        if stored is None:
            return "not looked into"
        missing = {n for n, d in shown.items() if stored.get(n) != d}
        check(not missing, f"not in the store as they were: {sorted(missing)[:5]}")
        return f"{len(shown)} files"

    # ---- modes ----

    def modes(self, place):
        if place.store == "mem" or not self.wants(place.name, [c.__name__ for c in modes.CASES]):
            return # a second mount would not see the first one's memory
        mount = place.mount()
        for case in modes.CASES:
            name = f"{place.name}/{case.__name__}"
            if self.pattern in name:
                os.mkdir(f"{mount.mountpoint}/{case.__name__}")
                self.run(name, self.one_mode, case, place, mount)
        self.run(f"{place.name}/modes-umount", mount.umount)

    @staticmethod
    def one_mode(case, place, mount):
        others = []

        def again(env=None, wrapper=()):
            others.append(place.mount(env=env, wrapper=wrapper))
            return others[-1]

        case(mount, case.__name__, again)
        for m in others:
            m.umount()

    def mapped(self, work, store, mode):
        for case in mapped.CASES:
            self.run(f"{store}-{mode}/{case.__name__}", case, Place(work, store, mode, f"{store}-{case.__name__}"))

    def growing(self, work, store, mode):
        for case in growing.CASES:
            self.run(f"{store}-{mode}/{case.__name__}", case, Place(work, store, mode, f"{store}-{case.__name__}"))

    # ---- two nodes ----

    def nodes(self, place):
        if place.store == "mem" or not self.wants(place.name, [c.__name__ for c in nodes.CASES]):
            return
        options = [f"attr_timeout={nodes.ATTR_TIMEOUT}s", f"list_timeout={nodes.LIST_TIMEOUT}s",
                   f"entry_timeout={nodes.ATTR_TIMEOUT}s"]
        a, b = place.mount(options=options), place.mount(options=options)
        for case in nodes.CASES:
            name = f"{place.name}/{case.__name__}"
            if self.pattern in name:
                os.mkdir(f"{a.mountpoint}/{case.__name__}")
                a.flush()
                wait_for("the folder on the other node",
                         lambda case=case: os.path.isdir(f"{b.mountpoint}/{case.__name__}"), 20)
                self.run(name, case, a, b, case.__name__)
        for m in (a, b):
            self.run(f"{place.name}/nodes-umount", m.umount)

    # ---- attributes ----

    def attributes(self, work, store, mode):
        for case in attributes.CASES + acl.KEPT + (attributes.COUNTED + acl.COUNTED if store == "s3" else []):
            place = Place(work, store, mode, f"{store}-attributes-{case.__name__}")
            self.run(f"{store}-{mode}/{case.__name__}", case, place)

    def counts(self, work, mode):
        for case in counts.CASES:
            self.run(f"s3-{mode}/{case.__name__}", case, Place(work, "s3", mode, f"s3-counts-{case.__name__}"))

    def refusing(self, work, mode):
        for case in attributes.REFUSING + acl.SERVED:
            self.run(f"names-{mode}/{case.__name__}", case, work, mode)

    # ---- oracle ----

    def oracle(self, place, steps):
        if place.store != "mem":
            self.run(f"{place.name}/oracle", self.one_oracle, place, steps)

    def one_oracle(self, place, steps):
        seed, phase = f"seed {self.seed}", "first mount"
        mount = place.mount()
        os.mkdir(f"{mount.mountpoint}/oracle")
        workers = oracle.start(f"{mount.mountpoint}/oracle", self.seed)
        try:
            oracle.run_workers(workers, steps)
            oracle.check_names(workers)
            mount.umount()
            phase = "second mount, empty cache"
            cold = place.mount()
            oracle.move(workers, f"{cold.mountpoint}/oracle")
            oracle.check_names(workers)
            oracle.run_workers(workers, steps // 2)
            oracle.check_names(workers)
            cold.umount()
        except (Failure, OSError) as e:
            raise Failure(f"{seed}, {phase}: {e}") from e
        return seed

    # ---- a stuck store ----

    def waiting(self, work, mode):
        place = Place(work, "s3", mode, "stuck")
        cases = waiting.CASES + waiting.DURABLE_CASES
        if not self.wants(f"{place.name}", [c.__name__ for c in cases]):
            return
        count = 70
        self.fill(place, count)
        with Proxy(work.gateway.port) as proxy:
            for name, cases, options in (("cache", waiting.CASES, []),
                                         ("store", waiting.DURABLE_CASES, ["durability=store"])):
                mount = work.mount(place.name, place.options + WAITING + options,
                                   name=f"proxy-{name}-{mode}", cache=f"cache-proxy-{name}-{mode}",
                                   endpoint=f"http://127.0.0.1:{proxy.port}").start()
                self.wait_in(place, waiting.Stuck(mount, proxy, count), cases)
                self.run(f"{place.name}/waiting-umount-{name}", mount.umount)

    @staticmethod
    def fill(place, count):
        mount = place.mount()
        for name in ("stuck", "unlisted", "uncreated"):
            os.mkdir(f"{mount.mountpoint}/{name}")
        for name in ["unlisted/x", "uncreated/x"] + [f"stuck/f{i}" for i in range(count)]:
            with open(f"{mount.mountpoint}/{name}", "wb") as f:
                f.write(os.urandom(1 << 20))
        mount.umount()

    def wait_in(self, place, stuck, cases):
        for name in os.listdir(f"{stuck.mount.mountpoint}/stuck"):
            os.stat(stuck.path(name))
        with open(stuck.path("here"), "wb") as f:
            f.write(b"complete" * 1000)
        stuck.mount.flush()
        for case in cases:
            self.run(f"{place.name}/{case.__name__}", case, stuck)
            stuck.end()

    # ---- names ----

    def hostile(self, work, mode):
        for case in hostile.CASES + (hostile.REAL_CASES if work.gateway else []):
            self.run(f"names-{mode}/{case.__name__}", case, work, mode)

    # ---- ways of mounting ----

    def ways(self, work):
        for case in ways.BOTH + ways.ROOTS:
            self.run(f"ways-root/{case.__name__}", case, work, False)
        for case in others.CASES:
            self.run(f"others/{case.__name__}", case, work)

    # ---- without privilege ----

    def unprivileged(self, work):
        """As a user who mounts through fusermount3: the ways of mounting and the behaviour cases again."""
        name = "unprivileged/behaviour"
        wanted = [f"ways-user/{c.__name__}" for c in ways.BOTH + ways.USERS + others.USERS]
        if not any(self.pattern in n for n in [name, *wanted]):
            return
        home = work.make("home")
        python = shutil.which("python3", path="/usr/bin") or sys.executable # ours may be in root's home
        as_nobody = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]
        os.chown(home, pwd.getpwnam("nobody").pw_uid, -1)
        for needed in ([runfs_binary(), "--version"], [python, "-c", ""], ["fusermount3", "-V"],
                       ["test", "-r", __file__]):
            if not shutil.which(needed[0]) or subprocess.run(as_nobody + needed, stdout=subprocess.DEVNULL,
                                                             stderr=subprocess.DEVNULL).returncode:
                self.tally.skip(name, f"user nobody can't run {' '.join(needed)}")
                return
        mode = os.stat("/dev/fuse").st_mode & 0o777
        os.chmod("/dev/fuse", 0o666) # as udev sets it
        try:
            for case in ways.BOTH + ways.USERS + others.USERS:
                self.run(f"ways-user/{case.__name__}", case, work, True)
            self.run(name, self.as_other, [*as_nobody, python, __file__, "--behaviour-only"], home)
        finally:
            os.chmod("/dev/fuse", mode)

    @staticmethod
    def as_other(command, home):
        done = subprocess.run(command, env={**os.environ, "HOME": home, "TMPDIR": home}, timeout=300, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        bad = [line for line in done.stdout.splitlines() if not line.startswith("ok")]
        check(done.returncode == 0, "; ".join(bad)[-1500:])
        return bad[-1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--steps", type=int, default=150, help="of each thread of the oracle")
    parser.add_argument("--behaviour-only", action="store_true", help="over a local folder")
    args = parser.parse_args()
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        sys.exit("/dev/fuse can't be used: run as root, or make it 0666 as udev does")
    suite = Suite(args.pattern, args.seed)
    with Workplace("mount") as work:
        os.chmod(work.folder, 0o755) # other users come by
        if args.behaviour_only:
            suite.behaviour(Place(work, "file", "off"))
            return suite.tally.close()
        work.start_gateway()
        for store in ("file", "mem", "s3"):
            for mode in MODES:
                place = Place(work, store, mode)
                suite.behaviour(place)
                suite.modes(place)
                suite.nodes(place)
                suite.oracle(place, args.steps)
        for store, mode in (("file", "off"), ("s3", "auto"), ("s3", "off")):
            suite.attributes(work, store, mode)
        for mode in MODES:
            suite.mapped(work, "file", mode)
            suite.growing(work, "s3", mode)
        suite.refusing(work, "off")
        for mode in MODES:
            suite.counts(work, mode)
            suite.waiting(work, mode)
            suite.hostile(work, mode)
        if os.geteuid() == 0:
            suite.ways(work)
            suite.unprivileged(work)
    return suite.tally.close()


if __name__ == "__main__":
    sys.exit(main())
