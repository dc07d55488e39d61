#!/usr/bin/env bash
# scripts/fuzz.sh [TARGET [INPUT]]: builds the fuzz targets of tests/fuzz/ and runs each, or this one,
# from FUZZ_SEED (1), as many at a time as there are processors; or a target on one input, "-" for
# standard input. It tries as many inputs as tests/fuzz/runs says, which are the same on every machine,
# or goes on for FUZZ_SECONDS. Each starts from tests/fuzz/corpus/NAME, where what once crashed belongs,
# and leaves what it found new in build/fuzz/corpus/NAME.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

seconds=${FUZZ_SECONDS:-} seed=${FUZZ_SEED:-1}
alarm=600 # seconds for what takes some 10: only a target that hangs needs as much
target=${1:-} input=${2:-}
work=$top/build/fuzz

# What was freed is kept back by ASan, 256 MiB of it unless told: several targets run beside mounts,
# and a small machine has no memory for that. An input takes microseconds; half a minute is an endless
# loop and no busy machine.
fuzzer() {
    local name=$1
    shift
    (cd "$work" && ASAN_OPTIONS=quarantine_size_mb=32 timeout --foreground $((alarm + ${seconds:-0})) "fuzzers/$name" -timeout=30 -rss_limit_mb=2048 "$@")
}

# How many inputs a target tries; nothing when it has no line.
runs_of() {
    awk -v name="$1" '$1 == name { print $2 }' "$top/tests/fuzz/runs"
}

run() {
    local name=$1 found=$work/corpus/$1 corpus=() limit
    limit=-max_total_time=$seconds
    [ -n "$seconds" ] || limit=-runs=$(runs_of "$name")
    mkdir -p "$found" "$work/crashes"
    [ ! -d "$top/tests/fuzz/corpus/$name" ] || corpus=("$top/tests/fuzz/corpus/$name")
    fuzzer "$name" -seed="$seed" "$limit" -print_final_stats=1 -verbosity=0 \
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
    [ -n "$again" ] || echo "REPEAT: ${seconds:+FUZZ_SECONDS=$seconds }FUZZ_SEED=$seed scripts/fuzz.sh $1"
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
    if [ ! -x "$binary" ] || [ "${target:-$name}" != "$name" ]; then continue; fi
    [ -n "$(runs_of "$name")" ] || die "tests/fuzz/runs has no line for $name"
    names+=("$name")
done
[ ${#names[@]} -gt 0 ] || die "no such target: $target"
rm -rf "$work"/*.failed "$work/crashes" "$work/corpus"
echo "seed $seed (FUZZ_SEED), ${seconds:-as many inputs as tests/fuzz/runs says}${seconds:+ s each (FUZZ_SECONDS)}"
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
