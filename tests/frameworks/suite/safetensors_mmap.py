"""Sharded safetensors with an index, read through the library's own mmap: slices, then all."""

import json
import os

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

SAME_BYTES = ["*"]
SHARDS = 3


def tensors(shard):
    generator = torch.Generator().manual_seed(shard)
    return {f"layer.{shard}.weight": torch.randn(1024, 768, generator=generator),
            f"layer.{shard}.bias": torch.randn(768, generator=generator).to(torch.bfloat16),
            f"layer.{shard}.ids": torch.arange(100_000 + shard)}


def shard_name(shard):
    return f"model-{shard + 1:05}-of-{SHARDS:05}.safetensors"


def save(folder):
    index = {}
    for shard in range(SHARDS):
        save_file(tensors(shard), os.path.join(folder, shard_name(shard)), metadata={"format": "pt"})
        index.update({name: shard_name(shard) for name in tensors(shard)})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"weight_map": index}, f, indent=1, sort_keys=True)


def load(folder, _):
    with open(os.path.join(folder, "model.safetensors.index.json")) as f:
        index = json.load(f)["weight_map"]
    for shard in range(SHARDS):
        wanted = tensors(shard)
        path = os.path.join(folder, shard_name(shard))
        with safe_open(path, framework="pt") as f:
            assert f.metadata() == {"format": "pt"}
            part = f.get_slice(f"layer.{shard}.weight")[1000:1010, 5:9]
            assert torch.equal(part, wanted[f"layer.{shard}.weight"][1000:1010, 5:9])
            assert sorted(f.keys()) == sorted(wanted)
        loaded = load_file(path)
        for name, tensor in wanted.items():
            assert index[name] == shard_name(shard)
            assert torch.equal(loaded[name], tensor), name
