"""The short suites. Each takes a Place and returns a Result."""

import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time

from harness import Failure, check, wait_for
from result import Result

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
SEED = int(os.environ.get("POSIX_SEED", 1))

# One that every user may run.
PYTHON = "/usr/bin/python3"


PROGRAMS = {"pjdfstest": "0.2.2", "fsx": "0.3.2"} # of the Rust registry


def cargo_tool(name):
    version = PROGRAMS[name]
    done = subprocess.run([f"{TOP}/scripts/cargo-tool.sh", name, version], stdout=subprocess.PIPE, text=True)
    check(done.returncode == 0, f"{name} {version} could not be built")
    return done.stdout.strip()


def prepare():
    for name in PROGRAMS:
        cargo_tool(name)


def readable(place, program):
    """The program where any user may run it."""
    copy = f"{place.top}/{os.path.basename(program)}"
    if not os.path.exists(copy):
        shutil.copy(program, copy)
        os.chmod(copy, 0o755)
    return copy


# ---- system calls ----

PJDFSTEST = """
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"""


# Not counted as failures, with the reason; docs/posix.md has it, too.
PJDFSTEST_DIFFERS = {
    # of 14 calls, each with a path of PATH_MAX bytes
    "enametoolong_path": "S3 has no names of more than 1,024 bytes: a longer path below the mount is refused at once",
}


def differs(place, name):
    return place.keeps and name.split("::")[-1] in PJDFSTEST_DIFFERS


def pjdfstest(place):
    result = Result()
    program = readable(place, cargo_tool("pjdfstest"))
    config = f"{place.top}/pjdfstest.toml"
    with open(config, "w") as f:
        f.write(PJDFSTEST)
    # A socket's address has room for a short path only.
    with tempfile.TemporaryDirectory(prefix="p", dir="/tmp") as near:
        os.chmod(near, 0o755)
        os.symlink(place.dir, f"{near}/d")
        out = place.run(program, "-c", config, "-p", f"{near}/d", seconds=900).stdout
    summary = re.search(r"(\d+) failed, (\d+) skipped, (\d+) passed", out)
    check(summary, f"no summary: ...{out[-500:]}")
    result.skipped, result.passed = int(summary[2]), int(summary[3])
    failed = re.findall(r"^(\S+)\s+FAILED\n((?:\s.*\n)*)", out, re.MULTILINE)
    check(len(failed) == int(summary[1]), f"{summary[0]}, but found {failed}: {out[-2000:]}")
    for name, why in failed:
        if differs(place, name):
            result.skipped += 1
        else:
            result.fail(name, why.strip()[:400] or "?")
    return result


def digest(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest() if hasattr(hashlib, "file_digest") \
            else hashlib.sha256(f.read()).hexdigest()


def fsx(place):
    """Random reads, writes, mappings and truncates of one file; then the daemon is killed, and the
    file must be as fsx left it."""
    result = Result()
    program = readable(place, cargo_tool("fsx"))
    for n in range(3 if place.short else 12):
        path = f"{place.dir}/file{n % 2}"
        seed = str(SEED + n)
        place_of_artifacts = f"{place.top}/artifacts"
        os.makedirs(place_of_artifacts, exist_ok=True)
        os.chmod(place_of_artifacts, 0o777)
        if result.step(f"seed {seed}", place.must, program, "-q", "-N", "3000" if place.short else "20000", "-S", seed,
                       "-P", place_of_artifacts, path) is None or not place.keeps:
            continue
        before = digest(path) if not place.as_user else place.must("sha256sum", path)
        place.crash()
        after = digest(path) if not place.as_user else place.must("sha256sum", path)
        result.step(f"killed after seed {seed}", check, before == after, "the file is another after the recovery")
    return result


FIO = {
    "sequential": ["--rw=write", "--bs=128k"],
    "random": ["--rw=randwrite", "--bs=4k"],
    "mapped": ["--rw=randwrite", "--bs=4k", "--ioengine=mmap"],
    "direct": ["--rw=randwrite", "--bs=4k", "--direct=1", "--ioengine=libaio", "--iodepth=8"],
    "four-jobs": ["--rw=randrw", "--bs=16k", "--numjobs=4"],
}


def fio(place):
    result = Result()
    size = "8m" if place.short else "64m"
    for name, words in FIO.items():
        command = ["fio", f"--name={name}", f"--directory={place.dir}", f"--size={size}", "--verify=crc32c",
                   "--verify_fatal=1", "--thread", f"--aux-path={place.top}", *words]
        if result.step(name, place.must, *command) is None or not place.keeps:
            continue
        place.fresh()
        if name != "four-jobs": # its reads and writes are mixed: nothing to verify afterwards
            result.step(f"{name} on a fresh mount", place.must, *command, "--verify_only")
    return result


def stress_ng(place):
    """Each stressor of the class filesystem for a moment, one after the other. Not io: it opens the root of every file
    system of the machine to sync it, and another test that unmounts its own finds that in use."""
    result = Result()
    listed = place.run("stress-ng", "--class", "filesystem?").stdout
    names = re.search(r"stressors: (.*)", listed)
    check(names, f"no stressors: {listed}")
    for name in (n for n in names[1].split() if n != "io"):
        # Root may not enter a user's mount.
        done = place.run("env", "-C", place.dir, "stress-ng", f"--{name}", "2", "--timeout", "3s", "--temp-path", place.dir,
                         "--verify", seconds=120)
        if re.search(r"skipped: [1-9]", done.stdout) or done.returncode == 4 or "skipping stressor" in done.stdout:
            result.skipped += 1
        elif done.returncode == 0:
            result.passed += 1
        else:
            result.fail(name, f"exit {done.returncode}: {done.stdout[-600:]}")
    return result


def dbench(place):
    result = Result()
    for clients in ("1", "4", "10"):
        out = result.step(f"{clients} clients", place.must, "dbench", "-D", place.dir, "-t", "10", clients)
        if out is not None:
            result.step(f"{clients} clients: result", check, re.search(r"^Throughput", out, re.MULTILINE), out[-500:])
    return result


# ---- databases ----

def look_at_database(place, database, ledger):
    with open(ledger) as f:
        lines = f.read().split("\n")
    told = int(lines[-2]) if len(lines) > 1 else 0
    state, highest, count = place.must(PYTHON, f"{place.top}/writer.py", database).split()
    check(state == "ok", f"integrity_check: {state}")
    check(highest == count, f"rows are missing: {count} of {highest}")
    check(int(count) % 3 == 0, f"half a transaction: {count}")
    check(int(count) >= told, f"{told} rows were committed, {count} are there")


def size_of(path):
    return os.path.getsize(path) if os.path.exists(path) else 0


def sqlite(place):
    """A writer is killed at random, and so is the daemon under it; what was committed is there."""
    result = Result()
    rng = random.Random(SEED)
    ledger_folder = f"{place.top}/ledgers"
    os.makedirs(ledger_folder, exist_ok=True)
    os.chmod(ledger_folder, 0o777)
    readable(place, f"{HERE}/writer.py")
    for mode in ("delete", "truncate", "wal"):
        database, ledger = f"{place.dir}/{mode}.db", f"{ledger_folder}/{mode}"
        for n in range(4 if place.short else 10):
            command = place.command(PYTHON, f"{place.top}/writer.py", database, mode, ledger)
            before = size_of(ledger)
            with subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as writer:
                wait_for("the writer's first row", lambda: size_of(ledger) > before or writer.poll() is not None, 60)
                time.sleep(rng.random())
                kills_daemon = place.keeps and n % 2
                if kills_daemon: # in the middle of its writes
                    place.mount.process.kill()
                    time.sleep(0.1)
                writer.send_signal(signal.SIGKILL)
                errors = writer.stderr.read()
            if kills_daemon:
                place.crash()
            else:
                result.step(f"{mode} {n}: the writer", check, not errors, errors)
            result.step(f"{mode} {n}: {'daemon' if kills_daemon else 'writer'} killed", look_at_database, place,
                        database, ledger)
    # The index of a log is made anew by who opens the database next; a journal that was not synced
    # yet undoes nothing.
    place.fresh(unclosed=r"\.db-(shm|journal)(\.\d+)?$")
    for mode in ("delete", "truncate", "wal"):
        result.step(f"{mode} on a fresh mount", look_at_database, place, f"{place.dir}/{mode}.db",
                    f"{ledger_folder}/{mode}")
    return result


# ---- programs ----

def make_files(folder, count):
    rng = random.Random(SEED)
    for n in range(count):
        where = f"{folder}/d{n % 20}/e{n % 7}"
        os.makedirs(where, exist_ok=True)
        with open(f"{where}/f{n}", "wb") as f:
            f.write(rng.randbytes(rng.choice((0, 20, 700, 5000, 40000))))


def git(place):
    result = Result()
    config = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "a",
              "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org"}
    repo, clone = f"{place.dir}/repo", f"{place.dir}/clone"

    def do(name, *words, where=repo):
        return result.step(name, place.must, "git", "-c", "safe.directory=*", "-C", where, *words, env=config)

    def clean(name, where=repo):
        out = do(f"status {name}", "status", "--porcelain", where=where)
        result.step(f"clean {name}", check, out == "", f"status says: {(out or '')[:300]}")

    source = f"{place.top}/git-source-{place.prefix}"
    make_files(source, 1000)
    os.symlink("f1", f"{source}/link")
    place.must("cp", "-a", "--no-preserve=ownership", source, repo)
    do("init", "init", "-q")
    do("add", "add", ".")
    do("commit", "commit", "-q", "-m", "one")
    clean("after the commit")
    place.must("sh", "-c", f"echo more >>{repo}/d1/e1/f1; rm {repo}/d2/e2/f2")
    do("commit again", "commit", "-q", "-a", "-m", "two")
    do("checkout", "checkout", "-q", "HEAD~1")
    do("checkout back", "checkout", "-q", "-")
    do("gc", "gc", "-q", "--aggressive" if not place.short else "--auto")
    do("repack", "repack", "-q", "-a", "-d")
    do("fsck", "fsck", "--strict")
    do("clone", "clone", "-q", repo, clone, where=place.dir)
    do("clone --no-local", "clone", "-q", "--no-local", repo, clone + "2", where=place.dir)
    clean("of the clone", clone)
    place.crash()
    clean("after a crash")
    place.fresh()
    clean("on a fresh mount")
    clean("of the clone on a fresh mount", clone)
    do("fsck on a fresh mount", "fsck", "--strict")
    do("fsck of the clone", "fsck", "--strict", where=clone)
    do("pull", "pull", "-q", where=clone)
    do("worktree", "worktree", "add", "-q", f"{place.dir}/tree")
    clean("of the worktree", f"{place.dir}/tree")
    return result


def files(place):
    """tar, rsync, cp and tail."""
    result = Result()
    source = f"{place.top}/files-source-{place.prefix}"
    make_files(source, 300)
    os.symlink("../f1", f"{source}/d1/link")
    os.mkdir(f"{source}/empty")
    os.link(f"{source}/d0/e0/f0", f"{source}/d0/hard")
    os.utime(f"{source}/d3/e3/f3", ns=(1_000_000_000_123_456_789, 1_000_000_000_987_654_321))
    os.chmod(f"{source}/d3/e3/f3", 0o640)
    # rsync sets no time of a folder that was made in the same second as its source, and a time that nobody
    # set is not kept.
    for folder, _, _ in os.walk(source):
        os.utime(folder, ns=(1_500_000_000_123_456_789, 1_500_000_000_987_654_321))
    if place.as_user:
        place.give(source)
    same = ["diff", "-r", "--no-dereference", source]

    def do(name, *words, **options):
        return result.step(name, place.must, *words, **options)

    do("cp -a", "cp", "-a", source, f"{place.dir}/cp")
    do("cp: same", *same, f"{place.dir}/cp")
    do("tar", "sh", "-c", f"mkdir {place.dir}/tar && tar -C {source} -cf - . | tar -C {place.dir}/tar -xpf -")
    do("tar: same", *same, f"{place.dir}/tar")
    do("tar --compare", "sh", "-c", f"tar -C {source} -cf - . | tar -C {place.dir}/tar -df -")
    do("tar from it", "sh", "-c", f"tar -C {place.dir}/tar -cf - . | tar -C {source} -df -")
    rsync = ["rsync", "-aH", "--itemize-changes", f"{source}/", f"{place.dir}/rsync/"]
    do("rsync", *rsync)
    result.step("rsync: same", place.must, *same, f"{place.dir}/rsync")
    out = do("rsync again", *rsync)
    result.step("rsync again: nothing", check, out == "", f"it did: {(out or '')[:300]}")
    do("rm -r", "rm", "-r", f"{place.dir}/cp")
    result.step("tail -F", tail, place)
    place.fresh()
    out = do("rsync on a fresh mount", *rsync)
    # Names of one file are files of their own there: docs/promises.md.
    left = [line for line in (out or "").splitlines() if not line.startswith("hf")]
    if place.keeps:
        result.step("rsync on a fresh mount: nothing", check, not left, f"it did: {left[:5]}")
    result.step("tar: same on a fresh mount", place.must, *same, f"{place.dir}/tar")
    return result


def tail(place):
    """Follows a log that grows, is rotated, and grows again."""
    log = f"{place.dir}/log"
    place.must("sh", "-c", f"echo first >{log}")
    out = f"{place.top}/tail.out"
    with open(out, "wb") as to, subprocess.Popen(place.command("tail", "-n", "+1", "-F", "-s", "0.1", log),
                                                 stdout=to, stderr=subprocess.DEVNULL) as p:
        def seen(text):
            wait_for(f"tail says {text}", lambda: text in open(out).read(), 15)
        try:
            seen("first")
            for n in range(5):
                place.must("sh", "-c", f"echo line{n} >>{log}")
                seen(f"line{n}")
            place.must("sh", "-c", f"mv {log} {log}.1; echo rotated >{log}")
            seen("rotated")
        finally:
            p.kill()


SUITES = [pjdfstest, sqlite, git, files, fsx, fio, stress_ng, dbench]


def missing(suite):
    program = {"sqlite": None, "files": "rsync", "stress_ng": "stress-ng", "pjdfstest": None, "fsx": None}.get(suite, suite)
    if suite in {f.__name__ for f in SUITES} and program and not shutil.which(program):
        return f"there is no {program}: scripts/deps.sh check, or posix"
    return None
