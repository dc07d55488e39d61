#!/usr/bin/env bash
# Installs the packages that are missing, by apt (Debian 12 or later, Ubuntu 22.04 or later).
#
#   scripts/deps.sh demo     what building and running runfs needs
#   scripts/deps.sh check    that, and what ./check.sh needs beyond it
#   scripts/deps.sh go       a Go compiler of the distribution
#
# As root or through sudo; asks apt only when something is missing.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

demo=(
    gcc libc6-dev cmake ninja-build pkg-config
    libfuse3-dev libcurl4-openssl-dev libjansson-dev libsqlite3-dev libexpat1-dev libssl-dev uthash-dev
    fuse3 ca-certificates python3
    meson # builds libfuse, see libfuse.sh
)
check=(
    "${demo[@]}"
    check clang-14 libclang-rt-14-dev clang-tidy-14 clang-format-14 shellcheck
    g++ python3-dev python3-venv attr procps psmisc util-linux git curl dpkg-dev man-db
)

# The packages of this list that are not installed.
missing() {
    local package
    for package in "$@"; do
        dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
            printf '%s\n' "$package"
    done
}

# The packages of this list that the distribution has under this name.
known() {
    local package
    for package in "$@"; do
        if apt-cache show "$package" >/dev/null 2>&1; then
            printf '%s\n' "$package"
        else
            say "not in this distribution, left out: $package"
        fi
    done
}

apt_quiet() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 "$@"
}

install() {
    local wanted
    mapfile -t wanted < <(missing "$@")
    [ ${#wanted[@]} -gt 0 ] || return 0
    say "packages missing: ${wanted[*]}"
    apt_quiet update
    mapfile -t wanted < <(known "${wanted[@]}")
    [ ${#wanted[@]} -gt 0 ] || return 0
    say "installing ${#wanted[@]} packages by apt"
    apt_quiet install -y --no-install-recommends "${wanted[@]}" >/dev/null
}

have apt-get || die "no apt-get here: install these by hand: ${demo[*]}"
case ${1:-} in
demo) install "${demo[@]}" ;;
check) install "${check[@]}" ;;
go) install golang-go ;;
*) die "usage: scripts/deps.sh demo|check|go" ;;
esac
