"""Horovod 0.20.3's Store, before it used fsspec: LocalStore in the mount, and without it a FilesystemStore, which is
abstract there, over the same stores: the answers are the same whoever wrote."""

import contextlib
import io
import os
import tempfile
import warnings

warnings.filterwarnings("ignore")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from horovod.spark.common import util
from horovod.spark.common.store import FilesystemStore, LocalStore, Store

from harness import check
from stores import same_keys, seen

ENVIRONMENT = "horovod-old"
LAYOUT = {"name": "horovod", "runs": "jobs/all", "train": "lake/warehouse/tr", "val": "lake/intermediate_val_data",
          "data": "other"}
IDX = 7
EPOCHS = 3
SAVES = 50


class RawStore(FilesystemStore):
    """As a user of 0.20.3 derives one for another filesystem; it works in a folder of its own, as HDFSStore does."""

    PREFIX = None # of the kind of its filesystem

    def __init__(self, stores):
        type(self).PREFIX = "s3://" if stores.kind == "s3" else "file://"
        self.fs = stores.fs
        super().__init__(stores.url("other"), train_path=stores.url("lake") + "/warehouse/tr",
                         val_path=stores.url("lake") + "/intermediate_val_data", runs_path=stores.url("jobs") + "/all")

    def path_prefix(self):
        return self.PREFIX

    @classmethod
    def filesystem_prefix(cls):
        return cls.PREFIX

    def get_filesystem(self):
        return self.fs

    def get_local_output_dir_fn(self, run_id):
        return tempfile.TemporaryDirectory

    def sync_fn(self, run_id):
        top = self.get_localized_path(self.get_run_path(run_id))

        def fn(local):
            for where, _, names in os.walk(local):
                for name in names:
                    path = os.path.join(where, name)
                    self.fs.put_file(path, os.path.join(top, os.path.relpath(path, local)))
        return fn


def frame(seed):
    return pa.table({"x": list(range(seed, seed + 2000)), "y": [float(i) / 7 for i in range(2000)]})


def checkpoint(run, save):
    return np.random.default_rng([len(run), save]).bytes(100_000 + save)


def write_run(store, run):
    """As a worker does: the checkpoint has one name, and is written again after each epoch."""
    remote = store.to_remote(run, IDX)
    with remote.get_local_output_dir() as folder:
        logs = os.path.join(folder, remote.logs_subdir)
        os.makedirs(logs, exist_ok=True)
        for save in range(SAVES):
            with open(os.path.join(folder, remote.checkpoint_filename), "wb") as f:
                f.write(checkpoint(run, save))
            with open(os.path.join(logs, "log.txt"), "a") as f:
                f.write(f"{run} {save}\n")
            if save % (SAVES // EPOCHS) == 0 or save == SAVES - 1:
                remote.sync(folder)


def write_data(store, path, table):
    fs, here = store.get_filesystem(), store.get_localized_path(path)
    with contextlib.suppress(FileExistsError):
        fs.mkdir(here)
    with fs.open(os.path.join(here, "part-0.parquet"), "wb") as f:
        pq.write_table(table, f)
    util._save_meta_to_fs(fs, store.get_data_metadata_path(path), table.schema, table.num_rows, table.nbytes)


def answers(store, run):
    """All that a Store tells of a run and its data, without the places."""
    found = {"run": store.exists(store.get_run_path(run)), "none": store.exists(store.get_run_path("none")),
             "checkpoint": store.read(store.get_checkpoint_path(run)),
             "log": store.read(os.path.join(store.get_logs_path(run), "log.txt"))}
    for part, path in (("train", store.get_train_data_path(IDX)), ("val", store.get_val_data_path())):
        kept = util._load_metadata_from_fs(store.get_filesystem(), store.get_data_metadata_path(path))
        found[part] = (store.is_parquet_dataset(path), store.read(os.path.join(path, "part-0.parquet")), *kept)
    return found


def check_answers(found, run, train, val):
    check(found["run"] and not found["none"], f"{run} exists")
    check(found["checkpoint"] == checkpoint(run, SAVES - 1), f"{run}: the checkpoint is not the last one")
    check(found["log"] == "".join(f"{run} {save}\n" for save in range(SAVES)).encode(), f"{run}: the log")
    for part, table in (("train", train), ("val", val)):
        dataset, data, schema, rows, size = found[part]
        check(dataset and pq.read_table(io.BytesIO(data)).equals(table), f"{part}: the data")
        check(schema == table.schema and (rows, size) == (table.num_rows, table.nbytes), f"{part}: what is kept of it")


def write(store, run, train, val):
    write_run(store, run)
    write_data(store, store.get_train_data_path(IDX), train)
    write_data(store, store.get_val_data_path(), val)


def story(stores):
    m = stores.mount(["jobs", "lake", "other"], layout=LAYOUT)
    here, raw = Store.create(m.mountpoint), RawStore(stores)
    check(isinstance(here, LocalStore), f"Horovod takes a {type(here).__name__}")
    write(here, "written", frame(1), frame(2))
    m.flush()
    there = answers(raw, "written")
    check_answers(there, "written", frame(1), frame(2))
    check(there == answers(here, "written"), "the answers with the mount and without it")

    write(raw, "stored", frame(3), frame(4))
    seen("what the other Store wrote", lambda: here.read(here.get_val_data_path() + "/part-0.parquet") ==
         raw.read(raw.get_val_data_path() + "/part-0.parquet"))
    seen("all of it", lambda: answers(here, "stored") == answers(raw, "stored"))
    check_answers(answers(here, "stored"), "stored", frame(3), frame(4))
    m.umount()
    same_keys(stores, jobs={f"all/{run}/{name}" for run in ("written", "stored")
                            for name in ("checkpoint.h5", "logs/log.txt")},
              lake={f"{part}{name}" for part in (f"warehouse/tr.{IDX}", "intermediate_val_data")
                    for name in ("/part-0.parquet", "_cached_metadata.pkl")}, other=())
