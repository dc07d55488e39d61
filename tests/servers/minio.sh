#!/bin/bash
# minio.sh start PORT DIR | stop DIR
# MinIO on 127.0.0.1 over DIR/data. Keys are S3_KEY and S3_SECRET. The program is RUNFS_MINIO_BINARY
# or lies in the user's cache directory. Exit code 77: there is no such program.
. "$(dirname "$0")/lib.sh"

program() {
    local cached=${XDG_CACHE_HOME:-$HOME/.cache}/runfs/bin/minio
    if [ -n "${RUNFS_MINIO_BINARY:-}" ]; then
        echo "$RUNFS_MINIO_BINARY"
    elif [ -x "$cached" ]; then
        echo "$cached"
    else
        command -v minio || {
            echo "MinIO is missing: set RUNFS_MINIO_BINARY or install it as $cached" >&2
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
    # MINIO_DOMAIN is for buckets in the host name. HOME: it keeps certificates there.
    spawn "$dir" env HOME="$dir" MINIO_ROOT_USER="${S3_KEY:-runfs-key}" \
        MINIO_ROOT_PASSWORD="${S3_SECRET:-runfs-secret}" MINIO_DOMAIN=localhost \
        MINIO_BROWSER=off MINIO_UPDATE=off \
        "$binary" server --quiet --address "127.0.0.1:$port" "$dir/data"
    wait_http "http://127.0.0.1:$port/minio/health/live" "$dir"
    ;;
stop)
    stop_server "$2"
    ;;
*)
    echo "usage: minio.sh start PORT DIR | stop DIR" >&2
    exit 2
    ;;
esac
