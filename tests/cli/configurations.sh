# shellcheck shell=bash
# runfs check, url, paths and evict: what a configuration means, and where things are.
# shellcheck disable=SC2154 # variables of run.sh and lib.sh

# ---- helpers --------------------------------------------------------------------------------

# config TEXT: c.json in $d.
config() {
    printf '%s\n' "$1" >"$d/c.json"
}

# tells TEXT LINE...: with that text as c.json, exactly so many lines, and each of these in one of them, behind the
# file's name: "LINE:COLUMN: WORDS", or words alone.
tells() {
    local text=$1 line
    shift
    config "$text"
    try "$runfs" check "$d/c.json"
    expect_code 2 || return 1
    [ ! -s "$work/out" ] || say "stdout: $(cat "$work/out")" || return 1
    [ "$(wc -l <"$work/err")" = $# ] || say "not $# lines: $(cat "$work/err")" || return 1
    for line in "$@"; do
        grep -F -- "$line" "$work/err" | grep -qE "^$d/c.json(:[0-9]+:[0-9]+)?: " || say "does not say '$line': $(cat "$work/err")" || return 1
    done
}

# answers CODE TEXT COMMAND...: just that on stdout.
answers() {
    local wanted=$1 text=$2
    shift 2
    try "$@"
    expect_code "$wanted" || return 1
    [ "$(cat "$work/out")" = "$text" ] || say "not '$text': $(cat "$work/out")"
}

check_stdin() { # TEXT
    printf '%s' "$1" | "$runfs" check /dev/stdin
}

three_stores='{"stores": {"ckpt": {"url": "s3://training/ckpt", "region": "eu-west-1"},
            "logs": {"url": "s3://training/logs"}, "data": {"url": "s3://training/data"}},
 "routes": [{"path": "runs/{run}/checkpoint/**", "store": "ckpt", "key": "{run}/**", "policy": "checkpoint"},
            {"path": "runs/{run}/logs/**", "store": "logs", "key": "{run:hex}/**", "policy": "logs"},
            {"path": "scratch/**", "store": "data", "policy": "scratch"},
            {"path": "d/**", "store": "data", "key": "**"}],
 "options": {"allow_other": true}}'

# ---- what is right --------------------------------------------------------------------------

test_check_of_a_good_file() {
    fresh check
    config "$three_stores"
    answers 0 "$d/c.json: ok: 3 stores, 4 routes" "$runfs" check "$d/c.json" || return 1
    try "$runfs" check --json "$d/c.json"
    [ "$(json 'd["ok"], d["stores"], d["routes"]' <"$work/out")" = '(True, 3, 4)' ] ||
        say "$(cat "$work/out")" || return 1
    config '{"stores": {"a": {"url": "/srv/x"}}}'
    answers 0 "$d/c.json: ok: 1 store, 1 route" "$runfs" check "$d/c.json" || return 1
    config '{"options": {"ro": true}}'
    answers 0 "$d/c.json: ok: no stores, 1 option" "$runfs" check "$d/c.json" || return 1
    refused 2 'names no stores' "$runfs" check "$d/c.json" runs/a || return 1
    try check_stdin "$three_stores"
    expect_code 0
}

test_check_of_paths() {
    fresh checkpaths
    config "$three_stores"
    try "$runfs" check "$d/c.json" runs/a/checkpoint/x.tmp
    expect_code 0 || return 1
    printf '%s\n' 'runs/a/checkpoint/x.tmp' '  store   ckpt' '  url     s3://training/ckpt/a/x.tmp' '  key     a/x.tmp' \
        "  route   $d/c.json:3:13: runs/{run}/checkpoint/**" '  policy  checkpoint' '  unit    entry' \
        '  upload  a staging name: when it is renamed' >"$work/said"
    cmp "$work/said" "$work/out" || say "$(cat "$work/out")" || return 1
    try "$runfs" check "$d/c.json" runs/a/logs/x scratch/x /d/x.log ./d/x runs
    expect_code 0 || return 1
    grep -qx '  key     61/x' "$work/out" && grep -qx '  upload  never: scratch, in no store' "$work/out" &&
        grep -qx '  key     x.log' "$work/out" && grep -qx '  upload  when it is closed' "$work/out" &&
        [ "$(grep -cx '  upload  a log: each 30s while it is open' "$work/out")" = 2 ] &&
        grep -q 'on the way' "$work/out" || say "$(cat "$work/out")" || return 1
    printf '%s' '{"stores": {"a": {"url": "/srv/x"}}, "routes": [{"path": "**", "store": "a", "policy": "p"}],
 "policies": {"p": {"upload": "rename"}}}' >"$d/r.json"
    try "$runfs" check "$d/r.json" x x.log
    expect_code 0 || return 1
    grep -qx '  upload  new: when it is renamed; changed in place: when it is closed' "$work/out" &&
        grep -qx '  upload  a log: each 30s while it is open' "$work/out" || say "$(cat "$work/out")" || return 1
    printf '%s' '{"stores": {"a": {"url": "/srv/x"}}, "routes": [{"path": "m/**", "store": "a", "policy": "metadata"},
 {"path": "**", "store": "a", "policy": "p"}], "policies": {"p": {"extends": "metadata"}}}' >"$d/r.json"
    try "$runfs" check "$d/r.json" m/x n/x.log n/x.tmp
    expect_code 0 || return 1
    grep -qx '  upload  when it is closed, before others' "$work/out" &&
        grep -qx '  upload  a log: each 30s while it is open, before others' "$work/out" &&
        grep -qx '  upload  a staging name: when it is renamed, before others' "$work/out" || say "$(cat "$work/out")" || return 1
    # Who has a part in a directory.
    answers 0 "$(printf '%s\n' runs/a/ '  a directory on the way to what is in stores' \
        "  part    ckpt: $d/c.json:3:13: runs/{run}/checkpoint/**" "  part    logs: $d/c.json:4:13: runs/{run}/logs/**")" \
        "$runfs" check "$d/c.json" runs/a/ || return 1
    config "${three_stores/\"options\"/\"default_store\": \"data\", \"options\"}"
    sed -i 's|"d/\*\*", "store": "data", "key": "\*\*"|"d/**", "store": "data"|' "$d/c.json"
    try "$runfs" check "$d/c.json" runs/a/
    expect_code 0 && grep -qx '  key     runs/a' "$work/out" && [ "$(grep -c '^  part ' "$work/out")" = 2 ] &&
        grep -qx "  part    logs: $d/c.json:4:13: runs/{run}/logs/\*\*" "$work/out" || say "$(cat "$work/out")" || return 1
    try "$runfs" check --json "$d/c.json" runs/a/ runs/a
    [ "$(json '[[s["store"] for s in p["parts"]] for p in d["paths"]]' <"$work/out")" = "[['ckpt', 'logs'], []]" ] ||
        say "$(cat "$work/out")" || return 1
    config "$three_stores"
    refused 1 'elsewhere/x: no route leads there' "$runfs" check "$d/c.json" elsewhere/x || return 1
    refused 1 'd/.runfs/x: its store keeps that key for itself' "$runfs" check "$d/c.json" d/.runfs/x || return 1
    refused 1 'a//b: it can'\''t be a path' "$runfs" check "$d/c.json" a//b || return 1
    try "$runfs" check --json "$d/c.json" runs/a/logs/x elsewhere/x
    expect_code 1 || return 1
    [ "$(json '[(p.get("store"), p.get("log"), p.get("route", {}).get("line"), p.get("error")) for p in d["paths"]]' \
        <"$work/out")" = "[('logs', True, 4, None), (None, None, None, 'no route leads there')]" ] || say "$(cat "$work/out")"
}

test_check_of_keys() {
    fresh checkkeys
    config "$three_stores"
    answers 0 runs/a/checkpoint/b/c "$runfs" check "$d/c.json" --key ckpt a/b/c || return 1
    answers 0 runs/a/logs "$runfs" check "$d/c.json" --key logs 61/ || return 1
    refused 1 'no path leads to it' "$runfs" check "$d/c.json" --key logs A/b || return 1
    refused 1 'no path leads to it' "$runfs" check "$d/c.json" --key logs ../b || return 1
    refused 2 'no store "ckp", did you mean "ckpt"?' "$runfs" check "$d/c.json" --key ckp a || return 1
    refused 2 'a store and one key' "$runfs" check "$d/c.json" --key ckpt || return 1
    try "$runfs" check --json "$d/c.json" --key ckpt a/b
    [ "$(json 'd["path"]' <"$work/out")" = runs/a/checkpoint/b ] || say "$(cat "$work/out")" || return 1
    # A name must not command the terminal of who reads the JSON, and a program gets its bytes.
    answers 0 "$(printf 'd/\033[31m')" "$runfs" check "$d/c.json" --key data "$(printf '\033[31m')" || return 1
    try "$runfs" check --json "$d/c.json" --key data "$(printf '\033[31m\342\200\256')"
    ! LC_ALL=C grep -q "$(printf '[\033\200-\377]')" "$work/out" || say 'raw bytes in the JSON'
}

test_check_expands_layouts() {
    fresh expand
    config '{"stores": {"a": {"url": "s3://b/p"}}, "layout": "horovod"}'
    try "$runfs" check "$d/c.json" --expand
    expect_code 0 && cp "$work/out" "$d/expanded.json" || return 1
    answers 0 'the same' "$runfs" check "$d/expanded.json" --same-as "$d/c.json" || return 1
    try "$runfs" check "$d/c.json" runs/x/logs/e
    grep -qx "  route   $d/c.json:1:50: runs/{run}/logs/\*\*" "$work/out" || say "$(cat "$work/out")"
}

# What the pages say of the layouts.
test_layouts_of_the_docs() {
    mkdir "$work/layouts"
    try python3 "$here/doc_examples.py" "$runfs" "$work/layouts" "$work/pids"
    expect_code 0
}

# ---- what is wrong --------------------------------------------------------------------------

test_check_tells_all_errors() {
    fresh errors
    tells '{"stores": {"ckpt": {"url": "s3://t/c", "regoin": "x"}, "logs": {"url": "hdfs://x/y"}},
 "routes": [{"path": "a/**", "store": "ckpt"}, {"path": "b/**", "store": "logs"}],
 "options": {"allow_othr": true, "nosuid": true, "endpoint": "https://x"}}' \
        '1:13: store "ckpt": unknown option "regoin", did you mean "region"?' \
        'store "logs": the store URL "hdfs://x/y" has no known form' \
        '3:28: unknown option "allow_othr", did you mean "allow_other"?' \
        '3:44: "nosuid" is a word for -o and fstab' \
        '3:62: option "endpoint" is one store' || return 1
    tells '{"stores": {"ckpt": {"url": "s3://t/c"}, "logs": {"url": "s3://t/l"}},
 "routes": [{"path": "**", "store": "x"},
            {"path": "**", "store": "ckpt", "polcy": "data"},
            {"path": "a/**", "store": "ckpt", "policy": "none"}]}' \
        '2:37: route names the store "x"; "stores" has ckpt, logs' '3:13: can never match' \
        '3:45: unknown "polcy" in a route, did you mean "policy"?' '4:13: can never match' \
        '4:57: route names the policy "none"' || return 1
    tells '{"stores": {"a": {"url": "s3://t/c"}}, "layout": "horovd"}' 'did you mean "horovod"?'
}

test_check_of_templates() {
    local stores='{"stores": {"a": {"url": "s3://t/a"}, "b": {"url": "s3://t/b"}}, "routes": ['
    fresh templates
    tells "$stores"'{"path": "{run}/**", "store": "a", "key": "**"}]}' '"path" has {run}, "key" has not' || return 1
    tells "$stores"'{"path": "{a}/{b}", "store": "a", "key": "{b}/{a}"}]}' '"key" has {b} before {a}' || return 1
    tells "$stores"'{"path": "{a}-{b}", "store": "a"}]}' 'two captures in "{a}-{b}"' || return 1
    tells "$stores"'{"path": "{a:b32}", "store": "a"}]}' 'codec' || return 1
    tells "$stores"'{"path": "{a}", "store": "a", "key": "{a:rot}"}]}' 'rot' || return 1
    tells "$stores"'{"path": "a/../b", "store": "a"}]}' '".." can'\''t be a component' || return 1
    tells "$stores"'{"path": "a//b", "store": "a"}]}' 'can'\''t be a component' || return 1
    tells "$stores"'{"path": ".runfs/b", "store": "a"}]}' 'can'\''t be a component' || return 1
    tells "$stores"'{"path": "**", "store": "a"},
 {"path": "x/**", "store": "b"}]}' 'can never match: line 1 takes every path of it'
}

test_check_of_places() {
    local -x AWS_ENDPOINT_URL= # both are AWS's
    fresh places
    tells '{"stores": {"a": {"url": "s3://t/a"}, "b": {"url": "s3://t/a/x"}},
 "routes": [{"path": "a/{r}/**", "store": "a", "key": "{r}/**"}, {"path": "b/**", "store": "b"}]}' \
        'an object of "a" such as' 'state' || return 1
    tells '{"stores": {"a": {"url": "s3://t"}, "b": {"url": "s3://t/x", "endpoint": "https://s3.eu-west-1.amazonaws.com"}},
 "routes": [{"path": "a/**", "store": "a"}, {"path": "b/**", "store": "b", "key": "a/**"}]}' \
        'the state of "b" would lie in "a"' || return 1
    tells '{"stores": {"a": {"url": "s3://t/a"}, "b": {"url": "s3://t/a.runfs/x"}},
 "routes": [{"path": "a/**", "store": "a"}, {"path": "b/**", "store": "b"}]}' \
        '1:52: "b" (a.runfs/x) would lie in the state of "a" (a.runfs)' || return 1
    mkdir -p "$d/store/c"
    tells '{"stores": {"a": {"url": "'"$d/store"'"}}, "cache": {"dir": "'"$d/store/c"'"}}' \
        "the cache directory $d/store/c lies within the store \"a\" at $d/store" || return 1
    ln -s store "$d/alias"
    tells '{"stores": {"a": {"url": "'"$d/alias"'"}}, "cache": {"dir": "'"$d/store/c"'"}}' 'lies within the store "a"'
}

test_check_of_policies_and_urls() {
    fresh policies
    tells '{"stores": {"a": {"url": "s3://t/a"}}, "policies": {"x": {"extends": "y"}, "y": {"extends": "x"}},
 "routes": [{"path": "**", "store": "a", "policy": "x"}]}' 'extend each other' || return 1
    tells '{"stores": {"a": {"url": "s3://key:hunter2@b/p"}}}' 'credentials' || return 1
    ! grep -q hunter2 "$work/err" || say 'the message shows the secret' || return 1
    tells '{"stores": {"a": {"url": "s3:///key:hunter2@b/p"}}}' 'no place in a URL' || return 1
    ! grep -q hunter2 "$work/err" || say 'the message shows the secret' || return 1
    tells '{"stores": {"a": {"url": "s3://t/a", "profile": "no-such-profile"}}}' 'AWS profile "no-such-profile"' || return 1
    tells '{"stores": {"a": {"url": "s3://t/a", "endpoint": "minio:9000"}}}' 'TLS' || return 1
    tells '{"stores": {"a": {"url": "s3://t/a"}}, "options": {"cache_size": "huge"}}' 'expected a size' || return 1
    tells '{"stores": {"a": {"url": "s3://t/a"}, "b": {"url": "s3://t/b"}}}' 'route' || return 1
    tells '{"stores": ' ''
}

test_check_of_many_errors() {
    fresh many
    python3 -c 'import json
print(json.dumps({"stores": {"a": {"url": "s3://t/a"}}, "options": {"bad%d" % i: 1 for i in range(120)}}))' >"$d/c.json"
    try "$runfs" check "$d/c.json"
    expect_code 2 && [ "$(wc -l <"$work/err")" = 101 ] && tail -n 1 "$work/err" | grep -qx 'and 20 more' ||
        say "$(tail -n 3 "$work/err")" || return 1
    try "$runfs" check --json "$d/c.json"
    expect_code 2 && [ ! -s "$work/err" ] || return 1
    [ "$(json 'len(d["problems"]), d["more"], d["problems"][0]["line"]' <"$work/out")" = '(100, 20, 1)' ] ||
        say "$(head -n 12 "$work/out")"
}

# As the mount says it.
test_exit_codes_of_check_and_mount() {
    local other
    fresh codes
    refused 2 'none.json: No such file' "$runfs" mount "$d/none.json" "$d/mnt" || return 1
    refused 2 'none.json: No such file' "$runfs" mount -o "config=$d/none.json" "$d/store" "$d/mnt" || return 1
    mkdir "$d/dir.json"
    refused 2 'Is a directory' "$runfs" mount "$d/dir.json" "$d/mnt" || return 1
    refused 2 'Is a directory' "$runfs" check "$d/dir.json" || return 1
    config '{"stores": {"a": {"url": "s3://t/a", "profile": "no-such-profile"}}}'
    refused 2 'c.json:1:26: store "a": AWS profile' "$runfs" mount "$d/c.json" "$d/mnt" || return 1
    refused 2 'c.json:1:26: store "a": AWS profile' "$runfs" check "$d/c.json" || return 1
    config '{"options": {"ro": true}}'
    refused 2 "add \"stores\", or mount a URL with -o config=$d/c.json" "$runfs" mount "$d/c.json" "$d/mnt" || return 1
    refused 2 'need "stores" in it' "$runfs" check "$d/c.json" x || return 1
    config '{"stores": {"a": {"url": "'"$d/store"'"}}, "options": {"rw": false}}'
    tells "$(cat "$d/c.json")" 'option rw=false: expected no value or true; read-only is ro' || return 1
    refused 2 'read-only is ro' "$runfs" mount "$d/c.json" "$d/mnt" || return 1
    # A program finds the file that is meant, too.
    try "$runfs" check --json "$d/none.json"
    expect_code 2 && [ ! -s "$work/err" ] || return 1
    [ "$(json '[(p["file"], p["line"], p["text"]) for p in d["problems"]]' <"$work/out")" = "[('$d/none.json', 0, 'No such file or directory')]" ] ||
        say "$(cat "$work/out")" || return 1
    config '{"stores": {"a": {"url": "'"$d/store"'"}}}'
    echo '{"stores": {"a": {"url": "/srv/x"}}, "x": 1}' >"$d/other.json"
    for other in "$d/other.json" "$d/none.json"; do
        try "$runfs" check --json "$d/c.json" --same-as "$other"
        [ "$code" = 2 ] && [ "$(json '[p["file"] for p in d["problems"]]' <"$work/out")" = "['$other']" ] || say "$(cat "$work/out" "$work/err")" || return 1
    done
}

test_check_of_files_that_cannot_be_read() {
    fresh unreadable
    refused 2 'No such file' "$runfs" check "$d/none.json" || return 1
    refused 2 'No such file' "$runfs" paths /m/runs/r --config "$d/none.json" || return 1
    refused 2 'needs a configuration' "$runfs" check || return 1
    refused 2 'exclude each other' "$runfs" check --expand --reach "$d/none.json" || return 1
    config "$three_stores"
    refused 2 'No such file' "$runfs" check "$d/c.json" --same-as "$d/none.json"
}

# Nobody listens at these ports: the message says where the driver went.
test_options_of_a_file_reach_the_store() {
    local -x AWS_ENDPOINT_URL="" AWS_ACCESS_KEY_ID=k AWS_SECRET_ACCESS_KEY=s
    local at='"options": {"endpoint": "http://127.0.0.1:9", "mount_timeout": "2s"}'
    fresh reachoptions
    echo "{$at}" >"$d/options.json"
    config "{\"stores\": {\"a\": {\"url\": \"s3://b/p\", \"region\": \"r\"}}, $at}"
    refused 7 '127.0.0.1 port 9' "$runfs" mount "$d/c.json" "$d/mnt" || return 1
    refused 7 '127.0.0.1 port 9' "$runfs" mount -o "config=$d/c.json" a "$d/mnt" || return 1
    refused 7 '127.0.0.1 port 9' "$runfs" mount -o "config=$d/options.json" s3://b/p "$d/mnt" || return 1
    refused 7 '127.0.0.1 port 7' "$runfs" mount -o "endpoint=http://127.0.0.1:7,config=$d/options.json" s3://b/p "$d/mnt" || return 1
    refused 7 '127.0.0.1 port 7' "$runfs" mount -o endpoint=http://127.0.0.1:7 "$d/c.json" "$d/mnt" || return 1
    refused 1 '127.0.0.1 port 9' "$runfs" check --reach "$d/c.json" || return 1
    try "$runfs" check --expand "$d/c.json"
    [ "$(json 'd["stores"]["a"]["endpoint"], d["stores"]["a"]["region"]' <"$work/out")" = "('http://127.0.0.1:9', 'r')" ] ||
        say "$(cat "$work/out")"
}

# ---- the same -------------------------------------------------------------------------------

# differs WORDS TEXT: c.json and that text are not the same, by one line.
differs() {
    printf '%s\n' "$2" >"$d/other.json"
    try "$runfs" check "$d/c.json" --same-as "$d/other.json"
    expect_code 1 || return 1
    [ "$(wc -l <"$work/out")" = 1 ] && grep -qF -- "$1" "$work/out" ||
        say "does not say '$1': $(cat "$work/out" "$work/err")" || return 1
}

test_a_mount_refuses_what_check_does() {
    fresh mount-refuses
    config '{"stores": {"one": {"url": "hdfs://nn/x"}}}'
    refused 2 "$d/c.json:1:28: store \"one\": the store URL \"hdfs://nn/x\" has no known form" \
        "$runfs" mount -o "cache_dir=$d/cache" "$d/c.json" "$d/mnt"
}

test_a_configuration_is_no_place() {
    local words='c.json is a configuration: name a mountpoint, a store or a cache directory'
    fresh no-place
    config "{\"stores\": {\"one\": {\"url\": \"$d/store\"}}}"
    refused 5 "$words" "$runfs" status "$d/c.json" || return 1
    refused 1 "$words" "$runfs" recover --list "$d/c.json" || return 1
    refused 1 "$words" "$runfs" recover --publish "$d/c.json"
}

# What only one of the two has is told of each.
refused_as_other() { # WORDS
    try "$runfs" check "$d/c.json" --same-as "$d/other.json"
    expect_code 1 || return 1
    [ "$(wc -l <"$work/out")" = 2 ] && grep -qF -- "$1" "$work/out" ||
        say "does not say '$1': $(cat "$work/out" "$work/err")" || return 1
}

test_check_same() {
    local s='"stores": {"a": {"url": "s3://t/a"}, "b": {"url": "s3://t/b"}}' o
    local AWS_ENDPOINT_URL= # both are AWS's
    fresh same
    config "{$s, \"routes\": [{\"path\": \"x/{r}/**\", \"store\": \"a\"}, {\"path\": \"y/**\", \"store\": \"b\"}, {\"path\": \"**\", \"store\": \"a\"}]}"
    # Another order of what can't meet, other names of captures, another way to say the place.
    o='"stores": {"b": {"url": "s3://t/b/"}, "a": {"url": "s3://t/a", "endpoint": "https://s3.us-east-1.amazonaws.com"}}'
    echo "{$o, \"routes\": [{\"path\": \"y/**\", \"store\": \"b\"}, {\"path\": \"x/{run}/**\", \"store\": \"a\"}, {\"path\": \"**\", \"store\": \"a\"}], \"options\": {\"ro\": true}}" >"$d/other.json"
    answers 0 'the same' "$runfs" check "$d/c.json" --same-as "$d/other.json" || return 1
    try "$runfs" check --json "$d/c.json" --same-as "$d/other.json"
    [ "$(json 'd["same"], d["differences"]' <"$work/out")" = '(True, [])' ] || say "$(cat "$work/out")" || return 1
    differs 'store "a": ' "{${s/t\/a/t\/other}, \"routes\": [{\"path\": \"x/{r}/**\", \"store\": \"a\"}, {\"path\": \"y/**\", \"store\": \"b\"}, {\"path\": \"**\", \"store\": \"a\"}]}" || return 1
    differs 'its state' "{${s/\"s3:\/\/t\/a\"/\"s3://t/a\", \"state_prefix\": \"off\"}, \"routes\": [{\"path\": \"x/{r}/**\", \"store\": \"a\"}, {\"path\": \"y/**\", \"store\": \"b\"}, {\"path\": \"**\", \"store\": \"a\"}]}" || return 1
    differs 'the route y/**' "{$s, \"routes\": [{\"path\": \"x/{r}/**\", \"store\": \"a\"}, {\"path\": \"y/**\", \"store\": \"b\", \"policy\": \"logs\"}, {\"path\": \"**\", \"store\": \"a\"}]}" || return 1
    differs 'the route y/**: upload close and interval; conflict keep and last' "{$s, \"routes\": [{\"path\": \"x/{r}/**\", \"store\": \"a\"}, {\"path\": \"y/**\", \"store\": \"b\", \"policy\": \"logs\"}, {\"path\": \"**\", \"store\": \"a\"}]}" || return 1
    differs 'the route y/**: settle 100ms and 0s; unit names and file; lock_ttl 1m and as usual; goes up in turn and first' "{$s, \"routes\": [{\"path\": \"x/{r}/**\", \"store\": \"a\"}, {\"path\": \"y/**\", \"store\": \"b\", \"policy\": \"metadata\"}, {\"path\": \"**\", \"store\": \"a\"}]}" || return 1
    differs '; del_locks no and yes' "{$s, \"routes\": [{\"path\": \"x/{r}/**\", \"store\": \"a\"}, {\"path\": \"y/**\", \"store\": \"b\", \"policy\": \"ray\"}, {\"path\": \"**\", \"store\": \"a\"}]}" || return 1
    differs 'the route x/{r}/**: interval 30s and 90ms; settle 100ms and 0s; durability cache and store' "{$s, \"policies\": {\"mine\": {\"interval\": \"90ms\", \"settle\": 0, \"durability\": \"store\"}}, \"routes\": [{\"path\": \"x/{r}/**\", \"store\": \"a\", \"policy\": \"mine\"}, {\"path\": \"y/**\", \"store\": \"b\"}, {\"path\": \"**\", \"store\": \"a\"}]}" || return 1
    differs 'has the route **' "{$s, \"routes\": [{\"path\": \"x/{r}/**\", \"store\": \"a\"}, {\"path\": \"y/**\", \"store\": \"b\"}]}" || return 1
    # A name with braces is no capture, nor does a name end what it is in.
    config "{$s, \"routes\": [{\"path\": \"x/{{0}}/**\", \"store\": \"a\"}, {\"path\": \"y\", \"key\": \"in \\\"a\\\" at z\", \"store\": \"a\"}]}"
    echo "{$s, \"routes\": [{\"path\": \"x/{r}/**\", \"store\": \"a\"}, {\"path\": \"y\", \"key\": \"in \\\"a\\\" at z\", \"store\": \"a\"}]}" >"$d/other.json"
    refused_as_other 'x/{{0}}/** in "a"' || return 1
    echo "{$s, \"routes\": [{\"path\": \"x/{{0}}/**\", \"store\": \"a\"}, {\"path\": \"y in \\\"a\\\" at in \\\"a\\\" at z\", \"store\": \"a\", \"key\": \"k\"}]}" >"$d/other.json"
    config "{$s, \"routes\": [{\"path\": \"x/{{0}}/**\", \"store\": \"a\"}, {\"path\": \"y\", \"key\": \"in \\\"a\\\" at z in \\\"a\\\" at k\", \"store\": \"a\"}]}"
    refused_as_other 'has the route y in "a"' || return 1
    answers 0 'the same' "$runfs" check "$d/c.json" --same-as "$d/c.json" || return 1
    # x/qz is of both: who comes first has it.
    config "{$s, \"routes\": [{\"path\": \"x/q{r}\", \"store\": \"a\"}, {\"path\": \"x/{r}z\", \"store\": \"b\"}]}"
    differs 'x/q{r} before x/{r}z' "{$s, \"routes\": [{\"path\": \"x/{r}z\", \"store\": \"b\"}, {\"path\": \"x/q{r}\", \"store\": \"a\"}]}" || return 1
    config '{"options": {"ro": true}}'
    echo '{"options": {"ro": "yes"}}' >"$d/other.json"
    try "$runfs" check "$d/c.json" --same-as "$d/other.json"
    expect_code 0 && grep -q 'neither names stores' "$work/out" && grep -qx 'the same' "$work/out" || return 1
    echo '{"options": {"ro": false}}' >"$d/other.json"
    try "$runfs" check "$d/c.json" --same-as "$d/other.json"
    expect_code 1 || return 1
    grep -qx 'option ro differs' "$work/out" || say "$(cat "$work/out")" || return 1
}

# ---- reach ----------------------------------------------------------------------------------

# names_below FOLDER: itself and all of them, in one line.
names_below() {
    (cd "$1" && find . -print0 | sort -z | xargs -0)
}

# folder_config FOLDER RO: c.json for that folder.
folder_config() {
    config '{"stores": {"a": {"url": "'"$1"'"}}, "options": {"ro": '"$2"'}}'
}

test_check_reach() {
    fresh reach
    config '{"stores": {"a": {"url": "'"$d/store"'"}, "gone": {"url": "/nonexistent/x"}, "unused": {"url": "/nonexistent/y"}},
 "routes": [{"path": "a/**", "store": "a"}, {"path": "g/**", "store": "gone"}, {"path": "u/**", "store": "unused", "policy": "scratch"}]}'
    refused 1 'gone: file:///nonexistent/x: ' "$runfs" check --reach "$d/c.json" || return 1
    grep -qx "a: file://$d/store: reached; works: exclusive create, If-Match, list after put, remove" "$work/out" ||
        say "$(cat "$work/out")" || return 1
    grep -qx 'store "unused": no route leads to it, and a mount does not open it' "$work/out" || say "$(cat "$work/out")" || return 1
    [ "$(names_below "$d")" = '. ./c.json ./mnt ./store' ] || say "something was left: $(find "$d")" || return 1
    try "$runfs" check --reach --json "$d/c.json"
    [ "$(json '[(s["name"], s["reached"], s["if_match"]) for s in d["stores"]]' <"$work/out")" = "[('a', True, True), ('gone', False, None)]" ] ||
        say "$(cat "$work/out")"
}

# Where mounts stage already.
test_check_reach_beside_a_mount() {
    fresh reachmount
    mount_here && echo x >"$d/mnt/f" && "$runfs" flush "$d/mnt" || return 1
    folder_config "$d/store" false
    answers 0 "a: file://$d/store: reached; works: exclusive create, If-Match, list after put, remove" \
        "$runfs" check --reach "$d/c.json" || return 1
    [ "$(names_below "$d/store")$(names_below "$d/store.runfs")" = '. ./f. ./lock' ] || say "something was left: $(find "$d")" || return 1
    echo y >"$d/mnt/g" && umount_here && [ "$(cat "$d/store/g")" = y ] || return 1
    # What is staged where others may write is no content: a mount fails there, too.
    chmod 777 "$d/store.runfs"
    refused 1 "exclusive create fails: $d/store.runfs (or $d/store/.runfs): what is staged there becomes content" \
        "$runfs" check --reach "$d/c.json"
}

# A folder that lets nobody write, or us only read.
lock_store() {
    if can_fill; then
        mount -t tmpfs -o ro tmpfs "$d/store"
    else
        chmod 555 "$d/store"
    fi
}

test_check_reach_of_what_is_read_only() {
    fresh reachro
    lock_store || { skip 'no tmpfs'; return 0; }
    folder_config "$d/store" false
    refused 1 "a: file://$d/store: exclusive create fails: $d/store takes no new file: " "$runfs" check --reach "$d/c.json" || return 1
    grep -qF "let uid $(id -u) write there, or mount it with the option ro" "$work/err" || say "$(cat "$work/err")" || return 1
    folder_config "$d/store" true
    answers 0 "a: file://$d/store: reached; nothing was written, as the mount would be read-only" "$runfs" check --reach "$d/c.json" || return 1
    [ "$(names_below "$d")" = '. ./c.json ./mnt ./store' ] || say "something was left: $(find "$d")"
}

# On a disk with room for one file, the second one can't be written.
test_check_reach_of_a_full_folder() {
    can_fill || { skip 'needs root'; return 0; }
    fresh reachfull
    # The disk's root, the store, the folder beside it, its lock and one file.
    mount -t tmpfs -o nr_inodes=5 tmpfs "$d/store" || { skip 'no tmpfs'; return 0; }
    mkdir "$d/store/s"
    folder_config "$d/store/s" false
    try "$runfs" check --reach "$d/c.json"
    expect_code 1 && [ "$(grep -c 'No space left on device$' "$work/err")" = 2 ] &&
        grep -q '^runfs: a: file://.*: If-Match fails: ' "$work/err" &&
        grep -q ': reached; works: list after put, remove$' "$work/out" || say "$(cat "$work/out" "$work/err")" || return 1
    [ "$(names_below "$d/store")" = '. ./s' ] || say "something was left: $(find "$d")"
}

# A folder that is a disk of its own is tried where a mount has made `.runfs` in it; check makes none: who mounts may be
# another user.
test_check_reach_of_a_disk() {
    can_fill || { skip 'needs root'; return 0; }
    fresh reachdisk
    mount -t tmpfs tmpfs "$d/store" || { skip 'no tmpfs'; return 0; }
    folder_config "$d/store" false
    answers 0 "a: file://$d/store: reached; nothing was written, as a mount stages in $d/store/.runfs, which is not there yet" \
        "$runfs" check --reach "$d/c.json" || return 1
    [ "$(names_below "$d")" = '. ./c.json ./mnt ./store' ] || say "something was left: $(find "$d")" || return 1
    mount_here && echo x >"$d/mnt/f" && umount_here || return 1
    answers 0 "a: file://$d/store: reached; works: exclusive create, If-Match, list after put, remove" \
        "$runfs" check --reach "$d/c.json" || return 1
    [ "$(names_below "$d/store")" = '. ./.runfs ./.runfs/lock ./f' ] || say "something was left: $(find "$d")"
}

# As by check, so by the mount.
test_a_store_without_a_route() {
    local one='"routes": [{"path": "r/{x}/**", "store": "a", "key": "{x}/**"}, {"path": "s/**", "store": "gone", "policy": "scratch"}'
    fresh unused
    config '{"stores": {"gone": {"url": "/nonexistent/y"}, "a": {"url": "'"$d/store"'"}}, '"$one]}"
    try "$runfs" check "$d/c.json"
    expect_code 0 && grep -qx 'store "gone": no route leads to it, and a mount does not open it' "$work/out" ||
        say "$(cat "$work/out")" || return 1
    try "$runfs" check --reach "$d/c.json"
    expect_code 0 || return 1
    echo '{"stores": {"a": {"url": "'"$d/store"'"}}, '"${one/gone/a}]}" >"$d/other.json"
    answers 0 'the same' "$runfs" check "$d/c.json" --same-as "$d/other.json" || return 1
    try "$runfs" mount -o "cache_dir=$d/cache" "$d/c.json" "$d/mnt"
    expect_code 0 && daemon_pid >>"$work/pids" || return 1
    [ "$("$runfs" status --json "$d/mnt" | json 'd.get("stores"), d["store"]')" = "(None, 'file://$d/store')" ] || return 1
    mkdir -p "$d/mnt/r/1" && echo x >"$d/mnt/r/1/f" && echo t >"$d/mnt/s/t" && "$runfs" flush "$d/mnt" || return 1
    answers 0 "file://$d/store/1/f" "$runfs" url "$d/mnt/r/1/f" && umount_here || return 1
    try "$runfs" recover --publish "$d/cache"
    expect_code 0 || return 1
    # All of it scratch: one store stays, as a mount has one.
    config '{"stores": {"a": {"url": "'"$d/store"'"}, "gone": {"url": "/nonexistent/y"}}, "routes": [{"path": "**", "store": "gone", "policy": "scratch"}]}'
    try "$runfs" mount -o "cache_dir=$d/cache" "$d/c.json" "$d/mnt"
    expect_code 0 && echo x >"$d/mnt/f" && umount_here
}

test_s3_check_reach() {
    local bucket=${RUNFS_TEST_S3_URL%/*}
    fresh s3reach
    config '{"stores": {"a": {"url": "'"$bucket/reach"'", "path_style": true}}}'
    try "$runfs" check --reach "$d/c.json"
    expect_code 0 || return 1
    grep -q '^a: .*: reached; works: exclusive create, If-Match, list after put, remove$' "$work/out" ||
        say "$(cat "$work/out")" || return 1
    [ -z "$(find "$RUNFS_TEST_S3_DIR" -name 'check-*')" ] || say 'something was left' || return 1
    config '{"stores": {"a": {"url": "'"$bucket/reach"'", "path_style": true, "endpoint": "http://127.0.0.1:9"}},
 "options": {"mount_timeout": "2s"}}'
    refused 1 'a: s3://' "$runfs" check --reach "$d/c.json"
}

# ---- url ------------------------------------------------------------------------------------

two_folders() { # [OPTIONS [NAME-OF-B]]
    local b=${2:-b}
    mkdir -p "$d/store/a" "$d/store/b"
    config '{"stores": {"a": {"url": "'"$d/store/a"'"}, "'"$b"'": {"url": "'"$d/store/b"'"}},
 "routes": [{"path": "runs/{run}/**", "store": "a", "key": "{run:hex}/**"}, {"path": "tmp/**", "store": "'"$b"'", "policy": "scratch"},
            {"path": "**", "store": "'"$b"'"}]}'
    try "$runfs" mount -o "cache_dir=$d/cache${1:+,$1}" "$d/c.json" "$d/mnt"
    expect_code 0 && daemon_pid >>"$work/pids"
}

# Other tests' mounts of the moment are this user's, too, and perhaps can't be asked.
nobody_has() {
    try "$runfs" url --path "$1"
    if [ "$code" = 0 ] || ! grep -qE 'no mount of yours (that could be asked )?has it' "$work/err"; then
        say "url --path $1: $code: $(cat "$work/err")"
    fi
}

test_url() {
    local p
    fresh url
    two_folders || return 1
    mkdir -p "$d/mnt/runs/r1" "$d/mnt/tmp" && echo x >"$d/mnt/runs/r1/f" && echo y >"$d/mnt/g" && echo z >"$d/mnt/tmp/t" &&
        ln -s g "$d/mnt/link" && ln -s "$d/mnt/runs" "$d/way" || return 1
    "$runfs" flush "$d/mnt" || return 1
    answers 0 "file://$d/store/a/7231/f" "$runfs" url "$d/mnt/runs/r1/f" || return 1
    answers 0 "file://$d/store/a/7231/f" "$runfs" url "$d/way/r1/f" || return 1
    answers 0 "file://$d/store/a/7231" "$runfs" url "$d/mnt/runs/r1/" || return 1
    answers 0 "file://$d/store/b/g" "$runfs" url "$d/mnt/g" --as file || return 1
    answers 0 "file://$d/store/b/link" "$runfs" url "$d/mnt/link" || return 1
    # "/" behind a link follows it, as it does elsewhere.
    ln -s runs/r1 "$d/mnt/run" && ln -s nowhere "$d/mnt/dangling" && "$runfs" flush "$d/mnt" || return 1
    answers 0 "file://$d/store/b/run" "$runfs" url "$d/mnt/run" || return 1
    answers 0 "file://$d/store/a/7231" "$runfs" url "$d/mnt/run/" || return 1
    answers 0 "file://$d/store/a/7231/f" "$runfs" url "$d/mnt/run/f" || return 1
    refused 5 'dangling' "$runfs" url "$d/mnt/dangling/" || return 1
    answers 0 "file://$d/store/b" "$runfs" url "$d/mnt" || return 1
    refused 1 'it has file' "$runfs" url "$d/mnt/g" --as s3a || return 1
    refused 2 'did you mean "hdfs"' "$runfs" url "$d/mnt/g" --as hfs || return 1
    refused 1 'scratch, in no store' "$runfs" url "$d/mnt/tmp/t" || return 1
    refused 5 'No such file' "$runfs" url "$d/mnt/none" || return 1
    refused 5 'not on a runfs mount' "$runfs" url "$d/store" || return 1
    refused 2 'needs one path' "$runfs" url || return 1
    for p in runs/r1/f runs/r1 g link; do
        answers 0 "$d/mnt/$p" "$runfs" url --path "$("$runfs" url "$d/mnt/$p")" || return 1
    done
    answers 0 "$d/mnt/runs/r2/x" "$runfs" url --path "$d/store/./a/7232/x" || return 1
    nobody_has "$d/store/a/zz/x" || return 1
    nobody_has s3://k:hunter2@b/x || return 1
    ! grep -q hunter2 "$work/err" || say 'the message shows the secret' || return 1
    umount_here && nobody_has "file://$d/store/b/g"
}

# Another node made the run, in the store of its checkpoints.
test_url_of_a_directory_that_others_have() {
    fresh urlothers
    mkdir -p "$d/store/ckpt/a" "$d/store/data"
    config '{"stores": {"ckpt": {"url": "'"$d/store/ckpt"'"}, "data": {"url": "'"$d/store/data"'"}},
 "routes": [{"path": "runs/{run}/checkpoint/**", "store": "ckpt", "key": "{run}/**"}], "default_store": "data"}'
    echo x >"$d/store/ckpt/a/m.pt"
    try "$runfs" mount -o "cache_dir=$d/cache" "$d/c.json" "$d/mnt"
    expect_code 0 && daemon_pid >>"$work/pids" && [ -e "$d/mnt/runs/a/checkpoint/m.pt" ] || return 1
    refused 1 'other routes' "$runfs" url "$d/mnt/runs/a" || return 1
    answers 0 "file://$d/store/ckpt/a" "$runfs" url "$d/mnt/runs/a/checkpoint" || return 1
    echo y >"$d/mnt/runs/a/notes" && "$runfs" flush "$d/mnt" &&
        answers 0 "file://$d/store/data/runs/a" "$runfs" url "$d/mnt/runs/a" && umount_here
}

# What can't be asked may have it.
test_url_of_a_mount_that_cannot_be_asked() {
    fresh urlunasked
    two_folders && echo x >"$d/mnt/f" && "$runfs" flush "$d/mnt" || return 1
    mv "$d/cache/identity" "$d/identity" && echo broken >"$d/cache/identity"
    try "$runfs" url --path "$d/store/b/f"
    [ "$code" != 0 ] && grep -qF "$d/mnt can't be asked: " "$work/err" &&
        grep -q 'no mount of yours that could be asked has it' "$work/err" || say "$(cat "$work/err")" || return 1
    mv "$d/identity" "$d/cache/identity" && answers 0 "$d/mnt/f" "$runfs" url --path "$d/store/b/f" || return 1
    # A daemon that stands still keeps nobody waiting.
    local pid
    pid=$(daemon_pid) && kill -STOP "$pid" || return 1
    try timeout 60 "$runfs" url --path "$d/store/b/f"
    kill -CONT "$pid"
    grep -qF "$d/mnt can't be asked: it does not answer" "$work/err" || say "$code: $(cat "$work/err")" || return 1
    # Another run's mount that can't be asked may be what the code is of.
    [ "$(grep -c "can't be asked: " "$work/err")" -gt 1 ] || expect_code 7 || return 1
    [ "$code" != 0 ] || say 'a mount that stands still was not missed' || return 1
    answers 0 "$d/mnt/f" "$runfs" url --path "$d/store/b/f" && umount_here
}

test_url_of_what_is_not_there_yet() {
    fresh urlnotyet
    two_folders settle=1h || return 1
    echo x >"$d/mnt/new"
    refused 1 'runfs flush' "$runfs" url "$d/mnt/new" || return 1
    echo x >"$d/mnt/.new.tmp"
    refused 1 'runfs flush' "$runfs" url "$d/mnt/.new.tmp" || return 1
    "$runfs" flush "$d/mnt/new" && answers 0 "file://$d/store/b/new" "$runfs" url "$d/mnt/new"
}

# No flush sends it: the store has the version before, and its URL would lead there.
test_url_of_a_file_that_was_cut_off() {
    fresh urlcut
    echo old >"$d/store/f" && mount_here cache_reserve=1000TiB || return 1
    ! echo newer >"$d/mnt/f" 2>/dev/null || say 'there was room' || return 1
    refused 1 'a part of it is missing' "$runfs" url "$d/mnt/f" || return 1
    ! grep -q 'runfs flush' "$work/err" || say "it is told to wait in vain: $(cat "$work/err")" || return 1
    umount_of_stuck && { fusermount3 -u -z "$d/mnt" 2>/dev/null || umount -l "$d/mnt"; } && mount_here || return 1
    refused 1 'a part of it is missing' "$runfs" url "$d/mnt/f" && grep -qx old "$d/store/f" || return 1
    echo newest >"$d/mnt/f" && "$runfs" flush "$d/mnt/f" && answers 0 "file://$d/store/f" "$runfs" url "$d/mnt/f" && umount_here
}

test_s3_url() {
    # Other runs of these have mounts of the same bucket, and all that have a URL are told.
    local bucket=${RUNFS_TEST_S3_URL%/*} url=url-$$ at=,endpoint=$RUNFS_TEST_S3_ENDPOINT
    fresh s3url
    s3_mount "$at" "$bucket/$url" && echo x >"$d/mnt/a b" && "$runfs" flush "$d/mnt" || return 1
    answers 0 "$bucket/$url/a b" "$runfs" url "$d/mnt/a b" || return 1
    answers 0 "s3a${bucket#s3}/$url/a b" "$runfs" url "$d/mnt/a b" --as s3a || return 1
    refused 1 's3 or s3a' "$runfs" url "$d/mnt/a b" --as file || return 1
    answers 0 "$d/mnt/a b" "$runfs" url --path "s3n${bucket#s3}/$url/a b" || return 1
    answers 0 "$d/mnt/a b" "$runfs" url --path "$RUNFS_TEST_S3_ENDPOINT/${bucket#s3://}/$url/a%20b?x=y" || return 1
    AWS_ENDPOINT_URL=http://other.example answers 0 "$d/mnt/a b" "$runfs" url --path "$RUNFS_TEST_S3_ENDPOINT/${bucket#s3://}/$url/a%20b" || return 1
    nobody_has "https://other.example/${bucket#s3://}/$url/a%20b" || return 1
    umount_here
}

# ---- status -------------------------------------------------------------------------------

test_status_of_one_of_several_stores() {
    local name
    fresh statusofone
    # By its name alone a mount is found when no other has it: another run of these may.
    two_folders '' "b-$$" || return 1
    for name in "file://$d/store/a" "$d/store/b" "runfs:a+b-$$"; do
        try "$runfs" status --json "$name"
        expect_code 0 && [ "$(json 'd["mountpoint"]' <"$work/out")" = "$d/mnt" ] || say "$name" || return 1
    done
    refused 5 'No such file' "$runfs" status "file://$d/store/c" || return 1
    umount_here || return 1
    # A line more tells of a mount of another run of these that hangs just now.
    try "$runfs" status "$d/store/b"
    expect_code 5 && grep -qF "$d/store/b is not on a runfs mount" "$work/err"
}

# One that hangs holds up nobody who asks for a store of another.
test_status_of_a_store_beside_a_mount_that_hangs() {
    local pid plain
    fresh statusbeside
    two_folders || return 1
    pid=$(daemon_pid)
    mkdir "$d/plain" "$d/store/c" "$d/mnt2" "$d/mnt3"
    try "$runfs" mount -o "cache_dir=$d/cache2" "$d/plain" "$d/mnt2"
    expect_code 0 || return 1
    config '{"stores": {"c": {"url": "'"$d/store/c"'"}, "e": {"url": "'"$d/plain"'/e"}}, "layout": "runs", "default_store": "c",
 "routes": [{"path": "e/**", "store": "e"}]}'
    mkdir "$d/plain/e"
    try "$runfs" mount -o "cache_dir=$d/cache3" "$d/c.json" "$d/mnt3"
    expect_code 0 || return 1
    kill -STOP "$pid"
    try timeout 60 "$runfs" status --json "$d/plain"
    expect_code 0 && [ "$(json 'd["mountpoint"]' <"$work/out")" = "$d/mnt2" ] && [ ! -s "$work/err" ]
    plain=$?
    try timeout 60 "$runfs" status --json "file://$d/store/c"
    kill -CONT "$pid"
    [ "$plain" = 0 ] || say 'of the plain mount' || return 1
    expect_code 0 && [ "$(json 'd["mountpoint"]' <"$work/out")" = "$d/mnt3" ] &&
        grep -q "^runfs: $d/mnt does not answer" "$work/err" || say "$(cat "$work/out" "$work/err")" || return 1
    "$runfs" umount "$d/mnt3" && "$runfs" umount "$d/mnt2" && umount_here
}

# ---- folders that are others ----------------------------------------------------------------

# Names of the cache as they are while its disk is away.
test_a_folder_of_several_made_anew() {
    fresh anew
    two_folders || return 1
    mkdir -p "$d/mnt/runs/r1" && echo x >"$d/mnt/runs/r1/f" && echo y >"$d/mnt/g" && umount_here || return 1
    mv "$d/store/b" "$d/store/b.away" && mkdir "$d/store/b" || return 1
    refused 5 "store \"b\": file://$d/store/b is not the folder that cache $d/cache belongs to" \
        "$runfs" mount -o "cache_dir=$d/cache" "$d/c.json" "$d/mnt" || return 1
    refused 5 'store "b": ' "$runfs" recover --publish "$d/cache" || return 1
    rmdir "$d/store/b" && mv "$d/store/b.away" "$d/store/b" && two_folders && [ "$(cat "$d/mnt/g")" = y ] && umount_here || return 1
    # One store with routes has one folder, and is called by that alone.
    config '{"stores": {"a": {"url": "'"$d/store/a"'"}}, "layout": "runs"}'
    try "$runfs" mount -o "cache_dir=$d/cache1" "$d/c.json" "$d/mnt"
    expect_code 0 && umount_here && mv "$d/store/a" "$d/store/a.away" && mkdir "$d/store/a" || return 1
    refused 5 "runfs: file://$d/store/a is not the folder that cache $d/cache1 belongs to" \
        "$runfs" mount -o "cache_dir=$d/cache1" "$d/c.json" "$d/mnt"
}

# ---- paths ----------------------------------------------------------------------------------

test_paths() {
    fresh paths
    config '{"stores": {"a": {"url": "'"$d/store"'"}}, "layout": {"name": "horovod", "save_runs": true}}'
    try "$runfs" paths "/mnt/a b/runs/r 1/" --config "$d/c.json"
    expect_code 0 || return 1
    [ "$(json '[d[k] for k in ("train_data_path", "runs_path", "run_path", "checkpoint_path", "logs_path", "saving_runs")]' <"$work/out")" = \
        "['file:///mnt/a%20b/intermediate_train_data', 'file:///mnt/a%20b/runs', 'file:///mnt/a%20b/runs/r 1', 'file:///mnt/a%20b/runs/r 1', 'file:///mnt/a%20b/runs/r 1/logs', True]" ] ||
        say "$(cat "$work/out")" || return 1
    [ "$(json 'd["checkpoint_filename"], d["logs_subdir"]' <"$work/out")" = "('checkpoint', 'logs')" ] || return 1
    try "$runfs" paths /m/runs/r --config "$d/c.json" --dataset 3
    [ "$(json 'd["val_data_path"]' <"$work/out")" = file:///m/intermediate_val_data.3 ] || return 1
    refused 2 'takes a number' "$runfs" paths /m/runs/r --config "$d/c.json" --dataset ../x || return 1
    refused 1 'no route leads to runs/..' "$runfs" paths /m/runs/.. --config "$d/c.json" || return 1
    refused 1 'it is no run' "$runfs" paths /m/other/r --config "$d/c.json" || return 1
    config '{"stores": {"a": {"url": "'"$d/store"'"}}, "layout": {"name": "dbfs", "save_runs": false}}'
    try "$runfs" paths /m/runs/r --config "$d/c.json"
    [ "$(json 'd["saving_runs"], d["checkpoint_path"], d["logs_path"], d["checkpoint_filename"]' <"$work/out")" = \
        "(False, None, None, 'checkpoint.tf')" ] || say "$(cat "$work/out")" || return 1
    config '{"stores": {"a": {"url": "'"$d/store"'"}}, "layout": "tfos"}'
    refused 1 'neither horovod nor dbfs' "$runfs" paths /m/runs/r --config "$d/c.json" || return 1
    refused 2 'needs one run' "$runfs" paths || return 1
    mount_here layout=dbfs || return 1
    try "$runfs" paths "$d/mnt/runs/r"
    [ "$(json 'd["run_path"], d["checkpoint_filename"]' <"$work/out")" = "('file://$d/mnt/runs/r', 'checkpoint.tf')" ] ||
        say "$(cat "$work/out" "$work/err")" || return 1
    umount_here
}

# ---- evict ----------------------------------------------------------------------------------

# The kernel tells of the end of a descriptor a moment after close() has returned.
is_at_rest() {
    "$runfs" status --json "$d/mnt" |
        json 'd["cache"]["open_handles"] == 0 and d["queue"]["dirty_files"] == 0' | grep -qx True
}

test_evict() {
    fresh evict
    mount_here || return 1
    mkdir "$d/mnt/p" && head -c 1000000 /dev/zero >"$d/mnt/f" && head -c 1000000 /dev/zero >"$d/mnt/p/g" && "$runfs" flush "$d/mnt" || return 1
    [ "$("$runfs" status --json "$d/mnt" | json 'd["cache"]["used_bytes"] >= 2000000')" = True ] || return 1
    until_true 20 is_at_rest || return 1
    try "$runfs" evict "$d/mnt/f"
    expect_code 0 && [ ! -s "$work/out" ] && [ ! -s "$work/err" ] || return 1
    [ "$("$runfs" status --json "$d/mnt" | json 'd["cache"]["used_bytes"] < 2000000')" = True ] || return 1
    "$runfs" pin "$d/mnt/p" || return 1
    refused 1 '1 pinned' "$runfs" evict "$d/mnt" || return 1
    cmp -n 1000000 "$d/mnt/f" /dev/zero || return 1
    "$runfs" unpin "$d/mnt/p"
    until_true 20 is_at_rest || return 1
    try "$runfs" evict "$d/mnt"
    expect_code 0 || return 1
    exec 9<"$d/mnt/f"
    cat <&9 >/dev/null
    refused 1 '1 open' "$runfs" evict "$d/mnt/f" || { exec 9<&-; return 1; }
    exec 9<&-
    refused 5 'No such file' "$runfs" evict "$d/mnt/none" || return 1
    refused 2 'needs a path' "$runfs" evict || return 1
    umount_here
}
