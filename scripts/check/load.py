"""load.py FILE COMMAND...: runs the command and keeps one line in FILE, renewed every second: the time, the
seconds that the machine's processors worked so far (with what a hypervisor gave to others), and those of them
that were work of the command and all that descends from it.

Daemons leave their parents: so that their time is counted, and is not lost when they end, they become children
of this process, which fetches them when they end. Its exit code is the command's.
"""

import ctypes
import os
import signal
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
TICK = os.sysconf("SC_CLK_TCK")
SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


def busy_ticks():
    """Of the processors that we may use, which in a container need not be all."""
    ours = {f"cpu{n}" for n in os.sched_getaffinity(0)}
    total = 0
    with open("/proc/stat", encoding="ascii") as f:
        for line in f:
            name, *values = line.split()
            if name in ours:
                user, nice, system, _, _, irq, softirq, steal = map(int, values[:8])
                total += user + nice + system + irq + softirq + steal
    return total


def own_ticks():
    """Our own time and that of all below us: what lives, and what was waited for."""
    ticks, children = {}, {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", "rb") as f:
                fields = f.read().rpartition(b")")[2].split()
        except OSError:
            continue # it has ended
        children.setdefault(int(fields[1]), []).append(int(pid))
        ticks[int(pid)] = sum(map(int, fields[11:15])) # utime, stime, cutime, cstime
    total, todo = 0, [os.getpid()]
    while todo:
        pid = todo.pop()
        total += ticks.get(pid, 0)
        todo += children.get(pid, [])
    return total


def note(path):
    with open(f"{path}.new", "w", encoding="ascii") as f:
        f.write(f"{time.monotonic():.1f} {busy_ticks() / TICK:.1f} {own_ticks() / TICK:.1f}\n")
    os.rename(f"{path}.new", path)


def fetch(child):
    """Of all that ended; the command's exit code when it is among them."""
    code = None
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                code = os.waitstatus_to_exitcode(ended[1])
    except ChildProcessError:
        pass
    return code


def main():
    path, command = sys.argv[1], sys.argv[2:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    note(path)
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        os.execvp(command[0], command)
    code, noted = None, time.monotonic()
    while code is None:
        heard = signal.sigtimedwait(SIGNALS, 1)
        if heard and heard.si_signo in (signal.SIGTERM, signal.SIGHUP): # ^C goes to the command as well as to us
            os.kill(child, heard.si_signo)
        code = fetch(child)
        if code is not None or time.monotonic() > noted + 1:
            note(path)
            noted = time.monotonic()
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
