"""Ray's TorchTrainer with num_to_keep=1. Its file checkpoint_manager_snapshot.json names the checkpoints that there are; it
is written behind each, and before the one that it leaves out is removed. A run is found only by it."""

import json
import os
import sys
import tempfile

os.environ.update(RAY_TRAIN_V2_ENABLED="1", RAY_USAGE_STATS_ENABLED="0", RAY_DEDUP_LOGS="0",
                  RAY_ENABLE_UV_RUN_RUNTIME_ENV="0")

import ray
import ray.train
from ray.train import Checkpoint, CheckpointConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

import saves as told
from harness import check
from polled import poll

NIGHTLY = True
SAVES, COPIES = 12, 200
RANKS = 2
SNAPSHOT = "checkpoint_manager_snapshot.json"


def content(rank, number):
    return bytes([rank, number]) * 100_000


def loop(config):
    saves, rank = config["saves"], ray.train.get_context().get_world_rank()
    for number in range(1, config["count"] + 1):
        if rank == 0:
            saves.begin(number)
        with tempfile.TemporaryDirectory() as local:
            with open(os.path.join(local, f"rank-{rank}.bin"), "wb") as f:
                f.write(content(rank, number))
            if rank == 0:
                with open(os.path.join(local, "state.json"), "w") as f:
                    json.dump({"number": number}, f)
            ray.train.report({"number": number}, checkpoint=Checkpoint.from_directory(local))
        ray.train.get_all_reported_checkpoints() # returns when the snapshot is written
        if rank == 0:
            saves.end(number)


def save(mountpoint, saves, count):
    for module in (sys.modules[__name__], told): # workers can't import what they run
        ray.cloudpickle.register_pickle_by_value(module)
    ray.init("local", num_cpus=RANKS, _node_ip_address="127.0.0.1", object_store_memory=80 << 20,
             include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        TorchTrainer(loop, train_loop_config={"saves": saves, "count": count},
                     run_config=RunConfig(name="experiment", storage_path=mountpoint,
                                          checkpoint_config=CheckpointConfig(num_to_keep=1)),
                     scaling_config=ScalingConfig(num_workers=RANKS)).fit()
    finally:
        ray.shutdown()


def load(copy):
    folder = os.path.join(copy, "experiment")
    if not os.path.exists(os.path.join(folder, SNAPSHOT)):
        return 0
    result = ray.train.Result.from_path(folder)
    for checkpoint, metrics in result.best_checkpoints:
        check_whole(checkpoint, metrics["number"])
    check_whole(result.checkpoint, result.metrics["number"])
    return result.metrics["number"]


def check_whole(checkpoint, number):
    with checkpoint.as_directory() as folder:
        with open(os.path.join(folder, "state.json")) as f:
            found = json.load(f)["number"]
        check(found == number, f"{folder}: it is {found}, not {number}")
        for rank in range(RANKS):
            with open(os.path.join(folder, f"rank-{rank}.bin"), "rb") as f:
                check(f.read() == content(rank, number), f"{folder}: other bytes of rank {rank}")


def story(stores):
    poll("Ray", stores, "ray", save, load, SAVES, COPIES)
