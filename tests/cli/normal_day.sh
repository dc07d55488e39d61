# shellcheck shell=bash
# A mount that nothing goes wrong with, in each form that it can be asked for.
# shellcheck disable=SC2154 # variables of run.sh and lib.sh

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
    umount_here && remove_cache "$dir"
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
    try own_namespace timeout 60 sh -c '
        mount --bind /dev/fuse "$1/fuse" && mount -t tmpfs tmpfs /dev && touch /dev/fuse &&
            mount --bind "$1/fuse" /dev/fuse || exit
        "$2" mount -o "cache_dir=$1/cache" "$1/store" "$1/mnt" 2>&1 | cat
        echo x >"$1/mnt/x" && "$2" umount "$1/mnt"' sh "$d" "$runfs"
    [ "$code" = 0 ] || { "$runfs" status --json "$d/cache" | json 'd["pid"]' >>"$work/pids"; }
    expect_code 0 && grep -qx x "$d/store/x"
}
