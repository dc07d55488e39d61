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
    RUNFS_CLI_S3=no
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/runfs-cli.XXXXXX")
work=$(cd "$work" && pwd -P)
: >"$work/pids"
passed=0 failed=0 skipped=0
only=${1:-}

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
# umount may tell of others' processes, too: the machine has what it has.
refused() {
    local wanted=$1 words=$2
    shift 2
    try "$@"
    sed -i '/: cannot look at [0-9]* process.* waiting in the kernel/d' "$work/err"
    expect_code "$wanted" || return 1
    [ "$(wc -l <"$work/err")" = 1 ] || say "not one line: $(cat "$work/err")" || return 1
    grep -qF -- "$words" "$work/err" || say "does not say '$words': $(cat "$work/err")"
}

# fresh NAME: an empty place with folders store, mnt and a cache directory to be, in $d.
fresh() {
    d=$work/$1
    mkdir -p "$d/store" "$d/mnt"
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

# ---- the command line -----------------------------------------------------------------------

test_help_and_version() {
    local command
    try "$runfs" --version
    expect_code 0 && grep -qE '^runfs [0-9]+\.[0-9]+' "$work/out" || return 1
    cp "$work/out" "$work/said"
    try "$runfs" version
    expect_code 0 && cmp "$work/out" "$work/said" || return 1
    try "$runfs" help
    expect_code 0 && grep -q '^  version ' "$work/out" || return 1
    refused 2 'did you mean mount?' "$runfs" help moutn || return 1
    try "$runfs" --help
    expect_code 0 || return 1
    for command in mount umount status flush fetch pin unpin recover; do
        grep -q "^  $command " "$work/out" || say "--help lacks $command" || return 1
    done
    for command in mount umount status flush fetch pin unpin recover; do
        try "$runfs" "$command" --help
        expect_code 0 && grep -q "^Usage: runfs $command " "$work/out" &&
            grep -q '^Exit codes:' "$work/out" || say "$command --help" || return 1
        [ ! -s "$work/err" ] || say "$command --help complains" || return 1
        cp "$work/out" "$work/said"
        try "$runfs" help "$command"
        expect_code 0 && cmp "$work/out" "$work/said" || return 1
    done
}

test_wrong_command_lines() {
    refused 2 'runfs --help' "$runfs" &&
        refused 2 'did you mean mount?' "$runfs" moutn "$work" "$work" &&
        refused 2 'unknown command xyzzy' "$runfs" xyzzy &&
        refused 2 'needs a store' "$runfs" mount &&
        refused 2 'needs a store' "$runfs" mount "$work" &&
        refused 2 'not also c' "$runfs" mount a b c &&
        refused 2 'unknown option --foreground' "$runfs" mount --foreground a b &&
        refused 2 'needs one mountpoint' "$runfs" umount &&
        refused 2 'did you mean --timeout?' "$runfs" umount --timout 3 "$work" &&
        refused 2 'expected a time' "$runfs" umount "$work" --timeout soon &&
        refused 2 'needs a value' "$runfs" umount "$work" --timeout &&
        refused 2 'takes no value' "$runfs" status --json=yes "$work" &&
        refused 2 'needs a path' "$runfs" flush &&
        refused 2 'needs one cache directory' "$runfs" recover &&
        refused 2 'exclude each other' "$runfs" recover --list --publish "$work"
}

test_unknown_options() {
    fresh unknown
    refused 2 'unknown option "cache_sise", did you mean "cache_size"?' \
        "$runfs" mount -o cache_sise=1G "$d/store" "$d/mnt" &&
        refused 2 'expected a size' "$runfs" mount -o cache_size=huge "$d/store" "$d/mnt" &&
        refused 2 'expected cache, store' "$runfs" mount -o durability=x "$d/store" "$d/mnt" &&
        refused 2 'expected plain' "$runfs" mount -o layout=ray "$d/store" "$d/mnt" &&
        refused 1 'did you mean "allow_other"' "$runfs" "$d/store" "$d/mnt" -o allow_othr
}

test_bad_configurations() {
    fresh configuration
    refused 2 'missing.json: No such file' "$runfs" mount "$d/missing.json" "$d/mnt" || return 1
    echo '{"stores": ' >"$d/c.json"
    refused 2 'c.json: line' "$runfs" mount "$d/c.json" "$d/mnt" || return 1
    echo '{"options": {"ro": true}}' >"$d/c.json"
    refused 2 'names no store' "$runfs" mount "$d/c.json" "$d/mnt" || return 1
    echo '{"stores": {"a": {"url": "/x", "regoin": "y"}}}' >"$d/c.json"
    refused 2 'did you mean "region"' "$runfs" mount "$d/c.json" "$d/mnt" || return 1
    echo '{"stores": {"a": {"url": "/x"}},
        "routes": [{"path": "runs/{run}/**", "store": "a"}]}' >"$d/c.json"
    refused 2 'exactly one route' "$runfs" mount "$d/c.json" "$d/mnt" || return 1
    refused 2 'mount that name' "$runfs" mount -o "config=$d/c.json" "$d/store" "$d/mnt" &&
        return 1 # its routes are wrong too, and told first
    echo '{"stores": {"a": {"url": "/x"}}}' >"$d/c.json"
    refused 2 'mount that name' "$runfs" mount -o "config=$d/c.json" "$d/store" "$d/mnt"
}

test_bad_urls() {
    local url
    fresh urls
    for url in s4://bucket/x ftp://host/x s3:// s3:///prefix relative/path file://host/x ''; do
        try "$runfs" mount -o "cache_dir=$d/cache" "$url" "$d/mnt"
        [ "$code" = 1 ] && [ "$(wc -l <"$work/err")" = 1 ] ||
            say "'$url': exit $code, $(cat "$work/err")" || return 1
        ! is_mounted "$d/mnt" || say "'$url' was mounted" || return 1
    done
    refused 5 nonexistent "$runfs" mount -o "cache_dir=$d/cache" /nonexistent/store "$d/mnt"
}

test_secrets_in_urls() {
    fresh secrets
    refused 2 'credentials' "$runfs" mount 's3://key:hunter2@bucket/x' "$d/mnt" || return 1
    ! grep -q hunter2 "$work/out" "$work/err" || say 'the message shows the secret'
}

# ---- mountpoint, cache directory ------------------------------------------------------------

test_bad_mountpoints() {
    fresh points
    refused 5 'does not exist' "$runfs" mount "$d/store" "$d/nowhere" || return 1
    touch "$d/file"
    refused 1 'is not a directory' "$runfs" mount "$d/store" "$d/file" || return 1
    mkdir "$d/full"
    touch "$d/full/precious"
    refused 1 'it holds precious' "$runfs" mount -o "cache_dir=$d/cache" "$d/store" "$d/full" || return 1
    try "$runfs" mount -o "cache_dir=$d/cache,nonempty" "$d/store" "$d/full"
    expect_code 0 || return 1
    try "$runfs" umount "$d/full" --timeout 40
    expect_code 0 && [ -e "$d/full/precious" ] || return 1
    mount_here || return 1
    refused 4 'is busy' "$runfs" mount -o "cache_dir=$d/other" "$d/store" "$d/mnt" || return 1
    umount_here
}

test_overlaps() {
    fresh overlap
    mkdir "$d/mnt/store"
    refused 1 'lies within the mountpoint' \
        "$runfs" mount -o "cache_dir=$d/cache" "$d/mnt/store" "$d/mnt" &&
        refused 1 'lies within the mountpoint' \
            "$runfs" mount -o "cache_dir=$d/mnt/cache" "$d/store" "$d/mnt" &&
        refused 1 'lies within the store' \
            "$runfs" mount -o "cache_dir=$d/store/cache" "$d/store" "$d/mnt"
}

test_cache_in_use() {
    fresh inuse
    mkdir "$d/mnt2"
    mount_here || return 1
    refused 4 "$d/cache" "$runfs" mount -o "cache_dir=$d/cache" "$d/store" "$d/mnt2" &&
        refused 4 "$d/cache" "$runfs" recover --list "$d/cache" &&
        umount_here
}

test_cache_without_xattrs() {
    fresh xattrs
    mkdir "$d/ramfs"
    if [ "$(id -u)" != 0 ] || ! mount -t ramfs ramfs "$d/ramfs" 2>/dev/null; then
        skip 'a ramfs needs root'
        return
    fi
    refused 1 xattr "$runfs" mount -o "cache_dir=$d/ramfs/cache" "$d/store" "$d/mnt" || return 1
    umount "$d/ramfs"
}

test_cache_of_another_store() {
    fresh identity
    mkdir "$d/store2"
    if ! can_fill; then
        skip 'a full store needs root'
        return
    fi
    stuck_store || return 1
    umount_of_stuck || return 1
    refused 1 "$d/cache" "$runfs" mount -o "cache_dir=$d/cache" "$d/store2" "$d/mnt" || return 1
    unstick_store
    mount_here && umount_here && grep -qx precious "$d/store/kept"
}

# As after an edit of fstab.
test_cache_takes_another_store() {
    fresh another
    mkdir "$d/store2"
    mount_here && mkdir "$d/mnt/dir" && echo first >"$d/mnt/dir/x" && umount_here || return 1
    echo second >"$d/store2/y"
    try "$runfs" mount -o "cache_dir=$d/cache" "$d/store2" "$d/mnt"
    expect_code 0 && daemon_pid >>"$work/pids" || return 1
    [ "$(ls "$d/mnt")" = y ] && grep -qx second "$d/mnt/y" || say "it shows $(ls "$d/mnt")" || return 1
    umount_here && [ "$(ls "$d/store2")" = y ] && grep -qx first "$d/store/dir/x"
}

# All that can be seen of a directory and what is in it.
seen() {
    find "$1" -printf '%p %M %u %s %T@ %C@ %l\n' | sort
}

# left_alone FOLDER WORDS COMMAND...: refused, and nothing in the folder has changed.
left_alone() {
    local folder=$1 words=$2 before
    shift 2
    before=$(seen "$folder")
    try "$@"
    [ "$code" -gt 0 ] && grep -qF -- "$words" "$work/err" ||
        say "exit code $code, does not say '$words': $(cat "$work/out" "$work/err")" || return 1
    [ "$before" = "$(seen "$folder")" ] || say "$folder was changed: $(seen "$folder")"
}

test_cache_dir_with_other_things() {
    fresh things
    mkdir -m 755 "$d/home" "$d/disk" "$d/disk/lost+found" "$d/open"
    echo text >"$d/home/thesis"
    left_alone "$d/home" "cache_dir=$d/home/runfs" \
        "$runfs" mount -o "cache_dir=$d/home" "$d/store" "$d/mnt" || return 1
    chmod 777 "$d/open"
    [ "$(id -u)" != 0 ] ||
        left_alone "$d/open" 'chmod +t' "$runfs" mount -o "cache_dir=$d/open/cache" "$d/store" "$d/mnt" ||
        return 1
    try "$runfs" mount -o "cache_dir=$d/disk" "$d/store" "$d/mnt"
    expect_code 0 && umount_here && [ -d "$d/disk/lost+found" ]
}

# A cache that holds something, of another user; what he wrote there would be root's orders.
test_cache_of_another_user() {
    fresh theirs
    if [ "$(id -u)" != 0 ]; then
        skip 'another user needs root'
        return
    fi
    mount_here && echo x >"$d/mnt/x" && umount_here || return 1
    chown -R nobody "$d/cache"
    chmod 755 "$work"
    local way word="runuser -u nobody -- runfs recover '$d/cache'"
    for way in '' --list --publish "--export $d/out"; do
        # shellcheck disable=SC2086 # the folder is a word of its own
        left_alone "$d" "$word" "$runfs" recover $way "$d/cache" || return 1
    done
    left_alone "$d" "$word" "$runfs" mount -o "cache_dir=$d/cache" "$d/store" "$d/mnt" || return 1
    left_alone "$d" "$d/cache" "$runfs" status "$d/cache" || return 1
    cp "$runfs" "$work/runfs-of-all"
    local nobody="setpriv --reuid nobody --regid nogroup --clear-groups"
    for way in '' 'unshare -r'; do
        # shellcheck disable=SC2086 # words
        $nobody $way true 2>/dev/null || continue # no user namespaces here
        # shellcheck disable=SC2086
        try $nobody $way "$work/runfs-of-all" recover "$d/cache"
        expect_code 0 && grep -q 'owes its store nothing' "$work/out" || return 1
    done
}

# Root of the machine has no number in a user's namespace, and his programs are the system's.
test_a_program_of_roots_gives_keys_in_a_namespace() {
    local inside='runuser -u nobody -- unshare -r'
    fresh namespace
    # shellcheck disable=SC2086 # words
    if [ "$(id -u)" != 0 ] || ! $inside true 2>/dev/null; then
        skip 'needs root, and namespaces for users'
        return
    fi
    chmod 755 "$work" && chmod 777 "$d" && cp "$runfs" "$work/runfs-of-all"
    echo "[default]
credential_process = /bin/echo '{\"Version\": 1, \"AccessKeyId\": \"A\", \"SecretAccessKey\": \"S\"}'" >"$d/config"
    # Only who has keys asks a store, which nobody can reach here.
    # shellcheck disable=SC2086
    try env -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY AWS_SHARED_CREDENTIALS_FILE=/dev/null \
        AWS_CONFIG_FILE="$d/config" $inside "$work/runfs-of-all" mount \
        -o "cache_dir=$d/cache,endpoint=http://127.0.0.1:9,region=here,mount_timeout=1s" s3://bucket "$d/mnt"
    expect_code 7
}

# What others prepared where root makes his cache.
test_cache_dir_that_leads_elsewhere() {
    local name
    fresh elsewhere
    if [ "$(id -u)" != 0 ]; then
        skip 'another user needs root'
        return
    fi
    mkdir "$d/root" && echo secret >"$d/root/file"
    mkdir -m 1777 "$d/shared" && ln -s "$d/root/new" "$d/shared/link" && chown -h nobody "$d/shared/link"
    left_alone "$d" 'on the way there belongs to nobody' \
        "$runfs" mount -o "cache_dir=$d/shared/link" "$d/store" "$d/mnt" || return 1
    mkdir "$d/shared/theirs" && chown nobody "$d/shared/theirs"
    left_alone "$d" 'belongs to nobody' \
        "$runfs" mount -o "cache_dir=$d/shared/theirs/cache" "$d/store" "$d/mnt" || return 1
    # Put there while all could write to it.
    for name in runfs.log lock version version.new; do
        mkdir -m 777 "$d/$name" && ln -s "$d/root/file" "$d/$name/$name"
        left_alone "$d/root" 'no plain file of this user' \
            "$runfs" mount -o "cache_dir=$d/$name" "$d/store" "$d/mnt" || return 1
    done
    for name in store.json.new boot.new state.db state.db-wal runfs.log; do
        mount_here && umount_here || return 1
        ln -sf "$d/root/file" "$d/cache/$name"
        left_alone "$d/root" 'no plain file of this user' \
            "$runfs" mount -o "cache_dir=$d/cache" "$d/store" "$d/mnt" || return 1
        rm "$d/cache/$name"
    done
}

# ---- the normal day -------------------------------------------------------------------------

test_mount_write_umount() {
    fresh day
    mount_here || return 1
    mkdir "$d/mnt/run1"
    head -c 3000000 /dev/urandom >"$d/mnt/run1/model.bin"
    cp "$d/mnt/run1/model.bin" "$d/original"
    echo last >"$d/mnt/run1/a b%c"
    umount_here || return 1
    ! is_mounted "$d/mnt" || say 'still mounted' || return 1
    cmp "$d/original" "$d/store/run1/model.bin" && grep -qx last "$d/store/run1/a b%c" || return 1
    [ ! -e "$d/cache/control" ] || say 'the socket is left behind' || return 1
    grep -q 'everything is in the store' "$d/cache/runfs.log"
}

test_configuration_file() {
    fresh configured
    cat >"$d/c.json" <<JSON
{"stores": {"s": {"url": "file://$d/store"}}, "routes": [{"path": "**", "store": "s"}],
 "cache": {"dir": "$d/cache", "size": "1GiB"}, "options": {"umask": "077", "ro": false}}
JSON
    try "$runfs" mount "$d/c.json" "$d/mnt"
    expect_code 0 || return 1
    [ "$("$runfs" status --json "$d/mnt" | json 'd["cache"]["size_bytes"]')" = 1073741824 ] ||
        say 'cache size is not what the file says' || return 1
    umount_here || return 1
    try "$runfs" mount -o "config=$d/c.json,ro" s "$d/mnt"
    expect_code 0 || return 1
    ! touch "$d/mnt/x" 2>/dev/null || say 'ro is writable' || return 1
    umount_here
}

test_helper_form() {
    fresh helper
    ln -s "$runfs" "$d/mount.fuse.runfs"
    try "$d/mount.fuse.runfs" "$d/store" "$d/mnt" -o \
        "rw,noauto,_netdev,nofail,x-systemd.automount,noatime,nosuid,noexec,cache_dir=$d/cache"
    expect_code 0 || return 1
    awk -v p="$d/mnt" '$5 == p { print $6 }' /proc/self/mountinfo | grep -q noexec ||
        say 'noexec did not reach the mount' || return 1
    umount_here || return 1
    try "$runfs" "file://$d/store" "$d/mnt" -o "rw,cache_dir=$d/cache"
    expect_code 0 && umount_here
}

# What mount(8) documents, of both names that it may know us by.
test_helper_codes() {
    fresh codes
    ln -s "$runfs" "$d/mount.fuse.runfs"
    refused 1 'unknown option' "$d/mount.fuse.runfs" "$d/store" "$d/mnt" -o cache_sise=1G &&
        refused 1 'unknown argument' "$d/mount.fuse.runfs" "$d/store" "$d/mnt" --what &&
        refused 32 'does not exist' "$d/mount.fuse.runfs" "$d/store" "$d/nowhere" &&
        refused 32 nonexistent "$d/mount.fuse.runfs" /nonexistent/store "$d/mnt" -o \
            "cache_dir=$d/cache" &&
        refused 32 nonexistent "$runfs" /nonexistent/store "$d/mnt" -o "cache_dir=$d/cache"
}

test_foreground() {
    local pid
    fresh foreground
    "$runfs" mount -f -o "cache_dir=$d/cache" "$d/store" "$d/mnt" >"$d/log" 2>&1 </dev/null &
    pid=$!
    until_true 20 is_mounted "$d/mnt" || return 1
    until_true 20 grep -q mounted "$d/log" || return 1
    echo here >"$d/mnt/x"
    kill -INT "$pid"
    wait "$pid" || say "exit code $? after SIGINT: $(cat "$d/log")" || return 1
    ! is_mounted "$d/mnt" || say 'still mounted' || return 1
    [ ! -e "$d/cache/runfs.log" ] && grep -qx here "$d/store/x"
}

test_default_cache_dir() {
    fresh default
    if [ "$(id -u)" = 0 ]; then
        try "$runfs" mount "$d/store" "$d/mnt"
    else
        try env XDG_CACHE_HOME="$d/home" "$runfs" mount "$d/store" "$d/mnt"
    fi
    expect_code 0 || return 1
    local dir
    dir=$("$runfs" status --json "$d/mnt" | json 'd["cache_dir"]')
    [[ $dir == */runfs/* ]] && [ "$(stat -c %a "$dir")" = 700 ] || say "cache is $dir" || return 1
    umount_here && rm -r "$dir"
}

test_what_a_mount_says() {
    fresh says
    mount_here || return 1
    [ ! -s "$work/out" ] && grep -q "note: file://$d/store holds nothing yet" "$work/err" ||
        say "of an empty store: $(cat "$work/out" "$work/err")" || return 1
    touch "$d/mnt/x"
    umount_here && mount_here || return 1
    [ ! -s "$work/out" ] && [ ! -s "$work/err" ] || say "it talks: $(cat "$work/out" "$work/err")" ||
        return 1
    umount_here || return 1
    python3 -c 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]))' "$runfs" mount -o \
        "cache_dir=$d/cache" "$d/store" "$d/mnt" >"$d/said" </dev/null || return 1
    daemon_pid >>"$work/pids"
    [ "$(wc -l <"$d/said")" = 1 ] && grep -qF "file://$d/store is mounted on $d/mnt, cache $d/cache" "$d/said" &&
        grep -qF "runfs umount $d/mnt" "$d/said" || say "$(cat "$d/said")" || return 1
    umount_here
}

# As in a container whose /dev has what it needs and nothing else.
test_a_pipe_is_let_go_without_dev_null() {
    can_fill || { skip 'needs root'; return 0; }
    fresh null
    touch "$d/fuse"
    # shellcheck disable=SC2016 # for that shell
    try timeout 30 unshare -m --propagation private sh -c '
        mount --bind /dev/fuse "$1/fuse" && mount -t tmpfs tmpfs /dev && touch /dev/fuse &&
            mount --bind "$1/fuse" /dev/fuse || exit
        "$2" mount -o "cache_dir=$1/cache" "$1/store" "$1/mnt" 2>&1 | cat
        echo x >"$1/mnt/x" && "$2" umount "$1/mnt"' sh "$d" "$runfs"
    [ "$code" = 0 ] || { "$runfs" status --json "$d/cache" | json 'd["pid"]' >>"$work/pids"; }
    expect_code 0 && grep -qx x "$d/store/x"
}

# ---- status ---------------------------------------------------------------------------------

test_status_document() {
    fresh status
    mount_here || return 1
    echo x >"$d/mnt/held.tmp"
    "$runfs" status --json --files "$d/mnt" >"$d/status.json" &&
        python3 "$here/check_status.py" "$d/status.json" files || return 1
    "$runfs" status --json "$d/mnt" >"$d/status.json" &&
        python3 "$here/check_status.py" "$d/status.json" || return 1
    cat "$d/mnt/.runfs/status.json" >"$d/status.json" &&
        python3 "$here/check_status.py" "$d/status.json" files || return 1
    "$runfs" status --json --files "$d/mnt" | json '[f["path"] for f in d["files"]]' |
        grep -q held.tmp || say 'held.tmp is not among the files' || return 1
    "$runfs" status --files "$d/mnt" | grep -q 'staged .*held.tmp' || return 1
    "$runfs" status "$d/mnt" | grep -q "^store  *file://$d/store" || return 1
    "$runfs" status "$d/cache" | grep -q "^store  *file://$d/store" || return 1
    grep -q '^runfs_dirty_files 1$' "$d/mnt/.runfs/metrics" ||
        say "metrics: $(grep dirty "$d/mnt/.runfs/metrics")" || return 1
    awk '!/^#/ && !/^runfs_[a-z_]+ [0-9]+$/ { print; bad = 1 } END { exit bad }' \
        "$d/mnt/.runfs/metrics" || return 1
    umount_here && [ -e "$d/store/held.tmp" ]
}

test_status_elsewhere() {
    refused 5 'is not on a runfs mount' "$runfs" status "$work" &&
        refused 5 'No such file' "$runfs" status /nonexistent/x &&
        refused 5 'is not on a runfs mount' "$runfs" flush "$work" &&
        refused 5 'is not on a runfs mount' "$runfs" umount "$work"
}

# of_default PATH: the cache that a mount took by itself, below $d/home.
in_home() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        XDG_CACHE_HOME="$d/home" "$@"
    fi
}

test_overview() {
    local pid dir
    fresh overview
    mount_here settle=1h || return 1
    echo x >"$d/mnt/x"
    "$runfs" status --json >"$d/all.json" || return 1
    json "[m['state'] for m in d['mounts'] if m['mountpoint'] == '$d/mnt'] == ['mounted']" <"$d/all.json" |
        grep -qx True || say "$(cat "$d/all.json")" || return 1
    "$runfs" status | grep -A1 "^$d/mnt  file://$d/store" | grep -q 'mounted; not in the store: 1 files' ||
        say "$("$runfs" status)" || return 1
    pid=$(daemon_pid)
    kill -9 "$pid" && until_true 30 gone "$pid" || return 1
    "$runfs" status | grep -A1 "^$d/mnt" | grep -q 'dead' || say "$("$runfs" status)" || return 1
    mount_here && umount_here
}

test_overview_of_what_was_left() {
    local pid dir
    fresh left
    in_home "$runfs" mount -o settle=1h "$d/store" "$d/mnt" || return 1
    pid=$(daemon_pid)
    echo "$pid" >>"$work/pids"
    dir=$("$runfs" status --json "file://$d/store/" | json 'd["cache_dir"]')
    echo precious >"$d/mnt/x"
    kill -9 "$pid" && until_true 30 gone "$pid" || return 1
    # By the dead mountpoint, the store, and the folder that it is.
    in_home "$runfs" recover "$d/mnt" | grep -q 'write .*x$' || say 'not by the mountpoint' || return 1
    refused 3 'had died' "$runfs" umount "$d/mnt" || return 1
    in_home "$runfs" recover "file://$d/store" | grep -q 'write .*x$' || say 'not by the store' || return 1
    in_home "$runfs" recover "$d/store" | grep -q 'write .*x$' || say 'not by the folder' || return 1
    in_home "$runfs" status >"$d/all" || return 1
    grep -A1 "^left: cache $dir  file://$d/store" "$d/all" |
        grep -q "publish them: runfs recover --publish $dir\$" || say "$(cat "$d/all")" || return 1
    cp -a "$dir" "$dir.copy"
    try in_home "$runfs" recover "$d/store"
    expect_code 1 && grep -q "has 2 caches" "$work/err" && grep -q "$dir.copy" "$work/err" ||
        say "$(cat "$work/out" "$work/err")" || return 1
    rm -r "$dir.copy"
    in_home "$runfs" recover --publish "$d/mnt" && grep -qx precious "$d/store/x" || return 1
    ! in_home "$runfs" status | grep -q "$dir" || say 'it is told though it owes nothing' || return 1
    rm -r "$dir"
}

# What can't be asked is told, and does not hide the others.
test_overview_of_others() {
    local pid
    fresh others
    if [ "$(id -u)" != 0 ]; then
        skip 'a mount of another user needs root'
        return
    fi
    chmod 755 "$work" "$d"
    mount_here || return 1
    cp "$runfs" "$d/runfs"
    try setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/nonexistent "$d/runfs" status
    expect_code 0 && grep -A1 "^$d/mnt  " "$work/out" | grep -q "another user's" ||
        say "$(cat "$work/out" "$work/err")" || return 1
    pid=$(daemon_pid)
    kill -STOP "$pid"
    try "$runfs" status
    kill -CONT "$pid"
    expect_code 0 && grep -A1 "^$d/mnt  " "$work/out" | grep -q 'silent: it does not answer' ||
        say "$(cat "$work/out" "$work/err")" || return 1
    umount_here
}

test_names_that_are_not_text() {
    fresh names
    mount_here settle=1h || return 1
    echo x >"$d/mnt/"$'bad\xff\nname'
    "$runfs" status --json --files "$d/mnt" | python3 -m json.tool >/dev/null || return 1
    [ "$("$runfs" status --files "$d/mnt" | grep -c 'bad.*name$')" = 1 ] ||
        say 'a name forges a line' || return 1
    try "$runfs" flush "$d/mnt/"$'bad\xff\nname'
    expect_code 0 && [ -e "$d/store/"$'bad\xff\nname' ] && umount_here
}

# ---- flush, fetch, pin ----------------------------------------------------------------------

test_flush() {
    fresh flush
    mount_here settle=1h || return 1
    mkdir "$d/mnt/a" "$d/mnt/b"
    echo 1 >"$d/mnt/a/x"
    echo 2 >"$d/mnt/b/y"
    try "$runfs" flush "$d/mnt/a/x"
    expect_code 0 && grep -qx 1 "$d/store/a/x" || return 1
    [ ! -e "$d/store/b/y" ] || say 'b/y was not asked for' || return 1
    ln -s "$d/mnt/b" "$d/link" # leads into the mount
    try "$runfs" flush "$d/link"
    expect_code 0 && grep -qx 2 "$d/store/b/y" || return 1
    echo 3 >"$d/mnt/b/z"
    (cd "$d/mnt/b" && try "$runfs" flush . && expect_code 0) && grep -qx 3 "$d/store/b/z" || return 1
    refused 5 nothing "$runfs" flush "$d/mnt/nothing" || return 1
    umount_here
}

test_flush_of_staging_names() {
    fresh staging
    mount_here || return 1
    echo 1 >"$d/mnt/model.tmp"
    refused 3 'wait for their rename' "$runfs" flush "$d/mnt" || return 1
    grep -q ': model.tmp$' "$work/err" || say "which? $(cat "$work/err")" || return 1
    [ ! -e "$d/store/model.tmp" ] || say 'it was published' || return 1
    try "$runfs" flush --staged "$d/mnt"
    expect_code 0 && grep -qx 1 "$d/store/model.tmp" && umount_here
}

test_fetch_and_pin() {
    fresh fetch
    mkdir "$d/store/data"
    head -c 5000000 /dev/urandom >"$d/store/data/one"
    mount_here || return 1
    try "$runfs" fetch "$d/mnt/data"
    expect_code 0 || return 1
    [ "$(getfattr --only-values -n user.runfs.state "$d/mnt/data/one" 2>/dev/null)" = clean ] ||
        say 'not complete after fetch' || return 1
    try "$runfs" pin "$d/mnt/data"
    expect_code 0 || return 1
    [ "$("$runfs" status --json "$d/mnt" | json 'd["cache"]["pinned_files"] > 0')" = True ] ||
        say 'nothing is pinned' || return 1
    try "$runfs" unpin "$d/mnt/data"
    expect_code 0 || return 1
    [ "$("$runfs" status --json "$d/mnt" | json 'd["cache"]["pinned_files"]')" = 0 ] || return 1
    cmp "$d/mnt/data/one" "$d/store/data/one" &&
        refused 5 nothing "$runfs" fetch "$d/mnt/nothing" && umount_here
}

# ---- the process ----------------------------------------------------------------------------

# What is opened has not their numbers, and the command hears of its daemon.
test_mount_with_closed_standard_descriptors() {
    fresh closed
    timeout 60 "$runfs" mount -o "cache_dir=$d/cache" "$d/store" "$d/mnt" <&- >&- 2>&-
    code=$?
    : >"$work/out"
    : >"$work/err"
    daemon_pid >>"$work/pids"
    expect_code 0 || return 1
    echo all >"$d/mnt/f"
    umount_here && grep -qx all "$d/store/f"
}

# Of a process, how many descriptors beside the first three an exec would pass on.
inheritable() {
    local fd flags n=0
    for fd in "/proc/$1/fdinfo"/*; do
        flags=$(sed -n 's/^flags:[[:space:]]*//p' "$fd" 2>/dev/null) # nothing: closed meanwhile
        [ "${fd##*/}" -le 2 ] || [ -z "$flags" ] || ((flags & 02000000)) || n=$((n + 1))
    done
    echo "$n"
}

test_the_process_keeps_to_itself() {
    local pid
    fresh own
    exec 9>"$d/callers"
    mount_here || return 1
    exec 9>&-
    pid=$(daemon_pid)
    ! find "/proc/$pid/fd" -lname "$d/callers" | grep . || say "keeps the caller's file open" || return 1
    [ "$(inheritable "$pid")" = 0 ] || say 'has descriptors that programs inherit' || return 1
    grep -Eq '^Max core file size +(0|1) +(0|1) ' "/proc/$pid/limits" || say 'would dump core' || return 1
    umount_here || return 1
    try env RUNFS_CORE_DUMPS=1 "$runfs" mount -o "cache_dir=$d/cache" "$d/store" "$d/mnt"
    expect_code 0 || return 1
    pid=$(daemon_pid)
    echo "$pid" >>"$work/pids"
    [ "$(grep '^Max core' "/proc/$pid/limits")" = "$(grep '^Max core' /proc/self/limits)" ] ||
        say 'RUNFS_CORE_DUMPS changes nothing' || return 1
    umount_here
}

# ---- umount and the end ---------------------------------------------------------------------

# is_running PID NAME: the program runs, and not any more the shell that starts it.
is_running() {
    [ "$(cat "/proc/$1/comm")" = "$2" ]
}

test_umount_while_in_use() {
    local pid
    fresh busy
    mount_here || return 1
    echo x >"$d/mnt/x"
    exec 9<"$d/mnt/x"
    sleep 60 & # has it too
    pid=$!
    exec 9<&-
    until_true 30 is_running "$pid" sleep || return 1
    refused 4 "$pid (sleep)" "$runfs" umount "$d/mnt" || return 1
    kill "$pid" && wait "$pid" 2>/dev/null
    (cd "$d/mnt" && exec sleep 60) &
    pid=$!
    until_true 30 is_running "$pid" sleep || return 1
    refused 4 "$pid (sleep)" "$runfs" umount "$d/mnt" || return 1
    kill "$pid" && wait "$pid" 2>/dev/null
    python3 -c 'import mmap, os, sys, time
f = os.open(sys.argv[1], os.O_RDONLY)
m = mmap.mmap(f, 0, prot=mmap.PROT_READ)
os.close(f)
print(m[0], flush=True)
time.sleep(60)' "$d/mnt/x" >"$d/mapped" &
    pid=$!
    until_true 30 test -s "$d/mapped" || return 1
    refused 4 "$pid (python3)" "$runfs" umount "$d/mnt" || return 1
    kill "$pid" && wait "$pid" 2>/dev/null
    is_mounted "$d/mnt" || say 'not mounted any more' || return 1
    refused 5 'not a mountpoint' "$runfs" umount "$d/mnt/x" && umount_here
}

# waits PID: it has asked somebody and sleeps.
waits() {
    is_running "$1" runfs && grep -q '^State:.S' "/proc/$1/status"
}

is_stopped() {
    grep -q '^State:.T' "/proc/$1/status"
}

# One that has just asked the mount for its daemon is stopped there while the other one works.
test_an_umount_is_no_user_of_the_mount() {
    local pid first result=0
    fresh both
    mount_here || return 1
    pid=$(daemon_pid)
    kill -STOP "$pid"
    "$runfs" umount "$d/mnt" >"$d/first" 2>&1 &
    first=$!
    until_true 30 waits "$first" || result=1
    kill -STOP "$first"
    kill -CONT "$pid"
    until_true 30 is_stopped "$first" && umount_here || result=1
    kill -CONT "$first"
    wait "$first"
    ! grep 'had died' "$d/first" || result=1
    return "$result"
}

# moved NAME: mounts, moves the folder of the mountpoint to $d/aside, and leaves a symlink to another
# mount, $d/other, at its path. The daemon is $pid.
moved() {
    fresh "$1"
    mkdir "$d/other" "$d/below" "$d/below/mnt"
    mount -t tmpfs tmpfs "$d/other" || return 1
    try "$runfs" mount -o "cache_dir=$d/cache" "$d/store" "$d/below/mnt"
    expect_code 0 || return 1
    pid=$("$runfs" status --json "$d/below/mnt" | json 'd["pid"]')
    echo "$pid" >>"$work/pids"
    mv "$d/below" "$d/aside" && mkdir "$d/below" && ln -s "$d/other" "$d/below/mnt"
}

# Whoever may write beside the mountpoint's folder puts a symlink in its place: what that leads to
# stays mounted, and the mount itself, which was moved, goes.
test_the_end_follows_no_symlink() {
    local pid
    can_fill || { skip 'needs root'; return 0; }
    moved moved || return 1
    kill -TERM "$pid"
    until_true 20 gone "$pid" || return 1
    is_mounted "$d/other" || say 'unmounted what a symlink leads to' || return 1
    ! is_mounted "$d/aside/mnt" || say 'its own mount stays'
    umount "$d/other"
}

# Nor when there is no descriptor to look with; and the daemon comes to its end.
test_the_end_follows_no_symlink_in_need() {
    local pid
    local -x ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 # who looks for leaks needs descriptors
    can_fill || { skip 'needs root'; return 0; }
    moved needy || return 1
    prlimit --pid "$pid" --nofile=3:
    kill -TERM "$pid"
    until_true 20 gone "$pid" || return 1
    is_mounted "$d/other" || say 'unmounted what a symlink leads to' || return 1
    grep -q 'everything is in the store' "$d/cache/runfs.log" || say "$(cat "$d/cache/runfs.log")" || return 1
    umount -l "$d/aside/mnt" && umount "$d/other"
}

test_a_remount_keeps_the_words_of_the_kernel() {
    fresh words
    mount_here || return 1
    mount -o remount,bind,nosuid,nodev,nosymfollow "$d/mnt" 2>/dev/null || { skip 'no nosymfollow here'; umount_here; return; }
    try "$runfs" mount -o remount,ro "$d/store" "$d/mnt"
    expect_code 0 || return 1
    grep -q " $d/mnt ro,.*,nosymfollow " /proc/self/mountinfo || say "$(grep "$d/mnt" /proc/self/mountinfo)" || return 1
    try "$runfs" mount -o remount,rw,nosymfollow "$d/store" "$d/mnt" # as mount(8) hands on what it sees
    expect_code 0 && umount_here
}

# mount_with_another_in_it NAME: a mount of its own, with another one in it.
mount_with_another_in_it() {
    fresh "$1"
    mkdir "$d/store/sub"
    mount_here && mount -t tmpfs tmpfs "$d/mnt/sub"
}

# Which has nothing of runfs's to wait for, and not for longer than one is told to: who has less
# time is answered before who has more and began before.
test_umount_below_another_mount() {
    local patient first
    can_fill || { skip 'needs root'; return 0; }
    mount_with_another_in_it above || return 1
    first=$d
    "$runfs" umount "$first/mnt" --timeout 60 >"$first/patient" 2>&1 &
    patient=$!
    mount_with_another_in_it above_too || return 1
    refused 4 "cannot unmount $d/mnt: " "$runfs" umount "$d/mnt" --timeout 1 || return 1
    kill "$patient" 2>/dev/null || say "waited as long as with more time: $(cat "$first/patient")" || return 1
    wait "$patient"
    for d in "$d" "$first"; do
        is_mounted "$d/mnt" || say 'not mounted any more' || return 1
        umount "$d/mnt/sub" && umount_here || return 1
    done
}

shows_an_error() {
    "$runfs" status "$d/mnt" | grep -q '^last error'
}

test_umount_that_fails() {
    fresh stuck
    if ! can_fill; then
        skip 'a full store needs root'
        return
    fi
    stuck_store || return 1
    try "$runfs" umount "$d/mnt" --timeout 2
    expect_code 3 || return 1
    grep -q 'stays mounted' "$work/err" && grep -q kept "$work/out" ||
        say "does not tell: $(cat "$work/out" "$work/err")" || return 1
    grep -qx precious "$d/mnt/kept" || say 'not mounted any more' || return 1
    refused 3 'flush' "$runfs" flush "$d/mnt/kept" --timeout 1 || return 1
    until_true 30 shows_an_error || return 1
    unstick_store
    umount_here && grep -qx precious "$d/store/kept"
}

# In another container: it has not been unmounted, and nobody waits for its end.
test_mount_beside_one_that_is_not_seen() {
    local pid
    can_fill || { skip 'needs root'; return 0; }
    fresh unseen
    try unshare -m --propagation private "$runfs" mount -o "cache_dir=$d/cache" "$d/store" "$d/mnt"
    expect_code 0 || return 1
    pid=$("$runfs" status --json "$d/cache" | json 'd["pid"]')
    echo "$pid" >>"$work/pids"
    refused 4 "in use by another mount, $d/mnt (process $pid)" \
        "$runfs" mount -o "cache_dir=$d/cache" "$d/store" "$d/mnt" || return 1
    kill "$pid" && until_true 30 gone "$pid"
}

# umount(8) leaves the upload to the daemon: a mount right after it waits for that, and says so.
test_mount_after_umount() {
    local mounting
    can_fill || { skip 'needs root'; return 0; }
    fresh again
    stuck_store || return 1
    umount "$d/mnt" || return 1
    "$runfs" mount -o "cache_dir=$d/cache" "$d/store" "$d/mnt" 2>"$work/waits" &
    mounting=$!
    until_true 30 grep -q 'waiting, .*uploads 1 files' "$work/waits" || return 1
    unstick_store
    wait "$mounting" || say "the mount failed: $(cat "$work/waits")" || return 1
    daemon_pid >>"$work/pids"
    grep -qx precious "$d/mnt/kept" && umount_here && grep -qx precious "$d/store/kept" || return 1
    umount "$d/store"
}

# No longer than mount_timeout; for a mount that is there not at all.
test_mount_beside_who_has_the_cache() {
    can_fill || { skip 'needs root'; return 0; }
    fresh beside
    stuck_store || return 1
    mkdir "$d/more"
    try "$runfs" mount -o "cache_dir=$d/cache,mount_timeout=10m" "$d/store" "$d/more"
    [ "$code" = 4 ] && grep -q "in use by another mount, $d/mnt (process $(daemon_pid))" "$work/err" ||
        say "says $(cat "$work/err")" || return 1
    umount "$d/mnt" && until_true 20 is_draining || return 1
    try "$runfs" mount -o "cache_dir=$d/cache,mount_timeout=300ms" "$d/store" "$d/mnt"
    [ "$code" = 4 ] && grep -q 'is in use: the runfs .*uploads 1 files (9 B)' "$work/err" ||
        say "says $(cat "$work/err")" || return 1
    unstick_store
    mount_here && umount_here && umount "$d/store"
}

test_umount_beside_a_bind_mount() {
    fresh bound
    if ! can_fill; then
        skip 'a bind mount needs root'
        return
    fi
    mkdir "$d/bound"
    mount_here && mount --bind "$d/mnt" "$d/bound" || return 1
    refused 3 'still in use' "$runfs" umount "$d/mnt" --timeout 1 || return 1
    ! is_mounted "$d/mnt" || say 'still mounted' || return 1
    echo later >"$d/bound/kept" && umount "$d/bound" || return 1
    until_true 20 grep -qsx later "$d/store/kept"
}

is_draining() {
    [ "$("$runfs" status --json "$d/cache" | json 'd["state"]')" = draining ]
}

test_unmount_by_the_user() {
    local pid
    fresh fusermount
    if ! can_fill; then
        skip 'a full store needs root'
        return
    fi
    stuck_store || return 1
    pid=$(daemon_pid)
    fusermount3 -u "$d/mnt" || return 1
    until_true 20 is_draining || return 1
    ! gone "$pid" || say 'the daemon gave up' || return 1
    unstick_store
    until_true 30 gone "$pid" || return 1
    grep -qx precious "$d/store/kept" && mount_here && umount_here
}

test_sigterm() {
    local pid
    fresh sigterm
    if ! can_fill; then
        skip 'a full store needs root'
        return
    fi
    stuck_store || return 1
    pid=$(daemon_pid)
    kill -HUP "$pid"
    kill -TERM "$pid"
    until_true 20 grep -q 'uploading what is left' "$d/cache/runfs.log" || return 1
    kill -TERM "$pid"
    until_true 20 grep -q 'still uploading' "$d/cache/runfs.log" || return 1
    sleep 1
    ! gone "$pid" || say 'the second SIGTERM killed it' || return 1
    grep -qx precious "$d/mnt/kept" || say 'unmounted before it was drained' || return 1
    unstick_store
    until_true 60 gone "$pid" || return 1
    ! is_mounted "$d/mnt" || say 'still mounted' || return 1
    grep -qx precious "$d/store/kept"
}

test_drain_timeout() {
    local pid
    fresh draintime
    if ! can_fill; then
        skip 'a full store needs root'
        return
    fi
    stuck_store || return 1
    umount_of_stuck || return 1
    try "$runfs" mount -o "cache_dir=$d/cache,drain_timeout=1s" "$d/store" "$d/mnt"
    expect_code 0 || return 1
    pid=$(daemon_pid)
    fusermount3 -u "$d/mnt"
    until_true 20 gone "$pid" || return 1
    grep -q 'are not in the store' "$d/cache/runfs.log" || say 'the log is silent' || return 1
    "$runfs" recover --list "$d/cache" | grep -q kept
}

test_takeover_and_recover() {
    fresh crash
    if ! can_fill; then
        skip 'a full store needs root'
        return
    fi
    stuck_store || return 1
    umount_of_stuck || return 1
    ! ls "$d/mnt" 2>/dev/null || say 'the mount works without a daemon' || return 1
    refused 5 'is gone' "$runfs" status "$d/mnt" || return 1
    try "$runfs" recover "$d/cache"
    expect_code 0 && grep -q kept "$work/out" || say "$(cat "$work/out")" || return 1
    try "$runfs" recover "$d/cache" --export "$d/exported"
    expect_code 0 && grep -qx precious "$d/exported/kept" || return 1
    try "$runfs" recover --publish "$d/cache"
    expect_code 3 && grep -q kept "$work/out" || say 'published into a full store' || return 1
    try "$runfs" mount -o "cache_dir=$d/cache" "$d/store" "$d/mnt" # over the dead mount
    expect_code 0 && grep -qx precious "$d/mnt/kept" || return 1
    umount_of_stuck || return 1
    stat "$d/mnt" >/dev/null # may be answered from the kernel's cache
    refused 3 'had died' "$runfs" umount "$d/mnt" || return 1
    ! is_mounted "$d/mnt" || say 'the dead mount is left' || return 1
    unstick_store
    try "$runfs" recover --publish "$d/cache"
    expect_code 0 && grep -qx precious "$d/store/kept" || return 1
    try "$runfs" recover --list "$d/cache"
    expect_code 0 && grep -q 'owes its store nothing' "$work/out"
}

test_recover_elsewhere() {
    fresh norecover
    refused 5 "$d/nothing" "$runfs" recover "$d/nothing" &&
        refused 5 "$d/store" "$runfs" recover --publish "$d/store"
}

# ---- the socket -----------------------------------------------------------------------------

test_hostile_requests() {
    fresh hostile
    mount_here || return 1
    python3 "$here/hostile_client.py" "$d/cache/control" || return 1
    echo x >"$d/mnt/x" && umount_here
}

test_socket_is_ours() {
    fresh socket
    mount_here || return 1
    [ "$(stat -c %a "$d/cache")" = 700 ] || say 'the cache directory is open' || return 1
    [ "$(stat -c %a "$d/cache/control")" = 600 ] || say 'the socket is open' || return 1
    if [ "$(id -u)" = 0 ]; then
        # Even where somebody opened all doors, another user is not answered.
        chmod 755 "$d" "$work" "$d/cache" && chmod 666 "$d/cache/control"
        cp "$runfs" "$d/runfs"
        try setpriv --reuid 65534 --regid 65534 --clear-groups "$d/runfs" status "$d/cache"
        expect_code 1 && grep -q 'did not answer' "$work/err" ||
            say "a stranger was answered: $(cat "$work/out" "$work/err")" || return 1
    fi
    umount_here
}

# ---- S3 -------------------------------------------------------------------------------------

s3_mount() { # OPTIONS URL
    timeout 60 "$runfs" mount -o "cache_dir=$d/cache,region=us-east-1,path_style$1" "$2" "$d/mnt" &&
        daemon_pid >>"$work/pids"
}

test_s3_failures() {
    local bucket=${RUNFS_TEST_S3_URL%/*} at=,endpoint=$RUNFS_TEST_S3_ENDPOINT started
    fresh s3bad
    refused 5 no-such-bucket s3_mount "$at" s3://no-such-bucket/x || return 1
    AWS_SECRET_ACCESS_KEY=hunter2 refused 6 "$bucket" s3_mount "$at" "$bucket/x" || return 1
    ! grep -q hunter2 "$work/err" || say 'the message shows the secret' || return 1
    started=$SECONDS
    refused 7 "$bucket" s3_mount ",endpoint=http://127.0.0.1:9" "$bucket/x" || return 1
    refused 7 "$bucket" s3_mount ",endpoint=http://no-such-host.invalid" "$bucket/x" || return 1
    [ $((SECONDS - started)) -lt 50 ] || say 'it took too long to tell' || return 1
    ! is_mounted "$d/mnt" || say 'mounted' || return 1
    return 0
}

test_s3_endpoint_without_a_scheme() {
    fresh s3scheme
    refused 1 'https://minio:9000 or http://minio:9000' s3_mount ,endpoint=minio:9000 s3://b/p
}

test_s3_secrets_stay_secret() {
    local bucket=${RUNFS_TEST_S3_URL%/*} at=,endpoint=$RUNFS_TEST_S3_ENDPOINT pid
    fresh s3secret
    s3_mount "$at,log_level=debug" "$bucket/secret" || return 1
    echo x >"$d/mnt/x"
    pid=$(daemon_pid)
    tr '\0' ' ' <"/proc/$pid/cmdline" >"$d/seen"
    "$runfs" status --json --files "$d/mnt" >>"$d/seen"
    cat "$d/mnt/.runfs/status.json" "$d/mnt/.runfs/metrics" >>"$d/seen"
    umount_here || return 1
    cat "$d/cache/runfs.log" "$d/cache/identity" "$d/cache/store.json" >>"$d/seen"
    [ -s "$d/seen" ] && ! grep -qF "$AWS_SECRET_ACCESS_KEY" "$d/seen" ||
        say 'the secret is in what is seen' || return 1
    # Nor in what is kept.
    ! grep -rqF "$AWS_SECRET_ACCESS_KEY" "$d/cache" || say 'the secret is in the cache directory'
}

test_s3_recover() {
    local bucket=${RUNFS_TEST_S3_URL%/*} at=,endpoint=$RUNFS_TEST_S3_ENDPOINT pid
    fresh s3recover
    s3_mount "$at,settle=1h" "$bucket/recover" || return 1
    echo precious >"$d/mnt/kept"
    pid=$(daemon_pid)
    kill -9 "$pid" && until_true 30 gone "$pid"
    umount -l "$d/mnt" 2>/dev/null || fusermount3 -u -z "$d/mnt"
    try "$runfs" recover --publish "$d/cache"
    expect_code 0 && grep -qx precious "$RUNFS_TEST_S3_DIR/recover/kept"
}

# A server that takes requests and never answers.
test_s3_clients_that_go_away() {
    local bucket=${RUNFS_TEST_S3_URL%/*} at=,endpoint=$RUNFS_TEST_S3_ENDPOINT server pid
    fresh s3away
    server=$(cat "$RUNFS_TEST_S3_PID_FILE")
    s3_mount "$at" "$bucket/away" || return 1
    ls "$d/mnt" # what is there is known from here on
    kill -STOP "$server"
    echo precious >"$d/mnt/kept"
    for _ in $(seq 40); do # more than the daemon serves at once
        "$runfs" flush "$d/mnt" 2>/dev/null &
        pid=$!
        sleep 0.2
        kill -0 "$pid" || say 'flush does not wait' || { kill -CONT "$server" && return 1; }
        kill -9 "$pid"
        wait "$pid" 2>/dev/null
    done
    try "$runfs" status "$d/mnt"
    expect_code 0 || { kill -CONT "$server" && return 1; }
    try "$runfs" umount "$d/mnt" --timeout 2
    kill -CONT "$server"
    expect_code 3 && grep -q 'stays mounted' "$work/err" && grep -q kept "$work/out" || return 1
    umount_here && grep -qx precious "$RUNFS_TEST_S3_DIR/away/kept"
}

# ---- all of it ------------------------------------------------------------------------------

# Called by a test that can't run here; the test returns after it.
skip() {
    reason=$1
}

run() {
    local name=$1 reason=
    [[ $name == *$only* ]] || return 0
    if ! "test_$name" >"$work/said" 2>&1; then
        failed=$((failed + 1))
        echo "FAIL $name"
        echo "REPEAT: ./check.sh --job cli $(basename "$(dirname "$runfs")") $name"
        cat "$work/said"
        [ -z "${d:-}" ] || tail -n 5 "$d/cache/runfs.log" 2>/dev/null
    elif [ -n "$reason" ]; then
        skipped=$((skipped + 1))
        echo "SKIP $name: $reason"
    else
        passed=$((passed + 1))
        echo "ok   $name"
    fi
}

for name in $(declare -F | sed -n 's/^declare -f test_//p'); do
    if [[ $name == s3_* ]] && [ "$RUNFS_CLI_S3" = no ]; then
        skipped=$((skipped + 1))
        echo "SKIP $name: no S3 server"
    else
        run "$name"
    fi
done
echo "cli: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
