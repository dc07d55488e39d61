"""What the crash, fault and framework tests and the benchmarks share: a real S3 server of their
own, a mount of their own, and the closing count. Standard library only.

Everything listens on 127.0.0.1, lives below one temporary folder and is ended by the process
that started it, by process id.
"""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
ACCESS_KEY = "runfstestkey"
SECRET_KEY = "runfstestsecret"
REGION = "us-east-1"


class Failure(Exception):
    """What a test found wrong, in one line."""


def check(condition, message):
    if not condition:
        raise Failure(message)


def runfs_binary():
    path = os.environ.get("RUNFS_BINARY") or os.path.join(ROOT, "build", "debug", "runfs")
    if not os.access(path, os.X_OK):
        sys.exit(f"{path}: no runfs binary there; build it, or set RUNFS_BINARY")
    return path


def versitygw_binary():
    """Where the S3 server is; has it installed when it is missing."""
    path = os.environ.get("RUNFS_VERSITYGW")
    if not path:
        path = subprocess.run([os.path.join(ROOT, "scripts", "versitygw.sh")], check=True,
                              stdout=subprocess.PIPE, text=True).stdout.strip()
        os.environ["RUNFS_VERSITYGW"] = path
    if not os.access(path, os.X_OK):
        sys.exit(f"{path}: no versitygw there; set RUNFS_VERSITYGW")
    return path


def hold_port():
    """A port of the loopback that stays ours, as a socket that never listens: a server that sets
    SO_REUSEADDR can have it as often as it is started, and nobody else gets it in between."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", 0))
    return s


def wait_for(what, condition, seconds=30.0, step=0.02):
    """Waits until condition() is true and returns its value; a Failure names `what`."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"{what}: not after {seconds:g} s")
        time.sleep(step)


def end_process(process, sig=signal.SIGTERM, seconds=20):
    if process is None or process.poll() is not None:
        return
    process.send_signal(sig)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Gateway:
    """versitygw over a folder. Objects are plain files in it, so a test can read what the store
    holds without asking anything of the code under test."""

    def __init__(self, folder, bucket="bucket", host="127.0.0.1"):
        self.folder = folder
        self.bucket = bucket
        self.host = host
        self.secret = SECRET_KEY
        self.users = None  # a folder for accounts beside the first; made by add_user()
        self.held = hold_port() # while the server is down as well
        self.port = self.held.getsockname()[1]
        self.held_for_stacks = hold_port()
        self.process = None
        os.makedirs(os.path.join(folder, "data", bucket), exist_ok=True)
        self.log = os.path.join(folder, "versitygw.log")

    @property
    def endpoint(self):
        return f"http://{self.host}:{self.port}"

    def objects(self, prefix=""):
        """{key: path of the file that holds it} of all objects; directory markers are left out."""
        base = os.path.join(self.folder, "data", self.bucket)
        top = os.path.join(base, prefix)
        found = {}
        for where, folders, files in os.walk(top):
            folders[:] = [f for f in folders if not (where == base and f == ".sgwtmp")]
            for name in files:
                path = os.path.join(where, name)
                found[os.path.relpath(path, top)] = path
        return found

    def start(self):
        command = [versitygw_binary(), "--port", f"{self.host}:{self.port}", "--access", ACCESS_KEY,
                   "--secret", self.secret, "--region", REGION, "--keep-alive", "--quiet",
                   "--pprof", "%s:%d" % self.held_for_stacks.getsockname(),
                   *(["--iam-dir", self.users] if self.users else []),
                   # With O_TMPFILE listings show a name of its own while it replaces an object.
                   "posix", "--disableotmp", os.path.join(self.folder, "data")]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        wait_for("the S3 server answers", self.answers, 30)
        return self

    def answers(self):
        if self.process.poll() is not None:
            raise Failure(f"the S3 server ended: {open(self.log, errors='replace').read()[-500:]}")
        try:
            socket.create_connection((self.host, self.port), 1).close()
            return True
        except OSError:
            return False

    def stacks(self):
        """Where its requests stand, as far as that can be had: for a failure's log."""
        url = "http://%s:%d/debug/pprof/goroutine?debug=2" % self.held_for_stacks.getsockname()
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                stacks = answer.read().decode(errors="replace").split("\n\n")
        except OSError as e:
            return f"no stacks of the server: {e}"
        return "\n\n".join(s for s in stacks if "s3api" in s or "ServeConn" in s or "serveConn" in s)

    def kill(self):
        end_process(self.process, signal.SIGKILL)
        self.process = None

    def stop(self):
        end_process(self.process)
        self.process = None

    def keep_users(self):
        """Before start(): the server can have more accounts than the one of ACCESS_KEY."""
        self.users = os.path.join(self.folder, "users")
        os.makedirs(self.users, exist_ok=True)

    def admin(self, *words):
        subprocess.run([versitygw_binary(), "admin", "--access", ACCESS_KEY, "--secret", self.secret,
                        "--endpoint-url", self.endpoint, *words], check=True,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def s3_environment():
    """The environment of everything that talks to the server: our keys and nobody else's. versitygw 1.8.0 takes what
    follows a body with a checksum behind it for the next request, at times (10 of 2,000 small files that pyarrow 25
    writes answer 400, none without)."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    env.update(AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY, AWS_REGION=REGION,
               AWS_DEFAULT_REGION=REGION, AWS_EC2_METADATA_DISABLED="true",
               AWS_CONFIG_FILE="/dev/null", AWS_SHARED_CREDENTIALS_FILE="/dev/null",
               AWS_REQUEST_CHECKSUM_CALCULATION="when_required")
    return env


class Mount:
    """One mount of runfs; the daemon runs in the foreground as our child, so that its process id
    is known and its end is seen."""

    def __init__(self, store, mountpoint, cache, options=(), env=None):
        self.store, self.mountpoint, self.cache = store, mountpoint, cache
        self.options = list(options)
        self.env = dict(env or s3_environment())
        self.process = None
        self.wrapper = [] # a command that executes the daemon
        self.binary = runfs_binary()
        self.log = mountpoint.rstrip("/") + ".log"
        os.makedirs(mountpoint, exist_ok=True)

    def command(self):
        options = ",".join([f"cache_dir={self.cache}"] + self.options)
        return [*self.wrapper, self.binary, "mount", "-f", "-o", options, self.store, self.mountpoint]

    def start(self, extra_env=None, seconds=60):
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL, env={**self.env, **(extra_env or {})})
        wait_for(f"mount of {self.store}", self.is_up, seconds)
        return self

    def is_up(self):
        if os.path.ismount(self.mountpoint):
            return True
        if self.process.poll() is not None:
            raise Failure(f"runfs mount ended with {self.process.returncode}: {self.log_tail()}")
        return False

    def log_tail(self, size=1500):
        try:
            with open(self.log, errors="replace") as f:
                return f.read()[-size:].strip()
        except OSError:
            return ""

    def how_it_died(self):
        """Of a daemon whose end nobody asked for, how it ended and what it said last; else None."""
        code = self.process.poll() if self.process is not None else None
        if not code:
            return None
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return f"the daemon of {self.mountpoint} {how}: {self.log_tail()}"

    def run(self, *words, seconds=300):
        """A runfs subcommand; returns the finished process with its output."""
        try:
            return subprocess.run([self.binary, *words], env=self.env, text=True, timeout=seconds,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT)
        except subprocess.TimeoutExpired as e:
            raise Failure(f"runfs {' '.join(words)}: no end after {seconds} s, so far: {e.stdout}") from e

    def status(self):
        done = self.run("status", "--json", self.mountpoint, seconds=30)
        check(done.returncode == 0, f"runfs status: exit {done.returncode}: {done.stdout.strip()}")
        return json.loads(done.stdout)

    def owed(self):
        """Everything that the store does not have yet: files and other intentions."""
        return owed(self.status())

    def flush(self, seconds=300):
        """Everything, also what waits under a staging name."""
        done = self.run("flush", self.mountpoint, "--staged", "--timeout", str(seconds), seconds=seconds + 20)
        check(done.returncode == 0, f"runfs flush: exit {done.returncode}: {done.stdout.strip()}")

    def try_umount(self, seconds, limit=None):
        """The finished `runfs umount --timeout`, after at most `limit` seconds."""
        # What another thread of a test just starts holds this one's files open until it is executed.
        for _ in range(6):
            done = self.run("umount", self.mountpoint, "--timeout", str(seconds), seconds=limit or seconds + 20)
            if "is in use by" not in done.stdout:
                break
            time.sleep(0.5)
        return done

    def umount(self, seconds=300):
        """Drains and unmounts; anything but exit 0 is a failure."""
        done = self.try_umount(seconds)
        check(done.returncode == 0, f"runfs umount: exit {done.returncode}: {done.stdout.strip()}")
        check(not os.path.ismount(self.mountpoint), "runfs umount: exit 0, but still mounted")
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            raise Failure("runfs umount: exit 0, but the daemon runs on") from None
        check(code == 0, f"the daemon ended with {code} after umount: {self.log_tail()}")
        self.process = None

    def wait_dead(self, seconds=60):
        """Waits for a daemon that ends itself; its exit code."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failure(f"the daemon still runs after {seconds} s") from None
        self.process = None
        return code

    def kill(self):
        """SIGKILL, then takes the dead mount away; what holds it open stays alive."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
        self.detach()

    def detach(self):
        while is_mountpoint(self.mountpoint):
            done = subprocess.run(["fusermount3", "-u", "-z", self.mountpoint], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode != 0:
                subprocess.run(["umount", "-l", self.mountpoint], check=True)


def owed(status):
    return sum(find_number(status, key) for key in ("dirty_files", "pending_ops"))


def find_number(tree, name):
    """The number called `name` anywhere in a JSON tree; a Failure when there is none."""
    if isinstance(tree, dict):
        if isinstance(tree.get(name), (int, float)):
            return tree[name]
        for branch in tree.values():
            try:
                return find_number(branch, name)
            except Failure:
                pass
    raise Failure(f"status has no {name}")


def is_mountpoint(path):
    """Also true for a mount whose daemon is dead, where stat() fails."""
    wanted = path.rstrip("/")
    with open("/proc/self/mountinfo") as f:
        return any(line.split()[4].encode().decode("unicode_escape") == wanted for line in f)


class Workplace:
    """A temporary folder with a server in it; leaves no process, mount or file behind."""

    def __init__(self, name, server_data=None):
        self.name = name
        self.folder = tempfile.mkdtemp(prefix=f"runfs-{name}-")
        self.server_folder = tempfile.mkdtemp(prefix=f"runfs-{name}-s3-", dir=server_data) if server_data \
            else os.path.join(self.folder, "s3")
        self.mounts = []
        self.cleanups = []
        self.gateway = None

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def make(self, *names):
        os.makedirs(self.path(*names), exist_ok=True)
        return self.path(*names)

    def start_gateway(self):
        self.gateway = Gateway(self.server_folder).start()
        return self.gateway

    def mount(self, prefix, options=(), name="mnt", cache="cache", endpoint=None, env=None):
        """A Mount (not started) of a prefix of the server's bucket."""
        where = endpoint or self.gateway.endpoint
        m = Mount(f"s3://{self.gateway.bucket}/{prefix}", self.path(name),
                  cache if os.path.isabs(cache) else self.path(cache),
                  [f"endpoint={where}", f"region={REGION}", "path_style", *options], env)
        self.mounts.append(m)
        return m

    def __enter__(self):
        # A time limit ends us with SIGTERM: clean up then, too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
        return self

    def clear(self):
        """Ends what a story left; the server goes on."""
        for m in self.mounts:
            died = m.how_it_died()
            if died:
                print(f"DIED: {died}", flush=True)
            m.kill()
        for cleanup in reversed(self.cleanups):
            cleanup()
        self.mounts, self.cleanups = [], []

    def __exit__(self, *exception):
        signal.signal(signal.SIGTERM, signal.SIG_IGN) # who ends us may say so twice
        self.clear()
        if self.gateway:
            self.gateway.stop()
        if os.environ.get("RUNFS_TEST_KEEP"):
            print(f"kept: {self.folder} {self.server_folder}")
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.server_folder, ignore_errors=True)


def repeat(*words, **variables):
    """The command that runs one story again, from the top of the repository: with the settings of the build, such
    as a sanitizer's, that this one has."""
    stage = os.path.basename(os.path.dirname(os.path.abspath(sys.argv[0])))
    preset = os.path.basename(os.environ.get("RUNFS_BUILD", "debug").rstrip("/"))
    return " ".join([*(f"{k}={shlex.quote(str(v))}" for k, v in variables.items()),
                     shlex.join(["./check.sh", "--job", stage, preset, *map(str, words)])])


class Tally:
    """Counts cases and prints the closing line; from several threads, too. again(name): the command that repeats
    the case of this name, which is printed when it fails."""

    def __init__(self, title, again=repeat):
        self.title, self.again = title, again
        self.passed = self.failed = self.skipped = 0
        self.lock = threading.Lock()

    def run(self, name, function, *arguments):
        """Runs one case; True when it passed. A Failure, an error of the system or an answer of
        an odd form is a failed case; anything else is a mistake of the test and ends it."""
        started = time.monotonic()
        try:
            note = function(*arguments)
        except (Failure, OSError, subprocess.SubprocessError, ValueError, LookupError) as e:
            with self.lock:
                self.failed += 1
            print(f"not ok  {name} ({time.monotonic() - started:.1f} s): {type(e).__name__}: {e}\n"
                  f"REPEAT: {self.again(name)}", flush=True)
            return False
        with self.lock:
            self.passed += 1
        print(f"ok      {name} ({time.monotonic() - started:.1f} s){': ' + note if note else ''}", flush=True)
        return True

    def skip(self, name, why):
        self.skipped += 1
        print(f"SKIP {name}: {why}", flush=True)

    def close(self):
        print(f"{self.title}: {self.passed} passed, {self.failed} failed, {self.skipped} skipped", flush=True)
        return 0 if self.failed == 0 and self.passed > 0 else 1
