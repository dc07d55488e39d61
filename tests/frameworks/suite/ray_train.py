"""Ray Train: two workers report checkpoints into storage_path, the newest two are kept; a second
trainer of the same name must find the last one."""

import json
import os
import subprocess
import sys
import tempfile

os.environ.update(RAY_TRAIN_V2_ENABLED="1", RAY_USAGE_STATS_ENABLED="0", RAY_DEDUP_LOGS="0",
                  RAY_ENABLE_UV_RUN_RUNTIME_ENV="0")

import ray
import ray.train
from ray.train import Checkpoint, CheckpointConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

# Names and contents hold times.
SAME_BYTES = []
SAME_NAMES = False
STEPS = 4


def content(rank, step):
    return bytes([rank, step]) * 100_000


def loop(config):
    rank = ray.train.get_context().get_world_rank()
    for step in range(STEPS):
        with tempfile.TemporaryDirectory() as local:
            with open(os.path.join(local, f"rank-{rank}.bin"), "wb") as f:
                f.write(content(rank, step))
            if rank == 0:
                with open(os.path.join(local, "state.json"), "w") as f:
                    json.dump({"step": step}, f)
            ray.train.report({"step": step}, checkpoint=Checkpoint.from_directory(local))
        if rank == 0 and step == 1 and config:
            subprocess.run(config["command"], check=True) # the other worker waits with its next report


def save(folder, command=None):
    """`command` is executed when there are two checkpoints; neither is one of the newest two in the end."""
    # Workers can't import this file: what they run goes to them as it is.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    ray.init("local", num_cpus=2, _node_ip_address="127.0.0.1", object_store_memory=80 << 20,
             include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        config = RunConfig(name="experiment", storage_path=folder,
                           checkpoint_config=CheckpointConfig(num_to_keep=2))
        result = TorchTrainer(loop, train_loop_config={"command": command} if command else None, run_config=config,
                              scaling_config=ScalingConfig(num_workers=2)).fit()
        return os.path.relpath(result.checkpoint.path, folder)
    finally:
        ray.shutdown()


def load(folder, expected):
    result = ray.train.Result.from_path(os.path.join(folder, "experiment"))
    assert os.path.relpath(result.checkpoint.path, folder) == expected
    assert len(result.best_checkpoints) == 2, result.best_checkpoints
    for checkpoint, metrics in result.best_checkpoints:
        with checkpoint.as_directory() as where:
            with open(os.path.join(where, "state.json")) as f:
                assert json.load(f)["step"] == metrics["step"]
            for rank in (0, 1):
                with open(os.path.join(where, f"rank-{rank}.bin"), "rb") as f:
                    assert f.read() == content(rank, metrics["step"])
    assert sorted(m["step"] for _, m in result.best_checkpoints) == [STEPS - 2, STEPS - 1]
