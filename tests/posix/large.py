"""The long suites. Each takes a Place and returns a Result."""

import glob
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time

from harness import check, wait_for
from result import Result

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))

# ---- CPython ----

CPYTHON = """test_os test_posix test_posixpath test_shutil test_mmap test_tempfile test_zipfile test_zipfile64
test_zipimport test_sqlite3 test_fcntl test_pathlib test_glob test_fnmatch test_tarfile test_dbm
test_dbm_dumb test_dbm_gnu test_dbm_ndbm test_shelve test_mailbox test_compileall test_venv
test_py_compile test_import test_importlib test_file test_fileio test_io test_largefile
test_genericpath test_stat test_bz2 test_gzip test_lzma test_fileinput test_filecmp test_linecache
test_netrc test_configparser test_logging test_openpty test_zipapp test_runpy test_pkgutil
test_ensurepip test_unicode_file test_unicode_file_functions test_eintr test_support test_xml_etree
test_csv""".split()


# Not counted as failures, with the reason; docs/posix.md has them, too.
CPYTHON_DIFFERS = {
    f"test_os: {name} (test.test_os.ExtendedAttributeTests": "100 extended attributes are more than 1,600 bytes"
    for name in ("test_fds", "test_lpath", "test_simple")}


def cpython_interpreter(module="test_os"):
    """One that has this module of tests beside it, and what the module is about."""
    for name in (sys.executable, "/usr/bin/python3"):
        done = subprocess.run([name, "-c", f"import test.{module}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if done.returncode == 0:
            return name
    return None


def cpython(place):
    """The interpreter's own tests, with the mount as its temporary folder."""
    result = Result()
    for module in CPYTHON:
        python = cpython_interpreter(module)
        if not python:
            result.skipped += 1
            continue
        out = place.run(python, "-m", "test", "-v", "--tempdir", place.dir, "-u", "all,-network,-cpu,-largefile", module,
                        cwd=place.dir, env={"TMPDIR": place.dir, "PYTHONDONTWRITEBYTECODE": ""}, seconds=900).stdout
        ran = sum(int(n) for n in re.findall(r"^Ran (\d+) tests?", out, re.MULTILINE))
        skipped = sum(int(n) for n in re.findall(r"^(?:OK|FAILED) \(.*?skipped=(\d+)", out, re.MULTILINE))
        bad = set(re.findall(r"^(?:FAIL|ERROR): (.*)$", out, re.MULTILINE))
        differ = {n for n in bad if any(f"{module}: {n}".startswith(d) for d in CPYTHON_DIFFERS) and not place.native}
        skipped += len(differ)
        bad -= differ
        for name in bad:
            at = out.find(name + "\n" + "-" * 20)
            result.fail(f"{module}: {name}", " | ".join(out[at:].splitlines()[2:40])[-600:] if at >= 0 else "?")
        if re.search(f"^{module} skipped --", out, re.MULTILINE):
            result.skipped += 1
        elif not ran and not bad and "Tests result: SUCCESS" not in out:
            result.fail(module, f"no result: ...{out[-600:]}")
        result.passed += ran - skipped - len(bad)
        result.skipped += skipped
    return result


# ---- Go ----

GO = ["os", "path/filepath", "archive/zip", "archive/tar", "io/fs", "io/ioutil", "internal/poll",
      "cmd/go/internal/lockedfile", "cmd/go/internal/lockedfile/internal/filelock", "cmd/go/internal/robustio",
      "cmd/go/internal/cache", "os/exec", "os/signal"]


# Not counted as failures, with the reason; docs/posix.md has them, too.
GO_DIFFERS = {
    "os TestNonpollableDeadline": "the kernel lets every file of a FUSE mount be polled",
    **{f"os {name}": "a path below the mount has at most 4,095 bytes, on S3 1,024, however it is reached"
       for name in ("TestRemoveAllLongPath", "TestGetwdDeep", "TestGetwdDeepWithPWDSet")},
}


def go(place):
    """The standard library's own tests; go builds them on the mount and runs them from there."""
    result = Result()
    done = subprocess.run([f"{TOP}/scripts/go.sh"], stdout=subprocess.PIPE, text=True)
    check(done.returncode == 0, "there is no Go")
    program = done.stdout.strip()
    cache = f"{place.top}/go-cache"
    out = place.run(program, "test", "-count=1", "-json", *GO, cwd=place.dir, seconds=1500,
                    env={"TMPDIR": place.dir, "GOCACHE": cache, "GOPATH": f"{place.top}/gopath", "GOFLAGS": "",
                         "GOTOOLCHAIN": "local"}).stdout
    said = {}
    for line in out.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if not isinstance(event, dict):
            continue
        name = f"{event.get('Package')} {event.get('Test', '')}"
        if event.get("Action") == "output":
            said.setdefault(name, []).append(event["Output"])
        elif event.get("Action") == "skip":
            result.skipped += 1
        elif event.get("Action") == "pass" and event.get("Test"):
            result.passed += 1
        elif event.get("Action") == "fail" and name in GO_DIFFERS and not place.native:
            result.skipped += 1
        elif event.get("Action") == "fail" and (event.get("Test") or not said.get(name)):
            result.fail(name, "".join(said.get(name, []))[-500:])
    check(result.passed, f"no tests: ...{out[-1500:]}")
    return result


# ---- PostgreSQL ----

def postgres_programs():
    for folder in sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True):
        if os.path.exists(f"{folder}/pgbench"):
            return folder
    return None


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Server:
    """A PostgreSQL server whose data directory is on the place."""

    def __init__(self, place, user):
        self.place, self.user, self.bin = place, user, postgres_programs()
        self.process = None
        self.data, self.log = f"{place.dir}/data", f"{place.top}/postgres-{place.prefix}.log"
        # Its socket's path must be short.
        self.socket = subprocess.run(["mktemp", "-d", "/tmp/pg.XXXXXX"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        if user or place.as_user:
            shutil.chown(self.socket, user or "nobody")

    def run(self, program, *words, seconds=300):
        return self.place.must(f"{self.bin}/{program}", *words, user=self.user, seconds=seconds)

    def sql(self, text, database="postgres"):
        return self.run("psql", "-h", self.socket, "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", text).strip()

    def command(self, *words):
        prefix = ["setpriv", "--reuid", self.user, "--regid", self.user, "--init-groups"] if self.user else self.place.command()
        return prefix + list(words)

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command(f"{self.bin}/postgres", "-D", self.data, "-k", self.socket, "-c", "listen_addresses=",
                             "-c", "fsync=on", "-c", "full_page_writes=on", "-c", "checkpoint_timeout=30s", "-c", "max_wal_size=64MB"),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True)
        wait_for("the server answers", self.answers, 120, 0.2)

    def answers(self):
        check(self.process.poll() is None, f"the server ended: {open(self.log, errors='replace').read()[-800:]}")
        done = self.place.run(f"{self.bin}/psql", "-h", self.socket, "-X", "-d", "postgres", "-c", "select 1", user=self.user, seconds=30)
        return done.returncode == 0

    def kill(self):
        """SIGKILL of all of it at once; they have ended, so that their shared memory is free."""
        if not self.process or self.process.poll() is not None:
            return
        pids = [self.process.pid]
        os.kill(pids[0], signal.SIGSTOP) # it makes no more children
        with open(f"/proc/{pids[0]}/task/{pids[0]}/children") as f:
            pids += [int(pid) for pid in f.read().split()]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        # One that is just in a request to the mount ends after the answer to that.
        wait_for("the server's processes end", lambda: not any(map(is_alive, pids)), 120, 0.05)

    def stop(self):
        self.run("pg_ctl", "stop", "-D", self.data, "-m", "fast", "-w")
        self.process.wait(60)

    def bench(self, seconds):
        return subprocess.Popen(self.command(f"{self.bin}/pgbench", "-h", self.socket, "-c", "4", "-T", str(seconds), "-n", "postgres"),
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")

    def consistent(self):
        sums = self.sql("SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(bbalance) FROM pgbench_branches), "
                        "(SELECT sum(tbalance) FROM pgbench_tellers), (SELECT coalesce(sum(delta), 0) FROM pgbench_history)")
        check(len(set(sums.split("|"))) == 1, f"the balances differ: {sums}")

    def amcheck(self):
        self.sql("CREATE EXTENSION IF NOT EXISTS amcheck")
        self.run("pg_amcheck", "-h", self.socket, "-d", "postgres", "--heapallindexed") if os.path.exists(f"{self.bin}/pg_amcheck") else \
            self.sql("SELECT bt_index_check(c.oid, true) FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'btree'")


def postgres(place):
    """A server with its data on the mount; it is killed, and so is runfs under it."""
    result = Result()
    user = None if place.as_user or os.geteuid() != 0 else "postgres"
    if user:
        try:
            pwd.getpwnam(user)
        except KeyError:
            user = "nobody"
    server = Server(place, user)
    seconds = 5 if place.short else 15
    try:
        result.step("initdb", server.run, "initdb", "-D", server.data, "--data-checksums", "-A", "trust")
        result.step("start", server.start)
        result.step("pgbench -i", server.run, "pgbench", "-h", server.socket, "-i", "-q", "-s", "3", "postgres")
        result.step("pgbench", server.run, "pgbench", "-h", server.socket, "-c", "4", "-T", str(seconds), "postgres")
        result.step("consistent", server.consistent)
        for what in ("server", "daemon") if place.keeps else ("server",):
            bench = server.bench(60)
            time.sleep(seconds)
            if what == "daemon":
                place.mount.process.kill()
                time.sleep(0.5)
            server.kill()
            bench.kill()
            bench.wait()
            if what == "daemon":
                place.crash()
            result.step(f"{what} killed: start", server.start)
            result.step(f"{what} killed: consistent", server.consistent)
            result.step(f"{what} killed: amcheck", server.amcheck)
            result.step(f"{what} killed: stop", server.stop)
            result.step(f"{what} killed: checksums", server.run, "pg_checksums", "--check", "-D", server.data)
            result.step(f"{what} killed: start again", server.start)
        result.step("stop", server.stop)
        place.fresh()
        result.step("start on a fresh mount", server.start)
        result.step("consistent on a fresh mount", server.consistent)
        result.step("stop on a fresh mount", server.stop)
    finally:
        server.kill()
        shutil.rmtree(server.socket, ignore_errors=True)
    return result


SUITES = [cpython, go, postgres]
go.places = ("native", "mem", "s3")
cpython.places = ("native", "mem", "s3")


def missing(suite):
    if suite == "cpython" and not cpython_interpreter():
        return "there is no Python with its own tests: scripts/deps.sh posix"
    if suite == "postgres" and not postgres_programs():
        return "there is no PostgreSQL: scripts/deps.sh posix"
    return None
