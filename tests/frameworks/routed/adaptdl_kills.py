"""AdaptDL's restarts in a mount of its layout, with kill -9 of the job and of the daemon at steps that a seed chooses.
Nothing that was acknowledged is lost; and what AdaptDL loads from a plain copy of the store of any moment, taken all
the while, is the newest acknowledged state or the one before."""

import functools
import os
import random
import shutil
import time
from collections import Counter

import adaptdl_jobs
from harness import check
from moments import Moments, stopped

SEED = int(os.environ.get("FRAMEWORKS_SEED", 1))
NIGHT = bool(os.environ.get("RUNFS_NIGHTLY"))
ROUNDS = 4 if NIGHT else 1
# What becomes of the restarts 0..5, in another order each time. LATE: the daemon is killed while the job's save goes up.
LATE = ("late",)
KILLS = [(), ("job",), ("job",), ("daemon",), ("job", "daemon"), LATE]
PAUSE_SECONDS = 0.001
STORE = "jobs"
# A folder renames a directory as it is: what a flush had stored of a staging name before a job was killed is under the new
# name until the next job's file is there (docs/promises.md), and a copy of that moment has half a state.
KINDS = ["s3"]


class Job:
    """The restarts of one job, and what may be found of it. Each follows a flush, also after a kill: what was
    acknowledged is in the store then, so that copies may be behind by the newest save only."""

    def __init__(self, stores, mount, name, pieces, rng):
        self.stores, self.mount, self.name, self.pieces, self.rng = stores, mount, name, pieces, rng
        self.folder = os.path.join(mount.mountpoint, name)
        os.mkdir(self.folder)
        self.acknowledged, self.newest, self.in_part = [0], 0, 0
        self.steps = self.count_steps(stores.place.make("plain", name))

    def count_steps(self, folder):
        """Of a whole restart, by a plain folder."""
        for restart in range(2):
            told = adaptdl_jobs.run(folder, restart, self.pieces)
            check(told.status == 0 and told.number() == restart, f"a plain folder: {vars(told)}")
        return told.steps

    def limits(self):
        """Between them is the state that a copy taken now has."""
        return self.acknowledged[-2:][0], self.newest

    def restart(self, number, kills):
        self.newest = number + 1
        told = adaptdl_jobs.run(self.folder, number, self.pieces, self.rng.randint(1, self.steps), kills,
                                self.mount.process.kill)
        self.check_told(told, kills, number)
        if told.saved:
            self.acknowledged.append(number + 1)
        if kills == LATE:
            time.sleep(self.rng.uniform(0, 0.2)) # any time is right
        if kills == LATE or "daemon" in kills:
            self.mount.kill()
            self.mount.start()
            self.take_kept()
        self.flush()
        self.settle(number + 1 if told.saving else self.acknowledged[-1])

    def take_kept(self):
        """What the job was writing when the daemon was killed is not published; it is still staged. No end is clean before
        the next mount after it was taken away."""
        kept = os.path.join(self.mount.cache, "kept")
        paths = [os.path.join(where, name) for where, _, names in os.walk(kept) for name in names]
        for path in paths:
            check(os.path.basename(os.path.dirname(path)) == "_checkpoint", f"kept is {path}")
            os.unlink(path)
        if paths:
            self.mount.kill()
            self.mount.start()

    def flush(self):
        """Sometimes also what a killed job has staged: then it is stored under its staging name when the next job writes
        it anew, and renames it."""
        if self.rng.random() < 0.5:
            self.mount.flush()
            return
        done = self.mount.run("flush", self.mount.mountpoint, "--timeout", "300")
        check(done.returncode == 0 or "wait for their rename" in done.stdout, f"runfs flush: {done.stdout.strip()}")

    def check_told(self, told, kills, number):
        """It found what was acknowledged, unless the daemon was killed before; it failed for nothing else."""
        where = f"{self.name}, restart {number} ({' and '.join(kills) or 'no kill'})"
        wrong = [n for n in told.loaded or [] if n != self.acknowledged[-1] and (n is not None or "daemon" not in kills)]
        check(not wrong or self.acknowledged == [0] and not any(wrong),
              f"{where}: of {self.acknowledged} it finds {told.loaded}")
        check(not told.error or "daemon" in kills and not told.error.startswith("Failure"), f"{where}: {told.error}")
        check("job" in kills or told.status == 0 or told.error, f"{where}: it ended with {told.status}")

    def settle(self, possible):
        """What was begun and not acknowledged either counts from now on or never."""
        found = adaptdl_jobs.load(self.stores.copy_of(STORE, self.name), self.pieces).number()
        check(found in (self.acknowledged[-1], possible), f"{self.name}: after {self.acknowledged}, perhaps {possible}, "
              f"the store has {found}: {sorted(self.stores.keys(STORE))}")
        if found != self.acknowledged[-1]:
            self.acknowledged.append(found)

    def loaded_of(self, folder):
        """The state that AdaptDL finds in a copy. Files go up one by one: a newest checkpoint of several states that has
        only some of them is passed over, and the one before must be whole. One state is there or not."""
        os.makedirs(folder, exist_ok=True)
        told = adaptdl_jobs.load(folder, self.pieces)
        while len(set(told.loaded)) > 1 and None in told.loaded:
            self.in_part += 1
            shutil.rmtree(os.path.join(folder, max(f for f in os.listdir(folder) if f.startswith("checkpoint-"))))
            told = adaptdl_jobs.load(folder, self.pieces)
        check(told.number() is not None, f"{folder}: a mixture of {told.loaded}")
        return told.number()

    def check_moments(self, moments):
        found = Counter()
        for folder in moments.folders:
            (least, _), (_, most) = moments.marks[folder]
            number = self.loaded_of(os.path.join(folder, self.name))
            check(least <= number <= most, f"{folder}: AdaptDL finds {number}, not {least} to {most}")
            found["the newest" if number == most else "one before"] += 1
        print(f"{self.name}: {self.acknowledged} acknowledged; {len(moments.folders)} moments had {dict(found)}, "
              f"{self.in_part} of them a newest in part", flush=True)
        check(len(moments.folders) > 1, f"there were {len(moments.folders)} moments")


def story(stores):
    print(f"seed {SEED}", flush=True)
    rng = random.Random(SEED)
    # One upload at a time: there is more to be seen between the first and the last.
    m = stores.mount([STORE], settle="0s", options=["upload_jobs=1"], layout="adaptdl")
    for n in range(ROUNDS):
        for name, pieces in ((f"one-{n}", ["state"]), (f"three-{n}", ["model", "loader", "clock"])):
            job = Job(stores, m, name, pieces, rng)
            with Moments(stores, STORE, PAUSE_SECONDS, job.limits, functools.partial(stopped, m)) as moments:
                for number, kills in enumerate(rng.sample(KILLS, len(KILLS))):
                    job.restart(number, kills)
            job.check_moments(moments)
            shutil.rmtree(job.folder)
    m.umount()
    check(not stores.keys(STORE), f"left: {stores.keys(STORE)}")
