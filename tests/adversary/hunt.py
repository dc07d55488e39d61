"""Scenarios that nobody thought of: nodes do what comes, and what comes happens to them. The same seed is the same
story, apart from what uploads are done by then."""

import errno
import os
import random
import time

from harness import check
from place import content
from scenario import cp_a, replace_cache

KEYS = ("f", "g", "ckpt", "d/f", "d/g", "e/f", "e/g", "run.log")
STEPS = 30


def has_content(path):
    """A new mount does not know what it has not asked for yet, and can't while it is cut off."""
    try:
        return os.path.getsize(path) > 0
    except OSError:
        return False


class Story:
    shared_names = ("shared-1", "shared-2", "new-1", "new-2", "new-3")

    def __init__(self, w, rng):
        self.w, self.rng = w, rng
        self.cut = False
        self.number = 0
        self.snapshot = None
        self.rolled_back = False
        self.told = [] # for who reads a failure
        self.nodes = [w.node("a", ("drain_timeout=2s", "ask_timeout=2s"))]
        if w.store.kind == "s3" and rng.random() < 0.5:
            self.share()

    def share(self):
        """Two nodes share names, some of which the store has from the beginning."""
        a = self.nodes[0]
        for key in self.shared_names[:2]:
            a.write(key, b"shared")
        check(a.flush() == 0, "flush")
        self.nodes.append(self.w.node("b", ("drain_timeout=2s", "ask_timeout=2s")))

    # ---- what programs do ----

    def body(self):
        self.number += 1
        return content(f"{self.number}", self.rng.choice((0, 1, 100, 5000, 300_000)))+b"%d" % self.number

    def names(self, node):
        """Two nodes share some names, which both only rewrite; the others are one's own."""
        if len(self.nodes) == 1:
            return KEYS
        return [f"{node.name}-{key}".replace("/", "-") for key in KEYS[:4]]

    def shared(self):
        return self.shared_names if len(self.nodes) > 1 else KEYS

    def there(self, node):
        return [key for key in self.names(node) if os.path.exists(node.path(key))]

    def attempt(self, key, node, call, body):
        """What a program was not told is done may have happened all the same."""
        try:
            os.makedirs(os.path.dirname(node.path(key)), exist_ok=True)
            call()
        except OSError as e:
            self.told[-1] += f": {errno.errorcode.get(e.errno)}"
            node.oracle.unacknowledged(node.name, key, body)

    def write(self, node):
        key, body = self.rng.choice(self.names(node)), self.body()
        self.told[-1] += f" {key} {len(body)}"
        sync = self.rng.random() < 0.3
        self.attempt(key, node, lambda: node.write(key, body, sync=sync), body)

    def rewrite(self, node):
        key, body = self.rng.choice(self.shared()), self.body()
        self.told[-1] += f" {key} {len(body)}"
        self.attempt(key, node, lambda: node.rewrite(key, body), body)

    def rename(self, node):
        there = self.there(node)
        if there:
            old, new = self.rng.choice(there), self.rng.choice(self.names(node))
            if old != new and os.path.isdir(os.path.dirname(node.path(new))):
                self.told[-1] += f" {old} {new}"
                self.quietly(lambda: node.rename(old, new))

    def exchange(self, node):
        there = self.there(node)
        if len(there) > 1:
            one, two = self.rng.sample(there, 2)
            self.told[-1] += f" {one} {two}"
            self.quietly(lambda: node.exchange(one, two))

    def move_folder(self, node):
        """All below d is below e then, or the reverse."""
        there = self.there(node)
        for old, new in (("d/", "e/"), ("e/", "d/")):
            inside = [key for key in there if key.startswith(old)]
            if inside and not any(key.startswith(new) for key in there):
                self.told[-1] += f" {old} {new}"
                self.quietly(lambda inside=inside, old=old, new=new: node.move_folder(old, new, inside))
                return

    def append(self, node):
        there = self.there(node)
        if there:
            key, more = self.rng.choice(there), self.body()
            self.told[-1] += f" {key} {len(more)}"
            self.quietly(lambda: node.append(key, more))

    def map(self, node):
        """Written through a mapping whose descriptor is closed."""
        there = [key for key in self.there(node) if has_content(node.path(key))]
        if there:
            key = self.rng.choice(there)
            self.told[-1] += f" {key}"
            self.quietly(lambda: node.write_mapped(key, b"%d" % self.rng.randrange(10)))

    def unlink(self, node):
        there = self.there(node)
        if there:
            key = self.rng.choice(there)
            self.told[-1] += f" {key}"
            self.quietly(lambda: self.remove(node, key))

    def remove(self, node, key):
        if self.rolled_back: # what its listing shows may be newer than what it knew
            node.read(key)
        node.unlink(key)

    def chmod(self, node):
        there = self.there(node)
        if there:
            key = self.rng.choice(there)
            self.quietly(lambda: os.chmod(node.path(key), self.rng.choice((0o600, 0o644, 0o640))))

    def read(self, node):
        for key in self.names(node):
            self.quietly(lambda key=key: node.read(key))

    def quietly(self, call):
        try:
            call()
        except OSError as e:
            self.told[-1] += f": {errno.errorcode.get(e.errno)}"

    def rest(self, _):
        time.sleep(self.rng.choice((0.01, 0.1, 0.4)))

    # ---- what happens to them ----

    def flush(self, node):
        self.told[-1] += f" {node.flush(1 if self.cut else 30)}"

    def kill(self, node):
        node.kill()
        self.again(node)

    def terminate(self, node):
        code = node.terminate(60)
        self.w.oracle.synced(node.name) # the end syncs what is in the cache, stored or not
        if code != 0 and self.rng.random() >= 0.5:
            node.reboot()
        self.again(node)

    def reboot(self, node):
        node.reboot(torn=self.rng.random() < 0.5)
        self.again(node)

    def move(self, node):
        node.kill()
        node.move_cache(f"{node.cache}-moved")
        self.again(node)

    def again(self, node):
        """Mounting asks the store."""
        self.connect(node)
        node.up()

    def cut_off(self, _):
        if self.w.store.kind == "s3":
            self.w.store.cut_off()
            self.cut = True

    def connect(self, _):
        if self.cut:
            self.w.store.connect()
            self.cut = False

    def snap(self, node):
        if self.snapshot is None and node is self.nodes[0]:
            node.kill()
            cp_a(node.cache, self.w.work.path(f"{self.w.name}-snapshot"))
            self.snapshot = self.w.oracle.seen_until_now(node.name)
            self.again(node)

    def roll_back(self, node):
        if self.snapshot is None or node is not self.nodes[0] or self.w.store.kind == "file":
            return # a folder has no versions that would tell what is older
        node.kill()
        replace_cache(node, self.w.work.path(f"{self.w.name}-snapshot"))
        self.w.oracle.rolled_back(node.name, self.snapshot, self.w.store.objects())
        self.snapshot = None
        self.rolled_back = True
        self.again(node)

    OFTEN = (write, write, write, rewrite, rewrite, append, map, rename, exchange, move_folder, unlink, chmod, read,
             rest, rest, flush)
    SELDOM = (kill, kill, terminate, reboot, move, cut_off, cut_off, connect, connect, connect, snap, roll_back)

    def step(self):
        does = self.rng.choice(self.OFTEN if self.rng.random() < 0.75 else self.SELDOM)
        node = self.rng.choice(self.nodes)
        self.told.append(f"{node.name} {does.__name__}")
        does(self, node)


def hunt(w, seed):
    story = Story(w, random.Random(seed))
    try:
        for _ in range(STEPS):
            story.step()
        story.connect(None)
        w.judge()
    except Exception:
        print(f"        seed {seed}: {'; '.join(story.told)}", flush=True)
        raise
