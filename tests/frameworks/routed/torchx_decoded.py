"""A tracker's own configuration as the store of layout torchx: the mount shows the runs' ids for names, what is
written below them is what the tracker of that configuration finds, and the reverse."""

import json
import os
import time

from torchx.tracker.backend import fsspec as torchx_fsspec

import harness
import tracked
from harness import check
from stores import seen


def shown(run):
    """How the mount writes an id, which has slashes."""
    return run.replace("%", "%25").replace("/", "%2F")


def configuration(stores):
    lines = [f"root_path={stores.at('tracker')}", f"protocol={stores.kind}"]
    if stores.kind == "s3":
        lines += [f"client_kwargs.endpoint_url={stores.place.gateway.endpoint}", "use_listings_cache=False",
                  f"client_kwargs.region_name={harness.REGION}", "config_kwargs.s3.addressing_style=path"]
    else:
        lines += ["auto_mkdir=True"]
    path = stores.place.path("tracker.conf")
    with open(path, "w") as f:
        f.write("# of TorchX\n" + "\n".join(lines) + "\n")
    return path


def write(runs, name):
    """The tracker's files as a program without it makes them."""
    ids = tracked.runs(name)
    for i, run in enumerate(ids):
        artifact = {"name": "model", "path": f"/models/{name}/{i}.pt", "metadata": {"size": i}}
        for category, content in (("metadata", {"metadata": {"lr": 0.1 * i}}), ("artifacts", artifact),
                                  ("metadata", {"metadata": {"note": f"{name} {i} \N{SNOWMAN}"}})):
            where = os.path.join(runs, shown(run), category)
            os.makedirs(where, exist_ok=True)
            with open(os.path.join(where, str(time.time_ns())), "w") as f:
                json.dump(content, f)
        if i:
            where = os.path.join(runs, shown(run), "sources")
            os.makedirs(where)
            # Only the run's name is decoded: what lies in it is the tracker's.
            with open(os.path.join(where, tracked.encoded(ids[i - 1])), "w") as f:
                f.write("model\n")


def contents(runs, name):
    """What the mount has of the runs, merged as the tracker would."""
    found = {}
    for run in tracked.runs(name):
        top = os.path.join(runs, shown(run))
        of = found[run] = {"metadata": {}, "sources": os.listdir(os.path.join(top, "sources")) if
                           os.path.isdir(os.path.join(top, "sources")) else []}
        for entry in sorted(os.listdir(os.path.join(top, "metadata"))):
            with open(os.path.join(top, "metadata", entry)) as f:
                of["metadata"].update(json.load(f)["metadata"])
        (entry,) = os.listdir(os.path.join(top, "artifacts"))
        with open(os.path.join(top, "artifacts", entry)) as f:
            of["artifact"] = json.load(f)
    return found


def wanted(name):
    return {run: {"metadata": told["metadata"], "sources": [tracked.encoded(source) for source, _ in told["sources"]],
                  "artifact": {"name": k, "path": told["artifacts"][k][0], "metadata": told["artifacts"][k][1]}}
            for run, told in tracked.expected(name).items() for k in told["artifacts"]}


def story(stores):
    config = configuration(stores)
    m = stores.mount({"tracker": {"torchx_config": config}}, layout="torchx")
    runs = os.path.join(m.mountpoint, "runs")
    write(runs, "written")
    m.flush()
    raw = torchx_fsspec.create(config)
    tracked.check_answers(raw, "written")

    tracked.write(raw, "stored")
    names = {shown(run) for run in tracked.runs("written", "stored")}
    seen("the other tracker's runs", lambda: set(os.listdir(runs)) == names)
    seen("what it wrote", lambda: contents(runs, "stored") == wanted("stored"))
    check(contents(runs, "written") == wanted("written"), "what was written here")
    m.umount()
    tracked.check_answers(raw, "written", "stored")
    tracked.check_keys(stores.keys("tracker"), "written", "stored")
