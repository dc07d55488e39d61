# shellcheck shell=bash
# runfs verify, and runfs flush --level: what is wrong in the store is found, and told by the exit code.
# shellcheck disable=SC2154 # variables of run.sh and lib.sh

# verified WORDS: the summary that the last try printed.
verified() {
    expect_code 0 || return 1
    [ ! -s "$work/err" ] || say "it has something to say: $(cat "$work/err")" || return 1
    grep -qF -- "$1" "$work/out" || say "does not say '$1': $(cat "$work/out")"
}

durability_of() {
    getfattr --only-values --absolute-names -n user.runfs.durability "$1" 2>/dev/null
}

# Overwrites a byte of a file, which keeps its size and times.
damage() {
    cp -p "$1" "$d/before" && printf '!' | dd of="$1" bs=1 seek=2 conv=notrunc status=none && touch -r "$d/before" "$1" &&
        [ "$(stat -c '%s %y' "$1")" = "$(stat -c '%s %y' "$d/before")" ]
}

test_verify_a_folder() {
    fresh verify
    mount_here || return 1
    mkdir -p "$d/mnt/runs/r1" "$d/mnt/other"
    echo hello >"$d/mnt/runs/r1/a" && echo more >"$d/mnt/runs/r1/b" && : >"$d/mnt/runs/r1/empty" && echo x >"$d/mnt/other/x"
    ln -s r1 "$d/mnt/runs/latest"
    try "$runfs" flush --level verified "$d/mnt/runs"
    verified '4 files, 13 B verified (2 by reading back)' || return 1
    [ "$(durability_of "$d/mnt/runs")" = verified ] && [ "$(durability_of "$d/mnt/other")" != verified ] || say 'durability' || return 1
    try "$runfs" flush "$d/mnt/other"
    try "$runfs" verify "$d/mnt/runs/r1" "$d/mnt/other/x"
    verified '4 files' || return 1
    try "$runfs" verify "$d/mnt/runs/latest" # the link, and what it leads to
    verified '4 files' || return 1
    damage "$d/store/runs/r1/a" || return 1
    refused 1 "$d/mnt/runs/r1/a: differs: the version is the one that this mount knows" "$runfs" verify "$d/mnt/runs/r1" || return 1
    grep -qF "copy $d/cache/mirror/runs/r1/a away" "$work/err" || say "$(cat "$work/err")" || return 1
    grep -qx '2 files, 5 B verified (1 by reading back); 1 differs' "$work/out" || say "$(cat "$work/out")" || return 1
    [ "$(durability_of "$d/mnt/runs/r1/a")" = store ] || say 'it is verified still' || return 1
    refused 1 'runs/r1/a: differs' "$runfs" flush --level verified "$d/mnt" || return 1
    try "$runfs" flush --level store "$d/mnt"
    expect_code 0 || return 1
    rm "$d/store/runs/r1/a" && echo mo >"$d/store/runs/r1/b"
    refused 1 'missing: the store has no object there (expected 6 bytes' "$runfs" verify "$d/mnt/runs/r1/a" || return 1
    refused 1 'another version is there than this mount knows' "$runfs" verify "$d/mnt/runs/r1/b" || return 1
    grep -q 'expected 5 bytes.*found 3 bytes' "$work/err" || say "$(cat "$work/err")" || return 1
    refused 5 nothing "$runfs" verify "$d/mnt/nothing" || return 1
    refused 5 'not on a runfs mount' "$runfs" verify "$d" && umount_here
}

test_verify_what_is_not_there_yet() {
    fresh verifydirty
    mount_here settle=1h || return 1
    echo hello >"$d/mnt/a"
    [ "$(durability_of "$d/mnt")" = cache ] || say 'it is in the store' || return 1
    refused 3 "a: not in the store yet: the store does not have it as it is; \`runfs flush" "$runfs" verify "$d/mnt" || return 1
    try "$runfs" flush --level verified "$d/mnt"
    verified '1 file, 6 B verified (1 by reading back)' || return 1
    echo x >"$d/mnt/b.tmp"
    try "$runfs" flush --level verified "$d/mnt"
    expect_code 3 && grep -q 'wait for their rename' "$work/err" && grep -q 'b.tmp: not in the store yet' "$work/err" ||
        say "$(cat "$work/err")" || return 1
    grep -qx '1 file, 6 B verified (1 by reading back); 1 not in the store yet' "$work/out" || say "$(cat "$work/out")" || return 1
    damage "$d/store/a" || return 1 # the worse of both
    try "$runfs" flush --level verified "$d/mnt"
    expect_code 1 && rm "$d/mnt/b.tmp" && umount_here
}

# A fresh mount has no content, and a folder no checksum.
test_verify_with_nothing_to_compare() {
    fresh verifynothing
    echo hello >"$d/store/a"
    mount_here || return 1
    refused 1 "a: not compared: the store keeps no checksum" "$runfs" verify "$d/mnt" || return 1
    try "$runfs" fetch "$d/mnt/a"
    try "$runfs" verify "$d/mnt"
    verified '1 file, 6 B verified (1 by reading back)' && umount_here
}

# To look the path up would show the mount the other version, and have it believed.
test_verify_looks_nothing_up() {
    fresh verifylookup
    mount_here list_timeout=200ms,attr_timeout=200ms,entry_timeout=0 || return 1
    mkdir "$d/mnt/r" && echo hello >"$d/mnt/r/a" && try "$runfs" flush "$d/mnt" && echo jello >"$d/store/other" && mv "$d/store/other" "$d/store/r/a" || return 1
    sleep 1
    refused 1 'r/a: differs: another version is there' "$runfs" verify "$d/mnt/r/a" || return 1
    refused 1 'r/a: differs: another version is there' "$runfs" verify "$d/mnt/r" || return 1
    grep -qx jello "$d/mnt/r/a" || say 'the mount has not seen it' || return 1
    try "$runfs" verify "$d/mnt/r" # now it is what the mount says
    verified '1 file' && umount_here
}

test_verify_json() {
    fresh verifyjson
    mount_here || return 1
    echo hello >"$d/mnt/a" && echo more >"$d/mnt/b" && try "$runfs" flush "$d/mnt" && damage "$d/store/a" || return 1
    try "$runfs" verify --json "$d/mnt"
    expect_code 1 || return 1
    [ "$(json '(d["ok"], d["files"]["verified"], d["files"]["differs"], d["bytes"], d["read_back"],
        [(p["path"], p["verdict"]) for p in d["problems"]])' <"$work/out")" = \
        "(False, 1, 1, 5, 1, [('$d/mnt/a', 'differs')])" ] || say "$(cat "$work/out")" || return 1
    try "$runfs" verify --json "$d/mnt/b"
    expect_code 0 && [ "$(json 'd["ok"], d["problems"]' <"$work/out")" = '(True, [])' ] && umount_here
}

test_flush_to_no_such_level() {
    fresh flushlevel
    refused 2 '--level is store or verified, not nonsense' "$runfs" flush --level nonsense "$d/mnt" &&
        refused 2 'verify needs a path' "$runfs" verify
}

# Puts an object as any other tool does.
s3_put() { # FILE KEY
    curl -sSf --noproxy '*' --aws-sigv4 aws:amz:us-east-1:s3 --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' \
        -T "$1" "$RUNFS_TEST_S3_ENDPOINT/runfs-test/$2"
}

test_s3_verify() {
    local bucket=${RUNFS_TEST_S3_URL%/*} at=,endpoint=$RUNFS_TEST_S3_ENDPOINT
    fresh s3verify
    s3_mount "$at" "$bucket/verify" || return 1
    mkdir "$d/mnt/r" && echo hello >"$d/mnt/r/a" && echo more >"$d/mnt/r/b" && head -c 20000000 /dev/urandom >"$d/mnt/r/large"
    try "$runfs" flush --level verified "$d/mnt/r"
    verified '3 files, 19.1 MiB verified (0 by reading back)' || return 1 # the server's own checksums
    [ "$(durability_of "$d/mnt/r")" = verified ] || return 1
    try "$runfs" evict "$d/mnt/r"
    try "$runfs" verify "$d/mnt/r"
    verified '3 files, 19.1 MiB verified (0 by reading back)' || return 1
    echo jello >"$d/jello" && s3_put "$d/jello" verify/r/a || return 1
    refused 1 "$d/mnt/r/a: differs: another version is there than this mount knows" "$runfs" verify "$d/mnt/r" || return 1
    grep -qx '2 files, 19.1 MiB verified (0 by reading back); 1 differs' "$work/out" || say "$(cat "$work/out")" || return 1
    umount_here || return 1
    # Another mount has seen none of it: what the server keeps of each is compared with the object itself.
    rm -rf "$d/cache" && s3_mount "$at" "$bucket/verify" || return 1
    [ "$(durability_of "$d/mnt/r/b")" = store ] || say 'nobody has compared it' || return 1
    try "$runfs" verify "$d/mnt/r/b" "$d/mnt/r/large"
    verified '2 files, 19.1 MiB verified (2 by reading back)' || return 1
    umount_here
}

# The server ends: its own word is that of the network.
test_s3_verify_without_a_server() {
    local bucket=${RUNFS_TEST_S3_URL%/*} at=,endpoint=$RUNFS_TEST_S3_ENDPOINT server
    fresh s3verifyaway
    server=$(cat "$RUNFS_TEST_S3_PID_FILE")
    s3_mount "$at,store_timeout=2s" "$bucket/verifyaway" && echo hello >"$d/mnt/a" && "$runfs" flush "$d/mnt" || return 1
    kill -STOP "$server"
    try "$runfs" verify --timeout 1s "$d/mnt/a"
    expect_code 3 || { kill -CONT "$server" && return 1; }
    try "$runfs" verify "$d/mnt/a"
    kill -CONT "$server"
    expect_code 7 && umount_here
}
