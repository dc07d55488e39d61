"""The rows of the comparison. Each function measures one group of rows with one system that is up or
down as the function wishes; bench.py calls it once a round for every system, raw clients included.
"""

import os
import time

from results import Row
from systems import discard, drop_pages
from work import (MIB, Clock, list_long, list_names, random_ranges, read_all, read_first,
                  read_mapped, read_ranges, save, save_zip, stat_all, write_small)

STORED = ("curl", "s5cmd")


def settle():
    """What earlier measures left to write does not slow the next."""
    os.sync()


def written(bench, system, prefix, row, write, paused=False):
    """Mounts and writes; the system stays up and the clock runs on."""
    system.up(prefix, paused)
    settle()
    clock = Clock(bench, system)
    write(system.folder)
    clock.seconds(row)
    return clock


def finished(bench, system, clock, prefix):
    """Takes down what only had to be written, and frees the server's memory."""
    clock.memory()
    system.down()
    bench.remove(system, prefix)


# ---- one checkpoint ----

class Checkpoint:
    """Written with uploads running, until it is stored; then read by a fresh mount."""

    def __init__(self, bench):
        self.bench, self.source = bench, bench.source
        label = f"{bench.source.size // MIB} MiB"
        self.write = Row(f"{label} write + fsync + rename, uploads running")
        self.paused = Row(f"{label} write + fsync + rename, uploads paused")
        self.stored = Row(f"{label} until the store has it", references=STORED)
        self.write_cpu = Row(f"{label} written: CPU of the daemon", references=())
        self.first = Row("time to first byte, warm connections", "ms", ())
        self.cold = Row(f"{label} cold sequential read", references=STORED)
        self.read_cpu = Row(f"{label} read cold: CPU of the daemon", references=())
        self.warm = Row(f"{label} warm read, page cache")
        self.mapped = Row(f"{label} warm read through mmap")
        self.disk = Row(f"{label} warm read, cache disk")

    def run(self, system, number):
        prefix = f"checkpoint-{system.name}-{number}"
        clock = written(self.bench, system, prefix, self.write,
                        lambda folder: save(self.source, folder, system.can_rename))
        if system.has_store:
            system.wait_stored()
            clock.seconds(self.stored)
            clock.processor(self.write_cpu)
        write_small(system.folder, 1)
        clock.memory()
        system.down()
        self.read(system, prefix)
        self.bench.remove(system, prefix)
        if system.can_pause:
            prefix += "-paused"
            clock = written(self.bench, system, prefix, self.paused,
                            lambda folder: save(self.source, folder), True)
            finished(self.bench, system, clock, prefix)

    def read(self, system, prefix):
        system.up(prefix)
        settle()
        path = os.path.join(system.folder, "model.pt")
        if system.has_store:
            read_first(os.path.join(system.folder, "f000000"))  # a connection is open, nothing more
            clock = Clock(self.bench, system)
            read_first(path)
            clock.seconds(self.first, 1000)
            read_all(path, self.source)
            clock.seconds(self.cold)
            clock.processor(self.read_cpu)
        else:
            read_all(path, self.source)
        self.read_warm(system, path)
        Clock(self.bench, system).memory()
        system.down()

    def read_warm(self, system, path):
        clock = Clock(self.bench, system)
        read_all(path, self.source)
        clock.seconds(self.warm)
        clock = Clock(self.bench, system)
        read_mapped(path, self.source.size)
        clock.seconds(self.mapped)
        drop_pages(path, system.cache_folders())
        clock = Clock(self.bench, system)
        read_all(path, self.source)
        clock.seconds(self.disk)

    def raw_s5cmd(self, client, number):
        key, target = f"raw-{number}/model.pt", self.bench.place.path("downloaded")
        settle()
        clock = Clock(self.bench, client)
        client.upload(self.source.path, key)
        clock.seconds(self.stored)
        clock = Clock(self.bench, client)
        client.download(key, target, self.source.size)
        clock.seconds(self.cold)
        os.unlink(target)
        self.bench.remove(client, f"raw-{number}")

    def raw_curl(self, client, number):
        parts = self.bench.source_parts()
        settle()
        clock = Clock(self.bench, client)
        client.upload(parts, f"curl-{number}/model.pt")
        clock.seconds(self.stored)
        clock = Clock(self.bench, client)
        client.download(f"curl-{number}/model.pt", None, self.source.size)
        clock.seconds(self.cold)
        self.bench.remove(client, f"curl-{number}")


class Zip:
    """The archive that torch.save() writes: its header changes at the end."""

    def __init__(self, bench):
        self.bench = bench
        label = f"{bench.source.size * 7 // 8 // MIB} MiB zip save, header patched at the end"
        self.running, self.paused = Row(f"{label}, uploads running"), Row(f"{label}, uploads paused")
        self.stored = Row(f"{label}, until the store has it", references=())

    def run(self, system, number):
        for row, paused in ((self.running, False), (self.paused, True)):
            if paused and not system.can_pause:
                continue
            prefix = f"zip-{system.name}-{number}-{int(paused)}"
            clock = written(self.bench, system, prefix, row,
                            lambda folder: save_zip(self.bench.source, folder), paused)
            if system.has_store and not paused:
                system.wait_stored()
                clock.seconds(self.stored)
            finished(self.bench, system, clock, prefix)


class Random:
    """Cold random reads, as of a dataset or of some tensors of a checkpoint."""

    ONLY_READS = True

    def __init__(self, bench):
        self.bench, self.ranges = bench, random_ranges(bench.source.size)
        asked = sum(length for _, length in self.ranges)
        label = f"{asked // MIB} MiB in {len(self.ranges)} random reads, cold, 8 threads"
        self.asked, self.time = asked, Row(label, references=())
        self.bytes = Row(f"{label}: bytes from the store", "x", ())

    def run(self, system, _number):
        if not system.has_store:
            return
        prefix = self.bench.one_file(system)
        system.up(prefix)
        path = os.path.join(system.folder, "model.pt")
        os.stat(path)
        clock = Clock(self.bench, system)
        read_ranges(path, self.ranges)
        clock.seconds(self.time)
        clock.sent(self.bytes, self.asked)
        clock.memory()
        system.down()


# ---- small files ----

class Small:
    def __init__(self, bench, count=None, note=""):
        self.bench, self.count, self.note = bench, count or bench.arguments.files, note
        label = f"{self.count} x 16 KiB{note}"
        self.create = Row(f"{label}: create + write + close")
        self.stored = Row(f"{label}: until the store has them", references=("s5cmd",))

    def run(self, system, number):
        prefix = f"small-{system.name}-{number}"
        clock = written(self.bench, system, prefix, self.create,
                        lambda folder: write_small(folder, self.count))
        if system.has_store:
            system.wait_stored()
            clock.seconds(self.stored)
        finished(self.bench, system, clock, prefix)

    def raw_s5cmd(self, client, number):
        folder = self.bench.place.make("small")
        write_small(folder, self.count)
        clock = Clock(self.bench, client)
        client.upload_tree(folder, f"small-raw-{number}")
        clock.seconds(self.stored)
        discard(self.bench.place, folder)
        self.bench.remove(client, f"small-raw-{number}")


class Directory:
    """A checkpoint of many files in a folder that gets its name at the end."""

    COUNT = 100

    def __init__(self, bench):
        self.bench = bench
        label = f"{self.COUNT} x 1 MiB in a folder"
        self.write = Row(f"{label}: written and renamed")
        self.rename = Row(f"{label}: the rename", "ms")
        self.stored = Row(f"{label}: until the store has it", references=STORED)
        self.bytes = Row(f"{label}: bytes that the server read", "x", ())

    def run(self, system, number):
        if not system.can_rename:
            return
        prefix = f"directory-{system.name}-{number}"
        system.up(prefix)
        settle()
        clock = Clock(self.bench, system)
        made = os.path.join(system.folder, "step-1.tmp")
        os.mkdir(made)
        write_small(made, self.COUNT, MIB)
        renaming = Clock(self.bench, system)
        os.rename(made, os.path.join(system.folder, "step-1"))
        renaming.seconds(self.rename, 1000)
        clock.seconds(self.write)
        if system.has_store:
            system.wait_stored()
            clock.seconds(self.stored)
            clock.received(self.bytes, self.COUNT * MIB)
        finished(self.bench, system, clock, prefix)

    def upload(self, client, number, call):
        folder = self.bench.place.make("folder")
        write_small(folder, self.COUNT, MIB)
        clock = Clock(self.bench, client)
        call(folder, f"directory-{client.name}-{number}")
        clock.seconds(self.stored)
        clock.received(self.bytes, self.COUNT * MIB)
        discard(self.bench.place, folder)
        self.bench.remove(client, f"directory-{client.name}-{number}")

    def raw_s5cmd(self, client, number):
        self.upload(client, number, client.upload_tree)

    def raw_curl(self, client, number):
        self.upload(client, number, lambda folder, prefix: client.upload_each(
            [os.path.join(folder, name) for name in sorted(os.listdir(folder))], prefix))


# ---- names ----

class List:
    """ls of many run folders, by a fresh mount."""

    ONLY_READS = True

    def __init__(self, bench, count=None, note=""):
        self.bench, self.count = bench, count or bench.arguments.folders
        self.first = Row(f"ls of {self.count} run folders{note}, cold", references=("native", "s5cmd"))

    def run(self, system, _number):
        prefix = self.bench.tree(system, self.count, 1)
        system.up(prefix)
        clock = Clock(self.bench, system)
        list_names(system.folder, self.count)
        clock.seconds(self.first)
        clock.memory()
        system.down()

    def raw_s5cmd(self, client, _number):
        prefix = self.bench.tree(client, self.count, 1)
        clock = Clock(self.bench, client)
        client.list(prefix)
        clock.seconds(self.first)


class Walk:
    """ls -lR of runs with three files each, by a fresh mount; then stat of all of them again. runfs walks
    twice, with an empty cache each time: the first mount finds no index and leaves one behind."""

    ONLY_READS = True

    FILES = 3

    def __init__(self, bench, count=None, note=""):
        self.bench, self.count = bench, count or bench.arguments.runs
        self.walk = Row(f"ls -lR of {self.count} runs x {self.FILES} files{note}, cold",
                        references=("native", "s5cmd"))
        self.first = Row(f"ls -lR of {self.count} runs x {self.FILES} files{note}, cold, before there is an index",
                         references=("native", "s5cmd"))
        self.stats = Row("stat, warm", "/s")
        self.with_stats = not note

    def run(self, system, _number):
        prefix = self.bench.tree(system, self.count, self.FILES)
        if system.keeps_index:
            self.bench.remove(system, f"{prefix}.runfs")
            time.sleep(3)  # what has just come can't be put into an index
            self.list(system, prefix, self.first)
            system.down()
        clock = self.list(system, prefix, self.walk)
        if self.with_stats:
            self.stat(system)
        clock.memory()
        system.down()

    def list(self, system, prefix, row):
        system.up(prefix)
        clock = Clock(self.bench, system)
        list_long(system.folder, self.count * self.FILES)
        clock.seconds(row)
        return clock

    def stat(self, system):
        paths = [os.path.join(system.folder, f"run-{i:06}", "file-0.json") for i in range(min(self.count, 100))]
        stat_all(paths, 0)
        clock = Clock(self.bench, system)
        clock.rate(self.stats, stat_all(paths, 2))

    def raw_s5cmd(self, client, _number):
        prefix = self.bench.tree(client, self.count, self.FILES)
        clock = Clock(self.bench, client)
        client.list_all(prefix)
        clock.seconds(self.walk)


class FirstByte:
    """Over a longer wire: how many round trips until the first byte of a file is there."""

    ONLY_READS = True

    def __init__(self, bench, note):
        self.bench, self.first = bench, Row(f"time to first byte{note}, warm connections", "ms", ())

    def run(self, system, _number):
        if not system.has_store:
            return
        prefix = self.bench.one_file(system)
        system.up(prefix)
        read_first(os.path.join(system.folder, "f000000"))
        clock = Clock(self.bench, system)
        read_first(os.path.join(system.folder, "model.pt"))
        clock.seconds(self.first, 1000)
        system.down()


GROUPS = {"checkpoint": Checkpoint, "zip": Zip, "random": Random, "small": Small, "directory": Directory,
          "list": List, "walk": Walk}
