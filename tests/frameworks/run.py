"""Of suite/ each framework saves through a mount of a real S3 server; runfs umount must then exit 0. A
second mount with an empty cache must load it all, and botocore and pyarrow, asking the server
themselves, must find exactly the files that the mount shows, byte for byte.

The stories of routed/ have several stores in one mount, or a layout: what a framework writes through
the mount its own client finds in the stores, and the reverse: with prefixes of a server for stores,
and with folders. Those run by night only (RUNFS_NIGHTLY=1), or by name, that take long (NIGHTLY), or
need an environment of their own (ENVIRONMENT in their file, see environments.py). KINDS are the kinds
of stores of a story that has not both; DBFS gives it an empty /dbfs. FRAMEWORKS_SEED (1) is for those
that choose at random.

usage: run.py [FRAMEWORK | routed/STORY | pollers/STORY | routed | pollers]...    (a file, or a folder; all without any)
       run.py --prepare                        makes the environments of the night

RUNFS_FW_PLAIN=1 puts a plain folder in the mount's place, to work on these scripts themselves.
"""

import fnmatch
import hashlib
import os
import re
import shutil
import subprocess
import sys

import pyarrow.fs

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))

import environments
import harness
from harness import check
from trees import differences, stored, tree

PLAIN = bool(os.environ.get("RUNFS_FW_PLAIN"))
TOLD = ["routed", "pollers"] # folders of stories
# Only what hangs ends by it: Ray takes 40 s alone, and ten times that beside the check's other jobs.
STEP_SECONDS = 1200


def setting(name, key, default):
    """A constant of a suite file, read without importing it: imports of frameworks take long."""
    folder = "" if "/" in name else "suite"
    with open(os.path.join(HERE, folder, name + ".py")) as f:
        found = re.search(rf"^{key} = (.+)$", f.read(), re.MULTILINE)
    return eval(found.group(1), {}) if found else default


def run_one(words, extra_env=None, command=(sys.executable,)):
    """What one.py says with these words, by this interpreter; a Failure when it ends otherwise than well. It
    may have mounts, which it takes along when it is told to end."""
    env = harness.s3_environment()
    env.update(extra_env or {})
    env.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", CUDA_VISIBLE_DEVICES="",
               OMP_NUM_THREADS="2", PYTHONPYCACHEPREFIX=os.path.join(os.path.dirname(command[-1]), "..", "pycache"))
    env.pop("PYTHONDONTWRITEBYTECODE", None) # the packages are large, and compiled once
    process = subprocess.Popen([*command, os.path.join(HERE, "one.py"), *words], env=env,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        output, _ = process.communicate(timeout=STEP_SECONDS)
    except subprocess.TimeoutExpired as e:
        said = (e.output or b"")[-3000:].decode(errors="replace")
        check(False, f"{words[1]} takes over {STEP_SECONDS} s:\n{said}")
    finally:
        harness.end_process(process)
    check(process.returncode == 0, f"{words[1]} ended with {process.returncode}:\n{output[-3000:]}")
    return output


def run_step(name, step, folder, expected, extra_env=None):
    run_one([name, step, folder, expected], extra_env)


class Plain:
    """A folder in the mount's place; its end copies it to the server as a mount would have."""

    def __init__(self, place, prefix, name):
        self.place, self.prefix, self.mountpoint = place, prefix, place.make(name)

    def start(self):
        base = os.path.join(self.place.server_folder, "data", self.place.gateway.bucket, self.prefix)
        if os.path.isdir(base):
            shutil.copytree(base, self.mountpoint, symlinks=True, dirs_exist_ok=True)
        return self

    def umount(self):
        shutil.copytree(self.mountpoint, os.path.join(self.place.server_folder, "data",
                        self.place.gateway.bucket, self.prefix), symlinks=True, dirs_exist_ok=True)

    kill = umount


def mount(place, prefix, name, *options):
    if PLAIN:
        return Plain(place, prefix, name).start()
    return place.mount(prefix, options, name=name, cache=f"cache-{name}").start()


def compare_with_botocore(place, prefix, seen):
    found = stored(place, prefix)
    empty = hashlib.sha256(b"").hexdigest()
    wanted = {k: v if v[0] == "file" or PLAIN else ("file", empty, 0) for k, v in seen.items()}
    if PLAIN:
        wanted = {k: v for k, v in wanted.items() if v[0] == "file"}
        found = {k: v for k, v in found.items() if k in wanted}
    check(found == wanted, f"botocore and the mount differ: {differences(found, wanted)}")
    return len(found)


def compare_with_pyarrow(place, prefix, seen):
    s3 = pyarrow.fs.S3FileSystem(access_key=harness.ACCESS_KEY, secret_key=harness.SECRET_KEY,
                                 region=harness.REGION, scheme="http",
                                 endpoint_override=place.gateway.endpoint.split("//")[1])
    for key, what in seen.items():
        if what[0] != "file":
            continue
        with s3.open_input_stream(f"{place.gateway.bucket}/{prefix}/{key}") as f:
            data = f.read()
        check(hashlib.sha256(data).hexdigest() == what[1], f"pyarrow reads other bytes of {key}")


def compare_with_twin(place, name, seen):
    """The same framework on a plain folder: the same names and, where it is deterministic, bytes."""
    same_bytes = setting(name, "SAME_BYTES", [])
    if not setting(name, "SAME_NAMES", True):
        return
    twin = place.make(f"twin-{name}")
    run_step(name, "save", twin, place.path(f"twin-{name}.expected"))
    plain = tree(twin)
    check(plain.keys() == seen.keys(), f"names differ from a plain folder's: {differences(plain, seen)}")
    for key, what in plain.items():
        if what[0] == "link" or any(fnmatch.fnmatch(key, pattern) for pattern in same_bytes):
            check(what == seen[key], f"{key}: not what a plain folder holds: {what} / {seen[key]}")


def framework(place, name):
    expected = place.path(f"{name}.expected")
    first = mount(place, name, f"{name}-1", "upload_interval=1s")
    peer = mount(place, name, f"{name}-peer", "attr_timeout=1s", "list_timeout=1s") \
        if setting(name, "PEER", False) and not PLAIN else None
    run_step(name, "save", first.mountpoint, expected,
             {"RUNFS_FW_PEER": peer.mountpoint} if peer else None)
    saved = tree(first.mountpoint)
    first.umount()
    if peer:
        peer.umount()
    second = mount(place, name, f"{name}-2")
    run_step(name, "load", second.mountpoint, expected)
    seen = tree(second.mountpoint)
    check(seen == saved, f"the first and the second mount differ: {differences(saved, seen)}")
    second.umount()
    count = compare_with_botocore(place, name, seen)
    compare_with_pyarrow(place, name, seen)
    compare_with_twin(place, name, seen)
    return f"{count} objects, {sum(v[2] for v in seen.values() if v[0] == 'file')} bytes"


def unable(place, name):
    """Why a story can't be told here; nothing when it can."""
    why = environments.problem() if setting(name, "ENVIRONMENT", None) else None
    return why or (environments.dbfs_problem(place) if setting(name, "DBFS", False) else None)


def routed(place, name):
    environment = setting(name, "ENVIRONMENT", None)
    command = [environments.python(environment) if environment else sys.executable]
    if setting(name, "DBFS", False):
        command = environments.dbfs(place) + command
    kinds = setting(name, "KINDS", ["s3", "file"])
    for kind in kinds:
        for line in run_one([name, kind], command=command).splitlines():
            if line.startswith("# "): # what a story found, for people
                print(line, flush=True)
    return " and ".join(kinds)


def stories(folder):
    return sorted(f[:-3] for f in os.listdir(os.path.join(HERE, folder)) if f.endswith(".py"))


def meant(everything, word):
    """A name, or those of a folder."""
    names = [name for name in everything if word in (name, os.path.dirname(name))]
    if not names:
        sys.exit(f"no such framework: {word}; there are: {' '.join(everything)}")
    return names


def main():
    everything = stories("suite") + [f"{folder}/{name}" for folder in TOLD for name in stories(folder)]
    if sys.argv[1:] == ["--prepare"]:
        environments.prepare()
        return 0
    by_day = [name for name in everything if not setting(name, "ENVIRONMENT", None) and not setting(name, "NIGHTLY", False)]
    names = [name for word in sys.argv[1:] for name in meant(everything, word)] or \
        (everything if os.environ.get("RUNFS_NIGHTLY") else by_day)
    seed = os.environ.setdefault("FRAMEWORKS_SEED", "1")
    print(f"seed {seed} (FRAMEWORKS_SEED)", flush=True)
    tally = harness.Tally("frameworks", lambda name: harness.repeat(name, FRAMEWORKS_SEED=seed))
    with harness.Workplace("frameworks") as place:
        place.start_gateway()
        for name in names:
            if "/" in name:
                why = unable(place, name)
                if why:
                    tally.skip(name, why)
                else:
                    tally.run(name, routed, place, name)
            elif not tally.run(name, framework, place, name):
                for m in place.mounts:
                    print(f"        log of {m.mountpoint}: {m.log_tail(800)}")
                    m.kill()
            place.mounts.clear()
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
