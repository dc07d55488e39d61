# shellcheck shell=bash
# What only a mount of a bucket can say wrong: bucket, secret, endpoint.
# shellcheck disable=SC2154 # variables of run.sh and lib.sh

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
    [ $((SECONDS - started)) -lt 110 ] || say 'it took too long to tell' || return 1
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

# A cache of one store with a layout keeps its configuration, and -o comes over it all the same.
test_s3_recover_with_a_layout() {
    local bucket=${RUNFS_TEST_S3_URL%/*} at=,endpoint=http://127.0.0.1:9 pid
    fresh s3recoverlayout
    s3_mount ",endpoint=$RUNFS_TEST_S3_ENDPOINT,settle=1h,layout=ray" "$bucket/layout" && echo precious >"$d/mnt/kept" || return 1
    pid=$(daemon_pid)
    kill -9 "$pid" && until_true 30 gone "$pid"
    umount -l "$d/mnt" 2>/dev/null || fusermount3 -u -z "$d/mnt"
    [ -e "$d/cache/config.json" ] || return 1
    refused 7 '127.0.0.1 port 9' "$runfs" recover --publish "$d/cache" -o "mount_timeout=2s$at" || return 1
    try "$runfs" recover --publish "$d/cache" -o "endpoint=$RUNFS_TEST_S3_ENDPOINT"
    expect_code 0 && grep -qx precious "$RUNFS_TEST_S3_DIR/layout/kept"
}

# What the cache is of has the bucket at AWS's own server (which is not asked), the shell's server has one of that name.
test_s3_recover_of_another_server() {
    local bucket=${RUNFS_TEST_S3_URL%/*} here=$RUNFS_TEST_S3_ENDPOINT pid
    local shell=(env "AWS_ENDPOINT_URL=$here" https_proxy=http://127.0.0.1:9)
    fresh s3another
    s3_mount ",endpoint=$here,settle=1h" "$bucket/another" && echo precious >"$d/mnt/kept" || return 1
    pid=$(daemon_pid)
    kill -9 "$pid" && until_true 30 gone "$pid"
    umount -l "$d/mnt" 2>/dev/null || fusermount3 -u -z "$d/mnt"
    sed -i 's|"endpoint":"[^"]*",||' "$d/cache/identity" && rm "$d/cache/store.json"
    ! grep -q endpoint "$d/cache/identity" || return 1
    refused 7 '127.0.0.1 port 9' "${shell[@]}" "$runfs" recover --publish "$d/cache" -o endpoint=aws,mount_timeout=2s || return 1
    refused 1 "with endpoint none, what was opened has $here" "${shell[@]}" "$runfs" recover --publish "$d/cache" || return 1
    refused 1 "with endpoint none, what was opened has $here" "${shell[@]}" "$runfs" recover --publish "$d/cache" -o endpoint= || return 1
    [ ! -e "$RUNFS_TEST_S3_DIR/another/kept" ] || say 'it was published at the other server' || return 1
    try "${shell[@]}" "$runfs" recover --publish "$d/cache" -o "endpoint=$here"
    expect_code 0 && grep -qx precious "$RUNFS_TEST_S3_DIR/another/kept"
}

# What a route says counts at once by the new name; the URL waits for the store.
test_s3_renamed_and_not_yet_stored() {
    local bucket=${RUNFS_TEST_S3_URL%/*} server
    fresh s3renamed
    server=$(cat "$RUNFS_TEST_S3_PID_FILE")
    echo '{"stores": {"a": {"url": "'"$bucket"'/ra", "path_style": true}, "b": {"url": "'"$bucket"'/rb", "path_style": true}},
 "routes": [{"path": "l/**", "store": "a", "policy": "logs"}, {"path": "c/**", "store": "a", "policy": "checkpoint"}], "default_store": "b"}' >"$d/c.json"
    try "$runfs" mount -o "cache_dir=$d/cache" "$d/c.json" "$d/mnt"
    expect_code 0 && daemon_pid >>"$work/pids" && mkdir -p "$d/mnt/l" "$d/mnt/c" && echo x >"$d/mnt/l/f" && "$runfs" flush "$d/mnt" || return 1
    kill -STOP "$server"
    mv "$d/mnt/l/f" "$d/mnt/c/g"
    try python3 -c 'import os, sys
print([os.getxattr(sys.argv[1], "user.runfs." + what).decode() for what in ("policy", "route", "store", "state")])' "$d/mnt/c/g"
    [ "$(cat "$work/out")" = "['checkpoint', 'c/**', 'a', 'clean']" ] || say "$(cat "$work/out" "$work/err")" || { kill -CONT "$server" && return 1; }
    refused 1 'not have it under this name yet' "$runfs" url "$d/mnt/c/g" || { kill -CONT "$server" && return 1; }
    kill -CONT "$server"
    "$runfs" flush "$d/mnt" && answers 0 "$bucket/ra/c/g" "$runfs" url "$d/mnt/c/g" && umount_here
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

# The endpoint of the one is none of the other; one that stalls is told apart, and the other goes on.
test_s3_beside_a_folder() {
    local bucket=${RUNFS_TEST_S3_URL%/*} server pid
    fresh s3beside
    server=$(cat "$RUNFS_TEST_S3_PID_FILE")
    cat >"$d/c.json" <<JSON
{"stores": {"far": {"url": "$bucket/beside", "endpoint": "$RUNFS_TEST_S3_ENDPOINT", "region": "us-east-1",
                    "path_style": true},
            "near": {"url": "$d/store"}},
 "routes": [{"path": "runs/{run}/logs/**", "store": "near", "key": "{run}/**", "policy": "logs"}],
 "default_store": "far", "cache": {"dir": "$d/cache"}}
JSON
    try "$runfs" mount "$d/c.json" "$d/mnt"
    expect_code 0 && daemon_pid >>"$work/pids" || return 1
    mkdir -p "$d/mnt/runs/r/logs" && echo model >"$d/mnt/runs/r/model" && ls "$d/mnt/runs/r/logs" || return 1
    try "$runfs" flush "$d/mnt"
    expect_code 0 && grep -qx model "$RUNFS_TEST_S3_DIR/beside/runs/r/model" || return 1
    kill -STOP "$server"
    echo later >"$d/mnt/runs/r/later" && echo line >"$d/mnt/runs/r/logs/x"
    try until_true 30 grep -qx line "$d/store/r/x"
    expect_code 0 && try until_true 30 grep -q '^runfs_store_stalled_seconds{store="far"} [1-9]' "$d/mnt/.runfs/metrics"
    [ "$code" = 0 ] || { kill -CONT "$server" && return 1; }
    "$runfs" status --json "$d/mnt" >"$d/status.json"
    pid=$(daemon_pid)
    kill -9 "$pid" && until_true 30 gone "$pid"
    kill -CONT "$server"
    [ "$(json '[s["name"] for s in d["stores"] if s["stalled"]]' <"$d/status.json")" = "['far']" ] ||
        say "$(cat "$d/status.json")" || return 1
    umount -l "$d/mnt" 2>/dev/null || fusermount3 -u -z "$d/mnt"
    ! grep -rqF "$AWS_SECRET_ACCESS_KEY" "$d/cache" || say 'the secret is in the cache directory' || return 1
    rm "$d/c.json"
    try "$runfs" recover --publish "$d/cache"
    expect_code 0 && grep -qx later "$RUNFS_TEST_S3_DIR/beside/runs/r/later"
}
