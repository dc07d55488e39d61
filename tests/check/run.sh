#!/usr/bin/env bash
# The check itself: a copy of it with small jobs of its own, which pass, fail, skip, take too long or
# need one another; what it says of them, and in which order it begins them.
set -uo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/runfs-check.XXXXXX")
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
unset CI LOG_TAIL JOB_TIMEOUT RUNFS_NIGHTLY RUNFS_SEED {ADVERSARY,CRASH,FUZZ,MODEL,MOUNT,POSIX,SIGN}_SEED # the check's own

# ---- a repository of a check and nothing else ------------------------------------------------

# job NAME NEEDS LINE...: a job of the table, release, with a runner of these lines.
job() {
    local name=$1 needs=$2
    shift 2
    mkdir -p "$work/tests/$name"
    printf '%s\n' '#!/bin/bash' "$@" >"$work/tests/$name/run.sh"
    chmod +x "$work/tests/$name/run.sh"
    echo "$name release ${budget:-5} ${cold:--} ${night:-9} $needs" >>"$work/scripts/check/jobs"
}

fresh() {
    rm -rf "${work:?}"/*
    mkdir -p "$work/scripts" "$work/tests/fake"
    cp "$top/check.sh" "$work"
    cp -r "$top/scripts/check" "$top/scripts/lib.sh" "$work/scripts"
    printf '#!/bin/sh\n' >"$work/scripts/deps.sh"
    # shellcheck disable=SC2016 # for that script
    printf '#!/bin/sh\nsleep 0.3\necho "build $1" >>order\n[ ! -e "broken-$1" ]\n' >"$work/scripts/build.sh"
    chmod +x "$work"/scripts/*.sh
    printf '%s\n' 'all - 10 40 20' 'build release 5 - 5' 'build asan 5 - 5 +compiler' 'build tsan 5 - 5 +compiler' \
        >"$work/scripts/check/jobs"
}

# check ARGUMENT...: runs it; its words in $work/out, its exit code in $code.
check() {
    code=0
    (cd "$work" && ./check.sh "$@") >"$work/out" 2>&1 </dev/null || code=$?
}

# A job is late by seconds that nobody waits for: its clock is set.
late() {
    # shellcheck disable=SC2016 # for that script
    sed -i 's/seconds=$((SECONDS - started))/seconds=99/' "$work/scripts/check/result.sh"
}

# others_take PERCENT: of the processors, whatever runs beside this test.
others_take() {
    sed -i "s/ load=.*/ load=$1/" "$work/scripts/check/result.sh"
}

says() {
    grep -qE -- "$1" "$work/out" || {
        echo "  does not say '$1':"
        sed 's/^/  | /' "$work/out"
        return 1
    }
}

says_not() {
    ! says "$1" >/dev/null || {
        echo "  says '$1':"
        sed 's/^/  | /' "$work/out"
        return 1
    }
}

ends_with() {
    [ "$code" -eq "$1" ] || {
        echo "  exit code $code instead of $1:"
        sed 's/^/  | /' "$work/out"
        return 1
    }
}

# ---- what comes out --------------------------------------------------------------------------

good='echo "x: 3 passed, 0 failed, 0 skipped"'

test_what_passes() {
    job one '' "$good"
    check
    ends_with 0 && says '^one-release +3 passed +0 failed +0 skipped +[01] s of 5' && says '^PASSED' &&
        says '^all [0-9]+ s of 10, 40 where nothing is cached$'
}

test_what_fails_says_what_repeats_it() {
    job one '' 'echo "not ok  a/b"' 'echo "REPEAT: X_SEED=3 ./check.sh --job one release a/b"' \
        'echo "x: 3 passed, 1 failed, 0 skipped"' 'exit 1'
    job two '' 'echo "FAIL c"' 'exit 1'
    job three '' "$good"
    check
    ends_with 1 && says '^one-release: not ok  a/b' && says '^    X_SEED=3 ./check.sh --job one release a/b$' &&
        says '^    ./check.sh --job two release$' && says '^FAILED' && says '^three-release +3 passed'
}

test_what_counts_nothing_fails() {
    job one '' true
    check
    ends_with 1
}

# Killed behind a test that was skipped, say.
test_a_skip_excuses_no_bad_end() {
    job one '' 'echo "SKIP c: no disk"' 'echo "x: 3 passed, 0 failed, 1 skipped"' 'exit 124'
    check
    ends_with 1 && says '^one-release +3 passed +1 failed +1 skipped'
}

test_a_skip_fails_in_ci_only() {
    job one '' 'echo "SKIP c: no disk"' 'echo "x: 3 passed, 0 failed, 1 skipped"'
    check
    ends_with 0 && says 'SKIP c: no disk' || return 1
    CI=true check
    ends_with 1 && says 'nothing may be skipped'
}

test_one_job_alone_gets_its_words() {
    # shellcheck disable=SC2016 # for that script
    job one '' 'echo "words: $*"' 'echo "x: 1 passed, 0 failed, 0 skipped"'
    check --job one release a/b 'c d'
    ends_with 0 && says '^words: a/b c d$'
}

test_the_table_has_each_runner() {
    job one '' "$good"
    sed -i /^one/d "$work/scripts/check/jobs"
    check
    ends_with 1 && says 'tests/one/run.sh has no line' || return 1
    job one '' "$good"
    echo 'other release 5 - 5' >>"$work/scripts/check/jobs"
    check
    ends_with 1 && says 'no tests/other/run.sh'
}

test_by_night_there_is_more() {
    # shellcheck disable=SC2016 # for that script
    job one '' 'echo "seed $CRASH_SEED"' 'echo "x: 1 passed, 0 failed, 0 skipped"'
    budget=- job two '' "$good"
    check
    ends_with 0 && says_not '^two' || return 1
    RUNFS_SEED=77 check --nightly
    ends_with 0 && says 'RUNFS_SEED=77' && says '^two-release .* s of 9' && says '^one-release .* s of 9' || return 1
    grep -qx 'seed 77' "$work/build/check/one-release.log" || return 1
    job three '' 'exit 1'
    RUNFS_SEED=77 check --nightly
    ends_with 1 && says '^    RUNFS_SEED=77 ./check.sh --nightly --job three release$'
}

# ---- order -----------------------------------------------------------------------------------

test_the_longest_begins_first_when_its_build_is_done() {
    budget=3 job short '' 'echo short >>order' "$good"
    budget=9 job long '' 'echo long >>order' "$good"
    check --lanes 1
    ends_with 0 && [ "$(xargs <"$work/order")" = "build release long short" ]
}

# What a cache makes short may be long on another machine.
test_the_longest_is_so_where_nothing_is_cached() {
    budget=9 job warm '' 'echo warm >>order' "$good"
    budget=3 cold=20 job cached '' 'echo cached >>order' "$good"
    check --lanes 1
    ends_with 0 && [ "$(xargs <"$work/order")" = "build release cached warm" ]
}

test_what_is_not_built_is_not_tested() {
    job one '' 'touch ran' "$good"
    : >"$work/broken-release"
    check
    ends_with 1 && [ ! -e "$work/ran" ] && says '^    ./check.sh --job build release$'
}

test_a_skip_excuses_no_broken_build() {
    job one '' 'touch ran' "$good"
    : >"$work/broken-release"
    # shellcheck disable=SC2016 # for that script
    sed -i '2iecho "SKIP passthrough in $1: no libfuse 3.17 to be had"' "$work/scripts/build.sh"
    check
    ends_with 1 && [ ! -e "$work/ran" ] && says '^build-release +0 passed +1 failed +1 skipped'
}

# Each tells whether the other one is at work.
test_one_at_a_time_has_the_word() {
    local look='[ ! -e busy ] || touch both; touch busy; sleep 0.5; rm -f busy'
    job one +machine "$look" "$good"
    job two +machine "$look" "$good"
    check --lanes 4
    ends_with 0 && [ ! -e "$work/both" ]
}

test_what_has_no_preset_needs_no_build() {
    job one '' 'echo one >>order' "$good"
    sed -i 's/^one release/one -/' "$work/scripts/check/jobs"
    check
    ends_with 0 && says '^one +3 passed' && [ "$(xargs <"$work/order")" = one ]
}

test_side_by_side_they_are() {
    job one '' 'touch one; until [ -e two ]; do sleep 0.05; done' "$good"
    job two '' 'touch two; until [ -e one ]; do sleep 0.05; done' "$good"
    JOB_TIMEOUT=20 check --lanes 2
    ends_with 0
}

test_what_is_prepared_takes_no_lane() {
    echo 'prepare slow 5 - 5' >>"$work/scripts/check/jobs"
    # shellcheck disable=SC2016 # for that script
    job slow slow 'if [ "${1:-}" = --prepare ]; then until [ -e one ]; do sleep 0.05; done; else echo slow >>order; fi' "$good"
    job one '' 'echo one >>order; touch one' "$good"
    JOB_TIMEOUT=20 check --lanes 1
    ends_with 0 && [ "$(xargs <"$work/order")" = "build release one slow" ]
}

# What it tests is skipped then, by tests that say so.
test_what_can_not_be_prepared_is_skipped() {
    echo 'prepare slow 5 - 5' >>"$work/scripts/check/jobs"
    # shellcheck disable=SC2016 # for that script
    job slow slow 'if [ "${1:-}" = --prepare ]; then echo "error: no network"; exit 1; fi' "$good"
    check
    ends_with 0 && says 'SKIP what needs slow: error: no network' && says '^slow-release +3 passed'
}

# ---- time ------------------------------------------------------------------------------------

# judged SECONDS BUDGET OTHERS: late or in time.
judged() {
    (
        # shellcheck source=/dev/null
        . "$top/scripts/check/result.sh"
        if is_late "$@"; then echo late; else echo "in time"; fi
    )
}

test_who_is_late_by_himself() {
    [ "$(judged 201 100 0)" = late ] && [ "$(judged 200 100 0)" = "in time" ] &&
        [ "$(judged 201 100 19)" = late ] && [ "$(judged 201 100 20)" = "in time" ] &&
        [ "$(judged 900 100 75)" = "in time" ] && [ "$(judged 900 100 '?')" = "in time" ] &&
        [ "$(judged 24 5 0)" = "in time" ] && [ "$(judged 26 5 0)" = late ]
}

# share BEFORE AFTER, on two processors.
share() {
    (
        nproc() { echo 2; }
        # shellcheck source=/dev/null
        . "$top/scripts/check/result.sh"
        others "$@"
    )
}

test_what_others_take() {
    [ "$(share '100 50 40' '110 70 60')" = 0 ] && [ "$(share '100 50 40' '110 70 50')" = 50 ] &&
        [ "$(share '100 50 40' '110 60 51')" = 0 ] && [ "$(share '' '')" = '?' ] &&
        [ "$(share '100 50 40' '100 50 40')" = '?' ]
}

# budget_of WARM COLD [ANEW]
budget_of() {
    (
        # shellcheck source=/dev/null
        . "$top/scripts/check/result.sh"
        budget "$@"
    )
}

test_what_is_made_anew_takes_its_share_of_time() {
    [ "$(budget_of 100 600)" = 100 ] && [ "$(budget_of 100 600 '0 of 50 objects')" = 100 ] &&
        [ "$(budget_of 100 600 '25 of 50 objects')" = 350 ] && [ "$(budget_of 100 600 '50 of 50')" = 600 ] &&
        [ "$(budget_of 100 600 '90 of 50 objects')" = 600 ] && [ "$(budget_of 100 600 '1 of 0 objects')" = 100 ] &&
        [ "$(budget_of 100 100 '50 of 50 objects')" = 100 ]
}

test_the_row_says_what_was_made_anew() {
    cold=15 job one '' 'echo "COLD: 1 of 2 things"' "$good"
    cold=15 job two '' 'echo "COLD: 0 of 2 things"' "$good"
    cold=15 job three '' "$good"
    others_take 0
    check
    ends_with 0 && says '^one-release .* s of 10 \(cold: 1 of 2 things\)$' && says '^two-release .* s of 5$' &&
        says '^three-release .* s of 5$' || return 1
    RUNFS_SEED=77 check --nightly # whose seconds are those of a machine that has cached nothing
    ends_with 0 && says '^one-release .* s of 9$'
}

# It has one number in the table.
test_who_caches_nothing_gets_no_more_time() {
    job one '' 'echo "COLD: 2 of 2 things"' "$good"
    others_take 0
    check
    ends_with 0 && says '^one-release .* s of 5$'
}

test_a_late_job_fails_in_ci_only() {
    job one '' "$good"
    late
    others_take 3
    check
    ends_with 0 && says '^one-release .* 99 s of 5, LATE' || return 1
    CI=true check
    ends_with 1 && says 'one-release took 99 s, its budget is 5 s, and others took 3 %' || return 1
    others_take 60
    CI=true check
    ends_with 0 && says '^one-release .* 99 s of 5, others took 60 % of the processors'
}

test_a_cold_job_is_late_all_the_same() {
    cold=15 job one '' 'echo "COLD: 2 of 2 things"' "$good"
    late
    others_take 3
    CI=true check
    ends_with 1 && says '^one-release .* 99 s of 15 \(cold: 2 of 2 things\), LATE' &&
        says 'its budget is 15 s with 2 of 2 things made anew, and others took 3 %'
}

# A daemon that left its parent is our own load, and stays it when it has ended.
test_the_time_of_daemons_is_counted() {
    local burn='import os,time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while time.process_time() < 1: pass
    os._exit(0)
os.wait()'
    # shellcheck disable=SC2016 # for that shell
    python3 "$top/scripts/check/load.py" "$work/load" sh -c \
        'python3 -c "$1"; for i in $(seq 100); do sleep 0.2; set -- $(cat "$0"); [ "${3%.*}" -lt 1 ] || exit 0; done; exit 1' \
        "$work/load" "$burn"
}

test_its_exit_code_is_the_commands() {
    local code=0
    python3 "$top/scripts/check/load.py" "$work/load" sh -c 'exit 7' || code=$?
    [ "$code" = 7 ]
}

# ---- commands that repeat --------------------------------------------------------------------

test_of_ctest_they_name_program_and_case() {
    cat >"$work/log" <<'LOG'
7: 83%: Checks: 6, Failures: 1, Errors: 0
7: /x/tests/unit/test_names.c:12:F:two:a_test:0: Assertion failed
 3/68 Test  #7: unit/test_names ...............***Failed    0.20 sec
 4/68 Test #11: unit/test_dies ................***Exception: SegFault 0.10 sec
 5/68 Test #12: unit/test_good ................   Passed    0.10 sec
LOG
    (
        # shellcheck source=/dev/null
        . "$top/scripts/check/result.sh"
        repeats "unit asan" "$work/log"
    ) >"$work/out"
    says '^CK_RUN_CASE=two ./check.sh --job unit asan test_names$' && says '^./check.sh --job unit asan test_dies$' &&
        [ "$(wc -l <"$work/out")" = 2 ]
}

for name in $(declare -F | sed -n 's/^declare -f test_//p'); do
    [[ $name == *${1:-}* ]] || continue
    fresh
    if "test_$name" >"$work.said" 2>&1; then
        passed=$((passed + 1))
        echo "ok   $name"
    else
        failed=$((failed + 1))
        echo "FAIL $name"
        echo "REPEAT: tests/check/run.sh $name"
        cat "$work.said"
    fi
    rm -f "$work.said"
done
echo "check: $passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
