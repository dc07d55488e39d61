# shellcheck shell=bash
# What the tests of the commands share: to run a command and look at what came of it, a place to mount at, a store
# that refuses. Sourced by run.sh, which sets `work`, `runfs` and `top`.
# shellcheck disable=SC2119,SC2120,SC2154 # variables of run.sh and lib.sh, and functions for others

# ---- helpers --------------------------------------------------------------------------------

# Runs a command with a limit; its exit code in $code, its words in $work/out and $work/err.
try() {
    code=0
    if declare -F "$1" >/dev/null; then
        "$@" >"$work/out" 2>"$work/err" </dev/null || code=$?
    else
        timeout 60 "$@" >"$work/out" 2>"$work/err" </dev/null || code=$?
    fi
}

say() {
    echo "  $*"
    return 1
}

# expect_code N: of the last try.
expect_code() {
    [ "$code" = "$1" ] || say "exit code $code instead of $1: $(cat "$work/out" "$work/err")"
}

# refused CODE WORDS COMMAND...: ends with the code and one line on stderr that holds the words.
# Others' processes, and mounts of others that are dead or hang, may be told too: the machine has what it has.
refused() {
    local wanted=$1 words=$2
    shift 2
    try "$@"
    sed -i -e '/: cannot look at [0-9]* process.* waiting in the kernel/d' \
        -e "/ can't be asked: \| does not answer which stores /{\\#$work#!d}" "$work/err"
    expect_code "$wanted" || return 1
    [ "$(wc -l <"$work/err")" = 1 ] || say "not one line: $(cat "$work/err")" || return 1
    grep -qF -- "$words" "$work/err" || say "does not say '$words': $(cat "$work/err")"
}

# fresh NAME: an empty place with folders store, mnt and a cache directory to be, in $d.
fresh() {
    d=$work/$1
    mkdir -p "$d/store" "$d/mnt"
}

# own_namespace COMMAND...: in a mount namespace of its own, without copies of other runs' mounts: these would be mounted
# there for as long as it lives, whoever unmounts them.
own_namespace() {
    # shellcheck disable=SC2016 # for that shell
    unshare -m --propagation private sh -c '
        awk "/ - fuse[.]runfs / { print \$5 }" /proc/self/mountinfo | tac | while read -r p; do umount -l "$p"; done
        exec "$@"' sh "$@"
}

# unmounted COMMAND...: who asks all mounts, as the status of another run does, holds this one for a moment.
unmounted() {
    until_true 20 "$@" 2>/dev/null
}

# mount_here [OPTIONS]: the store of $d, ready when it returns.
mount_here() {
    try "$runfs" mount -o "cache_dir=$d/cache${1:+,$1}" "$d/store" "$d/mnt"
    expect_code 0 && daemon_pid >>"$work/pids"
}

umount_here() {
    try "$runfs" umount "$d/mnt" --timeout 40
    expect_code 0
}

daemon_pid() {
    "$runfs" status --json "$d/mnt" | json 'd["pid"]'
}

# has_line PATTERN: reads all of stdin, so that nobody who writes it finds it closed, as `grep -q` would do.
has_line() {
    grep -c -e "$1" >"$work/lines"
}

# json EXPRESSION: of the document d on stdin.
json() {
    python3 -c 'import json, sys
d = json.load(sys.stdin)
print(eval(sys.argv[1]))' "$1"
}

is_mounted() {
    awk -v p="$1" '$5 == p { found = 1 } END { exit !found }' /proc/self/mountinfo
}

# until_true SECONDS COMMAND...
until_true() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || say "never: $*" || return 1
        sleep 0.1
    done
}

# Ended, or a zombie that nobody fetches (a container's first process need not).
gone() {
    ! kill -0 "$1" 2>/dev/null ||
        { grep -q '^State:.Z' "/proc/$1/status" && [ "$(find "/proc/$1/task" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)" -le 1 ]; }
}

# Who looks at it at that moment, as the status of another test, makes files in it.
remove_cache() {
    until_true 10 rm -rf "$1" 2>/dev/null
}

# ---- a store that refuses -------------------------------------------------------------------

can_fill() {
    [ "$(id -u)" = 0 ]
}

# A mount of a store that is full: $d/mnt/kept can't be uploaded.
stuck_store() {
    mount -t tmpfs -o size=64k tmpfs "$d/store" || return 1
    head -c 1000000 /dev/zero >"$d/store/.fill" 2>/dev/null
    mount_here && echo precious >"$d/mnt/kept"
}

unstick_store() {
    mount -o remount,size=64m "$d/store"
}

# Ends the daemon of a stuck mount as a crash does.
umount_of_stuck() {
    local pid
    pid=$(daemon_pid)
    kill -9 "$pid" && until_true 30 gone "$pid"
}
