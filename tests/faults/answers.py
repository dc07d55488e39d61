"""One answer in so many is not what the server said: a proxy in front of the real server alters,
cuts, delays, repeats or refuses, while writers and readers work in the mount.

What must hold with each fault: who reads gets the right bytes or an error, never others; a listing
is whole or an error; the store holds only what somebody closed, at any moment; log and status name
the cause; and when the fault goes, all is published and readable with nothing done to the mount.
"""

import errno
import os
import re
import shutil
import threading
import time
from dataclasses import dataclass

import harness
import http_proxy as h
from harness import Failure, Gateway, check, wait_for
from place import MIB, content, digest

SMALL, LARGE = 20_000, 12 * MIB
SEEDS = [*(f"small-{i}" for i in range(6)), *(f"moved-{i}" for i in range(3)),
         *(f"gone-{i}" for i in range(3)), *(f"again-{i}" for i in range(3)), "large-0", "large-1"]
COLD = [f"cold-{i}" for i in range(8)]
COLD_NAMES = list("abc")
TREE = ["tree/a", "tree/sub/b"]
ROUNDS = 9  # of the writer
# What a caller may be told while the store fails.
TOLD = {errno.EIO, errno.EPROTO, errno.ETIMEDOUT, errno.ESTALE, errno.ECONNRESET, errno.ECONNREFUSED,
        errno.EHOSTUNREACH, errno.EACCES, errno.ENXIO}


def seed_size(name):
    return LARGE if name.startswith("large") else SMALL


def planted_files():
    return {**{f"seed/{n}": seed_size(n) for n in SEEDS}, **{f"{c}/{n}": SMALL for c in COLD for n in COLD_NAMES},
            **{n: SMALL for n in TREE}}


def plant(work):
    """What the cases find in the store, made once by a mount that nothing disturbs; {name: digest}."""
    files = planted_files()
    if not work.gateway.objects("planted"):
        m = work.mount("planted", name="planter", cache="cache-planter").start()
        for name, size in files.items():
            os.makedirs(os.path.join(m.mountpoint, os.path.dirname(name)), exist_ok=True)
            with open(os.path.join(m.mountpoint, name), "wb") as f:
                f.write(content(name, size))
        m.umount(120)
    return {name: digest(content(name, size)) for name, size in files.items()}


class Scene:
    """A mount over its own copy of what was planted, behind an HttpProxy, with a writer, a reader
    and a watcher of the store."""

    def __init__(self, work, name, options, planted, gateway=None, env=None):
        self.work, self.name, self.gateway = work, name, gateway or work.gateway
        self.folder = os.path.join(self.gateway.folder, "data", self.gateway.bucket, name)
        shutil.copytree(os.path.join(work.gateway.folder, "data", work.gateway.bucket, "planted"), self.folder)
        self.proxy = h.HttpProxy(self.gateway.port).start()
        self.options = ("upload_interval=0", "store_timeout=2s", "ask_timeout=2s", "attr_timeout=1m",
                        "list_timeout=1m", "part_size=5M", *options)
        self.mount = self.new_mount(f"cache-{name}", env)
        self.now = dict(planted)  # what each name holds; None: removed
        self.ever = {key: {value} for key, value in planted.items()}
        self.ended = threading.Event()
        self.wrong = []
        self.told = {}  # errno: how often
        self.done = 0
        self.threads = []
        self.lock = threading.Lock()

    def new_mount(self, cache, env=None):
        return self.work.mount(self.name, self.options, name=f"mnt-{self.name}", cache=cache,
                               endpoint=self.proxy.endpoint, env=env)

    def __enter__(self):
        self.mount.start()
        return self

    def __exit__(self, *exception):
        self.ended.set()
        self.proxy.clear()
        for thread in self.threads:
            thread.join(30)
        self.mount.kill()
        self.proxy.stop()
        if exception[0] and issubclass(exception[0], (Failure, OSError)):
            print(f"        {self.name}'s log: {self.mount.log_tail(1500)}", flush=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        for cache in (f"cache-{self.name}", f"cold-{self.name}"):
            shutil.rmtree(self.work.path(cache), ignore_errors=True)

    def path(self, name):
        return os.path.join(self.mount.mountpoint, name)

    # ---- what works while the fault is on ----

    def start(self, *what):
        for function in what:
            thread = threading.Thread(target=self.guarded, args=(function,), daemon=True)
            thread.start()
            self.threads.append(thread)

    def guarded(self, function):
        try:
            function()
        except (Failure, OSError) as e:
            self.wrong.append(f"{function.__name__}: {type(e).__name__}: {e}")

    def note(self, e, what):
        """An error that a caller got."""
        check(e.errno in TOLD, f"{what}: {e}: no answer for a store that fails")
        with self.lock:
            self.told[e.errno] = self.told.get(e.errno, 0) + 1

    def put(self, name, size, version=""):
        """Writes a file. A close() that tells of an earlier failure keeps what was written, too."""
        data = content(f"{self.name}/{name}/{version}", size)
        with self.lock:
            self.ever.setdefault(name, set()).add(digest(data))
        fd = os.open(self.path(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            for off in range(0, size, MIB):
                os.write(fd, data[off:off + MIB])
        finally:
            try:
                os.close(fd)
            except OSError as e:
                self.note(e, f"close of {name}")
        self.now[name] = digest(data)

    def insist(self, what, call, *arguments):
        """Tries until it works, as a patient caller does; each failure must be one of those told."""
        end = time.monotonic() + 60
        while not self.ended.is_set():
            try:
                return call(*arguments)
            except OSError as e:
                self.note(e, what)
                check(time.monotonic() < end, f"{what}: {e}, also when the fault was long gone")
                time.sleep(0.2)

    def write(self):
        """New files, large ones, overwrites, renames and removals of what the store has."""
        self.insist("mkdir", os.mkdir, self.path("new"))
        for i in range(ROUNDS):
            if self.ended.is_set():
                return
            self.insist("a new file", self.put, f"new/file-{i}", SMALL + i)
            if i % 4 == 1:
                self.insist("a large file", self.put, f"new/large-{i}", LARGE + i)
            if i < 3:
                self.insist("an overwrite", self.put, f"seed/again-{i}", SMALL * 2, "second")
                self.insist("unlink", os.unlink, self.path(f"seed/gone-{i}"))
                self.now[f"seed/gone-{i}"] = None
                self.ever[f"new/moved-{i}"] = set(self.ever[f"seed/moved-{i}"])
                self.insist("rename", os.rename, self.path(f"seed/moved-{i}"), self.path(f"new/moved-{i}"))
                self.now[f"new/moved-{i}"] = self.now[f"seed/moved-{i}"]
                self.now[f"seed/moved-{i}"] = None
            self.done += 1
            time.sleep(0.05)

    def read(self):
        """Every file that only the store has, and folders that were never listed."""
        names = [f"seed/{n}" for n in SEEDS if n.startswith(("small", "large"))]
        for name, folder in zip(names, COLD):
            for call, what in ((self.read_one, name), (self.list_one, folder)):
                if self.ended.is_set():
                    return
                try:
                    call(what)
                except OSError as e:
                    self.note(e, what)

    def read_one(self, name):
        with open(self.path(name), "rb") as f:
            data = f.read()
        check(digest(data) == self.now[name], f"{name} reads as what it is not, {len(data)} bytes")

    def list_one(self, folder):
        names = sorted(os.listdir(self.path(folder)))
        check(names == COLD_NAMES, f"{folder} lists {names}")

    def watch(self):
        """The store, all the time: what it shows is something that was closed."""
        seen = {}
        while not self.ended.is_set():
            for key, path in self.gateway.objects(self.name).items():
                try:
                    st = os.stat(path)
                    mark = (st.st_ino, st.st_mtime_ns, st.st_size)
                    if seen.get(key) == mark:
                        continue
                    with open(path, "rb") as f:
                        value = digest(f.read())
                except OSError:
                    continue
                with self.lock:
                    known = value in self.ever.get(key, ())
                if not known:
                    check(not os.path.exists(path) or os.stat(path).st_ino != st.st_ino,
                          f"the store shows {key} with a content that nobody closed, {st.st_size} bytes")
                seen[key] = mark
            time.sleep(0.2)

    # ---- what must hold ----

    def patient(self, call, *arguments):
        """Without a fault: a busy machine may take longer than the 2 s that this mount waits for an answer."""
        end = time.monotonic() + 30
        while True:
            try:
                return call(*arguments)
            except OSError as e:
                self.note(e, str(arguments))
                check(time.monotonic() < end, f"{arguments}: {e}, though nothing fails")
                time.sleep(1.1) # a failure answers those who ask the same for a second

    def warm(self):
        """The names are known, as in a mount that is in use; no content is."""
        check(sorted(self.patient(os.listdir, self.path("seed"))) == sorted(SEEDS), "the seeds differ")
        self.patient(os.listdir, self.mount.mountpoint)

    def log(self):
        with open(self.mount.log, errors="replace") as f:
            return f.read()

    def named(self, cause, errors):
        """The log names the cause, and so does each of these fields of the status."""
        def everywhere():
            status = self.mount.status()
            return re.search(cause, self.log()) and \
                all(status[e] and re.search(cause, status[e]["text"]) for e in errors)
        try:
            wait_for("", everywhere, 15, 0.3)
        except Failure:
            status = self.mount.status()
            raise Failure(f"nobody names \"{cause}\": {[status[e] for e in errors]}") from None

    def flushed(self):
        """One flush may end by a refusal that was under way when they ended."""
        return self.mount.run("flush", self.mount.mountpoint, "--staged", "--timeout", "60", seconds=80).returncode == 0

    def healed(self):
        """The fault is gone: everything is published and right by itself."""
        self.proxy.clear()
        for thread in self.threads:
            if thread.name != "watch":
                thread.join(0.1)
        wait_for("the writer ends", lambda: self.done >= ROUNDS or self.wrong, 40)
        wait_for("a flush of all", self.flushed, 60, 0.5)
        self.ended.set()
        for thread in self.threads:
            thread.join(30)
        check(not self.wrong, "; ".join(self.wrong))
        self.all_stored()
        for name in SEEDS:
            if self.now[f"seed/{name}"]:
                self.patient(self.read_one, f"seed/{name}")
        for folder in COLD:
            self.patient(self.list_one, folder)
        self.mount.umount(60)

    def all_stored(self):
        found = self.gateway.objects(self.name)
        for name, value in self.now.items():
            if value is None:
                check(name not in found, f"the store still has {name}")
                continue
            check(name in found, f"the store lacks {name}")
            with open(found[name], "rb") as f:
                check(digest(f.read()) == value, f"the store has another {name}")
        check(set(found) <= set(self.now), f"the store has more: {set(found) - set(self.now)}")


@dataclass
class Fault:
    kinds: set
    make: object            # () -> action
    cause: str = None       # what log and status say; None: nothing fails
    errors: tuple = ()      # the fields of the status that say it
    every: int = 1
    seconds: float = 0.0    # how long it lasts at least
    options: tuple = ()
    hits: int = 1           # it proves something only when it hit so often


UP, DOWN = ("last_error",), ("last_read_error",)
CHANGES = {"put", "part", "begin", "complete", "copy", "delete"}


def always(action):
    return lambda: action


ANSWERS = {
    "longer-than-told": Fault({"get"}, always(h.shorter), "checksum|another range|Content-Length", DOWN),
    "shorter-than-told": Fault({"get"}, always(h.longer), "", DOWN),
    "truncated": Fault({"get"}, always(h.truncated), "", DOWN),
    "truncated-listing": Fault({"list"}, always(h.truncated), "", DOWN),
    "other-etag": Fault({"get"}, always(h.other_etag), "is version", DOWN),
    "other-etag-of-a-write": Fault({"put", "complete", "copy"}, always(h.other_etag), hits=8),
    "other-range": Fault({"get"}, always(h.other_range), "another range|Content-Range", DOWN),
    "endless-body": Fault({"get", "list"}, always(h.endless_body), "more bytes|larger than|Content-Length", DOWN),
    "endless-body-of-a-write": Fault({"put", "part", "complete"}, always(h.endless_body), "larger than", UP),
    "huge-headers": Fault(h.ALL, always(h.huge_headers), "headers", UP + DOWN),
    "one-huge-header": Fault(h.ALL, always(h.one_huge_header), "", UP + DOWN),
    "garbage-listing": Fault({"list"}, always(h.garbage), "no usable XML", DOWN),
    "garbage-xml": Fault({"begin", "complete"}, always(h.garbage), "", UP),
    "deep-xml": Fault({"list"}, always(h.deep), "no usable XML", DOWN),
    "doctype": Fault({"list"}, always(h.doctype), "no usable XML", DOWN),
    "looping-token": Fault({"list"}, h.looping_token, "repeats its pages", DOWN),
    "two-tokens": Fault({"list"}, h.two_tokens, "repeats its pages", DOWN),
    "fresh-tokens": Fault({"list"}, h.fresh_tokens, "repeats its pages", DOWN),
    "endless-pages": Fault({"list"}, always(h.endless_pages), "repeats its pages|time limit", DOWN),
    "error-in-200": Fault({"complete", "copy", "put", "list"}, always(h.error_in_200), "InternalError", UP + DOWN),
    "delivered-twice": Fault(CHANGES, always(h.twice), hits=8),
    "answers-lost": Fault(CHANGES, always(h.answer_lost), every=2, seconds=3, hits=8),
    "complete-that-is-none": Fault({"complete"}, h.pretended, "is not there", UP, hits=2),
    "requests-cut": Fault(CHANGES, always(h.cut_request), every=2, seconds=3, hits=8),
    "slow-down": Fault(h.ALL, lambda: h.storm(), "SlowDown|503|wants a pause", UP + DOWN, seconds=4),
    "slow-down-for-a-second": Fault(h.ALL, lambda: h.storm(1), "SlowDown|503|wants a pause", UP + DOWN, seconds=4),
    "slow-down-beyond-patience": Fault(h.ALL, lambda: h.storm(8), "wants a pause", UP + DOWN),
    "server-error": Fault(h.ALL, lambda: h.refusal("500 Internal Server Error", "InternalError", "Oops."),
                          "500", UP + DOWN),
    "access-denied": Fault(h.ALL, lambda: h.refusal("403 Forbidden", "AccessDenied", "Access Denied."),
                           "AccessDenied|403", UP + DOWN),
    "not-s3": Fault(h.ALL, lambda: h.page("200 OK", b"ok", "text/plain"), "not S3's answer|no usable XML", UP + DOWN,
                    seconds=3),
    "no-route": Fault(h.ALL, lambda: h.page("404 Not Found", b"<html>no route</html>"), "no such bucket", UP + DOWN,
                      seconds=3),
    "latency": Fault(h.ALL, lambda: h.late(0.4), hits=30),
    "black-hole": Fault(h.ALL, always(h.silence), "", UP + DOWN, seconds=4),
    "black-hole-of-reads": Fault({"get"}, always(h.silence), "", DOWN),
}


def answer(work, name, planted, fault):
    with Scene(work, name, fault.options, planted) as s:
        s.warm()
        rule = s.proxy.rule(fault.kinds, fault.make(), every=fault.every)
        started = time.monotonic()
        s.start(s.write, s.read, s.watch)
        wait_for("the fault", lambda: rule.hits >= fault.hits or s.wrong, 30)
        if fault.cause is not None:
            s.named(fault.cause, fault.errors)
        time.sleep(max(0.0, fault.seconds - (time.monotonic() - started)))
        s.healed()
        return f"hit {rule.hits} times; told {', '.join(errno.errorcode[e] for e in s.told) or 'nobody'}"


def everything_at_once(work, name, planted):
    """Many faults, each now and then: whoever is patient gets everything right."""
    with Scene(work, name, (), planted) as s:
        s.warm()
        reads = [h.shorter, h.longer, h.truncated, h.other_etag, h.other_range, h.endless_body, h.answer_lost]
        changes = [h.twice, h.answer_lost, h.cut_request, h.other_etag, h.huge_headers, h.garbage]
        lists = [h.truncated, h.garbage, h.doctype, h.error_in_200, h.looping_token()]
        rules = [s.proxy.rule(kinds, action, every=every)
                 for kinds, actions in (({"get"}, reads), (CHANGES, changes), ({"list"}, lists), (h.ALL, [h.storm()]))
                 for every, action in zip((5, 7, 11, 13, 17, 19, 23), actions)]
        s.start(s.write, s.read, s.read, s.watch)
        wait_for("the writer ends", lambda: s.done >= ROUNDS or s.wrong, 60)
        hits = sum(rule.hits for rule in rules)
        s.healed()
        check(hits > 10, f"only {hits} faults: the case proves nothing")
        return f"{hits} faults; told {', '.join(errno.errorcode[e] for e in s.told) or 'nobody'}"


# ---- the server goes away, with the bucket, or refuses the keys ------------------------------


class OwnServer:
    """A server that a case may kill without hurting others."""

    def __init__(self, work, name, users=False):
        self.gateway = Gateway(work.make(f"s3-{name}"))
        if users:
            self.gateway.keep_users()
        self.lock = threading.Lock()

    def __enter__(self):
        self.gateway.start()
        return self

    def __exit__(self, *exception):
        with self.lock:
            self.gateway.stop()
        shutil.rmtree(self.gateway.folder, ignore_errors=True)

    def restart(self, seconds=0.5):
        with self.lock:
            self.gateway.kill()
            time.sleep(seconds)
            self.gateway.start()


def server_killed(work, name, planted):
    """Killed in the middle of each kind of request, and after its effect but before its answer."""
    moments = [("list", "half"), ("get", "half"), ("get", "request"), ("put", "middle"), ("put", "effect"),
               ("part", "middle"), ("complete", "middle"), ("complete", "effect"), ("copy", "middle"),
               ("copy", "effect"), ("delete", "effect")]
    with OwnServer(work, name) as own, Scene(work, name, ("store_timeout=20s", "ask_timeout=20s"), planted,
                                             own.gateway) as s:
        s.warm()
        rules = {(kind, moment): s.proxy.rule({kind}, h.then(moment, own.restart), count=1)
                 for kind, moment in moments}
        s.start(s.write, s.read, s.watch)
        wait_for("all kills", lambda: s.wrong or all(r.hits for r in rules.values()), 180)
        s.healed()
        return f"killed {len(moments)} times; told {', '.join(errno.errorcode[e] for e in s.told) or 'nobody'}"


def bucket_gone(work, name, planted):
    """The bucket is gone, and comes back: no name is taken for removed."""
    with OwnServer(work, name) as own, Scene(work, name, (), planted, own.gateway) as s:
        s.warm()
        bucket = os.path.join(own.gateway.folder, "data", own.gateway.bucket)
        os.rename(bucket, bucket + ".away")
        s.start(s.write, s.read, s.watch)
        s.named("NoSuchBucket|no such bucket", UP + DOWN)
        check(set(os.listdir(s.path("seed"))) >= {n for n in SEEDS if n.startswith(("small", "large"))},
              "names went with the bucket")
        # A HEAD's 404 does not tell a missing bucket from a missing key, the next request does: the
        # bucket does not come back between the two.
        s.proxy.rule(h.ALL, h.storm())
        time.sleep(2.5) # longer than any request takes here
        os.rename(bucket + ".away", bucket)
        s.healed()
        return f"told {', '.join(errno.errorcode[e] for e in s.told) or 'nobody'}"


def changed_without_a_store(work, name, planted, hide):
    """What is renamed and chmodded while the store finds nothing is done when it is back."""
    with OwnServer(work, name) as own, Scene(work, name, (), planted, own.gateway) as s:
        s.warm()
        for folder in ("tree", "tree/sub"):
            s.patient(os.listdir, s.path(folder))
        kept = s.proxy.rule(CHANGES, h.refusal("500 Internal Server Error", "InternalError", "Oops."))
        os.rename(s.path("seed/small-0"), s.path("seed/renamed"))
        os.rename(s.path("tree"), s.path("grove"))
        os.chmod(s.path("seed/small-1"), 0o640)
        show = hide(s, own)
        s.proxy.rules = [r for r in s.proxy.rules if r is not kept]
        s.named("NoSuchBucket|no such bucket", UP)
        time.sleep(3)  # each is tried, and again
        show()
        s.mount.flush(60)
        for old, new in (("seed/small-0", "seed/renamed"), ("tree/a", "grove/a"), ("tree/sub/b", "grove/sub/b")):
            s.now[new], s.now[old] = s.now[old], None
        s.all_stored()
        s.mount.umount(60)
        s.mount = s.new_mount(f"cold-{name}")
        s.mount.start()
        mode = s.patient(os.stat, s.path("seed/small-1")).st_mode & 0o7777
        check(mode == 0o640, f"the chmod was dropped: {mode:o}")
        for file in ("seed/renamed", "grove/a", "grove/sub/b", "seed/small-1"):
            s.patient(s.read_one, file)
        s.mount.umount(60)


def changed_without_a_bucket(work, name, planted):
    def hide(scene, own):
        bucket = os.path.join(own.gateway.folder, "data", own.gateway.bucket)
        os.rename(bucket, bucket + ".away")

        def show():
            scene.proxy.rule(h.ALL, h.storm())  # not between a HEAD and the listing that settles it
            time.sleep(2.5)
            os.rename(bucket + ".away", bucket)
            scene.proxy.clear()
        return show
    changed_without_a_store(work, name, planted, hide)


def changed_without_a_route(work, name, planted):
    def hide(scene, own):
        scene.proxy.rule(h.ALL, h.page("404 Not Found", b"<html>no route</html>"))
        return scene.proxy.clear
    changed_without_a_store(work, name, planted, hide)


def issue_keys(path, access, secret):
    """Writes the credentials file, as whatever renews keys does."""
    with open(path + ".new", "w") as f:
        f.write(f"[default]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\n")
    os.rename(path + ".new", path)


def environment_with(path):
    env = {k: v for k, v in harness.s3_environment().items() if k not in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    return {**env, "AWS_SHARED_CREDENTIALS_FILE": path}


def keys_revoked(work, name, planted):
    """The server knows the account no more, and then knows it again."""
    keys, user = work.path(f"{name}.credentials"), ("--access", "nodekey", "--secret", "nodesecret", "--role", "admin")
    issue_keys(keys, "nodekey", "nodesecret")
    with OwnServer(work, name, users=True) as own:
        own.gateway.admin("create-user", *user)
        with Scene(work, name, (), planted, own.gateway, environment_with(keys)) as s:
            s.warm()
            own.gateway.admin("delete-user", "--access", "nodekey")
            own.restart(0)  # it remembers accounts for a while
            s.start(s.write, s.read, s.watch)
            s.named("XAdminUserNotFound|InvalidAccessKeyId|403", UP + DOWN)
            own.gateway.admin("create-user", *user)
            s.healed()
            return f"told {', '.join(errno.errorcode[e] for e in s.told) or 'nobody'}"


def token_expired(work, name, planted):
    """The keys end between an upload's parts and its Complete; only later there are others."""
    keys = work.path(f"{name}.credentials")
    issue_keys(keys, harness.ACCESS_KEY, harness.SECRET_KEY)
    with OwnServer(work, name, users=True) as own:
        own.gateway.admin("create-user", "--access", "newkey", "--secret", "newsecret", "--role", "admin")
        with Scene(work, name, (), planted, own.gateway, environment_with(keys)) as s:
            s.warm()
            s.proxy.rule({"complete"}, expired_from_now(s, harness.ACCESS_KEY))
            s.start(s.write, s.watch)
            s.named("ExpiredToken", UP)
            s.start(s.read)
            s.named("ExpiredToken|keys are that have ended", DOWN)
            issue_keys(keys, "newkey", "newsecret")
            s.healed()
            return f"told {', '.join(errno.errorcode[e] for e in s.told) or 'nobody'}"


def expired_from_now(scene, key):
    """From the first Complete on everything that is signed with this key is refused."""
    refuse = h.expired(key)

    async def action(exchange):
        scene.proxy.rules = []
        scene.proxy.rule(h.ALL, refuse)
        await refuse(exchange)
    return action


CASES = {**{name: lambda work, case, planted, fault=fault: answer(work, case, planted, fault)
            for name, fault in ANSWERS.items()},
         "everything-at-once": everything_at_once, "server-killed": server_killed,
         "bucket-gone": bucket_gone, "bucket-gone-under-changes": changed_without_a_bucket,
         "no-route-under-changes": changed_without_a_route, "keys-revoked": keys_revoked, "token-expired": token_expired}
