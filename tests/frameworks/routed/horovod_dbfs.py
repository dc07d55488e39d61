"""Horovod's DBFSLocalStore with a mount at /dbfs, in a namespace of its own; and by a Store without the mount, over the
same store. A run's checkpoint is a SavedModel, a directory."""

import os
import tempfile

import numpy as np
import tensorflow as tf
from horovod.spark.common.store import DBFSLocalStore, FilesystemStore, Store

import horovod_store as other
from harness import check
from stores import same_keys, seen

ENVIRONMENT = "spark"
DBFS = True
AT = "/dbfs"
STORE = "lake"
MODEL = "model"


def files_below(folder):
    return {os.path.relpath(os.path.join(where, name), folder) for where, _, names in os.walk(folder) for name in names}


def model(seed):
    tf.keras.utils.set_random_seed(seed)
    made = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,))])
    made.compile(optimizer="sgd", loss="mse")
    return made


def write_model(store, run, made):
    """As a worker does after each epoch; the names of its files."""
    with tempfile.TemporaryDirectory() as local:
        for _ in range(2):
            made.save(os.path.join(local, "checkpoint.tf"), save_format="tf")
            store.sync_fn(run)(local)
        return {f"runs/{run}/{name}" for name in files_below(local)}


def same_model(path, made):
    """As read_serialized_keras_model() of this Store loads it."""
    loaded = tf.keras.models.load_model(path)
    return all(np.array_equal(a, b) for a, b in zip(loaded.get_weights(), made.get_weights(), strict=True))


def checkpoint(store, run):
    return os.path.join(store.get_localized_path(store.get_checkpoint_path(run)), store.get_checkpoint_filename())


def models(stores, m, here, raw):
    """One of each, read by the other; the names of their files."""
    names = write_model(here, MODEL, model(1))
    m.flush()
    copy = stores.copy_of(STORE)
    check(same_model(os.path.join(copy, "runs", MODEL, "checkpoint.tf"), model(1)), "a copy of what is stored")
    for name in names:
        with open(os.path.join(AT, name), "rb") as f:
            check(stores.get(STORE, name) == f.read(), f"{name}: other bytes in the store")
    from_there = write_model(raw, f"{MODEL}-stored", model(2))
    seen("the model of the other Store", lambda: from_there <= {f"runs/{name}" for name in files_below(f"{AT}/runs")})
    check(same_model(checkpoint(here, f"{MODEL}-stored"), model(2)), "what the other Store has saved")
    return names | from_there


def story(stores):
    check(os.listdir(AT) == [], f"{AT} is none of ours: {os.listdir(AT)}")
    os.environ["DATABRICKS_RUNTIME_VERSION"] = "14.3" # by which Horovod takes DBFS for there
    m = stores.mount([STORE], at=AT, layout="dbfs")
    here = Store.create("dbfs:/", storage_options={"auto_mkdir": True})
    check(isinstance(here, DBFSLocalStore), f"Horovod takes a {type(here).__name__}")
    raw = FilesystemStore(stores.url(STORE), storage_options={"auto_mkdir": True} if stores.kind == "file" else None)
    other.agrees_with_paths(m, here, "written")
    other.both_ways(here, raw, m.flush)
    names = models(stores, m, here, raw)
    m.umount()
    for part in (f"intermediate_train_data.{other.IDX}", "intermediate_val_data"):
        names |= {f"{part}/part-0.parquet", os.path.basename(here.get_data_metadata_path(f"{AT}/{part}"))}
    for run in ("written", "stored"):
        names |= {f"runs/{run}/{name}" for name in [*(f"{epoch}.ckpt" for epoch in range(other.EPOCHS)), "logs/log.txt",
                                                  "notes.txt"]}
    same_keys(stores, **{STORE: names})
