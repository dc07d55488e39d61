"""TorchX's FsspecTracker over the mount; it decodes every folder name in its root as a run id."""

import os

import fsspec
from torchx.tracker.backend.fsspec import FsspecTracker

# Names are times.
SAME_BYTES = []
SAME_NAMES = False
RUNS = [f"local_cwd://session/app-{i}" for i in range(4)]


def tracker(folder):
    return FsspecTracker(fsspec.filesystem("file"), os.path.join(folder, "tracker"))


def save(folder):
    os.mkdir(os.path.join(folder, "tracker"))
    t = tracker(folder)
    for i, run in enumerate(RUNS):
        t.add_metadata(run, lr=0.1 * i, epochs=i)
        t.add_metadata(run, note=f"run {i} \N{SNOWMAN}")
        t.add_artifact(run, "model", f"/models/{i}.pt", {"size": i})
        if i:
            t.add_source(run, RUNS[i - 1], "model")


def load(folder, _):
    t = tracker(folder)
    assert sorted(t.run_ids()) == sorted(RUNS)
    assert list(t.run_ids(parent_run_id=RUNS[0])) == [RUNS[1]]
    for i, run in enumerate(RUNS):
        assert dict(t.metadata(run)) == {"lr": 0.1 * i, "epochs": i, "note": f"run {i} \N{SNOWMAN}"}
        artifact = t.artifacts(run)["model"]
        assert (artifact.path, artifact.metadata) == (f"/models/{i}.pt", {"size": i})
        sources = list(t.sources(run))
        assert [(s.source_run_id, s.artifact_name) for s in sources] == \
            ([(RUNS[i - 1], "model")] if i else [])
