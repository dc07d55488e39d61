#!/usr/bin/env bash
# Installs the packages that are missing, by apt (Debian 12 or later, Ubuntu 24.04 or later).
#
#   scripts/deps.sh demo     what building and running runfs needs
#   scripts/deps.sh check    that, and what ./check.sh needs beyond it
#   scripts/deps.sh go       a Go compiler of the distribution
#   scripts/deps.sh rust     its newest cargo
#   scripts/deps.sh posix    what tests/posix/run.sh --all needs beyond check
#   scripts/deps.sh spark    what tests/frameworks needs by night beyond check
#
# As root or through sudo; asks apt only when something is missing.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

demo=(
    gcc libc6-dev cmake ninja-build pkg-config
    libfuse3-dev libcurl4-openssl-dev libjansson-dev libsqlite3-dev libexpat1-dev libssl-dev uthash-dev
    fuse3 ca-certificates python3
    meson         # builds libfuse, see libfuse.sh
    dpkg-dev file # cpack
)
# "a|b": the first of these that the distribution has.
check=(
    "${demo[@]}"
    check 'clang-14|clang' 'libclang-rt-14-dev|libclang-rt-dev' clang-tidy-14 clang-format-14 shellcheck
    g++ python3-dev python3-venv attr procps psmisc util-linux git curl binutils man-db
    acl fio rsync # tests/posix
    ccache        # a build that was made before costs little
    spin          # tests/protocol
)
posix=(stress-ng dbench postgresql python3-gdbm 'libpython3.13-testsuite|libpython3.12-testsuite|libpython3.11-testsuite|libpython3.10-testsuite')
spark=('openjdk-17-jre-headless|openjdk-21-jre-headless|default-jre-headless')

installed() {
    dpkg-query -W -f='${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed
}

# Those of this list that are not installed.
missing() {
    local package name
    for package in "$@"; do
        for name in ${package//|/ }; do
            ! installed "$name" || continue 2
        done
        printf '%s\n' "$package"
    done
}

# Those of this list that the distribution has, by the name it has them under.
known() {
    local package name
    for package in "$@"; do
        for name in ${package//|/ }; do
            if apt-cache show "$name" >/dev/null 2>&1; then
                printf '%s\n' "$name"
                continue 2
            fi
        done
        say "not in this distribution, left out: $package"
    done
}

apt_quiet() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 "$@"
}

install() {
    local wanted found
    mapfile -t wanted < <(missing "$@")
    [ ${#wanted[@]} -gt 0 ] || return 0
    mapfile -t found < <(known "${wanted[@]}" 2>/dev/null)
    # What apt's lists do not name is not asked for again, unless there are no lists yet.
    if [ ${#found[@]} -eq 0 ] && apt-cache show gcc >/dev/null 2>&1; then
        known "${wanted[@]}"
        return 0
    fi
    say "packages missing: ${wanted[*]}"
    once apt fetch "${wanted[@]}"
}

# Two that update apt's lists at a time would trip over each other.
fetch() {
    local found
    apt_quiet update
    mapfile -t found < <(known "$@")
    [ ${#found[@]} -gt 0 ] || return 0
    say "installing ${#found[@]} packages by apt"
    apt_quiet install -y --no-install-recommends "${found[@]}" >/dev/null
}

have apt-get || die "no apt-get here: install these by hand: ${demo[*]}"
case ${1:-} in
demo) install "${demo[@]}" ;;
check) install "${check[@]}" ;;
go) install golang-go ;;
rust) install 'cargo-web|cargo' ;;
posix) install "${posix[@]}" ;;
spark) install "${spark[@]}" ;;
*) die "usage: scripts/deps.sh demo|check|go|rust|posix|spark" ;;
esac
