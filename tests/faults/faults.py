"""What must hold when the store or the cache's disk fails: nothing that was closed is lost, no
object is truncated, everybody who asks gets a clear error, and no call hangs that need not.

usage: faults.py [CASE]...

Each case runs as the mount is, and with passthrough=off as well where passthrough is on; those of
answers.py, where that makes no difference, run once. Several run at a time.
"""

import contextlib
import os
import shutil
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))

import answers
import disks
import full
import harness
import parts
import stores

CASES = stores.CASES + parts.CASES + full.CASES + disks.CASES
SLOW = [full.disk_full_store_down, stores.server_stopped, full.small_cache_one_file, full.small_cache_many_files]
LANES = 5 # cases at a time: most of them wait most of the time


def passthrough_works(work):
    m = work.mount("probe", name="probe", cache="cache-probe").start()
    found = m.status()["frontend"]["passthrough"]
    m.umount(30)
    return found


def jobs_of(chosen, passthrough):
    """[(name, function of a workplace)], of the cases or names chosen or of all: the slowest first, so that no lane
    is left alone with one."""
    modes = {"": (), "-normal": ("passthrough=off",)} if passthrough else {"": ()}
    jobs = []
    for case in SLOW + [c for c in CASES if c not in SLOW]:
        for suffix, options in modes.items():
            name = case.__name__.replace("_", "-") + suffix
            if not chosen or {case.__name__, name} & chosen:
                jobs.append((name, lambda work, name=name, case=case, options=options: case(work, name, options)))
    for name, case in answers.CASES.items():
        if not chosen or name in chosen:
            jobs.append((name, lambda work, name=name, case=case: case(work, name, answers.plant(work))))
    return jobs


class Lane(threading.Thread):
    """Runs one case after the other at a server of its own."""

    def __init__(self, work, jobs, tally):
        super().__init__(daemon=True)
        self.work, self.jobs, self.tally, self.mistake = work, jobs, tally, None

    def take(self):
        try:
            return self.jobs.pop(0) # other lanes take from it as well
        except IndexError:
            return None

    def run(self):
        try:
            while job := self.take():
                name, case = job
                self.tally.run(name, case, self.work)
                if self.work.gateway.process is None:
                    self.work.gateway.start()
                for folder in (f"cache-{name}", f"cold-{name}"):
                    shutil.rmtree(self.work.path(folder), ignore_errors=True)
        except Exception as e:
            self.mistake = e
            raise


def main():
    chosen = set(sys.argv[1:])
    known = {c.__name__ for c in CASES} | {name for name, _ in jobs_of(set(), True)}
    if not known.issuperset(chosen):
        sys.exit(f"cases: {' '.join(sorted(known))}")
    tally = harness.Tally("faults")
    with contextlib.ExitStack() as stack:
        works = [stack.enter_context(harness.Workplace("faults")) for _ in range(LANES)]
        for work in works:
            work.start_gateway()
        jobs = jobs_of(chosen, passthrough_works(works[0]))
        lanes = [Lane(work, jobs, tally) for work in works]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            while lane.is_alive(): # so that a signal is heard
                lane.join(1)
    code = tally.close()
    return 1 if any(lane.mistake for lane in lanes) else code


if __name__ == "__main__":
    sys.exit(main())
