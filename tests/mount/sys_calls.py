"""System calls that Python's os module lacks."""

import ctypes
import errno
import fcntl
import os

_libc = ctypes.CDLL(None, use_errno=True)

AT_FDCWD = -100
AT_SYMLINK_FOLLOW = 0x400
RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2
FALLOC_FL_KEEP_SIZE = 1
FALLOC_FL_PUNCH_HOLE = 2
FALLOC_FL_ZERO_RANGE = 0x10
MS_NOSUID, MS_NODEV, MS_REMOUNT = 2, 4, 32
UTIME_OMIT = (1 << 30) - 2


def _checked(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def renameat2(old, new, flags):
    _checked(_libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new),
                             ctypes.c_uint(flags)))


def linkat_fd(fd, new):
    """Gives a name to a file that has none."""
    _checked(_libc.linkat(AT_FDCWD, f"/proc/self/fd/{fd}".encode(), AT_FDCWD, os.fsencode(new),
                          AT_SYMLINK_FOLLOW))


def ioctl_in(path, number, size):
    """An ioctl() of a file or directory, on zeros; what it answers."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return fcntl.ioctl(fd, number, bytes(size))
    finally:
        os.close(fd)


def fallocate(fd, mode, offset, length):
    _checked(_libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)))


class _Timespec(ctypes.Structure):
    _fields_ = [("sec", ctypes.c_long), ("nsec", ctypes.c_long)]


def forget_names(mountpoint):
    """Lets the kernel forget all names of this mount that nobody uses, as lack of memory does. Needs root."""
    _checked(_libc.mount(None, os.fsencode(mountpoint), None, ctypes.c_ulong(MS_REMOUNT | MS_NOSUID | MS_NODEV), None))


def set_atime(path, seconds):
    """The time of the last access, and no other."""
    times = (_Timespec * 2)(_Timespec(seconds, 0), _Timespec(0, UTIME_OMIT))
    _checked(_libc.utimensat(AT_FDCWD, os.fsencode(path), times, 0))


def errno_of(function, *arguments):
    """The name of the errno that the call fails with, or "" when it succeeds."""
    try:
        function(*arguments)
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e.errno))
    return ""
