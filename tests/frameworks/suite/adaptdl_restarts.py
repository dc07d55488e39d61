"""AdaptDL's checkpoint.State over three restarts: each loads what the one before saved, stages in
_checkpoint/, renames it and removes the older one."""

import os
import subprocess
import sys

SAME_BYTES = ["*"]
RESTARTS = 3

WORKER = r"""
import json, sys
from adaptdl import checkpoint

class Numbers(checkpoint.State):
    values = []
    def save(self, f):
        f.write(json.dumps(self.values).encode())
    def load(self, f):
        self.values = json.loads(f.read())

class Bytes(checkpoint.State):
    data = b""
    def save(self, f):
        f.write(self.data)
    def load(self, f):
        self.data = f.read()

numbers, data = Numbers("numbers"), Bytes("data")
found = checkpoint.load_state(numbers), checkpoint.load_state(data)
restart = int(sys.argv[1])
assert found == ((restart > 0,) * 2), found
assert numbers.values == list(range(restart)), numbers.values
assert len(data.data) == 700_001 * restart
if sys.argv[2] == "save":
    numbers.values = list(range(restart + 1))
    data.data = bytes(700_001 * (restart + 1))
    checkpoint.save_all_states()
"""


def worker(folder, restart, step):
    env = dict(os.environ, ADAPTDL_CHECKPOINT_PATH=folder, ADAPTDL_NUM_RESTARTS=str(restart),
               ADAPTDL_REPLICA_RANK="0", ADAPTDL_JOB_ID="test/job", ADAPTDL_MASTER_PORT="0")
    subprocess.run([sys.executable, "-W", "ignore", "-c", WORKER, str(restart), step], env=env, check=True)


def save(folder):
    for restart in range(RESTARTS):
        worker(folder, restart, "save")


def load(folder, _):
    assert os.listdir(folder) == [f"checkpoint-{RESTARTS - 1}"], os.listdir(folder)
    worker(folder, RESTARTS, "load")
