"""Runs that TorchX's trackers tell of, for the stories of routed/."""

from torchx.tracker.backend.fsspec import _encode_torchx_run_id as encoded

from harness import check

COUNT = 3


def runs(*names):
    """As TorchX makes them: SCHEDULER://SESSION/APP."""
    return [f"local_cwd://session/{name}-{i}" for name in names for i in range(COUNT)]


def write(tracker, name):
    """Each run has its predecessor as a source."""
    ids = runs(name)
    for i, run in enumerate(ids):
        tracker.add_metadata(run, lr=0.1 * i)
        tracker.add_artifact(run, "model", f"/models/{name}/{i}.pt", {"size": i})
        tracker.add_metadata(run, note=f"{name} {i} \N{SNOWMAN}")
        if i:
            tracker.add_source(run, ids[i - 1], "model")


def answers(tracker):
    """All that a tracker tells, without the order of its listings."""
    found = {}
    for run in tracker.run_ids():
        found[run] = {"metadata": dict(tracker.metadata(run)), "children": sorted(tracker.run_ids(parent_run_id=run)),
                      "artifacts": {k: (a.path, a.metadata) for k, a in tracker.artifacts(run).items()},
                      "sources": sorted((s.source_run_id, s.artifact_name) for s in tracker.sources(run))}
    return found


def expected(*names):
    found = {}
    for name in names:
        ids = runs(name)
        for i, run in enumerate(ids):
            found[run] = {"metadata": {"lr": 0.1 * i, "note": f"{name} {i} \N{SNOWMAN}"}, "children": ids[i + 1:i + 2],
                          "artifacts": {"model": (f"/models/{name}/{i}.pt", {"size": i})},
                          "sources": [(ids[i - 1], "model")] if i else []}
    return found


def check_answers(tracker, *names):
    told = answers(tracker)
    check(told == expected(*names), f"it tells {told}")


def check_keys(keys, *names):
    """Each in its run's directory, whose name is encoded; files have the time for a name."""
    found = {}
    for key in keys:
        run, category, name = key.split("/")
        found.setdefault((run, category), set()).add(name)
    wanted = {}
    for run in runs(*names):
        wanted[encoded(run), "metadata"] = 2
        wanted[encoded(run), "artifacts"] = 1
        if not run.endswith("-0"):
            wanted[encoded(run), "sources"] = 1
    check({k: len(v) for k, v in found.items()} == wanted, f"stored are {sorted(keys)}")
