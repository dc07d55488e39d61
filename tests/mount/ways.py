"""The ways of mounting: by root and by a user without privilege (fusermount3), for others too, by
mount(8) and fstab, by systemd; what a crash left is taken over, and SIGTERM drains. Each case gets
a Bench: a folder, a server in memory, and mounts that go through the command line."""

import ctypes
import errno
import fcntl
import os
import pwd
import re
import select
import shutil
import signal
import stat
import struct
import subprocess
import time

from harness import Failure, check, is_mountpoint, runfs_binary, s3_environment, wait_for
from plain_s3 import PlainS3

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
NOBODY = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]


class Done:
    def __init__(self, process, output):
        self.code, self.output = process, output


class Bench:
    def __init__(self, work, name, user=False):
        self.work, self.top = work, work.make(name)
        self.user = user
        self.server = PlainS3()
        work.cleanups.append(self.server.stop)
        self.mountpoint, self.cache = f"{self.top}/mnt", f"{self.top}/cache"
        self.env = {**s3_environment(), "HOME": f"{self.top}/home", "XDG_CACHE_HOME": f"{self.top}/home"}
        for folder in (self.mountpoint, self.env["HOME"]):
            os.makedirs(folder)
        if user:
            for folder in (self.top, self.mountpoint, self.env["HOME"]):
                shutil.chown(folder, "nobody", "nogroup")
        work.cleanups.append(self.clean)
        self.daemon = None

    def clean(self):
        if self.daemon and self.daemon.poll() is None:
            self.daemon.kill()
            self.daemon.wait()
        pid = self.pid()
        if pid:
            os.kill(pid, signal.SIGKILL)
        while is_mountpoint(self.mountpoint):
            subprocess.run(["umount", "-l", self.mountpoint], check=True)

    @property
    def options(self):
        return f"cache_dir={self.cache},region=us-east-1,path_style,settle=0.1s,endpoint={self.server.endpoint}"

    def call(self, *words, user=None, env=None, seconds=90):
        """A command as this bench's user; its exit code and output."""
        command = (NOBODY if (self.user if user is None else user) else []) + list(words)
        done = subprocess.run(command, env={**self.env, **(env or {})}, stdin=subprocess.DEVNULL, timeout=seconds,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/")
        return Done(done.returncode, done.stdout)

    def runfs(self, *words, **more):
        return self.call(runfs_binary(), *words, **more)

    def must(self, *words, **more):
        done = self.call(*words, **more)
        check(done.code == 0, f"{' '.join(words)[-80:]}: exit {done.code}: {done.output.strip()}")
        return done.output

    def mount(self, more="", **how):
        self.must(runfs_binary(), "mount", "-o", self.options + more, "s3://bucket/p", self.mountpoint, **how)

    def start(self, more=""):
        """In the foreground, as our child."""
        with open(f"{self.top}/log", "wb") as log:
            self.daemon = subprocess.Popen([runfs_binary(), "mount", "-f", "-o", self.options + more, "s3://bucket/p",
                                            self.mountpoint], env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for("the mount", lambda: os.path.ismount(self.mountpoint), 30)

    def log(self):
        with open(f"{self.top}/log" if self.daemon else f"{self.cache}/runfs.log", errors="replace") as f:
            return f.read()

    def umount(self):
        self.must(runfs_binary(), "umount", self.mountpoint, "--timeout", "60")
        check(not is_mountpoint(self.mountpoint), "still mounted after umount")

    def pid(self):
        """The daemon, found by its command line."""
        names = {os.path.basename(runfs_binary()).encode(), b"runfs", b"mount.fuse.runfs", b"mount.runfs"}
        for entry in os.listdir("/proc"):
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as f:
                    words = f.read().split(b"\0")
            except OSError:
                continue
            if os.path.basename(words[0]) in names and self.mountpoint.encode() in [w.rstrip(b"/") for w in words]:
                return int(entry)
        return None

    def flags(self):
        with open("/proc/self/mountinfo") as f:
            for line in f:
                words = line.split()
                if words[4] == self.mountpoint:
                    return set(words[5].split(",")), words[words.index("-") + 1], \
                           set(words[words.index("-") + 3].split(","))
        raise Failure("not mounted")

    def kill(self):
        pid = self.pid()
        check(pid, "no daemon found")
        os.kill(pid, signal.SIGKILL)
        wait_for("the daemon's end", lambda: self.pid() is None)

    def write(self, name, text, user=None):
        self.must("sh", "-c", 'printf %s "$2" >"$1"', "sh", f"{self.mountpoint}/{name}", text, user=user)

    def stored(self):
        return {k[2:].decode(): v.decode() for k, v in self.server.bodies().items() if not k.endswith(b"/")}


def _errno(function, *arguments):
    try:
        function(*arguments)
    except OSError as e:
        return errno.errorcode[e.errno]
    return None


# ---- flags and permissions ----

def flags(work, user):
    """nosuid and nodev unless asked otherwise, and only root may ask."""
    bench = Bench(work, f"flags-{user}", user)
    bench.mount()
    mount_flags, kind, filesystem = bench.flags()
    check({"nosuid", "nodev"} <= mount_flags and kind == "fuse.runfs", f"{mount_flags} {kind}")
    check("default_permissions" in filesystem, f"{filesystem}")
    check("allow_other" not in filesystem, "allow_other, though nobody asked for it")
    check(f"user_id={os.geteuid() if not user else pwd.getpwnam('nobody').pw_uid}" in filesystem, f"{filesystem}")
    bench.umount()
    asked = bench.runfs("mount", "-o", bench.options + ",suid,dev,noexec", "s3://bucket/p", bench.mountpoint)
    if user and asked.code != 0: # fusermount3 may refuse as well as ignore it
        check(len(asked.output.strip().splitlines()) == 1, f"not one line: {asked.output}")
        return
    check(asked.code == 0, asked.output)
    mount_flags, _, _ = bench.flags()
    check(({"nosuid", "nodev"} <= mount_flags) == user, f"asked for suid and dev: {mount_flags}")
    check("noexec" in mount_flags, f"asked for noexec: {mount_flags}")
    bench.umount()


def other_users(work, user):
    """Without allow_other nobody else gets in; with it the modes decide (default_permissions)."""
    bench = Bench(work, "others")
    os.chmod(bench.top, 0o755)
    bench.mount()
    bench.write("open", "seen by all")
    check(bench.call("cat", f"{bench.mountpoint}/open", user=True).code != 0, "another user reads without allow_other")
    bench.umount()
    bench.mount(",allow_other")
    top = bench.mountpoint
    os.chmod(top, 0o755)
    bench.write("secret", "not for others")
    os.chmod(f"{top}/secret", 0o600)
    os.chmod(f"{top}/open", 0o644)
    os.mkdir(f"{top}/private", 0o700)
    bench.write("private/name.tmp", "a name to be hidden, too")
    os.mkdir(f"{top}/theirs")
    shutil.chown(f"{top}/theirs", "nobody", "nogroup")

    def other(*words):
        return bench.call(*words, user=True).code == 0

    check(other("cat", f"{top}/open"), "a file for all can't be read")
    for words in (("cat", f"{top}/secret"), ("ls", f"{top}/private"), ("cat", f"{top}/private/name.tmp"),
                  ("touch", f"{top}/new"), ("sh", "-c", f"echo x >>{top}/open"), ("rm", "-f", f"{top}/open"),
                  ("mv", f"{top}/open", f"{top}/theirs/open"), ("chmod", "666", f"{top}/open"),
                  ("chown", "nobody", f"{top}/open"), ("setfattr", "-n", "user.x", "-v", "1", f"{top}/open")):
        check(not other(*words), f"another user may {' '.join(words)}")
    check(other("sh", "-c", f"echo mine >{top}/theirs/x && chmod 600 {top}/theirs/x"), "no file in one's own folder")
    made = os.stat(f"{top}/theirs/x")
    check(made.st_uid == pwd.getpwnam("nobody").pw_uid and stat.S_IMODE(made.st_mode) == 0o600, "owner and mode")
    # The status names files of folders that are closed to others.
    check(not other("cat", f"{top}/.runfs/status.json"), "another user reads the status")
    check(other("cat", f"{top}/.runfs/metrics"), "the metrics can't be read")
    check(bench.call("cat", f"{top}/.runfs/status.json").code == 0, "root can't read the status")
    bench.umount()


def allow_other_refused(work, user):
    """A user may not open a mount for others unless the administrator allows that: one line says so."""
    bench = Bench(work, "allowed", user=True)
    with open("/etc/fuse.conf", encoding="ascii") as f:
        allowed = re.search(r"^\s*user_allow_other", f.read(), re.M)
    done = bench.runfs("mount", "-o", bench.options + ",allow_other", "s3://bucket/p", bench.mountpoint)
    if allowed:
        check(done.code == 0, done.output)
        bench.umount()
        return
    check(done.code == 6 and "user_allow_other" in done.output, f"exit {done.code}: {done.output}")
    check(not is_mountpoint(bench.mountpoint), "mounted all the same")


def flush_of_closed_files(work, user):
    """A flush by who may not open what is written, and so can't tell whether mappings stored something,
    says so; what the daemon has is flushed all the same."""
    bench = Bench(work, "looks", user=True)
    bench.mount(",settle=1h")
    bench.write("other", "x")
    bench.write("open", "x")
    path = f"{bench.mountpoint}/open"
    holder = subprocess.Popen([*NOBODY, "sh", "-c", 'exec 3<>"$1"; echo; read -r end', "sh", path], cwd="/",
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        holder.stdout.readline() # it is open
        bench.must("chmod", "0", path)
        done = bench.runfs("flush", bench.mountpoint)
        check(done.code == 6 and "may not be opened" in done.output, f"exit {done.code}: {done.output}")
        check(bench.stored().get("other") == "x", f"stored: {bench.stored()}")
        bench.must("chmod", "600", path)
        bench.must(runfs_binary(), "flush", bench.mountpoint)
    finally:
        holder.communicate()
    bench.umount()


# ---- a user's own mount, and what a crash leaves ----

def by_a_user(work, user):
    """Mount, write, status, unmount, with the default cache directory."""
    bench = Bench(work, f"day-{user}", user)
    bench.cache = ""
    options = bench.options.replace("cache_dir=,", "")
    if not user: # root's is not in its home
        options += f",cache_dir={bench.top}/cache"
    bench.must(runfs_binary(), "mount", "-o", options, "s3://bucket/p", bench.mountpoint)
    bench.write("x", "content")
    check(bench.runfs("status", bench.mountpoint).code == 0, "status")
    if user:
        check(os.listdir(f"{bench.env['HOME']}/runfs"), "no cache in the user's home")
    bench.umount()
    check(bench.stored() == {"x": "content"}, f"stored: {bench.stored()}")


def taken_over(work, user):
    """A crash leaves a dead mountpoint; the next mount takes it over, and nothing is lost."""
    bench = Bench(work, f"crash-{user}", user)
    bench.server.full = True
    bench.mount()
    bench.write("kept", "precious")
    held = subprocess.Popen((NOBODY if user else []) + ["sleep", "300"], cwd=bench.mountpoint) if not user else None
    try:
        bench.kill()
        # As the user: root may not look into it while it lives either.
        wait_for("a dead mountpoint", lambda: bench.call("ls", bench.mountpoint).code != 0)
        bench.mount()
        check(bench.must("cat", f"{bench.mountpoint}/kept") == "precious", "content after the takeover")
        check("took over" in bench.log(), "the log is silent")
        bench.kill() # and again, by the path with a slash
        wait_for("a dead mountpoint", lambda: bench.call("ls", bench.mountpoint).code != 0)
        bench.must(runfs_binary(), "mount", "-o", bench.options, "s3://bucket/p", bench.mountpoint + "/")
        bench.server.full = False
        bench.umount()
    finally:
        if held:
            held.kill()
            held.wait()
    check(bench.stored() == {"kept": "precious"}, f"stored: {bench.stored()}")


def of_another_user(work, user):
    """A dead mount of somebody else is not taken away by a user: one line says what is there."""
    bench = Bench(work, "foreign")
    bench.mount()
    bench.kill()
    os.chmod(bench.top, 0o777)
    done = bench.call(runfs_binary(), "mount", "-o", bench.options.replace(bench.cache, f"{bench.top}/other"),
                      "s3://bucket/p", bench.mountpoint, user=True)
    check(done.code == 4 and len(done.output.strip().splitlines()) == 1 and bench.mountpoint in done.output,
          f"exit {done.code}: {done.output}")
    check(is_mountpoint(bench.mountpoint), "it was taken away")


# ---- mount(8), fstab, systemd ----

def _in_namespace(bench, script, sbin=True):
    """Runs a shell script as root in a mount namespace of its own, where runfs is installed."""
    for folder in ("sbin", "bin"):
        os.makedirs(f"{bench.top}/{folder}", exist_ok=True)
    helpers = [f"{bench.top}/sbin/mount.fuse.runfs", f"{bench.top}/sbin/mount.runfs"] if sbin else []
    for link in (f"{bench.top}/bin/runfs", *helpers):
        if not os.path.lexists(link):
            os.symlink(os.path.abspath(runfs_binary()), link)
    # A copy of another test's mount would keep its daemon from seeing an unmount.
    setup = "awk '/ - fuse[.]runfs / { print $5 }' /proc/self/mountinfo | tac | while read -r p; do umount -l $p; done\n" \
            "mount -t overlay -o lowerdir=$TOP/sbin:/usr/sbin none /usr/sbin\n" \
            "mount -t overlay -o lowerdir=$TOP/bin:/usr/bin none /usr/bin\n"
    return bench.must("unshare", "--mount", "--propagation", "private", "sh", "-euc", setup + script,
                      env={"TOP": bench.top, "MNT": bench.mountpoint, "OPTIONS": bench.options,
                           "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})


SHOW = 'grep " $MNT " /proc/self/mountinfo\n'


def by_mount_8(work, user):
    """`mount -t fuse.runfs` and an fstab line; umount(8) leaves the upload to the daemon."""
    bench = Bench(work, "mount8")
    out = _in_namespace(bench, f"""
        mount -t fuse.runfs -o "$OPTIONS,_netdev,nofail" s3://bucket/p "$MNT"
        {SHOW}
        echo one >"$MNT/one"
        umount "$MNT"
        """)
    check("fuse.runfs" in out and "nosuid" in out and "nodev" in out, f"by type: {out}")
    wait_for("the upload after umount(8)", lambda: bench.stored() == {"one": "one\n"}, 20)
    wait_for("the daemon's end", lambda: bench.pid() is None, 20)
    with open(f"{bench.top}/fstab", "w", encoding="ascii") as f:
        f.write(f"s3://bucket/p {bench.mountpoint} fuse.runfs _netdev,nofail,{bench.options} 0 0\n"
                f"s3://bucket/p {bench.top}/asked fuse.runfs noauto,suid,dev,{bench.options} 0 0\n")
    os.makedirs(f"{bench.top}/asked")
    out = _in_namespace(bench, f"""
        mount -T "$TOP/fstab" "$MNT"
        {SHOW}
        echo two >"$MNT/two"
        cat "$MNT/one"
        runfs umount "$MNT"
        mount -T "$TOP/fstab" "$TOP/asked"
        grep " $TOP/asked " /proc/self/mountinfo | sed 's/^/asked: /'
        runfs umount "$TOP/asked"
        """)
    asked = [line for line in out.splitlines() if line.startswith("asked:")]
    check("nosuid" in out and "nodev" in out and "one" in out, f"by fstab: {out}")
    # mount(8) hands neither suid nor dev on: they are its defaults. The safe side, then.
    check(len(asked) == 1 and "nosuid" in asked[0] and "nodev" in asked[0], f"asked for suid, dev: {asked}")
    check(bench.stored() == {"one": "one\n", "two": "two\n"}, f"stored: {bench.stored()}")


def by_the_short_type(work, user):
    """`mount -t runfs`; what mount(8) lets fstab say for every filesystem; -f mounts nothing."""
    bench = Bench(work, "short")
    bench.must("mkdir", f"{bench.top}/fake")
    with open(f"{bench.top}/fstab", "w", encoding="ascii") as f:
        f.write(f"s3://bucket/p {bench.mountpoint} runfs _netdev,nofail,noauto,user,comment=x,x-gvfs-hide,"
                f"x-systemd.automount,default_permissions,context=\"system_u:object_r:x_t:s0:c1,c2\",conflict=last,{bench.options} 0 0\n")
    out = _in_namespace(bench, f"""
        mount -f -t runfs -o "$OPTIONS" s3://bucket/p "$TOP/fake"
        ! grep " $TOP/fake " /proc/self/mountinfo
        mount -T "$TOP/fstab" "$MNT"
        {SHOW}
        echo x >"$MNT/x"
        python3 -c 'import os, sys; print(os.getxattr(sys.argv[1], "user.runfs.policy"))' "$MNT/x"
        runfs umount "$MNT"
        """)
    check("fuse.runfs" in out and "nosuid" in out and "b'options'" in out, out)
    check(bench.stored() == {"x": "x\n"}, f"stored: {bench.stored()}")


def remounted(work, user):
    """mount -o remount: what the kernel keeps changes, what is the same may be said, and any other
    option is refused by its name."""
    bench = Bench(work, "again")
    with open(f"{bench.top}/fstab", "w", encoding="ascii") as f:
        f.write(f"s3://bucket/p {bench.mountpoint} runfs _netdev,{bench.options} 0 0\n")
    _in_namespace(bench, """
        refused() {
            ! mount -T "$TOP/fstab" -o "remount,$1" "$MNT" 2>"$TOP/said" || exit 1
            grep "option $2 can't change" "$TOP/said"
        }
        mount -T "$TOP/fstab" "$MNT"
        mount -o remount,ro "$MNT"
        ! touch "$MNT/x" || exit 1
        mount -o remount,rw,noexec "$MNT"
        grep " $MNT rw,nosuid,nodev,noexec" /proc/self/mountinfo
        touch "$MNT/x"
        mount -T "$TOP/fstab" -o remount,settle=100ms,conflict=keep "$MNT"
        refused conflict=last conflict
        refused settle=5s settle
        refused allow_other allow_other
        refused region=elsewhere region
        runfs mount -o remount,ro s3://bucket/p "$MNT"
        runfs mount -o remount,nosuid s3://bucket/p "$MNT"
        grep " $MNT ro,nosuid,nodev,noexec" /proc/self/mountinfo
        mount -o remount,rw "$MNT"
        exec 3>"$MNT/x"
        ! mount -o remount,ro "$MNT" 2>"$TOP/said" || exit 1
        grep "open for writing" "$TOP/said"
        exec 3>&-
        runfs umount "$MNT"
        mount -T "$TOP/fstab" -o ro "$MNT"
        mount -o remount,ro "$MNT"
        refused rw rw
        runfs umount "$MNT"
        ! mount -T "$TOP/fstab" -o remount "$MNT" 2>"$TOP/said" || exit 1
        """)


def by_fuses_helper(work, user):
    """Where only fuse3's own helper is there, which asks for suid and dev unasked."""
    if not shutil.which("mount.fuse", path="/usr/sbin:/sbin"):
        return "fuse3's mount.fuse is not here"
    bench = Bench(work, "fuse3")
    out = _in_namespace(bench, f"""
        mount -t fuse.runfs -o "$OPTIONS" s3://bucket/p "$MNT"
        {SHOW}
        echo x >"$MNT/x"
        runfs umount "$MNT"
        """, sbin=False)
    check("nosuid" in out and "nodev" in out, f"{out}")
    check(bench.stored() == {"x": "x\n"}, f"stored: {bench.stored()}")
    return None


def by_systemd(work, user):
    """The unit is one that systemd takes, and its commands, run as systemd runs them, drain."""
    bench = Bench(work, "unit")
    unit = f"{TOP}/packaging/runfs@.service"
    with open(unit, encoding="ascii") as f:
        text = f.read()
    said = "not looked at by systemd-analyze, calls not filtered"
    if shutil.which("systemd-analyze"):
        shutil.copy(unit, f"{bench.top}/runfs@test.service")
        said = _in_namespace(bench, 'systemd-analyze verify --man=no "$TOP/runfs@test.service" 2>&1')
        check(not said.strip(), f"systemd-analyze: {said}")
        said = None
    settings = dict(re.findall(r"^(\w+)=(.*)$", text, re.M))
    stop = int(settings["TimeoutStopSec"])
    drain = int(re.search(r"--timeout (\d+)", settings["ExecStop"])[1])
    check(stop > drain, f"systemd gives up after {stop} s, the drain takes up to {drain} s")
    check(int(settings.get("OOMScoreAdjust", 0)) >= 0, "the kernel would kill the training in the daemon's place")
    check("MemoryMax" in settings, "nothing bounds the daemon's memory")
    variables = {"OPTIONS": bench.options, "STORE": "s3://bucket/p", "MOUNTPOINT": bench.mountpoint}
    # In a mount namespace of its own nobody else would see the mount.
    hides = re.findall(r"^(?:Private(?!Network)|Protect(?!Hostname|Clock)|Bind|Root|Mount|Temporary|Dynamic|Proc"
                       r"|Extension|\w+Paths=)\w*", text, re.M)
    check(not hides, f"settings that hide the mount: {hides}")
    confined = f"{shutil.which('python3')} {HERE}/confine.py {unit} "
    found = bench.must("sh", "-c", f"{confined} grep -E '^(CapBnd|NoNewPrivs):' /proc/self/status")
    kept = int(re.search(r"CapBnd:\s*(\w+)", found)[1], 16)
    check(0 < bin(kept).count("1") < 8 and re.search(r"NoNewPrivs:\s*1", found), f"not confined: {found}")
    script = confined + settings["ExecStart"] + "\n" + settings["ExecStop"].removeprefix("+") + "\n"
    script = script.replace("\n", '\necho x >"$MOUNTPOINT/x"\n', 1)
    for name, value in variables.items(): # ${X} is one word for systemd
        script = script.replace("${" + name + "}", f"'{value}'").replace('"$' + name, f'"{value}')
    _in_namespace(bench, script)
    check(bench.stored() == {"x": "x\n"}, f"stored: {bench.stored()}")
    return said


class Automount:
    """The part of systemd for x-systemd.automount: a placeholder that tells a pipe of who opens it."""

    PACKET = struct.Struct("iiIIQIIIII256s4x") # struct autofs_v5_packet

    def __init__(self, bench):
        self.bench, self.point = bench, bench.mountpoint
        self.pipe, to_us = os.pipe()
        libc = ctypes.CDLL(None, use_errno=True)
        options = f"fd={to_us},pgrp={os.getpgrp()},minproto=5,maxproto=5,direct"
        if libc.mount(b"runfs", os.fsencode(self.point), b"autofs", 0, options.encode()) != 0:
            raise OSError(ctypes.get_errno(), "autofs")
        os.close(to_us)
        self.root = os.open(self.point, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def asked(self, seconds):
        """The token of the next request, None when there is none."""
        if not select.select([self.pipe], [], [], seconds)[0]:
            return None
        return self.PACKET.unpack(os.read(self.pipe, self.PACKET.size))[2]

    def ready(self, token):
        fcntl.ioctl(self.root, 0x9360, token) # AUTOFS_IOC_READY

    def end(self):
        os.close(self.root)
        os.close(self.pipe)


def by_automount(work, user):
    """Upon the placeholder of an automount: when somebody opens it, and by hand, which asks for no
    further mount, by a path with a slash neither."""
    bench = Bench(work, "automount")
    try:
        automount = Automount(bench)
    except OSError as e:
        return f"no autofs here: {e}"
    outside = None
    try:
        outside = subprocess.Popen(["setsid", "sh", "-c", 'echo x >"$1/x" && ls "$1"', "sh", bench.mountpoint],
                                   stdout=subprocess.PIPE, text=True, cwd="/")
        token = automount.asked(20)
        check(token is not None, "nobody asked for the mount")
        bench.mount() # in our process group, as systemd's mount(8) is in systemd's
        automount.ready(token)
        check(outside.communicate(timeout=30)[0] == "x\n" and outside.returncode == 0, "who waited did not get in")
        bench.must("setsid", "-w", runfs_binary(), "umount", bench.mountpoint)
        check(automount.asked(0) is None, "the unmount asked for a mount")
        bench.must("setsid", "-w", runfs_binary(), "mount", "-o", bench.options, "s3://bucket/p", f"{bench.mountpoint}/",
                   seconds=20)
        check(automount.asked(0) is None, "the mount by hand asked for another one")
        check(bench.must("cat", f"{bench.mountpoint}/x") == "x\n", "content")
        pid = bench.pid()
        os.kill(pid, signal.SIGTERM)
        wait_for("the daemon's end", lambda: bench.pid() is None, 30)
        check(automount.asked(0) is None, "the end asked for a mount")
    finally:
        if outside:
            outside.kill() # it would wait for the mount for ever
            outside.wait()
        automount.end()
    check(bench.stored() == {"x": "x\n"}, f"stored: {bench.stored()}")
    return None


# ---- the end ----

def sigterm_drains(work, user):
    """SIGTERM uploads, unmounts, and ends with 0."""
    bench = Bench(work, "term")
    bench.start(",settle=1h")
    bench.write("x", "content")
    bench.daemon.send_signal(signal.SIGTERM)
    check(bench.daemon.wait(30) == 0, f"exit {bench.daemon.returncode}: {bench.log()}")
    check(bench.stored() == {"x": "content"}, f"stored: {bench.stored()}")
    check(not is_mountpoint(bench.mountpoint), "still mounted")


def sigterm_while_in_use(work, user):
    """An open file does not keep the mount from ending: what was written is uploaded, what is
    written after that stays in the cache, and the next mount publishes it. So for what is made
    by appending, which is never half; half files are another matter (docs/format.md, 3)."""
    bench = Bench(work, "busy")
    bench.start()
    fd = os.open(f"{bench.mountpoint}/x", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(fd, b"before")
        bench.daemon.send_signal(signal.SIGTERM)
        code = bench.daemon.wait(60)
        check(bench.stored() == {"x": "before"} or code == 3, f"exit {code}, stored {bench.stored()}: {bench.log()}")
        check(not is_mountpoint(bench.mountpoint), "still mounted")
        written = _errno(os.write, fd, b", after") is None # passthrough goes on
    finally:
        _errno(os.close, fd)
    bench.mount()
    expected = "before" + (", after" if written else "")
    check(bench.must("cat", f"{bench.mountpoint}/x") == expected, "content at the next mount")
    bench.umount()
    check(bench.stored() == {"x": expected}, f"stored: {bench.stored()}, not {expected}")
    return f"exit {code}, " + ("passthrough" if written else "normal mode")


def sigterm_in_vain(work, user):
    """What can't be uploaded in time is listed and told by the exit code; a second SIGTERM before
    that is ignored with a message. The next mount publishes it."""
    bench = Bench(work, "vain")
    bench.start(",drain_timeout=10s,store_timeout=2s")
    bench.write("gone", "x")
    wait_for("an upload", lambda: bench.stored() == {"gone": "x"}, 20)
    bench.server.full = True
    bench.write("kept one", "precious")
    os.mkdir(f"{bench.mountpoint}/d")
    bench.write("d/line\nbreak", "precious too")
    started = time.monotonic()
    bench.daemon.send_signal(signal.SIGTERM)
    wait_for("the first message", lambda: "uploading what is left" in bench.log())
    bench.daemon.send_signal(signal.SIGTERM)
    wait_for("the second message", lambda: "still uploading" in bench.log())
    check(bench.daemon.poll() is None, "the second SIGTERM ended it")
    check(bench.daemon.wait(60) == 3, f"exit {bench.daemon.returncode}")
    took = time.monotonic() - started
    check(took > 9, f"it took {took:.0f} s") # and no more than the wait above
    log = bench.log()
    check("are not in the store" in log, f"the log is silent: {log[-500:]}")
    for name in ("kept one", "d/line"):
        check(re.search(f"not in the store: .*{name}", log), f"{name} is not listed: {log[-800:]}")
    check(not re.search("^break", log, re.M), "a name forges a line")
    check(not is_mountpoint(bench.mountpoint), "still mounted")
    bench.server.full = False
    bench.mount()
    bench.umount()
    check(bench.stored() == {"gone": "x", "kept one": "precious", "d/line\nbreak": "precious too"}, f"{bench.stored()}")


def a_plain_endpoint_is_told(work, user):
    """Once, to who mounts and to the log; not of this machine's own servers."""
    bench = Bench(work, f"plain-{user}", user)
    done = bench.runfs("mount", "-o", bench.options, "s3://bucket/p", bench.mountpoint)
    check(done.code == 0 and "plain http" not in done.output, done.output)
    bench.umount()
    wire = bench.options.replace("127.0.0.1", "0.0.0.0") # leads here, too, and does not say so
    check(wire != bench.options, bench.options)
    done = bench.runfs("mount", "-o", wire, "s3://bucket/p", bench.mountpoint)
    check(done.code == 0 and done.output.count(" is plain http: ") == 1, done.output)
    check(bench.log().count(" is plain http: ") == 1, bench.log())
    bench.umount()


BOTH = [a_plain_endpoint_is_told, flags, by_a_user, taken_over] # by root and by a user
USERS = [allow_other_refused, flush_of_closed_files]
ROOTS = [other_users, of_another_user, by_mount_8, by_the_short_type, remounted, by_fuses_helper, by_systemd, by_automount, sigterm_drains,
         sigterm_while_in_use, sigterm_in_vain]
# They lay filesystems over the system's folders, if in a namespace of their own, which holds every mount of the
# machine for as long as it lives; or a placeholder among its mounts that stops who comes by.
OF_THE_MACHINE = [by_mount_8, by_the_short_type, remounted, by_fuses_helper, by_systemd, by_automount]
