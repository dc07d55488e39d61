"""Horovod's Store in the mount with its data sets in a place of their own; and by s3fs, without the mount, over the
same stores: the answers are the same whoever wrote."""

import io
import json
import os
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from horovod.spark.common import util
from horovod.spark.common.store import FilesystemStore, LocalStore

from harness import check
from stores import same_keys, seen

LAYOUT = {"name": "horovod", "runs": "jobs/all", "train": "lake/warehouse/tr", "val": "lake/intermediate_val_data",
          "data": "other"}
IDX = 7
EPOCHS = 3
SAVES = 50


def frame(seed):
    return pa.table({"x": list(range(seed, seed + 2000)), "y": [float(i) / 7 for i in range(2000)]})


def checkpoint(run, epoch):
    return np.random.default_rng([len(run), epoch]).bytes(100_000 + epoch)


def write_run(store, run):
    """As a worker does: into a folder of its own, then synced."""
    with tempfile.TemporaryDirectory() as local:
        os.makedirs(os.path.join(local, "logs"))
        for epoch in range(EPOCHS):
            with open(os.path.join(local, f"{epoch}.ckpt"), "wb") as f:
                f.write(checkpoint(run, epoch))
            with open(os.path.join(local, "logs", "log.txt"), "a") as f:
                f.write(f"{run} {epoch}\n")
            store.sync_fn(run)(local)
    for i in range(SAVES): # within the second that the stores' times tell apart
        store.write_text(os.path.join(store.get_run_path(run), "notes.txt"), f"{run} {i}")


def write_data(store, path, table):
    here = store.get_localized_path(path)
    store.fs.makedirs(here, exist_ok=True)
    with store.fs.open(os.path.join(here, "part-0.parquet"), "wb") as f:
        pq.write_table(table, f)
    util._save_meta_to_fs(store.fs, store.get_data_metadata_path(path), table.schema, table.num_rows, table.nbytes)


def below(path, top):
    return os.path.relpath(path.split("://", 1)[-1], top.split("://", 1)[-1])


def answers(store, run):
    """All that a Store tells of a run and its data, without the places."""
    logs = os.path.join(store.get_logs_path(run), "log.txt")
    found = {"run": store.exists(store.get_run_path(run)), "none": store.exists(store.get_run_path("none")),
             "checkpoints": [below(path, store.get_run_path(run)) for path in store.get_checkpoints(run)],
             "contents": [store.read(path) for path in store.get_checkpoints(run)], "log": store.read(logs),
             "notes": store.read(os.path.join(store.get_run_path(run), "notes.txt"))}
    for part, path in (("train", store.get_train_data_path(IDX)), ("val", store.get_val_data_path())):
        data = store.read(os.path.join(path, "part-0.parquet"))
        schema, rows, size = util._load_metadata_from_fs(store.fs, store.get_data_metadata_path(path))
        found[part] = (store.is_parquet_dataset(path), data, pq.read_table(io.BytesIO(data)).num_rows, schema, rows, size)
    return found


def check_answers(found, run, train, val):
    check(found["run"] and not found["none"], f"{run} exists")
    check(found["checkpoints"] == [f"{epoch}.ckpt" for epoch in range(EPOCHS)], f"{run}: {found['checkpoints']}")
    check(found["contents"] == [checkpoint(run, epoch) for epoch in range(EPOCHS)], f"{run}: the checkpoints")
    check(found["log"] == "".join(f"{run} {epoch}\n" for epoch in range(EPOCHS)).encode(), f"{run}: the log")
    check(found["notes"] == f"{run} {SAVES - 1}".encode(), f"{run}: the notes")
    for part, table in (("train", train), ("val", val)):
        dataset, data, _, schema, rows, size = found[part]
        check(dataset and pq.read_table(io.BytesIO(data)).equals(table), f"{part}: the data")
        check(schema == table.schema and (rows, size) == (table.num_rows, table.nbytes), f"{part}: what is kept of it")


def agrees_with_paths(m, store, run):
    told = m.run("paths", "--dataset", str(IDX), os.path.join(m.mountpoint, "runs", run))
    check(told.returncode == 0, told.stdout)
    wanted = {k: v for k, v in store._remote_attrs(run, IDX).items() if not callable(v)}
    check(json.loads(told.stdout) == wanted, f"runfs paths: {told.stdout}, Horovod: {wanted}")


def raw_store(stores):
    return FilesystemStore(stores.url("other"), train_path=stores.url("lake") + "/warehouse/tr",
                           val_path=stores.url("lake") + "/intermediate_val_data", runs_path=stores.url("jobs") + "/all",
                           storage_options={"auto_mkdir": True} if stores.kind == "file" else None)


def keys(runs, pickle):
    return {f"all/{run}/{name}" for run in runs
            for name in [*(f"{epoch}.ckpt" for epoch in range(EPOCHS)), "logs/log.txt", "notes.txt"]}, \
        {f"warehouse/tr.{IDX}/part-0.parquet", f"warehouse/tr.{IDX}{pickle}",
         "intermediate_val_data/part-0.parquet", f"intermediate_val_data{pickle}"}


def both_ways(here, raw, flush):
    """What one Store wrote the other reads, with the mount and without it."""
    write_run(here, "written")
    write_data(here, here.get_train_data_path(IDX), frame(1))
    write_data(here, here.get_val_data_path(), frame(2))
    flush()
    there = answers(raw, "written")
    check_answers(there, "written", frame(1), frame(2))
    check(there == answers(here, "written"), "the answers with the mount and without it")

    write_run(raw, "stored")
    write_data(raw, raw.get_train_data_path(IDX), frame(3))
    write_data(raw, raw.get_val_data_path(), frame(4))
    seen("what the other Store wrote", lambda: here.exists(here.get_run_path("stored")) and
         pq.read_table(io.BytesIO(here.read(here.get_val_data_path() + "/part-0.parquet"))).equals(frame(4)))
    seen("all of it", lambda: answers(here, "stored") == answers(raw, "stored"))
    check_answers(answers(here, "stored"), "stored", frame(3), frame(4))


def story(stores):
    m = stores.mount(["jobs", "lake", "other"], layout=LAYOUT)
    here = LocalStore(m.mountpoint, storage_options={"auto_mkdir": True})
    agrees_with_paths(m, here, "written")
    both_ways(here, raw_store(stores), m.flush)
    m.umount()
    pickle = here.get_data_metadata_path("")
    jobs, lake = keys(["written", "stored"], pickle)
    same_keys(stores, jobs=jobs, lake=lake, other=())
