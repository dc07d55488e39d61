"""What a job tells of its saves to who reads the store meanwhile: numbers in a file of its own. Processes that the
framework begins import this or get it by value, so it needs nothing else of the tests."""

import os
import random
import struct
import subprocess

BEGUN, ENDED, ACKNOWLEDGED = 0, 8, 16
NUMBER = "<q"


class Saves:
    """Saves are numbered from 1 on. One is acknowledged when a flush behind it has ended well: without `durability=store`
    nobody has promised before that the store has it. Which of them the job flushes itself the seed says."""

    def __init__(self, path, flush, seed):
        self.path, self.flush, self.seed = path, flush, seed
        with open(path, "wb") as f:
            f.write(struct.pack(NUMBER, 0) * 3)

    def tell(self, at, number):
        fd = os.open(self.path, os.O_WRONLY)
        os.pwrite(fd, struct.pack(NUMBER, number), at)
        os.close(fd)

    def told(self, at):
        fd = os.open(self.path, os.O_RDONLY)
        number, = struct.unpack(NUMBER, os.pread(fd, struct.calcsize(NUMBER), at))
        os.close(fd)
        return number

    def begin(self, number):
        """Before the first call of this save to the filesystem."""
        self.tell(BEGUN, number)

    def end(self, number):
        """When the framework has done all for it, also what it removes."""
        self.tell(ENDED, number)
        if random.Random(f"{self.seed}/{number}").random() < 0.5:
            self.acknowledge()

    def acknowledge(self):
        """Whatever the job does meanwhile. A flush may fail for that: a removal waits for files that come and go."""
        number = self.told(ENDED)
        done = subprocess.run(self.flush, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if done.returncode == 0 and number > self.told(ACKNOWLEDGED):
            self.tell(ACKNOWLEDGED, number)
        return done.returncode

    def limits(self):
        """Between them is the save that a store has now."""
        return self.told(ACKNOWLEDGED), self.told(BEGUN)
