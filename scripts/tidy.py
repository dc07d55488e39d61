"""tidy.py [--full] BUILD FILE...: runs clang-tidy-14 over the sources, with the compile commands of the folder
BUILD, and says what it found, and at how many it looked. A source that was clean before is not looked at again,
unless --full: the text of it and of each header it reads, its flags, .clang-tidy and the tool's version are hashed
into the name of a file in the user's cache.
"""

import concurrent.futures
import functools
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CLEAN = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "runfs", "tidy")
ANALYZER = os.path.join(TOP, "scripts", "analyzer.h")
KEPT_SECONDS = 30 * 24 * 3600 # since it was clean the last time
NOISE = re.compile(r"^\d+ warnings? generated|^Suppressed|^Use -header-filter|^\d+ warnings? treated as error")


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


@functools.lru_cache(None)
def text_of(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def flags_of(command):
    """The compiler and its flags, without what it makes."""
    words = shlex.split(command)
    if "-o" in words:
        at = words.index("-o")
        del words[at:at + 2]
    return [w for w in words if w != "-c"]


def headers_of(entry):
    """All that the compiler reads for this source, itself first."""
    said = output(*flags_of(entry["command"]), "-include", ANALYZER, "-M", "-MT", "x")
    return [os.path.normpath(os.path.join(entry["directory"], p)) for p in said.replace("\\\n", " ").split()[1:]]


def name_of(entry, settings):
    """What stands for this source as it is now, in whatever clone."""
    parts = [settings, entry["command"]] + [f"{path} {text_of(path)}" for path in headers_of(entry)]
    return hashlib.sha256("\n".join(parts).replace(TOP, ".").encode()).hexdigest()


def look(entry, build, settings, full):
    """(looked at, clean) of one source."""
    mark = os.path.join(CLEAN, name_of(entry, settings))
    if os.path.exists(mark) and not full:
        os.utime(mark)
        return False, True
    done = subprocess.run(["clang-tidy-14", "-quiet", "-p", build, "--extra-arg=-Wno-unknown-warning-option",
                           "--extra-arg=-include", f"--extra-arg={ANALYZER}", entry["file"]],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = [line for line in done.stdout.splitlines() if not NOISE.match(line)]
    if done.returncode or said:
        print("\n".join(said) or f"{entry['file']}: exit status {done.returncode}", flush=True)
        return True, False
    with open(mark, "w", encoding="ascii"):
        return True, True


def forget_old():
    for name in os.listdir(CLEAN):
        path = os.path.join(CLEAN, name)
        if os.stat(path).st_mtime < time.time() - KEPT_SECONDS:
            os.unlink(path)


def main():
    full = sys.argv[1] == "--full"
    build, *files = sys.argv[1 + full:]
    os.makedirs(CLEAN, exist_ok=True)
    forget_old()
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        entries = {os.path.relpath(e["file"], TOP): e for e in json.load(f)}
    with open(os.path.join(TOP, ".clang-tidy"), encoding="utf-8") as f:
        settings = f.read() + text_of(os.path.abspath(__file__)) + output("clang-tidy-14", "--version")
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        done = list(pool.map(lambda file: look(entries[file], build, settings, full), files))
    print(f"COLD: {sum(looked for looked, _ in done)} of {len(files)} sources looked at", flush=True) # for check.sh
    return 0 if all(clean for _, clean in done) else 1


if __name__ == "__main__":
    sys.exit(main())
