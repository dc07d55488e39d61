"""AdaptDL removes the checkpoint before each that it saves. It loads from the directory of the highest number, each state
by itself: a state whose file is not there begins anew. So of a checkpoint of several states, which a store gets one by one,
whoever copies it has to see that there are all, and else to take the one before; of one state nobody has to see to
anything."""

import os
import shutil

import adaptdl_jobs
from harness import check
from polled import NIGHT, poll

SAVES, COPIES = (60, 400) if NIGHT else (8, 30)
JOBS = {"one": ["state"], "three": ["model", "loader", "clock"]}


def save(job, mountpoint, saves, count):
    folder = os.path.join(mountpoint, job)
    os.mkdir(folder)
    for number in range(1, count + 1):
        saves.begin(number)
        told = adaptdl_jobs.run(folder, number - 1, JOBS[job])
        check(told.status == 0 and told.number() == number - 1, f"save {number}: {vars(told)}")
        saves.end(number)


def load(job, copy):
    folder = os.path.join(copy, job)
    os.makedirs(folder, exist_ok=True)
    told = adaptdl_jobs.load(folder, JOBS[job])
    while len(told.loaded) > 1 and None in told.loaded and os.listdir(folder):
        shutil.rmtree(os.path.join(folder, max(os.listdir(folder), key=lambda name: int(name.rpartition("-")[2]))))
        told = adaptdl_jobs.load(folder, JOBS[job])
    check(told.number() is not None, f"a mixture of {told.loaded}")
    return told.number()


def story(stores):
    for job in JOBS:
        poll(f"AdaptDL, {job}", stores, "adaptdl", lambda *a: save(job, *a), lambda copy: load(job, copy), SAVES, COPIES)
