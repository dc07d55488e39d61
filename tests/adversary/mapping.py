"""Files mapped for writing."""

import ctypes
import os

from harness import check

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = libc.msync.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.msync.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
PROT_READ, PROT_WRITE, MAP_SHARED, MS_SYNC = 1, 2, 1, 4
MAP_FAILED = ctypes.c_void_p(-1).value


class Mapping:
    """A file mapped for writing, whose descriptor is closed: Python's own mapping keeps a duplicate of it."""

    def __init__(self, path):
        fd = os.open(path, os.O_RDWR)
        self.size = os.fstat(fd).st_size
        self.at = libc.mmap(None, self.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
        failed = ctypes.get_errno() if self.at == MAP_FAILED else 0
        try:
            os.close(fd) # which may tell of an earlier upload
        except OSError:
            self.__exit__()
            raise
        if failed:
            raise OSError(failed, f"mmap of {path}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.at != MAP_FAILED:
            libc.munmap(self.at, self.size)

    def write(self, body):
        ctypes.memmove(self.at, body, len(body))

    def sync(self):
        check(libc.msync(self.at, self.size, MS_SYNC) == 0, "msync")
