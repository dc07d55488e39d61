"""Several stores in one tree: what dies between them."""

import os
import threading

from harness import check, wait_for
from scenario import on_routed

KNOWN = ("attr_timeout=300s", "list_timeout=300s") # no store is asked for what was listed once
PARTS = ("checkpoint", "metadata")


class Writer(threading.Thread):
    """A program that writes into one store without a pause until its mount is gone: the next turn replaces the files of the
    one before, each once, as nobody can keep what a program has cut off before it was stored."""

    def __init__(self, node, part, turn):
        super().__init__(daemon=True)
        self.node, self.part, self.turn = node, part, turn
        self.closed = 0
        self.mistake = None

    def run(self):
        try:
            while self.write(f"runs/r{self.closed % 3}/{self.part}/f{self.closed}",
                             b"%s %d of turn %d. " % (self.part.encode(), self.closed, self.turn) * 200):
                self.closed += 1
        except Exception as e:
            self.mistake = e
            raise

    def write(self, key, body):
        """False when the program was told that it failed, in whichever of its calls."""
        try:
            self.node.write(key, body)
            return True
        except OSError:
            self.node.oracle.unacknowledged(self.node.name, key, body)
            return False


def make_runs(a):
    for run in range(3):
        for part in PARTS:
            os.makedirs(a.path(f"runs/r{run}/{part}"), exist_ok=True)


def killed_while_both_write(a, turn, closed):
    """SIGKILL in the middle of both, when each has closed so many files."""
    writers = [Writer(a, part, turn) for part in PARTS]
    for writer in writers:
        writer.start()
    wait_for("the writers", lambda: all(w.closed >= closed or not w.is_alive() for w in writers), 60)
    a.mount.process.kill()
    for writer in writers:
        writer.join()
    check(not any(w.mistake for w in writers), "a writer gave up")
    check(all(w.closed >= closed for w in writers), f"closed: {[w.closed for w in writers]}")
    a.kill()


def published(a, w):
    """What was acknowledged is in both stores after the next flush; what a writer had not closed is set aside, and told."""
    a.up()
    code = a.flush(60)
    kept = [name for _, _, names in os.walk(os.path.join(a.cache, "kept")) for name in names]
    check(code == (3 if kept else 0), f"flush: exit {code}, set aside: {kept}")
    stored = w.store.objects()
    w.oracle.claimed("a", stored, f"runfs flush, exit code {code},")
    for part in PARTS:
        check(any(f"/{part}/" in key for key in stored), f"nothing of {part} is stored")


@on_routed
def killed_while_both_stores_are_written(w):
    """Once beside stores that answer, and once beside stores that are away: then all of it is owed to both."""
    a = w.node("a", KNOWN)
    make_runs(a)
    killed_while_both_write(a, 0, 60)
    published(a, w)
    for where, _, files in os.walk(a.path("runs")): # what is known can be written without a store
        for name in files:
            os.stat(os.path.join(where, name))
    w.store.cut_off()
    killed_while_both_write(a, 1, 60)
    before = w.store.objects()
    owed = {key.split("/")[2] for key, version in w.oracle.owed_by("a") if before.get(key) != version.body}
    check(owed == set(PARTS), f"owed to both was wanted, not {owed}")
    w.store.connect()
    published(a, w)


@on_routed
def killed_while_a_run_moves_in_both(w):
    """A run gets another name in both stores, is written to below it, and the daemon dies."""
    a = w.node()
    make_runs(a)
    keys = [f"runs/r0/{part}/f{i}" for part in PARTS for i in range(20)]
    for key in keys:
        a.write(key, key.encode())
    check(a.flush() == 0, "flush")
    for old, new in (("r0", "moved"), ("moved", "r0"), ("r0", "last")):
        a.move_folder(f"runs/{old}", f"runs/{new}", [key.replace("r0", old) for key in keys])
        for part in PARTS:
            a.write(f"runs/{new}/{part}/f0", f"{part} in {new}".encode())
        a.kill()
        a.up()
    check(a.flush() == 0, "flush")
    left = {key for key in w.store.objects() if not key.startswith("runs/last/")}
    check(not left, f"left at old names: {sorted(left)[:5]}")


CASES = [killed_while_both_stores_are_written, killed_while_a_run_moves_in_both]
