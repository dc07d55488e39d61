"""The crash loop. Each round starts writers on a mount whose store is slow, has the daemon killed
(at random, at a named step of cache/, or in the instant in which a rename() or unlink() returned),
and then checks, in this order:

- the store: every object is a content that some operation meant as a whole
- a mount with the same cache: everything that a ledger says was done is there, and nothing else
- after runfs flush, the store holds exactly that; runfs umount exits 0
- in every second round a mount with an empty cache: the same tree comes from the store alone

Where passthrough works a writer also lives on through kill and remount, and loses no byte.
Before the rounds, short sequences of operations are tried in great number; see sequences.py.

The rounds go on for a minute, or for --seconds or CRASH_SECONDS.

The model in tests/model dies at every step of cache/ far more often; here it is the whole mount.

usage: crash.py [--seconds N] [--seed N] [--sequences N] [--step NAME]... [--only NAME]

The seed is CRASH_SEED, 1 unless that is set. A round that finds something prints where, and the next
starts afresh; RUNFS_TEST_KEEP=1 keeps the folder.
"""

import argparse
import glob
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "faults"))

import harness
import sequences
from appender import line
from harness import Failure, check
from ledger import Story, describe, digest, read_tree
from proxy import Proxy

SLOW = 3 << 20
WRITERS = 2
STEP_SECONDS = 5
AFTER = ("rename", "unlink", "renamedir", "mkdir", "rmdir", "write", "patch", "truncate", "symlink")


def crash_steps():
    """The names in cache/; none when the binary was built without them."""
    with open(harness.runfs_binary(), "rb") as f:
        if b"RUNFS_CRASH_AT" not in f.read():
            return []
    names = set()
    for path in glob.glob(os.path.join(harness.ROOT, "cache", "**", "*.c"), recursive=True):
        with open(path) as f:
            names.update(re.findall(r'(?:crash_point\(|_point = )"([a-z0-9_.-]+)"', f.read()))
    return sorted(names)


class Store:
    """What the server's disk holds, read past every protocol."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.known = {}

    def tree(self, prefix):
        """{key: digest} of all objects. An object is replaced while we look: look again."""
        found = {}
        for key, path in self.gateway.objects(prefix).items():
            for _ in range(5):
                try:
                    found[key] = self._digest(path)
                    break
                except FileNotFoundError:
                    if not os.path.lexists(path):
                        break
        return found

    def _digest(self, path):
        with open(path, "rb") as f:
            st = os.fstat(f.fileno())
            stamp = (st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns)
            if self.known.get(path, (None,))[0] != stamp:
                self.known[path] = (stamp, digest(f.read()))
        return self.known[path][1]


class Loop:
    def __init__(self, place, arguments):
        self.place = place
        self.random = random.Random(arguments.seed)
        self.store = Store(place.gateway)
        self.proxy = Proxy(place.gateway.port).start()
        place.cleanups.append(self.proxy.stop)
        self.kills = self.kills_with_pending = self.operations = 0
        self.reached = set()
        self.number = 0
        self.fresh()

    def fresh(self):
        """A new prefix and an empty cache: the first round, and after one that failed."""
        self.number += 1
        self.prefix = f"p{self.number}"
        self.trees = [{} for _ in range(WRITERS)]
        self.versions = {digest(b"")}
        self.live = {}
        self.cache = self.place.path(f"cache{self.number}")

    # ---- one mount ----

    def mount(self, *options):
        m = self.place.mount(self.prefix, ("upload_interval=0", "late_window=3s", *options), cache=self.cache,
                             endpoint=self.proxy.endpoint)
        self.place.mounts[:] = [m]
        return m

    def base(self, m, writer):
        return os.path.join(m.mountpoint, f"w{writer}")

    # ---- a round ----

    def round(self, index, step=None, after=None):
        options = ("cache_size=48MiB",) if self.random.random() < 0.3 else ()
        ledgers = [self.place.path(f"ledger-{self.number}-{index}-{w}") for w in range(WRITERS)]
        m = self.mount(*options)
        self.proxy.rate(SLOW)
        hit = self.chaos(m, ledgers, index, step, after)
        if step and hit:
            self.reached.add(step.split(":")[0])
        self.proxy.rate(0)
        stories = [Story(path, tree) for path, tree in zip(ledgers, self.trees)]
        pending = self.look_at_store(stories)
        m = self.mount(*options)
        if self.random.random() < 0.25:
            self.kill_while_recovering(m)
        m.start()
        if self.take_kept(stories):
            m.kill()
            m.start()  # an end with something kept is not clean
        self.settle(m, stories)
        self.finish_appender(m)
        self.drain(m)
        if index % 2:
            self.cold(m)
        done = sum(s.operations for s in stories)
        self.operations += done
        return f"{done} operations, {pending} files owed at the kill" + \
            ("" if hit or not (step or after) else ", not reached")

    def wait_for_begin(self, ledgers):
        """Until every writer has done something; not for ever, as one may be stuck."""
        end = time.monotonic() + 10
        while time.monotonic() < end and not all(os.path.exists(p) and os.path.getsize(p) for p in ledgers):
            time.sleep(0.02)

    def chaos(self, m, ledgers, index, step, after):
        """Starts mount and writers and has the daemon die; whether it died by itself."""
        try:
            m.start({"RUNFS_CRASH_AT": step} if step else None)
            for w in range(WRITERS):
                os.makedirs(self.base(m, w), exist_ok=True)
        except (Failure, OSError):
            # The connection ends before the process can be waited for.
            if step and self.wait_for_death(m.process, 5) and m.process.returncode == -signal.SIGKILL:
                self.kills += 1
                m.kill()
                return True
            raise
        self.start_appender(m, index)
        writers = [self.start_writer(m, w, ledgers[w], f"{index}-{w}", after) for w in range(WRITERS)]
        self.kills += 1
        if step or after:
            hit = self.wait_for_death(m.process, STEP_SECONDS)
        else:
            self.wait_for_begin(ledgers)
            hit = self.wait_for_death(m.process, self.random.uniform(0.3, 3.0))
            check(not hit, f"the daemon died by itself: {m.process.returncode}: {m.log_tail()}")
        m.process.kill()
        m.process.wait()
        check(m.process.returncode == -signal.SIGKILL,
              f"the daemon died by itself: {m.process.returncode}: {m.log_tail()}")
        try:
            for writer in writers:
                writer.wait(20)
        except subprocess.TimeoutExpired:
            raise Failure("a writer hangs although the daemon is dead") from None
        finally:
            for writer in writers:
                harness.end_process(writer, signal.SIGKILL)
            m.kill()
        return hit

    def start_writer(self, m, w, ledger, seed, after):
        tree = ledger + ".tree"
        with open(tree, "w") as f:
            json.dump({p: e for p, e in self.trees[w].items() if not p.startswith("../")}, f)
        command = [sys.executable, os.path.join(HERE, "writer.py"), self.base(m, w), ledger,
                   f"{self.random.random()}-{seed}", tree]
        if after and w == 0:
            command += ["--kill-after", after, "--pid", str(m.process.pid)]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def wait_for_death(self, process, seconds):
        try:
            process.wait(seconds)
            return True
        except subprocess.TimeoutExpired:
            return False

    def kill_while_recovering(self, m):
        try:
            m.start()
            time.sleep(self.random.uniform(0, 0.3))
        finally:
            m.kill()

    # ---- the writer that lives on ----

    def start_appender(self, m, index):
        """It is the first that opens a file, so the counts say whether it got passthrough: a
        full cache refuses that."""
        name = f"live-{index}"
        count = self.place.path(f"{name}-{self.number}.count")
        process = subprocess.Popen([sys.executable, os.path.join(HERE, "appender.py"),
                                    os.path.join(m.mountpoint, name), count], stdin=subprocess.DEVNULL)
        end = time.monotonic() + 5
        while not self.lines(count) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        try:
            lives = m.status()["frontend"]["opens_passthrough"] > 0
        except Failure:
            lives = False  # killed at its step already
        self.live[name] = (process, count, lives)

    def finish_appender(self, m):
        """Ends a writer that went on writing and sees that the mount has every line of it."""
        for name, (process, count, lives) in list(self.live.items()):
            alive = self.writes_on(process, count) if lives else False
            harness.end_process(process)
            written = self.lines(count)
            check(not lives or alive, f"{name}: the writer through passthrough did not live on")
            try:
                with open(os.path.join(m.mountpoint, name), "rb") as f:
                    data = f.read()
            except FileNotFoundError:
                check(written == 0, f"{name} is gone, of which {written} lines were written")
                del self.live[name]
                continue
            wanted = b"".join(map(line, range(written)))
            check(data.startswith(wanted) and len(data) <= len(wanted) + len(line(0)),
                  f"{name}: {len(data)} bytes of {len(wanted)} written")
            self.trees[0]["../" + name] = ["f", digest(data), len(data)]
            self.versions.add(digest(data))
            del self.live[name]

    def writes_on(self, process, count):
        before, end = self.lines(count), time.monotonic() + 10
        while self.lines(count) == before and process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        return self.lines(count) > before

    def lines(self, count):
        try:
            with open(count) as f:
                return int(f.read() or 0)
        except FileNotFoundError:
            return 0

    # ---- what must hold ----

    def wanted(self):
        """{key: digest} of what the store must hold when nothing is owed."""
        keys = {}
        for w, tree in enumerate(self.trees):
            for path, entry in tree.items():
                key = os.path.normpath(f"w{w}/{path}")
                if entry[0] != "d":
                    keys[key] = entry[1] if entry[0] == "f" else digest(b"")
        return keys

    def look_at_store(self, stories):
        """No object is torn. Returns how many files the store does not have yet."""
        for story in stories:
            check(story.error is None, f"a writer saw: {story.error}")
            self.versions |= story.versions
        found = self.store.tree(self.prefix)
        for key, content in found.items():
            check(content in self.versions or key.startswith("live-"),
                  f"the store holds a content of {key} that nobody closed")
        owed = 0
        for w, story in enumerate(stories):
            for path, entry in story.tree.items():
                if entry[0] == "f" and not path.startswith("../") and found.get(f"w{w}/{path}") != entry[1]:
                    owed += 1
        self.kills_with_pending += owed > 0
        return owed

    def take_kept(self, stories):
        """Takes what the mount set aside, as a person would: only what was open for writing."""
        kept = os.path.join(self.cache, "kept")
        paths = [os.path.join(where, name) for where, _, names in os.walk(kept) for name in names]
        for path in paths:
            with open(path, "rb") as f:
                data = f.read()
            os.remove(path)
            owner = [s for w, s in enumerate(stories)
                     if s.open and path == os.path.normpath(os.path.join(kept, f"w{w}", s.open))]
            check(owner, f"{os.path.relpath(path, kept)} is kept, which nobody was writing")
            owner[0].kept = data
        return bool(paths)

    def settle(self, m, stories):
        for w, story in enumerate(stories):
            above = {p: e for p, e in self.trees[w].items() if p.startswith("../")}
            story.tree = {p: e for p, e in story.tree.items() if p not in above}
            base = self.base(m, w)
            found = read_tree(base) if os.path.isdir(base) or story.tree else {}

            def read(path, base=base):
                with open(os.path.join(base, path), "rb") as f:
                    return f.read()

            self.trees[w] = {**story.settle(found, read, "after the remount"), **above}
            self.versions.update(e[1] for e in found.values() if e[0] == "f")

    def drain(self, m):
        m.flush(120)
        found, wanted = self.store.tree(self.prefix), self.wanted()
        check(found == wanted, f"after flush the store differs: {self.differ(found, wanted)}")
        m.umount(120)
        found = self.store.tree(self.prefix)
        check(found == wanted, f"after umount the store differs: {self.differ(found, wanted)}")

    def differ(self, found, wanted):
        as_tree = lambda keys: {key: ["f", content, "?"] for key, content in keys.items()}
        return describe(as_tree(found), as_tree(wanted))

    def cold(self, m):
        """Everything must come from the store alone."""
        shutil.rmtree(self.cache)
        m.start()
        for w, tree in enumerate(self.trees):
            wanted = {p: e for p, e in tree.items() if not p.startswith("../")}
            found = read_tree(self.base(m, w)) if wanted else {}
            check(found == wanted, f"with an empty cache: {describe(found, wanted)}")
        m.umount(60)
        if self.random.random() < 0.5:
            shutil.rmtree(self.cache)

    def clean_up(self):
        for process, _, _ in self.live.values():
            harness.end_process(process, signal.SIGKILL)
        for m in self.place.mounts:
            m.kill()


def plan(loop, steps, seconds):
    """What to kill at next, in turns and until the time is over: in a new file and after operations,
    at random, at a step that no round died at yet."""
    end = time.monotonic() + seconds
    after = list(AFTER)
    loop.random.shuffle(after)
    after.append("half") # the first: what is new is published whole or not at all
    index = 0
    while time.monotonic() < end:
        todo = [s for s in steps if s not in loop.reached]
        if index % 3 == 0 and after:
            name = after.pop()
            yield index, "in a new file" if name == "half" else f"as {name} returned", {"after": name}
        elif index % 3 == 1 and todo:
            step = loop.random.choice(todo)
            yield index, f"at {step}", {"step": step}
        else:
            yield index, "at random", {}
        index += 1


def plan_one(name, steps, seconds):
    """Only the kill of this name, again and again."""
    known = {"in a new file": {"after": "half"}, "at random": {}} | {f"as {n} returned": {"after": n} for n in AFTER} \
        | {f"at {s}": {"step": s} for s in steps}
    if name not in known:
        sys.exit(f"kills: {', '.join(known)}")
    end = time.monotonic() + seconds
    index = 0
    while time.monotonic() < end:
        yield index, name, known[name]
        index += 1


def run_rounds(tally, loop, rounds):
    for index, name, how in rounds:
        if not tally.run(f"killed {name}", loop.round, index, how.get("step"), how.get("after")):
            for m in loop.place.mounts:
                print(f"        log: {m.log_tail(1200)}", flush=True)
            loop.clean_up()
            loop.proxy.rate(0)
            loop.fresh()


def verdict(tally, loop):
    def was_pending():
        check(loop.kills_with_pending * 3 >= loop.kills,
              f"only {loop.kills_with_pending} of {loop.kills} kills had uploads pending")
        return f"{loop.kills_with_pending} of {loop.kills} kills, {loop.operations} operations"

    tally.run("uploads were pending when it was killed", was_pending)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("CRASH_SECONDS", 60)))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("CRASH_SEED", 1)))
    parser.add_argument("--sequences", type=int, default=int(os.environ.get("CRASH_SEQUENCES", 30)))
    parser.add_argument("--step", action="append", help="only this step; no sequences")
    parser.add_argument("--only", default="", help='only what has this name, such as "killed at random"')
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    steps = arguments.step or crash_steps()
    tally = harness.Tally("crash", lambda name: harness.repeat(
        "--seed", arguments.seed, *(["--only", name] if name.startswith(("killed ", "sequences, ")) else [])))
    with harness.Workplace("crash") as place:
        place.start_gateway()
        loop = Loop(place, arguments)
        for mode in ("killed", "cold", "living") if not arguments.step else ():
            if arguments.only in ("", f"sequences, {mode}"):
                tally.run(f"sequences, {mode}", sequences.run, place, loop.proxy, mode, arguments.seed,
                          arguments.sequences, 6)
        rounds = plan(loop, steps, arguments.seconds)
        if arguments.only:
            kill = arguments.only.removeprefix("killed ")
            rounds = plan_one(kill, steps, arguments.seconds) if kill != arguments.only else ()
        try:
            run_rounds(tally, loop, rounds)
        finally:
            loop.clean_up()
        if loop.kills and not arguments.only:
            verdict(tally, loop)
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
