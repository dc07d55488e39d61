"""Plain copies of a store at moments of a job that goes on: what somebody has who reads it just then."""

import os
import threading

import trees

PAUSE_SECONDS = 0.2


class Moments:
    """Copies of what is below a prefix, until it is closed; `folders` has them. Objects are fetched one by one, so a
    copy is of one moment only where listings before and behind it are the same; others are thrown away."""

    def __init__(self, place, prefix):
        self.place, self.prefix = place, prefix
        self.s3 = trees.client(place)
        self.folders, self.last, self.failure = [], {}, None
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.work)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exception):
        self.over.set()
        self.thread.join()
        if self.failure and exception == (None, None, None):
            raise self.failure

    def work(self):
        try:
            while not self.over.wait(PAUSE_SECONDS):
                self.copy()
        except Exception as e:
            self.failure = e

    def listed(self):
        return trees.listed(self.s3, self.place, self.prefix)

    def copy(self):
        before = self.listed()
        if before == self.last:
            return
        folder = self.place.make("moments", str(len(self.folders)))
        try:
            for key in before:
                write(os.path.join(folder, key), trees.get(self.s3, self.place, self.prefix, key))
        except self.s3.exceptions.NoSuchKey:
            return
        if self.listed() == before:
            self.last = before
            self.folders.append(folder)


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)
