# shellcheck shell=bash
# Fields of a policy as options of a mount that has neither routes nor a layout.
# shellcheck disable=SC2154 # variables of run.sh and lib.sh

policy_of() { # PATH
    python3 -c 'import os, sys; print(os.getxattr(sys.argv[1], "user.runfs.policy").decode())' "$1"
}

# Ends the daemon as a crash does.
kill_daemon_here() {
    local pid
    pid=$(daemon_pid)
    kill -9 "$pid" && until_true 30 gone "$pid"
    umount -l "$d/mnt" 2>/dev/null || fusermount3 -u -z "$d/mnt"
}

test_fields_of_a_policy_are_options() {
    fresh fields
    mount_here conflict=last,interval=1s && echo x >"$d/mnt/f" && "$runfs" flush "$d/mnt" || return 1
    [ "$(policy_of "$d/mnt/f")" = options ] || say "policy $(policy_of "$d/mnt/f")" || return 1
    answers 0 "file://$d/store/f" "$runfs" url "$d/mnt/f" && [ -e "$d/cache/config.json" ] || return 1
    # mount(8) and fstab hand on all that the mount has.
    try "$runfs" mount -o "remount,conflict=last,interval=1000ms,unit=names" "$d/store" "$d/mnt"
    expect_code 0 || return 1
    refused 1 "option conflict can't change while mounted" "$runfs" mount -o remount,conflict=keep "$d/store" "$d/mnt" || return 1
    refused 1 "option upload can't change while mounted" "$runfs" mount -o remount,upload=interval "$d/store" "$d/mnt" || return 1
    umount_here || return 1
    # What the policy data says anyway is a mount as ever, of the same cache.
    mount_here conflict=keep,unit=names,expect=1 && [ "$(cat "$d/mnt/f")" = x ] && [ ! -e "$d/cache/config.json" ] || return 1
    ! policy_of "$d/mnt/f" 2>/dev/null || say 'a plain mount has a policy' || return 1
    umount_here
}

test_fields_by_the_helper_of_mount8() {
    fresh fieldshelper
    try "$runfs" "$d/store" "$d/mnt" -o "rw,_netdev,cache_dir=$d/cache,conflict=last"
    expect_code 0 && daemon_pid >>"$work/pids" && echo x >"$d/mnt/f" && [ "$(policy_of "$d/mnt/f")" = options ] && umount_here || return 1
    refused 1 'option keep_last=2: "keep_last" of a policy is not built yet' "$runfs" "$d/store" "$d/mnt" -o rw,keep_last=2
}

test_all_files_go_up_each_interval() {
    fresh fieldsinterval
    mount_here upload=interval,interval=200ms,upload_interval=1h || return 1
    exec 9>"$d/mnt/any" && echo line >&9
    until_true 20 grep -qx line "$d/store/any" || { exec 9>&-; return 1; }
    exec 9>&-
    umount_here || return 1
    # And what is a log by its name does not where none is.
    mount_here logs=,upload_interval=100ms && exec 9>"$d/mnt/b.log" && echo line >&9
    mkdir "$d/mnt/logs" && echo x >"$d/mnt/logs/closed" && until_true 20 [ -e "$d/store/logs/closed" ] && sleep 0.5
    [ ! -e "$d/store/b.log" ] || say 'an open log went up' || { exec 9>&-; return 1; }
    exec 9>&-
    umount_here && grep -qx line "$d/store/b.log"
}

test_new_files_wait_for_their_rename() {
    fresh fieldsrename
    mount_here upload=rename && mkdir "$d/mnt/part" && echo x >"$d/mnt/one" && echo y >"$d/mnt/part/two" || return 1
    refused 3 'rename' "$runfs" flush "$d/mnt" || return 1
    [ ! -e "$d/store/one" ] && [ ! -e "$d/store/part/two" ] || say 'what nobody renamed went up' || return 1
    mv "$d/mnt/one" "$d/mnt/first" && mv "$d/mnt/part" "$d/mnt/whole" && try "$runfs" flush "$d/mnt" && expect_code 0 || return 1
    [ "$(cat "$d/store/first" "$d/store/whole/two")" = $'x\ny' ] || return 1
    echo z >>"$d/mnt/first" && try "$runfs" flush "$d/mnt" && expect_code 0 && [ "$(tail -n 1 "$d/store/first")" = z ] || return 1
    # One that is being written is told of, whatever it is to wait for.
    exec 9>"$d/mnt/half" && echo x >&9
    refused 3 'half' "$runfs" flush "$d/mnt" || { exec 9>&-; return 1; }
    refused 3 'half' "$runfs" flush --open "$d/mnt" || { exec 9>&-; return 1; }
    [ ! -e "$d/store/half" ] || say 'what is half went up' || { exec 9>&-; return 1; }
    exec 9>&-
    echo last >"$d/mnt/last" && umount_here && [ "$(cat "$d/store/last")" = last ]
}

test_a_mount_that_uploads_nothing() {
    fresh fieldsnever
    mount_here upload=never && echo x >"$d/mnt/f" && [ "$(cat "$d/mnt/f")" = x ] && umount_here || return 1
    [ -z "$(ls -A "$d/store")" ] || say "the store has $(ls -A "$d/store")"
}

test_fields_that_are_refused() {
    fresh fieldsrefused
    local mount=("$runfs" mount -o) to=("$d/store" "$d/mnt")
    refused 2 'option keep_last=2: "keep_last" of a policy is not built yet' "${mount[@]}" keep_last=2 "${to[@]}" || return 1
    refused 2 'option conflict=lst: "conflict" in a policy must be one of keep, last' "${mount[@]}" conflict=lst "${to[@]}" || return 1
    refused 2 'option conflict needs a value (keep, last)' "${mount[@]}" conflict "${to[@]}" || return 1
    refused 2 'unknown option "confict", did you mean "conflict"?' "${mount[@]}" confict=last "${to[@]}" || return 1
    refused 2 'option conflict=last: layout ray has policies of its own: write a configuration with them' \
        "${mount[@]}" layout=ray,conflict=last "${to[@]}" || return 1
    config '{"stores": {"a": {"url": "'"$d/store"'"}}, "routes": [{"path": "x/**", "store": "a"}]}'
    refused 2 "option conflict=last: only a store without routes and layout takes it; put it into a policy of $d/c.json" \
        "${mount[@]}" conflict=last "$d/c.json" "$d/mnt" || return 1
    ! is_mounted "$d/mnt" || say mounted || return 1
    try "$runfs" mount --help
    grep -qE '^  conflict +keep, last$' "$work/out" && grep -qE '^  interval +a time$' "$work/out" &&
        grep -qE '^  unit_max .* keep_last$' "$work/out" || say "$(cat "$work/out")" || return 1
}

test_check_of_fields() {
    fresh fieldscheck
    config '{"stores": {"a": {"url": "s3://b/p", "region": "r"}}, "options": {"conflict": "last", "interval": "5s", "unit": "names"}}'
    answers 0 "$d/c.json: ok: 1 store, 1 route" "$runfs" check "$d/c.json" || return 1
    try "$runfs" check "$d/c.json" x.log
    grep -qx '  policy  options' "$work/out" && grep -qx '  upload  a log: each 5s while it is open' "$work/out" ||
        say "$(cat "$work/out")" || return 1
    try "$runfs" check "$d/c.json" --expand
    expect_code 0 && cp "$work/out" "$d/other.json" || return 1
    [ "$(json 'd["routes"][0]["policy"], d["policies"]["options"]["extends"], d["policies"]["options"]["conflict"]' <"$d/other.json")" = \
        "('options', 'data', 'last')" ] || say "$(cat "$d/other.json")" || return 1
    answers 0 'the same' "$runfs" check "$d/other.json" --same-as "$d/c.json" || return 1
    differs 'the route **: interval 5s and 30s; conflict last and keep' '{"stores": {"a": {"url": "s3://b/p", "region": "r"}}}' || return 1
    # Without stores the options are compared.
    config '{"options": {"interval": "1s", "conflict": "last"}}'
    echo '{"options": {"conflict": "last", "interval": "1000ms"}}' >"$d/other.json"
    try "$runfs" check "$d/c.json" --same-as "$d/other.json"
    expect_code 0 && grep -qx 'the same' "$work/out" || say "$(cat "$work/out")" || return 1
    tells '{"stores": {"a": {"url": "s3://b/p"}},
 "options": {"keep_last": 2,
             "conflict": "lst", "intervall": "5s"}}' '2:27: option keep_last=2: "keep_last" of a policy is not built yet' \
        '3:26: option conflict=lst: ' '3:46: unknown option "intervall", did you mean "interval"?' || return 1
    tells '{"stores": {"a": {"url": "s3://b/p"}, "b": {"url": "s3://c/p"}}, "default_store": "a",
 "routes": [{"path": "x/**", "store": "b"}], "options": {"conflict": "last"}}' \
        '2:70: option conflict=last: only a store without routes and layout takes it; put it into a policy of' || return 1
    config '{"stores": {"a": {"url": "s3://b/p"}}, "options": {"layout": "ray", "conflict": "last"}}'
    refused 2 'option conflict=last: layout ray has policies of its own' "$runfs" check "$d/c.json"
}

# The cache keeps them, and recover publishes as the mount would have.
test_recover_with_fields() {
    fresh fieldsrecover
    mount_here conflict=last,settle=1h && echo precious >"$d/mnt/f" && kill_daemon_here || return 1
    refused 1 "option conflict=keep: the cache $d/cache has a policy of its own" \
        "$runfs" recover --publish "$d/cache" -o conflict=keep || return 1
    [ ! -e "$d/store/f" ] || return 1
    try "$runfs" recover --publish "$d/cache"
    expect_code 0 && grep -qx precious "$d/store/f" || return 1
    # What a plain mount left may have them now.
    mount_here settle=1h && echo more >"$d/mnt/g" && kill_daemon_here || return 1
    try "$runfs" recover --publish "$d/cache" -o conflict=last
    expect_code 0 && grep -qx more "$d/store/g"
}

# What another node put meanwhile stays, and what was owed is kept; unless the last one is to have the name.
test_recover_beside_others() {
    fresh recoverothers
    mount_here settle=1h && echo ours >"$d/mnt/f" && kill_daemon_here && echo theirs >"$d/store/f" || return 1
    try "$runfs" recover --publish "$d/cache"
    expect_code 3 && grep -q 'f was written by somebody else meanwhile: theirs stays' "$work/err" ||
        say "$(cat "$work/out" "$work/err")" || return 1
    [ "$(cat "$d/store/f" "$d/cache/kept/f")" = $'theirs\nours' ] || say 'it was replaced' || return 1
    fresh recoverlast
    mount_here conflict=last,settle=1h && echo ours >"$d/mnt/f" && kill_daemon_here && echo theirs >"$d/store/f" || return 1
    try "$runfs" recover --publish "$d/cache"
    expect_code 0 && grep -qx ours "$d/store/f"
}

# Elsewhere the place is taken as it is said: what is said beside it must not empty the cache.
test_s3_recover_to_nowhere() {
    fresh fieldsnowhere
    s3_mount ",endpoint=$RUNFS_TEST_S3_ENDPOINT,settle=1h" "${RUNFS_TEST_S3_URL%/*}/nowhere" && echo precious >"$d/mnt/f" &&
        kill_daemon_here || return 1
    refused 1 'option upload=never: then nothing would be published' \
        "$runfs" recover --publish "$d/cache" -o "endpoint=$RUNFS_TEST_S3_ENDPOINT,upload=never" || return 1
    grep -qx precious "$d/cache/mirror/f" || return 1
    try "$runfs" recover --publish "$d/cache" -o "endpoint=$RUNFS_TEST_S3_ENDPOINT"
    expect_code 0 && grep -qx precious "$RUNFS_TEST_S3_DIR/nowhere/f"
}

s3_two_nodes() { # OPTIONS
    local bucket=${RUNFS_TEST_S3_URL%/*} at=,endpoint=$RUNFS_TEST_S3_ENDPOINT
    mkdir -p "$d/mnt2"
    s3_mount "$at,settle=1h$1" "$bucket/${d##*/}" &&
        "$runfs" mount -o "cache_dir=$d/cache2,region=us-east-1,path_style$at,settle=1h$1" "$bucket/${d##*/}" "$d/mnt2" &&
        "$runfs" status --json "$d/mnt2" | json 'd["pid"]' >>"$work/pids" || return 1
    echo first >"$d/mnt/f" && echo 'the last' >"$d/mnt2/f" && "$runfs" flush "$d/mnt"
}

test_s3_the_last_of_two_writers() {
    fresh s3last
    s3_two_nodes ,conflict=last && "$runfs" flush "$d/mnt2" || return 1
    [ "$(cat "$RUNFS_TEST_S3_DIR/s3last/f")" = 'the last' ] || say "the store has $(cat "$RUNFS_TEST_S3_DIR/s3last/f")" || return 1
    "$runfs" umount "$d/mnt2" && umount_here || return 1
    # Without the option the first stays, and the other is kept.
    fresh s3first
    s3_two_nodes '' || return 1
    ! "$runfs" flush "$d/mnt2" && [ "$(cat "$RUNFS_TEST_S3_DIR/s3first/f")" = first ] && grep -qx 'the last' "$d/cache2/kept/f" || return 1
    ! "$runfs" umount "$d/mnt2" && umount_here
}
