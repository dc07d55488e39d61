"""Where stories run that need other packages than the rest: an environment of Python of their own, and what else of the
machine. A story says so itself, see run.py; the first use makes the environment, which takes minutes."""

import os
import subprocess
import sys

import harness

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = os.path.join(harness.ROOT, "scripts")
NAMES = sorted(f.removesuffix("-requirements.txt") for f in os.listdir(HERE) if f.endswith("-requirements.txt"))
NEWEST = (3, 11) # of Python, that tensorflow 2.15 and pyarrow 14 have files for


def problem():
    """Why they can't be made here; nothing when they can."""
    if sys.version_info[:2] > NEWEST:
        return f"its packages have nothing for Python {sys.version_info[0]}.{sys.version_info[1]}, only up to 3.11"
    return None


def answer(*command):
    return subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True).stdout.strip()


def python(name):
    """The interpreter of this one, made when it is missing; Spark's needs Java, too."""
    if name == "spark":
        answer(os.path.join(SCRIPTS, "deps.sh"), "spark")
    venv = answer(os.path.join(SCRIPTS, "venv.sh"), os.path.join(HERE, f"{name}-requirements.txt"))
    return os.path.join(venv, "bin", "python")


def prepare():
    if not problem():
        for name in NAMES:
            python(name)


def dbfs(place):
    """What a command stands behind that is to have a /dbfs of its own."""
    return [os.path.join(HERE, "with_dbfs.sh"), place.make("root")]


def dbfs_problem(place):
    done = subprocess.run([*dbfs(place), "true"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    return f"there is no /dbfs of its own: {done.stdout.strip()}" if done.returncode else None
