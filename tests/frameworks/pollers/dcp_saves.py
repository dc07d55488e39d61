"""torch.distributed.checkpoint by three ranks in one mount: each writes its part, the first then `.metadata`, and removes
the checkpoint before when all are through. The newest is that of the highest number with a `.metadata`, without which DCP
loads nothing."""

import os
import shutil

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from harness import check
from polled import poll

NIGHTLY = True
SAVES, COPIES = 30, 200
WORLD = 3
SHAPES = {"sharded": (1000, 64), "odd": (101, 7), "same": (333,)}


def filled(number):
    torch.manual_seed(number)
    return {name: torch.randn(shape) for name, shape in SHAPES.items()}


def placed(mesh, number):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    return {name: distribute_tensor(tensor, mesh, [Replicate() if name == "same" else Shard(0)])
            for name, tensor in filled(number).items()}


def rank_main(rank, meeting, folder, saves, count):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=WORLD)
    mesh = dist.init_device_mesh("cpu", (WORLD,))
    for number in range(1, count + 1):
        if rank == 0:
            saves.begin(number)
        dist.barrier()
        dcp.save({"app": placed(mesh, number), "number": number}, checkpoint_id=os.path.join(folder, f"step_{number}"))
        dist.barrier()
        if rank == 0:
            if number > 1:
                shutil.rmtree(os.path.join(folder, f"step_{number - 1}"))
            saves.end(number)
    dist.destroy_process_group()


def save(meeting, mountpoint, saves, count):
    torch.multiprocessing.spawn(rank_main, (meeting, mountpoint, saves, count), WORLD)


def newest(folder):
    found = [int(name.removeprefix("step_")) for name in os.listdir(folder)
             if os.path.exists(os.path.join(folder, name, ".metadata"))]
    return max(found, default=0)


def load(copy):
    number = newest(copy)
    if number:
        state = {"app": {name: torch.zeros(shape) for name, shape in SHAPES.items()}, "number": 0}
        dcp.load(state, checkpoint_id=os.path.join(copy, f"step_{number}"), no_dist=True)
        check(state["number"] == number, f"step_{number} has {state['number']}")
        for name, tensor in filled(number).items():
            check(torch.equal(state["app"][name], tensor), f"step_{number}: other values of {name}")
    return number


def story(stores):
    meeting = stores.place.path("meeting")
    poll("DCP, 3 ranks", stores, "plain", lambda *a: save(meeting, *a), load, SAVES, COPIES)
