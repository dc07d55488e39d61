"""The adversary: a black box that only runs the program, and attacks what programs and machines can
attack. Scenarios kill, copy, map, fill, cut and reboot; after each one three questions are asked of
the store itself (oracle.py): is what was acknowledged there, is what was there before whole, did
anything say 0 that was not so.

usage: adversary.py [--seed N] [--rounds N] [--list] [PATTERN]...

Only scenarios whose "theme/scenario/store/mode" contains a PATTERN. Each has its own prefix, caches
and nodes; several run at a time. Then come rounds of what comes (hunt.py), each with the seed that its
name has: --rounds of them (ADVERSARY_ROUNDS; none with a PATTERN), from --seed (ADVERSARY_SEED) on.
A round that failed says what happened; how far uploads were is in no seed.
"""

import argparse
import contextlib
import os
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
for folder in ("lib", "faults", "mount"): # behind this one, which has names of its own that others have, too
    sys.path.append(os.path.join(os.path.dirname(HERE), folder))

import copies
import disks
import ends
import harness
import hunt
import links
import names
import nodes
import stores
import times
import units
import writers
from world import World

THEMES = (copies, writers, times, nodes, links, names, disks, ends, stores, units)
ROUNDS = 10
LANES = 4 # scenarios at a time: most of them wait most of the time


def play(case, name, store, options, work):
    with World(work, name.replace("/", "-"), store, options) as w:
        case(w)
        w.judge()


def play_round(seed, mode, work):
    options = ("passthrough=off",) if mode == "off" else ()
    with World(work, f"hunt-{seed}-{mode}", "file" if seed % 3 == 0 else "s3", options) as w:
        hunt.hunt(w, seed)


def passthrough_works(work):
    m = work.mount("probe", name="probe", cache="cache-probe").start()
    found = m.status()["frontend"]["passthrough"]
    m.umount(30)
    return found


def jobs_of(patterns, modes):
    """[(name, function of a workplace)]"""
    jobs = []
    for theme in THEMES:
        for case in theme.CASES:
            for store in case.stores:
                for mode in [m for m in case.modes if m in modes]:
                    name = f"{theme.__name__}/{case.__name__}/{store}/{mode}"
                    options = ("passthrough=off",) if mode == "off" else ()
                    if not patterns or any(p in name for p in patterns):
                        jobs.append((name, lambda work, case=case, name=name, store=store, options=options:
                                     play(case, name, store, options, work)))
    return jobs


def rounds_of(arguments, modes):
    return [(f"hunt/{seed}/{mode}", lambda work, seed=seed, mode=mode: play_round(seed, mode, work))
            for seed in range(arguments.seed, arguments.seed + arguments.rounds)
            for mode in (modes[seed % len(modes)],)]


class Lane(threading.Thread):
    """Plays one scenario after the other at a server of its own."""

    def __init__(self, work, jobs, tally):
        super().__init__(daemon=True)
        self.work, self.jobs, self.tally, self.mistake = work, jobs, tally, None

    def run(self):
        try:
            while True:
                try:
                    name, case = self.jobs.pop(0) # other lanes take from it as well
                except IndexError:
                    return
                self.tally.run(name, case, self.work)
        except Exception as e:
            self.mistake = e
            raise


def again(name):
    """The command that repeats this scenario or round alone."""
    kind, seed = name.split("/")[:2]
    return harness.repeat(*(["--seed", seed, "--rounds", 1, "hunt/"] if kind == "hunt" else [name]))


def play_all(arguments):
    tally = harness.Tally("adversary", again)
    with contextlib.ExitStack() as stack:
        works = [stack.enter_context(harness.Workplace("adversary")) for _ in range(LANES)]
        for work in works:
            work.start_gateway()
        modes = ("auto", "off") if passthrough_works(works[0]) else ("auto",)
        jobs = jobs_of(arguments.patterns, modes) + rounds_of(arguments, modes)
        lanes = [Lane(work, jobs, tally) for work in works]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            while lane.is_alive(): # so that a signal is heard
                lane.join(1)
    mistakes = [lane.mistake for lane in lanes if lane.mistake]
    code = tally.close()
    return 1 if mistakes else code


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("patterns", nargs="*")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("ADVERSARY_SEED", 1)))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    if arguments.rounds is None:
        arguments.rounds = 0 if arguments.patterns else int(os.environ.get("ADVERSARY_ROUNDS", ROUNDS))
    if arguments.list:
        print("\n".join(name for name, _ in jobs_of(arguments.patterns, ("auto", "off"))))
        return 0
    return play_all(arguments)


if __name__ == "__main__":
    sys.exit(main())
