#!/usr/bin/env bash
# Prints the prefix of a libfuse that has the passthrough calls (3.17 or later), or nothing when
# the system's own is to be used: because it is recent enough, or because a newer one can't be
# had here. A newer one is built from Debian's source package, once for each user, as a static
# library: 10 to 20 seconds.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

wanted=3.17
suite=trixie # the Debian release that carries it
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# The newest finished build in the cache.
built() {
    find "$cache" -maxdepth 1 -type d -name 'libfuse-3.*' 2>/dev/null | sort -V | tail -n 1
}

# The mirror that this machine's apt uses; nothing when it has no package lists.
mirror() {
    # shellcheck disable=SC2016 # apt fills this in, not the shell
    apt-get indextargets --format '$(REPO_URI)' | grep -v security | head -n 1
}

# Fetches the source package into $1. The system's own source list, package lists and cache stay as
# they are.
fetch() {
    local dir=$1 mirror
    mirror=$(mirror)
    if [ -z "$mirror" ]; then
        as_root apt-get -qq update || return 1
        mirror=$(mirror)
    fi
    mkdir -p "$dir"/lists/partial "$dir"/archives/partial
    cat >"$dir/fuse.sources" <<SOURCES
Types: deb-src
URIs: $mirror
Suites: $suite
Components: main
Signed-By: $keyring
SOURCES
    local apt=(apt-get -qq
        -o Dir::Etc::SourceList="$dir/fuse.sources" -o Dir::Etc::SourceParts=/dev/null
        -o Dir::State::Lists="$dir/lists" -o Dir::Cache="$dir" -o Dir::Cache::Archives="$dir/archives"
        -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
        -o APT::Sandbox::User=root -o Acquire::Languages=none)
    "${apt[@]}" update &&
        (cd "$dir" && "${apt[@]}" source --download-only fuse3)
}

# The paths below /usr and /etc are where fusermount3 and fuse.conf are; nothing is put there.
compile() {
    local dir=$1 source version
    tar -xzf "$dir"/fuse3_*.orig.tar.gz -C "$dir"
    source=$(find "$dir" -maxdepth 1 -type d -name 'fuse-3.*')
    version=${source##*fuse-}
    version_ge "$version" "$wanted" || return 1
    local prefix=$cache/libfuse-$version
    meson setup "$dir/build" "$source" --prefix="$prefix" --libdir=lib --bindir=/usr/bin \
        --sysconfdir=/etc --buildtype=release --default-library=static \
        -Dutils=false -Dexamples=false -Dtests=false &&
        DESTDIR=$dir/root ninja -C "$dir/build" install &&
        mv -T "$dir/root$prefix" "$prefix"
}

build() {
    [ -z "$(built)" ] || return 0
    work=$(mktemp -d "$cache/build-libfuse.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    say "building libfuse $wanted from the Debian source package"
    if ! { fetch "$work" && compile "$work"; } >"$cache/libfuse.log" 2>&1; then
        tail -n 15 "$cache/libfuse.log" >&2
        say "libfuse $wanted could not be built: using the system's, without passthrough"
    fi
}

if pkg-config --atleast-version=$wanted fuse3 2>/dev/null; then
    exit 0
fi
if [ -z "$(built)" ] && ! { [ -e "$keyring" ] && grep -qx 'ID=debian' /etc/os-release; }; then
    say "libfuse here is older than $wanted, and this is no Debian that could build it:" \
        "runfs works without passthrough"
    exit 0
fi
once libfuse build
built
