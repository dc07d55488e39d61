#!/usr/bin/env bash
# Random operations in processes that are killed, beside a model, over four stores: a folder
# whose renames are copies (once more with moves alone), a folder, several folders with routes to them, and a
# real S3 server; see main.c. The crash points that none of
# the processes died at are named.
#
# run.sh [STORE SEQUENCE]: all, or one sequence over one store (copies, moves, native, routed, s3).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${RUNFS_BUILD:-$here/../../build/debug}
model=$build/tests/crash_model
count=${MODEL_SEQUENCES:-50}
if [ "${build##*/}" = tsan ]; then count=$((count / 5)); fi
# The same sequences each time: a failure is one of the change that is checked.
seed=${MODEL_SEED:-1}
only=${1:-}
if [ -n "$only" ]; then
    seed=${2:?usage: tests/model/run.sh [STORE SEQUENCE]} count=1
fi
# In memory where that takes extended attributes: a disk's fsync is not what is tested.
dir=$(TMPDIR=/dev/shm mktemp -d -t runfs-model.XXXXXX 2>/dev/null || mktemp -d -t runfs-model.XXXXXX)
if ! python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.runfs", b"1")' "$dir" 2>/dev/null; then
    rmdir "$dir"
    dir=$(mktemp -d -t runfs-model.XXXXXX)
fi
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0

# run NAME FIRST COUNT COMMAND...: so many sequences from this number on, counted.
run() {
    local name=$1 first=$2 count=$3 log=$dir/$1.log result=0
    shift 3
    [ "${only:-$name}" = "$name" ] || return 0
    [ -z "$only" ] || first=$seed
    mkdir -p "$dir/$name"
    "$@" "$dir/$name" "$first" "$count" >"$log" 2>&1 || result=$?
    sed "s/^/$name: /" "$log"
    read -r all bad < <(sed -n 's/^\([0-9]*\) sequences, \([0-9]*\) failed$/\1 \2/p' "$log") || all=0 bad=1
    [ "$result" -eq 0 ] || [ "$bad" -gt 0 ] || bad=1
    sed -n "s|^FAILED: sequence \([0-9]*\) .*|REPEAT: ./check.sh --job model ${build##*/} $name \1|p" "$log"
    passed=$((passed + all - bad)) failed=$((failed + bad))
}

# Over several stores it is their routes that are tested, by moves alone the order of what waits: what is
# the same over one is not again.
few=$((count / 5 > 5 ? count / 5 : 5))
if [ "$few" -gt "$count" ]; then few=$count; fi

echo "seed $seed (MODEL_SEED), $count sequences each, $few of routed and moves (MODEL_SEQUENCES)"
mkdir "$dir/store" "$dir/moves-store" "$dir/native-store" "$dir/routed-stores"
run copies "$seed" "$count" env MODEL_ERRORS=1 "$model" "file://$dir/store"
run native "$((seed + 100000))" "$count" env MODEL_NATIVE_RENAME=1 "$model" "file://$dir/native-store"
run routed "$((seed + 300000))" "$few" env MODEL_ERRORS=1 MODEL_ROUTED=1 "$model" "file://$dir/routed-stores"
run moves "$((seed + 400000))" "$few" env MODEL_MOVES=1 "$model" "file://$dir/moves-store"
run s3 "$((seed + 200000))" "$count" "$here/../servers/with_s3.sh" "$model" s3://runfs-test/model

points=$(grep -roh --include="*.c" '\(crash_point(\|_point = \)"[a-z-]*"' "$here/../../cache" | cut -d'"' -f2 | sort -u)
for point in $points; do
    grep -qE "^died at:.* $point " "$dir"/*.log || echo "no process died at $point this time"
done
echo "model: $passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
