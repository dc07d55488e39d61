"""A mapping that outlives the descriptor it was made with: what it stores reaches the object store,
and nobody is told that all is there before it is. In passthrough such stores go past the daemon.
Each case gets a Place to mount, whose store it looks into by itself."""

import ctypes
import hashlib
import mmap
import os
import signal
import subprocess
import sys

from harness import check

SIZE = 65536
OLD = 1_000_000_000
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.msync.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Mapping:
    """A shared one, without a descriptor: mmap.mmap() keeps a copy of its own open."""

    def __init__(self, path, size=SIZE):
        fd = os.open(path, os.O_RDWR)
        self.size = size
        self.at = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
        os.close(fd)
        if self.at == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "mmap", path)

    def store(self, data, off=0):
        ctypes.memmove(self.at + off, data, len(data))

    def sync(self):
        check(libc.msync(self.at, self.size, 4) == 0, "msync") # MS_SYNC

    def close(self):
        libc.munmap(self.at, self.size)


def stored_file(mount, name):
    """A file that the store has."""
    path = f"{mount.mountpoint}/{name}"
    with open(path, "wb") as f:
        f.write(b"\0" * SIZE)
    os.utime(path, (OLD, OLD))
    mount.flush()
    return path


def is_stored(place, name, start, when):
    wanted = hashlib.sha256(start + b"\0" * (SIZE - len(start))).hexdigest()
    check(place.stored().get(name) == wanted, f"{when} the store lacks what was mapped")


def new_time_after_a_mapping(place):
    """utimensat() on a file whose mapping has written since it was closed, and writes on."""
    mount = place.mount()
    for name, later in (("gone", False), ("alive", True)):
        path = stored_file(mount, name)
        m = Mapping(path)
        m.store(b"mapped")
        if not later:
            m.close()
        os.utime(path, (OLD + 1, OLD + 1))
        if later:
            m.store(b"MAPPED")
            m.close()
        check(os.stat(path).st_mtime == OLD + 1 or later, "the time that was set")
    mount.umount()
    is_stored(place, "gone", b"mapped", "after the umount")
    is_stored(place, "alive", b"MAPPED", "after the umount")


def flush_of_a_mapping(place):
    """`runfs flush` answers when the store has what mappings had stored by then."""
    mount = place.mount()
    m = Mapping(stored_file(mount, "f"))
    for i in range(5):
        text = b"mapped %d" % i
        m.store(text)
        mount.flush()
        is_stored(place, "f", text, "after a flush")
    m.close()
    mount.umount()


def umount_after_a_mapping(place):
    """`runfs umount` right after the process that stored through a mapping has ended."""
    for i in range(3):
        mount = place.mount()
        path = stored_file(mount, f"f{i}")
        subprocess.run([sys.executable, __file__, path], check=True)
        mount.umount()
        is_stored(place, f"f{i}", b"mapped", "after the umount")


def sigterm_beside_a_mapping(place):
    """SIGTERM to the daemon while a program has a file mapped: what it stored by then is uploaded. What it
    stores later the daemon can't know, except in passthrough: that is told, and the exit code is not 0."""
    mount = place.mount()
    m = Mapping(stored_file(mount, "f"))
    m.store(b"mapped")
    past = mount.status()["frontend"]["passthrough"]
    code = terminate(mount)
    is_stored(place, "f", b"mapped", "after SIGTERM")
    if not past:
        check(code == 3, f"exit {code} while a program has a file mapped")
        check("f: it is mapped" in mount.log_tail(), f"the log is silent: {mount.log_tail()}")
    m.close()


def sigterm_beside_an_open_file(place):
    """One that may be mapped, and is not: what was written by then is uploaded, and the exit code is 0."""
    mount = place.mount()
    fd = os.open(stored_file(mount, "f"), os.O_RDWR)
    os.write(fd, b"written")
    code = terminate(mount)
    try:
        os.close(fd)
    except OSError:
        pass # nobody is there to hear of it
    check(code == 0, f"exit {code}: {mount.log_tail()}")
    is_stored(place, "f", b"written", "after SIGTERM")


def stopped_with_its_program(place):
    """As systemd stops a group: the daemon gets SIGTERM, and who mapped a file is killed right behind it."""
    mount = place.mount()
    with started(stored_file(mount, "f")) as program:
        mount.process.send_signal(signal.SIGTERM)
        program.kill()
    mount.wait_dead()
    is_stored(place, "f", b"mapped", "after SIGTERM")


def detached_beside_a_mapping(place):
    """An unmount is refused while a file is mapped, or lazy: then the daemon goes on until nobody has it mapped."""
    mount = place.mount()
    m = Mapping(stored_file(mount, "f"))
    check(subprocess.run(["fusermount3", "-u", mount.mountpoint], stderr=subprocess.DEVNULL).returncode != 0,
          "unmounted while a file is mapped")
    mount.detach()
    m.store(b"mapped")
    m.sync()
    m.close()
    check(mount.wait_dead() == 0, f"exit code: {mount.log_tail()}")
    is_stored(place, "f", b"mapped", "after the last mapping")


def sigterm_beside_a_detached_mapping(place):
    """Nobody reaches the file by its name any more: what the kernel holds back of it can't be asked for."""
    mount = place.mount()
    past = mount.status()["frontend"]["passthrough"]
    m = Mapping(stored_file(mount, "f"))
    m.store(b"mapped")
    mount.detach()
    code = terminate(mount)
    m.close()
    if past:
        is_stored(place, "f", b"mapped", "after SIGTERM")
    else:
        check(code == 3, f"exit {code} while a program has a file mapped")


def terminate(mount):
    mount.process.send_signal(signal.SIGTERM)
    return mount.wait_dead()


def started(path):
    """A program that has stored through a mapping, and waits."""
    program = subprocess.Popen([sys.executable, __file__, path, "wait"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    check(program.stdout.readline(), "no word of the program that maps")
    return program


CASES = [new_time_after_a_mapping, flush_of_a_mapping, umount_after_a_mapping, sigterm_beside_a_mapping,
         sigterm_beside_an_open_file, stopped_with_its_program, detached_beside_a_mapping,
         sigterm_beside_a_detached_mapping]

if __name__ == "__main__": # stores through a mapping, and ends without a sync
    Mapping(sys.argv[1]).store(b"mapped")
    if len(sys.argv) > 2:
        print("stored", flush=True)
        signal.pause()
