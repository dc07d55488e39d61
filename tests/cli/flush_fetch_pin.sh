# shellcheck shell=bash
# The commands that bring content to the store, or here.
# shellcheck disable=SC2154 # variables of run.sh and lib.sh

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
    expect_code 0 && grep -qx 1 "$d/store/model.tmp" || return 1
    # A directory of a folder waits, too, and keeps nobody waiting.
    mkdir "$d/mnt/t.tmp"
    refused 3 'wait for their rename' timeout 60 "$runfs" flush "$d/mnt" || return 1
    grep -q ': t.tmp/\?$' "$work/err" || say "which? $(cat "$work/err")" || return 1
    mv "$d/mnt/t.tmp" "$d/mnt/t" && try "$runfs" flush "$d/mnt" && expect_code 0 && [ -d "$d/store/t" ] && umount_here
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
