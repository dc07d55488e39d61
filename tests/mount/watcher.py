"""Proof that nothing outside a folder's expected parts is touched: inotify on everything around
them while the mount runs, and a comparison of what lies there before and after."""

import ctypes
import os
import stat
import struct

from harness import Failure

EVENTS = {0x2: "modified", 0x4: "attributes changed", 0x40: "moved away", 0x80: "moved in",
          0x100: "created", 0x200: "deleted", 0x400: "deleted itself", 0x800: "moved itself"}
OVERFLOW = 0x4000
ADD, NONBLOCK = sum(EVENTS), os.O_NONBLOCK
libc = ctypes.CDLL(None, use_errno=True)


def look(path):
    """What a change of the file would change; not the access time."""
    st = os.lstat(path)
    content = b""
    if stat.S_ISREG(st.st_mode):
        with open(path, "rb") as f:
            content = f.read()
    return st.st_ino, st.st_mode, st.st_uid, st.st_gid, st.st_nlink, st.st_size, st.st_mtime_ns, content


class Watcher:
    """Over `top` (bytes), except for the entries of it that are named in `free`, which may change."""

    def __init__(self, top, free):
        self.top, self.free = os.fsencode(top), {os.fsencode(f) for f in free}
        self.fd = libc.inotify_init1(NONBLOCK)
        if self.fd < 0:
            raise Failure(f"inotify: {os.strerror(ctypes.get_errno())}")
        self.folders = {}
        self.before = self.around()
        for folder in [self.top] + [p for p, seen in self.before.items() if stat.S_ISDIR(seen[1])]:
            number = libc.inotify_add_watch(self.fd, folder, ADD)
            if number < 0:
                raise Failure(f"inotify of {folder}: {os.strerror(ctypes.get_errno())}")
            self.folders[number] = folder

    def around(self):
        found = {}
        for where, folders, files in os.walk(self.top):
            if where == self.top:
                folders[:] = [f for f in folders if f not in self.free]
                files = [f for f in files if f not in self.free]
            for name in folders + files:
                path = os.path.join(where, name)
                found[path] = look(path)
        return found

    def events(self):
        told = []
        while True:
            try:
                data = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                return told
            at = 0
            while at < len(data):
                number, mask, _, size = struct.unpack_from("iIII", data, at)
                name = data[at + 16:at + 16 + size].rstrip(b"\0")
                at += 16 + size
                if mask & OVERFLOW:
                    raise Failure("inotify lost events")
                where = self.folders[number]
                if where != self.top or name not in self.free:
                    what = [text for bit, text in EVENTS.items() if mask & bit]
                    told.append(f"{os.path.join(where, name)!r} {' '.join(what)}")

    def check(self):
        """Everything that happened since the start; a Failure when it was anything at all."""
        told = self.events()
        os.close(self.fd)
        after = self.around()
        told += [f"{p!r} differs" for p in self.before.keys() | after.keys() if self.before.get(p) != after.get(p)]
        if told:
            raise Failure(f"touched outside: {'; '.join(sorted(set(told))[:10])}")
