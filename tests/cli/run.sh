#!/usr/bin/env bash
# The commands as a user meets them: what goes in, which exit code and which line come out.
# Mounts a folder (file://) for most of it, a real S3 server for bucket, secret and endpoint.
set -uo pipefail
umask 022 # folders that another user finds, and that nobody else may write to

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
runfs=${RUNFS_BINARY:-$top/build/debug/runfs}
[ -x "$runfs" ] || {
    echo "$runfs: no runfs there; build it, or set RUNFS_BINARY" >&2
    exit 1
}
if [ -z "${RUNFS_CLI_S3:-}" ]; then
    # Once more beside an S3 server; without one (77) those tests are skipped below.
    RUNFS_CLI_S3=yes "$top/tests/servers/with_s3.sh" "$0" "$@" && exit
    code=$?
    [ "$code" = 77 ] || exit "$code"
    export RUNFS_CLI_S3=no
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/runfs-cli.XXXXXX")
work=$(cd "$work" && pwd -P)
: >"$work/pids"
passed=0 failed=0 skipped=0
only=${1:-}
lanes=3 # most of a test's time is waiting

cleanup() {
    local point pid
    # Daemons that a failed test left: each has the folder in its command line.
    while read -r pid; do
        if tr '\0' ' ' <"/proc/$pid/cmdline" | grep -qF "$work"; then
            kill -9 "$pid"
        fi
    done 2>/dev/null <"$work/pids"
    # The latest mount first; lazily, as a test may have failed at any point.
    awk -v w="$work" 'index($5, w) == 1 { print $5 }' /proc/self/mountinfo | tac |
        while read -r point; do
            umount -l "$point" 2>/dev/null || fusermount3 -u -z "$point"
        done
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT

. "$here/lib.sh"
. "$here/command_line.sh"
. "$here/places.sh"
. "$here/normal_day.sh"
. "$here/status.sh"
. "$here/flush_fetch_pin.sh"
. "$here/verify.sh"
. "$here/daemon.sh"
. "$here/umount.sh"
. "$here/stores.sh"
. "$here/configurations.sh"
. "$here/policy_options.sh"
. "$here/locks.sh"
. "$here/s3.sh"

# Called by a test that can't run here; the test returns after it.
skip() {
    reason=$1
}

# What a test says, its last steps and the daemon's last lines: most tests end at a step without a word.
tell_failure() {
    echo "FAIL $1"
    echo "REPEAT: ./check.sh --job cli $(basename "$(dirname "$runfs")") $1"
    tail -n 10 "$work/said" | sed "s/^/FAIL $1: /"
    grep -vE '^\++ (return|result=|set \+x|echo )' "$work/steps" | tail -n 6 | sed "s/^/FAIL $1: /"
    [ -z "${d:-}" ] || tail -n 5 "$d/cache/runfs.log" 2>/dev/null
}

# The steps go to a descriptor of their own, as the tests look at what is said on stderr.
with_steps() {
    set -x
    "$@"
}

run() {
    local name=$1 reason='' BASH_XTRACEFD result=0
    [[ $name == *$only* ]] || return 0
    exec {BASH_XTRACEFD}>"$work/steps"
    with_steps "test_$name" >"$work/said" 2>&1 || result=$?
    { set +x; } 2>/dev/null
    exec {BASH_XTRACEFD}>&-
    if [ "$result" -ne 0 ]; then
        failed=$((failed + 1))
        tell_failure "$name"
    elif [ -n "$reason" ]; then
        skipped=$((skipped + 1))
        echo "SKIP $name: $reason"
    else
        passed=$((passed + 1))
        echo "ok   $name"
    fi
}

# The names of the tests of this lane (all without one). Lane 0 has those of the S3 server, which some of them stop; the
# other lanes have each their share of the rest.
tests() {
    declare -F | sed -n 's/^declare -f test_//p' | awk -v lane="${RUNFS_CLI_LANE:-}" -v lanes="$lanes" '
        lane == "" || (/^s3_/ ? lane == 0 : ++n % (lanes - 1) == lane - 1)'
}

run_lane() {
    local name
    for name in $(tests); do
        if [[ $name == s3_* ]] && [ "$RUNFS_CLI_S3" = no ]; then
            skipped=$((skipped + 1))
            echo "SKIP $name: no S3 server"
        else
            run "$name"
        fi
    done
}

# Each lane is a run of its own, with its own place; the sum is told when all have ended.
run_lanes() {
    local lane pid pids=() result=0
    for ((lane = 0; lane < lanes; lane++)); do
        RUNFS_CLI_LANE=$lane "$0" 2>&1 | tee "$work/lane.$lane" &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid" || result=1
    done
    read -r passed failed skipped < <(awk '/^cli: [0-9]+ passed/ { p += $2; f += $4; s += $6 } END { print p + 0, f + 0, s + 0 }' \
        "$work"/lane.*)
    # One that ended without a word of what failed.
    [ "$result" -eq 0 ] || [ "$failed" -ne 0 ] || failed=1
}

if [ -z "$only" ] && [ -z "${RUNFS_CLI_LANE:-}" ]; then
    run_lanes
else
    run_lane
fi
echo "cli: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
