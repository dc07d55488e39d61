"""Ray's Checkpoint of a directory in a mount of its layout, and the same one by pyarrow's client of the store."""

import os

os.environ.update(RAY_TRAIN_V2_ENABLED="1", RAY_USAGE_STATS_ENABLED="0")

import pyarrow.fs
from ray.train import Checkpoint

from harness import check
from stores import same_keys, seen

FILES = {"model.bin": 200_001, "shards/rank-0.bin": 70_001, "shards/rank-1.bin": 1}
METADATA = ".metadata.json"


def content(trial, name):
    return f"{trial}/{name}.".encode() * (FILES[name] // 8 + 1)


def write(folder, trial):
    for name in FILES:
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        with open(os.path.join(folder, name), "wb") as f:
            f.write(content(trial, name))


def files_of(checkpoint):
    found = {}
    with checkpoint.as_directory() as folder:
        for where, _, names in os.walk(folder):
            for name in names:
                with open(os.path.join(where, name), "rb") as f:
                    found[os.path.relpath(os.path.join(where, name), folder)] = f.read()
    return {name: data for name, data in found.items() if name != METADATA}, checkpoint.get_metadata()


def wanted(trial, **metadata):
    return {name: content(trial, name) for name in FILES}, metadata


def key(trial):
    return f"experiment/{trial}/checkpoint_000001"


def story(stores):
    m = stores.mount(["trials"], layout="ray")
    s3 = stores.pyarrow()

    def raw(trial):
        return Checkpoint(stores.at("trials", key(trial)), filesystem=s3)

    def here(trial):
        return Checkpoint.from_directory(os.path.join(m.mountpoint, key(trial)))

    write(os.path.join(m.mountpoint, key("written")), "written")
    here("written").update_metadata({"step": 1, "loss": 0.5})
    here("written").update_metadata({"step": 2})
    m.flush()
    same_keys(stores, trials={f"{key('written')}/{name}" for name in (*FILES, METADATA)})
    check(files_of(raw("written")) == wanted("written", step=2, loss=0.5), "what Ray finds in the store")
    raw("written").update_metadata({"by": "other"})
    seen("metadata from there", lambda: here("written").get_metadata().get("by") == "other")
    check(files_of(here("written")) == wanted("written", step=2, loss=0.5, by="other"), "what it finds here")

    with here("written").as_directory() as folder:
        check(folder == os.path.join(m.mountpoint, key("written")), f"Ray has made a copy in {folder}")
    local = stores.place.make("local")
    write(local, "stored")
    if stores.kind == "file":
        s3.create_dir(stores.at("trials", key("stored")))
    pyarrow.fs.copy_files(local, stores.at("trials", key("stored")), destination_filesystem=s3) # as Ray does it
    raw("stored").set_metadata({"step": 7})
    seen("a checkpoint from there", lambda: os.path.isdir(here("stored").path))
    seen("all of it", lambda: files_of(here("stored")) == wanted("stored", step=7))
    here("stored").update_metadata({"by": "mount"})
    m.umount()
    check(files_of(raw("stored")) == wanted("stored", step=7, by="mount"), "what the mount has added")
    same_keys(stores, trials={f"{key(t)}/{name}" for t in ("written", "stored") for name in (*FILES, METADATA)})

