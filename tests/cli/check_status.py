"""check_status.py FILE [files]: whether a status document has every field, with its type."""

import json
import sys

TEXT, NUMBER, FLAG = str, int, bool
FIELDS = {
    "version": TEXT, "state": TEXT, "pid": NUMBER, "time": TEXT, "uptime_seconds": NUMBER,
    "store": TEXT, "mountpoint": TEXT, "cache_dir": TEXT, "durability": TEXT, "options": TEXT, "read_only": FLAG,
    "queue": {name: NUMBER for name in (
        "dirty_files", "dirty_bytes", "uploading_files", "failed_files", "staged_files",
        "pending_ops", "kept_files", "oldest_seconds")},
    "transfer": {name: NUMBER for name in (
        "uploaded_files", "uploaded_bytes", "downloaded_bytes", "upload_bytes_per_second",
        "download_bytes_per_second")},
    "cache": {name: NUMBER for name in (
        "size_bytes", "used_bytes", "disk_free_bytes", "open_handles", "nodes", "mirror_files",
        "pinned_files", "hidden_names", "waiting_writers", "descriptors", "descriptors_limit", "descriptors_refused")},
    "requests": {name: NUMBER for name in (
        "requests", "failures", "retries", "reads", "puts", "parts", "lists", "stats", "removes",
        "copies", "bytes_read", "bytes_written")},
    "frontend": {"passthrough": FLAG, **{name: NUMBER for name in (
        "parked", "opens_passthrough", "opens_normal", "notifications", "notifications_lost")}},
}
STORE = {"name": TEXT, "url": TEXT, "requests": NUMBER, "failures": NUMBER} # where there are several
FILE = {"kind": TEXT, "path": TEXT, "state": TEXT, "bytes": NUMBER, "bytes_done": NUMBER}
FILE_MORE = {"path2": TEXT, "error": TEXT, "store": TEXT, "route": TEXT, "policy": TEXT} # not of all
ERROR = {"errno": TEXT, "text": TEXT}
STALLED = {"since_seconds": NUMBER, "what": TEXT}
STALLED_WORDS = ("errno", "error", "retried_until") # null without one


def check(where, value, wanted):
    if not isinstance(wanted, dict):
        if type(value) is not wanted:
            sys.exit(f"{where} is {value!r}, not {wanted.__name__}")
        if wanted is NUMBER and value < 0:
            sys.exit(f"{where} is {value}")
        return
    if not isinstance(value, dict):
        sys.exit(f"{where} is no object")
    for name, inner in wanted.items():
        if name not in value:
            sys.exit(f"{where}{name} is missing")
        check(f"{where}{name}.", value[name], inner)


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        status = json.load(f)
    check("", status, FIELDS)
    if status["state"] not in ("starting", "mounted", "draining"):
        sys.exit(f"state is {status['state']}")
    if status["cache"]["trouble"] is not None:
        check("cache.trouble", status["cache"]["trouble"], TEXT)
    for name in ("last_error", "last_read_error"):
        if status[name] is not None:
            check(f"{name}.", status[name], ERROR)
    if status["stalled"] is not None:
        check("stalled.", status["stalled"], STALLED)
        for name in STALLED_WORDS:
            if status["stalled"][name] is not None:
                check(f"stalled.{name}", status["stalled"][name], TEXT)
    for store in status.get("stores", []):
        check("stores.", store, STORE)
        if set(store) - {*STORE, "stalled"}:
            sys.exit(f"fields that nobody knows: {sorted(store)}")
    if "files" in sys.argv:
        check("files_truncated", status["files_truncated"], FLAG)
        for entry in status["files"]:
            check("files.", entry, FILE)
            check("files.", entry, {name: kind for name, kind in FILE_MORE.items() if name in entry})
            if set(entry) - {*FILE, *FILE_MORE}:
                sys.exit(f"fields that nobody knows: {sorted(entry)}")
    known = {*FIELDS, "stores", "stalled", "last_error", "last_read_error", "files", "files_truncated", "asked"}
    if set(status) - known:
        sys.exit(f"fields that nobody knows: {sorted(set(status) - known)}")


main()
