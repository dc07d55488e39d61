#!/usr/bin/env bash
# Prints the path of MinIO, the second S3 server that the contract is tested against; builds it
# when it is not in the cache yet (about 9 minutes on 2 cores, once for each user).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

version=v0.0.0-20260212201848-7aac2a2c5b7c
binary=$cache/bin/minio-$version

build() {
    [ ! -x "$binary" ] || return 0
    local go
    go=$("$top/scripts/go.sh")
    mkdir -p "$cache/bin"
    work=$(mktemp -d "$cache/build-minio.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    say "building MinIO $version (log: $cache/minio.log)"
    if ! GOPATH=$work/go GOBIN=$work/bin GOCACHE=$work/cache GOTOOLCHAIN=auto \
        GOFLAGS=-modcacherw CGO_ENABLED=0 \
        nice "$go" install -ldflags '-s -w' "github.com/minio/minio@$version" \
        >"$cache/minio.log" 2>&1; then
        tail -n 15 "$cache/minio.log" >&2
        die "MinIO could not be built"
    fi
    mv "$work/bin/minio" "$binary"
    ln -sf "$(basename "$binary")" "$cache/bin/minio"
}

[ -x "$binary" ] || once minio build
printf '%s\n' "$binary"
