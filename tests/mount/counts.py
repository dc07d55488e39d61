"""What programs on a mount cost at the store, by the count of its requests and bytes: cold reads, several
processes, saves, and files of which only a part is read. No clock takes part, but for the one case about a
time that is over. tests/unit/test_cache_counts.c has the same without the kernel; tests/frameworks reads in
part with the libraries themselves. Each case gets a Place."""

import json
import mmap
import os
import struct
import subprocess
import sys
import time
import zipfile

from harness import check, wait_for

MIB = 1 << 20
PART = 8 * MIB
PARTS = 8
GROWING = 3 # requests that the first part is cut into, while the window grows
PASSING = 1 # the kernel's own read-ahead may come in another order than it will be read
BEGINNING = 9 << 17 # 1.125 MiB: what the first read of a file brings
LONG = ["part_size=8M", "attr_timeout=1h", "list_timeout=1h", "entry_timeout=1h", "settle=1h"]

READER = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
sys.stdin.read() # until all are there
size = 0
while data := os.read(fd, 1 << 20):
    size += len(data)
print(size)
"""


def requests(mount):
    return mount.status()["requests"]


class Cost:
    """What a mount has asked of the store since it was made."""

    def __init__(self, mount):
        self.mount, self.before = mount, requests(mount)

    def __call__(self):
        now = requests(self.mount)
        return {k: now[k] - v for k, v in self.before.items() if now[k] != v}


def read(path):
    fd, size = os.open(path, os.O_RDONLY), 0
    while data := os.read(fd, MIB):
        size += len(data)
    os.close(fd)
    return size


def cold_cost(cost):
    """What was spent, once all of it is counted: a reader has the last bytes before that."""
    wait_for("all is counted", lambda: cost().get("bytes_read", 0) >= PARTS * PART)
    return cost()


def check_cold(cost):
    most = PARTS - 1 + GROWING + PASSING
    check(cost.pop("bytes_read") == PARTS * PART, f"bytes: {cost}")
    check(PARTS - 1 < cost["reads"] <= most, f"{cost}, at most {most} reads")
    check(cost.pop("stats", 0) <= 1 and cost.pop("lists", 0) <= 1, f"more than the name was asked: {cost}")
    check(set(cost) == {"requests", "reads"} and cost["requests"] <= cost["reads"] + 2, f"something else: {cost}")


def a_cold_read_asks_for_each_part_once(place):
    place.write_as_others("cold", os.urandom(PARTS * PART))
    m = place.mount(options=LONG)
    cost = Cost(m)
    check(read(f"{m.mountpoint}/cold") == PARTS * PART, "size")
    spent = cold_cost(cost)
    check_cold(dict(spent))
    again = Cost(m)
    read(f"{m.mountpoint}/cold")
    check(not again(), f"the second read: {again()}")
    m.umount()
    return f"{spent['reads']} reads for {PARTS} parts"


def a_version_is_asked_for_once_after_its_time(place):
    place.write_as_others("version", os.urandom(MIB))
    m = place.mount(options=[*LONG, "attr_timeout=3s"])
    read(f"{m.mountpoint}/version")
    time.sleep(3.2)
    cost = Cost(m)
    read(f"{m.mountpoint}/version")
    check(cost() == {"requests": 1, "stats": 1}, f"{cost()}")
    m.umount()


def processes_at_once_ask_as_one(place):
    place.write_as_others("shared", os.urandom(PARTS * PART))
    m = place.mount(options=LONG)
    cost = Cost(m)
    readers = [subprocess.Popen([sys.executable, "-c", READER, f"{m.mountpoint}/shared"], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True) for _ in range(6)]
    for r in readers:
        r.stdin.close()
    sizes = [int(r.stdout.read()) for r in readers]
    for r in readers:
        r.wait()
        r.stdout.close()
    check(sizes == [PARTS * PART] * len(readers), f"sizes: {sizes}")
    spent = cold_cost(cost)
    check_cold(dict(spent))
    m.umount()
    return f"{spent['reads']} reads for {len(readers)} processes"


def _save(path, size):
    with open(path + ".tmp", "wb") as f:
        f.write(os.urandom(size))
    os.rename(path + ".tmp", path)


def a_save_is_one_upload(place):
    """Written, closed and renamed; what is gone before it was sent costs nothing."""
    m = place.mount(options=LONG)
    os.listdir(m.mountpoint)
    cost = Cost(m)
    for i in range(3):
        _save(f"{m.mountpoint}/gone-{i}", 4096 if i else 2 * PART)
        os.unlink(f"{m.mountpoint}/gone-{i}")
    m.flush()
    check(not cost(), f"written and deleted: {cost()}")
    _save(f"{m.mountpoint}/small", 4096)
    m.flush()
    check(cost() == {"requests": 1, "puts": 1, "bytes_written": 4096}, f"small: {cost()}")
    cost, size = Cost(m), 3 * PART + 12345
    _save(f"{m.mountpoint}/large", size)
    m.flush()
    check(cost() == {"requests": 6, "parts": 4, "bytes_written": size}, f"large: begin, parts, complete: {cost()}")
    m.umount()


SMALL = 400


def _threads(pid):
    """How often each of a process's threads has waited, by name: those of a name together."""
    waited = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/status") as f:
                told = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
        except (FileNotFoundError, ProcessLookupError): # it has just ended
            continue
        waited[told["Name"]] = waited.get(told["Name"], 0) + int(told["voluntary_ctxt_switches"])
    return waited


def _idle_threads(pid):
    """The same once every uploader waits, else None."""
    before = _threads(pid)
    time.sleep(0.2)
    now = _threads(pid)
    return now if "runfs-scheduler" in now and before.get("runfs-upload") == now.get("runfs-upload") else None


def small_files_wake_few_threads(place):
    """While files are made and nothing is due, the scheduler sleeps (it looks once a second). While they are
    uploaded it looks every few milliseconds, and waits for a lock now and then; not after each upload."""
    m = place.mount(options=LONG)
    os.mkdir(f"{m.mountpoint}/small")
    before = wait_for("idle uploaders", lambda: _idle_threads(m.process.pid))
    began = time.monotonic()
    for i in range(SMALL):
        with open(f"{m.mountpoint}/small/{i}", "wb") as f:
            f.write(b"s" * 16384)
    made, took = _threads(m.process.pid), time.monotonic() - began
    m.flush()
    stored = _threads(m.process.pid)
    passes = made["runfs-scheduler"] - before["runfs-scheduler"]
    check(passes <= 4 * took + 10, f"{passes} passes of the scheduler in {took:.1f} s for {SMALL} files that are not due")
    check(made["runfs-upload"] == before["runfs-upload"], "uploaders wait for files that are not due")
    passes, took = stored["runfs-scheduler"] - made["runfs-scheduler"], time.monotonic() - began - took
    check(passes <= 1000 * took + 100, f"{passes} passes of the scheduler in {took:.1f} s for {SMALL} uploads")
    m.umount()
    return f"{passes} passes of the scheduler in {took:.2f} s for {SMALL} uploads"


# ---- in part ----

TENSORS, TENSOR = 24, 4 * MIB
WANTED = (17, 3, 11, 22) # in no order


def _tensor(i):
    return struct.pack("<I", i) * (TENSOR // 4)


def _safetensors():
    names = {f"layer.{i:02}": {"dtype": "F32", "shape": [TENSOR // 4],
                               "data_offsets": [i * TENSOR, (i + 1) * TENSOR]} for i in range(TENSORS)}
    header = json.dumps(names).encode()
    return struct.pack("<Q", len(header)) + header + b"".join(_tensor(i) for i in range(TENSORS))


def _read_safetensors(path):
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
        size = struct.unpack_from("<Q", m)[0]
        names = json.loads(m[8:8 + size])
        for i in WANTED:
            first, last = names[f"layer.{i:02}"]["data_offsets"]
            check(m[8 + size + first:8 + size + last] == _tensor(i), f"tensor {i}")


def _zip(path):
    with zipfile.ZipFile(path, "w") as z:
        for i in range(TENSORS):
            z.writestr(f"archive/data/{i}", _tensor(i))


def _read_zip(path):
    """As torch.load(mmap=True) does: every member's header through a buffered file, then some by a mapping."""
    with open(path, "rb") as f, zipfile.ZipFile(f) as z, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
        at = []
        for info in z.infolist():
            f.seek(info.header_offset)
            head = f.read(30)
            at.append(info.header_offset + 30 + sum(struct.unpack_from("<HH", head, 26)))
        for i in WANTED:
            check(m[at[i]:at[i] + TENSOR] == _tensor(i), f"member {i}")


def what_is_read_in_part_comes_in_part(place):
    """What was asked, a quarter of it for the edges, and the beginning of the file; of an archive 64 KiB for
    each member's header besides: two blocks."""
    place.write_as_others("model.safetensors", _safetensors())
    local = place.work.path("model.zip")
    _zip(local)
    with open(local, "rb") as f:
        place.write_as_others("model.zip", f.read())
    m, told = place.mount(options=LONG), []
    for name, call, headers in (("model.safetensors", _read_safetensors, 0), ("model.zip", _read_zip, TENSORS * 64 << 10)):
        cost, asked = Cost(m), len(WANTED) * TENSOR
        call(f"{m.mountpoint}/{name}")
        came = cost()["bytes_read"]
        check(came <= asked * 5 // 4 + BEGINNING + headers, f"{name}: {came} bytes for {asked}")
        told.append(f"{name} {came / asked:.2f} x")
    m.umount()
    return ", ".join(told)


CASES = [a_cold_read_asks_for_each_part_once, a_version_is_asked_for_once_after_its_time, processes_at_once_ask_as_one,
         a_save_is_one_upload, small_files_wake_few_threads, what_is_read_in_part_comes_in_part]
