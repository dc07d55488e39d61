"""transformers.Trainer: save_steps with save_total_limit, and a resume that must end where an
uninterrupted training ends."""

import os
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

# Bytes differ only where times are written (trainer_state.json, training_args.bin).
SAME_BYTES = ["*/model.safetensors", "*/config.json"]


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        ids = (torch.arange(16) * (i + 3)) % 64
        return {"input_ids": ids, "labels": ids}


def trainer(folder, steps):
    set_seed(11)
    config = GPT2Config(vocab_size=64, n_positions=16, n_embd=64, n_layer=2, n_head=2, resid_pdrop=0.0,
                        embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    # max_steps of the schedule is the whole training, so that a resume goes on as if unbroken.
    arguments = TrainingArguments(output_dir=folder, max_steps=steps, save_steps=2, save_total_limit=2,
                                  per_device_train_batch_size=4, logging_steps=1, report_to=[],
                                  use_cpu=True, disable_tqdm=True, seed=11, lr_scheduler_type="constant")
    return Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Rows())


def weights(t):
    return {name: tensor.clone() for name, tensor in t.model.state_dict().items()}


def save(folder):
    t = trainer(folder, 6)
    t.train()
    return weights(t)


def load(folder, expected):
    assert sorted(os.listdir(folder)) == ["checkpoint-4", "checkpoint-6"], os.listdir(folder)
    with tempfile.TemporaryDirectory() as scratch:
        model = GPT2LMHeadModel.from_pretrained(os.path.join(folder, "checkpoint-6"))
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, expected[name]), name
        resumed = trainer(os.path.join(scratch, "resumed"), 8)
        resumed.train(resume_from_checkpoint=os.path.join(folder, "checkpoint-6"))
        assert resumed.state.global_step == 8
        unbroken = trainer(os.path.join(scratch, "unbroken"), 8)
        unbroken.train()
        other = weights(unbroken)
        for name, tensor in weights(resumed).items():
            assert torch.equal(tensor, other[name]), name
