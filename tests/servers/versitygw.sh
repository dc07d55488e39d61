#!/bin/bash
# versitygw.sh start PORT DIR | stop DIR
# An S3 server on 127.0.0.1 over DIR/data, which must be on a filesystem with user xattrs. Keys
# are S3_KEY and S3_SECRET. The program is RUNFS_VERSITYGW or lies in the user's cache directory.
# Exit code 77: there is no such program.
. "$(dirname "$0")/lib.sh"

program() {
    local cached=${XDG_CACHE_HOME:-$HOME/.cache}/runfs/bin/versitygw
    if [ -n "${RUNFS_VERSITYGW:-}" ]; then
        echo "$RUNFS_VERSITYGW"
    elif [ -x "$cached" ]; then
        echo "$cached"
    else
        command -v versitygw || {
            echo "versitygw is missing: set RUNFS_VERSITYGW or install it as $cached" >&2
            exit 77
        }
    fi
}

case "${1:-}" in
start)
    port=$2
    dir=$3
    binary=$(program)
    mkdir -p "$dir/data"
    # Without --keep-alive it closes the connection after each answer. With O_TMPFILE an object that
    # replaces another has a name of the server's own beside it for a moment, which listings show.
    # shellcheck disable=SC2086 # VERSITYGW_FLAGS is a list
    spawn "$dir" "$binary" --access "${S3_KEY:-runfs-key}" --secret "${S3_SECRET:-runfs-secret}" \
        --port "127.0.0.1:$port" --health /health --quiet --keep-alive \
        --virtual-domain "localhost:$port" \
        posix --disableotmp ${VERSITYGW_FLAGS:-} "$dir/data"
    wait_http "http://127.0.0.1:$port/health" "$dir"
    ;;
stop)
    stop_server "$2"
    ;;
*)
    echo "usage: versitygw.sh start PORT DIR | stop DIR" >&2
    exit 2
    ;;
esac
