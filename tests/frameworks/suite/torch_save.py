"""torch.save to a temporary name, then rename; torch.load whole and with mmap=True."""

import os

import torch

SAME_BYTES = ["*"]


def make(step):
    torch.manual_seed(step)
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(torch.randn(8, 512)).sum().backward()
    optimizer.step()
    return {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}


def save(folder):
    for step in (1, 2, 3):
        where = os.path.join(folder, "runs", "a run", "checkpoint", f"step-{step}")
        os.makedirs(where)
        final = os.path.join(where, "model.pt")
        torch.save(make(step), final + ".tmp")
        os.rename(final + ".tmp", final)
    latest = os.path.join(folder, "runs", "a run", "checkpoint", "latest.pt")
    for step in (1, 3):
        torch.save(make(step), latest)
    return {"steps": [1, 2, 3]}


def same(one, other):
    assert one["step"] == other["step"]
    for name, tensor in one["model"].items():
        assert torch.equal(tensor, other["model"][name]), name
    for key, state in one["optimizer"]["state"].items():
        for name, tensor in state.items():
            assert torch.equal(tensor, other["optimizer"]["state"][key][name]), name


def load(folder, expected):
    base = os.path.join(folder, "runs", "a run", "checkpoint")
    for step in expected["steps"]:
        for mmap in (True, False):
            same(make(step), torch.load(os.path.join(base, f"step-{step}", "model.pt"), mmap=mmap))
    same(make(3), torch.load(os.path.join(base, "latest.pt"), mmap=True))
    assert sorted(os.listdir(base)) == ["latest.pt", "step-1", "step-2", "step-3"]
