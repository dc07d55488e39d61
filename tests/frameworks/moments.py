"""Plain copies of a store at moments of a job that goes on: what somebody has who reads it just then."""

import contextlib
import os
import signal
import threading

from harness import wait_for

PAUSE_SECONDS = 0.2


class Moments:
    """Copies of a store until it is closed; `folders` has them. Files are fetched one by one, so a copy is of one moment
    only where listings before and behind it are the same: each file was then there, with this content, all the while.
    Others are thrown away. `mark` is called before and behind each copy; `marks` has its answers by folder. `hold` is
    entered for a copy: where it stops who writes, moments that pass sooner than a copy is made are had, too."""

    def __init__(self, stores, store, pause=PAUSE_SECONDS, mark=lambda: None, hold=contextlib.nullcontext):
        self.stores, self.store, self.pause, self.mark, self.hold = stores, store, pause, mark, hold
        self.folders, self.marks, self.last, self.failure, self.n = [], {}, {}, None, 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.work)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.over.set()
        self.thread.join()
        if self.failure and exception == (None, None, None):
            raise self.failure

    def wait(self):
        """Until the next copy; whether there is none any more."""
        return self.over.wait(self.pause)

    def work(self):
        try:
            while not self.wait():
                with self.hold():
                    self.copy()
        except Exception as e:
            self.failure = e

    def copy(self):
        first = self.mark()
        try:
            before = self.stores.versions(self.store)
            if before == self.last:
                return
            self.n += 1 # what is thrown away leaves its files
            folder = self.stores.place.make("moments", self.store, str(self.n))
            for key in before:
                write(os.path.join(folder, key), self.stores.get(self.store, key))
            if self.stores.versions(self.store) != before:
                return
        except FileNotFoundError: # one that was listed
            return
        self.last = before
        self.folders.append(folder)
        self.marks[folder] = first, self.mark()


@contextlib.contextmanager
def stopped(mount):
    """Nothing goes on in the daemon meanwhile, unless it is killed."""
    daemon = mount.process
    if daemon:
        daemon.send_signal(signal.SIGSTOP)
        wait_for("the daemon stops", lambda: all_stopped(daemon.pid), step=0.0005)
    try:
        yield
    finally:
        if daemon:
            daemon.send_signal(signal.SIGCONT)


def all_stopped(pid):
    """All threads of a process, or it has ended: each does first what it has asked the kernel for."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        return all(state_of(f"/proc/{pid}/task/{thread}") in "TtZX" for thread in threads)
    except (FileNotFoundError, ProcessLookupError):
        return True


def state_of(thread):
    with open(f"{thread}/stat") as f:
        return f.read().rpartition(")")[2].split()[0]


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)
