#!/usr/bin/env bash
# Shows runfs at work in a minute: builds it, mounts three local folders as one tree, writes a
# run through the mount, and finds its checkpoints, its log and its metadata each in its folder.
# Leaves nothing behind but the build.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/scripts/lib.sh"
cd "$top"

work=
runfs=$top/build/release/runfs

# show COMMAND...: prints the command as one would type it, then runs it.
show() {
    local line="$*"
    line=${line//"$work/"/}
    printf '\n$ %s\n' "${line//"$runfs"/runfs}"
    "$@"
}

# The cache needs a file system with extended attributes; a small or old /tmp may have none.
make_work() {
    local parent
    # As root the folder may be where others own the directories above it: no place for a cache.
    for parent in "${TMPDIR:-/tmp}" /var/tmp "$top/build"; do
        work=$(mktemp -d "$parent/runfs-demo.XXXXXX")
        if python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.demo", b"1")' "$work" 2>/dev/null; then
            return 0
        fi
        rmdir "$work"
    done
    work=
    die "none of ${TMPDIR:-/tmp}, /var/tmp and $top/build is on a file system with extended attributes"
}

cleanup() {
    local result=$?
    if [ -n "$work" ]; then
        cd "$top"
        if grep -q " $work/mnt fuse.runfs " /proc/self/mounts; then
            "$runfs" umount "$work/mnt" --timeout 20 >/dev/null 2>&1 ||
                fusermount3 -u -z "$work/mnt" || true
        fi
        rm -rf --one-file-system "$work"
    fi
    if [ "$result" -ne 0 ]; then
        printf '\nFAILED: see the last lines above\n'
    fi
}

write_config() {
    cat >"$work/training.json" <<JSON
{
  "stores": {
    "ckpt": {"url": "$work/store-ckpt"},
    "logs": {"url": "$work/store-logs"},
    "meta": {"url": "$work/store-meta"}
  },
  "routes": [
    {"path": "runs/{run}/checkpoint/**", "store": "ckpt", "key": "{run}/**", "policy": "checkpoint"},
    {"path": "runs/{run}/logs/**", "store": "logs", "key": "{run}/**", "policy": "logs"},
    {"path": "runs/{run}/metadata/**", "store": "meta", "key": "{run}/**", "policy": "metadata"}
  ]
}
JSON
}

write_run() {
    python3 - "$work/mnt/runs/run-1" <<'PYTHON'
import json, os, sys

run = sys.argv[1]
for part in "checkpoint", "logs", "metadata":
    os.makedirs(f"{run}/{part}")
with open(f"{run}/metadata/params.json", "w") as f:
    json.dump({"learning_rate": 0.001}, f)
with open(f"{run}/logs/train.log", "w") as log:
    # As trainers do: write under a temporary name, sync, rename.
    for step in 100, 200:
        path = f"{run}/checkpoint/step-{step}.pt"
        with open(path + ".tmp", "wb") as f:
            f.write(os.urandom(16 << 20))
            os.fsync(f.fileno())
        os.rename(path + ".tmp", path)
        log.write(f"step {step} saved\n")
print(f"2 checkpoints of 16 MiB, a log and metadata written to {run}")
PYTHON
}

same_tree() {
    printf '\n$ diff -r %s %s\n' "$1" "$2"
    diff -r "$1" "$2" || die "$1 and $2 differ"
    echo "the same, byte for byte"
}

trap cleanup EXIT
say "installing what is missing"
scripts/deps.sh demo
problem=$(fuse_problem)
[ -z "$problem" ] || die "$problem"
say "building (log: build/demo.log)"
mkdir -p build
scripts/build.sh release runfs >build/demo.log 2>&1 || {
    tail -n 30 build/demo.log
    die "the build failed"
}
make_work
mkdir "$work/store-ckpt" "$work/store-logs" "$work/store-meta" "$work/mnt"
write_config
cd "$work"

printf '\n=== Three folders are the stores of one tree; in earnest they are s3://bucket/prefix and the like\n'
show cat "$work/training.json"
show "$runfs" check "$work/training.json"
show "$runfs" mount -o cache_dir="$work/cache" "$work/training.json" "$work/mnt"

printf '\n=== A training job writes a run into the mount\n'
write_run
show ls -R mnt
show "$runfs" status "$work/mnt"

printf '\n=== Unmounting returns when everything is in the stores, as plain files\n'
show "$runfs" umount "$work/mnt"
show find store-ckpt store-logs store-meta -type f -printf '%10s %p\n'

printf '\n=== Another machine, with an empty cache, loads it\n'
show "$runfs" mount -o cache_dir="$work/cache2" "$work/training.json" "$work/mnt"
same_tree mnt/runs/run-1/checkpoint store-ckpt/run-1
same_tree mnt/runs/run-1/logs store-logs/run-1
same_tree mnt/runs/run-1/metadata store-meta/run-1
[ "$(find mnt/runs/run-1 -type f | wc -l)" -eq 4 ] || die "4 files were written"
[ "$(find store-ckpt store-logs store-meta -type f | wc -l)" -eq 4 ] || die "4 files were to be stored"
show "$runfs" url "$work/mnt/runs/run-1/logs/train.log"
show "$runfs" umount "$work/mnt"

cat <<NEXT

Next: mount a bucket
    export AWS_PROFILE=...      # or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
    $runfs mount s3://BUCKET/PREFIX MOUNTPOINT
README.md goes on from here; ./check.sh runs every test.

PASSED: the demo's run went through one mount into three stores and back
NEXT
