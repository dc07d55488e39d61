"""What POSIX knows of a file beyond its bytes, on a mount that never saw it: with an empty cache. Each
case gets a Place and uses folders of its own. The cases in COUNTED count requests at S3: they are
about the attribute index and the HEADs of docs/format.md, section 7."""

import os
import re
import stat
import subprocess
import time

import identity
from harness import Mount, check, find_number, s3_environment, wait_for
from plain_s3 import PlainS3

MANY = 1000
ROOT = os.geteuid() == 0
LONG_AGO = 1234567890123456789


def put(path, data=b"x"):
    with open(path, "wb") as f:
        f.write(data)


def attributes(path):
    """All that lstat, readlink and the xattrs say of one name, but for what is another mount's own (times of the
    change, the number of the device); of a directory its time is not kept unless it was given one."""
    st = os.lstat(path)
    link = stat.S_ISLNK(st.st_mode)
    names = [] if link else sorted(os.listxattr(path))
    return {"mode": oct(st.st_mode), "owner": (st.st_uid, st.st_gid), "rdev": st.st_rdev,
            "size": None if stat.S_ISDIR(st.st_mode) else st.st_size,
            "mtime": None if stat.S_ISDIR(st.st_mode) else st.st_mtime_ns,
            "target": os.readlink(path) if link else None, "xattrs": {n: os.getxattr(path, n) for n in names}}


def snapshot(top):
    found = {}
    for where, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(where, name)
            found[os.path.relpath(path, top)] = attributes(path)
    return found


def check_same(found, expected, where):
    wrong = [n for n in sorted(set(found) | set(expected)) if found.get(n) != expected.get(n)]
    check(not wrong, f"{where}: {len(wrong)} differ, {wrong[0] if wrong else ''}: {found.get(wrong[0]) if wrong else ''}, "
                     f"expected {expected.get(wrong[0]) if wrong else ''}")


def requests(mount):
    return mount.status()["requests"]


def spent(mount, before):
    return {k: v - before[k] for k, v in requests(mount).items()}


def not_in_index(names):
    """How many of so many names may be missing in an index that is written for all. A server that refreshes its Date
    once a second, each time some milliseconds later (fasthttp does), dates an answer two seconds back once in a while:
    an object that was put in these milliseconds is younger than its upload, and gets its HEAD."""
    return 3 + names // 20


def store_clock_moves_on():
    """What is told of an object within the second of its change may not be the last of that second: it is not put
    into an index."""
    time.sleep(3.1)


# ---- every store ----

def kept_on_a_fresh_mount(place):
    a = place.mount()
    top = f"{a.mountpoint}/kept"
    os.makedirs(f"{top}/empty/within")
    os.mkdir(f"{top}/closed", 0o700)
    os.mkdir(f"{top}/full")
    for i, mode in enumerate((0o644, 0o600, 0o4755, 0o2711, 0o1000, 0o777)):
        path = f"{top}/full/{oct(mode)}"
        put(path, b"c" * i)
        os.chmod(path, mode)
        os.utime(path, ns=(1, LONG_AGO + i))
    put(f"{top}/full/before-1970")
    os.utime(f"{top}/full/before-1970", ns=(1, -1_500_000_000))
    put(f"{top}/full/attributes")
    os.setxattr(f"{top}/full/attributes", "user.key", b"\0value\xff")
    os.setxattr(f"{top}/full/attributes", "user.empty", b"")
    os.setxattr(f"{top}/closed", "user.of-a-directory", b"too")
    for i, target in enumerate(("to", "../x y/\n", "/absolute", "ümläut")):
        os.symlink(target, f"{top}/full/link{i}")
    os.mkfifo(f"{top}/full/fifo", 0o640)
    if ROOT:
        os.mknod(f"{top}/full/device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        for name in ("full/link0", "full/attributes", "empty", "closed", "full/0o644"):
            os.chown(f"{top}/{name}", 1234, 4321, follow_symlinks=False)
    os.utime(f"{top}/full", ns=(1, LONG_AGO))
    os.utime(f"{top}/empty/within", ns=(1, LONG_AGO + 7))
    expected = snapshot(top)
    a.umount()
    b = place.mount()
    top = f"{b.mountpoint}/kept"
    check_same(snapshot(top), expected, "on a fresh mount")
    for name, ns in (("full", LONG_AGO), ("empty/within", LONG_AGO + 7)):
        found = os.stat(f"{top}/{name}").st_mtime_ns
        check(found == ns, f"time of {name}: {found}")
    b.umount()
    c = place.mount(cache=f"cache-{b.mountpoint.rsplit('/', 1)[1]}") # the one that has seen it
    check_same(snapshot(f"{c.mountpoint}/kept"), expected, "on the same cache again")
    c.umount()
    return f"{len(expected)} names"


def listings_stat_and_open_agree(place):
    """ls -l first, stat first, or open first: one truth on each of three fresh mounts."""
    a = place.mount()
    top = f"{a.mountpoint}/agree"
    os.mkdir(top)
    for i in range(40):
        path = f"{top}/{i}"
        put(path, b"d" * i)
        os.chmod(path, 0o600 + i)
        os.utime(path, ns=(1, LONG_AGO + i))
    expected = {str(i): (f"{stat.filemode(stat.S_IFREG | (0o600 + i))}", i, LONG_AGO + i) for i in range(40)}
    a.umount()

    def by_ls(folder):
        text = subprocess.run(["ls", "-l", "--time-style=+%s.%N", folder], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
        rows = re.findall(r"^(-\S+) +\d+ \S+ \S+ +(\d+) (\d+)\.(\d+) (\d+)$", text, re.M)
        return {name: (mode[:10], int(size), int(s) * 10**9 + int(ns)) for mode, size, s, ns, name in rows}

    def seen(st):
        return stat.filemode(st.st_mode), st.st_size, st.st_mtime_ns

    def by_stat(folder):
        return {str(i): seen(os.stat(f"{folder}/{i}")) for i in reversed(range(40))}

    def by_open(folder):
        found = {}
        for i in range(40):
            with open(f"{folder}/{i}", "rb") as f:
                found[str(i)] = seen(os.fstat(f.fileno()))
        return found

    ways = [by_ls, by_stat, by_open]
    for first in range(3):
        m = place.mount()
        for way in ways[first:] + ways[:first]:
            found = way(f"{m.mountpoint}/agree")
            check(found == expected, f"{way.__name__} after {ways[first].__name__} first: "
                                     f"{[n for n in expected if found.get(n) != expected[n]][:3]}")
        m.umount()


def defaults_for_what_others_wrote(place):
    """No metadata, or such that makes no sense: the mount's own defaults, and a time that is not 1970."""
    a = place.mount()
    os.mkdir(f"{a.mountpoint}/others")
    a.umount()
    before = time.time()
    place.write_as_others("others/plain", b"x")
    place.write_as_others("others/deep/er", b"x")
    owner = (1234, 4321) if ROOT else (os.geteuid(), os.getegid())
    for masks, mode, dir_mode in ((["umask=027"], 0o640, 0o750), (["umask=077", "fmask=0137", "dmask=02"], 0o640, 0o775),
                                  (["dmask=0"], 0o644, 0o777)):
        m = place.mount(options=masks + (["uid=1234", "gid=4321"] if ROOT else []))
        top = f"{m.mountpoint}/others"
        for name, expected in (("plain", 0o100000 + mode), ("deep/er", 0o100000 + mode), ("deep", 0o40000 + dir_mode)):
            found = attributes(f"{top}/{name}")
            if place.store == "s3": # a folder has modes and owners of its own
                check((found["mode"], found["owner"]) == (oct(expected), owner), f"{masks}, {name}: {found}")
            check(os.stat(f"{top}/{name}").st_mtime > before - 60, f"{name}: {os.stat(f'{top}/{name}').st_mtime}")
        m.umount()


def many_names_of_one_file(place):
    """More than a stamp has room for: no warning, and nothing is sent again by the next mount."""
    cache = f"cache-{place.name}"
    a = place.mount(cache=cache)
    top = f"{a.mountpoint}/names"
    os.mkdir(top)
    put(f"{top}/0", b"content")
    for i in range(1, 200):
        os.link(f"{top}/0", f"{top}/{i}")
    a.umount()
    with open(a.log) as f: # in the foreground it goes there
        said = [line for line in f if " warn " in line or " error " in line]
    check(not said, f"{len(said)} warnings: {said[:1]}")
    b = place.mount(cache=cache)
    before = requests(b)
    found = {}
    for name in os.listdir(f"{b.mountpoint}/names"):
        with open(f"{b.mountpoint}/names/{name}", "rb") as f:
            found[name] = f.read()
    check(found == {str(i): b"content" for i in range(200)}, f"{len(found)} names")
    b.flush()
    cost = spent(b, before)
    check(cost["puts"] == 0 and cost["copies"] == 0, f"{cost}")
    b.umount()


CASES = [many_names_of_one_file, kept_on_a_fresh_mount, listings_stat_and_open_agree, defaults_for_what_others_wrote]


# ---- counted ----

def _fill(top, n):
    """Files whose attributes are not the default and differ, among them some that only attributes tell apart."""
    os.mkdir(top)
    for i in range(n):
        path = f"{top}/{i}"
        put(path, b"s" * (i % 3)) # many of the same bytes, many empty
        os.chmod(path, 0o600 + i % 64)
        if i % 7 == 0:
            os.setxattr(path, "user.i", b"%d" % i)
        if i % 11 == 0:
            os.utime(path, ns=(1, LONG_AGO + i))
        if ROOT and i % 5 == 0:
            os.chown(path, i, i + 1)
    for i in range(5):
        os.symlink(f"target{i}", f"{top}/link{i}")


# What is told stays believed, however slow the machine is.
PATIENT = ["attr_timeout=300s", "list_timeout=300s"]


def ls_of_many_costs_a_handful(place):
    a = place.mount()
    _fill(f"{a.mountpoint}/many", MANY)
    expected = snapshot(f"{a.mountpoint}/many")
    a.umount()
    b = place.mount(options=PATIENT)
    before = requests(b)
    check_same(snapshot(f"{b.mountpoint}/many"), expected, "with the index")
    cost = spent(b, before)
    check(cost["requests"] <= 5 + 5 + not_in_index(len(expected)), f"{cost}") # links are asked
    subprocess.run(["ls", "-lR", b.mountpoint], check=True, stdout=subprocess.DEVNULL)
    again = spent(b, before)
    check(again["stats"] == cost["stats"] and again["reads"] == cost["reads"], f"again: {again} after {cost}")
    b.umount()
    return f"{cost['requests']} requests for {len(expected)} names"


def without_an_index_each_is_asked_once(place):
    off = ["state_prefix=off", *PATIENT]
    a = place.mount(options=off)
    _fill(f"{a.mountpoint}/asked", MANY)
    expected = snapshot(f"{a.mountpoint}/asked")
    a.umount()
    b = place.mount(options=off)
    before = requests(b)
    subprocess.run(["ls", "-l", f"{b.mountpoint}/asked"], check=True, stdout=subprocess.DEVNULL)
    check_same(snapshot(f"{b.mountpoint}/asked"), expected, "without an index")
    for i in range(MANY):
        os.stat(f"{b.mountpoint}/asked/{i}")
    cost = spent(b, before)
    check(cost["stats"] <= len(expected) + 3 and cost["reads"] == 0, f"{cost}")
    b.umount()
    return f"{cost['stats']} HEADs for {len(expected)} names"


def who_pays_the_heads_writes_the_index(place):
    a = place.mount(options=["state_prefix=off"])
    _fill(f"{a.mountpoint}/paid", 200)
    expected = snapshot(f"{a.mountpoint}/paid")
    a.umount()
    store_clock_moves_on()
    b = place.mount()
    before = requests(b)
    check_same(snapshot(f"{b.mountpoint}/paid"), expected, "by HEADs")
    check(spent(b, before)["stats"] >= 200, "the HEADs were not paid")
    b.umount()
    c = place.mount(options=PATIENT)
    before = requests(c)
    check_same(snapshot(f"{c.mountpoint}/paid"), expected, "by the index")
    cost = spent(c, before)
    check(cost["requests"] <= 5 + 5 + not_in_index(len(expected)), f"{cost}")
    c.umount()


def who_has_the_files_writes_the_index(place):
    """After a crash: the cache has the content, and asks for the attributes once more."""
    a = place.mount(cache=f"cache-files-{place.mode}")
    _fill(f"{a.mountpoint}/had", 40)
    expected = snapshot(f"{a.mountpoint}/had")
    a.flush()
    a.kill() # before it wrote the index
    store_clock_moves_on()
    b = place.mount(cache=f"cache-files-{place.mode}")
    check_same(snapshot(f"{b.mountpoint}/had"), expected, "where the content is")
    b.umount()
    c = place.mount(options=PATIENT)
    before = requests(c)
    check_same(snapshot(f"{c.mountpoint}/had"), expected, "by the index")
    check(spent(c, before)["requests"] <= 8 + 5, f"{spent(c, before)}")
    c.umount()


def _fill_runs(top, n):
    """Directories of too few files for an index of their own, some of them deeper."""
    for i in range(n):
        os.makedirs(f"{top}/{i:04}/deeper")
        for name in ("empty", "full", "deeper/file"):
            put(f"{top}/{i:04}/{name}", b"" if name == "empty" else b"x" * i)
            os.chmod(f"{top}/{i:04}/{name}", 0o600 + i % 64)
    os.symlink("target", f"{top}/0007/link")


def walks_of_small_directories(place):
    """Written by who uploaded and by who paid the HEADs; a part that is damaged costs those once more. Nothing goes
    up before it is all there: a directory that is empty by then has an object of its own, which is asked for."""
    a = place.mount(options=["state_prefix=off", "settle=1h"])
    _fill_runs(f"{a.mountpoint}/runs", 200)
    expected = snapshot(f"{a.mountpoint}/runs")
    a.umount()
    where, costs = f"{place.bucket()}.runfs/tree", []
    for stored in (None, None, b"runfs-trees 1 00000000\n=\n", b"", None):
        store_clock_moves_on()
        if stored is not None:
            parts = os.listdir(where)
            check(len(parts) == 1, f"the index of the tree is {parts}")
            with open(f"{where}/{parts[0]}", "wb") as f:
                f.write(stored)
        m = place.mount(options=PATIENT)
        before = requests(m)
        check_same(snapshot(f"{m.mountpoint}/runs"), expected, f"walk {len(costs)}")
        costs.append(spent(m, before)["stats"])
        m.umount()
    check(all(c >= 600 for c in (costs[0], costs[2], costs[3])), f"HEADs of the walks that found none: {costs}")
    check(max(costs[1], costs[4]) <= not_in_index(600), f"HEADs of the walks that found it: {costs}")
    b = place.mount(options=["settle=1h"])
    _fill_runs(f"{b.mountpoint}/more", 100)
    expected = snapshot(f"{b.mountpoint}/more")
    b.umount()
    m = place.mount(options=PATIENT)
    before = requests(m)
    check_same(snapshot(f"{m.mountpoint}/more"), expected, "what was uploaded")
    cost = spent(m, before)
    check(cost["stats"] <= 7 + not_in_index(300) and cost["lists"] <= 12, f"{cost}")
    m.umount()
    return f"{costs[1]} HEADs for {len(expected)} names, {costs[0]} before"


def two_mounts_write_one_index(place):
    a, b = place.mount(), place.mount()
    os.mkdir(f"{a.mountpoint}/both")
    a.flush()
    wait_for("the folder on the other mount", lambda: os.path.isdir(f"{b.mountpoint}/both"), 20)
    for i in range(100):
        for m, name in ((a, "a"), (b, "b")):
            put(f"{m.mountpoint}/both/{name}{i}", b"s" * (i % 5))
            os.chmod(f"{m.mountpoint}/both/{name}{i}", 0o600 + i % 64)
    a.umount()
    b.umount()
    c = place.mount(options=PATIENT)
    before = requests(c)
    for i in range(100):
        for name in "ab":
            mode = stat.S_IMODE(os.stat(f"{c.mountpoint}/both/{name}{i}").st_mode)
            check(mode == 0o600 + i % 64, f"{name}{i}: {oct(mode)}")
    check(spent(c, before)["stats"] <= not_in_index(200), f"{spent(c, before)}")
    c.umount()


def what_others_changed_since_is_asked(place):
    """Of the same bytes, so that no ETag tells: empty files, a symlink that leads elsewhere now. Who changes it knows
    no index."""
    a = place.mount()
    top = f"{a.mountpoint}/changed"
    os.mkdir(top)
    for i in range(60):
        put(f"{top}/{i}", b"")
        os.symlink("here", f"{top}/link{i}")
    a.umount()
    time.sleep(1.1) # LastModified counts seconds
    b = place.mount(options=["state_prefix=off"])
    top = f"{b.mountpoint}/changed"
    for i in range(0, 60, 3):
        os.chmod(f"{top}/{i}", 0o711)
        os.unlink(f"{top}/link{i}")
        os.symlink("there", f"{top}/link{i}")
    expected = snapshot(top)
    b.umount()
    c = place.mount()
    check_same(snapshot(f"{c.mountpoint}/changed"), expected, "after the change")
    c.umount()


def an_index_that_is_none(place):
    """Cut off, damaged, another directory's, or of no form at all: the attributes are those of the objects."""
    a = place.mount()
    for name in ("one", "two"):
        _fill(f"{a.mountpoint}/{name}", 40)
    expected = snapshot(a.mountpoint)
    a.umount()
    where = f"{place.bucket()}.runfs/attrs"
    found = {}
    for name in os.listdir(where):
        with open(f"{where}/{name}", "rb") as f:
            found[name] = f.read()
    check(len(found) == 2, f"{len(found)} indexes")
    one, two = found.values()
    for broken in (b"", one[:len(one) // 2], one.replace(b" 1006", b" 1007"), b"\0" * 5000, b"runfs-attrs 1 ",
                   "swap"):
        for name, text in found.items():
            with open(f"{where}/{name}", "wb") as f:
                f.write((two if text == one else one) if broken == "swap" else broken)
        m = place.mount(options=["ro"])
        check_same(snapshot(m.mountpoint), expected, f"index {broken[:20]!r}")
        m.umount()


def _crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def an_index_gives_no_rights(place):
    """Who can write beside the prefix only, says of each file that it is a stranger's, and everybody's."""
    if not ROOT:
        return "not root"
    a = place.mount()
    os.mkdir(f"{a.mountpoint}/secrets")
    for i in range(20):
        put(f"{a.mountpoint}/secrets/{i}", b"secret")
        os.chmod(f"{a.mountpoint}/secrets/{i}", 0o600)
    a.umount()
    where = f"{place.bucket()}.runfs/attrs"
    for name in os.listdir(where):
        with open(f"{where}/{name}", "rb") as f:
            lines = f.read().split(b"\n")
        for i, line in enumerate(lines[2:-1], 2):
            words = line.split(b" ")
            words[4:7] = [b"100666", b"%d" % identity.STRANGER, b"%d" % identity.STRANGER]
            lines[i] = b" ".join(words)
        body = b"\n".join(lines[1:])
        with open(f"{where}/{name}", "wb") as f:
            f.write(b"runfs-attrs 2 %08x\n" % _crc32c(body) + body)
    b = place.mount(options=PATIENT)
    os.chmod(b.mountpoint, 0o755)
    top = f"{b.mountpoint}/secrets"
    before = requests(b)
    check(os.stat(f"{top}/0").st_uid == identity.STRANGER, "the index was not read")
    check(spent(b, before)["stats"] <= 2, "HEADs beside the index")
    for i, code in enumerate(("open(a[0]).read()", "open(a[0], 'w')", "os.truncate(a[0], 0)", "os.setxattr(a[0], 'user.x', b'1')")):
        check(identity.do(identity.STRANGER, code, f"{top}/{i}") == "EACCES", code)
    for i, code in enumerate(("os.chmod(a[0], 0o777)", "os.utime(a[0], (1, 1))"), 4):
        check(identity.do(identity.STRANGER, code, f"{top}/{i}") == "EPERM", code)
    for i in range(20):
        with open(f"{top}/{i}", "rb") as f:
            check(f.read() == b"secret", f"content of {i}")
        found = os.stat(f"{top}/{i}")
        check((found.st_uid, stat.S_IMODE(found.st_mode)) == (0, 0o600), f"{i}: {found}")
    b.umount()


def plain_ls_asks_for_no_directory(place):
    a = place.mount()
    os.mkdir(f"{a.mountpoint}/dirs")
    for i in range(150):
        os.mkdir(f"{a.mountpoint}/dirs/{i}", 0o700 if i % 2 else 0o755)
        put(f"{a.mountpoint}/dirs/{i}/f")
    a.umount()
    b = place.mount(options=["attr_timeout=300s", "list_timeout=300s"])
    before = requests(b)
    check(len(list(os.scandir(f"{b.mountpoint}/dirs"))) == 150, "names")
    check(all(e.is_dir(follow_symlinks=False) for e in os.scandir(f"{b.mountpoint}/dirs")), "types")
    cost = spent(b, before)
    check(cost["requests"] <= 4, f"plain: {cost}")
    for _ in range(2):
        for i in range(150):
            mode = stat.S_IMODE(os.stat(f"{b.mountpoint}/dirs/{i}").st_mode)
            check(mode == (0o700 if i % 2 else 0o755), f"{i}: {oct(mode)}")
    cost = spent(b, before)
    # One HEAD for each marker, and the listings that tell which have one. What was asked before
    # such a listing is asked again, since the markers are younger than two seconds.
    check(cost["requests"] <= 200 and cost["lists"] <= 20, f"with attributes: {cost}")
    b.umount()
    return f"{cost['requests']} requests for 150 directories"


def changed_attributes_upload_nothing(place):
    a = place.mount()
    path = f"{a.mountpoint}/set"
    put(path, os.urandom(3 << 20))
    a.flush()
    before = requests(a)
    os.chmod(path, 0o600)
    a.flush()
    os.utime(path, ns=(1, LONG_AGO))
    os.setxattr(path, "user.x", b"y")
    if ROOT:
        os.chown(path, 7, 8)
    a.flush()
    cost = spent(a, before)
    check(cost["bytes_written"] == 0 and cost["puts"] == 0 and cost["parts"] == 0, f"{cost}")
    expected = attributes(path)
    a.umount()
    b = place.mount() # where the content is not: nothing is fetched either
    path = f"{b.mountpoint}/set"
    check(attributes(path) == expected, f"{attributes(path)}, not {expected}")
    before = requests(b)
    os.chmod(path, 0o640)
    b.flush()
    cost = spent(b, before)
    check(cost["bytes_written"] == 0 and cost["bytes_read"] == 0, f"fresh: {cost}")
    b.umount()


def state_lies_beside_what_is_mounted(place):
    a = place.mount()
    _fill(f"{a.mountpoint}/beside", 30)
    a.umount()
    check(os.listdir(f"{place.bucket()}.runfs/attrs"), "no index beside the prefix")
    inside = [n for n in os.listdir(place.bucket()) if "runfs" in n]
    check(not inside, f"inside of what is mounted: {inside}")
    m = place.mount(options=[f"state_prefix=elsewhere/{place.name}"])
    check(not [n for n in os.listdir(m.mountpoint) if n.endswith("runfs")], "seen in the mount")
    _fill(f"{m.mountpoint}/beside2", 30)
    m.umount()
    check(os.listdir(f"{os.path.dirname(place.bucket())}/elsewhere/{place.name}/attrs"), "no index elsewhere")


def another_node_changes_them_again(place):
    """The second change of an object's attributes leaves its ETag as it is; the other node has the content."""
    quick = ["attr_timeout=0.3s", "list_timeout=0.5s", "entry_timeout=0.3s"]
    a, b = place.mount(options=quick), place.mount(options=quick)
    here, there = f"{a.mountpoint}/f", f"{b.mountpoint}/f"
    data = os.urandom(300000)
    put(here, data)
    os.chmod(here, 0o600)
    a.flush()
    os.chmod(here, 0o601)
    a.flush()
    wait_for("the file on the other node", lambda: os.path.exists(there), 20)
    version = os.getxattr(here, "user.runfs.version")
    for mode, owner, ns in ((0o640, 0, LONG_AGO), (0o604, 5, LONG_AGO + 1), (0o755, 6, LONG_AGO + 1)):
        with open(there, "rb") as f:
            check(f.read() == data, "content")
        time.sleep(1.1) # LastModified counts seconds
        os.chmod(here, mode)
        os.utime(here, ns=(1, ns))
        if ROOT:
            os.chown(here, owner, owner)
        a.flush()
        check(os.getxattr(here, "user.runfs.version") == version, "the ETag changed: nothing is tested")
        expected = attributes(here)
        wait_for(f"mode {oct(mode)} on the other node", lambda: attributes(there) == expected, 20)
    with open(there, "rb") as f:
        check(f.read() == data, "content at the end")
    for m in (a, b):
        m.umount()


def a_directory_changes_while_nobody_looks(place):
    """While one is unmounted: its cache knows the directory, but not what another did to it."""
    away = f"cache-away-{place.mode}"
    a = place.mount(cache=away)
    for name in ("closed", "opened"):
        os.mkdir(f"{a.mountpoint}/{name}", 0o755 if name == "closed" else 0o700)
        put(f"{a.mountpoint}/{name}/f")
    a.umount()
    b = place.mount()
    os.chmod(f"{b.mountpoint}/closed", 0o700)
    b.flush()
    b.umount()
    a = place.mount(cache=away)
    check(stat.S_IMODE(os.stat(f"{a.mountpoint}/closed").st_mode) == 0o700, "closed by another node, open here")
    check(stat.S_IMODE(os.stat(f"{a.mountpoint}/opened").st_mode) == 0o700, "its own mode")
    a.umount()


COUNTED = [another_node_changes_them_again, a_directory_changes_while_nobody_looks, ls_of_many_costs_a_handful, without_an_index_each_is_asked_once, who_pays_the_heads_writes_the_index,
           who_has_the_files_writes_the_index, walks_of_small_directories,
           two_mounts_write_one_index, what_others_changed_since_is_asked, an_index_that_is_none, an_index_gives_no_rights,
           plain_ls_asks_for_no_directory, changed_attributes_upload_nothing, state_lies_beside_what_is_mounted]


# ---- a server that wants no index ----

def plain_mount(work, name, options=()):
    server = PlainS3()
    work.cleanups.append(server.stop)
    mount = Mount("s3://bucket/p", work.path(name), work.path(f"cache-{name}"),
                  [f"endpoint={server.endpoint}", "region=us-east-1", "path_style", "settle=0.1s", *options],
                  s3_environment())
    work.mounts.append(mount)
    return server, mount.start()


def a_forbidden_place_is_no_failure(work, mode):
    server, m = plain_mount(work, f"forbidden-{mode}")
    server.forbidden = b"p.runfs"
    _fill(f"{m.mountpoint}/d", 100)
    m.flush()
    check(find_number(m.status(), "failed_files") == 0, "failed files")
    m.umount() # exit 0
    tried = [key for method, key in server.requests if key.startswith(b"p.runfs") and method == "PUT"]
    check(len(tried) == 1, f"{len(tried)} attempts to write an index")
    check(not [k for k in server.bodies() if k.startswith(b"p.runfs")], "an index")


def a_silent_place_does_not_hold_the_unmount(work, mode):
    server, m = plain_mount(work, f"silent-{mode}")
    server.silent = b"p.runfs"
    _fill(f"{m.mountpoint}/d", 100)
    m.flush() # not what is measured
    began = time.monotonic()
    m.umount()
    took = time.monotonic() - began
    server.silent = None
    check(took < 30, f"{took:.0f} s")
    stored = [k for k in server.bodies() if k.startswith(b"p/d/")]
    check(len(stored) >= 100, f"{len(stored)} stored")


REFUSING = [a_forbidden_place_is_no_failure, a_silent_place_does_not_hold_the_unmount]
