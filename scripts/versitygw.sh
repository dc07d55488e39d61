#!/usr/bin/env bash
# Prints the path of versitygw, the S3 server that the tests run against; builds it when it is not
# in the cache yet (3 to 4 minutes on 2 cores, once for each user).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

version=v1.8.0
binary=$cache/bin/versitygw-$version

build() {
    [ ! -x "$binary" ] || return 0
    local go
    go=$("$top/scripts/go.sh")
    mkdir -p "$cache/bin"
    work=$(mktemp -d "$cache/build-versitygw.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    say "building versitygw $version (log: $cache/versitygw.log)"
    if ! GOPATH=$work/go GOBIN=$work/bin GOCACHE=$work/cache GOTOOLCHAIN=auto \
        GOFLAGS=-modcacherw CGO_ENABLED=0 \
        "$go" install "github.com/versity/versitygw/cmd/versitygw@$version" \
        >"$cache/versitygw.log" 2>&1; then
        tail -n 15 "$cache/versitygw.log" >&2
        die "versitygw could not be built"
    fi
    mv "$work/bin/versitygw" "$binary"
    ln -sf "$(basename "$binary")" "$cache/bin/versitygw"
}

[ -x "$binary" ] || once versitygw build
printf '%s\n' "$binary"
