"""Measures what a user of a mount waits for, side by side: the native disk, runfs, the filesystems
of others, and parallel clients without a filesystem. Every round measures every system once, one
after the other, in another order each time; the tables show medians with the best and the worst
round, ratios, the processor time of the server and the machine's load.

The server's data is in memory (/dev/shm); caches and the native folder are on the same disk.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests", "lib"))

import harness
from peers import PEERS
from raw import STREAMS, Curl, S5cmd
from results import Results
from rows import GROUPS, FirstByte, List, Small, Walk
from systems import OURS, empty_trash
from wire import LongWire
from work import MIB, Source, limit, make_runs, save, write_small

SYSTEMS = {**OURS, **PEERS}


class Bench:
    def __init__(self, place, arguments, systems):
        self.place, self.arguments, self.systems = place, arguments, systems
        self.results = Results()
        self.clients = [S5cmd(place), Curl(place)]
        self.source = Source(os.path.join(place.server_folder, "checkpoint"), arguments.size * MIB)
        self.ready = set()
        self.failed = False

    # ---- what rows read ----

    def source_parts(self):
        """The checkpoint as files, in memory, for a client that can't send a part of one."""
        folder = os.path.join(self.place.server_folder, "parts")
        step = max(-(-self.source.size // STREAMS), 5 * MIB)  # S3's smallest part
        paths = [os.path.join(folder, str(i)) for i in range(-(-self.source.size // step))]
        if not os.path.exists(folder):
            os.mkdir(folder)
            for i, path in enumerate(paths):
                with open(path, "wb") as f:
                    f.write(self.source.bytes[i * step:(i + 1) * step])
        return paths

    def filled(self, name, system, write):
        """The prefix at which a system finds what write(folder) writes; made once, by s5cmd for all who
        see what other clients put there."""
        owner = system if getattr(system, "own_tree", False) else None
        prefix = f"{name}-{owner.name}" if owner else name
        if prefix in self.ready:
            return prefix
        if owner:
            owner.fill(prefix, write)
        else:
            write(self.place.make("native", prefix))
            self.clients[0].upload_tree(self.place.path("native", prefix), prefix)
        self.ready.add(prefix)
        return prefix

    def one_file(self, system):
        def write(folder):
            save(self.source, folder, False)
            write_small(folder, 1)
        return self.filled("one-file", system, write)

    def tree(self, system, runs, files):
        return self.filled(f"runs-{runs}-{files}", system, lambda folder: make_runs(folder, runs, files))

    def remove(self, system, prefix):
        """Frees the server's memory and the disk; not measured."""
        if hasattr(system, "forget"):
            system.forget(prefix)
        shutil.rmtree(os.path.join(self.place.server_folder, "data", self.place.gateway.bucket, prefix),
                      ignore_errors=True)

    # ---- rounds ----

    def in_turn(self, number):
        """Another system is first in every round: the first one finds memory and disk as the round
        before left them."""
        first = number % len(self.systems)
        return self.systems[first:] + self.systems[:first]

    def measure(self, group, number):
        for system in self.in_turn(number):
            if getattr(group, "ONLY_READS", False) and system.reads_like in [s.name for s in self.systems]:
                continue
            self.attempt(type(group).__name__.lower(), system, lambda s=system: group.run(s, number))
        for client in self.clients:
            if hasattr(group, f"raw_{client.name}"):
                getattr(group, f"raw_{client.name}")(client, number)

    def attempt(self, what, system, call):
        """What a peer can't do is told; what runfs can't do is a failure, too."""
        try:
            with limit(self.arguments.patience):
                call()
        except (OSError, harness.Failure, subprocess.SubprocessError) as e:
            self.results.add_cannot(what, system.name, f"{type(e).__name__}: {e}")
            self.failed = self.failed or system.name in OURS
            if system.name in OURS:
                for mount in self.place.mounts:
                    mount.kill()
                self.place.mounts.clear()
            else:
                system.end()

    def warm_up(self):
        """Memory that no process has used yet is slow to get on a virtual machine; what the rounds
        will need is touched once."""
        path = self.place.path("warm-up")
        for _ in range(3):
            shutil.copyfile(self.source.path, path)
        os.unlink(path)

    def keep(self):
        """What there is so far: a run takes long."""
        if self.arguments.json:
            self.results.save(self.arguments.json)
        if self.arguments.markdown:
            with open(self.arguments.markdown, "w") as f:
                f.write(self.results.markdown())

    def run(self):
        self.warm_up()
        groups = [GROUPS[name](self) for name in self.arguments.rows if name in GROUPS]
        for number in range(self.arguments.rounds):
            for group in groups:
                self.measure(group, number)
            empty_trash(self.place)
            self.keep()
            print(f"round {number + 1} of {self.arguments.rounds}, load {os.getloadavg()[0]:.2f}",
                  file=sys.stderr, flush=True)

    def run_far(self):
        """The rows of small requests again, over a longer wire, with fewer files."""
        for milliseconds in self.arguments.rtt:
            note = f", {milliseconds} ms round trip"
            wire = LongWire(self.place.gateway.port, milliseconds)
            groups = [Small(self, self.arguments.far_files, note), List(self, self.arguments.folders, note),
                      Walk(self, self.arguments.far_runs, note), FirstByte(self, note)]
            for system in self.systems:  # what has to be there is written without the wire
                if system.own_tree:
                    self.one_file(system)
                    self.tree(system, self.arguments.far_runs, Walk.FILES)
            self.place.endpoint = wire.endpoint
            try:
                for number in range(self.arguments.far_rounds):
                    for group in groups:
                        self.measure(group, number)
            finally:
                self.place.endpoint = self.place.gateway.endpoint
                wire.stop()
            self.keep()
            print(f"{milliseconds} ms done, load {os.getloadavg()[0]:.2f}", file=sys.stderr, flush=True)


def names(text):
    return [name for name in text.split(",") if name]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=1024, help="MiB of the checkpoint (1024)")
    parser.add_argument("--files", type=int, default=1000, help="small files (1000)")
    parser.add_argument("--folders", type=int, default=10000, help="run folders of ls (10000)")
    parser.add_argument("--runs", type=int, default=1000, help="run folders of ls -lR (1000)")
    parser.add_argument("--rows", type=names, default=[*GROUPS, "far"],
                        help=f"which of {','.join(GROUPS)},far (all)")
    parser.add_argument("--ours", type=names, default=["native", "runfs"], help=f"which of {','.join(OURS)}")
    parser.add_argument("--peers", type=names, default=[*PEERS], help=f"which of {','.join(PEERS)} (all)")
    parser.add_argument("--rtt", type=lambda t: [int(n) for n in names(t)], default=[1, 10, 50],
                        help="round trips of the rows \"far\", in ms (1,10,50)")
    parser.add_argument("--far-rounds", type=int, default=3)
    parser.add_argument("--far-files", type=int, default=200)
    parser.add_argument("--far-runs", type=int, default=100)
    parser.add_argument("--patience", type=int, default=300,
                        help="seconds for one system in one group of rows (300)")
    parser.add_argument("--json", help="write all rounds to this file")
    parser.add_argument("--markdown", help="write one table to this file")
    parser.add_argument("--quick", action="store_true", help="small numbers: only to see that it works")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.size, arguments.files = 1, 32, 50
        arguments.folders, arguments.runs, arguments.far_files, arguments.far_runs = 200, 50, 20, 10
        arguments.far_rounds, arguments.rtt = 1, [10]
    arguments.systems = [*arguments.ours, *arguments.peers]
    for chosen, known in ((arguments.systems, SYSTEMS), (arguments.rows, [*GROUPS, "far"])):
        unknown = [name for name in chosen if name not in known]
        if unknown:
            parser.error(f"no such name: {', '.join(unknown)}; there are {', '.join(known)}")
    return arguments


def describe_machine(place):
    disk = subprocess.run(["findmnt", "-n", "-o", "FSTYPE", "-T", place.folder], text=True,
                          stdout=subprocess.PIPE, check=False).stdout.strip()
    version = subprocess.run([harness.runfs_binary(), "--version"], text=True, stdout=subprocess.PIPE,
                             check=False).stdout.strip()
    print(f"{version}; Linux {platform.release()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.2f} "
          f"before; caches and native on {disk}, the server's data in {os.path.dirname(place.server_folder)}")


def available(systems):
    """Those that can be had here; the others are named."""
    found = []
    for system in systems:
        why = system.missing()
        if why:
            print(f"missing: {system.name}: {why}")
        else:
            found.append(system)
    return found


def memory_folder(size):
    """Where the server's data is: in memory, when that holds some copies of the checkpoint."""
    free = os.statvfs("/dev/shm")
    return "/dev/shm" if free.f_bavail * free.f_frsize > 6 * size * MIB else None


def main():
    arguments = parse()
    with harness.Workplace("bench", server_data=memory_folder(arguments.size)) as place:
        os.makedirs(place.server_folder, exist_ok=True)
        systems = available([SYSTEMS[name](place) for name in arguments.systems])
        describe_machine(place)
        place.start_gateway()
        place.endpoint = place.gateway.endpoint
        bench = Bench(place, arguments, systems)
        bench.run()
        if "far" in arguments.rows:
            bench.run_far()
        bench.results.print()
        print(f"\nmedians of {arguments.rounds} rounds ({arguments.far_rounds} over a longer wire); highest load "
              f"while measuring {bench.results.highest_load:.2f}")
        return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
