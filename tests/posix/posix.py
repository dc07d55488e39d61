"""Test suites of others, unmodified, and everyday programs, on a mount.

posix.py [--all] [--on PLACE]... [SUITE]...

Places: native (a plain folder, to compare with), mem, s3, and user (the S3 server again, mounted and
used by an ordinary user). Without arguments: what check.sh runs. What fails natively as well counts neither way.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import large
import small
from harness import Failure, Mount, Workplace, check, is_mountpoint, repeat, runfs_binary
from result import Result

SUITES = {f.__name__: f for f in small.SUITES + large.SUITES}
# What check.sh runs: together under four minutes on two slow cores.
GATE = [("pjdfstest", ("native", "mem", "s3")), ("fsx", ("s3",)), ("fio", ("mem",)), ("sqlite", ("s3",)),
        ("git", ("s3",)), ("files", ("s3",))]
NOBODY = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]


class UserMount(Mount):
    """One of an ordinary user, into which root can't look."""

    def command(self):
        return NOBODY + super().command()

    def run(self, *words, seconds=300):
        return subprocess.run([*NOBODY, runfs_binary(), *words], env=self.env, text=True, timeout=seconds,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def is_up(self):
        return is_mountpoint(self.mountpoint) or super().is_up()


class Place:
    """Where a suite runs: a folder of a mount, or beside one."""

    def __init__(self, work, name, short):
        self.work, self.name, self.short = work, name, short
        self.native = name == "native"
        self.keeps = name in ("s3", "user") # a store that outlives the daemon
        self.as_user = name == "user"
        self.mount = None
        self.n = 0
        self.top = work.make(name)
        os.chmod(self.top, 0o755)
        if self.as_user:
            shutil.chown(self.top, "nobody", "nogroup")

    def start(self, suite):
        self.prefix = suite
        self.mountpoint = f"{self.top}/mnt-{suite}"
        os.makedirs(self.mountpoint)
        if self.as_user:
            shutil.chown(self.mountpoint, "nobody", "nogroup")
        if not self.native:
            self._mount()
        self.dir = f"{self.mountpoint}/t"
        done = self.run("mkdir", self.dir)
        check(done.returncode == 0, done.stdout)
        if os.geteuid() == 0 and not self.as_user:
            os.chmod(self.dir, 0o1777)

    def _mount(self):
        options = ["settle=0.1s"] + (["allow_other"] if os.geteuid() == 0 and not self.as_user else [])
        cache = f"{self.top}/{self.prefix}.cache-{self.n}"
        if self.name == "mem":
            self.mount = Mount("mem:", self.mountpoint, cache, options)
            self.work.mounts.append(self.mount)
        else:
            self.mount = self.work.mount(f"{self.name}-{self.prefix}", options, name=f"{self.name}/mnt-{self.prefix}", cache=cache)
        if self.as_user:
            self.mount.__class__ = UserMount
        self.mount.start()

    def crash(self):
        """SIGKILL of the daemon, and a mount that recovers. Nothing where there is none to kill."""
        if self.keeps:
            self.mount.kill()
            self.mount.start()

    def fresh(self, unclosed=None):
        """Everything is published; another mount begins with an empty cache. `unclosed` is a pattern of
        names that may be in kept/ instead, as nobody had closed them when the daemon was killed."""
        if self.keeps:
            if unclosed:
                self._umount_but(unclosed)
            else:
                self.mount.umount()
            self.n += 1
            self._mount()

    def _umount_but(self, unclosed):
        done = self.mount.try_umount(300)
        told = re.search(r"this is in the cache .* and not in the store .*:\n", done.stdout)
        left = done.stdout[told.end():] if told else ""
        check(done.returncode == 0 or left, f"runfs umount: exit {done.returncode}: {done.stdout}")
        for line in left.splitlines():
            check(line.startswith("kept ") and re.search(unclosed, line), f"not in the store: {line}")
        self.mount.wait_dead()

    def end(self):
        if self.mount:
            self.mount.umount(600)
            check("error" not in self.mount.log_tail().lower(), f"log: {self.mount.log_tail()}")

    def give(self, path):
        """To the place's user, with all below it."""
        subprocess.run(["chown", "-R", "nobody:nogroup", path], check=True)

    def command(self, *words):
        return (NOBODY if self.as_user else []) + list(words)

    def run(self, *words, seconds=600, cwd=None, env=None, user=None, input=None):
        """A program of the place's user; returns the finished process with its output as text."""
        command = self.command(*words)
        if user:
            command = ["setpriv", "--reuid", user, "--regid", user, "--init-groups"] + list(words)
        base = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "GIT_"))}
        base.update(HOME=self.top, LC_ALL="C.UTF-8", **(env or {}))
        with subprocess.Popen(command, cwd=cwd or "/", env=base, text=True, errors="replace", start_new_session=True,
                              stdin=subprocess.PIPE if input else subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as p:
            try:
                out, _ = p.communicate(input, timeout=seconds)
            except subprocess.TimeoutExpired:
                os.killpg(p.pid, signal.SIGKILL)
                out, _ = p.communicate()
                raise Failure(f"{' '.join(words)[:200]}: no end after {seconds} s: ...{out[-500:]}") from None
        return subprocess.CompletedProcess(command, p.returncode, out)

    def must(self, *words, **options):
        done = self.run(*words, **options)
        check(done.returncode == 0, f"{' '.join(words)[:200]}: exit {done.returncode}: ...{done.stdout[-1500:]}")
        return done.stdout


def run_one(work, suite, where, short, native):
    """Runs a suite at a place; its Result without what fails natively as well."""
    place = Place(work, where, short)
    started = time.monotonic()
    place.start(suite)
    try:
        result = SUITES[suite](place)
        try:
            place.end()
        except Failure as e:
            result.fail("umount", str(e))
    finally:
        if place.mount:
            place.mount.kill()
    text = str(result)
    both = sorted(result.failures.keys() & native.failures.keys()) if native else []
    for name in both:
        del result.failures[name]
    seconds = time.monotonic() - started
    print(f"{suite} on {where}: {text}{f', of these natively, too: {len(both)}' if both else ''} ({seconds:.0f} s)",
          flush=True)
    for name, why in sorted(result.failures.items()):
        print(f"{'differs' if where != 'native' else 'native'}: {suite}/{where}/{name}: {why}", flush=True)
    return result


def plan(options):
    everywhere = ("native", "mem", "s3", "user")
    if not options.all and not options.suite and not options.on:
        return GATE
    places = tuple(options.on) or everywhere
    names = options.suite or list(SUITES)
    return [(n, tuple(p for p in places if p in getattr(SUITES[n], "places", everywhere))) for n in names]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--on", action="append", default=[], choices=["native", "mem", "s3", "user"])
    parser.add_argument("suite", nargs="*", help=", ".join(SUITES))
    options = parser.parse_args()
    if not SUITES.keys() >= set(options.suite):
        parser.error(f"no such suite; there are: {' '.join(SUITES)}")
    total = Result()
    skipped = 0
    print(f"seed {small.SEED} (POSIX_SEED)", flush=True)
    with Workplace("posix") as work:
        os.chmod(work.folder, 0o755)
        work.start_gateway()
        if os.geteuid() == 0 and any("user" in places for _, places in plan(options)):
            mode = os.stat("/dev/fuse").st_mode & 0o777
            os.chmod("/dev/fuse", 0o666) # as udev sets it
            work.cleanups.append(lambda: os.chmod("/dev/fuse", mode))
        for suite, places in plan(options):
            native = None
            for where in places:
                problem = small.missing(suite) or large.missing(suite) or user_problem(where)
                if problem:
                    print(f"SKIP {suite} on {where}: {problem}", flush=True)
                    skipped += 1
                    continue
                try:
                    result = run_one(work, suite, where, not options.all, native)
                except (Failure, OSError, subprocess.SubprocessError) as e:
                    result = Result()
                    result.fail("run", f"{type(e).__name__}: {e}")
                    print(f"FAIL {suite} on {where}: {e}", flush=True)
                if where == "native":
                    native = result
                else:
                    total.add(result, f"{suite}/{where}")
    for name, why in sorted(total.failures.items()):
        suite, where = name.split("/")[:2]
        print(f"FAIL {name}: {why}\nREPEAT: " + repeat(*(["--all"] if options.all else []), "--on", "native", "--on", where,
                                                       suite, POSIX_SEED=small.SEED))
    print(f"posix: {total.passed} passed, {len(total.failures)} failed, {skipped} skipped")
    return 1 if total.failures or not total.passed else 0


def user_problem(where):
    if where != "user":
        return None
    if os.geteuid() != 0:
        return "only root can become another user"
    if not shutil.which("fusermount3"):
        return "there is no fusermount3"
    return None


if __name__ == "__main__":
    sys.exit(main())
