# shellcheck shell=bash
# How one job runs, as a process of its own: `run_job STAGE PRESET [WORD...]`. Sourced by check.sh,
# which sets `top`, `logs` and `night`.
# shellcheck disable=SC2154

# What was prepared, a file a thing: its path, or nothing when it can't be had here.
prepared=$logs/prepared

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

# The test programs of a folder that TSan can say something of: those that can start a thread.
threaded() {
    local program
    ctest --test-dir build/tsan -N -R "^$1/" | sed -n "s|^ *Test *#[0-9]*: $1/||p" | while read -r program; do
        ! nm -u "build/tsan/tests/$program" | grep -c pthread_create >/dev/null || echo "$program"
    done
}

# run_ctest FOLDER PRESET "PROGRAM..." [COMMAND...]: these test programs of the folder, or all, run
# by the command.
run_ctest() {
    local folder=$1 preset=$2 programs=$3
    shift 3
    if [ -z "$programs" ] && [ "$preset" = tsan ]; then programs=$(threaded "$folder"); fi
    programs=$(xargs <<<"$programs")
    run_under "$preset" "$@" ctest --test-dir "build/$preset" -R "^$folder/(${programs// /|})${programs:+\$}" \
        -V --no-tests=error --parallel $((4 * $(nproc))) # most of them wait most of the time
}

# with_s3.sh ends with 77 when it has no server; the other stores are tested all the same.
run_contract() {
    local preset=$1 programs=$2 result=0
    run_ctest contract "$preset" "$programs" tests/servers/with_s3.sh || result=$?
    if [ "$result" -eq 77 ]; then
        result=0
        run_ctest contract "$preset" "$programs" || result=$?
    fi
    return "$result"
}

# The second opinion: it is about the servers, not about our memory.
run_minio() {
    local result=0
    RUNFS_TEST_S3_SERVER=minio run_ctest contract "$1" test_contract_s3 tests/servers/with_s3.sh || result=$?
    if [ "$result" -eq 77 ]; then
        echo "SKIP the contract over MinIO: RUNFS_MINIO=0, or scripts/minio.sh could not build it"
        echo "minio: 0 passed, 0 failed, 1 skipped"
        result=0
    fi
    return "$result"
}

# What several jobs need, and what has to be fetched or compiled for one.
run_prepare() {
    local file=$prepared/$1
    mkdir -p "$prepared"
    : >"$file"
    case $1 in
    libfuse) scripts/libfuse.sh >"$file" ;;
    server) scripts/versitygw.sh >"$file" ;;
    minio) [ "${RUNFS_MINIO:-1}" = 0 ] || scripts/minio.sh >"$file" ;;
    sign) scripts/venv.sh tests/sign/requirements.txt ;;
    *) "tests/$1/run.sh" --prepare ;;
    esac
}

use_prepared() {
    local file
    for file in server minio; do
        [ -s "$prepared/$file" ] || continue
        case $file in
        server) export RUNFS_VERSITYGW; RUNFS_VERSITYGW=$(<"$prepared/$file") ;;
        minio) export RUNFS_MINIO_BINARY; RUNFS_MINIO_BINARY=$(<"$prepared/$file") ;;
        esac
    done
}

# By night the asan preset has the newest libfuse, too, and so passthrough.
run_build() {
    if [ -n "$night" ] && [ "$1" = asan ]; then export RUNFS_LIBFUSE=own; fi
    scripts/build.sh "$1"
}

# What comes after the preset goes to the runner: a failure's line "REPEAT: ..." has it.
run_job() {
    local stage=$1 preset=$2
    shift 2
    mkdir -p "$logs/reports"
    use_prepared
    case $stage in
    prepare) run_prepare "$preset" ;;
    build) run_build "$preset" ;;
    lint) scripts/lint.sh ${night:+--full} "$@" ;;
    fuzz) steady_addresses scripts/fuzz.sh "$@" ;;
    unit) run_ctest unit "$preset" "$*" ;;
    contract)
        local result=0
        run_contract "$preset" "$*" || result=$?
        if [ "$preset" = debug ]; then run_minio "$preset" || result=$?; fi
        return "$result"
        ;;
    posix) run_under "$preset" tests/posix/run.sh ${night:+--all} "$@" ;;
    *) run_under "$preset" "tests/$stage/run.sh" "$@" ;;
    esac
}

# For a person: what the job needs first, and sanitizers' reports behind it.
run_alone() {
    local need file result=0
    job=$(job_name "$1 $2")
    rm -f "$logs/reports/$job".*
    while read -r need; do
        [ -z "$need" ] || (run_job "${need% *}" "${need#* }") || say "$need: failed"
    done < <(needs "$1 $2")
    (run_job "$@") || result=$?
    for file in "$logs/reports/$job".*; do
        [ ! -s "$file" ] || cat "$file"
    done
    return "$result"
}
