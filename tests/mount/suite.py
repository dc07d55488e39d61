"""Runs the cases of this folder over mounts of every kind of store and in both modes, in lanes (tests/lib/lanes.py).

suite.py [--only NAME] [--seed N] [PATTERN]   only the story "store/mode/case" of this name, or those that contain PATTERN

What runs where. Nightly (RUNFS_NIGHTLY=1) and for a pattern each preset runs everything, tsan all of s3. The gate runs
a story in those presets in which it can find what it finds in no other:

| group                     | release         | asan, debug        | tsan     | what only this can find                              |
|---------------------------|-----------------|--------------------|----------|------------------------------------------------------|
| behaviour, published      | file mem s3, a+o| file off, s3 auto  | s3 off   | release: each driver x mode, as users have it;       |
| attributes (fresh mount)  | file off, s3 a+o| file off, s3 auto  | s3 off   | asan: memory, once a driver and once a mode;         |
| two nodes                 | file s3, a+o    | file off, s3 auto  | s3 off   | tsan: races, in the mode in which all goes through   |
| oracle                    | file s3, a+o    | file off, s3 auto  | s3 a+o   | the daemon: requests of s3 take time, a folder's not |
| modes, mapped, growing    | each of them    | as behaviour; auto | s3 auto  | passthrough: what the kernel does past the daemon    |
| counts of requests        | s3 a+o          | none: counts only  | none     | a count of requests is the same in each build        |
| a stuck store (waiting)   | s3 a+o          | s3 auto            | s3 off   | callers that die: freed requests, races of replies   |
| behaviour, oracle over    | auto            | off                | none     | the router below ordinary work: files of one store   |
| two stores (mixed)        |                 |                    |          | whose tree two make                                  |
| routes                    | file mem s3, a+o| file off, s3 auto  | s3 off   | release: each driver x mode; asan: what a mount of   |
|                           |                 |                    |          | several stores owns; tsan: stores that answer at once|
| names (hostile keys)      | s3 a+o          | s3 off             | none     | parsers are asan's; one thread reads a listing       |
| coded (names of runs in   | each of them off| file off, plain | none     | as names; no mode knows of stored names; a folder    |
| each codec)               |                 | off             |          | and a server have other limits                       |
| ways, others, unprivileged| once            | once               | none     | the command line and the takeover have no threads    |
"""

import argparse
import contextlib
import hashlib
import json
import os
import pwd
import shutil
import subprocess
import sys
import zlib

import acl
import attributes
import behaviour
import by_id
import coded
import control
import counts
import growing
import hostile
import identity
import lock_files
import mapped
import modes
import nodes
import oracle
import others
import routes
import together
import waiting
import ways
from harness import Failure, Mount, Tally, Workplace, check, repeat, runfs_binary, wait_for
from lanes import Group, side_by_side
from proxy import Proxy

A_FOLDERS = behaviour.CASES + together.CASES + identity.CASES + acl.CASES # what a local folder does, too
QUICK = ["settle=0.1s", "attr_timeout=2s", "list_timeout=5s"] + (["allow_other"] if os.geteuid() == 0 else ["acl"])
WAITING = ["store_timeout=180s", "ask_timeout=180s", "attr_timeout=300s", "list_timeout=300s"]
PRESET = os.path.basename(os.environ.get("RUNFS_BUILD", "debug").rstrip("/"))
NIGHTLY = bool(os.environ.get("RUNFS_NIGHTLY"))
LANES = 5 # groups at a time: most of them wait most of the time
EVERY = {(store, mode) for store in ("file", "mem", "s3", "plain") for mode in ("auto", "off")} | {(None, None)}
# The table above: which (store, mode) the gate runs of each kind of group; all of a kind that is not named.
ASAN = {kind: {("file", "off"), ("s3", "auto")} for kind in ("behaviour", "attributes", "nodes", "oracle", "modes", "waiting", "routes")} | \
    {"mapped": {("file", "auto")}, "growing": {("s3", "auto")}, "counts": set(), "names": {("plain", "off")},
     "coded": {("file", "off"), ("plain", "off")}}
TSAN = {kind: {("s3", "off")} for kind in ("behaviour", "attributes", "nodes", "waiting", "routes")} | \
    {"oracle": EVERY, "modes": {("s3", "auto")}, "growing": {("s3", "auto")}, "counts": set(), "coded": set()}
RELEASE = {kind: EVERY | {("mixed", "auto")} for kind in ("behaviour", "oracle")}
for kind in RELEASE:
    ASAN[kind] |= {("mixed", "off")}
RELEASE["coded"] = {(store, "off") for store in ("file", "mem", "s3", "plain")}
GATE = {"release": RELEASE, "asan": ASAN, "debug": ASAN, "tsan": TSAN}
# Store "mixed": every other case works in the second store, whose directory another route's paths surround.
MIXED = ("most", "other")
ROUTES = [{"path": "other/{x}/**", "store": "other", "key": "{x}/**"}, {"path": "**", "store": "most"}]


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
            url = self.url()
            m = Mount(url, self.work.path(name), cache, options)
            self.work.mounts.append(m)
        m.wrapper = list(wrapper)
        return m.start(env)

    def url(self):
        if self.store == "mixed":
            return self.config()
        return "mem:" if self.store == "mem" else self.work.make(f"store-{self.name}")

    def config(self):
        """The path of a configuration file."""
        path = self.work.path(f"{self.name}.json")
        with open(path, "w") as f:
            json.dump({"stores": {name: {"url": self.work.make(f"store-{self.name}-{name}")} for name in MIXED},
                       "routes": ROUTES}, f)
        return path

    def folder(self, case):
        """Where a case works, below the mountpoint."""
        return f"other/{case}" if self.store == "mixed" and zlib.crc32(case.encode()) % 2 == 0 else case

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
        if self.store == "mixed":
            return {**digests(self.work.path(f"store-{self.name}-most")),
                    **{f"other/{n}": d for n, d in digests(self.work.path(f"store-{self.name}-other")).items()}}
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
    """The stories that are wanted, as groups. Where there is no passthrough both modes are one, "auto"."""

    def __init__(self, args, modes):
        self.args, self.modes, self.groups, self.alone = args, modes, [], []

    def wanted(self, name):
        return name == self.args.only if self.args.only else self.args.pattern in name

    def in_gate(self, kind, store, mode):
        if PRESET == "tsan" and store != "s3" and not (self.args.only or self.args.pattern):
            return False
        if NIGHTLY or self.args.only or self.args.pattern:
            return True
        chosen = GATE.get(PRESET, {}).get(kind, EVERY)
        return (store, mode) in chosen or len(self.modes) == 1 and (store, "off") in chosen

    def add(self, kind, where, prefix, cases, run, seconds=1, alone=False):
        """A group of this kind over (store, mode): run(work, story, *where); story(name, function, ...) runs one case."""
        names = [f"{prefix}/{c if isinstance(c, str) else c.__name__}" for c in cases]
        if where[1] not in (*self.modes, None) or not self.in_gate(kind, *where) or not any(map(self.wanted, names)):
            return

        def stories(work, tally):
            def story(case, function, *arguments):
                name = f"{prefix}/{case}"
                if self.wanted(name) and not tally.run(name, function, *arguments):
                    for m in work.mounts:
                        print(f"        log of {m.mountpoint}: {m.log_tail(800)}")

            missing = prefix in ("ways-user", "unprivileged") and what_nobody_lacks()
            if missing:
                tally.skip(prefix, f"user nobody can't run {missing}")
            else:
                run(work, story, *[w for w in where if w])

        (self.alone if alone else self.groups).append(Group(names, stories, seconds))

    def add_each(self, kind, where, prefix, cases, run, seconds=1):
        """Each case has a mount of its own: a group for each, run(work, case, *where)."""
        for case in cases:
            self.add(kind, where, prefix, [case],
                     lambda work, story, *w, case=case: story(case.__name__, run, work, case, *w), seconds)

    def add_all(self):
        for store in ("file", "mem", "s3", "mixed"):
            for mode in self.modes:
                self.add_store(store, mode)
        for store, mode in (("file", self.modes[-1]), *(("s3", mode) for mode in self.modes)):
            cases = attributes.CASES + acl.KEPT + (attributes.COUNTED + acl.COUNTED if store == "s3" else [])
            self.add_each("attributes", (store, mode), f"{store}-{mode}", cases, in_a_place, 5)
        for store in ("file", "mem", "s3"): # nobody else sees into memory, and a second mount has its own
            for mode in self.modes:
                prefix = f"routes-{store}-{mode}"
                cases = (routes.THROUGH, coded.THROUGH) if store == "mem" else (routes.CASES + by_id.CASES + lock_files.CASES, coded.CASES)
                self.add_each("routes", (store, mode), prefix, cases[0], over_stores, 8)
                self.add_each("coded", (store, mode), prefix, cases[1], over_stores, 8)
        for mode in self.modes:
            self.add_each("coded", ("plain", mode), f"routes-plain-{mode}", coded.CASES, over_plain_stores, 8)
        for mode in self.modes:
            self.add_each("mapped", ("file", mode), f"file-{mode}", mapped.CASES, in_a_place)
            self.add_each("growing", ("s3", mode), f"s3-{mode}", growing.CASES, in_a_place)
        self.add_each("names", ("plain", self.modes[-1]), f"names-{self.modes[-1]}", attributes.REFUSING + acl.SERVED,
                      at_a_plain_server)
        for mode in self.modes:
            self.add_each("counts", ("s3", mode), f"s3-{mode}", counts.CASES, in_a_place)
            self.add("waiting", ("s3", mode), f"stuck-{mode}", [*waiting.CASES, "waiting-umount-cache",
                     *waiting.DURABLE_CASES, "waiting-umount-store"], wait_for_the_store, 20)
            self.add_each("names", ("plain", mode), f"names-{mode}", hostile.CASES + hostile.REAL_CASES,
                          at_a_plain_server, 20)
        if os.geteuid() == 0:
            self.add_ways()

    def add_store(self, store, mode):
        where, prefix = (store, mode), f"{store}-{mode}"
        self.add("behaviour", where, prefix, A_FOLDERS + control.CASES + ["published"],
                 behave, 30)
        if store != "mem": # a second mount would not see the first one's memory
            self.add("modes", where, prefix, modes.CASES + ["modes-umount"], both_modes, 20)
            self.add("nodes", where, prefix, nodes.CASES + ["nodes-umount"], two_nodes, 40)
            self.add("oracle", where, prefix, ["oracle"], lambda work, story, *w: ask_the_oracle(work, story, *w, self.args))

    def add_ways(self):
        """Those that change something of which a machine has one come after all others, one after the other."""
        for case in ways.BOTH + ways.ROOTS:
            self.add("ways", (None, None), "ways-root", [case],
                     lambda work, story, case=case: story(case.__name__, case, work, False), 10, case in ways.OF_THE_MACHINE)
        for case in others.CASES:
            self.add("ways", (None, None), "others", [case],
                     lambda work, story, case=case: story(case.__name__, case, work), 2, case in others.OF_THE_MACHINE)
        self.add("ways", (None, None), "ways-user", ways.BOTH + ways.USERS + others.USERS, ways_of_a_user, alone=True)
        self.add("ways", (None, None), "unprivileged", ["behaviour"], behaviour_for_a_user, alone=True)


# ---- a local filesystem's behaviour ----

def behave(work, story, store, mode):
    place = Place(work, store, mode, f"{store}-behaviour")
    mount = place.mount()
    for case in A_FOLDERS:
        folder = f"{mount.mountpoint}/{place.folder(case.__name__)}"
        os.mkdir(folder)
        story(case.__name__, case, folder)
    for case in control.CASES:
        story(case.__name__, case, mount)
    story("published", published, place, mount)


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


# ---- one case in a mount of its own ----

def in_a_place(work, case, store, mode):
    return case(Place(work, store, mode, f"{store}-{case.__name__}"))


def over_stores(work, case, store, mode):
    return case(routes.Tree(work, case.__name__, store, mode))


def over_plain_stores(work, case, store, mode):
    return case(coded.Plain(work, case.__name__, store, mode))


def at_a_plain_server(work, case, _, mode):
    return case(work, mode)


# ---- modes ----

def both_modes(work, story, store, mode):
    place = Place(work, store, mode, f"{store}-modes")
    mount = place.mount()
    for case in modes.CASES:
        os.mkdir(f"{mount.mountpoint}/{place.folder(case.__name__)}")
        story(case.__name__, one_mode, case, place, mount)
    story("modes-umount", mount.umount)


def one_mode(case, place, mount):
    others = []

    def again(env=None, wrapper=()):
        others.append(place.mount(env=env, wrapper=wrapper))
        return others[-1]

    case(mount, place.folder(case.__name__), again)
    for m in others:
        m.umount()


# ---- two nodes ----

def two_nodes(work, story, store, mode):
    place = Place(work, store, mode, f"{store}-nodes")
    options = [f"attr_timeout={nodes.ATTR_TIMEOUT}s", f"list_timeout={nodes.LIST_TIMEOUT}s",
               f"entry_timeout={nodes.ATTR_TIMEOUT}s"]
    a, b = place.mount(options=options), place.mount(options=options)
    for case in nodes.CASES:
        story(case.__name__, between_nodes, case, place.folder(case.__name__), a, b)
    for m in (a, b):
        story("nodes-umount", m.umount)


def between_nodes(case, folder, a, b):
    os.mkdir(f"{a.mountpoint}/{folder}")
    a.flush()
    wait_for("the folder on the other node", lambda: os.path.isdir(f"{b.mountpoint}/{folder}"), 20)
    return case(a, b, folder)


# ---- oracle ----

def ask_the_oracle(work, story, store, mode, args):
    story("oracle", one_oracle, Place(work, store, mode, f"{store}-oracle"), args.seed, args.steps)


def one_oracle(place, seed, steps):
    told, phase = f"seed {seed}", "first mount"
    mount, folder = place.mount(), place.folder("oracle")
    os.mkdir(f"{mount.mountpoint}/{folder}")
    workers = oracle.start(f"{mount.mountpoint}/{folder}", seed)
    try:
        oracle.run_workers(workers, steps)
        oracle.check_names(workers)
        mount.umount()
        phase = "second mount, empty cache"
        cold = place.mount()
        oracle.move(workers, f"{cold.mountpoint}/{folder}")
        oracle.check_names(workers)
        oracle.run_workers(workers, steps // 2)
        oracle.check_names(workers)
        cold.umount()
    except (Failure, OSError) as e:
        raise Failure(f"{told}, {phase}: {e}") from e
    return told


# ---- a stuck store ----

def wait_for_the_store(work, story, store, mode):
    place = Place(work, store, mode, "stuck")
    count = 70
    fill(place, count)
    with Proxy(work.gateway.port) as proxy:
        for name, cases, options in (("cache", waiting.CASES, []),
                                     ("store", waiting.DURABLE_CASES, ["durability=store"])):
            mount = work.mount(place.name, place.options + WAITING + options,
                               name=f"proxy-{name}-{mode}", cache=f"cache-proxy-{name}-{mode}",
                               endpoint=f"http://127.0.0.1:{proxy.port}").start()
            wait_in(waiting.Stuck(mount, proxy, count), cases, story)
            story(f"waiting-umount-{name}", mount.umount)


def fill(place, count):
    mount = place.mount()
    for name in ("stuck", "unlisted", "uncreated"):
        os.mkdir(f"{mount.mountpoint}/{name}")
    for name in ["unlisted/x", "uncreated/x"] + [f"stuck/f{i}" for i in range(count)]:
        with open(f"{mount.mountpoint}/{name}", "wb") as f:
            f.write(os.urandom(1 << 20))
    mount.umount()


def wait_in(stuck, cases, story):
    for name in os.listdir(f"{stuck.mount.mountpoint}/stuck"):
        os.stat(stuck.path(name))
    with open(stuck.path("here"), "wb") as f:
        f.write(b"complete" * 1000)
    stuck.mount.flush()
    for case in cases:
        story(case.__name__, case, stuck)
        stuck.end()


# ---- without privilege ----

AS_NOBODY = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]
PYTHON = shutil.which("python3", path="/usr/bin") or sys.executable # ours may be in root's home


def what_nobody_lacks():
    """A command of a user's stories that the user nobody can't run; None when all can be."""
    for needed in ([runfs_binary(), "--version"], [PYTHON, "-c", ""], ["fusermount3", "-V"], ["test", "-r", __file__]):
        if not shutil.which(needed[0]) or subprocess.run(AS_NOBODY + needed, stdout=subprocess.DEVNULL,
                                                         stderr=subprocess.DEVNULL).returncode:
            return " ".join(needed)
    return None


@contextlib.contextmanager
def device_for_all():
    """A user mounts through fusermount3, for which the device is as udev makes it."""
    mode = os.stat("/dev/fuse").st_mode & 0o777
    os.chmod("/dev/fuse", 0o666)
    try:
        yield
    finally:
        os.chmod("/dev/fuse", mode)


def ways_of_a_user(work, story):
    with device_for_all():
        for case in ways.BOTH + ways.USERS + others.USERS:
            story(case.__name__, case, work, True)


def behaviour_for_a_user(work, story):
    home = work.make("home")
    os.chown(home, pwd.getpwnam("nobody").pw_uid, -1)
    with device_for_all():
        story("behaviour", as_other, [*AS_NOBODY, PYTHON, __file__, "--behaviour-only"], home)


def as_other(command, home):
    done = subprocess.run(command, env={**os.environ, "HOME": home, "TMPDIR": home}, timeout=300, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    bad = [line for line in done.stdout.splitlines() if not line.startswith("ok")]
    check(done.returncode == 0, "; ".join(bad)[-1500:])
    return bad[-1]


# ---- all of it ----

def prepare(work):
    os.chmod(work.folder, 0o755) # other users come by
    work.start_gateway()


def passthrough_works():
    with Workplace("mount") as work:
        m = Mount("mem:", work.path("probe"), work.path("cache"))
        work.mounts.append(m)
        return m.start().status()["frontend"]["passthrough"]


def behaviour_only():
    """As the user of "unprivileged", whose story is one."""
    tally = Tally("mount", lambda name: repeat("--only", "unprivileged/behaviour"))
    with Workplace("mount") as work:
        behave(work, tally.run, "file", "off")
    return tally.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--only", metavar="NAME")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("MOUNT_SEED", 1)))
    parser.add_argument("--steps", type=int, default=150, help="of each thread of the oracle")
    parser.add_argument("--lanes", type=int, default=LANES)
    parser.add_argument("--list", action="store_true", help="the names of what would run")
    parser.add_argument("--behaviour-only", action="store_true", help="over a local folder")
    args = parser.parse_args()
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        sys.exit("/dev/fuse can't be used: run as root, or make it 0666 as udev does")
    if args.behaviour_only:
        return behaviour_only()
    suite = Suite(args, ("auto", "off") if passthrough_works() else ("auto",))
    suite.add_all()
    if args.list:
        print(*(n for g in suite.groups + suite.alone for n in g.names if suite.wanted(n)), sep="\n")
        return 0
    print(f"seed {args.seed} (MOUNT_SEED)", flush=True)
    tally = Tally("mount", lambda name: repeat("--only", name, *(["--seed", args.seed] if "oracle" in name else [])))
    side_by_side(suite.groups, args.lanes, prepare, tally)
    side_by_side(suite.alone, 1, prepare, tally)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
