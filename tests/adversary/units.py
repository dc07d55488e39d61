"""Checkpoints that one node publishes and another one reads: never half of one, whatever becomes of the first."""

import os
import random
import threading
import time

from harness import check, wait_for
from scenario import everywhere, on_s3, once

PARTS = ("x", "y", "z", "tail")
OWNER = ("lock_ttl=1s", "unit_idle=1h")


class Watcher(threading.Thread):
    """Lists units on a node, again and again: each is not there, or whole."""

    def __init__(self, node, units):
        super().__init__(daemon=True)
        self.node, self.units, self.half, self.looks = node, units, [], 0
        self.ends = threading.Event()
        self.start()

    def run(self):
        while not self.ends.is_set():
            for unit in self.units:
                names = shown(self.node, unit)
                if names is not None and names != set(PARTS):
                    self.half.append(f"{unit}: {sorted(names)}")
            self.looks += 1

    def end(self):
        self.ends.set()
        self.join(60)
        check(not self.is_alive(), f"hangs: {self.node.name} does not answer")
        check(self.looks, f"{self.node.name} was never looked at")
        check(not self.half, f"half a unit is shown: {self.half[:3]}")


def shown(node, unit):
    try:
        return set(os.listdir(node.path(unit)))
    except FileNotFoundError:
        return None


def sees_whole(node, unit):
    wait_for(f"{node.name} shows {unit}", lambda: shown(node, unit) == set(PARTS), 30, 0.1)
    for part in PARTS:
        node.read(f"{unit}/{part}")


def save(node, unit, parts=PARTS):
    os.makedirs(node.path(unit), exist_ok=True)
    for part in parts:
        node.write(f"{unit}/{part}", f"{unit} {part}".encode())


def clean(node, how, unit):
    """runfs units --adopt, or --drop; its exit code."""
    return node.mount.run("units", f"--{how}", node.path(unit), seconds=90).returncode


def begun(w):
    """An owner whose unit lacks its tail in the store, and a reader."""
    a, b = w.node("a", options=OWNER), w.node("b", options=OWNER)
    save(a, "checkpoint-1")
    wait_for("the store has all but the tail", lambda: {f"checkpoint-1/{p}" for p in PARTS[:-1]} <= set(w.store.objects()))
    check(w.stored("checkpoint-1/tail") is None, "the tail is there before the unit has settled")
    check(shown(b, "checkpoint-1") is None, "half a unit is shown")
    return a, b


def dropped_behind(w, a, b, goes, comes):
    """Another node takes the owner for dead and drops what it left: what is published later is whole."""
    goes()
    watcher = Watcher(b, ["checkpoint-1"])
    check(clean(b, "drop", "checkpoint-1") == 0, "runfs units --drop behind an owner that is away")
    check(not any(key.startswith("checkpoint-1/") for key in w.store.objects()), "something is left of what was dropped")
    comes()
    check(a.flush() == 0, "flush of an owner that came back")
    watcher.end()
    sees_whole(b, "checkpoint-1")


@everywhere
def dropped_behind_a_stopped_owner(w):
    a, b = begun(w)
    dropped_behind(w, a, b, a.freeze, a.thaw)


@everywhere
def dropped_behind_a_killed_owner(w):
    a, b = begun(w)
    dropped_behind(w, a, b, a.kill, a.up)


@on_s3
def adopted_behind_a_stopped_owner(w):
    """What is there is shown; what the owner has comes later, as an edit."""
    a, b = begun(w)
    a.freeze()
    check(clean(b, "adopt", "checkpoint-1") == 0, "runfs units --adopt behind an owner that is away")
    wait_for("b shows what was adopted", lambda: shown(b, "checkpoint-1") == set(PARTS[:-1]), 10, 0.1)
    a.thaw()
    check(a.flush() == 0, "flush of an owner that came back")
    sees_whole(b, "checkpoint-1")


@everywhere
def nobody_cleans_up_beside_a_living_owner(w):
    """Exit code 3, and nothing is touched."""
    a, b = begun(w)
    for how in ("adopt", "drop"):
        check(clean(b, how, "checkpoint-1") == 3, f"runfs units --{how} beside a living owner")
        check(shown(b, "checkpoint-1") is None, "half a unit is shown")
    check(clean(a, "drop", "checkpoint-1") not in (0, 3), "runfs units --drop of a unit of one's own")
    check(a.flush() == 0, "flush")
    sees_whole(b, "checkpoint-1")


@everywhere
def owner_is_stopped_and_killed(w):
    """At random moments while it saves; another node looks all the time."""
    chance = random.Random(7)
    a, b = w.node("a", options=("lock_ttl=1s", "unit_idle=200ms")), w.node("b", options=OWNER)
    units = [f"checkpoint-{i}" for i in range(12)]
    watcher = Watcher(b, units)
    for i, unit in enumerate(units):
        save(a, unit)
        time.sleep(chance.uniform(0, 0.4))
        if i % 3 == 0:
            a.kill()
            a.up()
        elif i % 3 == 1:
            a.freeze()
            time.sleep(chance.uniform(0, 2.5)) # beyond its lease, at times
            a.thaw()
    check(a.flush() == 0, "flush")
    watcher.end()
    for unit in units:
        sees_whole(b, unit)


@on_s3
def store_is_away_while_units_come(w):
    a, b = w.node("a", options=("lock_ttl=1s", "unit_idle=200ms")), w.node("b", options=OWNER)
    units = [f"checkpoint-{i}" for i in range(12)]
    for i, unit in enumerate(units):
        save(a, unit)
        if i % 4 == 0:
            w.store.cut_off()
            time.sleep(1.3)
            w.store.connect()
    watcher = Watcher(b, units)
    check(a.flush(60) == 0, "flush")
    watcher.end()
    for unit in units:
        sees_whole(b, unit)


@once
def many_units_at_once(w):
    """Two nodes save a hundred each, a third one reads."""
    owners = [w.node(name, options=OWNER) for name in ("a", "b")]
    reader = w.node("c", options=OWNER)
    units = [f"{node.name}/checkpoint-{i}" for i in range(100) for node in owners]
    watcher = Watcher(reader, units)
    for node in owners:
        for unit in units:
            if unit.startswith(f"{node.name}/"):
                save(node, unit)
    for node in owners:
        check(node.flush(60) == 0, "flush")
    watcher.end()
    for unit in units:
        sees_whole(reader, unit)


CASES = [dropped_behind_a_stopped_owner, dropped_behind_a_killed_owner, adopted_behind_a_stopped_owner,
         nobody_cleans_up_beside_a_living_owner, owner_is_stopped_and_killed, store_is_away_while_units_come,
         many_units_at_once]
