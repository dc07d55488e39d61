"""doc_examples.py RUNFS WORK PIDS: whether the examples of docs/layouts.md and of section 7 of docs/routes.md are what they say.

A block of JSON is a configuration that `runfs check --expand` takes as it stands. The block behind it in layouts.md has a
path, its store and its key in each line (or "link -> target"): a mount of it, with a folder in place of each URL, puts
each path under that key, and one that finds the keys there shows just these paths. PIDS gets the ids of the daemons."""

import json
import os
import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
LAYOUTS = ["adaptdl", "dbfs", "horovod", "plain", "ray", "runs", "tfos", "torchx"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
HEADER = re.compile(r"path +store +key")
RUNFS, WORK, PIDS = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]


def runfs(*args):
    done = subprocess.run([RUNFS, *map(str, args)], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    if done.returncode:
        sys.exit(f"runfs {' '.join(map(str, args))}: exit code {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def same(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: {found}, not {wanted}")


class Example:
    """A configuration, and what its page says of it."""

    def __init__(self, where, text):
        self.where, self.text = where, text
        self.keys, self.links = {}, {}  # {path: (store, key)} and {link: target}

    def take(self, lines):
        for line in lines:
            if " -> " in line:
                link, target = line.split(" -> ")
                self.links[link] = target
            else:
                path, store, key = line.split()
                self.keys[path] = store, key

    def layout(self):
        layout = json.loads(self.text)["layout"]
        return layout if isinstance(layout, str) else layout["name"]

    def check(self, config):
        """Asks no store: the URLs lead nowhere here."""
        config.write_text(self.text)
        runfs("check", config, "--expand")
        for path, (store, key) in self.keys.items():
            told = json.loads(runfs("check", "--json", config, path))["paths"][0]
            same(f"{self.where}: {path}", (told["store"], told["key"]), (store, key))
            same(f"{self.where}: {key} of {store}", runfs("check", config, "--key", store, key), path + "\n")

    def use(self, folder):
        """Of two mounts the first makes the files, and the second one, with an empty cache, finds them."""
        config = json.loads(self.text)
        for name, store in config["stores"].items():
            store["url"] = str(folder / "stores" / name)
            os.makedirs(store["url"])
        (folder / "mount.json").write_text(json.dumps(config))
        point = folder / "mnt"
        point.mkdir()
        with Mount(folder, "first"):
            for path in self.keys:
                (point / path).parent.mkdir(parents=True, exist_ok=True)
                (point / path).write_text(path)
        for name in config["stores"]:
            wanted = sorted((key, path) for path, (store, key) in self.keys.items() if store == name)
            same(f"{self.where}: the store {name}", below(folder / "stores" / name), wanted)
        with Mount(folder, "second"):
            same(f"{self.where}: the mount", below(point), sorted((path, path) for path in self.keys))
            for link, target in self.links.items():
                same(f"{self.where}: {link}", os.readlink(point / link), target)


def below(folder):
    """What find shows: each file, and what is in it."""
    return sorted((str(f.relative_to(folder)), f.read_text()) for f in folder.rglob("*") if f.is_file())


class Mount:
    def __init__(self, folder, cache):
        self.folder, self.cache = folder, folder / cache

    def __enter__(self):
        runfs("mount", "-o", f"cache_dir={self.cache}", self.folder / "mount.json", self.folder / "mnt")
        with open(PIDS, "a") as f:
            print(json.loads(runfs("status", "--json", self.folder / "mnt"))["pid"], file=f)

    def __exit__(self, failed, *_):
        if not failed:
            runfs("umount", self.folder / "mnt", "--timeout", "40")


def examples(name, text):
    found = []
    for kind, body in BLOCK.findall(text):
        lines = body.splitlines()
        if kind == "json":
            found.append(Example(f"{name}, example {len(found) + 1}", body))
        elif found and HEADER.fullmatch(lines[0]):
            found[-1].take(lines[1:])
    return found


def main():
    routes = (TOP / "docs/routes.md").read_text()
    section = routes[routes.index("\n## 7. "):routes.index("\n## 8. ")]
    shown = examples("layouts.md", (TOP / "docs/layouts.md").read_text())
    brief = examples("routes.md", section)
    same("layouts with an example", sorted({e.layout() for e in shown}), LAYOUTS)
    same("examples without files", [e.where for e in shown if not e.keys], [])
    if not brief:
        sys.exit("routes.md: section 7 has no example")
    for number, example in enumerate(shown + brief):
        folder = WORK / str(number)
        folder.mkdir()
        example.check(folder / "c.json")
        if example.keys:
            example.use(folder)
    print(f"{len(shown)} examples of layouts.md, {len(brief)} of routes.md")


main()
