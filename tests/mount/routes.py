"""One tree over many stores: what is written through the mount lies where the routes say, as a client that knows nothing
of runfs sees it, and the reverse. Each case has stores of its own: folders, or prefixes of the server."""

import errno
import json
import os
import random
import shutil
import threading
import time

from harness import Gateway, Mount, REGION, check, wait_for
from sys_calls import errno_of

LIST_TIMEOUT = 1.0
OPTIONS = ["settle=0.1s", "late_window=1s", "attr_timeout=1s", f"list_timeout={LIST_TIMEOUT}s", "entry_timeout=1s"]
THREE = [{"path": "runs/{run}/checkpoint/**", "store": "ckpt", "key": "{run}/**", "policy": "checkpoint"},
         {"path": "runs/{run}/logs/**", "store": "logs", "key": "{run}/**", "policy": "logs"},
         {"path": "runs/{run}/metadata/**", "store": "meta", "key": "{run:b32}/**", "policy": "metadata"}]
NAMES = ("ckpt", "logs", "meta")
RUN_A, RUN_B = "ME======", "MI======" # a and b in base32


class Tree:
    """Stores in one tree, and the mounts of it."""

    def __init__(self, work, case, kind, mode):
        self.work, self.kind, self.mode, self.case = work, kind, mode, case
        self.name = f"routes-{case}-{kind}-{mode}"
        self.n = 0

    def url(self, store):
        if self.kind == "file":
            return self.work.make(f"{self.name}-{store}")
        if self.kind == "mem":
            return f"mem:{self.name}-{store}"
        return f"s3://{self.work.gateway.bucket}/{self.name}-{store}"

    def settings(self):
        if self.kind in ("file", "mem"):
            return {}
        return {"endpoint": self.work.gateway.endpoint, "region": REGION, "path_style": True}

    def raw(self, store, *key):
        """The file that holds an object, by the store's own folder; nobody else sees into the memory of a daemon."""
        check(self.kind != "mem", "a raw look at memory")
        top = self.work.path(f"{self.name}-{store}") if self.kind == "file" else \
            os.path.join(self.work.gateway.folder, "data", self.work.gateway.bucket, f"{self.name}-{store}")
        return os.path.join(top, *key)

    def keys(self, store):
        top, found = self.raw(store), set()
        for where, _, files in os.walk(top):
            found |= {os.path.relpath(os.path.join(where, name), top) for name in files}
        return found

    def body(self, store, key):
        return get(self.raw(store, key))

    def left(self):
        """What the stores have of anything: also directories, and what marks them."""
        return [os.path.join(where, name) for store in NAMES for where, folders, files in os.walk(self.raw(store))
                for name in folders + files]

    def put_raw(self, store, key, data):
        path = self.raw(store, key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)

    def config(self, routes=None, names=NAMES, more=None):
        """The path of a configuration file."""
        self.n += 1
        path = self.work.path(f"{self.name}-{self.n}.json")
        whole = {"stores": {n: {"url": self.url(n), **self.settings()} for n in names}, **(more or {})}
        if routes is not None:
            whole["routes"] = routes
        with open(path, "w") as f:
            json.dump(whole, f)
        return path

    def mount(self, config, cache="cache", options=()):
        self.n += 1
        name = f"{self.name}-mnt-{self.n}"
        mode = [] if self.mode == "auto" else ["passthrough=off"]
        m = Mount(config, self.work.path(name), self.work.path(f"{self.name}-{cache}"), OPTIONS + mode + list(options))
        self.work.mounts.append(m)
        return m.start()


def put(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)


def get(path):
    with open(path, "rb") as f:
        return f.read()


def let_go(m):
    """All is in the stores, no content is in the cache, and `runs` was listed since: what is seen next comes from there."""
    m.flush()
    # The kernel tells of the end of a descriptor a moment after close() has returned.
    wait_for("nothing is open", lambda: m.status()["cache"]["open_handles"] == 0, 20)
    done = m.run("evict", m.mountpoint)
    check(done.returncode == 0, f"runfs evict: exit {done.returncode}: {done.stdout.strip()}")
    lists = count(m, "lists")
    wait_for("another listing", lambda: os.listdir(f"{m.mountpoint}/runs") is not None and count(m, "lists") > lists, 20)


def count(m, kind):
    """Requests of this kind so far, of all stores."""
    return m.status()["requests"][kind]


def write_run(top, run, size=100):
    data = {f"runs/{run}/{part}": os.urandom(size)
            for part in ("checkpoint/step-1/model.pt", "checkpoint/last.pt", "logs/train.log", "metadata/params.json")}
    for name, content in data.items():
        put(f"{top}/{name}", content)
    return data


def check_run(top, data, what):
    for name, content in data.items():
        check(get(f"{top}/{name}") == content, f"{what}: {name}")


def in_the_stores(tree, run, coded, data):
    """The run's files as the stores have them, by their own keys."""
    for name, content in data.items():
        part, rest = name.split("/", 3)[2:]
        store, key = {"checkpoint": ("ckpt", f"{run}/{rest}"), "logs": ("logs", f"{run}/{rest}"),
                      "metadata": ("meta", f"{coded}/{rest}")}[part]
        check(get(tree.raw(store, key)) == content, f"{store}: {key}")


def three_stores_in_one_tree(tree):
    m = tree.mount(tree.config(THREE))
    data = write_run(m.mountpoint, "a")
    check(sorted(os.listdir(f"{m.mountpoint}/runs/a")) == ["checkpoint", "logs", "metadata"], "the run's parts")
    check(os.listdir(m.mountpoint) == ["runs"], "the root")
    m.flush()
    in_the_stores(tree, "a", RUN_A, data)
    m.umount()
    cold = tree.mount(tree.config(THREE), cache="cold")
    check_run(cold.mountpoint, data, "with an empty cache")
    cold.umount()
    check(tree.keys("ckpt") == {"a/step-1/model.pt", "a/last.pt"}, f"ckpt has {tree.keys('ckpt')}")
    check(tree.keys("logs") == {"a/train.log"}, f"logs has {tree.keys('logs')}")
    check(tree.keys("meta") == {f"{RUN_A}/params.json"}, f"meta has {tree.keys('meta')}")


def what_others_store_is_here(tree):
    for store, key in (("ckpt", "x/m.pt"), ("logs", "y/t.log"), ("meta", f"{RUN_A}/p"), ("meta", "no base32/p")):
        tree.put_raw(store, key, key.encode())
    m = tree.mount(tree.config(THREE))
    runs = f"{m.mountpoint}/runs"
    check(sorted(os.listdir(runs)) == ["a", "x", "y"], f"runs: {sorted(os.listdir(runs))}")
    check(os.listdir(f"{runs}/x") == ["checkpoint"], f"x: {os.listdir(f'{runs}/x')}")
    check(get(f"{runs}/y/logs/t.log") == b"y/t.log", "a log")
    check(get(f"{runs}/a/metadata/p") == f"{RUN_A}/p".encode(), "a decoded name")
    tree.put_raw("ckpt", "late/m.pt", b"late")
    wait_for("a run that came later", lambda: "late" in os.listdir(runs), 20)
    check(get(f"{runs}/late/checkpoint/m.pt") == b"late", "its content")
    m.umount()


def names_that_no_route_takes(tree):
    m = tree.mount(tree.config(THREE))
    top = m.mountpoint
    for call in (lambda: open(f"{top}/x", "w"), lambda: os.mkdir(f"{top}/x"), lambda: os.symlink("y", f"{top}/x")):
        check(errno_of(call) == "EPERM", "in the root")
    os.makedirs(f"{top}/runs/a")
    check(errno_of(lambda: open(f"{top}/runs/a/x", "w")) == "EPERM", "in a run")
    check(errno_of(lambda: os.stat(f"{top}/x")) == "ENOENT", "stat")
    check(errno_of(lambda: os.mkdir(f"{top}/runs")) == "EEXIST", "mkdir of a fixed one")
    check(errno_of(lambda: os.rmdir(f"{top}/runs")) in ("EBUSY", "ENOTEMPTY"), "rmdir of a fixed one")
    os.rmdir(f"{top}/runs/a")
    check(errno_of(lambda: os.rmdir(f"{top}/runs")) == "EBUSY", "rmdir of a fixed, empty one")
    check(errno_of(lambda: os.rename(f"{top}/runs", f"{top}/other")) == "EBUSY", "rename of a fixed one")
    m.umount()


def directories_on_the_way(tree):
    """Programs make them one by one, and take EEXIST for a failure."""
    config = tree.config(THREE)
    m = tree.mount(config)
    os.mkdir(f"{m.mountpoint}/runs/a")
    check(os.listdir(f"{m.mountpoint}/runs/a") == [], "an empty one")
    os.mkdir(f"{m.mountpoint}/runs/a/checkpoint")
    os.mkdir(f"{m.mountpoint}/runs/bare")
    time.sleep(2 * LIST_TIMEOUT)
    check(sorted(os.listdir(f"{m.mountpoint}/runs")) == ["a", "bare"], "after list_timeout")
    m.umount()
    m = tree.mount(config)
    check(os.path.isdir(f"{m.mountpoint}/runs/bare"), "after a mount")
    check(os.path.isdir(f"{m.mountpoint}/runs/a/checkpoint"), "a mapped one after a mount")
    os.rename(f"{m.mountpoint}/runs/bare", f"{m.mountpoint}/runs/b")
    put(f"{m.mountpoint}/runs/b/logs/x.log", b"x")
    os.unlink(f"{m.mountpoint}/runs/b/logs/x.log")
    os.rmdir(f"{m.mountpoint}/runs/b/logs")
    check(os.path.isdir(f"{m.mountpoint}/runs/b"), "after its last name went")
    os.rmdir(f"{m.mountpoint}/runs/b")
    check(not os.path.exists(f"{m.mountpoint}/runs/b"), "removed")
    m.kill()
    m = tree.mount(config)
    check(not os.path.exists(f"{m.mountpoint}/runs/b"), "removed, after a kill")
    check(os.path.isdir(f"{m.mountpoint}/runs/a"), "kept, after a kill")
    m.umount()


def modes_of_directories_on_the_way(tree):
    """0777 without the bits of dmask, whatever stands for them at a store; what is a key there is left as it is."""
    tree.put_raw("ckpt", "a/step-1/model.pt", b"weights")
    if tree.kind == "file":
        os.chmod(tree.raw("ckpt", "a"), 0o700)
    config = tree.config(THREE + [{"path": "tmp/{x}/y/**", "store": "data"}], NAMES + ("data",))
    for i, (masks, mode) in enumerate(((["dmask=027"], 0o750), (["dmask=0"], 0o777), (["umask=077", "dmask=02"], 0o775),
                                       (["umask=077"], 0o700))):
        m = tree.mount(config, cache=f"cache-{i}", options=masks)
        for name in ("", "runs", "runs/a", "tmp"):
            found = os.stat(f"{m.mountpoint}/{name}").st_mode
            check(found == 0o40000 + mode, f"{masks}: {name or 'the root'} is {found:o}")
        stored = os.stat(f"{m.mountpoint}/runs/a/checkpoint/step-1").st_mode & 0o7777
        own = os.stat(tree.raw("ckpt", "a/step-1")).st_mode & 0o7777 if tree.kind == "file" else mode
        check(stored == own, f"{masks}: a directory of the store is {stored:o}")
        m.umount()


def numbers(top):
    """Of all that is there, by path; what a listing says of a name is what stat() says."""
    found = {}
    for where, _, _ in os.walk(top):
        for entry in os.scandir(where):
            check(entry.inode() == os.stat(entry.path).st_ino, f"{entry.path}: a listing and stat() differ")
            found[os.path.relpath(entry.path, top)] = entry.inode()
            if entry.is_file():
                get(entry.path) # the mirror has it from now on
    check(len(set(found.values())) == len(found), "each name has a number of its own")
    return found


def numbers_outlive_other_routes(tree):
    """The same key of the same store has its number by whatever path; a new route changes no other."""
    for store, key in (("ckpt", "a/step-1/model.pt"), ("logs", "a/train.log"), ("logs", "a/step-1/model.pt"),
                       ("meta", f"{RUN_A}/params.json"), ("data", "x/y")):
        tree.put_raw(store, key, b"content")
    names = NAMES + ("data",)
    was = tree.mount(tree.config(THREE, NAMES))
    before = numbers(was.mountpoint)
    was.umount()
    rest = {"path": "data/**", "store": "data", "key": "**"}
    more = tree.mount(tree.config([rest] + THREE, names)) # takes the cache over
    after = numbers(more.mountpoint)
    check({n: after.get(n) for n in before} == before, "a route more")
    more.umount()
    moved = tree.mount(tree.config([{"path": "old/{run}/**", "store": "ckpt", "key": "{run}/**"}] + THREE[1:] + [rest], names))
    there = numbers(moved.mountpoint)
    for name, number in after.items():
        path = name.replace("runs/a/checkpoint", "old/a")
        check(there.get(path) == number, f"{path}: {there.get(path)}, as {name} it was {number}")
    moved.umount()


def nameless_gets_a_name_elsewhere(top):
    """An O_TMPFILE is in no store until it has a name. Follows /proc's symlink: os.link() alone does not."""
    try:
        fd = os.open(f"{top}/runs/a/checkpoint", os.O_TMPFILE | os.O_RDWR)
    except OSError as e:
        check(e.errno in (errno.EOPNOTSUPP, errno.EISDIR), f"O_TMPFILE: {e}")
        return
    os.write(fd, b"nameless")
    proc = os.open("/proc/self/fd", os.O_RDONLY)
    os.link(str(fd), f"{top}/runs/a/logs/named", src_dir_fd=proc, follow_symlinks=True)
    os.close(proc)
    os.close(fd)
    check(get(f"{top}/runs/a/logs/named") == b"nameless", "a nameless file has its name in another store")


def files_between_stores(tree):
    m = tree.mount(tree.config(THREE))
    here, there = f"{m.mountpoint}/runs/a/checkpoint/f", f"{m.mountpoint}/runs/a/logs/f"
    put(here, b"1" * 1000)
    os.makedirs(os.path.dirname(there))
    m.flush()
    os.symlink("f", here + "-link")
    check(errno_of(lambda: os.rename(here + "-link", there)) == "EXDEV", "a symlink")
    check(errno_of(lambda: os.link(here, there)) == "EXDEV", "a hard link")
    check(get(here) == b"1" * 1000 and not os.path.lexists(there), "nothing has changed")
    nameless_gets_a_name_elsewhere(m.mountpoint)
    shutil.move(here, there)
    m.flush()
    check(get(tree.raw("logs", "a/f")) == b"1" * 1000, "moved by shutil")
    check("a/f" not in tree.keys("ckpt"), "gone at the first one")
    check(not os.path.exists(os.path.dirname(there) + "/named") or get(tree.raw("logs", "a/named")) == b"nameless",
          "the nameless one is stored")
    put(here + ".tmp", b"2")
    os.replace(here + ".tmp", here)
    m.flush()
    check(get(tree.raw("ckpt", "a/f")) == b"2", "os.replace within a store")
    os.mkdir(f"{m.mountpoint}/runs/a/checkpoint/d")
    check(errno_of(lambda: os.rename(f"{m.mountpoint}/runs/a/checkpoint/d", f"{m.mountpoint}/runs/a/logs/d"))
          == "EXDEV", "a directory")
    m.umount()


def a_run_is_renamed(tree):
    config = tree.config(THREE)
    m = tree.mount(config)
    data = write_run(m.mountpoint, "a")
    m.flush()
    more = {"runs/a/logs/unsent.log": b"unsent"}
    put(f"{m.mountpoint}/runs/a/logs/unsent.log", b"unsent")
    os.rename(f"{m.mountpoint}/runs/a", f"{m.mountpoint}/runs/b")
    renamed = {n.replace("runs/a", "runs/b"): d for n, d in {**data, **more}.items()}
    check_run(m.mountpoint, renamed, "at once")
    check(os.listdir(f"{m.mountpoint}/runs") == ["b"], "the old name")
    m.flush()
    in_the_stores(tree, "b", RUN_B, renamed)
    check(not any(k.startswith(("a/", RUN_A)) for s in NAMES for k in tree.keys(s)), "left at the old name")
    m.umount()


def killed_while_a_run_is_renamed(tree):
    config = tree.config(THREE)
    rng = random.Random(20261126)
    names = "ab"
    m = tree.mount(config)
    data = write_run(m.mountpoint, "a")
    m.flush()
    for turn in range(6):
        old, new = names[turn % 2], names[(turn + 1) % 2]
        os.rename(f"{m.mountpoint}/runs/{old}", f"{m.mountpoint}/runs/{new}")
        data = {n.replace(f"runs/{old}/", f"runs/{new}/"): d for n, d in data.items()}
        time.sleep(rng.random() * 0.4)
        m.kill()
        m = tree.mount(config)
        check_run(m.mountpoint, data, f"after kill {turn}")
    m.flush()
    in_the_stores(tree, "a", RUN_A, data)
    check(sum(len(tree.keys(s)) for s in NAMES) == len(data), "at both names")
    m.umount()


def a_run_is_removed(tree):
    m = tree.mount(tree.config(THREE))
    write_run(m.mountpoint, "a")
    kept = write_run(m.mountpoint, "b")
    m.flush()
    shutil.rmtree(f"{m.mountpoint}/runs/a")
    check(os.listdir(f"{m.mountpoint}/runs") == ["b"], "what is left")
    m.flush()
    check(not any(k.startswith(("a/", RUN_A)) for s in NAMES for k in tree.keys(s)), "left in a store")
    in_the_stores(tree, "b", RUN_B, kept)
    m.umount()
    cold = tree.mount(tree.config(THREE), cache="cold")
    check(os.listdir(f"{cold.mountpoint}/runs") == ["b"], "on another node")
    cold.umount()


def evicted_and_read_again(tree):
    """For stores that nobody else can look into, too."""
    m = tree.mount(tree.config(THREE))
    runs = f"{m.mountpoint}/runs"
    data = {**write_run(m.mountpoint, "a"), **write_run(m.mountpoint, "b")}
    let_go(m)
    reads = count(m, "reads")
    check_run(m.mountpoint, data, "evicted")
    check(count(m, "reads") >= reads + len(data), "read, and no store was asked")
    os.rename(f"{runs}/a", f"{runs}/c")
    shutil.rmtree(f"{runs}/b")
    left = {n.replace("/a/", "/c/"): content for n, content in data.items() if "/a/" in n}
    shutil.move(f"{runs}/c/checkpoint/last.pt", f"{runs}/c/logs/last.pt")
    left["runs/c/logs/last.pt"] = left.pop("runs/c/checkpoint/last.pt")
    let_go(m)
    check(os.listdir(runs) == ["c"], f"renamed and removed: {os.listdir(runs)}")
    check(sorted(os.listdir(f"{runs}/c/logs")) == ["last.pt", "train.log"], "the store that got a file")
    check(os.listdir(f"{runs}/c/checkpoint") == ["step-1"], "the store that lost one")
    reads = count(m, "reads")
    check_run(m.mountpoint, left, "renamed and evicted")
    check(count(m, "reads") >= reads + len(left), "read again, and no store was asked")
    m.umount()


def two_nodes_share_the_tree(tree):
    config = tree.config(THREE)
    a, b = tree.mount(config, cache="a"), tree.mount(config, cache="b")
    data = write_run(a.mountpoint, "a")
    a.flush()
    wait_for("the run on the other node", lambda: os.path.isdir(f"{b.mountpoint}/runs/a/metadata"), 20)
    check_run(b.mountpoint, data, "on the other node")
    os.unlink(f"{b.mountpoint}/runs/a/logs/train.log")
    b.flush()
    wait_for("the removal here", lambda: not os.path.exists(f"{a.mountpoint}/runs/a/logs/train.log"), 20)
    a.umount()
    b.umount()


def killed_while_writing(tree):
    """What was closed is in the stores after the next mount."""
    config = tree.config(THREE)
    m = tree.mount(config)
    done, stop = {}, threading.Event()

    def write(part):
        i = 0
        while not stop.is_set() and i < 100000:
            name, content = f"runs/r{i % 5}/{part}/f{i}", os.urandom(2000)
            try:
                put(f"{m.mountpoint}/{name}", content)
            except OSError:
                return
            done[name] = content
            i += 1

    threads = [threading.Thread(target=write, args=(p,)) for p in ("checkpoint", "logs", "metadata")]
    for t in threads:
        t.start()
    time.sleep(0.7)
    m.process.kill()
    stop.set()
    for t in threads:
        t.join()
    m.kill()
    m = tree.mount(config)
    check_run(m.mountpoint, done, "after a kill")
    # What each thread was just making is set aside, and the exit code says so.
    kept = [name for _, _, names in os.walk(f"{m.cache}/kept") for name in names]
    check(len(kept) <= len(threads), f"kept: {kept}")
    ended = m.try_umount(60)
    check(ended.returncode == (3 if kept else 0), f"umount: exit {ended.returncode}: {ended.stdout.strip()}")
    m.kill()
    cold = tree.mount(config, cache="cold")
    check_run(cold.mountpoint, done, "from the stores")
    cold.umount()
    return f"{len(done)} files"


def every_layout_over_one_url(tree):
    """A layout leaves the names to the framework: what lies in the store has the same, but for decoded ones."""
    trees = {"plain": {"a/b.pt": "a/b.pt"},
             "runs": {"runs/x/checkpoint/m.pt": None, "runs/x/logs/t.log": None, "runs/x/metadata/p.json": None,
                      "runs/x/other.txt": None, "top.txt": None},
             "horovod": {"runs/x/checkpoint.h5": None, "runs/x/logs/e.log": None, "intermediate_train_data/p.parquet": None,
                         "intermediate_val_data1/p.parquet": None, "other": None},
             "dbfs": {"runs/x/checkpoint.tf/v": None, "intermediate_train_data/p.parquet": None},
             "ray": {"exp/trial/checkpoint_000001/m.pt": None, "exp/trial/result.json": None},
             "adaptdl": {"checkpoint-3/state": None},
             "torchx": {"runs/a/metadata/1": f"{RUN_A}/metadata/1"},
             "tfos": {"model/checkpoint": None, "export/1/saved_model.pb": None}}
    for layout, names in trees.items():
        where = Tree(tree.work, f"{tree.case}-{layout}", tree.kind, tree.mode)
        settings = [f"{k}={v}" if v is not True else k for k, v in where.settings().items()]
        m = where.mount(where.url("one"), options=[f"layout={layout}", *settings])
        for name in names:
            put(f"{m.mountpoint}/{name}", name.encode())
        check({os.path.relpath(os.path.join(w, f), m.mountpoint) for w, _, fs in os.walk(m.mountpoint) for f in fs}
              == set(names), f"{layout}: the mount's names")
        m.umount()
        check(where.keys("one") == {key or name for name, key in names.items()}, f"{layout}: {where.keys('one')}")


def policies_hold_by_path(tree):
    """An open log goes up by its route's interval, a staged name waits, and elsewhere the same names do not."""
    routes = [{"path": "logs/**", "store": "logs", "policy": "often"}, {"path": "**", "store": "ckpt", "policy": "staged"}]
    more = {"policies": {"often": {"extends": "logs", "interval": "500ms"},
                         "staged": {"extends": "data", "staging": ["half-*"], "logs": ["none"]}}}
    m = tree.mount(tree.config(routes, ("ckpt", "logs"), more))
    os.makedirs(f"{m.mountpoint}/logs", exist_ok=True)
    put(f"{m.mountpoint}/half-x", b"1")
    with open(f"{m.mountpoint}/logs/anything", "wb") as log, open(f"{m.mountpoint}/a.log", "wb") as other:
        for f in (log, other):
            f.write(b"line\n")
            f.flush()
        wait_for("the open log", lambda: "logs/anything" in tree.keys("logs"), 20)
        check(not tree.keys("ckpt"), f"not to be there: {tree.keys('ckpt')}")
    wait_for("what was closed", lambda: tree.keys("ckpt") == {"a.log"}, 20)
    m.umount()


def one_store_is_down(tree):
    """What lies in the others is found, read and written by a mount that has seen nothing yet; no listing is shorter."""
    if tree.kind == "file":
        return "a folder is always there"
    server = Gateway(tree.work.path(f"{tree.name}-logs-server")).start()
    config = tree.config(THREE)
    with open(config) as f:
        whole = json.load(f)
    whole["stores"]["logs"].update(url=f"s3://{server.bucket}/logs", endpoint=server.endpoint)
    with open(config, "w") as f:
        json.dump(whole, f)
    m = tree.mount(config)
    data = write_run(m.mountpoint, "a")
    m.umount()
    m = tree.mount(config, cache="cold", options=["ask_timeout=3s"])
    top = m.mountpoint
    server.kill()
    part = {name: content for name, content in data.items() if "/logs/" not in name}
    check_run(top, part, "beside a store that is down")
    check(os.path.isdir(f"{top}/runs/a"), "the run is there")
    put(f"{top}/runs/a/checkpoint/step-2/model.pt", b"new")
    os.mkdir(f"{top}/runs/a/metadata/empty")
    os.rename(f"{top}/runs/a/checkpoint/last.pt", f"{top}/runs/a/checkpoint/best.pt")
    os.unlink(f"{top}/runs/a/metadata/params.json")
    check(sorted(os.listdir(f"{top}/runs/a/checkpoint")) == ["best.pt", "step-1", "step-2"], "a directory of a store that works")
    for where in ("runs", "runs/a", "runs/a/logs"):
        check(errno_of(os.listdir, f"{top}/{where}"), f"{where} is listed without what the store has")
    m.flush()
    check(get(tree.raw("ckpt", "a/step-2/model.pt")) == b"new", "what was written is stored")
    server.start()
    wait_for("the run as a whole", lambda: not errno_of(os.listdir, f"{top}/runs/a"), 30)
    check(sorted(os.listdir(f"{top}/runs/a")) == ["checkpoint", "logs", "metadata"], "the run's parts")
    check(get(f"{top}/runs/a/logs/train.log") == data["runs/a/logs/train.log"], "the log")
    put(f"{top}/runs/b/logs/train.log", b"line")
    m.umount()
    check("logs/b/train.log" in server.objects(), f"the store that was down has {sorted(server.objects())}")
    server.stop()
    return None


CASES = [three_stores_in_one_tree, what_others_store_is_here, names_that_no_route_takes, directories_on_the_way,
         modes_of_directories_on_the_way, numbers_outlive_other_routes, files_between_stores, a_run_is_renamed,
         killed_while_a_run_is_renamed, a_run_is_removed, evicted_and_read_again, two_nodes_share_the_tree,
         killed_while_writing, every_layout_over_one_url, policies_hold_by_path, one_store_is_down]
THROUGH = [names_that_no_route_takes, evicted_and_read_again] # one mount, and no look at the stores
