"""TorchX's FsspecTracker in a mount of layout torchx, names as they are stored; and another one that has the store
alone: both tell the same. `.runfs/by-id` has the runs by their ids."""

import json
import os

import fsspec
from torchx.tracker.backend.fsspec import FsspecTracker

import tracked
from harness import check
from stores import seen


def check_ids(by_id, tracker):
    """Each run that the tracker knows is there under its id, and leads to what the tracker wrote of it."""
    ids = {run: run.replace("/", "%2F") for run in tracker.run_ids()}
    check(sorted(os.listdir(by_id)) == sorted(ids.values()), f"by-id shows {sorted(os.listdir(by_id))}")
    for run, shown in ids.items():
        check(os.readlink(f"{by_id}/{shown}") == f"../../{tracked.encoded(run)}", f"where {shown} leads to")
        found = {}
        for entry in os.scandir(f"{by_id}/{shown}/metadata"):
            with open(entry.path) as f:
                found.update(json.load(f)["metadata"])
        check(found == tracker.metadata(run), f"the metadata of {shown}: {found}")


def story(stores):
    m = stores.mount(["tracker"], layout={"name": "torchx", "names": "raw"})
    here = FsspecTracker(fsspec.filesystem("file"), m.mountpoint)
    tracked.write(here, "written")
    m.flush()
    raw = FsspecTracker(stores.fs, stores.at("tracker"))
    tracked.check_answers(raw, "written")
    tracked.check_answers(here, "written")

    tracked.write(raw, "stored")
    seen("what the other tracker wrote", lambda: tracked.answers(here) == tracked.expected("written", "stored"))
    check(set(os.listdir(m.mountpoint)) == {tracked.encoded(run) for run in tracked.runs("written", "stored")},
          f"the mount shows {os.listdir(m.mountpoint)}")
    check_ids(f"{m.mountpoint}/.runfs/by-id", here)
    m.umount()
    tracked.check_answers(raw, "written", "stored")
    tracked.check_keys(stores.keys("tracker"), "written", "stored")
