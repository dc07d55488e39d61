"""Measures what a user of a mount waits for, side by side with the native disk and with a raw
parallel client of the same server. Every round measures every system once, one after the other,
in another order each time; the tables show medians with the best and the worst round, and the ratio to the row named first.

The server's data is in memory (/dev/shm); caches and the native folder are on the same disk.

usage: bench.py [--rounds N] [--size MIB] [--files N] [--folders N] [--systems a,b] [--json FILE] [--quick]
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests", "lib"))

import harness
from systems import SYSTEMS, Raw

CHUNK = 8 << 20
SMALL = 16 * 1024


class Results:
    """{measure: {system: [seconds of each round]}}, in the order in which they first came."""

    def __init__(self):
        self.measures = {}
        self.references = {}
        self.highest_load = 0.0

    def add(self, measure, system, seconds, reference):
        self.measures.setdefault(measure, {}).setdefault(system, []).append(seconds)
        self.references[measure] = reference
        self.highest_load = max(self.highest_load, os.getloadavg()[0])

    def print(self, bytes_of):
        for measure, rows in self.measures.items():
            print(f"\n{measure}")
            reference = self.references[measure]
            base = statistics.median(rows[reference]) if reference in rows else None
            size = bytes_of.get(measure)
            for system, seconds in rows.items():
                middle = statistics.median(seconds)
                rate = f"{size / middle / (1 << 20):8.0f} MiB/s" if size else " " * 14
                ratio = f"{middle / base:6.2f} x {reference}" if base else ""
                print(f"  {system:<22} {middle:9.3f} s {rate}  ({min(seconds):.3f} - {max(seconds):.3f})  {ratio}")


class Usage:
    """Processor seconds and the highest memory of processes that come and go."""

    def __init__(self):
        self.cpu = {}
        self.peak = {}

    def look(self, name, pids):
        for pid in pids:
            try:
                with open(f"/proc/{pid}/stat") as f:
                    fields = f.read().rsplit(")", 1)[1].split()
                with open(f"/proc/{pid}/status") as f:
                    high = [int(l.split()[1]) for l in f if l.startswith("VmHWM")]
            except OSError:
                continue
            ticks = int(fields[11]) + int(fields[12])
            self.cpu.setdefault(name, {})[pid] = ticks / os.sysconf("SC_CLK_TCK")
            self.peak[name] = max([self.peak.get(name, 0), *high])

    def print(self):
        print("\nprocesses                 CPU seconds    peak memory")
        for name, by_pid in self.cpu.items():
            print(f"  {name:<22} {sum(by_pid.values()):12.2f} {self.peak[name] / 1024:10.1f} MiB")


def timed(call, *arguments):
    started = time.monotonic()
    call(*arguments)
    return time.monotonic() - started


def settle_disk():
    """What earlier measures left to write does not slow the next."""
    os.sync()



class Bench:
    def __init__(self, place, arguments):
        self.place, self.arguments = place, arguments
        self.results, self.usage = Results(), Usage()
        self.systems = [SYSTEMS[name](place) for name in arguments.systems.split(",")]
        self.raw = Raw(place)
        self.size = arguments.size << 20
        self.source = os.path.join(place.server_folder, "checkpoint")
        with open(self.source, "wb") as f:
            for _ in range(0, self.size, CHUNK):
                f.write(os.urandom(min(CHUNK, self.size)))
        self.bytes_of = {}

    def in_turn(self, number):
        """Another system is first in every round: the first one finds memory and disk as the round
        before left them."""
        first = number % len(self.systems)
        return self.systems[first:] + self.systems[:first]

    def add(self, measure, system, seconds, reference, size=None):
        self.results.add(measure, system, seconds, reference)
        if size:
            self.bytes_of[measure] = size

    def look(self, system):
        self.usage.look(system.name, system.pids())
        self.usage.look("(the S3 server)", [self.place.gateway.process.pid])

    # ---- one checkpoint ----

    def write_checkpoint(self, folder):
        temporary = os.path.join(folder, "model.pt.tmp")
        with open(self.source, "rb", buffering=0) as source, open(temporary, "wb", buffering=0) as f:
            while data := source.read(CHUNK):
                f.write(data)
            os.fsync(f.fileno())
        os.rename(temporary, os.path.join(folder, "model.pt"))

    def read_file(self, path):
        size = 0
        with open(path, "rb", buffering=0) as f:
            while data := f.read(CHUNK):
                size += len(data)
        if size != self.size:
            raise harness.Failure(f"{path} has {size} bytes, must have {self.size}")

    def published(self, system, prefix, write):
        """Mounts and writes; how long that took, and until the store has it. It stays mounted."""
        settle_disk()
        system.up(prefix)
        started = time.monotonic()
        write(system.folder)
        written = time.monotonic() - started
        system.wait_stored()
        return written, time.monotonic() - started

    def checkpoint(self, number):
        label = f"{self.arguments.size} MiB checkpoint"
        for system in self.in_turn(number):
            prefix = f"checkpoint-{system.name}-{number}"
            written, stored = self.published(system, prefix, self.write_checkpoint)
            self.add(f"{label}: write + fsync + rename", system.name, written, "native", self.size)
            if system.has_store:
                self.add(f"{label}: until the store has it", system.name, stored, "s5cmd", self.size)
            self.look(system)
            system.down()
            self.read_checkpoint(system, prefix, label)
            self.remove(prefix)
        self.raw_checkpoint(number, label)

    def read_checkpoint(self, system, prefix, label):
        settle_disk()
        system.up(prefix)
        path = os.path.join(system.folder, "model.pt")
        if system.has_store:
            self.add(f"{label}: cold read", system.name, timed(self.read_file, path), "s5cmd", self.size)
        else:
            self.read_file(path)
        self.add(f"{label}: warm read", system.name, timed(self.read_file, path), "native", self.size)
        self.look(system)
        system.down()

    def raw_checkpoint(self, number, label):
        key, target = f"raw-{number}/model.pt", self.place.path("downloaded")
        settle_disk()
        self.add(f"{label}: until the store has it", "s5cmd", timed(self.raw.upload, self.source, key),
                 "s5cmd", self.size)
        self.add(f"{label}: cold read", "s5cmd", timed(self.raw.download, key, target), "s5cmd", self.size)
        os.unlink(target)
        self.remove(f"raw-{number}")

    def remove(self, prefix):
        """Frees the server's memory and the disk; not measured."""
        shutil.rmtree(os.path.join(self.place.server_folder, "data", self.place.gateway.bucket, prefix),
                      ignore_errors=True)
        shutil.rmtree(self.place.path("native", prefix), ignore_errors=True)

    # ---- many small files ----

    def write_small(self, folder):
        data = b"x" * SMALL
        for i in range(self.arguments.files):
            fd = os.open(os.path.join(folder, f"f{i:06}"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            os.write(fd, data)
            os.close(fd)

    def small_files(self, number):
        label = f"{self.arguments.files} x 16 KiB"
        for system in self.in_turn(number):
            prefix = f"small-{system.name}-{number}"
            written, stored = self.published(system, prefix, self.write_small)
            self.add(f"{label}: create + write + close", system.name, written, "native")
            if system.has_store:
                self.add(f"{label}: until the store has them", system.name, stored, "s5cmd")
            self.look(system)
            system.down()
            self.remove(prefix)
        self.raw_small(number, label)

    def raw_small(self, number, label):
        folder = self.place.make("small")
        self.write_small(folder)
        seconds = timed(self.raw.upload_tree, folder, f"small-raw-{number}")
        self.add(f"{label}: until the store has them", "s5cmd", seconds, "s5cmd")
        shutil.rmtree(folder)
        self.remove(f"small-raw-{number}")

    # ---- many runs ----

    def make_runs(self):
        for base in (self.place.path("tree", "runs"), self.place.path("native", "many", "runs")):
            for i in range(self.arguments.folders):
                where = os.path.join(base, f"run-{i:06}")
                os.makedirs(where)
                with open(os.path.join(where, "config.json"), "w") as f:
                    f.write("{}")
        self.raw.upload_tree(self.place.path("tree"), "many")

    def list_runs(self, folder):
        names = os.listdir(os.path.join(folder, "runs"))
        if len(names) != self.arguments.folders:
            raise harness.Failure(f"{len(names)} run folders are listed, must be {self.arguments.folders}")

    def list_long(self, folder):
        subprocess.run(["ls", "-l", os.path.join(folder, "runs")], check=True, stdout=subprocess.DEVNULL)

    def runs(self, number):
        label = f"ls of {self.arguments.folders} run folders"
        for system in self.in_turn(number):
            system.up("many")
            self.add(f"{label}: first time", system.name, timed(self.list_runs, system.folder), "native")
            self.add(f"{label}: again", system.name, timed(self.list_runs, system.folder), "native")
            self.add(f"{label}: ls -l", system.name, timed(self.list_long, system.folder), "native")
            self.look(system)
            system.down()
        self.add(f"{label}: first time", "s5cmd", timed(self.raw.list, "many/runs"), "native")

    # ---- all ----

    def warm_up(self):
        """Memory that no process has used yet is slow to get on a virtual machine; what the rounds
        will need is touched once."""
        path = self.place.path("warm-up")
        for _ in range(3):
            shutil.copyfile(self.source, path)
        os.unlink(path)

    def run(self):
        self.warm_up()
        self.make_runs()
        for number in range(self.arguments.rounds):
            for measure in (self.checkpoint, self.small_files, self.runs):
                measure(number)
            print(f"round {number + 1} of {self.arguments.rounds}, load {os.getloadavg()[0]:.2f}",
                  file=sys.stderr, flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=1024, help="MiB of the checkpoint (1024)")
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--folders", type=int, default=10000)
    parser.add_argument("--systems", default="native,runfs")
    parser.add_argument("--json", help="write all rounds to this file")
    parser.add_argument("--quick", action="store_true", help="small numbers: only to see that it works")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.size, arguments.files, arguments.folders = 1, 32, 50, 200
    unknown = [s for s in arguments.systems.split(",") if s not in SYSTEMS]
    if unknown:
        parser.error(f"no such system: {', '.join(unknown)}; there are {', '.join(SYSTEMS)}")
    return arguments


def describe_machine(place):
    disk = subprocess.run(["findmnt", "-n", "-o", "FSTYPE", "-T", place.folder], text=True,
                          stdout=subprocess.PIPE, check=False).stdout.strip()
    version = subprocess.run([harness.runfs_binary(), "--version"], text=True, stdout=subprocess.PIPE,
                             check=False).stdout.strip()
    print(f"{version}; Linux {platform.release()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.2f} "
          f"before; caches and native on {disk}, the server's data in /dev/shm")


def main():
    arguments = parse()
    with harness.Workplace("bench", server_data="/dev/shm") as place:
        describe_machine(place)
        place.start_gateway()
        bench = Bench(place, arguments)
        bench.run()
        bench.results.print(bench.bytes_of)
        bench.usage.print()
        print(f"\nmedians of {arguments.rounds} rounds; highest load while measuring "
              f"{bench.results.highest_load:.2f}")
        if arguments.json:
            with open(arguments.json, "w") as f:
                json.dump({"seconds": bench.results.measures, "cpu": bench.usage.cpu,
                           "peak_kib": bench.usage.peak}, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
