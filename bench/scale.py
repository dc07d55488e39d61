"""How things grow: the same steps in trees of ten thousand, a hundred thousand and a million objects,
ten in each run folder, and many mounts that read one checkpoint at once, each behind a line of its own.

Times say what a user waits for, but the server (versitygw over a folder) reads the whole root again for each
page of a listing; what runfs itself does is told by its requests, its processor time and its memory."""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests", "lib"))

import harness
from bench import describe_machine, memory_folder, names
from results import moved_bytes, processor_seconds
from work import MIB, Source, read_all

FILES = 10 # in each run folder
READERS = 8
ALL = ["list_timeout=1h", "attr_timeout=1h", "list_memory=16G"] # nothing that is known is forgotten


def resident(pid):
    """MiB."""
    with open(f"/proc/{pid}/status") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024


def status(mount):
    """Without a lookup in the root, which `runfs status` costs."""
    with open(os.path.join(mount.mountpoint, ".runfs", "status.json")) as f:
        return json.load(f)


class Step:
    """What one step took: of time, of the daemon's and the server's processors, and of requests."""

    def __init__(self, mount, gateway):
        self.mount = mount
        self.pids = [mount.process.pid], [gateway.process.pid]

    def _used(self):
        return [processor_seconds(pids) for pids in self.pids]

    def run(self, call):
        before = status(self.mount)["requests"]
        (daemon, server), started = self._used(), time.monotonic()
        call()
        self.seconds = time.monotonic() - started
        daemon_now, server_now = self._used()
        now = status(self.mount)["requests"]
        self.daemon, self.server = daemon_now - daemon, server_now - server
        self.requests = {k: now[k] - before[k] for k in ("lists", "stats", "reads")}
        self.load = os.getloadavg()[0]
        return self

    def cells(self):
        r = self.requests
        return [f"{self.seconds * 1000:.1f} ms" if self.seconds < 1 else f"{self.seconds:.1f} s",
                f"{r['lists']} + {r['stats']} + {r['reads']}", f"{self.daemon:.2f} s", f"{self.server:.2f} s",
                f"{self.load:.0f}"]


class Table:
    HEAD = ["step", "objects", "time", "LIST + HEAD + GET", "CPU of the daemon", "of the server", "load"]

    def __init__(self):
        self.lines = {} # step: lines

    def add(self, step, cells):
        self.lines.setdefault(step, []).append(cells)
        print(f"{step}: {', '.join(cells)}", file=sys.stderr, flush=True)

    def print(self):
        print("| " + " | ".join(self.HEAD) + " |\n" + "|---" * len(self.HEAD) + "|")
        for step, lines in self.lines.items():
            for cells in lines:
                print("| " + " | ".join([step, *cells]) + " |")


# ---- many objects ----

def run_name(i):
    return f"run-{i:06}"


class Tree:
    """Objects made directly where the server keeps them. They are links to one file: a million inodes would
    take gigabytes of memory."""

    def __init__(self, place, objects):
        self.place, self.objects, self.runs = place, objects, objects // FILES
        self.prefix = f"runs-{objects}"
        self.folder = os.path.join(place.server_folder, "data", place.gateway.bucket, self.prefix)

    def make(self):
        one = os.path.join(self.place.server_folder, "one")
        with open(one, "wb") as f:
            f.write(b"{}")
        for i in range(self.runs):
            where = os.path.join(self.folder, run_name(i))
            os.makedirs(where)
            for j in range(FILES):
                os.link(one, os.path.join(where, f"file-{j}.json"))

    def remove(self):
        subprocess.run(["rm", "-rf", self.folder], check=True)


class Names:
    """The steps over one tree. Each begins on a fresh mount, unless it says otherwise."""

    def __init__(self, place, tree, table, cached):
        self.place, self.tree, self.table, self.cached = place, tree, table, cached
        self.n = 0

    def mount(self, options=(), cache=None):
        self.n += 1
        name = f"{self.tree.prefix}-{self.n}"
        return self.place.mount(self.tree.prefix, options, name=name, cache=cache or f"cache-{name}").start()

    def down(self, mount):
        mount.umount()
        self.place.mounts.remove(mount)

    def step(self, name, mount, call):
        done = Step(mount, self.place.gateway).run(call)
        self.table.add(name, [f"{self.tree.objects:,}", *done.cells()])

    def one_step(self, name, call):
        m = self.mount()
        self.step(name, m, lambda: call(m.mountpoint))
        self.down(m)

    def list_all(self, top, command):
        done = subprocess.run([*command, top], check=True, stdout=subprocess.PIPE)
        found = done.stdout.count(b".json")
        harness.check(found == self.tree.objects, f"{found} files are listed of {self.tree.objects}")

    def everything(self):
        """Then all objects are known."""
        m = self.mount(ALL)
        before = resident(m.process.pid)
        self.step("ls -R of all", m, lambda: self.list_all(m.mountpoint, ["ls", "-R"]))
        grown, nodes = resident(m.process.pid) - before, status(m)["cache"]["nodes"]
        self.table.add("memory when all are known", [f"{self.tree.objects:,}", f"{grown + before:.0f} MiB",
                       f"{grown * MIB / nodes:.0f} B for each of {nodes:,} names", "", "", ""])
        self.step("ls of the root again", m, lambda: os.listdir(m.mountpoint))
        self.step("ls -R of all again", m, lambda: self.list_all(m.mountpoint, ["ls", "-R"]))
        self.down(m)

    def read_some(self, top, count):
        def read(i):
            with open(os.path.join(top, run_name(i // FILES), f"file-{i % FILES}.json"), "rb") as f:
                return len(f.read())
        with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
            harness.check(sum(pool.map(read, range(count))) == 2 * count, "short reads")

    def remount(self):
        """A share of the files is in the cache."""
        count = self.tree.objects // self.cached
        cache = self.place.path(f"cache-{self.tree.prefix}")
        m = self.mount(ALL, cache)
        self.step(f"read of 1 in {self.cached}, {READERS} threads", m, lambda: self.read_some(m.mountpoint, count))
        self.down(m)
        started = time.monotonic()
        m = self.mount(ALL, cache)
        took, cpu = time.monotonic() - started, processor_seconds([m.process.pid])
        self.table.add(f"mount again with 1 in {self.cached} in the cache",
                       [f"{self.tree.objects:,}", f"{took * 1000:.0f} ms", "", f"{cpu:.2f} s", "",
                        f"{os.getloadavg()[0]:.0f}"])
        self.down(m)

    def run(self):
        middle = self.tree.runs // 2
        self.one_step("stat of one file", lambda top: os.stat(os.path.join(top, run_name(middle), "file-3.json")))
        self.one_step("ls -l of one run", lambda top: subprocess.run(
            ["ls", "-l", os.path.join(top, run_name(middle))], check=True, stdout=subprocess.DEVNULL))
        self.one_step("ls of the root", os.listdir)
        self.everything()
        self.remount()


def measure_names(place, arguments, table):
    for objects in arguments.objects:
        tree = Tree(place, objects)
        tree.make()
        Names(place, tree, table, arguments.cached).run()
        tree.remove()


# ---- many mounts ----

def ip(*words):
    subprocess.run(["ip", *words], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Lines:
    """A network namespace for each mount, with a line of its own to the server; what the server sends is
    shaped (tbf). Needs root."""

    BRIDGE, NET = "runfs-bench", "10.213.77"

    def __init__(self, count, megabits):
        self.count, self.megabits = count, megabits

    @property
    def server(self):
        return f"{self.NET}.1"

    def name(self, i):
        return f"runfs-b{i}"

    def __enter__(self):
        ip("link", "add", self.BRIDGE, "type", "bridge")
        try:
            ip("addr", "add", f"{self.server}/24", "dev", self.BRIDGE)
            ip("link", "set", self.BRIDGE, "up")
            for i in range(self.count):
                self.add(i)
        except subprocess.CalledProcessError:
            self.__exit__()
            raise
        return self

    def add(self, i):
        name = self.name(i)
        ip("netns", "add", name)
        ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("link", "set", name, "master", self.BRIDGE, "up")
        ip("-n", name, "addr", "add", f"{self.NET}.{i + 2}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        subprocess.run(["tc", "qdisc", "add", "dev", name, "root", "tbf", "rate", f"{self.megabits}mbit",
                        "burst", "1mb", "latency", "50ms"], check=True)

    def __exit__(self, *_):
        for i in range(self.count):
            subprocess.run(["ip", "netns", "del", self.name(i)], stderr=subprocess.DEVNULL, check=False)
            subprocess.run(["ip", "link", "del", self.name(i)], stderr=subprocess.DEVNULL, check=False)
        subprocess.run(["ip", "link", "del", self.BRIDGE], stderr=subprocess.DEVNULL, check=False)


class MountInside(harness.Mount):
    """Only its network is the namespace's: the mount itself is seen by all."""

    namespace = None

    def command(self):
        return ["nsenter", f"--net=/run/netns/{self.namespace}", *super().command()]


def measure_mounts(place, arguments):
    source = Source(os.path.join(place.server_folder, "checkpoint"), arguments.size * MIB)
    with Lines(arguments.mounts, arguments.rate) as lines:
        gateway = harness.Gateway(os.path.join(place.server_folder, "lines"), host=lines.server)
        place.cleanups.append(gateway.stop)
        where = os.path.join(gateway.folder, "data", gateway.bucket, "shared")
        os.makedirs(where)
        os.link(source.path, os.path.join(where, "model.pt"))
        gateway.start()
        mounts = []
        for i in range(arguments.mounts):
            m = MountInside(f"s3://{gateway.bucket}/shared", place.path(f"line-{i}"), place.path(f"cache-line-{i}"),
                            [f"endpoint={gateway.endpoint}", f"region={harness.REGION}", "path_style"])
            m.namespace = lines.name(i)
            place.mounts.append(m)
            mounts.append(m.start())
        seconds, moved, used = read_by_all(mounts, source, gateway)
        asked, alone = source.size * len(mounts), source.size * 8 / 1e6 / arguments.rate
        print(f"\n{len(mounts)} mounts, each on a line of {arguments.rate} Mbit/s, read one file of {arguments.size} MiB "
              f"at once: {min(seconds):.1f} to {max(seconds):.1f} s ({max(seconds) / alone:.2f} times what the line "
              f"takes), {moved / asked:.3f} times the bytes; CPU of the daemons {used[0]:.1f} s, of the server "
              f"{used[1]:.1f} s; requests of each: {[status(m)['requests']['requests'] for m in mounts]}; "
              f"load {os.getloadavg()[0]:.0f}")
        for m in mounts:
            m.umount()
            place.mounts.remove(m)
        gateway.stop()


def read_by_all(mounts, source, gateway):
    """Seconds of each, bytes that the server sent, processor time of daemons and server."""
    pids = [m.process.pid for m in mounts]
    server = gateway.process.pid
    before = moved_bytes(server)[1], processor_seconds(pids), processor_seconds([server])

    def read(m):
        started = time.monotonic()
        read_all(os.path.join(m.mountpoint, "model.pt"), source)
        return time.monotonic() - started

    with concurrent.futures.ThreadPoolExecutor(len(mounts)) as pool:
        seconds = list(pool.map(read, mounts))
    return (seconds, moved_bytes(server)[1] - before[0],
            (processor_seconds(pids) - before[1], processor_seconds([server]) - before[2]))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--objects", type=lambda t: [int(n) for n in names(t)], default=[10**4, 10**5, 10**6],
                        help="sizes of the trees (10000,100000,1000000); a million takes 1 GiB of memory")
    parser.add_argument("--cached", type=int, default=20, help="1 in so many files is read and cached (20)")
    parser.add_argument("--mounts", type=int, default=8, help="mounts at once; 0: none (8)")
    parser.add_argument("--size", type=int, default=1024, help="MiB of the file they read (1024)")
    parser.add_argument("--rate", type=int, default=400, help="Mbit/s of each line (400)")
    return parser.parse_args()


def main():
    arguments = parse()
    table = Table()
    with harness.Workplace("scale", server_data=memory_folder(arguments.size)) as place:
        os.makedirs(place.server_folder, exist_ok=True)
        describe_machine(place)
        place.start_gateway()
        measure_names(place, arguments, table)
        table.print()
        if arguments.mounts and os.geteuid() != 0:
            print("SKIP mounts on lines of their own: needs root")
        elif arguments.mounts:
            measure_mounts(place, arguments)


if __name__ == "__main__":
    main()
