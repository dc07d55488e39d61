# shellcheck shell=bash
# The command line: help, words that are wrong, configurations, URLs and the secrets in them.
# shellcheck disable=SC2154 # variables of run.sh and lib.sh

test_help_and_version() {
    local command
    try "$runfs" --version
    expect_code 0 && grep -qE '^runfs [0-9]+\.[0-9]+' "$work/out" || return 1
    cp "$work/out" "$work/said"
    try "$runfs" version
    expect_code 0 && cmp "$work/out" "$work/said" || return 1
    try "$runfs" help
    expect_code 0 && grep -q '^  version ' "$work/out" || return 1
    refused 2 'did you mean mount?' "$runfs" help moutn || return 1
    try "$runfs" --help
    expect_code 0 || return 1
    for command in mount umount status flush fetch pin unpin evict verify url paths check recover; do
        grep -q "^  $command " "$work/out" || say "--help lacks $command" || return 1
    done
    for command in mount umount status flush fetch pin unpin evict verify url paths check recover; do
        try "$runfs" "$command" --help
        expect_code 0 && grep -q "^Usage: runfs $command " "$work/out" &&
            grep -q '^Exit codes:' "$work/out" || say "$command --help" || return 1
        [ ! -s "$work/err" ] || say "$command --help complains" || return 1
        cp "$work/out" "$work/said"
        try "$runfs" help "$command"
        expect_code 0 && cmp "$work/out" "$work/said" || return 1
    done
}

test_wrong_command_lines() {
    refused 2 'runfs --help' "$runfs" &&
        refused 2 'did you mean mount?' "$runfs" moutn "$work" "$work" &&
        refused 2 'unknown command xyzzy' "$runfs" xyzzy &&
        refused 2 'needs a store' "$runfs" mount &&
        refused 2 'needs a store' "$runfs" mount "$work" &&
        refused 2 'not also c' "$runfs" mount a b c &&
        refused 2 'unknown option --foreground' "$runfs" mount --foreground a b &&
        refused 2 'needs one mountpoint' "$runfs" umount &&
        refused 2 'did you mean --timeout?' "$runfs" umount --timout 3 "$work" &&
        refused 2 'expected a time' "$runfs" umount "$work" --timeout soon &&
        refused 2 'needs a value' "$runfs" umount "$work" --timeout &&
        refused 2 'takes no value' "$runfs" status --json=yes "$work" &&
        refused 2 'needs a path' "$runfs" flush &&
        refused 2 'needs one cache directory' "$runfs" recover &&
        refused 2 'exclude each other' "$runfs" recover --list --publish "$work"
}

test_unknown_options() {
    fresh unknown
    refused 2 'unknown option "cache_sise", did you mean "cache_size"?' \
        "$runfs" mount -o cache_sise=1G "$d/store" "$d/mnt" &&
        refused 2 'expected a size' "$runfs" mount -o cache_size=huge "$d/store" "$d/mnt" &&
        refused 2 'expected cache, store' "$runfs" mount -o durability=x "$d/store" "$d/mnt" &&
        refused 2 'did you mean "ray"?' "$runfs" mount -o layout=rya "$d/store" "$d/mnt" &&
        refused 2 'read-only is ro' "$runfs" mount -o rw=false "$d/store" "$d/mnt" &&
        refused 1 'did you mean "allow_other"' "$runfs" "$d/store" "$d/mnt" -o allow_othr
}

test_bad_configurations() {
    fresh configuration
    refused 2 'missing.json: No such file' "$runfs" mount "$d/missing.json" "$d/mnt" || return 1
    echo '{"stores": ' >"$d/c.json"
    refused 2 'c.json:1:12: ' "$runfs" mount "$d/c.json" "$d/mnt" || return 1
    echo '{"options": {"ro": true}}' >"$d/c.json"
    refused 2 'names no store' "$runfs" mount "$d/c.json" "$d/mnt" || return 1
    echo '{"stores": {"a": {"url": "/x", "regoin": "y"}}}' >"$d/c.json"
    refused 2 'c.json:1:13: store "a": unknown option "regoin", did you mean "region"' \
        "$runfs" mount "$d/c.json" "$d/mnt" || return 1
    printf '{"stores": {"a": {"url": "/x"}},\n"options": {\n  "_netdev": true}}' >"$d/c.json"
    refused 2 'c.json:3:14: "_netdev" is a word for -o' "$runfs" mount "$d/c.json" "$d/mnt" || return 1
    echo '{"stores": {"a": {"url": "/x"}}}' >"$d/c.json"
    refused 2 'mount that name' "$runfs" mount -o "config=$d/c.json" "$d/store" "$d/mnt"
}

test_bad_configurations_of_several_stores() {
    local stores='"stores": {"a": {"url": "/x"}, "b": {"url": "/y"}}'
    fresh several
    printf '{%s,\n "routes": [{"path": "**", "store": "c"}]}' "$stores" >"$d/c.json"
    refused 2 'c.json:2:' "$runfs" mount "$d/c.json" "$d/mnt" || return 1
    printf '{%s, "default_store": "a",\n "options": {"region": "r"}}' "$stores" >"$d/c.json"
    refused 2 'c.json:2:24: option "region" is one store' "$runfs" mount "$d/c.json" "$d/mnt" || return 1
    printf '{%s, "default_store": "a", "routes": [{"path": "b/**", "store": "b"}]}' "$stores" >"$d/c.json"
    refused 2 'option region is one store' "$runfs" mount -o region=r "$d/c.json" "$d/mnt" &&
        refused 2 'has the stores a, b: mount' "$runfs" mount -o "config=$d/c.json" a "$d/mnt" &&
        refused 2 'has the stores a, b: give it a "layout"' "$runfs" mount -o layout=ray "$d/c.json" "$d/mnt" &&
        refused 5 'store "' "$runfs" mount -o "cache_dir=$d/cache" "$d/c.json" "$d/mnt" &&
        [ ! -e "$d/cache" ]
}

test_bad_urls() {
    local url
    fresh urls
    for url in s4://bucket/x ftp://host/x s3:// s3:///prefix relative/path file://host/x ''; do
        try "$runfs" mount -o "cache_dir=$d/cache" "$url" "$d/mnt"
        [ "$code" = 1 ] && [ "$(wc -l <"$work/err")" = 1 ] ||
            say "'$url': exit $code, $(cat "$work/err")" || return 1
        ! is_mounted "$d/mnt" || say "'$url' was mounted" || return 1
    done
    refused 5 nonexistent "$runfs" mount -o "cache_dir=$d/cache" /nonexistent/store "$d/mnt"
}

test_secrets_in_urls() {
    fresh secrets
    refused 2 'credentials' "$runfs" mount 's3://key:hunter2@bucket/x' "$d/mnt" || return 1
    ! grep -q hunter2 "$work/out" "$work/err" || say 'the message shows the secret' || return 1
    # Also where no URL is wanted, and where it is written wrong.
    local url=s3:///key:hunter2@bucket/x words
    echo '{"stores": {"a": {"url": "/srv/x"}}, "'$url'": 1}' >"$d/c.json"
    echo '{"stores": {"a": {"url": "/srv/x"}}}' >"$d/good.json"
    for words in "mount $url $d/mnt" "mount -o config=$url s3://b $d/mnt" "mount -o layout=$url s3://b $d/mnt" "status $url" \
        "umount $url" "flush $url" "verify $url" "recover $url" "recover --publish $url" "evict $url" "url $url" "url --path $url" "check $url" \
        "check $d/c.json" "check --json $d/c.json" "check --json $url" "check $d/good.json $url" "check $d/good.json --key $url x" \
        "check $d/good.json --key a $url" "check $d/good.json --same-as $url" "paths $url" "paths /m/runs/x --config $url"; do
        # shellcheck disable=SC2086 # several words
        try "$runfs" $words
        [ "$code" != 0 ] || say "$words: works" || return 1
        grep -qF 's3:///***@bucket/x' "$work/out" "$work/err" || [[ $words == mount* ]] || say "$words: does not name it" || return 1
        ! grep -q hunter2 "$work/out" "$work/err" || say "$words: the message shows the secret" || return 1
    done
}
