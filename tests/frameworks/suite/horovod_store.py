"""Horovod's Store over the mount: a run directory is synced into it, data is read as Parquet."""

import os
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from horovod.spark.common.store import FilesystemStore, LocalStore, Store

SAME_BYTES = ["*"]
RUN = "keras_1700000000"


def checkpoint(epoch):
    return np.random.default_rng(epoch).bytes(300_000 + epoch)


def frame():
    return pa.table({"x": list(range(10_000)), "y": [float(i) / 7 for i in range(10_000)]})


def save(folder):
    store = Store.create(folder)
    assert isinstance(store, FilesystemStore)
    sync = store.sync_fn(RUN)
    with tempfile.TemporaryDirectory() as local:
        os.makedirs(os.path.join(local, "logs"))
        for epoch in range(3):
            with open(os.path.join(local, f"checkpoint-{epoch}.ckpt"), "wb") as f:
                f.write(checkpoint(epoch))
            with open(os.path.join(local, "logs", "log.txt"), "a") as f:
                f.write(f"epoch {epoch}\n")
            for where, _, files in os.walk(local):
                for name in files:
                    os.utime(os.path.join(where, name), (1_700_000_000, 1_700_000_000))
            sync(local)
    os.makedirs(os.path.join(folder, "intermediate_train_data"))
    pq.write_table(frame(), os.path.join(folder, "intermediate_train_data", "part-0.parquet"))
    store.write_text(os.path.join(store.get_run_path(RUN), "notes.txt"), "done")


def load(folder, _):
    store = LocalStore(folder)
    assert store.exists(store.get_run_path(RUN)) and not store.exists(store.get_run_path("other"))
    found = [os.path.basename(path) for path in store.get_checkpoints(RUN)]
    assert found == [f"checkpoint-{epoch}.ckpt" for epoch in range(3)], found
    for epoch, path in enumerate(store.get_checkpoints(RUN)):
        assert store.read(path) == checkpoint(epoch)
    assert store.read(os.path.join(store.get_logs_path(RUN), "log.txt")) == b"epoch 0\nepoch 1\nepoch 2\n"
    assert store.read(os.path.join(store.get_run_path(RUN), "notes.txt")) == b"done"
    assert store.is_parquet_dataset(store.get_train_data_path())
    assert store.get_parquet_dataset(store.get_train_data_path()).read().equals(frame())
