#!/usr/bin/env bash
# scripts/fuzz.sh [TARGET [INPUT]]: builds the fuzz targets of tests/fuzz/ and runs each, or this one,
# for FUZZ_SECONDS (10) from FUZZ_SEED (1), as many at a time as there are processors; or a target on
# one input, "-" for standard input. Each starts from tests/fuzz/corpus/NAME, where what once crashed
# belongs, and leaves what it found new in build/fuzz/corpus/NAME.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

seconds=${FUZZ_SECONDS:-10} seed=${FUZZ_SEED:-1}
target=${1:-} input=${2:-}
work=$top/build/fuzz

# What was freed is kept back by ASan, 256 MiB of it unless told: several targets run beside mounts,
# and a small machine has no memory for that. An input takes microseconds; half a minute is an endless
# loop and no busy machine.
fuzzer() {
    local name=$1
    shift
    (cd "$work" && ASAN_OPTIONS=quarantine_size_mb=32 "fuzzers/$name" -timeout=30 -rss_limit_mb=2048 "$@")
}

run() {
    local name=$1 found=$work/corpus/$1 corpus=()
    mkdir -p "$found" "$work/crashes"
    [ ! -d "$top/tests/fuzz/corpus/$name" ] || corpus=("$top/tests/fuzz/corpus/$name")
    fuzzer "$name" -seed="$seed" -max_total_time="$seconds" -print_final_stats=1 -verbosity=0 \
        -artifact_prefix="crashes/$name-" "$found" ${corpus[@]+"${corpus[@]}"} >"$work/$name.log" 2>&1 ||
        echo "exit status $?" >"$work/$name.failed"
}

# How many inputs the last run of a target tried.
executions() {
    awk '/^stat::number_of_executed_units:/ { n = $2 } END { print n + 0 }' "$work/$1.log"
}

# How to run a target on this input again, also where nothing but the output is kept.
tell_repeat() {
    local packed
    packed=$(gzip -9nc "$2" | base64 -w0)
    if [ ${#packed} -le 4000 ]; then
        echo "REPEAT: echo $packed | base64 -d | gunzip | scripts/fuzz.sh $1 -"
    else
        echo "REPEAT: scripts/fuzz.sh $1 ${2#"$top"/}"
    fi
}

# Why the run of a target ended badly, in lines that stand for themselves; the cause first.
tell_failure() {
    local file log=$work/$1.log again=
    {
        cat "$work/$1.failed"
        grep -aE '^SUMMARY|^==[0-9]+== ?ERROR' "$log" || tail -n 3 "$log"
        grep -aE '^ +#[0-9]+ .*/[a-z_0-9]+\.c:' "$log" | head -n 8 || true
    } | sed "s/^/FAIL $1: /"
    for file in "$work/crashes/$1"-*; do
        [ -f "$file" ] || continue
        tell_repeat "$1" "$file"
        again=yes
    done
    [ -n "$again" ] || echo "REPEAT: FUZZ_SECONDS=$seconds FUZZ_SEED=$seed scripts/fuzz.sh $1"
}

"$top/scripts/build.sh" fuzz fuzzers
if [ -n "$input" ]; then
    if [ "$input" = - ]; then
        cat >"$work/input"
        input=$work/input
    fi
    fuzzer "$target" "$(realpath "$input")"
    exit
fi

names=()
for binary in "$work"/fuzzers/*; do
    name=$(basename "$binary")
    if [ -x "$binary" ] && [ "${target:-$name}" = "$name" ]; then names+=("$name"); fi
done
[ ${#names[@]} -gt 0 ] || die "no such target: $target"
rm -rf "$work"/*.failed "$work/crashes" "$work/corpus"
echo "seed $seed (FUZZ_SEED), $seconds s each (FUZZ_SECONDS)"
for name in "${names[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || true; done
    say "fuzzing $name"
    run "$name" &
done
wait

passed=0 failed=0 executed=0
for name in "${names[@]}"; do
    cat "$work/$name.log"
    if [ -e "$work/$name.failed" ]; then
        failed=$((failed + 1))
        tell_failure "$name"
    else
        passed=$((passed + 1))
    fi
    executed=$((executed + $(executions "$name")))
done
echo "$executed inputs tried"
echo "fuzz: $passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
