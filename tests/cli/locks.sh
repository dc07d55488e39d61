# shellcheck shell=bash
# runfs lock and runfs locks: a command reads while others remove, exit codes, signals, what ends a lock.
# shellcheck disable=SC2154,SC2016 # variables of run.sh and lib.sh; what the command's shell is to expand

locked_place() {
    fresh "$1"
    mount_here "${2:-}" && mkdir -p "$d/mnt/run/ckpt" && echo weights >"$d/mnt/run/ckpt/model" &&
        echo log >"$d/mnt/run/log" && try "$runfs" flush "$d/mnt" && expect_code 0
}

# One that has a lock until the file $d/end is there; its pid in $holder.
hold() {
    "$runfs" lock "$@" -- sh -c 'echo $$ >"$1/command"; until [ -e "$1/end" ]; do sleep 0.05; done' sh "$d" &
    holder=$!
    until_true 20 [ -s "$d/command" ] || say 'the command did not start'
}

wait_for_holder() {
    wait "$holder"
}

end_hold() {
    touch "$d/end"
    try wait_for_holder
    rm -f "$d/end" "$d/command"
    expect_code "${1:-0}"
}

is_stored() {
    [ -e "$d/store/run/ckpt/model" ]
}

is_not_stored() {
    ! is_stored
}

test_a_lock_keeps_what_others_remove() {
    locked_place lockkeeps || return 1
    hold "$d/mnt/run/ckpt" || return 1
    rm -r "$d/mnt/run/ckpt" && [ ! -e "$d/mnt/run/ckpt" ] || return 1
    [ "$(cat "$d/mnt/.runfs/locked/1/model")" = weights ] && [ "$(ls "$d/mnt/.runfs/locked")" = 1 ] || return 1
    sleep 1
    is_stored || say 'the store lost it' || return 1
    try "$runfs" locks "$d/mnt/run"
    expect_code 0 && grep -qE "^$d/mnt/run/ckpt: hide, command $holder on .* since .*, 2 removals wait: sh -c " "$work/out" ||
        say "$(cat "$work/out")" || return 1
    try "$runfs" locks --json
    [ "$(json '[(l["path"], l["mode"], l["holder"], l["held"]) for l in d["locks"] if l["mountpoint"] == "'"$d/mnt"'"]' <"$work/out")" = \
        "[('run/ckpt', 'hide', 'command', 2)]" ] || say "$(cat "$work/out")" || return 1
    refused 3 'stays in the store as long as somebody has it locked' "$runfs" flush "$d/mnt" || return 1
    "$runfs" status --files "$d/mnt" | has_line 'locked.*run/ckpt/model' || say "status: $("$runfs" status --files "$d/mnt")" || return 1
    end_hold && until_true 20 is_not_stored || return 1
    try "$runfs" locks "$d/mnt"
    [ ! -s "$work/out" ] && ! ls "$d/mnt/.runfs/locked/1" 2>/dev/null && umount_here
}

test_the_command_reads_by_its_view() {
    locked_place lockview || return 1
    ln -s ckpt "$d/mnt/run/latest"
    try "$runfs" lock "$d/mnt/run/latest" "$d/mnt/run/log" -- sh -c '
        rm -r "$1/ckpt" "$1/log" && cat "${RUNFS_LOCKED%%:*}/model" "${RUNFS_LOCKED#*:}" || exit 1
        ! touch "${RUNFS_LOCKED%%:*}/x" && ! rm -f "${RUNFS_LOCKED%%:*}/model" && ! (echo >"${RUNFS_LOCKED%%:*}/model")' sh "$d/mnt/run"
    expect_code 0 && [ "$(cat "$work/out")" = $'weights\nlog' ] || say "$(cat "$work/out" "$work/err")" || return 1
    until_true 20 is_not_stored && umount_here
}

test_exit_codes_of_a_lock() {
    locked_place lockcodes || return 1
    local lock=("$runfs" lock "$d/mnt/run")
    try "${lock[@]}" -- sh -c 'exit 7'
    expect_code 7 || return 1
    try "${lock[@]}" -- sh -c 'kill -9 $$'
    expect_code 137 || return 1
    refused 127 'cannot run /no/such/program: No such file' "${lock[@]}" -- /no/such/program || return 1
    refused 126 'cannot run /etc/passwd: Permission denied' "${lock[@]}" -- /etc/passwd || return 1
    refused 125 'none: there is no such file or directory' "$runfs" lock "$d/mnt/none" -- true || return 1
    refused 125 'is not on a runfs mount' "$runfs" lock "$d/store" -- true || return 1
    refused 125 'it is a cache directory' "$runfs" lock "$d/cache" -- true || return 1
    refused 2 'lock needs a path' "$runfs" lock -- true || return 1
    refused 2 'lock needs a command behind --' "${lock[@]}" || return 1
    refused 2 'unknown option --wiat, did you mean --wait?' "$runfs" lock --wiat 1 "$d/mnt/run" -- true || return 1
    # The command's options are its own.
    try "${lock[@]}" -- sh -c 'echo "$@"' sh --wait --refuse -- x
    expect_code 0 && [ "$(cat "$work/out")" = '--wait --refuse -- x' ] && umount_here
}

test_a_killed_client_ends_its_lock() {
    locked_place lockkilled || return 1
    hold "$d/mnt/run" || return 1
    rm -r "$d/mnt/run/ckpt" && sleep 0.5 && is_stored || return 1
    kill -9 "$holder"
    wait "$holder" 2>/dev/null
    until_true 20 is_not_stored || say 'the lock outlived its client' || return 1
    kill -0 "$(cat "$d/command")" || say 'the command was killed, too' || return 1
    touch "$d/end"
    unmounted umount_here
}

test_signals_reach_the_command() {
    locked_place locksignals || return 1
    "$runfs" lock "$d/mnt/run" -- sh -c 'trap "exit 9" TERM; : >"$1/ready"; while :; do sleep 0.05; done' sh "$d" &
    holder=$!
    until_true 20 [ -e "$d/ready" ] && kill -TERM "$holder" || return 1
    try wait_for_holder
    expect_code 9 && umount_here
}

test_a_lock_that_refuses() {
    locked_place lockrefuses || return 1
    hold --refuse "$d/mnt/run/ckpt" || return 1
    ! rm "$d/mnt/run/ckpt/model" 2>"$work/err" && grep -q 'busy' "$work/err" || say "$(cat "$work/err")" || return 1
    ! mv "$d/mnt/run" "$d/mnt/other" 2>/dev/null || say 'it was moved' || return 1
    refused 125 "run/ckpt is locked by process $holder (sh -c" "$runfs" lock "$d/mnt/run" -- true || return 1
    refused 125 'which refuses removals there' "$runfs" lock --wait 300ms "$d/mnt/run/ckpt/model" -- true || return 1
    (sleep 0.5 && touch "$d/end") &
    try "$runfs" lock --wait 30 --refuse "$d/mnt/run/ckpt" -- rm "$d/mnt/run/ckpt/model" # by its only holder
    expect_code 0 && end_hold && until_true 20 is_not_stored && umount_here
}

# The mount is in use while somebody has a lock; a daemon that ends nevertheless ends the lock, and says so.
test_a_lock_and_the_end_of_the_mount() {
    locked_place lockumount || return 1
    hold "$d/mnt/run" || return 1
    rm -r "$d/mnt/run/ckpt" || return 1
    try "$runfs" umount "$d/mnt" --timeout 10
    expect_code 4 && grep -q "$holder" "$work/err" || say "$(cat "$work/err")" || return 1
    kill -TERM "$(daemon_pid)" || return 1
    until_true 20 is_not_stored || say 'the removal waits for a lock of what is not mounted' || return 1
    end_hold 69
}

# Who sees that it is removed has been told that the lock ended.
test_a_command_that_ends_just_behind_its_lock() {
    locked_place locklast || return 1
    "$runfs" lock "$d/mnt/run" -- sh -c ': >"$1/command"; while [ -e "$1/store/run/ckpt/model" ]; do :; done' sh "$d" &
    holder=$!
    until_true 20 [ -e "$d/command" ] && rm -r "$d/mnt/run/ckpt" && kill -TERM "$(daemon_pid)" || return 1
    try wait_for_holder
    expect_code 69
}

test_a_killed_daemon_leaves_no_lock() {
    local pid
    locked_place lockdaemon || return 1
    hold "$d/mnt/run" || return 1
    pid=$(daemon_pid)
    rm -r "$d/mnt/run/ckpt" && kill -9 "$pid" && until_true 20 gone "$pid" || return 1
    end_hold 69 || return 1
    is_stored && mount_here && until_true 20 is_not_stored && umount_here
}
