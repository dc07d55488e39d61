"""TorchX's FsspecTracker in a mount of layout torchx, names as they are stored; and another one that has the store
alone: both tell the same."""

import os

import fsspec
from torchx.tracker.backend.fsspec import FsspecTracker

import tracked
from harness import check
from stores import seen


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
    m.umount()
    tracked.check_answers(raw, "written", "stored")
    tracked.check_keys(stores.keys("tracker"), "written", "stored")
