#!/usr/bin/env bash
# Installs what is missing, builds everything and runs every test. See --help.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/scripts/lib.sh"
cd "$top"

usage() {
    cat <<'HELP'
usage: ./check.sh [--preset PRESET]... [--nightly] [STAGE]...

Without a stage everything runs. Stages:
  lint        clang-format, lock marks, clang-tidy, shellcheck, pinned Python packages, documents
  unit        tests/unit      (presets debug, asan, tsan)
  contract    tests/contract  (the same, with a real S3 server)
  fuzz        every target in tests/fuzz for FUZZ_SECONDS (60)
  NAME        tests/NAME/run.sh
HELP
    printf '              here: %s\n' "$(runners | tr '\n' ' ')"
    cat <<'HELP'

  --preset PRESET   only with this preset of CMakePresets.json (debug, release, asan, tsan)
  --nightly         adversary, crash and model go on for longer, each time with other seeds
  --list            the jobs that would run, one a line
  --help            this text

The debug preset is built with the system's libfuse, the others with 3.17 or later.
The contract is also tested over MinIO, which is built once, 3 to 9 minutes; RUNFS_MINIO=0 skips that.
Logs are in build/check/. Set CI=true and a test that is skipped is a failure.
HELP
}

# ---- what there is to run -------------------------------------------------------------------

# The folders of tests/ that bring their own runner.
runners() {
    local script
    for script in tests/*/run.sh; do
        [ ! -x "$script" ] || basename "$(dirname "$script")"
    done
}

# The presets under which a stage runs; a runner says its own with a line "# presets: ...".
presets_of() {
    local own
    case $1 in
    lint) echo debug ;;
    fuzz) echo fuzz ;;
    unit | contract) echo debug asan tsan ;;
    *)
        own=$(sed -n 's/^# presets: *//p' "tests/$1/run.sh")
        echo "${own:-release}"
        ;;
    esac
}

# "STAGE PRESET" lines for the chosen stages and presets.
plan() {
    local stage preset
    for stage in "${stages[@]}"; do
        for preset in $(presets_of "$stage"); do
            [ ${#only[@]} -eq 0 ] || [[ " ${only[*]} " == *" $preset "* ]] || continue
            printf '%s %s\n' "$stage" "$preset"
        done
    done
}

# ---- the jobs -------------------------------------------------------------------------------

# gcc's sanitizers can't map their shadow memory where the kernel randomises addresses widely.
steady_addresses() {
    local bits
    bits=$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 32) # only root may read it
    if [ "$bits" -gt 28 ] && setarch -R true 2>/dev/null; then
        setarch -R "$@"
    else
        "$@"
    fi
}

# run_under PRESET COMMAND...: with the sanitizers' settings. A daemon's report would be lost with
# its stderr, so reports go to files, which `reports` counts.
run_under() {
    local preset=$1
    local report=log_path=$logs/reports/$stage-$preset
    shift
    export RUNFS_BUILD=$top/build/$preset RUNFS_BINARY=$top/build/$preset/runfs
    case $preset in
    asan)
        # UBSan knows no log_path beside ASan: it aborts, and ASan reports that.
        export ASAN_OPTIONS=$report:detect_leaks=1:detect_stack_use_after_return=1:handle_abort=1
        export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1:abort_on_error=1
        steady_addresses "$@"
        ;;
    tsan)
        export TSAN_OPTIONS=$report:second_deadlock_stack=1:suppressions=$top/tests/tsan.supp
        steady_addresses "$@"
        ;;
    *) "$@" ;;
    esac
}

# run_ctest TESTS PRESET [COMMAND...]: the tests of that name or below it, run by the command.
run_ctest() {
    local tests=$1 preset=$2
    shift 2
    run_under "$preset" "$@" ctest --test-dir "build/$preset" -R "^$tests(/|\$)" -V --no-tests=error \
        --parallel "$(nproc)"
}

# with_s3.sh ends with 77 when it has no server; the other stores are tested all the same.
run_contract() {
    local result=0 second=0
    run_ctest contract "$1" tests/servers/with_s3.sh || result=$?
    if [ "$result" -eq 77 ]; then
        result=0
        run_ctest contract "$1" || result=$?
    fi
    [ "$1" = debug ] || return "$result"
    # The second opinion, once: it is about the servers, not about our memory.
    if [ "${RUNFS_MINIO:-1}" = 0 ]; then
        second=77
    else
        RUNFS_TEST_S3_SERVER=minio run_ctest contract/test_contract_s3 "$1" \
            tests/servers/with_s3.sh || second=$?
    fi
    if [ "$second" -eq 77 ]; then
        echo "SKIP the contract over MinIO: RUNFS_MINIO=0, or scripts/minio.sh could not build it"
        echo "minio: 0 passed, 0 failed, 1 skipped"
        second=0
    fi
    return $((result ? result : second))
}

# One job; check.sh calls itself for it, so that a job is a process that can be timed out. What comes after the
# preset goes to the runner of a folder: a runner says so of each test that fails ("REPEAT: ...").
run_job() {
    local stage=$1 preset=$2
    mkdir -p "$logs/reports"
    shift 2
    case $stage in
    build) scripts/build.sh "$preset" ;;
    lint) scripts/lint.sh ;;
    fuzz) steady_addresses scripts/fuzz.sh "${FUZZ_SECONDS:-60}" ;;
    unit) run_ctest unit "$preset" ;;
    contract) run_contract "$preset" ;;
    *) run_under "$preset" "tests/$stage/run.sh" "$@" ;;
    esac
}

# ---- what came out --------------------------------------------------------------------------

# Sums a log into "passed failed skipped". A runner ends with "name: N passed, N failed, N
# skipped"; in ctest's output ("7: " before what test 7 says) each executable has such a line or
# libcheck's own, and one that says how it ended.
count() {
    awk '
    { key = match($0, /^[0-9]+: /) ? substr($0, 1, RLENGTH - 2) : "" }
    match($0, /[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/) {
        said[key] = substr($0, RSTART)
    }
    match($0, /: Checks: [0-9]+, Failures: [0-9]+, Errors: [0-9]+$/) {
        split(substr($0, RSTART + 10), n, /[^0-9]+/)
        good[key] += n[1] - n[2] - n[3]; bad[key] += n[2] + n[3]
    }
    match($0, /Test +#[0-9]+: .*(Passed|\*\*\*)/) {
        split(substr($0, RSTART), n, /[^0-9]+/); ended[n[2]] = /\*\*\*/ ? "badly" : "well"
    }
    END {
        for (key in said) {
            split(said[key], n, /[^0-9]+/); good[key] = n[1]; bad[key] = n[2]; left[key] = n[3]
        }
        for (key in ended) if (ended[key] == "badly" && !bad[key]) bad[key] = 1
        for (key in good) passed += good[key]
        for (key in bad) failed += bad[key]
        for (key in left) skipped += left[key]
        print passed + 0, failed + 0, skipped + 0
    }' "$1"
}

# How many processes wrote a sanitizer's report during this job; they are added to its log.
reports() {
    local file n=0
    for file in "$logs/reports/$1".*; do
        [ -s "$file" ] || continue
        n=$((n + 1))
        sed 's/^/report: /' "$file" >>"$2"
    done
    echo "$n"
}

# The lines of a log that say what failed.
failures() {
    grep -aE '^(FAIL|not ok)|: FAILED: |:[FE]:|^report: SUMMARY' "$1" || true
}

# Runs one job, adds its counts to the totals, and prints its row of the table when it is over.
job() {
    local row=$logs/rows/$1-$2 result=0
    mkdir -p "$logs/rows"
    run_counted "$1" "$2" >"$row" 2>&1 || result=$?
    cat "$row"
    return "$result"
}

run_counted() {
    local name=$1-$2 log=$logs/$1-$2.log started=$SECONDS result=0 p f s found
    printf '%-22s' "$name"
    rm -f "$logs/reports/$name".*
    timeout --kill-after=30 "${JOB_TIMEOUT:-2400}" \
        ./check.sh --job "$1" "$2" </dev/null >"$log" 2>&1 || result=$?
    found=$(reports "$name" "$log")
    read -r p f s < <(count "$log")
    f=$((f + found))
    if [ "$1" = build ]; then
        [ "$result" -ne 0 ] || p=1
        if [ "$2" != debug ] && grep -q '^-- libfuse 3\.1[0-6]\.' "$log"; then
            echo "SKIP passthrough in $2: no libfuse 3.17 to be had" >>"$log"
            s=1
        fi
    elif [ $((p + f + s)) -eq 0 ]; then
        f=1 # a job that counted nothing tested nothing
    fi
    [ "$result" -eq 0 ] || [ "$f" -gt 0 ] || f=1
    echo "$p $f $s" >>"$logs/totals"
    printf '%6d passed %4d failed %4d skipped %6d s\n' "$p" "$f" "$s" $((SECONDS - started))
    if [ "$s" -gt 0 ]; then
        grep -aE '(^|[ :])SKIP\b' "$log" | sort -u | head -n 20 | sed 's/^/    /' || true
    fi
    if [ "$f" -gt 0 ]; then
        printf -- '---- %s: exit status %d, failures, and its end:\n' "${log#"$top"/}" "$result"
        failures "$log" | cut -c 1-300 | head -n 30
        failures "$log" | cut -c 1-600 | head -n 8 | sed "s/^/$name: /" >>"$logs/failures"
        printf -- '----\n'
        tail -n "${LOG_TAIL:-60}" "$log"
        printf -- '----\n'
        return 1
    fi
}

# ---- what must be there ---------------------------------------------------------------------

# Tests that mount need a device that this user can open.
need_fuse() {
    local problem
    problem=$(fuse_problem)
    [ -z "$problem" ] || die "$problem. Without it only these run: ./check.sh lint unit contract fuzz sign"
}

prepare() {
    local work
    work=$(plan)
    if grep -qvE '^(lint|unit|contract|fuzz|sign) ' <<<"$work"; then
        need_fuse
    fi
    scripts/deps.sh check
    if grep -qvE '^(lint|unit|fuzz|sign) ' <<<"$work"; then
        # Without it the tests that need S3 are skipped and say so.
        RUNFS_VERSITYGW=$(scripts/versitygw.sh) || true
        export RUNFS_VERSITYGW
    fi
    if [ "${RUNFS_MINIO:-1}" != 0 ] && grep -q '^contract debug' <<<"$work"; then
        RUNFS_MINIO_BINARY=$(scripts/minio.sh) || true
        export RUNFS_MINIO_BINARY
    fi
}

# What runners with a long mode take from their environment; what is set already stays.
long_modes() {
    export RUNFS_NIGHTLY=1
    export ADVERSARY_ROUNDS=${ADVERSARY_ROUNDS:-300} ADVERSARY_SEED=${ADVERSARY_SEED:-$RANDOM}
    export CRASH_SECONDS=${CRASH_SECONDS:-600} MODEL_SEQUENCES=${MODEL_SEQUENCES:-500}
}

# ---- all of it ------------------------------------------------------------------------------

verdict() {
    local result=0 jobs passed failed skipped
    read -r jobs < <(wc -l <"$logs/totals")
    read -r passed failed skipped < <(awk '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }' \
        "$logs/totals")
    echo
    if [ "$jobs" -ne "$1" ]; then
        echo "FAILED: $jobs of $1 jobs came to an end"
        result=1
    elif [ "$failed" -gt 0 ]; then
        # Once more at the end, which is what a CI keeps of a long output.
        head -n 20 "$logs/failures"
        echo "FAILED: see the logs named above"
        result=1
    elif [ "$skipped" -gt 0 ] && [ "${CI:-}" = true ]; then
        echo "FAILED: in CI nothing may be skipped"
        result=1
    elif [ "$skipped" -gt 0 ]; then
        echo "PASSED, apart from what was skipped above"
    else
        echo "PASSED"
    fi
    echo "$passed passed, $failed failed, $skipped skipped"
    return "$result"
}

# "STAGE PRESET" lines from standard input, one after the other; not those that were not built.
run_jobs() {
    local stage preset
    while read -r stage preset; do
        if [[ $failed_builds != *" $preset "* ]]; then
            job "$stage" "$preset" || true
        fi
    done
}

# Three rows of jobs run side by side: stages that change what a machine has once, such as its
# fstab, units and packages; stages that mostly wait, for a settle time, a kill or a server that
# is away; and those that need the processors.
of_the_machine='^(cli|mount|package) '
that_wait='^(adversary|crash|faults|model) '

run_all() {
    local preset due=0
    mkdir -p "$logs/reports"
    : >"$logs/totals"
    : >"$logs/failures"
    prepare
    say "logs are in ${logs#"$top"/}; a row comes when its job is over"
    for preset in $(plan | awk '$2 != "fuzz" && !seen[$2]++ { print $2 }'); do
        job build "$preset" || failed_builds+="$preset "
        due=$((due + 1))
    done
    while read -r _ preset; do
        [[ $failed_builds == *" $preset "* ]] || due=$((due + 1))
    done < <(plan)
    plan | { grep -E "$of_the_machine" || true; } | run_jobs &
    plan | { grep -E "$that_wait" || true; } | run_jobs &
    plan | { grep -vE "$of_the_machine|$that_wait" || true; } | run_jobs
    wait
    printf '%s s in all\n' "$SECONDS"
    verdict "$due"
}

logs=$top/build/check
failed_builds=" "
only=() stages=() list=
while [ $# -gt 0 ]; do
    case $1 in
    --help | -h)
        usage
        exit 0
        ;;
    --job)
        stage=$2
        shift
        run_job "$@"
        exit
        ;;
    --list) list=1 ;;
    --nightly) long_modes ;;
    --preset)
        [ -n "${2:-}" ] || die "--preset needs a name: debug, release, asan or tsan"
        only+=("$2")
        shift
        ;;
    lint | unit | contract | fuzz) stages+=("$1") ;;
    *)
        [ -x "tests/$1/run.sh" ] || die "no such stage: $1 (see ./check.sh --help)"
        stages+=("$1")
        ;;
    esac
    shift
done
if [ ${#stages[@]} -eq 0 ]; then
    stages=(lint unit contract fuzz)
    mapfile -t -O 4 stages < <(runners)
fi
if [ -n "$list" ]; then
    plan
else
    run_all
fi
