#!/usr/bin/env bash
# scripts/fuzz.sh [SECONDS]: builds every fuzz target of tests/fuzz/ and runs each for so long (20
# unless told). New inputs are kept in build/fuzz/corpus/NAME; what once crashed belongs into
# tests/fuzz/corpus/NAME, which every run starts from.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

seconds=${1:-20}
"$top/scripts/build.sh" fuzz fuzzers

run() {
    local name=$1 found=$top/build/fuzz/corpus/$1 seeds=()
    mkdir -p "$found" "$top/build/fuzz/crashes"
    [ ! -d "$top/tests/fuzz/corpus/$name" ] || seeds=("$top/tests/fuzz/corpus/$name")
    (cd "$top/build/fuzz" &&
        "fuzzers/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
            -verbosity=0 -artifact_prefix="crashes/$name-" "$found" ${seeds[@]+"${seeds[@]}"}) 2>&1 |
        tee "$top/build/fuzz/$name.log"
}

# How many inputs the last run of a target tried.
executions() {
    awk '/^stat::number_of_executed_units:/ { n = $2 } END { print n + 0 }' "$top/build/fuzz/$1.log"
}

passed=0 failed=0 executed=0
for binary in "$top"/build/fuzz/fuzzers/*; do
    [ -x "$binary" ] || continue
    name=$(basename "$binary")
    say "fuzzing $name for $seconds s"
    if run "$name"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        say "$name failed; its input is in build/fuzz/crashes"
    fi
    executed=$((executed + $(executions "$name")))
done
echo "$executed inputs tried"
echo "fuzz: $passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
