#!/usr/bin/env python3
"""appender.py FILE COUNT: appends numbered lines to FILE until SIGTERM or until a write fails, and
keeps in COUNT how many write() calls returned. It keeps the file open all the while: through
passthrough it goes on writing when the daemon is dead."""

import os
import signal
import sys
import time


def line(number):
    return b"%015d\n" % number


def main():
    try:
        fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError:
        return  # the daemon is dead already
    count = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT, 0o600)
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    number = 0
    while not stop:
        try:
            os.write(fd, line(number))
        except OSError:
            break
        number += 1
        os.pwrite(count, b"%015d" % number, 0)
        time.sleep(0.002)
    try:
        os.close(fd)
    except OSError:
        pass


if __name__ == "__main__":
    main()
