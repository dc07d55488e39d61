"""What a writer did, and what must therefore be there after a kill.

A ledger is a file outside the mount with one JSON object a line. Before an operation a "begin"
line tells how it will change the tree; after it returned (for files: after close() returned) a
"done" line follows, and after fsync() of a file still open a "synced" line. The tree is a dict:

    path -> ["f", sha256, size] | ["d"] | ["l", target]
"""

import hashlib
import json
import os

from harness import Failure, check


def digest(data):
    return hashlib.sha256(data).hexdigest()


def apply(tree, delta):
    for path, entry in delta.items():
        if entry is None:
            tree.pop(path, None)
        else:
            tree[path] = entry


class Ledger:
    def __init__(self, path):
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def _line(self, **fields):
        os.write(self.fd, (json.dumps(fields) + "\n").encode())

    def begin(self, name, delta, open_content=None, whole=False):
        """open_content: the path whose bytes may be anything until the operation is done. `whole`: if there was no such
        file it is there as a whole or not at all."""
        self._line(begin=name, delta=delta, open=open_content, whole=whole)

    def synced(self, prefix):
        """fsync() returned: the open file's first bytes are these, whatever comes."""
        self._line(synced=[digest(prefix), len(prefix)])

    def done(self):
        self._line(done=True)

    def error(self, text):
        self._line(error=text)


class Story:
    """A ledger read back: the tree after every operation that returned, the one operation that
    may have been under way, and the digest of every whole content that was ever meant."""

    def __init__(self, path, tree):
        self.tree = dict(tree)
        self.pending = self.open = self.synced = self.error = None
        self.kept = None  # what the mount set aside of the file that was open
        self.operations = 0
        self.last = {}  # path -> the last operation that changed it
        self.versions = set()
        if not os.path.exists(path):
            return
        with open(path) as f:
            for line in f:
                self._take(json.loads(line))

    def _take(self, line):
        if "begin" in line:
            self.pending, self.open, self.synced = line, line["open"], None
            self.versions.update(e[1] for e in line["delta"].values() if e and e[0] == "f")
        elif "synced" in line:
            self.synced = line["synced"]
        elif "done" in line:
            apply(self.tree, self.pending["delta"])
            self.operations += 1
            self.last.update(dict.fromkeys(self.pending["delta"], f"{self.operations}: {self.pending['begin']}"))
            self.pending = self.open = self.synced = None
        elif "error" in line:
            self.error = line["error"]

    def settle(self, found, read, where):
        """Compares what was found with what must be there and returns the tree that holds now.
        `read(path)` gives a file's bytes."""
        before, after = dict(self.tree), dict(self.tree)
        if self.pending:
            apply(after, self.pending["delta"])
        for allowed in (before, after):
            found_here, allowed_here = dict(found), dict(allowed)
            if self.open:
                found_here.pop(self.open, None)
                allowed_here.pop(self.open, None)
            if found_here == allowed_here:
                self._check_open(found, before, read, where)
                return dict(found)
        raise Failure(f"{where}: {describe(found, before, self.open, self.last)}"
                      + (f"; under way: {self.pending['begin']}" if self.pending else ""))

    def _check_open(self, found, before, read, where):
        """A file that was open for writing: it is there if it was, and holds what was synced. One
        that was made anew is not published half, but kept."""
        if not self.open:
            return
        check(self.kept is None or self.open not in before, f"{where}: {self.open} is kept, which only changed")
        check(self.open in found or self.open not in before, f"{where}: {self.open} is gone, it was open")
        if self.pending["whole"] and self.open in found and self.open not in before:
            check(found[self.open] == self.pending["delta"][self.open], f"{where}: {self.open} is there by half")
        if self.synced:
            check(self.kept is not None or self.open in found, f"{where}: {self.open} is gone after fsync()")
            data = self.kept if self.kept is not None else read(self.open)
            check(digest(data[:self.synced[1]]) == self.synced[0], f"{where}: {self.open} lost bytes after fsync()")


def describe(found, wanted, but=None, last=None):
    """The first differences, for a person."""
    lines = []
    for path in sorted(found.keys() | wanted.keys()):
        if path != but and found.get(path) != wanted.get(path):
            why = f" by {last[path]}" if last and path in last else ""
            lines.append(f"{path} is {short(found.get(path))}, must be {short(wanted.get(path))}{why}")
    return "; ".join(lines[:6]) + (f" and {len(lines) - 6} more" if len(lines) > 6 else "")


def short(entry):
    if entry is None:
        return "not there"
    return f"file {entry[1][:8]} of {entry[2]}" if entry[0] == "f" else " ".join(entry)


def read_tree(folder):
    """The tree below a folder as the mount shows it."""
    tree = {}

    def walk(where, prefix):
        for entry in os.scandir(where):
            path = prefix + entry.name
            if entry.is_symlink():
                tree[path] = ["l", os.readlink(entry.path)]
            elif entry.is_dir(follow_symlinks=False):
                tree[path] = ["d"]
                walk(entry.path, path + "/")
            else:
                with open(entry.path, "rb") as f:
                    data = f.read()
                tree[path] = ["f", digest(data), len(data)]

    walk(folder, "")
    return tree
