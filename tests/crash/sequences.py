"""Short random sequences of renames, removals and writes while the store answers nothing, so that
nothing of them can be done before the end; then, by mode:

  killed   the daemon is killed and mounted again with its cache
  cold     the same, after a start in which names and attributes are known and no content is here
  living   the daemon lives on

The mount must show what a local folder would, and after runfs flush so must the store and a mount
with an empty cache. The shortest sequence that fails is printed.
"""

import os
import random
import shutil
import time

from harness import Failure, check
from ledger import describe, digest, read_tree

FOLDERS = ("d", "d/e", "g")
FILES = ("d/1", "d/2", "d/e/3", "g/4", "5")
NAMES = "123456xyz"
FOLDER_NAMES = "deghik"


def start_tree():
    tree = {folder: ["d"] for folder in FOLDERS}
    tree.update({name: ["f", digest(name.encode()), len(name)] for name in FILES})
    return tree


class Sequence:
    """Does random operations in a mount and, beside it, in a tree."""

    def __init__(self, base, rng):
        self.base, self.rng = base, rng
        self.tree = start_tree()
        self.done = []

    def at(self, path):
        return os.path.join(self.base, path)

    def files(self):
        return [p for p, e in self.tree.items() if e[0] == "f"]

    def folders(self):
        return [p for p, e in self.tree.items() if e[0] == "d"]

    def name(self, letters):
        return os.path.join(self.rng.choice(["", *self.folders()]), self.rng.choice(letters))

    def empty(self, folder):
        return not any(p.startswith(folder + "/") for p in self.tree)

    def is_folder(self, path):
        return self.tree.get(path, ["f"])[0] == "d"

    # Each answers whether it did something.

    def unlink(self):
        path = self.rng.choice(self.files() or [None])
        if not path:
            return False
        self.done.append(("unlink", path))
        os.unlink(self.at(path))
        del self.tree[path]
        return True

    def rename(self):
        path = self.rng.choice(self.files() or [None])
        to = self.rng.choice(self.files()) if path and self.rng.random() < 0.4 else self.name(NAMES)
        if not path or path == to or self.is_folder(to):
            return False
        self.done.append(("rename", path, to))
        os.rename(self.at(path), self.at(to))
        self.tree[to] = self.tree.pop(path)
        return True

    def rename_folder(self):
        path, to = self.rng.choice(self.folders() or [None]), self.name(FOLDER_NAMES)
        if not path or to == path or to.startswith(path + "/") or to in self.tree:
            return False
        self.done.append(("rename folder", path, to))
        os.rename(self.at(path), self.at(to))
        for one in [p for p in self.tree if p == path or p.startswith(path + "/")]:
            self.tree[to + one[len(path):]] = self.tree.pop(one)
        return True

    def write(self):
        path, data = self.name(NAMES), f"written {len(self.done)}".encode()
        if self.is_folder(path):
            return False
        self.done.append(("write", path))
        with open(self.at(path), "wb") as f:
            f.write(data)
        self.tree[path] = ["f", digest(data), len(data)]
        return True

    def mkdir(self):
        path = self.name(FOLDER_NAMES)
        if path in self.tree:
            return False
        self.done.append(("mkdir", path))
        os.mkdir(self.at(path))
        self.tree[path] = ["d"]
        return True

    def rmdir(self):
        path = self.rng.choice([f for f in self.folders() if self.empty(f)] or [None])
        if not path:
            return False
        self.done.append(("rmdir", path))
        os.rmdir(self.at(path))
        del self.tree[path]
        return True

    def run(self, count):
        choices = (self.unlink, self.rename, self.rename, self.rename_folder, self.rename_folder,
                   self.write, self.mkdir, self.rmdir)
        while count:
            count -= self.rng.choice(choices)()


class Trial:
    def __init__(self, place, proxy, prefix, mode, rng, length):
        self.place, self.proxy, self.prefix, self.mode = place, proxy, prefix, mode
        self.cache = place.path(f"cache-{prefix}")
        # What was told stays believed while the store is frozen.
        self.mount = place.mount(prefix, ("upload_interval=0", "settle=0", "late_window=0", "attr_timeout=1m",
                                          "list_timeout=1m"), cache=self.cache, endpoint=proxy.endpoint)
        place.mounts[:] = [self.mount]
        self.rng, self.length = rng, length
        self.sequence = Sequence(self.mount.mountpoint, rng)

    def fill(self):
        self.mount.start()
        for folder in FOLDERS:
            os.mkdir(self.sequence.at(folder))
        for name in FILES:
            with open(self.sequence.at(name), "w") as f:
                f.write(name)
        self.mount.flush(60)
        if self.mode == "cold":
            self.empty_cache()
            for path in self.sequence.tree:
                os.lstat(self.sequence.at(path))

    def empty_cache(self):
        self.mount.umount(60)
        shutil.rmtree(self.cache)
        self.mount.start()

    def same(self, when):
        found = read_tree(self.mount.mountpoint)
        check(found == self.sequence.tree, f"{when}: {describe(found, self.sequence.tree)}")

    def stored(self):
        found = {}
        for key, path in self.place.gateway.objects(self.prefix).items():
            with open(path, "rb") as f:
                data = f.read()
            found[key] = ["f", digest(data), len(data)]
        wanted = {p: e for p, e in self.sequence.tree.items() if e[0] == "f"}
        check(found == wanted, f"in the store: {describe(found, wanted)}")

    def run(self):
        self.fill()
        self.proxy.freeze()
        try:
            self.sequence.run(self.length)
            time.sleep(self.rng.choice((0, 0.05)))
            if self.mode != "cold":  # what must be read from the store can't be now
                self.same("at once")
            if self.mode != "living":
                self.mount.kill()
        finally:
            self.proxy.reset()
            self.proxy.thaw()
        if self.mode != "living":
            self.mount.start()
        self.same("after the remount" if self.mode != "living" else "with the store back")
        self.mount.flush(60)
        self.same("after flush")
        self.stored()
        self.empty_cache()
        self.same("with an empty cache")
        self.mount.umount(60)


def run(place, proxy, mode, seed, count, longest):
    """One case: `count` sequences of up to `longest` operations; a Failure names the shortest that
    went wrong."""
    failed, shortest = 0, None
    for number in range(count):
        rng = random.Random(f"{seed}-{mode}-{number}")
        trial = Trial(place, proxy, f"{mode}-{number}", mode, rng, rng.randrange(1, longest + 1))
        try:
            trial.run()
        except (Failure, OSError) as e:
            failed += 1
            if not shortest or len(trial.sequence.done) < len(shortest[0]):
                shortest = (trial.sequence.done, e)
        finally:
            trial.mount.kill()
            shutil.rmtree(trial.cache, ignore_errors=True)
    if shortest:
        raise Failure(f"{failed} of {count} sequences went wrong, the shortest: {shortest[0]}: {shortest[1]}")
    return f"{count} sequences"
