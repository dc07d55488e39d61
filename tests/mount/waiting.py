"""Requests that wait for a store that answers nothing (a proxy in front of it is frozen): they
hold nobody else up, end when their caller is killed, and survive a signal that does not kill.
Each case gets a Stuck."""

import os
import signal
import subprocess
import sys
import time

from harness import check, wait_for

# What each child says last before it makes its call.
READY = "print('ready',flush=True); "
READ = "import os,sys; " + READY + "fd=os.open(sys.argv[1],os.O_RDONLY); print(len(os.pread(fd,65536,0)),flush=True)"


class Stuck:
    """A cold mount of files f0.. (1 MiB each) behind a proxy, with `here` complete in the cache."""

    def __init__(self, mount, proxy, count):
        self.mount, self.proxy, self.count = mount, proxy, count
        self.next = 0
        self.children = []

    def path(self, name):
        return os.path.join(self.mount.mountpoint, "stuck", name)

    def fresh(self):
        """The path of a file that nobody has read yet."""
        self.next += 1
        check(self.next <= self.count, "the test has too few files")
        return self.path(f"f{self.next - 1}")

    def reader(self, code=READ, path=None):
        child = subprocess.Popen([sys.executable, "-c", code, path or self.fresh()],
                                 stdout=subprocess.PIPE, text=True)
        self.children.append(child)
        return child

    def waiting_reader(self, code=READ, path=None):
        """The same, once it waits; as far as that can be seen."""
        child = self.reader(code, path)
        begun(child)
        return child

    def thaw(self):
        self.proxy.thaw()

    def end(self):
        self.thaw()
        for child in self.children:
            child.kill()
            child.wait()
            child.stdout.close()
        self.children = []


def begun(*children):
    for child in children:
        check(child.stdout.readline() == "ready\n", "a child did not start")
    time.sleep(0.5)
    for child in children:
        wait_for("it waits", lambda: waits(child)) # running still, on a busy machine


# What waits for the store waits for 180 s (suite.py: store_timeout); what does not is over long
# before, also on a busy machine and with a sanitizer.
AT_ONCE = 20


def in_time(what, function, *arguments):
    """A hang must not hang the test: the call is made by a child."""
    pid = os.fork()
    if pid == 0:
        try:
            function(*arguments)
            os._exit(0)
        except BaseException as e:
            print(f"{what}: {e}", file=sys.stderr)
            os._exit(1)
    end = time.monotonic() + AT_ONCE
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            check(status == 0, f"{what} failed")
            return
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    check(False, f"{what} took more than {AT_ONCE} s")


def waits(child):
    """Blocked in the kernel, as far as /proc tells."""
    with open(f"/proc/{child.pid}/stat") as f:
        return f.read().rsplit(")", 1)[1].split()[0] in "SD" and child.poll() is None


def dies_at_once(child, sig=signal.SIGKILL):
    """A caller that waits for the store ends when it is killed, not when the store answers."""
    child.send_signal(sig)
    check(child.wait(AT_ONCE) == -sig, f"ended with {child.returncode}")


def fifty_readers(stuck):
    """While 50 reads wait, ls, a complete file and create work."""
    stuck.proxy.freeze()
    children = [stuck.reader() for _ in range(50)]
    begun(*children)
    folder = os.path.dirname(stuck.path("x"))

    def read_here():
        with open(stuck.path("here"), "rb") as f:
            check(f.read() == b"complete" * 1000, "content of the complete file")

    def create():
        with open(stuck.path("new"), "wb") as f:
            f.write(b"new")
        with open(stuck.path("new"), "rb") as f:
            check(f.read() == b"new", "content of the new file")

    in_time("ls", os.listdir, folder)
    in_time("stat of each", lambda: [os.stat(stuck.path(n)) for n in ("here", "f0", "f49")])
    in_time("a read of a complete file", read_here)
    in_time("create, write, read", create)
    in_time("rename", os.rename, stuck.path("new"), stuck.path("newer"))
    in_time("unlink", os.unlink, stuck.path("newer"))
    in_time("status.json", lambda: open(f"{stuck.mount.mountpoint}/.runfs/status.json").read())
    stuck.thaw()
    for c in children:
        check(c.communicate(timeout=60)[0].strip() == "65536", "a read after the thaw")
        check(c.returncode == 0, f"a reader ended with {c.returncode}")


def killed_at_once(stuck):
    stuck.proxy.freeze()
    child = stuck.waiting_reader()
    dies_at_once(child)


def killed_in_a_listing(stuck):
    """The same in an operation of one request that the kernel waits for itself."""
    stuck.proxy.freeze()
    child = stuck.waiting_reader("import os,sys; " + READY + "os.listdir(sys.argv[1])",
                                 os.path.join(stuck.mount.mountpoint, "unlisted"))
    dies_at_once(child)


def killed_in_a_create(stuck):
    """Nobody can tell whether the name is free in a folder that was never listed."""
    stuck.proxy.freeze()
    folder = os.path.join(stuck.mount.mountpoint, "uncreated")
    for code in ("os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)",
                 "os.open(sys.argv[1], os.O_CREAT | os.O_EXCL | os.O_WRONLY)",
                 "os.mkdir(sys.argv[1])"):
        child = stuck.waiting_reader("import os,sys; " + READY + code, os.path.join(folder, "new"))
        dies_at_once(child)


def killed_after_a_signal(stuck):
    """The kernel tells of the first signal only; the second one kills."""
    stuck.proxy.freeze()
    child = stuck.waiting_reader("import signal\nsignal.signal(signal.SIGUSR1, lambda *a: None)\n" + READ)
    child.send_signal(signal.SIGUSR1)
    time.sleep(0.5)
    wait_for("it waits on after a signal", lambda: waits(child))
    dies_at_once(child)


def ended_by_sigterm(stuck):
    stuck.proxy.freeze()
    child = stuck.waiting_reader()
    dies_at_once(child, signal.SIGTERM)


PROFILED = """
import mmap, os, signal, sys, time
count = 0
def tick(*a):
    global count
    count += 1
signal.signal(signal.SIGALRM, tick)
signal.signal(signal.SIGUSR1, tick)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
print("ready", flush=True)
fd = os.open(sys.argv[1], os.O_RDONLY)
data = os.pread(fd, 65536, 0)
with mmap.mmap(fd, 1 << 20, prot=mmap.PROT_READ) as m:
    page = m[900000:900010]
signal.setitimer(signal.ITIMER_REAL, 0)
print(len(data), len(page), count > 0, flush=True)
"""


def signals_fail_nothing(stuck):
    """A profiler's timer fires through a read, an open and a page fault that wait."""
    stuck.proxy.freeze()
    child = stuck.waiting_reader(PROFILED)
    for _ in range(20):
        child.send_signal(signal.SIGUSR1)
        time.sleep(0.02)
    stuck.thaw()
    check(child.communicate(timeout=60)[0].split() == ["65536", "10", "True"], "its report")
    check(child.returncode == 0, f"ended with {child.returncode}")


def stopped_and_continued(stuck):
    stuck.proxy.freeze()
    child = stuck.waiting_reader()
    child.send_signal(signal.SIGSTOP)
    time.sleep(0.3)
    child.send_signal(signal.SIGCONT)
    stuck.thaw()
    check(child.communicate(timeout=60)[0].strip() == "65536", "the read after")


def one_request_for_all(stuck):
    """Many readers of one range cause one request."""
    stuck.proxy.freeze()
    path = stuck.fresh()
    before = stuck.proxy.stats()["down"]
    children = [stuck.reader(path=path) for _ in range(10)]
    begun(*children)
    stuck.thaw()
    for c in children:
        check(c.communicate(timeout=60)[0].strip() == "65536", "a read after the thaw")
    wait_for("the traffic ends", lambda: stuck.proxy.stats()["down"] > before)
    down = stuck.proxy.stats()["down"] - before
    check(down < (3 << 20), f"{down} bytes came for a file of 1 MiB")


# ---- durability=store: close() waits for the store ----

WRITE = ("import os,sys,time; fd=os.open(sys.argv[1],os.O_CREAT|os.O_WRONLY); os.write(fd,b'kept'*1000); " +
         READY)


def published_after_all(stuck, path):
    stuck.thaw()
    stuck.mount.flush()
    # The release that follows a close may have it looked at once more.
    wait_for("clean", lambda: os.getxattr(path, "user.runfs.state") == b"clean")


def killed_in_close(stuck):
    stuck.proxy.freeze()
    path = stuck.path("closing")
    child = stuck.waiting_reader(WRITE + "os.close(fd)", path)
    dies_at_once(child)
    published_after_all(stuck, path)


def killed_with_open_files(stuck):
    """The kernel closes them as the process exits, and tells of no signal then."""
    path = stuck.path("open")
    child = stuck.waiting_reader(WRITE + "time.sleep(1000)", path)
    stuck.proxy.freeze()
    dies_at_once(child)
    published_after_all(stuck, path)


def close_waits(stuck):
    stuck.proxy.freeze()
    child = stuck.waiting_reader(WRITE + "os.close(fd); print('closed', flush=True)", stuck.path("waits"))
    check(child.poll() is None, "close() does not wait for the store")
    stuck.thaw()
    check(child.communicate(timeout=60)[0].strip() == "closed", "after the thaw")
    wait_for("clean", lambda: os.getxattr(stuck.path("waits"), "user.runfs.state") == b"clean")


CASES = [fifty_readers, killed_at_once, killed_in_a_listing, killed_in_a_create, killed_after_a_signal, ended_by_sigterm,
         signals_fail_nothing, stopped_and_continued, one_request_for_all]
DURABLE_CASES = [killed_in_close, killed_with_open_files, close_waits]
