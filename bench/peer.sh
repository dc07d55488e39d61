#!/usr/bin/env bash
# bench/peer.sh NAME: prints the path of a peer's program (rclone, s3fs, juicefs, mountpoint), which
# its ordinary client installs when it is missing: once for each user. The last line on stderr says
# why one can't be had.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../scripts/lib.sh"

rclone_version=v1.75.0

# try NAME COMMAND...: its output goes to a log, of which the last line is told when it fails.
try() {
    local name=$1
    shift
    if ! "$@" >"$cache/$name.log" 2>&1 </dev/null; then
        die "$name can't be had here: $(grep . "$cache/$name.log" | tail -n 1)"
    fi
}

build_rclone() {
    [ ! -x "$cache/bin/rclone-$rclone_version" ] || return 0
    local go
    go=$("$top/scripts/go.sh")
    mkdir -p "$cache/bin"
    work=$(mktemp -d "$cache/build-rclone.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    say "building rclone $rclone_version, some minutes (log: $cache/rclone.log)"
    try rclone env GOPATH="$work/go" GOBIN="$work/bin" GOCACHE="$work/cache" GOTOOLCHAIN=auto \
        GOFLAGS=-modcacherw CGO_ENABLED=0 nice "$go" install -ldflags '-s -w' \
        "github.com/rclone/rclone@$rclone_version"
    mv "$work/bin/rclone" "$cache/bin/rclone-$rclone_version"
}

# The registry has the library only; mountpoint/ is a program around it.
build_mountpoint() {
    [ ! -x "$mountpoint/bench-mountpoint" ] || return 0
    have cargo || "$top/scripts/deps.sh" rust
    have cargo || die "mountpoint can't be had here: there is no cargo"
    work=$(mktemp -d "$cache/build-mountpoint.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    say "building mountpoint, some minutes (log: $cache/mountpoint.log)"
    cp -r "$here/mountpoint/." "$work"
    try mountpoint env CARGO_TARGET_DIR="$work/target" nice cargo build --release --locked \
        --manifest-path "$work/Cargo.toml"
    mkdir -p "$mountpoint"
    mv "$work/target/release/bench-mountpoint" "$mountpoint/"
}

install_s3fs() {
    mkdir -p "$cache"
    try s3fs as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 install -y \
        --no-install-recommends s3fs
}

case ${1:?usage: bench/peer.sh NAME} in
rclone)
    [ -x "$cache/bin/rclone-$rclone_version" ] || once rclone build_rclone
    printf '%s\n' "$cache/bin/rclone-$rclone_version"
    ;;
s3fs)
    have s3fs || install_s3fs
    command -v s3fs
    ;;
juicefs)
    printf '%s\n' "$("$top/scripts/venv.sh" "$here/requirements.txt")/bin/juicefs"
    ;;
mountpoint)
    mountpoint=$cache/mountpoint-$(cat "$here"/mountpoint/Cargo.* "$here"/mountpoint/src/* | sha256sum | cut -c 1-16)
    [ -x "$mountpoint/bench-mountpoint" ] || once mountpoint build_mountpoint
    printf '%s\n' "$mountpoint/bench-mountpoint"
    ;;
*) die "no such peer: $1" ;;
esac
