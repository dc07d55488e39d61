#!/usr/bin/env bash
# Shows runfs at work in a minute: builds it, mounts a local folder as the store, writes a
# checkpoint through the mount, and finds it in the store. Leaves nothing behind but the build.
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
        if grep -q " $work/runs fuse.runfs " /proc/self/mounts; then
            "$runfs" umount "$work/runs" --timeout 20 >/dev/null 2>&1 ||
                fusermount3 -u -z "$work/runs" || true
        fi
        rm -rf --one-file-system "$work"
    fi
    if [ "$result" -ne 0 ]; then
        printf '\nFAILED: see the last lines above\n'
    fi
}

write_checkpoint() {
    python3 - "$work/runs/run-1/checkpoint" <<'PYTHON'
import json, os, sys

folder = sys.argv[1]
os.makedirs(folder)
# As trainers do: write under a temporary name, sync, rename.
for step in 100, 200:
    path = f"{folder}/step-{step}.pt"
    with open(path + ".tmp", "wb") as f:
        f.write(os.urandom(16 << 20))
        os.fsync(f.fileno())
    os.rename(path + ".tmp", path)
    with open(f"{folder}/trainer_state.json", "w") as f:
        json.dump({"step": step, "latest": os.path.basename(path)}, f)
print(f"2 checkpoints of 16 MiB written to {folder}")
PYTHON
}

same_tree() {
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
mkdir "$work/store" "$work/runs"
cd "$work"

printf '\n=== A folder is the store; in earnest it is s3://bucket/prefix\n'
show "$runfs" mount -o cache_dir="$work/cache" "file://$work/store" "$work/runs"

printf '\n=== A training job writes checkpoints into the mount\n'
write_checkpoint
show ls -l "$work/runs/run-1/checkpoint"
show "$runfs" status "$work/runs"

printf '\n=== Unmounting returns when everything is in the store, as plain files\n'
show "$runfs" umount "$work/runs"
show find "$work/store" -type f -printf '%10s %P\n'

printf '\n=== Another machine, with an empty cache, loads it\n'
show "$runfs" mount -o cache_dir="$work/cache2" "file://$work/store" "$work/runs"
printf '\n$ diff -r runs/run-1 store/run-1\n'
same_tree "$work/runs/run-1" "$work/store/run-1"
[ "$(find "$work/runs/run-1" -type f | wc -l)" -eq 3 ] || die "3 files were written"
show "$runfs" umount "$work/runs"

cat <<NEXT

Next: mount a bucket
    export AWS_PROFILE=...      # or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
    $runfs mount s3://BUCKET/PREFIX MOUNTPOINT
README.md goes on from here; ./check.sh runs every test.

PASSED: the demo's checkpoints went through the mount into the store and back
NEXT
