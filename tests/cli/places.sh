# shellcheck shell=bash
# Mountpoint and cache directory: which are taken, which are refused and left alone.
# shellcheck disable=SC2154 # variables of run.sh and lib.sh

test_bad_mountpoints() {
    fresh points
    refused 5 'does not exist' "$runfs" mount "$d/store" "$d/nowhere" || return 1
    touch "$d/file"
    refused 1 'is not a directory' "$runfs" mount "$d/store" "$d/file" || return 1
    mkdir "$d/full"
    touch "$d/full/precious"
    refused 1 'it holds precious' "$runfs" mount -o "cache_dir=$d/cache" "$d/store" "$d/full" || return 1
    try "$runfs" mount -o "cache_dir=$d/cache,nonempty" "$d/store" "$d/full"
    expect_code 0 || return 1
    try "$runfs" umount "$d/full" --timeout 40
    expect_code 0 && [ -e "$d/full/precious" ] || return 1
    mount_here || return 1
    refused 4 'is busy' "$runfs" mount -o "cache_dir=$d/other" "$d/store" "$d/mnt" || return 1
    umount_here
}

test_overlaps() {
    fresh overlap
    mkdir "$d/mnt/store"
    refused 1 'lies within the mountpoint' \
        "$runfs" mount -o "cache_dir=$d/cache" "$d/mnt/store" "$d/mnt" &&
        refused 1 'lies within the mountpoint' \
            "$runfs" mount -o "cache_dir=$d/mnt/cache" "$d/store" "$d/mnt" &&
        refused 1 'lies within the store' \
            "$runfs" mount -o "cache_dir=$d/store/cache" "$d/store" "$d/mnt" &&
        [ ! -e "$d/store/cache" ]
}

# Nothing is made before that is told, not even the cache directory in the store.
test_overlaps_of_several_stores() {
    fresh overlaps
    mkdir "$d/a" "$d/b" "$d/mnt/in"
    echo "{\"stores\": {\"a\": {\"url\": \"$d/a\"}, \"b\": {\"url\": \"$d/b\"}}, \"default_store\": \"a\",
 \"routes\": [{\"path\": \"b/**\", \"store\": \"b\"}]}" >"$d/c.json"
    left_alone "$d" "lies within the store \"b\" $d/b" \
        "$runfs" mount -o "cache_dir=$d/b/cache" "$d/c.json" "$d/mnt" || return 1
    left_alone "$d" "the cache directory $d/mnt/in/cache lies within the mountpoint" \
        "$runfs" mount -o "cache_dir=$d/mnt/in/cache" "$d/c.json" "$d/mnt" || return 1
    mkdir "$d/a/mnt"
    left_alone "$d" "the mountpoint $d/a/mnt lies within the store \"a\" $d/a" \
        "$runfs" mount -o "cache_dir=$d/cache" "$d/c.json" "$d/a/mnt" || return 1
    sed -i "s,$d/b,$d/mnt/in," "$d/c.json"
    left_alone "$d" "the store \"b\" $d/mnt/in lies within the mountpoint" \
        "$runfs" mount -o "cache_dir=$d/cache" "$d/c.json" "$d/mnt"
}

test_cache_in_use() {
    fresh inuse
    mkdir "$d/mnt2"
    mount_here || return 1
    refused 4 "$d/cache" "$runfs" mount -o "cache_dir=$d/cache" "$d/store" "$d/mnt2" &&
        refused 4 "$d/cache" "$runfs" recover --list "$d/cache" &&
        umount_here
}

test_cache_without_xattrs() {
    fresh xattrs
    mkdir "$d/ramfs"
    if [ "$(id -u)" != 0 ] || ! mount -t ramfs ramfs "$d/ramfs" 2>/dev/null; then
        skip 'a ramfs needs root'
        return
    fi
    refused 1 xattr "$runfs" mount -o "cache_dir=$d/ramfs/cache" "$d/store" "$d/mnt" || return 1
    umount "$d/ramfs"
}

test_cache_of_another_store() {
    fresh identity
    mkdir "$d/store2"
    if ! can_fill; then
        skip 'a full store needs root'
        return
    fi
    stuck_store || return 1
    umount_of_stuck || return 1
    refused 1 "the cache is of a store at file://$d/store, the mount has file://$d/store2" \
        "$runfs" mount -o "cache_dir=$d/cache" "$d/store2" "$d/mnt" || return 1
    unstick_store
    mount_here && umount_here && grep -qx precious "$d/store/kept"
}

# As after an edit of fstab.
test_cache_takes_another_store() {
    fresh another
    mkdir "$d/store2"
    mount_here && mkdir "$d/mnt/dir" && echo first >"$d/mnt/dir/x" && umount_here || return 1
    echo second >"$d/store2/y"
    try "$runfs" mount -o "cache_dir=$d/cache" "$d/store2" "$d/mnt"
    expect_code 0 && daemon_pid >>"$work/pids" || return 1
    [ "$(ls "$d/mnt")" = y ] && grep -qx second "$d/mnt/y" || say "it shows $(ls "$d/mnt")" || return 1
    umount_here && [ "$(ls "$d/store2")" = y ] && grep -qx first "$d/store/dir/x"
}

# All that can be seen of a directory and what is in it.
seen() {
    find "$1" -printf '%p %M %u %s %T@ %C@ %l\n' | sort
}

# left_alone FOLDER WORDS COMMAND...: refused, and nothing in the folder has changed.
left_alone() {
    local folder=$1 words=$2 before
    shift 2
    before=$(seen "$folder")
    try "$@"
    [ "$code" -gt 0 ] && grep -qF -- "$words" "$work/err" ||
        say "exit code $code, does not say '$words': $(cat "$work/out" "$work/err")" || return 1
    [ "$before" = "$(seen "$folder")" ] || say "$folder was changed: $(seen "$folder")"
}

test_cache_dir_with_other_things() {
    fresh things
    mkdir -m 755 "$d/home" "$d/disk" "$d/disk/lost+found" "$d/open"
    echo text >"$d/home/thesis"
    left_alone "$d/home" "cache_dir=$d/home/runfs" \
        "$runfs" mount -o "cache_dir=$d/home" "$d/store" "$d/mnt" || return 1
    chmod 777 "$d/open"
    [ "$(id -u)" != 0 ] ||
        left_alone "$d/open" 'chmod +t' "$runfs" mount -o "cache_dir=$d/open/cache" "$d/store" "$d/mnt" ||
        return 1
    try "$runfs" mount -o "cache_dir=$d/disk" "$d/store" "$d/mnt"
    expect_code 0 && umount_here && [ -d "$d/disk/lost+found" ]
}

# A cache that holds something, of another user; what he wrote there would be root's orders.
test_cache_of_another_user() {
    fresh theirs
    if [ "$(id -u)" != 0 ]; then
        skip 'another user needs root'
        return
    fi
    mount_here && echo x >"$d/mnt/x" && umount_here || return 1
    chown -R nobody "$d/cache"
    chmod 755 "$work"
    local way word="runuser -u nobody -- runfs recover '$d/cache'"
    for way in '' --list --publish "--export $d/out"; do
        # shellcheck disable=SC2086 # the folder is a word of its own
        left_alone "$d" "$word" "$runfs" recover $way "$d/cache" || return 1
    done
    left_alone "$d" "$word" "$runfs" mount -o "cache_dir=$d/cache" "$d/store" "$d/mnt" || return 1
    left_alone "$d" "$d/cache" "$runfs" status "$d/cache" || return 1
    cp "$runfs" "$work/runfs-of-all"
    local nobody="setpriv --reuid nobody --regid nogroup --clear-groups"
    for way in '' 'unshare -r'; do
        # shellcheck disable=SC2086 # words
        $nobody $way true 2>/dev/null || continue # no user namespaces here
        # shellcheck disable=SC2086
        try $nobody $way "$work/runfs-of-all" recover "$d/cache"
        expect_code 0 && grep -q 'owes its store nothing' "$work/out" || return 1
    done
}

# Root of the machine has no number in a user's namespace, and his programs are the system's.
test_a_program_of_roots_gives_keys_in_a_namespace() {
    local inside='runuser -u nobody -- unshare -r'
    fresh namespace
    # shellcheck disable=SC2086 # words
    if [ "$(id -u)" != 0 ] || ! $inside true 2>/dev/null; then
        skip 'needs root, and namespaces for users'
        return
    fi
    chmod 755 "$work" && chmod 777 "$d" && cp "$runfs" "$work/runfs-of-all"
    echo "[default]
credential_process = /bin/echo '{\"Version\": 1, \"AccessKeyId\": \"A\", \"SecretAccessKey\": \"S\"}'" >"$d/config"
    # Only who has keys asks a store, which nobody can reach here.
    # shellcheck disable=SC2086
    try env -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY AWS_SHARED_CREDENTIALS_FILE=/dev/null \
        AWS_CONFIG_FILE="$d/config" $inside "$work/runfs-of-all" mount \
        -o "cache_dir=$d/cache,endpoint=http://127.0.0.1:9,region=here,mount_timeout=1s" s3://bucket "$d/mnt"
    expect_code 7
}

# What others prepared where root makes his cache.
test_cache_dir_that_leads_elsewhere() {
    local name
    fresh elsewhere
    if [ "$(id -u)" != 0 ]; then
        skip 'another user needs root'
        return
    fi
    mkdir "$d/root" && echo secret >"$d/root/file"
    mkdir -m 1777 "$d/shared" && ln -s "$d/root/new" "$d/shared/link" && chown -h nobody "$d/shared/link"
    left_alone "$d" 'on the way there belongs to nobody' \
        "$runfs" mount -o "cache_dir=$d/shared/link" "$d/store" "$d/mnt" || return 1
    mkdir "$d/shared/theirs" && chown nobody "$d/shared/theirs"
    left_alone "$d" 'belongs to nobody' \
        "$runfs" mount -o "cache_dir=$d/shared/theirs/cache" "$d/store" "$d/mnt" || return 1
    # Put there while all could write to it.
    for name in runfs.log lock version version.new; do
        mkdir -m 777 "$d/$name" && ln -s "$d/root/file" "$d/$name/$name"
        left_alone "$d/root" 'no plain file of this user' \
            "$runfs" mount -o "cache_dir=$d/$name" "$d/store" "$d/mnt" || return 1
    done
    for name in store.json.new boot.new state.db state.db-wal runfs.log; do
        mount_here && umount_here || return 1
        ln -sf "$d/root/file" "$d/cache/$name"
        left_alone "$d/root" 'no plain file of this user' \
            "$runfs" mount -o "cache_dir=$d/cache" "$d/store" "$d/mnt" || return 1
        rm "$d/cache/$name"
    done
}
