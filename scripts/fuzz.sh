#!/usr/bin/env bash
# scripts/fuzz.sh [SECONDS]: builds every fuzz target of tests/fuzz/ and runs each for so long (20
# unless told), as many at a time as there are processors. New inputs are kept in
# build/fuzz/corpus/NAME; what once crashed belongs into tests/fuzz/corpus/NAME, which every run
# starts from.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

seconds=${1:-20}
"$top/scripts/build.sh" fuzz fuzzers

run() {
    local name=$1 found=$top/build/fuzz/corpus/$1 seeds=()
    mkdir -p "$found" "$top/build/fuzz/crashes"
    [ ! -d "$top/tests/fuzz/corpus/$name" ] || seeds=("$top/tests/fuzz/corpus/$name")
    # What was freed is kept back by ASan, 256 MiB of it unless told: several targets run beside
    # mounts, and a small machine has no memory for that. An input takes microseconds; half a
    # minute is an endless loop and no busy machine.
    (cd "$top/build/fuzz" &&
        ASAN_OPTIONS=quarantine_size_mb=32 \
            "fuzzers/$name" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=2048 -print_final_stats=1 \
            -verbosity=0 -artifact_prefix="crashes/$name-" "$found" ${seeds[@]+"${seeds[@]}"}) \
        >"$top/build/fuzz/$name.log" 2>&1 || echo "exit status $?" >"$top/build/fuzz/$name.failed"
}

# How many inputs the last run of a target tried.
executions() {
    awk '/^stat::number_of_executed_units:/ { n = $2 } END { print n + 0 }' "$top/build/fuzz/$1.log"
}

# Why the run of a target ended badly and on which input, in lines that stand for themselves where
# nothing but the output is kept; the cause first.
tell_failure() {
    local file log=$top/build/fuzz/$1.log
    {
        cat "$top/build/fuzz/$1.failed"
        grep -aE '^SUMMARY|^==[0-9]+== ?ERROR' "$log" || tail -n 3 "$log"
        for file in "$top/build/fuzz/crashes/$1"-*; do
            [ ! -f "$file" ] ||
                echo "input in build/fuzz/crashes: $(gzip -9nc "$file" | base64 -w0 | head -c 4000) (base64 of gzip)"
        done
        grep -aE '^ +#[0-9]+ .*/[a-z_0-9]+\.c:' "$log" | head -n 8 || true
    } | sed "s/^/FAIL $1: /"
}

names=()
for binary in "$top"/build/fuzz/fuzzers/*; do
    [ ! -x "$binary" ] || names+=("$(basename "$binary")")
done
rm -rf "$top"/build/fuzz/*.failed "$top/build/fuzz/crashes"
for name in "${names[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || true; done
    say "fuzzing $name for $seconds s"
    run "$name" &
done
wait

passed=0 failed=0 executed=0
for name in "${names[@]}"; do
    cat "$top/build/fuzz/$name.log"
    if [ -e "$top/build/fuzz/$name.failed" ]; then
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
