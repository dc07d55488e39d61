"""Event files read while they grow: on the node that writes, and on another node, which sees
what the store has been given while the file stays open."""

import glob
import os
import time

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboardX import SummaryWriter as WriterX
from torch.utils.tensorboard import SummaryWriter

# The names of event files hold time, host and process id.
SAME_BYTES = []
SAME_NAMES = False
# A second node reads along.
PEER = True
STEPS = 60


def wait_for_step(reader, step, seconds):
    end = time.monotonic() + seconds
    while not glob.glob(os.path.join(reader.path, "events.out.tfevents.*")):
        assert time.monotonic() < end, f"no event file in {reader.path} in {seconds} s"
        time.sleep(0.3)
    while True:
        reader.Reload()
        if "loss" in reader.Tags()["scalars"] and reader.Scalars("loss")[-1].step >= step:
            return
        assert time.monotonic() < end, f"step {step} was not seen in {seconds} s"
        time.sleep(0.3)


def save(folder):
    logs = os.path.join(folder, "runs", "one", "logs")
    peer = os.environ.get("RUNFS_FW_PEER")
    writer = SummaryWriter(logs)
    here = EventAccumulator(logs)
    there = EventAccumulator(os.path.join(peer, "runs", "one", "logs")) if peer else None
    for step in range(STEPS):
        writer.add_scalar("loss", 1.0 / (step + 1), step)
        writer.add_histogram("weights", np.array([float(step), 2.0, 3.0] * 500), step)
        if step % 20 == 19:
            writer.flush()
            wait_for_step(here, step, 10)
            if there:
                wait_for_step(there, step, 60)
    writer.close()
    with WriterX(os.path.join(folder, "runs", "x", "logs")) as x:
        for step in range(STEPS):
            x.add_scalar("loss", 2.0 * step, step)


def load(folder, _):
    for run, value in (("one", lambda s: 1.0 / (s + 1)), ("x", lambda s: 2.0 * s)):
        logs = os.path.join(folder, "runs", run, "logs")
        assert len(glob.glob(os.path.join(logs, "events.out.tfevents.*"))) == 1
        reader = EventAccumulator(logs)
        reader.Reload()
        scalars = reader.Scalars("loss")
        assert [s.step for s in scalars] == list(range(STEPS)), run
        assert all(abs(s.value - value(s.step)) < 1e-4 * max(1, s.value) for s in scalars), run
