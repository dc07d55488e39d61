"""Ray's TorchTrainer in a mount of its layout keeps the newest two checkpoints of four. Both are whole where Ray finds
them in the store itself, and of the others, which were stored, too, nothing is left there."""

import json
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "suite"))

import ray_train
from ray.train import Checkpoint

from harness import check
from stores import same_keys

NIGHTLY = True
STORE = "trials"
FILES = ["state.json", "rank-0.bin", "rank-1.bin"]
# All that is owed goes to the store; then the names of files in the folder that it is, or that its server has it in.
LIST = 'RUNFS flush --staged "$0" && find "$1" -type f > "$2"'


def folder_of(stores):
    """Where the store is on this machine."""
    return stores.at(STORE) if stores.kind == "file" else \
        os.path.join(stores.place.server_folder, "data", stores.at(STORE))


def checkpoints(keys):
    """The names of checkpoints among keys or paths."""
    return {part for key in keys for part in key.split("/") if part.startswith("checkpoint_2")}


def stored_step(checkpoint):
    """Of a whole one."""
    with checkpoint.as_directory() as folder:
        with open(os.path.join(folder, "state.json")) as f:
            step = json.load(f)["step"]
        for rank in (0, 1):
            with open(os.path.join(folder, f"rank-{rank}.bin"), "rb") as f:
                check(f.read() == ray_train.content(rank, step), f"{checkpoint}: other bytes of rank {rank}")
    return step


def raw(stores, name):
    """As Ray finds it without a mount."""
    path = stores.at(STORE, "experiment", name)
    return Checkpoint(path, filesystem=stores.pyarrow()) if stores.kind == "s3" else Checkpoint(path)


def story(stores):
    m = stores.mount([STORE], settle="0s", layout="ray")
    listed = stores.place.path("listed")
    last = ray_train.save(m.mountpoint, ["sh", "-c", LIST.replace("RUNFS", m.binary), m.mountpoint, folder_of(stores), listed])
    ray_train.load(m.mountpoint, last)
    m.flush()
    with open(listed) as f:
        first = checkpoints(f.read().splitlines())
    keys = stores.keys(STORE)
    kept = checkpoints(os.listdir(os.path.join(m.mountpoint, "experiment")))
    check(len(first) == 2 and len(kept) == 2 and not first & kept, f"there were {first}, and in the end {kept}")
    same_keys(stores, trials={key for key in keys if not checkpoints([key])} |
              {f"experiment/{name}/{file}" for name in kept for file in FILES})
    left = checkpoints(stores.fs.ls(stores.at(STORE, "experiment"), detail=False))
    check(left == kept, f"the store has {left}, the mount {kept}")
    check({stored_step(raw(stores, name)) for name in kept} == {2, 3}, f"{kept}: not those of the last two steps")
    ray_train.load(stores.copy_of(STORE), last)
    m.umount()
