"""Jobs of AdaptDL, each a restart in a process of its own that may be killed at any step, or have the daemon killed
there. They tell by a pipe how far they came."""

import os
import signal
import sys

from adaptdl import checkpoint

from harness import Failure, check

SIZE = 1_000_001
CHUNK = 65_536
# What is asked of the filesystem, as Python's audit hooks name it; each is told before it is done.
CALLS = {"open", "os.mkdir", "os.listdir", "os.scandir", "os.rename", "os.remove", "os.rmdir"}
LOAD = "load" # instead of a step: it loads, and saves nothing


def content(name, number):
    return f"{number:08}{name}".encode() * ((SIZE + number) // (8 + len(name)))


class Piece(checkpoint.State):
    """What it holds is named by a number: that of the restarts that it lived through."""

    def __init__(self, name, steps):
        super().__init__(name)
        self.name, self.steps, self.number = name, steps, 0

    def save(self, f):
        data = content(self.name, self.number)
        for at in range(0, len(data), CHUNK):
            self.steps.one("write")
            f.write(data[at:at + CHUNK])

    def load(self, f):
        data = f.read()
        self.number = int(data[:8] or b"-1")
        check(data == content(self.name, self.number), f"{self.name}: {len(data)} bytes, no whole {self.number}")


class Steps:
    """Counts what the job asks for, and does at the step `last` what it is to do there."""

    def __init__(self, pipe, last, act):
        self.pipe, self.last, self.act = pipe, last, act
        self.count, self.before = 0, None

    def hook(self, event, _):
        if event in CALLS:
            self.one(event)

    def one(self, what):
        before, self.before = self.before, what
        if before == "os.rename": # it has returned well: a job ends where it fails
            self.tell("saved")
        self.count += 1
        if self.count == self.last:
            self.act()
        if what == "os.rename":
            self.tell("saving")

    def tell(self, *words):
        os.write(self.pipe, (" ".join(map(str, words)) + "\n").encode())


def work(folder, restart, names, steps, saves):
    os.environ.update(ADAPTDL_CHECKPOINT_PATH=folder, ADAPTDL_NUM_RESTARTS=str(restart), ADAPTDL_REPLICA_RANK="0",
                      ADAPTDL_JOB_ID="test/job", ADAPTDL_MASTER_PORT="0")
    pieces = [Piece(name, steps) for name in names]
    found = [checkpoint.load_state(piece) for piece in pieces]
    numbers = [piece.number if there else None for piece, there in zip(pieces, found)]
    steps.tell("loaded", *numbers)
    if saves:
        for piece in pieces:
            piece.number = restart + 1
        checkpoint.save_all_states()
    steps.tell("steps", steps.count)


class Told:
    """What a job has told: the numbers of its pieces as they were loaded (None: nothing), whether its save was begun
    and acknowledged, and how it ended."""

    def __init__(self):
        self.loaded, self.saving, self.saved, self.steps, self.status, self.error = None, False, False, 0, None, ""

    def take(self, word, *rest):
        if word == "loaded":
            self.loaded = [None if n == "None" else int(n) for n in rest]
        elif word == "steps":
            self.steps = int(rest[0])
        elif word == "error":
            self.error = " ".join(rest)
        else:
            setattr(self, word, True)

    def number(self):
        """Of all pieces; 0 when nothing was there; None when they do not agree."""
        found = set(self.loaded or [])
        return (found.pop() or 0) if len(found) == 1 else None


def child(pipe, folder, restart, names, last, kills):
    def act():
        if "daemon" in kills:
            steps.tell("daemon")
        if "job" in kills:
            os.kill(os.getpid(), signal.SIGKILL)

    steps = Steps(pipe, last, act)
    sys.addaudithook(steps.hook)
    try:
        work(folder, restart, names, steps, last != LOAD)
        return 0
    except (OSError, Failure) as e:
        steps.tell("error", repr(e))
        return 1


def run(folder, restart, names, last=None, kills=(), daemon=None):
    """One restart in a process of its own, as restarts are; at its step `last` what `kills` names is killed: `job`,
    `daemon` (by a call of `daemon`, while the job goes on)."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            os.close(read)
            code = child(write, folder, restart, names, last, kills)
        finally:
            os._exit(code)
    os.close(write)
    told = Told()
    with os.fdopen(read) as lines:
        for line in lines:
            if line == "daemon\n":
                daemon()
            else:
                told.take(*line.split())
    told.status = os.waitpid(pid, 0)[1]
    return told


def load(folder, names):
    """What AdaptDL finds there."""
    told = run(folder, 0, names, LOAD)
    check(told.status == 0, f"{folder}: {told.error}")
    return told
