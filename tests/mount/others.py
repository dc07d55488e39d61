"""Who may read a path of root's mount (allow_other), and not its control socket, can wait until the store
has it, and look. Each case gets a Workplace. Uploads rest (settle=1h) until root's `runfs flush`."""

import ctypes
import json
import os
import signal
import subprocess

from harness import check, runfs_binary, wait_for
from waiting import READY, waits
from ways import NOBODY, Bench

WAIT, STATE, OWED = "user.runfs.wait", "user.runfs.state", "user.runfs.owed"
WAITS_OF_A_USER = 16


class Shared(Bench):
    """A mount of root's with a folder `theirs` of nobody's."""

    def __init__(self, work, name, more=""):
        super().__init__(work, name)
        os.chmod(self.top, 0o755)
        self.mount(",allow_other,settle=1h" + more)
        os.chmod(self.mountpoint, 0o755)
        self.theirs = f"{self.mountpoint}/theirs"
        os.mkdir(self.theirs)
        self.must("chown", "nobody:nogroup", self.theirs)
        self.children = []

    def write_theirs(self, name, text="x"):
        self.write(f"theirs/{name}", text, user=True)
        return f"{self.theirs}/{name}"

    def other(self, code, path):
        """Python code as nobody, with the path as `p`; what it printed, or the name of its errno."""
        done = self.call("python3", "-c", "import errno,os,sys\np=sys.argv[1]\ntry:\n " + code +
                         "\nexcept OSError as e: print(errno.errorcode[e.errno])", path, user=True)
        check(done.code == 0, done.output)
        return done.output.strip()

    def get(self, path, name):
        return self.other(f"print(os.getxattr(p,'{name}').decode())", path)

    def waiter(self, path, before=""):
        """A child of nobody's that waits for the path."""
        code = f"import os,sys\n{before}\n{READY}print(os.getxattr(sys.argv[1],'{WAIT}').decode(),flush=True)"
        child = subprocess.Popen([*NOBODY, "python3", "-c", code, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 cwd="/", text=True)
        self.children.append(child)
        check(child.stdout.readline() == "ready\n", "a child did not start")
        return child

    def waiting(self, path, before=""):
        child = self.waiter(path, before)
        wait_for("it waits", lambda: waits(child) and blocked(child))
        return child

    def end(self):
        for child in self.children:
            child.kill()
            child.communicate()
        self.umount()


def blocked(child):
    """In the kernel's getxattr() or lgetxattr(), as far as /proc tells."""
    try:
        with open(f"/proc/{child.pid}/syscall") as f:
            return f.read().split()[0] in ("191", "192", "8", "9") # x86_64, arm64
    except OSError:
        return True


def waits_and_looks(work):
    """More than the daemon has workers wait, and nobody is kept from anything; they end when the store has it,
    and not before, and hurry nothing."""
    bench = Shared(work, "wait-looks")
    path = bench.write_theirs("x", "content")
    check(bench.get(path, STATE) == "dirty", "its state")
    check(bench.get(path, OWED).startswith("files=1 bytes=7 uploading=0 failed=0 staged=0"), bench.get(path, OWED))
    check(bench.get(bench.theirs, OWED).startswith("files=1 bytes=7 "), bench.get(bench.theirs, OWED))
    children = [bench.waiting(path) for _ in range(8)] + [bench.waiting(bench.theirs) for _ in range(4)]
    # A wait for the folder that came while y is open would say EBUSY, and rightly: y comes whole.
    bench.write("y", "x")
    os.rename(f"{bench.mountpoint}/y", f"{bench.theirs}/y")
    check(sorted(os.listdir(bench.theirs)) == ["x", "y"], "ls")
    check("theirs/x" not in bench.stored() and all(c.poll() is None for c in children), "a wait hurried an upload")
    bench.must(runfs_binary(), "flush", path)
    check(bench.stored()["theirs/x"] == "content", "what root's flush stored")
    for child in children[:8]:
        check(child.communicate(timeout=30)[0] == "store\n", "what a wait for the file says")
    bench.must(runfs_binary(), "flush", bench.theirs)
    for child in children[8:]: # y is younger than they, and may have come to them
        check(child.communicate(timeout=30)[0] == "store\n", "what a wait for the folder says")
    check(bench.get(path, WAIT) == "store" and bench.get(path, STATE) == "clean", "at once, when it is there")
    check(bench.get(bench.theirs, OWED).startswith("files=0 bytes=0 "), bench.get(bench.theirs, OWED))
    bench.end()


def refused(work):
    """What no waiting helps, and what the caller may not."""
    bench = Shared(work, "wait-refused")
    bench.write("secret", "not for others")
    os.chmod(f"{bench.mountpoint}/secret", 0o600)
    for name in (WAIT, STATE, OWED):
        check(bench.get(f"{bench.mountpoint}/secret", name) == "EACCES", f"{name} of what may not be read")
    path = bench.write_theirs("x")
    check(bench.other(f"os.setxattr(p,'{WAIT}',b'store')", path) == "EPERM", "it was set")
    check(bench.get(bench.write_theirs("new.tmp"), WAIT) == "EBUSY", "what waits for its rename")
    with open(f"{bench.theirs}/open", "wb") as f:
        f.write(b"half")
        f.flush()
        os.chmod(f.name, 0o644)
        check(bench.get(f.name, WAIT) == "EBUSY", "an open file")
        os.fsync(f.fileno())
        check(bench.get(f.name, WAIT) == "EBUSY", "a synced one that only a close sends")
        check(bench.get(bench.theirs, WAIT) == "EBUSY", "the folder with them")
    children = [bench.waiter(path) for _ in range(WAITS_OF_A_USER + 1)]
    wait_for("one too many", lambda: any(c.poll() is not None for c in children))
    ended = [c for c in children if c.poll() is not None]
    check(len(ended) == 1 and "BlockingIOError" in ended[0].communicate()[1], f"{len(ended)} were sent away")
    check("EAGAIN" not in bench.must("python3", "-c", f"import os;print(os.getxattr('{bench.mountpoint}','{STATE}'))"),
          "root's question")
    bench.end()


ALARM = "import signal; signal.signal(signal.SIGALRM, lambda *a: None); signal.setitimer(signal.ITIMER_REAL, 0.3, 0.3)"


def interrupted(work):
    """By what kills and by any other signal; and by the mount's end."""
    bench = Shared(work, "wait-interrupted", ",drain_timeout=0.1s")
    path = bench.write_theirs("x")
    child = bench.waiting(path)
    child.terminate()
    check(child.wait(20) == -signal.SIGTERM, f"ended with {child.returncode}")
    child = bench.waiter(path, ALARM)
    check("InterruptedError" in child.communicate(timeout=20)[1], "no EINTR after a signal")
    bench.server.full = True
    child = bench.waiting(path)
    os.kill(bench.pid(), signal.SIGTERM)
    words = child.communicate(timeout=20)
    check("store" not in words[0] and "rror" in words[1], f"at the mount's end: {words}")
    wait_for("the daemon's end", lambda: bench.pid() is None)
    bench.server.full = False
    bench.mount(",allow_other")
    bench.end()


def by_the_commands(work):
    """`runfs status PATH` and `runfs flush PATH` by who may read the path, and by who sees the mount alone."""
    bench = Shared(work, "wait-commands")
    path = bench.write_theirs("x", "content")

    def other(*words):
        return bench.runfs(*words, user=True)

    status = json.loads(bench.must(runfs_binary(), "status", "--json", path, user=True))
    check(status["state"] == "dirty" and status["owed"]["files"] == 1 and status["owed"]["bytes"] == 7, f"{status}")
    check("1 files, 7 B" in other("status", bench.theirs).output, other("status", bench.theirs).output)
    done = other("flush", "--timeout", "2", path)
    check(done.code == 3 and "not everything" in done.output, f"exit {done.code}: {done.output}")
    for words, code in ((("flush", "--staged", path), 6), (("fetch", path), 6), (("pin", path), 6),
                        (("flush", f"{bench.theirs}/none"), 5)):
        done = other(*words)
        check(done.code == code and len(done.output.splitlines()) == 1, f"{words}: exit {done.code}: {done.output}")
    check(bench.stored().get("theirs/x") is None, "one of them hurried an upload")
    child = subprocess.Popen([*NOBODY, runfs_binary(), "flush", path], cwd="/")
    bench.children.append(child)
    wait_for("it waits", lambda: waits(child) and blocked(child))
    bench.must(runfs_binary(), "flush", path)
    check(child.wait(30) == 0 and bench.stored()["theirs/x"] == "content", f"ended with {child.returncode}")
    with open(f"{bench.theirs}/open", "w") as f:
        os.chmod(f.name, 0o644)
        f.write("half")
        f.flush()
        done = other("flush", bench.theirs)
        check(done.code == 3 and "open for writing" in done.output, f"exit {done.code}: {done.output}")
    # A container that was given the mount, and not the cache directory.
    inside = f"awk '/ - fuse[.]runfs / && $5 != \"{bench.mountpoint}\" {{ print $5 }}' /proc/self/mountinfo | tac | " \
             "while read -r p; do umount -l $p; done; " \
             f"mount -t tmpfs none {bench.cache} && exec {runfs_binary()} flush --timeout 2 {bench.theirs}"
    done = bench.call("unshare", "--mount", "--propagation", "private", "sh", "-c", inside)
    check(done.code == 3 and "not everything" in done.output, f"exit {done.code}: {done.output}")
    bench.end()


IMPOSTOR = """
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
os.chdir(sys.argv[1])
s.bind("control")
os.setgroups([]); os.setgid(65534); os.setuid(65534)
s.listen()
print("ready", flush=True)
while True:
    c, _ = s.accept()
    print("asked" if c.recv(100) else "not asked", flush=True)
    c.close()
"""


def impostor(work):
    """Who listens at a mount's socket and is not its owner is told nothing, and not believed."""
    bench = Bench(work, "impostor")
    bench.mount()
    socket, away = f"{bench.cache}/control", f"{bench.cache}/away"
    os.rename(socket, away)
    child = subprocess.Popen(["python3", "-c", IMPOSTOR, bench.cache], stdout=subprocess.PIPE, text=True)
    try:
        check(child.stdout.readline() == "ready\n", "the child did not start")
        for path in (bench.mountpoint, bench.cache):
            done = bench.runfs("status", path)
            check(done.code != 0 and "not asked" in done.output, f"{path}: exit {done.code}: {done.output}")
            check(child.stdout.readline() == "not asked\n", "it was asked")
    finally:
        child.kill()
        child.communicate()
        os.rename(away, socket)
    os.rename(bench.cache, bench.cache + "2") # and no symlink is followed
    os.symlink(bench.cache + "2", bench.cache)
    done = bench.runfs("flush", bench.mountpoint)
    check(done.code != 0, f"a symlink was followed: {done.output}")
    os.unlink(bench.cache)
    os.rename(bench.cache + "2", bench.cache)
    bench.umount()


def seen_by_root(work, user):
    """A user's mount, into which FUSE lets nobody else: its state, a flush, an unmount, by root."""
    bench = Bench(work, "seen", user=True)
    other = Bench(work, "seen-other", user=True)
    bench.mount(",settle=1h")
    other.mount(",settle=1h")
    bench.write("x", "content")
    status = json.loads(bench.must(runfs_binary(), "status", "--json", bench.mountpoint, user=False))
    check(status["mountpoint"] == bench.mountpoint and status["queue"]["dirty_files"] == 1, f"{status}")
    bench.must(runfs_binary(), "flush", bench.mountpoint, user=False)
    check(bench.stored() == {"x": "content"}, f"stored: {bench.stored()}")
    bench.must(runfs_binary(), "umount", bench.mountpoint, user=False)
    os.kill(other.pid(), signal.SIGSTOP) # whatever it does, root's question ends
    done = other.runfs("status", other.mountpoint, user=False)
    os.kill(other.pid(), signal.SIGCONT)
    check(done.code != 0 and "answers" in done.output, f"exit {done.code}: {done.output}")
    other.umount()


CROWD = """
import os, socket, sys
os.chdir(sys.argv[1])
sockets = []
for _ in range(200):
    sockets.append(socket.socket(socket.AF_UNIX))
    sockets[-1].connect("control")
print("ready", flush=True)
sys.stdin.read()
"""


def room_for_root(work, user):
    """However many connections the owner's programs keep open, root's question is answered."""
    bench = Bench(work, "crowd", user=True)
    bench.mount()
    child = subprocess.Popen([*NOBODY, "python3", "-c", CROWD, bench.cache], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    check(child.stdout.readline() == "ready\n", "the child did not start")
    done = bench.runfs("status", bench.mountpoint)
    check(done.code != 0 and "too many" in done.output, f"the owner's one more: exit {done.code}: {done.output}")
    bench.must(runfs_binary(), "status", bench.mountpoint, user=False)
    child.communicate()
    wait_for("room", lambda: bench.runfs("status", bench.mountpoint).code == 0)
    bench.umount()


def silent(work):
    """A user's mount that answers nothing: root's command ends."""
    bench = Bench(work, "silent")
    fd = os.open("/dev/fuse", os.O_RDWR)
    data = f"fd={fd},rootmode=40000,user_id=4000,group_id=4000,allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    check(libc.mount(b"x", bench.mountpoint.encode(), b"fuse.runfs", 0, data.encode()) == 0, os.strerror(ctypes.get_errno()))
    try:
        for command in ("status", "umount"):
            done = bench.runfs(command, bench.mountpoint, seconds=20)
            check(done.code != 0 and ("user 4000" in done.output or "busy" in done.output),
                  f"exit {done.code}: {done.output}")
    finally:
        os.close(fd) # ends what waits for it
        subprocess.run(["umount", "-l", bench.mountpoint], check=False)


def ends_before_an_unmount(work):
    """`runfs umount` uploads what is waited for, and is not kept by who is just being told."""
    bench = Shared(work, "wait-umount")
    path = bench.write_theirs("x")
    children = [bench.waiting(path) for _ in range(3)]
    bench.umount()
    for child in children:
        check(child.communicate()[0] == "store\n", "it was not told")


CASES = [waits_and_looks, ends_before_an_unmount, refused, interrupted, by_the_commands, impostor, silent]
USERS = [seen_by_root, room_for_root]
OF_THE_MACHINE = [by_the_commands, silent] # a copy of all mounts; a mount at which everybody waits
