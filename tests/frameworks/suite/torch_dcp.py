"""torch.distributed.checkpoint by two processes (gloo), of tensors sharded over both."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp

# .metadata carries a random id.
SAME_BYTES = ["*.distcp"]
WORLD = 2


def state(mesh, filled):
    from torch.distributed.tensor import Shard, Replicate, distribute_tensor

    torch.manual_seed(7)
    full = {"sharded": torch.randn(1000, 256), "rows": torch.arange(10_001.0).reshape(-1, 73),
            "same": torch.randn(333)}
    if not filled:
        full = {name: torch.zeros_like(tensor) for name, tensor in full.items()}
    placed = {"sharded": [Shard(0)], "rows": [Shard(0)], "same": [Replicate()]}
    return {name: distribute_tensor(t, mesh, placed[name]) for name, t in full.items()}


def rank_main(rank, meeting, step, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=WORLD)
    mesh = dist.init_device_mesh("cpu", (WORLD,))
    where = os.path.join(folder, "step_10")
    if step == "save":
        dcp.save({"app": state(mesh, True)}, checkpoint_id=where)
    else:
        loaded = {"app": state(mesh, False)}
        dcp.load(loaded, checkpoint_id=where)
        for name, tensor in state(mesh, True).items():
            assert torch.equal(tensor.full_tensor(), loaded["app"][name].full_tensor()), name
    dist.barrier()
    dist.destroy_process_group()


def both(step, folder):
    with tempfile.TemporaryDirectory() as local:
        mp.spawn(rank_main, (os.path.join(local, "meeting"), step, folder), WORLD)


def save(folder):
    both("save", folder)


def load(folder, _):
    assert {n for n in os.listdir(os.path.join(folder, "step_10"))} == \
        {".metadata", "__0_0.distcp", "__1_0.distcp"}
    both("load", folder)
