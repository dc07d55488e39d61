"""Groups of stories side by side. Most stories wait most of their time: for a timeout, a mount, a server.

A lane is a process with a workplace of its own, so a story may change what a process has once (its umask, its
limits), and no child of one story holds the files of another open. Lanes take the next group when they have
done one; what a group said is printed in one piece, and the pieces come in the order of the groups."""

import os
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback

from harness import Workplace

DONE = struct.Struct("HHHH") # the group's number, passed, failed, skipped


class Group:
    """Stories that share what `run` makes; run(work, tally) with a Workplace. The heaviest groups begin first."""

    def __init__(self, names, run, seconds=1):
        self.names, self.run, self.seconds = list(names), run, seconds


def _lane(groups, prepare, jobs, done, folder, tally):
    """In a process of its own: one group after the other until none is left."""
    with Workplace(tally.title) as work:
        prepare(work)
        while number := os.read(jobs, 2): # as many bytes are taken at once, whoever reads beside us
            i = struct.unpack("H", number)[0]
            output = os.open(os.path.join(folder, str(i)), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            tally.passed = tally.failed = tally.skipped = 0
            try:
                groups[i].run(work, tally)
            except Exception: # a mistake of the test: the other groups are not to blame
                tally.failed += 1
                print(f"not ok  {' '.join(groups[i].names[:1])}: the test itself failed\n{traceback.format_exc()}")
            work.clear()
            sys.stdout.flush()
            os.write(done, DONE.pack(i, tally.passed, tally.failed, tally.skipped))


def _fork(*arguments):
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        _lane(*arguments)
        code = 0
    except SystemExit:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _show(folder, number):
    """What a group said, unless it is shown already."""
    path = os.path.join(folder, str(number))
    if os.path.exists(path):
        with open(path, errors="replace") as f:
            shutil.copyfileobj(f, sys.stdout)
        sys.stdout.flush()
        os.unlink(path)


def _collect(done, groups, tally, folder):
    """Counts what the lanes report and shows it in order; the numbers of groups of which nobody reported."""
    shown, there = 0, set()
    while record := os.read(done, DONE.size):
        i, passed, failed, skipped = DONE.unpack(record)
        there.add(i)
        tally.passed, tally.failed, tally.skipped = tally.passed + passed, tally.failed + failed, tally.skipped + skipped
        while shown in there:
            _show(folder, shown)
            shown += 1
    for i in range(shown, len(groups)):
        _show(folder, i)
    return [i for i in range(len(groups)) if i not in there]


def _end(lane):
    """A story may catch what SIGTERM raises: it is told again until its lane has cleaned up."""
    while os.waitpid(lane, os.WNOHANG)[0] == 0:
        os.kill(lane, signal.SIGTERM)
        time.sleep(0.5)


def side_by_side(groups, count, prepare, tally):
    """Runs all of them in so many lanes; prepare(work) makes of a Workplace what the groups of a lane need."""
    folder = tempfile.mkdtemp(prefix="runfs-lanes-")
    jobs, to_lanes = os.pipe()
    done, to_us = os.pipe()
    for i in sorted(range(len(groups)), key=lambda i: -groups[i].seconds):
        os.write(to_lanes, struct.pack("H", i))
    os.close(to_lanes)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    lanes = []
    try:
        for _ in range(min(count, len(groups))):
            lanes.append(_fork(groups, prepare, jobs, to_us, folder, tally))
        os.close(to_us)
        lost = _collect(done, groups, tally, folder)
        for i in lost:
            tally.failed += 1
            print(f"not ok  {' '.join(groups[i].names[:1])}: its lane ended", flush=True)
    except BaseException:
        for i in range(len(groups)): # what is there by now
            _show(folder, i)
        for lane in lanes:
            _end(lane)
        lanes = []
        raise
    finally:
        for lane in lanes:
            os.waitpid(lane, 0)
        os.close(jobs)
        os.close(done)
        shutil.rmtree(folder, ignore_errors=True)
