# shellcheck shell=bash
# umount, signals, and every other end of a mount.
# shellcheck disable=SC2154 # variables of run.sh and lib.sh

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
    mount_with_another_in_it above_too || return 1
    "$runfs" umount "$first/mnt" --timeout 60 >"$first/patient" 2>&1 &
    patient=$!
    refused 4 "cannot unmount $d/mnt: " "$runfs" umount "$d/mnt" --timeout 1 || return 1
    kill "$patient" 2>/dev/null || say "waited as long as with more time: $(cat "$first/patient")" || return 1
    wait "$patient"
    for d in "$d" "$first"; do
        is_mounted "$d/mnt" || say 'not mounted any more' || return 1
        umount "$d/mnt/sub" && umount_here || return 1
    done
}

shows_an_error() {
    "$runfs" status "$d/mnt" | has_line '^last error'
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
    try own_namespace "$runfs" mount -o "cache_dir=$d/cache" "$d/store" "$d/mnt"
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
    unmounted umount "$d/mnt" || return 1
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
    unmounted umount "$d/mnt" && until_true 20 is_draining || return 1
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
    echo later >"$d/bound/kept" && unmounted umount "$d/bound" || return 1
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
    unmounted fusermount3 -u "$d/mnt" || return 1
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
    unmounted fusermount3 -u "$d/mnt" || return 1
    until_true 20 gone "$pid" || return 1
    grep -q 'are not in the store' "$d/cache/runfs.log" || say 'the log is silent' || return 1
    "$runfs" recover --list "$d/cache" | has_line kept
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

test_recover_of_a_folder_that_is_elsewhere() {
    local pid
    fresh recovermoved
    mount_here settle=1h && echo precious >"$d/mnt/kept" || return 1
    pid=$(daemon_pid)
    kill -9 "$pid" && until_true 30 gone "$pid" || return 1
    mv "$d/store" "$d/away" && ln -s away "$d/store"
    refused 1 "the cache is of a store at file://$d/store, what was opened has file://$d/away" \
        "$runfs" recover --publish "$d/cache" || return 1
    grep -qF "copy out with --export DIR" "$work/err" || say "says not what to do: $(cat "$work/err")" || return 1
    [ ! -e "$d/away/kept" ] || say 'it was published elsewhere' || return 1
    rm "$d/store" && mv "$d/away" "$d/store"
    try "$runfs" recover --publish "$d/cache"
    expect_code 0 && grep -qx precious "$d/store/kept" || return 1
    fusermount3 -u -z "$d/mnt" 2>/dev/null || umount -l "$d/mnt"
}

test_recover_elsewhere() {
    fresh norecover
    refused 5 "$d/nothing" "$runfs" recover "$d/nothing" &&
        refused 5 "$d/store" "$runfs" recover --publish "$d/store"
}
