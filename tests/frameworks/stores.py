"""What the stories of routed/ stand on: stores of their own, a mount of all of them under one configuration, and the
same stores as clients that know nothing of runfs see them."""

import json
import os

import fsspec
import pyarrow.fs

import harness
from harness import check, wait_for

OPTIONS = ["late_window=1s", "attr_timeout=1s", "list_timeout=1s", "entry_timeout=1s"]
SEEN_SECONDS = 30 # what others store is here by then


class Stores:
    """Folders, or prefixes of a server of their own."""

    def __init__(self, place, kind):
        self.place, self.kind, self.n = place, kind, 0
        if kind == "s3":
            gateway = place.start_gateway()
            os.environ.update(harness.s3_environment(), AWS_ENDPOINT_URL=gateway.endpoint)
        # Listings that a client remembers are no answers of the store.
        self.fs = fsspec.filesystem("s3", use_listings_cache=False) if kind == "s3" else \
            fsspec.filesystem("file", auto_mkdir=True)

    def url(self, store):
        return f"s3://{self.at(store)}" if self.kind == "s3" else f"file://{self.at(store)}"

    def at(self, store, *key):
        """As fsspec and pyarrow name it."""
        top = os.path.join(self.place.gateway.bucket, store) if self.kind == "s3" else self.place.make("stores", store)
        return os.path.join(top, *key)

    def pyarrow(self):
        if self.kind == "file":
            return pyarrow.fs.LocalFileSystem()
        return pyarrow.fs.S3FileSystem(access_key=harness.ACCESS_KEY, secret_key=harness.SECRET_KEY,
                                       region=harness.REGION, scheme="http",
                                       endpoint_override=self.place.gateway.endpoint.split("//")[1])

    def keys(self, store):
        """Of all files in it; directory markers are none."""
        top = self.at(store)
        return {os.path.relpath(key, top) for key in self.fs.find(top) if not key.endswith("/")}

    def versions(self, store):
        """Of the same, with what differs when one is replaced."""
        top = self.at(store)
        return {os.path.relpath(key, top): info.get("ETag") or (info["ino"], info["mtime"], info["size"])
                for key, info in self.fs.find(top, detail=True).items() if not key.endswith("/")}

    def get(self, store, *key):
        return self.fs.cat_file(self.at(store, *key))

    def put(self, store, key, data):
        self.fs.pipe_file(self.at(store, key), data)

    def copy_of(self, store, *key):
        """A plain folder with what is stored there now."""
        self.n += 1
        top, folder = self.at(store, *key), self.place.make(f"copy-{self.n}")
        for found in self.fs.find(top):
            if found.endswith("/"): # the marker of a directory
                continue
            to = os.path.join(folder, os.path.relpath(found, top))
            os.makedirs(os.path.dirname(to), exist_ok=True)
            self.fs.get_file(found, to)
        return folder

    def mount(self, names, at=None, settle="5s", options=(), **config):
        """A mount under a configuration of these stores; what isn't a name of ours says itself where it is. A directory
        stays without an object of its own for `settle`: as long as programs may take to their first file in it."""
        where = {"endpoint": self.place.gateway.endpoint, "region": harness.REGION, "path_style": True} \
            if self.kind == "s3" else {}
        stores = names if isinstance(names, dict) else {name: {"url": self.url(name), **where} for name in names}
        path = self.place.path("config.json")
        with open(path, "w") as f:
            json.dump({"stores": stores, **config}, f)
        m = harness.Mount(path, at or self.place.path("mnt"), self.place.path("cache"),
                          [f"settle={settle}", *OPTIONS, *options])
        self.place.mounts.append(m)
        return m.start()


def same_keys(stores, **wanted):
    """Each store has these, and nothing else."""
    for store, keys in wanted.items():
        found = stores.keys(store)
        check(found == set(keys), f"{store}: too many: {sorted(found - set(keys))}, missing: {sorted(set(keys) - found)}")


def seen(what, condition):
    """Waits until the mount has asked again; before that some of the names may be missing."""
    def now():
        try:
            return condition()
        except (OSError, LookupError, ValueError):
            return False
    return wait_for(what, now, SEEN_SECONDS)


def run(story, kind):
    with harness.Workplace("routed") as place:
        try:
            story(Stores(place, kind))
        except BaseException:
            for m in place.mounts:
                print(f"log of {m.mountpoint}: {m.log_tail(1500)}", flush=True)
            raise
