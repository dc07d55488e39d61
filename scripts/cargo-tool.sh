#!/usr/bin/env bash
# scripts/cargo-tool.sh NAME VERSION: prints the path of a program from the Rust registry; builds it when
# it is not in the cache yet. Where there is no cargo, or one older than 1.85, the distribution's
# newest is installed.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

name=${1:?usage: scripts/cargo-tool.sh NAME VERSION} version=${2:?usage: scripts/cargo-tool.sh NAME VERSION}
place=$cache/$name-$version

new_enough() {
    have cargo && version_ge "$(cargo --version | cut -d ' ' -f 2)" 1.85
}

build() {
    [ ! -x "$place/bin/$name" ] || return 0
    new_enough || "$top/scripts/deps.sh" rust
    new_enough || die "$name needs cargo 1.85 or later"
    say "building $name $version from the Rust registry (log: $cache/$name.log)"
    if ! cargo install --locked --root "$place" "$name@$version" </dev/null >"$cache/$name.log" 2>&1; then
        tail -n 15 "$cache/$name.log" >&2
        die "$name could not be built"
    fi
}

[ -x "$place/bin/$name" ] || once "$name" build
printf '%s\n' "$place/bin/$name"
