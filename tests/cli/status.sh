# shellcheck shell=bash
# What status tells, of one mount and of all.
# shellcheck disable=SC2154 # variables of run.sh and lib.sh

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
    "$runfs" status --files "$d/mnt" | has_line 'staged .*held.tmp' || return 1
    "$runfs" status "$d/mnt" | has_line "^store  *file://$d/store" || return 1
    "$runfs" status "$d/cache" | has_line "^store  *file://$d/store" || return 1
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

# A mount whose daemon is killed before the store has $d/mnt/x. Sets the caller's $dir, its cache.
die_with_debts() {
    local pid
    in_home "$runfs" mount -o settle=1h "$d/store" "$d/mnt" || return 1
    pid=$(daemon_pid)
    echo "$pid" >>"$work/pids"
    dir=$("$runfs" status --json "file://$d/store/" | json 'd["cache_dir"]')
    echo precious >"$d/mnt/x"
    kill -9 "$pid" && until_true 30 gone "$pid"
}

test_overview_of_what_was_left() {
    local dir
    fresh left
    die_with_debts || return 1
    # By the dead mountpoint, the store, and the folder that it is.
    in_home "$runfs" recover "$d/mnt" | has_line 'write .*x$' || say 'not by the mountpoint' || return 1
    refused 3 'had died' "$runfs" umount "$d/mnt" || return 1
    in_home "$runfs" recover "file://$d/store" | has_line 'write .*x$' || say 'not by the store' || return 1
    in_home "$runfs" recover "$d/store" | has_line 'write .*x$' || say 'not by the folder' || return 1
    in_home "$runfs" status >"$d/all" || return 1
    grep -A1 "^left: cache $dir  file://$d/store" "$d/all" |
        grep -q "publish them: runfs recover --publish $dir\$" || say "$(cat "$d/all")" || return 1
    cp -a "$dir" "$dir.copy"
    try in_home "$runfs" recover "$d/store"
    expect_code 1 && grep -q "has 2 caches" "$work/err" && grep -q "$dir.copy" "$work/err" ||
        say "$(cat "$work/out" "$work/err")" || return 1
    remove_cache "$dir.copy" || return 1
    in_home "$runfs" recover --publish "$d/mnt" && grep -qx precious "$d/store/x" || return 1
    ! in_home "$runfs" status | has_line "$dir" || say 'it is told though it owes nothing' || return 1
    remove_cache "$dir"
}

# has_cache DIR SECONDS: another command has the cache so long, as one does that looks at it.
has_cache() {
    rm -f "$d/has"
    (flock 9 && : >"$d/has" && exec sleep "$2") 9>"$1/lock" &
    holder=$!
    until_true 10 test -e "$d/has"
}

# Who looks at all caches keeps nobody from one, and takes no other command for a dead mount.
test_two_look_at_a_cache() {
    local dir holder
    fresh two
    die_with_debts || return 1
    umount -l "$d/mnt" 2>/dev/null || fusermount3 -u -z "$d/mnt"
    has_cache "$dir" 1.5 || return 1
    in_home "$runfs" status | has_line "^left: cache $dir " || say 'status: it was looked at' || return 1
    has_cache "$dir" 1.5 || return 1
    in_home "$runfs" recover "$dir" | has_line 'write .*x$' || say 'recover: it was looked at' || return 1
    has_cache "$dir" 1.5 || return 1
    in_home "$runfs" recover --publish "$dir" && grep -qx precious "$d/store/x" || return 1
    has_cache "$dir" 2.7 || return 1
    in_home "$runfs" mount "$d/store" "$d/mnt" && umount_here && remove_cache "$dir"
}

# One that has it long is told as what it is.
test_a_command_has_a_cache() {
    local dir holder
    fresh had
    in_home "$runfs" mount "$d/store" "$d/mnt" || return 1
    dir=$("$runfs" status --json "$d/mnt" | json 'd["cache_dir"]')
    refused 4 "cache $dir is in use by another mount" "$runfs" recover "$dir" || return 1
    umount_here || return 1
    has_cache "$dir" 60
    in_home "$runfs" status >"$d/all"
    try "$runfs" recover "$dir"
    kill "$holder"
    grep -A1 "^(unmounted)  file://$d/store" "$d/all" |
        grep -q 'silent: a runfs command, or another program, has its cache' || say "$(cat "$d/all")" || return 1
    expect_code 4 && grep -q "cache $dir is in use by another mount, or by a command" "$work/err" ||
        say "$(cat "$work/err")" || return 1
    remove_cache "$dir"
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
