# shellcheck shell=bash
# One mount over several stores: what lies where, what is told of it, what a crash leaves.
# shellcheck disable=SC2154 # variables of run.sh and lib.sh

# three_stores NAME: folders ckpt, logs and data, and a configuration in $d/c.json.
three_stores() {
    fresh "$1"
    mkdir "$d/ckpt" "$d/logs" "$d/data"
    cat >"$d/c.json" <<JSON
{"stores": {"logs": {"url": "$d/logs"}, "ckpt": {"url": "$d/ckpt"}, "data": {"url": "$d/data"}},
 "routes": [{"path": "runs/{run}/checkpoint/**", "store": "ckpt", "key": "{run}/**", "policy": "checkpoint"},
            {"path": "runs/{run}/logs/**", "store": "logs", "key": "{run}/**", "policy": "logs"},
            {"path": "tmp/**", "store": "data", "policy": "scratch"}],
 "default_store": "data",
 "cache": {"dir": "$d/cache"}}
JSON
}

mount_three() {
    try "$runfs" mount "${@}" "$d/c.json" "$d/mnt"
    expect_code 0 && daemon_pid >>"$work/pids"
}

write_three() {
    mkdir -p "$d/mnt/runs/r1/checkpoint" "$d/mnt/runs/r1/logs" "$d/mnt/set" &&
        echo weights >"$d/mnt/runs/r1/checkpoint/model.pt" &&
        echo line >"$d/mnt/runs/r1/logs/train.log" &&
        echo config >"$d/mnt/runs/r1/config.yaml" &&
        echo row >"$d/mnt/set/part-0" && echo scratch >"$d/mnt/tmp/sums"
}

# What a program that knows nothing of runfs finds.
raw_three() {
    grep -qx weights "$d/ckpt/r1/model.pt" && grep -qx line "$d/logs/r1/train.log" &&
        grep -qx config "$d/data/runs/r1/config.yaml" && grep -qx row "$d/data/set/part-0" ||
        say "$(find "$d/ckpt" "$d/logs" "$d/data" -type f)" || return 1
    [ ! -e "$d/data/tmp" ] || say 'scratch is in the store'
}

test_three_stores() {
    three_stores three
    mount_three || return 1
    write_three || return 1
    [ "$(cd "$d/mnt/runs/r1" && echo *)" = 'checkpoint config.yaml logs' ] ||
        say "runs/r1 shows $(ls "$d/mnt/runs/r1")" || return 1
    umount_here && raw_three || return 1
    # What others put into the stores is there, too; and it is written anew and removed where it is.
    mkdir -p "$d/ckpt/r2" && echo other >"$d/ckpt/r2/model.pt" || return 1
    mount_three || return 1
    grep -qx other "$d/mnt/runs/r2/checkpoint/model.pt" && grep -qx line "$d/mnt/runs/r1/logs/train.log" &&
        rm "$d/mnt/runs/r1/logs/train.log" && echo more >"$d/mnt/set/part-0" && umount_here || return 1
    [ ! -e "$d/logs/r1/train.log" ] && grep -qx more "$d/data/set/part-0"
}

test_status_of_three_stores() {
    local name
    three_stores threestatus
    mount_three && write_three || return 1
    try "$runfs" flush "$d/mnt"
    expect_code 0 || return 1
    "$runfs" status --json --files "$d/mnt" >"$d/status.json" &&
        python3 "$here/check_status.py" "$d/status.json" files || return 1
    [ "$(json '[d["store"]] + [s["name"] for s in d["stores"]]' <"$d/status.json")" = \
        "['runfs:ckpt+data+logs', 'logs', 'ckpt', 'data']" ] || say "$(cat "$d/status.json")" || return 1
    json 'all(s["requests"] > 0 and s["failures"] == 0 for s in d["stores"])' <"$d/status.json" | grep -qx True &&
        json 'd["requests"]["requests"] == sum(s["requests"] for s in d["stores"])' <"$d/status.json" | grep -qx True ||
        say "$(cat "$d/status.json")" || return 1
    awk -v p="$d/mnt" '$5 == p' /proc/self/mountinfo | grep -q ' runfs:ckpt+data+logs ' || say 'another name' || return 1
    "$runfs" status "$d/mnt" | has_line "^  ckpt  *file://$d/ckpt, [0-9]* requests, 0 failed" || return 1
    # By its name alone it is found when no other has it: another run of these may, and all are told then.
    try "$runfs" status runfs:ckpt+data+logs
    grep -q "^mountpoint  *$d/mnt" "$work/out" || grep -q "is mounted .* times, name one of them: .*$d/mnt" "$work/err" ||
        say "$(cat "$work/out" "$work/err")" || return 1
    for name in ckpt logs data; do
        grep -q "^runfs_store_requests_total{store=\"$name\"} [1-9]" "$d/mnt/.runfs/metrics" ||
            say "no series of $name" || return 1
    done
    [ "$(grep -c '^# TYPE runfs_store_requests_total ' "$d/mnt/.runfs/metrics")" = 1 ] &&
        grep -q '^runfs_store_requests_total [1-9]' "$d/mnt/.runfs/metrics" || return 1
    umount_here
}

# lines_of PATH: what `runfs status` says of where a path goes, without the padding.
lines_of() {
    "$runfs" status "$1" | sed -n -E '/^path /,$ { /^(path|  (store|route|policy)) / s/ +/ /gp }'
}

# asked PATH: the same of the document.
asked() {
    "$runfs" status --json "$1" | json '[d["asked"].get(k) for k in ("path", "state", "store", "route", "policy")] if "asked" in d else None'
}

# Where a path goes is told by its name and by what stands there, in the words of `runfs check` and of the attributes.
test_status_of_a_path_of_three_stores() {
    local part
    three_stores threepath
    mount_three -o settle=1h && write_three || return 1
    [ "$(lines_of "$d/mnt/runs/r1/checkpoint/model.pt")" = "path $d/mnt/runs/r1/checkpoint/model.pt, itself dirty
 store ckpt
 route runs/{run}/checkpoint/**
 policy checkpoint" ] || say "$("$runfs" status "$d/mnt/runs/r1/checkpoint/model.pt")" || return 1
    [ "$(asked "$d/mnt/runs/r1/logs")" = "['$d/mnt/runs/r1/logs', 'dirty', 'logs', 'runs/{run}/logs/**', 'logs']" ] &&
        [ "$(asked "$d/mnt/set/part-0")" = "['$d/mnt/set/part-0', 'dirty', 'data', '**', 'data']" ] &&
        [ "$(asked "$d/mnt/tmp/sums")" = "['$d/mnt/tmp/sums', 'local', None, 'tmp/**', 'scratch']" ] ||
        say "$(for part in runs/r1/logs set/part-0 tmp/sums; do asked "$d/mnt/$part"; done)" || return 1
    # The mount's own answer is above it, and all there is of the mount itself, or of what is not there.
    "$runfs" status "$d/mnt/set/part-0" | has_line "^mountpoint  *$d/mnt" || return 1
    [ "$(asked "$d/mnt/none")" = None ] && [ "$(asked "$d/mnt")" = None ] && [ -z "$(lines_of "$d/mnt")" ] ||
        say "$("$runfs" status "$d/mnt")" || return 1
    # So it is where the mount alone is to be had, as in a container.
    mv "$d/cache/control" "$d/control" || return 1
    [ "$(asked "$d/mnt/set/part-0")" = "['$d/mnt/set/part-0', 'dirty', 'data', '**', 'data']" ] ||
        say "$("$runfs" status "$d/mnt/set/part-0")" || return 1
    mv "$d/control" "$d/cache/control" && umount_here
}

test_status_says_where_what_is_owed_goes() {
    three_stores threeowed
    mount_three -o settle=1h && write_three || return 1
    "$runfs" status --json --files "$d/mnt" >"$d/status.json" && python3 "$here/check_status.py" "$d/status.json" files || return 1
    [ "$(json '[[f.get(k) for k in ("store", "route", "policy")] for f in d["files"] if f["path"].endswith("model.pt")]' <"$d/status.json")" = \
        "[['ckpt', 'runs/{run}/checkpoint/**', 'checkpoint']]" ] || say "$(cat "$d/status.json")" || return 1
    [ "$(json '[f.get("store") for f in d["files"] if f["path"].endswith("train.log")]' <"$d/mnt/.runfs/status.json")" = "['logs']" ] ||
        say "$(cat "$d/mnt/.runfs/status.json")" || return 1
    "$runfs" status --files "$d/mnt" | has_line '^dirty .* runs/r1/checkpoint/model.pt  \[ckpt\]$' ||
        say "$("$runfs" status --files "$d/mnt")" || return 1
    umount_here
}

# One store without routes has nothing more to say.
test_status_of_a_path_of_one_store() {
    fresh onepath
    mount_here settle=1h && echo x >"$d/mnt/f" || return 1
    [ "$(asked "$d/mnt/f")" = None ] && [ -z "$(lines_of "$d/mnt/f")" ] || say "$("$runfs" status "$d/mnt/f")" || return 1
    "$runfs" status --json --files "$d/mnt" >"$d/status.json" && python3 "$here/check_status.py" "$d/status.json" files || return 1
    [ "$(json '[sorted(f) for f in d["files"]]' <"$d/status.json")" = "[['bytes', 'bytes_done', 'kind', 'path', 'state']]" ] ||
        say "$(cat "$d/status.json")" || return 1
    "$runfs" status --files "$d/mnt" | has_line '^dirty .* f$' && umount_here
}

# Who did not mount it, and may read the path, is told so, too; there the answer is of the path alone.
test_status_of_a_path_by_another_user() {
    local other=(setpriv --reuid nobody --regid nogroup --clear-groups)
    can_fill || { skip 'needs root'; return 0; }
    three_stores threeother_user
    chmod 755 "$work"
    mount_three -o settle=1h,allow_other && chmod 755 "$d/mnt" && write_three || return 1
    cp "$runfs" "$d/runfs-of-all" && chmod 755 "$d/runfs-of-all" || return 1
    try "${other[@]}" "$d/runfs-of-all" status --json "$d/mnt/runs/r1/checkpoint/model.pt"
    expect_code 0 && [ "$(json '[d[k] for k in ("state", "store", "route", "policy")]' <"$work/out")" = \
        "['dirty', 'ckpt', 'runs/{run}/checkpoint/**', 'checkpoint']" ] || say "$(cat "$work/out" "$work/err")" || return 1
    try "${other[@]}" "$d/runfs-of-all" status "$d/mnt/runs/r1/checkpoint/model.pt"
    expect_code 0 && [ "$(sed -n '1,4 s/ \+/ /gp' "$work/out")" = "path $d/mnt/runs/r1/checkpoint/model.pt, itself dirty
 store ckpt
 route runs/{run}/checkpoint/**
 policy checkpoint" ] && grep -q "^object  *file://$d/ckpt/r1/model.pt" "$work/out" || say "$(cat "$work/out")" || return 1
    umount_here
}

# As many as a configuration may have, with long names: their title is cut for mount(2).
test_the_most_stores() {
    local i name stores='' routes='' title
    fresh most
    for i in $(seq -w 256); do
        name="store-of-$$-whose-name-is-rather-long-$i" # another run's has another title
        mkdir "$d/$i" && stores+=", \"$name\": {\"url\": \"$d/$i\"}"
        routes+=", {\"path\": \"$i/**\", \"key\": \"**\", \"store\": \"$name\"}"
    done
    echo "{\"stores\": {${stores#, }}, \"routes\": [${routes#, }], \"cache\": {\"dir\": \"$d/cache\"}}" >"$d/c.json"
    try "$runfs" check "$d/c.json"
    expect_code 0 && mount_three && echo text >"$d/mnt/256/file" || return 1
    title=$(awk -v p="$d/mnt" '$5 == p { print $(NF - 1) }' /proc/self/mountinfo)
    [[ $title = runfs:*-001+*-more && ${#title} -le 1024 ]] || say "$title" || return 1
    "$runfs" status "$title" | has_line "^mountpoint  *$d/mnt" && umount_here && grep -qx text "$d/256/file"
}

# Neither the configuration nor the stores' names are needed to publish what a crash left.
test_three_stores_after_a_crash() {
    local pid
    three_stores threecrash
    mount_three -o settle=1h && write_three || return 1
    pid=$(daemon_pid)
    kill -9 "$pid" && until_true 30 gone "$pid" || return 1
    rm "$d/c.json"
    [ -e "$d/cache/config.json" ] || say 'no configuration is kept' || return 1
    try "$runfs" recover --list "$d/cache"
    expect_code 0 && grep -q 'runs/r1/checkpoint/model.pt' "$work/out" || return 1
    ! grep -q tmp/sums "$work/out" || say 'scratch is owed' || return 1
    refused 1 "option region is one store's" "$runfs" recover --publish "$d/cache" -o region=r || return 1
    try "$runfs" recover --publish "$d/cache"
    expect_code 0 && grep -q 'everything is in runfs:ckpt+data+logs' "$work/out" && raw_three || return 1
    fusermount3 -u -z "$d/mnt" 2>/dev/null || umount -l "$d/mnt"
}

# Another store, or another way to it, may not take a cache that owes something.
test_cache_of_other_routes() {
    local pid
    three_stores threeother
    mount_three -o settle=1h && write_three || return 1
    pid=$(daemon_pid)
    kill -9 "$pid" && until_true 30 gone "$pid" || return 1
    mkdir "$d/else"
    cp "$d/c.json" "$d/right.json"
    sed -i "s,$d/ckpt,$d/else," "$d/c.json"
    refused 1 "the cache is of \"ckpt\" at file://$d/ckpt, the mount has file://$d/else" \
        "$runfs" mount "$d/c.json" "$d/mnt" || return 1
    sed 's,"{run}/\*\*"\, "policy": "logs","l/{run}/**"\, "policy": "logs",' "$d/right.json" >"$d/c.json"
    refused 1 'route 2 of the cache is runs/{run}/logs/** to {run}/** of "logs", that of the mount ' \
        "$runfs" mount "$d/c.json" "$d/mnt" || return 1
    refused 1 "with routes, the mount has file://$d/data without" "$runfs" mount -o "cache_dir=$d/cache" "$d/data" "$d/mnt" || return 1
    cp "$d/right.json" "$d/c.json"
    mount_three && umount_here && raw_three
}

# One URL under a layout is its own name, and its store's one tree.
test_layout_of_a_url() {
    fresh layout
    mount_here layout=runs || return 1
    mkdir -p "$d/mnt/runs/r1/checkpoint" && echo weights >"$d/mnt/runs/r1/checkpoint/model.pt" || return 1
    awk -v p="$d/mnt" '$5 == p' /proc/self/mountinfo | grep -qF " file://$d/store " || say 'another name' || return 1
    umount_here && grep -qx weights "$d/store/runs/r1/checkpoint/model.pt" || return 1
    mount_here && grep -qx weights "$d/mnt/runs/r1/checkpoint/model.pt" && umount_here
}
