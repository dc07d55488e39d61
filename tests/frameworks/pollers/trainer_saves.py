"""transformers.Trainer with save_total_limit=1. get_last_checkpoint() takes the directory of the highest number, whole or
not; the Trainer goes on from it only with trainer_state.json, which it writes last. A copy whose newest lacks that is to
have the one before."""

import hashlib
import os
import shutil
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import get_last_checkpoint

from harness import check
from polled import poll

NIGHTLY = True
SAVES, COPIES = 30, 100


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        ids = (torch.arange(8) * (i + 3)) % 32
        return {"input_ids": ids, "labels": ids}


def digest(model, optimizer):
    """Of all that training has changed."""
    told = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        told.update(name.encode() + tensor.numpy().tobytes())
    for number, state in sorted(optimizer.state_dict()["state"].items()):
        for name, value in sorted(state.items()):
            told.update(f"{number}{name}".encode() + torch.as_tensor(value).numpy().tobytes())
    return told.hexdigest()


class Told(TrainerCallback):
    """One save a step; `digests` has what each must load."""

    def __init__(self, saves, digests):
        self.saves, self.digests = saves, digests

    def on_step_end(self, args, state, control, model=None, optimizer=None, **_):
        with open(os.path.join(self.digests, str(state.global_step)), "w") as f:
            f.write(digest(model, getattr(optimizer, "optimizer", optimizer)))
        self.saves.begin(state.global_step)

    def on_save(self, args, state, control, **_):
        self.saves.end(state.global_step)


class Loaded(Exception):
    pass


class Resumed(TrainerCallback):
    """Ends a training that was resumed before it changes anything."""

    def on_train_begin(self, args, state, control, model=None, optimizer=None, **_):
        raise Loaded(state.global_step, digest(model, getattr(optimizer, "optimizer", optimizer)))


def trainer(folder, steps, callback, strategy):
    set_seed(11)
    config = GPT2Config(vocab_size=32, n_positions=8, n_embd=64, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    arguments = TrainingArguments(output_dir=folder, max_steps=steps, save_steps=1, save_strategy=strategy,
                                  save_total_limit=1, per_device_train_batch_size=4, report_to=[], use_cpu=True,
                                  disable_tqdm=True, seed=11)
    return Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Rows(), callbacks=[callback])


def train(folder, saves, digests, count):
    trainer(folder, count, Told(saves, digests), "steps").train()


def save(digests, mountpoint, saves, count):
    folder = os.path.join(mountpoint, "training")
    torch.multiprocessing.spawn(train_in, (folder, saves, digests, count), 1)


def train_in(_, *arguments):
    train(*arguments)


def newest(folder):
    while True:
        found = get_last_checkpoint(folder) if os.path.isdir(folder) else None
        if not found or os.path.exists(os.path.join(found, TRAINER_STATE_NAME)):
            return found
        shutil.rmtree(found)


def load(digests, copy):
    found = newest(os.path.join(copy, "training"))
    if not found:
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        try:
            trainer(scratch, SAVES + 1, Resumed(), "no").train(resume_from_checkpoint=found)
        except Loaded as loaded:
            step, told = loaded.args
    with open(os.path.join(digests, str(step))) as f:
        check(f.read() == told, f"{found}: other weights, or another state of the optimizer, than step {step} had")
    check(os.path.basename(found) == f"checkpoint-{step}", f"{found}: the state is of step {step}")
    return step


def story(stores):
    digests = stores.place.make("digests")
    poll("Trainer", stores, "plain", lambda *a: save(digests, *a), lambda copy: load(digests, copy), SAVES, COPIES)
