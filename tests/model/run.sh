#!/usr/bin/env bash
# Random operations in processes that are killed, beside a model, over three stores: a folder, a
# folder whose renames are copies, and a real S3 server; see main.c. The crash points that none of
# the processes died at are named.
# presets: debug asan tsan
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${RUNFS_BUILD:-$here/../../build/debug}
model=$build/tests/crash_model
count=${MODEL_SEQUENCES:-50}
case ${build##*/} in asan | tsan) count=$((count / 5)) ;; esac
# The same sequences each time: a failure is one of the change that is checked. Other ones are for
# the nights, when each commit has its own.
seed=1
if [ -n "${RUNFS_NIGHTLY:-}" ]; then
    commit=$(git -C "$here" rev-parse --short=7 HEAD 2>/dev/null || echo 1)
    seed=$((16#${commit:0:7}))
fi
seed=${MODEL_SEED:-$seed}
# In memory where that takes extended attributes: a disk's fsync is not what is tested.
dir=$(TMPDIR=/dev/shm mktemp -d -t runfs-model.XXXXXX 2>/dev/null || mktemp -d -t runfs-model.XXXXXX)
if ! python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.runfs", b"1")' "$dir" 2>/dev/null; then
    rmdir "$dir"
    dir=$(mktemp -d -t runfs-model.XXXXXX)
fi
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0

# run NAME COMMAND...: counts the sequences of one run.
run() {
    local name=$1 log=$dir/$1.log result=0
    shift
    mkdir -p "$dir/$name"
    "$@" >"$log" 2>&1 || result=$?
    sed "s/^/$name: /" "$log"
    read -r all bad < <(sed -n 's/^\([0-9]*\) sequences, \([0-9]*\) failed$/\1 \2/p' "$log") || all=0 bad=1
    [ "$result" -eq 0 ] || [ "$bad" -gt 0 ] || bad=1
    passed=$((passed + all - bad)) failed=$((failed + bad))
}

echo "seed $seed (MODEL_SEED), $count sequences each (MODEL_SEQUENCES)"
mkdir "$dir/store" "$dir/native-store"
run copies env MODEL_ERRORS=1 "$model" "file://$dir/store" "$dir/copies" "$seed" "$count"
run native env MODEL_NATIVE_RENAME=1 "$model" "file://$dir/native-store" "$dir/native" "$((seed + 100000))" "$count"
run s3 "$here/../servers/with_s3.sh" "$model" s3://runfs-test/model "$dir/s3" "$((seed + 200000))" "$count"

points=$(grep -oh 'crash_point("[a-z-]*")' "$here"/../../cache/*.c | cut -d'"' -f2 | sort -u)
for point in $points; do
    grep -qE "^died at:.* $point " "$dir"/*.log || echo "no process died at $point this time"
done
echo "model: $passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
