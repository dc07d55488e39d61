"""Some tensors of a large file, by each library's own mmap or seeks: of each file no more comes from the
store than what was asked, a quarter of it for the edges, and what reading the beginning costs.
Counted by the mount itself, so that the clock has no part in it."""

import json
import os
import time

import h5py
import numpy
import torch
from safetensors import safe_open
from safetensors.torch import save_file

SAME_BYTES = ["*.safetensors"]
COUNT = 24
SHAPE = (1024, 1024) # 4 MiB each
WANTED = (17, 3, 11, 22) # in no order
BEGINNING = 9 << 17 # 1.125 MiB: the window that a file's first read opens
BLOCKS = 64 << 10 # what the header of each member of an archive costs


def tensor(i):
    return torch.arange(SHAPE[0] * SHAPE[1], dtype=torch.float32).reshape(SHAPE) + i


def save(folder):
    tensors = {f"layer.{i:02}": tensor(i) for i in range(COUNT)}
    save_file(tensors, os.path.join(folder, "model.safetensors"))
    torch.save(tensors, os.path.join(folder, "model.pt"))
    with h5py.File(os.path.join(folder, "model.h5"), "w") as f:
        for name, value in tensors.items():
            f.create_dataset(name, data=value.numpy())


def bytes_read(folder):
    """How many the mount has asked of the store; None in a plain folder."""
    try:
        with open(os.path.join(folder, ".runfs", "status.json")) as f:
            return json.load(f)["requests"]["bytes_read"]
    except FileNotFoundError:
        return None


def settled_bytes_read(folder):
    """The same, once what was read ahead is there: it is counted when its request ends."""
    before, now = None, bytes_read(folder)
    while now is not None and now != before:
        time.sleep(0.5)
        before, now = now, bytes_read(folder)
    return now


def read_safetensors(path):
    with safe_open(path, framework="pt") as f:
        for i in WANTED:
            assert torch.equal(f.get_tensor(f"layer.{i:02}"), tensor(i))
    return len(WANTED) * tensor(0).nbytes


def read_zip(path):
    loaded = torch.load(path, mmap=True, weights_only=True)
    for i in WANTED:
        assert torch.equal(loaded[f"layer.{i:02}"], tensor(i))
    return len(WANTED) * tensor(0).nbytes


def read_hdf5(path):
    with h5py.File(path, "r") as f:
        for i in WANTED:
            assert numpy.array_equal(f[f"layer.{i:02}"][:], tensor(i).numpy())
    return len(WANTED) * tensor(0).nbytes


def load(folder, _):
    wrong = []
    for read, name, headers in ((read_safetensors, "model.safetensors", 0), (read_zip, "model.pt", COUNT * BLOCKS),
                                (read_hdf5, "model.h5", 0)):
        before = settled_bytes_read(folder)
        asked = read(os.path.join(folder, name))
        if before is None:
            continue
        came = settled_bytes_read(folder) - before
        text = f"{read.__name__}: {came} bytes for {asked}, {came / asked:.2f} times"
        print(text)
        if came > asked * 5 // 4 + BEGINNING + headers:
            wrong.append(text)
    assert not wrong, wrong
