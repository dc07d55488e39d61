"""Horovod's Store, TorchX's tracker, a Trainer of transformers and TensorBoard's writer in one mount of three stores;
each then finds its own in the stores themselves, and in the mount what the others have put there."""

import glob
import os

import fsspec
import torch
from horovod.spark.common.store import FilesystemStore, LocalStore
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter
from torchx.tracker.backend.fsspec import FsspecTracker
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

import tracked
from harness import check
from stores import seen

ROUTES = [{"path": "runs/{run}/logs/**", "store": "logs", "key": "{run}/**", "policy": "logs"},
          {"path": "tracker/**", "store": "lake", "policy": "metadata"}]
LAYOUT = {"name": "horovod", "runs": "ckpt", "train": "lake/warehouse/tr", "data": "lake/rest"}
STEPS = 2


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        ids = (torch.arange(8) * (i + 3)) % 32
        return {"input_ids": ids, "labels": ids}


def trainer(folder, steps):
    set_seed(11)
    config = GPT2Config(vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0)
    arguments = TrainingArguments(output_dir=folder, max_steps=steps, save_steps=1, save_total_limit=1, report_to=[],
                                  per_device_train_batch_size=4, use_cpu=True, disable_tqdm=True, seed=11)
    return Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Rows())


def same_weights(folder, model):
    loaded = GPT2LMHeadModel.from_pretrained(folder)
    for name, tensor in model.state_dict().items():
        check(torch.equal(tensor, loaded.state_dict()[name]), f"{folder}: {name}")


def write_logs(folder, factor):
    with SummaryWriter(folder) as writer:
        for step in range(10):
            writer.add_scalar("loss", factor * step, step)


def losses(folder):
    reader = EventAccumulator(folder)
    reader.Reload()
    return [s.value for s in reader.Scalars("loss")] if "loss" in reader.Tags()["scalars"] else []


def places(store, name):
    """Where Horovod's estimators put a checkpoint and a data set."""
    return {"a checkpoint": store.get_checkpoint_path(name), "data": store.get_train_data_path(1)}


def write_data(store, name):
    for what, path in places(store, name).items():
        store.fs.makedirs(store.get_localized_path(path), exist_ok=True)
        store.write_text(os.path.join(path, f"{name}.ckpt"), f"{what} of {name}")


def check_data(store, name):
    found = [os.path.basename(path) for path in store.get_checkpoints(name)]
    check(found == [f"{name}.ckpt"], f"the checkpoints of {name} are {found}")
    for what, path in places(store, name).items():
        told = store.read(os.path.join(path, f"{name}.ckpt"))
        check(told == f"{what} of {name}".encode(), f"{path} of {name} has {told}")


def check_keys(stores):
    """By whom each was written, in whichever store."""
    ckpt, logs, lake = stores.keys("ckpt"), stores.keys("logs"), stores.keys("lake")
    tops = tuple(f"runs/{run}/checkpoint-{STEPS}/" for run in ("hf", "hf-copy"))
    trained = {k for k in ckpt if k.startswith(tops)}
    check(ckpt - trained == {"runs/written/written.ckpt", "runs/stored/stored.ckpt"}, f"ckpt has {sorted(ckpt)}")
    for top in tops:
        check({f"{top}model.safetensors", f"{top}trainer_state.json"} <= trained, f"ckpt has {sorted(trained)}")
    check({os.path.dirname(k) for k in logs} == {"hf", "stored"} and len(logs) == 2, f"logs has {sorted(logs)}")
    tracker = {k.split("/", 1)[1] for k in lake if k.startswith("tracker/")}
    tracked.check_keys(tracker, "written", "stored")
    rest = {k for k in lake if not k.startswith("tracker/")}
    check(rest == {f"warehouse/tr.1/{n}.ckpt" for n in ("written", "stored")}, f"lake has {sorted(rest)}")


def tracker_in(m):
    return FsspecTracker(fsspec.filesystem("file"), os.path.join(m.mountpoint, "tracker"))


def write_here(m):
    """By all four; the trained model."""
    store = LocalStore(m.mountpoint)
    write_data(store, "written")
    os.mkdir(os.path.join(m.mountpoint, "tracker"))
    tracked.write(tracker_in(m), "written")
    write_logs(store.get_localized_path(store.get_logs_path("hf")), 1.0)
    training = trainer(store.get_localized_path(store.get_run_path("hf")), STEPS)
    training.train()
    return training.model


def story(stores):
    m = stores.mount(["ckpt", "logs", "lake"], routes=ROUTES, layout=LAYOUT)
    model = write_here(m)
    m.flush()
    raw = FilesystemStore(stores.url("lake") + "/rest", train_path=stores.url("lake") + "/warehouse/tr",
                          runs_path=stores.url("ckpt") + "/runs")
    check_data(raw, "written")
    tracker = FsspecTracker(stores.fs, stores.at("lake", "tracker"))
    tracked.check_answers(tracker, "written")
    logs = f"s3://{stores.at('logs', 'hf')}" if stores.kind == "s3" else stores.at("logs", "hf")
    check(losses(logs) == [float(i) for i in range(10)], f"{logs}: {losses(logs)}")
    same_weights(stores.copy_of("ckpt", "runs", "hf", f"checkpoint-{STEPS}"), model)

    write_data(raw, "stored")
    tracked.write(tracker, "stored")
    local = stores.place.make("local")
    write_logs(local, 2.0)
    stores.fs.put(glob.glob(os.path.join(local, "*")), stores.at("logs", "stored") + "/")
    runs = stores.at("ckpt", "runs")
    stores.fs.copy(f"{runs}/hf/checkpoint-{STEPS}", f"{runs}/hf-copy/checkpoint-{STEPS}", recursive=True)
    here = LocalStore(m.mountpoint)
    run = os.path.join(m.mountpoint, "runs", "hf-copy")
    seen("the other runs", lambda: {"hf-copy", "stored"} <= set(os.listdir(os.path.dirname(run))) and
         here.exists(here.get_train_data_path(1) + "/stored.ckpt"))
    check_data(here, "stored")
    seen("the other tracker's runs", lambda: tracked.answers(tracker_in(m)) == tracked.expected("written", "stored"))
    logs = os.path.join(m.mountpoint, "runs", "stored", "logs")
    check(losses(logs) == [2.0 * i for i in range(10)], f"{logs}: {losses(logs)}")
    same_weights(os.path.join(run, f"checkpoint-{STEPS}"), model)
    resumed = trainer(stores.place.path("resumed"), STEPS + 1)
    resumed.train(resume_from_checkpoint=os.path.join(run, f"checkpoint-{STEPS}"))
    check(resumed.state.global_step == STEPS + 1, f"resumed at {resumed.state.global_step}")
    m.umount()
    check_keys(stores)
