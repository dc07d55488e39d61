#!/usr/bin/env bash
# Installs what is missing, builds everything and runs every test. See --help.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/scripts/lib.sh"
cd "$top"

logs=$top/build/check
night='' only=() stages=()
. scripts/check/plan.sh   # what there is to run
. scripts/check/job.sh    # how one job runs
. scripts/check/result.sh # what came out of it
. scripts/check/lanes.sh  # several side by side

usage() {
    cat <<'HELP'
usage: ./check.sh [--nightly] [--preset PRESET]... [STAGE]...
       ./check.sh [--nightly] --job STAGE PRESET [WORD]...

Without a stage the whole gate runs: what each change must pass, with the same seeds each time. Stages:
  lint        clang-format, lock marks, clang-tidy where something changed, shellcheck, pinned Python packages,
              documents
  unit        tests/unit
  contract    tests/contract, with a real S3 server
  fuzz        every target in tests/fuzz: its corpus, and as many inputs as tests/fuzz/runs says
  NAME        tests/NAME/run.sh
HELP
    printf '              here: %s\n' "$(runners | tr '\n' ' ')"
    cat <<'HELP'

  --nightly         the gate with other seeds (RUNFS_SEED), more rounds and more places: the debug preset, ASan
                    with passthrough, MinIO, TensorFlowOnSpark, clang-tidy on every file, tests/posix/run.sh
                    --all, 2 minutes a fuzz target; 85 minutes on 2 processors
  --preset PRESET   only with this preset of CMakePresets.json (debug, release, asan, tsan)
  --job ...         one job by itself, and what it needs; the words go to its runner: what failed says which
  --lanes N         so many jobs at a time, beside what is fetched or compiled for them; two more than there are processors unless told
  --list            the jobs that would run, one a line
  --help            this text

scripts/check/jobs has the jobs with their presets and the seconds that each may take, more of them where it has
to make anew what a cache has elsewhere ("cold: ..." in its row). A row shows both; set CI=true and a job that
takes more than twice as much by its own doing fails, as does a test that is skipped. With warm caches the gate takes
25 minutes on 2 processors, 40 where nothing is installed. The debug and asan presets are built with the system's
libfuse, the others with 3.17 or later. Logs are in build/check/.
RUNFS_MINIO=0 leaves MinIO out.
HELP
}

# Whether one of the chosen jobs mounts something.
mounts() {
    plan | grep -qvE '^(prepare|build|check|lint|unit|contract|fuzz|sign|protocol) '
}

# Tests that mount need a device that this user can open.
need_fuse() {
    local problem
    problem=$(fuse_problem)
    [ -z "$problem" ] || die "$problem. Without it only these run: ./check.sh check lint unit contract fuzz sign protocol"
}

# The tests of several jobs mount as an ordinary user: as udev sets it, for as long as they run.
open_fuse() {
    local mode
    mode=$(stat -c %a /dev/fuse)
    if [ "$(id -u)" -eq 0 ] && [ "$mode" != 666 ]; then
        chmod 666 /dev/fuse
        # shellcheck disable=SC2064 # the mode of now
        trap "chmod $mode /dev/fuse" EXIT
    fi
}

# One seed for all runners unless they are told; what is set already stays.
by_night() {
    local name
    night=yes
    export RUNFS_NIGHTLY=1 RUNFS_SEED=${RUNFS_SEED:-$((RANDOM * 32768 + RANDOM))}
    for name in {ADVERSARY,CRASH,FRAMEWORKS,FUZZ,MODEL,MOUNT,POSIX,SIGN}_SEED; do
        export "$name=${!name:-$RUNFS_SEED}"
    done
    export ADVERSARY_ROUNDS=${ADVERSARY_ROUNDS:-300} CRASH_SECONDS=${CRASH_SECONDS:-600}
    export FUZZ_SECONDS=${FUZZ_SECONDS:-120} MODEL_SEQUENCES=${MODEL_SEQUENCES:-500}
}

# The time of now, and what the processors did so far; see load.py.
load_now() {
    cat "$logs/load" 2>/dev/null || true
}

run_all() {
    local job due=0 work
    mapfile -t work < <(plan)
    mkdir -p "$logs/reports" "$logs/rows"
    touch "$logs"/{totals,table,failures,repeats}
    [ -z "$night" ] || say "RUNFS_SEED=$RUNFS_SEED"
    ! mounts || open_fuse
    say "logs are in ${logs#"$top"/}; a row comes when its job is over"
    trap 'kill "${!job_of[@]}" 2>/dev/null; wait; exit 143' TERM INT
    run_lanes "${lanes:-$(($(nproc) + 2))}" "${work[@]}"
    for job in "${work[@]}"; do
        [ "${state[$job]}" = dropped ] || due=$((due + 1))
    done
    verdict "$due"
}

# Begins afresh below load.py, to which the daemons of all tests belong.
start() {
    check_table
    ! mounts || need_fuse
    scripts/deps.sh check
    rm -rf "$logs"
    mkdir -p "$logs"
    exec python3 scripts/check/load.py "$logs/load" ./check.sh --inside "${given[@]}"
}

given=("$@")
action=start lanes=
while [ $# -gt 0 ]; do
    case $1 in
    --help | -h)
        usage
        exit 0
        ;;
    --job | --run)
        stage=${2:?--job needs a stage and a preset} preset=${3:?--job needs a preset}
        action=run_job
        [ "$1" = --run ] || action=run_alone
        shift
        read_table
        "$action" "$@"
        exit
        ;;
    --inside) action=run_all ;;
    --list) action=plan ;;
    --nightly) by_night ;;
    --lanes)
        lanes=${2:?--lanes needs a number}
        shift
        ;;
    --preset)
        only+=("${2:?--preset needs a name: debug, release, asan or tsan}")
        shift
        ;;
    *) stages+=("$1") ;;
    esac
    shift
done
read_table
for stage in "${stages[@]}"; do
    all_stages | grep -qx -- "$stage" || die "no such stage: $stage (see ./check.sh --help)"
done
[ ${#stages[@]} -gt 0 ] || mapfile -t stages < <(all_stages)
"$action"
