"""AdaptDL restarts in a mount of its layout: each save is staged, renamed, and removes the one before. What lies in
the store then, copied to a plain folder, is what AdaptDL loads without the mount; and a store that it left is what it
goes on with in the mount."""

import json
import os
import signal

from adaptdl import checkpoint

from harness import check
from stores import same_keys, seen

RESTARTS = 3
SIZE = 300_001


class Numbers(checkpoint.State):
    values = []

    def save(self, f):
        f.write(json.dumps(self.values).encode())

    def load(self, f):
        self.values = json.loads(f.read())


class Bytes(checkpoint.State):
    data = b""

    def save(self, f):
        f.write(self.data)

    def load(self, f):
        self.data = f.read()


class Killed(checkpoint.State):
    """The job ends in the middle of its checkpoint."""

    def save(self, f):
        f.write(b"half")
        f.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def content(restart):
    return bytes([restart]) * (SIZE + restart)


def job(folder, restart, saved, end):
    """A job that must find what `saved` restarts have left."""
    os.environ.update(ADAPTDL_CHECKPOINT_PATH=folder, ADAPTDL_NUM_RESTARTS=str(restart), ADAPTDL_REPLICA_RANK="0",
                      ADAPTDL_JOB_ID="test/job", ADAPTDL_MASTER_PORT="0")
    numbers, data = Numbers("numbers"), Bytes("data")
    found = checkpoint.load_state(numbers), checkpoint.load_state(data)
    check(found == (saved > 0,) * 2, f"{folder}: of {saved} saves it loads {found}")
    check(numbers.values == list(range(saved)), f"{folder}: {numbers.values}")
    check(data.data == (content(saved) if saved else b""), f"{folder}: {len(data.data)} bytes")
    numbers.values, data.data = list(range(saved + 1)), content(saved + 1)
    if end == "killed":
        Killed("killed")
    if end != "load":
        checkpoint.save_all_states()


def run(folder, restart, saved, end="save"):
    """In a process of its own, as a restart is; what it needs is imported."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            job(folder, restart, saved, end)
            code = 0
        except BaseException as e:
            print(f"restart {restart}: {e!r}", flush=True)
        os._exit(code)
    status = os.waitpid(pid, 0)[1]
    check(status == (signal.SIGKILL if end == "killed" else 0), f"restart {restart} ended with {status}")


def stored(restart):
    return {f"job/checkpoint-{restart}/{name}" for name in ("numbers", "data")}


def story(stores):
    m = stores.mount(["jobs"], layout="adaptdl")
    folder = os.path.join(m.mountpoint, "job")
    os.mkdir(folder)
    for restart in range(RESTARTS):
        run(folder, restart, restart)
        m.flush()
        same_keys(stores, jobs=stored(restart))
        run(stores.copy_of("jobs", "job"), restart + 1, restart + 1, "load")
    # A job, then the daemon, too, is killed: what was saved before is all that counts.
    run(folder, RESTARTS, RESTARTS, "killed")
    check(sorted(os.listdir(folder)) == ["_checkpoint", f"checkpoint-{RESTARTS - 1}"], f"{os.listdir(folder)}")
    m.kill()
    same_keys(stores, jobs=stored(RESTARTS - 1))
    run(stores.copy_of("jobs", "job"), RESTARTS + 1, RESTARTS, "load")
    m.start()
    run(folder, RESTARTS + 1, RESTARTS)
    m.flush()
    # What the killed one staged is in the directory that was renamed, as on a plain folder.
    same_keys(stores, jobs=stored(RESTARTS + 1) | {f"job/checkpoint-{RESTARTS + 1}/killed"})

    # Elsewhere it goes on with what is stored, and the mount with what comes from there.
    other = stores.copy_of("jobs", "job")
    run(other, RESTARTS + 2, RESTARTS + 1)
    for name in os.listdir(os.path.join(other, f"checkpoint-{RESTARTS + 2}")):
        with open(os.path.join(other, f"checkpoint-{RESTARTS + 2}", name), "rb") as f:
            stores.put("jobs", f"job/checkpoint-{RESTARTS + 2}/{name}", f.read())
    stores.fs.rm(stores.at("jobs", "job", f"checkpoint-{RESTARTS + 1}"), recursive=True)
    seen("its checkpoint alone", lambda: os.listdir(folder) == [f"checkpoint-{RESTARTS + 2}"])
    run(folder, RESTARTS + 3, RESTARTS + 2)
    m.umount()
    same_keys(stores, jobs=stored(RESTARTS + 3))
    run(stores.copy_of("jobs", "job"), RESTARTS + 4, RESTARTS + 3, "load")
