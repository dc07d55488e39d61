# shellcheck shell=bash
# The daemon: what it inherits and lets go, and who may talk to its socket.
# shellcheck disable=SC2034,SC2154 # variables of run.sh and lib.sh, and functions for others

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
