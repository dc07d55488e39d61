"""A framework saves and removes through a mount while somebody else copies the store, again and again; each copy must
load by the framework's own way of choosing, for the stories of pollers/.

A copy is of one moment. The daemon is stopped for it at a time that a seed chooses, so nothing comes or goes meanwhile but
what a server was still at; that is copied again. It has all that a copy can have, also directories without a file in them.
What a reader has who copies while the daemon goes on is no other: one whose listings before and behind the copy are the
same has one of these, and who finds another listing, or misses what was listed, begins again."""

import functools
import os
import random
import shutil
import threading
import time
from collections import Counter

import boto3

import harness
from harness import check
from moments import Moments, stopped, write
from saves import Saves

SEED = int(os.environ.get("FRAMEWORKS_SEED", 1))
NIGHT = bool(os.environ.get("RUNFS_NIGHTLY"))
STORE = "saved"
PAUSE_SECONDS = 0.01 # at most, between two looks
FLUSH_SECONDS = 0.5
ATTEMPTS = 20 # what a server is still at ends


class Folder:
    """A folder store as it lies there."""

    def __init__(self, top):
        self.top = top

    def listing(self):
        found = {}
        for where, folders, files in os.walk(self.top):
            folders[:] = [f for f in folders if not f.startswith(".runfs")] # the state of the store
            found |= {self.key(where, name) + "/": "" for name in folders}
            for name in files:
                st = os.lstat(os.path.join(where, name))
                found[self.key(where, name)] = st.st_ino, st.st_mtime_ns, st.st_size
        return found

    def key(self, where, name):
        return os.path.relpath(os.path.join(where, name), self.top)

    def get(self, key):
        with open(os.path.join(self.top, key), "rb") as f:
            return f.read()


class Bucket:
    """A prefix of a bucket, by botocore. A marker is the directory that it stands for."""

    def __init__(self, stores):
        self.bucket, self.prefix = stores.place.gateway.bucket, STORE + "/"
        self.s3 = boto3.client("s3", endpoint_url=stores.place.gateway.endpoint, region_name=harness.REGION,
                               aws_access_key_id=harness.ACCESS_KEY, aws_secret_access_key=harness.SECRET_KEY)

    def listing(self):
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix)
        return {item["Key"][len(self.prefix):]: item["ETag"] for page in pages for item in page.get("Contents", [])
                if item["Key"] != self.prefix}

    def get(self, key):
        try:
            return self.s3.get_object(Bucket=self.bucket, Key=self.prefix + key)["Body"].read()
        except self.s3.exceptions.NoSuchKey:
            raise FileNotFoundError(key) from None


class Poller(Moments):
    """Copies of the store, each unlike the one before it."""

    def __init__(self, stores, mount, saves):
        super().__init__(stores, STORE, 0, saves.limits, functools.partial(stopped, mount))
        self.source = Folder(stores.at(STORE)) if stores.kind == "file" else Bucket(stores)
        self.rng, self.again, self.looks = random.Random(SEED), 0, 0

    def wait(self):
        return self.over.wait(self.rng.uniform(0, PAUSE_SECONDS))

    def copy(self):
        first, found = self.mark(), self.source.listing()
        self.looks += 1
        if found == self.last:
            return
        for _ in range(ATTEMPTS):
            folder = self.stores.place.make("moments", str(len(self.folders)))
            now = self.fetch(folder, found)
            if now == found:
                break
            self.again += 1
            shutil.rmtree(folder)
            found = now
        else:
            raise harness.Failure(f"the store changes though the daemon is stopped: {sorted(found)}")
        self.last = found
        self.folders.append(folder)
        self.marks[folder] = first, self.mark()

    def fetch(self, folder, found):
        """The listing behind it."""
        for key in found:
            path = os.path.join(folder, key)
            if key.endswith("/"):
                os.makedirs(path, exist_ok=True)
                continue
            try:
                write(path, self.source.get(key))
            except FileNotFoundError: # the next listing lacks it, too
                pass
        return self.source.listing()


def names_in(folder):
    return sorted(Folder(folder).listing())


def check_loads(poller, load, most):
    """load(folder): the number of the save that the framework finds there and that it has loaded; 0 for none."""
    found, wrong, copies = Counter(), [], poller.folders
    chosen = sorted(random.Random(f"{SEED}/load").sample(range(len(copies)), min(most, len(copies))))
    for i in chosen:
        (least, _), (_, newest) = poller.marks[copies[i]]
        names, before = names_in(copies[i]), names_in(copies[i - 1]) if i else [] # loading may remove some
        try:
            number = load(copies[i])
            check(least <= number <= newest, f"loads {number}, not {least} to {newest}")
            found[number] += 1
        except Exception as e:
            wrong.append(f"{copies[i]}: {type(e).__name__}: {e}: it has {names}, the one before {before}")
    print(f"# {len(copies)} copies in {poller.looks} looks, {poller.again} begun again; of {len(chosen)} {found.total()} load, "
          f"{sum(n > 0 for n in found)} saves; {found[0]} have none", flush=True)
    check(not wrong, "\n".join([f"{len(wrong)} do not load", *wrong[:5]]))
    check(len(found) > 1, f"all copies load {sorted(found)}")


class Flusher:
    """Somebody who flushes at any time, also amid a save."""

    def __init__(self, saves):
        self.saves, self.rng, self.codes = saves, random.Random(f"{SEED}/flusher"), Counter()
        self.over, self.thread = threading.Event(), threading.Thread(target=self.work)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def work(self):
        while not self.over.wait(self.rng.uniform(0, FLUSH_SECONDS)):
            self.codes[self.saves.acknowledge()] += 1


def poll(what, stores, layout, save, load, count, copies):
    """save(folder, saves, count) makes `count` saves in other processes; of all copies so many are loaded at most."""
    jobs = random.Random(f"{SEED}/{what}/{stores.kind}").choice([1, 8])
    m = stores.mount([STORE], settle="0s", options=[f"upload_jobs={jobs}"], layout=layout)
    saves = Saves(stores.place.path("saves"), [m.binary, "flush", m.mountpoint, "--timeout", "300"], SEED)
    began = time.monotonic()
    with Poller(stores, m, saves) as poller, Flusher(saves) as flusher:
        save(m.mountpoint, saves, count)
    acknowledged, begun = saves.limits()
    print(f"# {what}, {stores.kind}, seed {SEED}, {jobs} at a time: {begun} saves, {acknowledged} the last acknowledged, "
          f"{dict(flusher.codes)} flushes, in {time.monotonic() - began:.0f} s", flush=True)
    m.umount()
    check_loads(poller, load, copies)
    last = load(stores.copy_of(STORE))
    check(last == begun == count, f"in the end the store has {last} of {begun} saves")
    for folder in poller.folders:
        shutil.rmtree(folder)
