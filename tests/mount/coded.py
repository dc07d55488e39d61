"""Names of runs that a path, a key or a server may not like, in each codec (docs/routes.md, 3): what the mount writes lies in
the stores under names that a decoder of our own reads as just those runs, and the reverse. Each case has stores of its own."""

import base64
import os
import re
import shutil
import urllib.parse

from harness import REGION, check, find_number
from plain_s3 import PlainS3
from routes import NAMES, Tree, count, get, let_go, put
from sys_calls import errno_of

REST = "%2E/.runfs/ %2f\\'\"" # below a run the names are the same bytes everywhere
PARTS = ("checkpoint", "logs", "metadata")
AROUND = {"ckpt": ("", ""), "logs": ("", ""), "meta": ("m-", ".run")} # literals around the capture in the key
# The codec of each store. In "each" one name of the mount has three stored forms.
CODINGS = {"b32": ("b32",) * 3, "hex": ("hex",) * 3, "pct": ("pct",) * 3, "raw": ("raw",) * 3, "each": ("b32", "hex", "pct")}
LONGEST = {"b32": 155, "hex": 124, "pct": 249, "raw": 249, "each": 124} # 254 or 255 bytes with what stands around it

# Several are what others are in a codec.
RUNS = [b"a", b"with spaces ", b" ", b"new\nline", b"tab\tcr\r", b"\x01\x7f", b"50%", b"a%2Fb", b"a/b", b"//", b"../../etc",
        b"..", b".", b"...", b".hidden", b".runfs", b".runfs/status.json", b"quo\"te's`", b"back\\..\\slash", b"bad\xff\xfe",
        b"\xc0\xae", b"\xed\xa0\x80", b"caf\xc3\xa9", b"cafe\xcc\x81", "\N{SNOWMAN}\U0001f600".encode(), b"Case", b"case",
        b"CASE", b"MFQQ====", b"ME======", b"612f62", b"%2E%2E", b"%", b"%%", b"%25", b"m-x.run", b"-rf", b"*?[a]", b"{run}",
        b"~", b"&<>", b"a+b=c&d?e#f", b"$(touch x)", b"by-id"]
NOT_IN_XML = b"\x01\xff\xfe\xc0\xed\r" # versitygw lists in it

# Stored names that are no encoding: read leniently they would be runs, most of them "a" or "a/b".
NONE = {"b32": [b"me======", b"ME", b"ME=====", b"MF======", b"ME======ME======", b"M=======", b"ME======x", b"ME%3D",
                b"74======", b"YCXA====", base64.b32encode(b"/" * 86), b"=", b"========"],
        "hex": [b"6", b"6A", b"612F62", b"6g", b"0x61", b"616", b" 61", b"61 62", b"2f" * 86, b"-1"],
        "pct": [b"a%2fb", b"%61", b"a b", b"%", b"a%2", b"%zz", b"a~", b"caf\xc3\xa9", b"%25%", b"%2"],
        "raw": []}


def spelled(run):
    """How the mount shows a decoded name."""
    whole = run in (b".", b"..", b".runfs")
    return b"".join(b"%%%02X" % c if whole or c < 0x20 or c == 0x7f or c in b"%/" else bytes([c]) for c in run)


ENCODE = {"b32": base64.b32encode, "hex": lambda run: run.hex().encode(), "raw": bytes,
          "pct": lambda run: re.sub(rb"[^A-Za-z0-9._-]", lambda m: b"%%%02X" % m[0][0], run)}
DECODE = {"b32": base64.b32decode, "hex": lambda stored: bytes.fromhex(stored.decode()), "raw": bytes,
          "pct": urllib.parse.unquote_to_bytes}


class Plain(Tree):
    """Stores of a server in memory that has every key that S3 allows."""

    def __init__(self, work, case, kind, mode):
        super().__init__(work, case, kind, mode)
        self.server = PlainS3()
        work.cleanups.append(self.server.stop)

    def url(self, store):
        return f"s3://bucket/{store}"

    def settings(self):
        return {"endpoint": self.server.endpoint, "region": REGION, "path_style": True}

    def bodies(self, store):
        """{key: content}, also what marks directories."""
        top = f"{store}/".encode()
        return {os.fsdecode(key[len(top):]): body for key, body in self.server.bodies().items() if key.startswith(top)}

    def keys(self, store):
        return {key for key in self.bodies(store) if not key.endswith("/")}

    def body(self, store, key):
        return self.bodies(store)[key]

    def left(self):
        return [f"{store}/{key}" for store in NAMES for key in self.bodies(store)]

    def put_raw(self, store, key, data):
        self.server.put(os.fsencode(f"{store}/{key}"), data)


class Coded:
    """The stores of a tree in one coding, and what their keys stand for."""

    def __init__(self, tree, coding):
        self.tree, self.coding = tree, coding
        self.codecs = dict(zip(NAMES, CODINGS[coding]))
        self.routes = [{"path": f"runs/{{run}}/{part}/**", "store": store, "key": self.around(store, self.capture(store)) + "/**"}
                       for part, store in zip(PARTS, NAMES)]
        self.config = tree.config(self.routes)

    def capture(self, store):
        codec = self.codecs[store]
        return "{run}" if codec == "raw" else f"{{run:{codec}}}"

    def around(self, store, name):
        before, behind = AROUND[store]
        return before + name + behind

    def is_raw(self):
        return self.coding == "raw"

    def key(self, store, run):
        return self.around(store, os.fsdecode(ENCODE[self.codecs[store]](run)))

    def shown(self, run):
        return os.fsdecode(run if self.is_raw() else spelled(run))

    def fits(self, run):
        """Whether each of the stores can hold the run, and a path of the mount name it."""
        if "b32" in self.codecs.values() and not is_utf8(run):
            return False
        if self.coding in ("pct", "raw") and run in (b".", b"..", b".runfs"): # stored as they are
            return False
        return not self.is_raw() or b"/" not in run and (self.tree.kind != "s3" or not any(c in run for c in NOT_IN_XML))

    def runs(self):
        return [run for run in RUNS + [b"n" * LONGEST[self.coding]] if self.fits(run)]

    def decoded(self, store, text, before, behind):
        """The run between what stands around it in a key; there must be nothing else."""
        check(text.startswith(before) and text.endswith(behind), f"{store} has {text!r}")
        name = os.fsencode(text[len(before):len(text) - len(behind)])
        run = DECODE[self.codecs[store]](name)
        check(ENCODE[self.codecs[store]](run) == name, f"{store} has {text!r}, which is no {self.codecs[store]}")
        return run

    def stored(self, store):
        """{(run, rest of the key): content}"""
        parts = {key: key.partition("/") for key in self.tree.keys(store)}
        return {(self.decoded(store, name, *AROUND[store]), rest): self.tree.body(store, key)
                for key, (name, _, rest) in parts.items()}


def is_utf8(run):
    try:
        run.decode()
    except UnicodeDecodeError:
        return False
    return True


def difference(found, wanted):
    return sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))


def content(part, run):
    return part.encode() + b" of " + run


def check_shown(coded, top, runs, what):
    """The mount shows these runs and no others, each with its parts and their content."""
    found = sorted(os.listdir(f"{top}/runs"))
    wanted = sorted(map(coded.shown, runs))
    check(found == wanted, f"{what}: shown only {set(found) - set(wanted)}, not shown {set(wanted) - set(found)}")
    for run in runs:
        where = f"{top}/runs/{coded.shown(run)}"
        check(sorted(os.listdir(where)) == sorted(PARTS), f"{what}: {run} has {os.listdir(where)}")
        for part in PARTS:
            check(get(f"{where}/{part}/{REST}") == content(part, runs[run]), f"{what}: {part} of {run}")


def check_from_stores(m, coded, runs, what):
    """The same, when the cache has none of it."""
    let_go(m)
    reads = count(m, "reads")
    check_shown(coded, m.mountpoint, runs, what)
    check(count(m, "reads") >= reads + len(PARTS) * len(runs), f"{what}: no store was asked")


def check_stored(coded, runs, what):
    """`runs` are {run: whose content it has}."""
    if coded.tree.kind == "mem":
        return
    for part, store in zip(PARTS, NAMES):
        found = coded.stored(store)
        wanted = {(run, REST): content(part, first) for run, first in runs.items()}
        check(found == wanted, f"{what}: {store} differs in {difference(found, wanted)}")


def another_name(run):
    """One that is as strange, and fits where the first one does."""
    return run[1:] if len(run) > 100 else b"~ " + run


def renamed_and_removed(coded, top, runs):
    """A third gets other names, a third goes; what is left."""
    left = {}
    for i, run in enumerate(runs):
        where = f"{top}/runs/{coded.shown(run)}"
        if i % 3 == 0:
            os.rename(where, f"{top}/runs/{coded.shown(another_name(run))}")
            left[another_name(run)] = run
        elif i % 3 == 1:
            shutil.rmtree(where)
        else:
            left[run] = run
    return left


def hostile_names(tree, coding):
    coded = Coded(tree, coding)
    runs = {run: run for run in coded.runs()}
    m = tree.mount(coded.config)
    top = m.mountpoint
    for run in runs:
        for part in PARTS:
            put(f"{top}/runs/{coded.shown(run)}/{part}/{REST}", content(part, run))
    check_shown(coded, top, runs, "at once")
    check_from_stores(m, coded, runs, "from the stores")
    check_stored(coded, runs, "written")
    if tree.kind != "mem": # another mount would have stores of its own
        m.umount()
        m = tree.mount(coded.config, cache="cold")
        top = m.mountpoint
        check_shown(coded, top, runs, "with an empty cache")
    left = renamed_and_removed(coded, top, runs)
    check_shown(coded, top, left, "after the changes, at once")
    check_from_stores(m, coded, left, "after the changes, from the stores")
    check_stored(coded, left, "after the changes")
    for run in left:
        shutil.rmtree(f"{top}/runs/{coded.shown(run)}")
    check(os.listdir(f"{top}/runs") == [], "removed, and still there")
    let_go(m)
    check(os.listdir(f"{top}/runs") == [], "removed, and there again")
    m.umount()
    left = [] if tree.kind == "mem" else tree.left()
    check(left == [], f"left in the stores: {left}")
    return f"{len(runs)} runs"


NOT_THERE = {"a", "%61", "a%2fb", "%FF", "none"} # by a stored name that is read leniently, or by another spelling


def raw_keys(tree, coding):
    """What is put under encoded keys is shown under its name; what is no encoding is shown as nothing, counted, left alone."""
    coded = Coded(tree, coding)
    runs = {run: run for run in coded.runs()}
    if not coded.is_raw():
        runs[b"nul\0x"] = b"nul\0x" # no path can be asked for it, but for its spelling
    runs.pop(b"a") # it would be there by a wrong key only
    for part, store in zip(PARTS, NAMES):
        for run in runs:
            tree.put_raw(store, f"{coded.key(store, run)}/{REST}", content(part, run))
    strangers = put_strangers(coded)
    names = set(map(coded.shown, runs))
    m = tree.mount(coded.config)
    top = m.mountpoint
    check_not_there(top, NOT_THERE - names) # before anything was listed, and after
    check_shown(coded, top, runs, "put raw")
    counted = find_number(m.status(), "hidden_names")
    # A folder keeps its own in .runfs, and does not count it.
    wanted = sum(tree.kind != "file" or not key.startswith(".runfs") for _, key in strangers)
    check(counted == wanted, f"{counted} names are counted, not {wanted}")
    check_not_there(top, ({key.split("/")[0] for _, key in strangers} | NOT_THERE) - names)
    for run in runs:
        shutil.rmtree(f"{top}/runs/{coded.shown(run)}")
    m.flush()
    check(os.listdir(f"{top}/runs") == [], "removed, and there")
    m.umount()
    for store in NAMES:
        wanted = {key for s, key in strangers if s == store}
        check(tree.keys(store) == wanted, f"{store} differs in {tree.keys(store) ^ wanted}")
    for store, key in strangers:
        check(tree.body(store, key) == b"strange", f"{store}: {key!r} has changed")
    return f"{len(runs)} runs, {len(strangers)} hidden"


def check_not_there(top, names):
    for name in names - {"", ".", ".."}:
        if "\0" not in name:
            told = errno_of(os.lstat, f"{top}/runs/{name}")
            check(told == ("ENAMETOOLONG" if len(os.fsencode(name)) > 255 else "ENOENT"), f"{name!r}: {told}")


def put_strangers(coded):
    """Names that are no encoding, or that no path can hold, in each store; {(store, key)}."""
    found = set()
    for store in NAMES:
        names = [coded.around(store, os.fsdecode(name)) for name in strange_names(coded, store)]
        if not AROUND[store][0] and coded.tree.kind == "plain":
            names += ["..", ".", ""]
        keys = [f"{name}/{REST}" for name in names] + [coded.key(store, b"no directory")]
        for key in keys:
            coded.tree.put_raw(store, key, b"strange")
            found.add((store, key))
    return found


def strange_names(coded, store):
    codec = coded.codecs[store]
    names = list(NONE[codec])
    if codec in ("raw", "pct") and not AROUND[store][0]:
        names.append(b".runfs") # there the store keeps its own
    if coded.tree.kind == "plain":
        names += [ENCODE[codec](b"n" * 256), ENCODE[codec](b"n" * 255) + b"\0"]
    return names


# ---- routes that lead to single objects ----

# Of each store the directory, what stands behind a name in it, and what stands around the name in the key.
MODELS = {"ckpt": ("models", ".pt", "", "/model.pt"), "logs": ("tables", "", "t/", "")}


class Objects(Coded):
    """A name is a file: models/NAME.pt has the key ENCODED/model.pt, tables/NAME the key t/ENCODED."""

    def __init__(self, tree, coding):
        super().__init__(tree, coding)
        self.routes = [{"path": f"{top}/{{run}}{suffix}", "store": store, "key": before + self.capture(store) + behind}
                       for store, (top, suffix, before, behind) in MODELS.items()]
        self.config = tree.config(self.routes)

    def path(self, store, run):
        return f"{MODELS[store][0]}/{self.shown(run)}{MODELS[store][1]}"

    def stored_in(self, store):
        """{run: content}"""
        return {self.decoded(store, key, *MODELS[store][2:]): self.tree.body(store, key) for key in self.tree.keys(store)}


def check_objects(objects, m, runs, what):
    """`runs` are {run: whose content it has}."""
    for store, (top, suffix, _, _) in MODELS.items():
        found = sorted(os.listdir(f"{m.mountpoint}/{top}"))
        wanted = sorted(objects.shown(run) + suffix for run in runs)
        check(found == wanted, f"{what}: shown only {set(found) - set(wanted)}, not shown {set(wanted) - set(found)}")
        for run, first in runs.items():
            check(get(f"{m.mountpoint}/{objects.path(store, run)}") == content(store, first), f"{what}: {run} of {store}")


def check_stored_objects(objects, runs, what):
    """The same in the stores."""
    for store in MODELS:
        found = objects.stored_in(store)
        wanted = {run: content(store, first) for run, first in runs.items()}
        check(found == wanted, f"{what}: {store} differs in {difference(found, wanted)}")


def no_objects(objects, m):
    """What can't be stored is not made, whichever way."""
    for name, wanted in NO_OBJECTS[objects.coding].items():
        path = f"{m.mountpoint}/models/{name}.pt"
        for what, call in (("open", lambda: put(path, b"refused")), ("symlink", lambda: os.symlink("a", path)),
                           ("rename", lambda: os.rename(f"{m.mountpoint}/{objects.path('ckpt', b'a')}", path))):
            told = errno_of(call)
            check(told == wanted, f"{what} {name}.pt: {told}")


def objects_renamed_and_removed(objects, m, runs):
    """What is left, and whose content it has."""
    left = {}
    for i, run in enumerate(runs):
        for store in MODELS:
            path = f"{m.mountpoint}/{objects.path(store, run)}"
            if i % 2:
                os.unlink(path)
            else:
                os.rename(path, f"{m.mountpoint}/{objects.path(store, another_name(run))}")
                left[another_name(run)] = run
    return left


def hostile_objects(tree, coding):
    objects = Objects(tree, coding)
    runs = {run: run for run in objects.runs()}
    m = tree.mount(objects.config)
    for run in runs:
        for store in MODELS:
            put(f"{m.mountpoint}/{objects.path(store, run)}", content(store, run))
    no_objects(objects, m)
    check_objects(objects, m, runs, "at once")
    m.umount()
    check_stored_objects(objects, runs, "written")
    m = tree.mount(objects.config, cache="cold")
    check_objects(objects, m, runs, "with an empty cache")
    left = objects_renamed_and_removed(objects, m, runs)
    check_objects(objects, m, left, "after the changes, at once")
    m.flush()
    check_stored_objects(objects, left, "after the changes")
    for run in left:
        for store in MODELS:
            os.unlink(f"{m.mountpoint}/{objects.path(store, run)}")
    m.umount()
    # A folder keeps t, which is of all tables.
    check(tree.left() == ([tree.raw("logs", "t")] if tree.kind == "file" else []), f"left in the stores: {tree.left()}")
    return f"{len(runs)} names"


NO_OBJECTS = {
    "b32": {"bad\udcff": "EILSEQ", "%61": "EINVAL", ".": "EINVAL", "..": "EINVAL", ".runfs": "EINVAL", "n" * 156: "ENAMETOOLONG"},
    "hex": {"%61": "EINVAL", ".": "EINVAL", "..": "EINVAL", ".runfs": "EINVAL", "n" * 128: "ENAMETOOLONG"},
    "pct": {"%61": "EINVAL", "%2E": "EINVAL", "%2E%2E": "EINVAL", "..": "EINVAL", "%2E%72%75%6E%66%73": "EPERM"},
    "raw": {".": "EINVAL", "..": "EINVAL", ".runfs": "EPERM"},
}


# ---- names that can't be stored ----

# Of each name what the three parts say, "" being a part that takes it.
SPELLINGS = [(name, ("EINVAL",) * 3) for name in ("%61", "50%", "new\nline", "a%2fb", "%2E%2e", "%FF", "%", "%2", "\x7f", "%2Ea",
                                                  ".runfs")]
NO_UTF8 = [os.fsdecode(name) for name in (b"bad\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xff" * 86, b"cut \xe2\x98")]
LONG = "ENAMETOOLONG"
OWN = [(LONG, LONG, LONG), ("", "", LONG)] # too long for each key, and for one with literals around the name
REFUSED = {
    "b32": SPELLINGS + [(name, ("EILSEQ",) * 3) for name in NO_UTF8] + [("n" * 156, OWN[0]), ("n" * 255, OWN[0])],
    "hex": SPELLINGS + [("n" * 128, OWN[0]), ("%2F" * 85 + "n", OWN[0]), ("n" * 127, OWN[1]), ("n" * 125, OWN[1])],
    "pct": SPELLINGS + [("~" * 86, OWN[0]), ("%2F" * 85, OWN[1]), ("n" * 250, OWN[1]), ("n" * 255, OWN[1]),
                        ("%2E", ("EINVAL", "EINVAL", "")), ("%2E%2E", ("EINVAL", "EINVAL", "")),
                        ("%2E%72%75%6E%66%73", ("EPERM", "EPERM", ""))],
    "raw": [(".runfs", ("EPERM", "EPERM", "")), ("n" * 255, OWN[1]), ("n" * 250, OWN[1]), ("n" * 256, OWN[0])],
    "each": SPELLINGS + [(name, ("EILSEQ", "", "")) for name in NO_UTF8[:3]] +
            [("n" * 128, ("", LONG, "")), ("n" * 156, (LONG, LONG, "")), ("~" * 84, ("", "", LONG)), (".." + "n" * 250, OWN[0])],
}


def refused(tree, coding):
    """Each name gets the errno that the documentation says, from each call, and nothing of it is left."""
    coded = Coded(tree, coding)
    m = tree.mount(coded.config)
    top = f"{m.mountpoint}/runs"
    for part in PARTS:
        put(f"{top}/good/{part}/{REST}", b"good")
    for i, (name, parts) in enumerate(REFUSED[coding]):
        if i == len(REFUSED[coding]) // 2:
            let_go(m) # others meet a run that is stored
        refuse(top, name, parts)
        check(os.listdir(top) == ["good"], f"{name!r}: {os.listdir(top)}")
    let_go(m)
    check(os.listdir(top) == ["good"], f"after all: {os.listdir(top)}")
    for part in PARTS:
        check(get(f"{top}/good/{part}/{REST}") == b"good", f"{part} has changed")
    m.umount()
    for store in NAMES:
        check(coded.stored(store) == {(b"good", REST): b"good"}, f"{store} has {coded.tree.keys(store)}")
    left = [key for key in tree.left() if not key.endswith("/")] # a server in memory has markers beside
    check(len(left) == len(PARTS) * (1 if tree.kind == "plain" else REST.count("/") + 2), f"left: {left}")
    return f"{len(REFUSED[coding])} names"


def refuse(top, name, parts):
    """`parts`: what each part says of the name. When all of them refuse it, so does the directory of the run."""
    where = f"{top}/{name}"
    first = next(filter(None, parts), "")
    told = errno_of(os.rename, f"{top}/good", where)
    check(told == first, f"rename to {name!r}: {told}")
    made = errno_of(os.mkdir, where)
    check(made == (first if all(parts) else ""), f"mkdir {name!r}: {made}")
    if made:
        check(errno_of(os.lstat, where) in ("ENOENT", made), f"{name!r} is there")
        return
    for part, wanted in zip(PARTS, parts):
        old, new = f"{top}/good/{part}", f"{where}/{part}"
        told = errno_of(os.mkdir, new)
        check(told == wanted, f"mkdir {part} of {name!r}: {told}")
        told = errno_of(os.rename, old, new)
        check(told == wanted, f"rename to {part} of {name!r}: {told}")
        if not told:
            os.rename(new, old)
    os.rmdir(where)


def case(name, function, coding):
    def run(tree):
        return function(tree, coding)

    run.__name__ = f"{name}_{coding}"
    return run


THROUGH = [case("hostile_names", hostile_names, coding) for coding in CODINGS]
OBJECTS = [case("hostile_objects", hostile_objects, coding) for coding in NO_OBJECTS]
CASES = THROUGH + OBJECTS + [case(f.__name__, f, coding) for f in (raw_keys, refused) for coding in CODINGS]
