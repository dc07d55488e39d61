"""Names that no path can hold, and names that are only strange: what each becomes is said in
docs/format.md, section 8. A server in memory has every key that S3 allows, versitygw those that it
takes; a watcher sees whether anything beside cache and mountpoint is touched."""

import ctypes
import datetime
import errno
import hashlib
import hmac
import http.client
import os
import struct
import threading
import time
import urllib.parse

from harness import ACCESS_KEY, REGION, SECRET_KEY, Failure, Mount, check, find_number, s3_environment, wait_for
from plain_s3 import PlainS3
from watcher import Watcher

LISTED = 1.0 # list_timeout
OPTIONS = ["region=us-east-1", "path_style", "settle=0.1s", "attr_timeout=0.5s", f"list_timeout={LISTED}s",
           "entry_timeout=0.5s"]
PARTS_OF_CACHE = {"lock", "version", "identity", "id", "store.json", "boot", "state.db", "state.db-wal", "state.db-shm",
                  "control", "runfs.log", "place", "mirror", "incoming", "orphans", "kept"}
LONG = b"n" * 255
DEEP = b"/".join([b"%" * 255] * 3 + [b"%" * 254]) # with the prefix 1,024 bytes, the worst to encode

# Shown as they are, whatever the terminal makes of them.
STRANGE = [
    b"new\nline", b"return\rhere", b"tab\there", b"\x01control\x7f", b" ", b" around ", b"bad\xff\xfeutf8", b"\xc0\xae\xc0\xae",
    b"caf\xc3\xa9", b"cafe\xcc\x81", # one word, composed and not
    b"Case", b"case", b"CASE", b"-rf", b"*", b"...", b".. ", b"..a", b".hidden", b"~", b"a\\b", b"back\\..\\slash",
    b"&<>\"'", b"&#10;", b"%2e%2e%2fx", b"%00", b"a+b=c&d?e#f", b"$(touch x)", b"state.db", b"lock", b"mirror", b"incoming",
    LONG, LONG[:-1] + b"\xff", b"sub/.runfs", b"sub/..x/...", DEEP,
]

# What no path can show, and in which directory of the mount it is counted.
HIDDEN = {
    b"../x": b"", b"./y": b"", b"/x": b"", b"nul\0name": b"", LONG + b"n": b"", b".runfs/status.json": b"", b"..": b"",
    b"a//b": b"a", b"a/../../e": b"a", b"a/./f": b"a", b"a/" + LONG + b"n/x": b"a", b"a/b\0/c": b"a",
    b"twin": b"", b"a/twin": b"a",
}
BESIDE = [b"twin/child", b"a/twin/child", b"a/seen"]


def parents(key):
    return [key[:i] for i, c in enumerate(key) if c == ord("/")]


def walk(top):
    """{path below top: content} of files, and the set of directories."""
    files, folders = {}, set()
    for where, names, entries in os.walk(top, onerror=_give_up):
        below = where[len(top) + 1:]
        folders.update(os.path.join(below, n) for n in names)
        for name in entries:
            with open(os.path.join(where, name), "rb") as f:
                files[os.path.join(below, name)] = f.read()
    return files, folders


def _give_up(error):
    raise error


class Place:
    """A server in memory with a bucket, and a mount of its prefix `p` whose surroundings are watched."""

    def __init__(self, work, name):
        self.top = work.make(name)
        self.server = PlainS3()
        work.cleanups.append(self.server.stop)
        self.work, self.options = work, OPTIONS + (["passthrough=off"] if name.endswith("off") else [])
        for canary in ("x", "e", "beside/x", "beside/deep/er/x"): # what a way out could hit
            work.make(name, os.path.dirname(canary))
            with open(f"{self.top}/{canary}", "w", encoding="ascii") as f:
                f.write("canary")
        self.prefix = b"p/"

    def put(self, key, body):
        self.server.put(self.prefix + key, body)

    def stored(self):
        return {k[len(self.prefix):]: v for k, v in self.server.bodies().items() if k.startswith(self.prefix)}

    def mount(self, cache="cache", options=()):
        m = Mount("s3://bucket/p", f"{self.top}/mnt", f"{self.top}/{cache}",
                  [*self.options, *options, f"endpoint={self.server.endpoint}"], s3_environment())
        self.work.mounts.append(m)
        return m

    def watch(self):
        os.makedirs(f"{self.top}/cache", exist_ok=True)
        os.makedirs(f"{self.top}/mnt", exist_ok=True)
        # runfs makes cache and mnt.log itself; their contents are another matter.
        return Watcher(self.top, ["cache", "mnt", "mnt.log"])

    def check_cache(self):
        there = set(os.listdir(f"{self.top}/cache"))
        check(there <= PARTS_OF_CACHE, f"in the cache directory: {there - PARTS_OF_CACHE}")


def _hidden(mount):
    return find_number(mount.status(), "hidden_names")


def _fill(place):
    for key in STRANGE + BESIDE:
        place.put(key, b"content of " + key)
    absolute = os.fsencode(place.top) + b"/absolute"
    for key in [*HIDDEN, absolute]: # "/" first: an absolute path
        place.put(key, b"hidden " + key)
    return set(HIDDEN) | {absolute}


def the_watcher_sees(work, mode):
    """Without this the cases below would prove nothing."""
    place = Place(work, f"seen-{mode}")
    for what, change in (("a new file", lambda: open(f"{place.top}/new", "wb").close()),
                         ("a changed one", lambda: os.truncate(f"{place.top}/beside/deep/er/x", 1)),
                         ("a removed one", lambda: os.unlink(f"{place.top}/e"))):
        watcher = place.watch()
        change()
        try:
            watcher.check()
        except Failure:
            continue
        raise Failure(f"{what} was not seen")
    quiet = place.watch()
    open(f"{place.top}/cache/inside", "wb").close()
    quiet.check()


def every_name(work, mode):
    """Each name is shown exactly as it is or hidden and counted, survives changes under it, and
    what is hidden stays in the store untouched."""
    place = Place(work, f"every-{mode}")
    hidden = _fill(place)
    shown = STRANGE + BESIDE
    watcher = place.watch()
    mount = place.mount().start()
    top = os.fsencode(mount.mountpoint)

    files, folders = walk(top)
    check(files == {k: b"content of " + k for k in shown}, f"files differ: {_difference(files, shown)}")
    expected = {p for k in shown for p in parents(k)} | {b"a"}
    check(folders == expected, f"directories differ: {sorted(folders ^ expected)}")
    counted = _hidden(mount)
    check(counted == len(set(HIDDEN)), f"{counted} hidden names are counted, not {len(HIDDEN)}")

    # Listed again they are not counted again.
    time.sleep(LISTED + 0.3)
    walk(top)
    check(_hidden(mount) == counted, f"{_hidden(mount)} hidden names after a second look")

    # A directory with something hidden in it is not empty.
    check(_errno(os.rmdir, top + b"/a") == "ENOTEMPTY", "rmdir of a directory")
    _forbidden(top)
    expected = _change(top, shown)
    mount.flush()
    mount.umount()
    place.check_cache()
    watcher.check()

    stored = place.stored()
    check({k: stored.pop(k, None) for k in hidden} == {k: b"hidden " + k for k in hidden}, "a hidden object changed")
    stored = {k: v for k, v in stored.items() if not k.endswith(b"/")}
    check(stored == expected, f"the store differs: {_difference(stored, expected)}")

    # An empty cache shows the same.
    second = place.mount("cache2").start()
    files, _ = walk(top)
    check(files == expected, f"a second mount differs: {_difference(files, expected)}")
    second.umount()
    return f"{len(shown)} shown, {counted} hidden"


def _difference(got, expected):
    """The first names that only one has, or that differ."""
    if not isinstance(expected, dict):
        expected = {k: b"content of " + k for k in expected}
    return sorted((k[-60:], got.get(k, b"-")[-20:], expected.get(k, b"-")[-20:])
                  for k in got.keys() | expected.keys() if got.get(k) != expected.get(k))[:5]


def _errno(function, *arguments):
    try:
        function(*arguments)
    except OSError as e:
        return errno.errorcode[e.errno]
    return None


def _forbidden(top):
    """What users can't make either."""
    for path, wanted in ((b".runfs", "EEXIST"), (LONG + b"n", "ENAMETOOLONG")):
        check(_errno(os.mkdir, top + b"/" + path) == wanted, f"mkdir {path[:10]}: {_errno(os.mkdir, top + b'/' + path)}")
    check(_errno(os.stat, top + b"/" + LONG + b"n") == "ENAMETOOLONG", "stat of a long name")
    os.mkdir(top + b"/plain")
    check(_errno(os.rename, top + b"/plain", top + b"/.runfs") in ("EPERM", "EACCES"), "rename to the reserved name")
    check(_errno(os.symlink, b"x", top + b"/.runfs/x") in ("EPERM", "EACCES"), "a link in the reserved directory")
    os.rmdir(top + b"/plain")
    os.mkdir(top + b"/sub/plain") # reserved in the root only
    os.rename(top + b"/sub/plain", top + b"/sub/.runfs2")
    os.rmdir(top + b"/sub/.runfs2")


def _change(top, shown):
    """A third of the files is changed, a third renamed, a third removed; what must be in the store."""
    expected = {}
    for i, key in enumerate(shown):
        path = top + b"/" + key
        if i % 3 == 0:
            with open(path, "ab") as f:
                f.write(b", changed")
            expected[key] = b"content of " + key + b", changed"
        elif i % 3 == 1:
            folder, _, name = key.rpartition(b"/")
            new = (folder + b"/" if folder else b"") + b"moved " + name[:240]
            os.rename(path, top + b"/" + new)
            expected[new] = b"content of " + key
        else:
            os.unlink(path)
    for name in (b"made\nhere", b"made \xff\x01", b"Made", b"made", b"m" * 255):
        with open(top + b"/" + name, "wb") as f:
            f.write(b"new " + name)
        expected[name] = b"new " + name
    return expected


def objects_beside_directories(work, mode):
    """Of "a" and "a/b" the directory is seen; when it goes, the object comes to light."""
    place = Place(work, f"beside-{mode}")
    place.put(b"a", b"the object")
    place.put(b"a/", b"")
    place.put(b"a/b", b"the child")
    place.put(b"late", b"first an object")
    mount = place.mount().start()
    top = mount.mountpoint
    check((sorted(os.listdir(top)), os.listdir(f"{top}/a")) == (["a", "late"], ["b"]),
          f"first listing: {os.listdir(top)} {os.listdir(f'{top}/a')}")
    check(_hidden(mount) == 1, f"{_hidden(mount)} hidden")
    place.put(b"late/child", b"then a directory")
    wait_for("the directory under a file's name", lambda: _errno(os.listdir, f"{top}/late") is None, 20)
    check(os.listdir(f"{top}/late") == ["child"] and _hidden(mount) == 2, "the directory, and a hidden object")
    with open(f"{top}/a/new", "w", encoding="ascii") as f:
        f.write("new")
    mount.flush()
    check(place.stored()[b"a"] == b"the object", "the hidden object changed")
    os.rename(f"{top}/a/b", f"{top}/b")
    os.unlink(f"{top}/a/new")
    os.rmdir(f"{top}/a")
    mount.flush()
    wait_for("the object", lambda: os.path.isfile(f"{top}/a"), 20)
    with open(f"{top}/a", "rb") as f:
        check(f.read() == b"the object", "its content")
    wait_for("one hidden name less", lambda: os.listdir(top) and _hidden(mount) == 1)
    mount.umount()
    check(place.stored() == {b"a": b"the object", b"b": b"the child", b"late": b"first an object",
                             b"late/child": b"then a directory"}, f"stored: {place.stored()}")


def keys_that_do_not_belong(work, mode):
    """A listing with keys outside of what was asked is refused, and the mount goes on."""
    place = Place(work, f"outside-{mode}")
    place.put(b"seen/file", b"x")
    watcher = place.watch()
    mount = place.mount(options=["store_timeout=1s"]).start()
    top = mount.mountpoint
    for extra in ("<Contents><Key>other/x</Key><Size>1</Size></Contents>",
                  "<Contents><Key>../p/x</Key><Size>1</Size></Contents>",
                  "<CommonPrefixes><Prefix>p/../../etc/</Prefix></CommonPrefixes>",
                  "<CommonPrefixes><Prefix>p/no-slash</Prefix></CommonPrefixes>",
                  "<Contents><Key>p/seen%00</Key><Size>1</Size></Contents>",
                  "<Contents><Key>p/x%</Key><Size>1</Size></Contents>",
                  "<Contents><Key></Key><Size>1</Size></Contents>"):
        place.server.extra = extra
        time.sleep(LISTED + 0.1)
        _errno(os.listdir, top) # refused, or without the bad name
        _errno(os.listdir, f"{top}/seen")
        place.server.extra = ""
        wait_for(f"the mount after {extra}", lambda: _errno(os.listdir, top) is None, 20)
        wait_for(f"the names after {extra}", lambda: set(os.listdir(top)) - {"no-slash", "x%"} == {"seen"}, 20)
    mount.umount()
    place.check_cache()
    watcher.check()


def long_names_and_attributes(work, mode):
    """A name that takes the most room in a stamp, beside extended attributes that take the most:
    where the cache's filesystem has no room for both, it is told, and nothing goes up for ever."""
    place = Place(work, f"room-{mode}")
    place.put(DEEP, b"content of " + DEEP)
    mount = place.mount().start()
    path = os.fsencode(mount.mountpoint) + b"/" + DEEP
    given = [s for s in (1100, 400) if _errno(os.setxattr, path, b"user.big", b"x" * s) is None]
    with open(path, "ab") as f:
        f.write(b", changed")
    given += [s for s in (1000, 300) if _errno(os.setxattr, path, b"user.more", b"y" * s) is None]
    # The other way round: the attributes are there before the name is.
    other = path[:-1] + b"!"
    with open(os.fsencode(mount.mountpoint) + b"/short", "wb") as f:
        f.write(b"moved")
    os.setxattr(os.fsencode(mount.mountpoint) + b"/short", b"user.big", b"x" * 1100)
    mount.flush()
    os.rename(os.fsencode(mount.mountpoint) + b"/short", other)
    mount.flush()
    wait_for("the end of the uploads", lambda: mount.owed() == 0)
    before = find_number(mount.status(), "uploaded_files")
    time.sleep(1.5)
    check(find_number(mount.status(), "uploaded_files") == before and mount.owed() == 0, "uploaded again and again")
    mount.kill() # what the stamps say must be enough
    mount = place.mount().start()
    with open(path, "rb") as f:
        check(f.read() == b"content of " + DEEP + b", changed", "content after a kill")
    with open(other, "rb") as f:
        check(f.read() == b"moved", "content of the moved one")
    mount.umount()
    check(place.stored() == {DEEP: b"content of " + DEEP + b", changed", DEEP[:-1] + b"!": b"moved"},
          f"stored: {[k[-20:] for k in place.stored()]}")
    return f"attributes of {given} bytes"


def names_too_long_for_the_store(work, mode):
    """They are refused when they are made, with what is known to be below them; one byte less is taken."""
    place = Place(work, f"limit-{mode}")
    mount = place.mount().start()
    top = os.fsencode(mount.mountpoint)
    most = 1024 - len(place.prefix)
    long = b"/".join([b"f" * 255] * 3) + b"/" + b"f" * (most - 3 * 256)
    os.makedirs(top + b"/" + os.path.dirname(long))
    for name, make in (("create", lambda p: open(p, "xb").close()), ("mkdir", os.mkdir),
                       ("symlink", lambda p: os.symlink(b"to", p)), ("mknod", os.mknod)):
        check(_errno(make, top + b"/" + long + b"f") == "ENAMETOOLONG", f"{name} of a longer key")
    check(_errno(os.mkdir, top + b"/" + long) == "ENAMETOOLONG", "a directory needs one byte more")
    os.mkdir(top + b"/" + long[:-1])
    with open(top + b"/short", "wb") as f:
        f.write(b"content")
    for name, move in (("rename", os.rename), ("link", os.link)):
        check(_errno(move, top + b"/short", top + b"/" + long + b"f") == "ENAMETOOLONG", f"{name} to a longer key")
    os.rename(top + b"/short", top + b"/" + long)
    os.makedirs(top + b"/d/e")
    with open(top + b"/d/e/12345", "wb") as f:
        f.write(b"deep")
    stem = os.path.dirname(long) + b"/"
    for room, wanted in ((7, "ENAMETOOLONG"), (8, None)): # for /e/12345
        to = stem + b"g" * (most - room - len(stem))
        found = _errno(os.rename, top + b"/d", top + b"/" + to)
        check(found == wanted, f"rename of a directory with room for {room} bytes: {found}")
    mount.umount()
    stored = {k: v for k, v in place.stored().items() if not k.endswith(b"/")}
    check(stored == {long: b"content", to + b"/e/12345": b"deep"}, f"stored: {[k[-30:] for k in stored]}")


def keys_that_are_too_long(work, mode):
    """A key that the server refuses, although it is no longer than S3 allows, is kept, listed, and published once
    it has a shorter name."""
    place = Place(work, f"long-{mode}")
    place.server.key_max = 900
    mount = place.mount().start()
    folder = f"{mount.mountpoint}/" + "/".join(["f" * 230] * 4)
    os.makedirs(folder)
    with open(f"{folder}/f", "wb") as f:
        f.write(b"too long")
    wait_for("a failed upload", lambda: find_number(mount.status(), "failed_files") > 0, 30)
    listed = mount.run("status", "--files", mount.mountpoint).stdout
    check("ff/f" in listed and "KeyTooLong" in listed, f"not listed: {listed}")
    done = mount.run("umount", mount.mountpoint, "--timeout", "2")
    check(done.returncode != 0 and "ff/f" in done.stdout, f"umount: {done.returncode}, {done.stdout}")
    os.rename(f"{folder}/f", f"{mount.mountpoint}/short")
    os.removedirs(folder)
    mount.umount()
    check(place.stored() == {b"short": b"too long"}, f"stored: {place.stored()}")


# ---- a real server ----

def numbers_tell_no_address(work, mode):
    """Anybody may ask the kernel for the number by which the daemon knows a file: it is none of its addresses."""
    place = Place(work, f"numbers-{mode}")
    place.put(b"file", b"x")
    mount = place.mount().start()
    handle = bytearray(struct.pack("=Ii", 128, 0) + bytes(128))
    buffer, mount_id = (ctypes.c_char * len(handle)).from_buffer(handle), ctypes.c_int()
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.name_to_handle_at(-100, os.fsencode(f"{mount.mountpoint}/file"), buffer, ctypes.byref(mount_id), 0)
    check(done == 0, f"name_to_handle_at: {os.strerror(ctypes.get_errno())}")
    high, low = struct.unpack_from("=II", handle, 8)
    number = high << 32 | low
    with open(f"/proc/{mount.process.pid}/maps", encoding="ascii") as maps:
        areas = [[int(x, 16) for x in line.split()[0].split("-")] for line in maps]
    check(not any(start <= number < end for start, end in areas), f"{number:#x} is an address of the daemon")
    mount.umount()


def writes_that_wait(work, mode):
    """A full cache keeps the writes that wait for room, up to a bound: no more memory than that,
    and ENOSPC for the others. What waits goes on when there is room."""
    place = Place(work, f"waiting-{mode}")
    mount = place.mount(options=["cache_size=4M", "store_timeout=60s", "passthrough=off"]).start()
    writers, buffer, results = 320, bytes(1 << 20), {}
    names = [f"{mount.mountpoint}/w{i}" for i in range(writers)]
    files = [os.open(name, os.O_CREAT | os.O_WRONLY) for name in names]
    place.server.silent = b"p/full"
    with open(f"{mount.mountpoint}/full", "wb") as f:
        f.write(buffer * 8)

    def write(name, fd):
        try:
            results[name] = os.write(fd, buffer)
        except OSError as e:
            results[name] = e.errno

    def refused():
        return [name for name, r in list(results.items()) if r == errno.ENOSPC]

    threads = [threading.Thread(target=write, args=args) for args in zip(names, files)]
    for thread in threads:
        thread.start()
    wait_for("writers that are refused", lambda: len(refused()) >= writers - 257, 30)
    check(len(refused()) < writers - 128, f"{len(refused())} of {writers} were refused")
    place.server.silent = None
    wait_for("the writers' end", lambda: not any(thread.is_alive() for thread in threads), 300)
    for name, fd in zip(names, files):
        told = _errno(os.close, fd)
        check(told is None or name in refused(), f"close of {name}: {told}")
    check(set(results.values()) == {errno.ENOSPC, len(buffer)}, f"results: {set(results.values())}")
    check("further ones of that user fail with ENOSPC" in mount.log_tail(10**6), "the log says nothing")
    for name in refused(): # what is cut off is not published
        os.unlink(name)
    mount.umount()
    check(len(place.stored()) == 1 + writers - len(refused()), f"stored: {len(place.stored())}")


def sign_and_put(gateway, key, body):
    """PUT of any key, signed as AWS says, by nothing of ours."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{now[:8]}/{REGION}/s3/aws4_request"
    path = f"/{gateway.bucket}/" + urllib.parse.quote(key, safe="/-_.~")
    host, digest = f"127.0.0.1:{gateway.port}", hashlib.sha256(body).hexdigest()
    canonical = f"PUT\n{path}\n\nhost:{host}\nx-amz-content-sha256:{digest}\nx-amz-date:{now}\n\n" \
                f"host;x-amz-content-sha256;x-amz-date\n{digest}"
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    secret = ("AWS4" + SECRET_KEY).encode()
    for word in scope.split("/"):
        secret = hmac.new(secret, word.encode(), hashlib.sha256).digest()
    signature = hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()
    connection = http.client.HTTPConnection(host, timeout=30)
    try:
        connection.request("PUT", path, body, {
            "x-amz-date": now, "x-amz-content-sha256": digest,
            "Authorization": f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope}, "
                             f"SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature={signature}"})
        return connection.getresponse().status
    finally:
        connection.close()


def at_a_real_server(work, mode):
    """The same over versitygw with the names that it takes."""
    gateway, prefix = work.gateway, mode[0] # DEEP leaves room for one letter
    # XML, in which this server lists, has no control characters and no broken UTF-8.
    texts = [k for k in STRANGE if not any(c in k for c in b"\x01\xff\xfe\xc0\r")]
    taken = [k for k in texts if sign_and_put(gateway, prefix.encode() + b"/" + k, b"content of " + k) == 200]
    check(len(taken) > 25, f"the server takes {len(taken)} of {len(texts)} names")
    sign_and_put(gateway, prefix.encode() + b"/.runfs/x", b"reserved")
    top = work.make(f"real-{mode}")
    mount = work.mount(prefix, OPTIONS[2:] + (["passthrough=off"] if mode == "off" else []), name=f"real-{mode}/mnt",
                       cache=f"real-{mode}/cache")
    work.make(f"real-{mode}", "cache")
    watcher = Watcher(top, ["cache", "mnt", "mnt.log"])
    mount.start()
    files, _ = walk(os.fsencode(mount.mountpoint))
    check(files == {k: b"content of " + k for k in taken}, f"files differ: {_difference(files, taken)}")
    check(_hidden(mount) == 1, f"{_hidden(mount)} hidden")
    expected = _change(os.fsencode(mount.mountpoint), taken)
    mount.umount()
    watcher.check()
    stored = {os.fsencode(k): open(path, "rb").read() for k, path in gateway.objects(prefix).items()}
    check(stored.pop(b".runfs/x") == b"reserved", "the reserved name changed")
    check(stored == expected, f"the store differs: {_difference(stored, expected)}")
    return f"{len(taken)} of {len(texts)} names"


CASES = [the_watcher_sees, every_name, objects_beside_directories, keys_that_do_not_belong, long_names_and_attributes,
         names_too_long_for_the_store, keys_that_are_too_long, numbers_tell_no_address, writes_that_wait]
REAL_CASES = [at_a_real_server]
