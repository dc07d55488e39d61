#!/usr/bin/env bash
# The Debian package: built, unpacked into a folder, and looked at as a user would find it.
set -euo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
build=${RUNFS_BUILD:-$top/build/release}
work=$(mktemp -d "${TMPDIR:-/tmp}/runfs-package.XXXXXX")
root=$work/root
runfs=$root/usr/bin/runfs
passed=0 failed=0
only=${1:-} # what has this in its name

cleanup() {
    if grep -q " $work/mnt " /proc/self/mounts; then
        "$runfs" umount "$work/mnt" --timeout 20 || fusermount3 -u -z "$work/mnt" || true
    fi
    rm -rf --one-file-system "$work"
}
trap cleanup EXIT

# check NAME COMMAND...: one test.
check() {
    local name=$1
    shift
    # What is built is what the others look at.
    [[ $name == builds || $name == *"$only"* ]] || return 0
    if "$@" >"$work/out" 2>&1; then
        passed=$((passed + 1))
        echo "ok   $name"
    else
        failed=$((failed + 1))
        echo "FAIL $name"
        echo "REPEAT: ./check.sh --job package $(basename "$build") '$name'"
        cat "$work/out"
    fi
}

builds_package() {
    (cd "$build" && cpack -G DEB -B "$work/deb") && dpkg-deb -x "$work"/deb/runfs_*.deb "$root"
}

holds_files() {
    local file
    for file in usr/bin/runfs usr/sbin/mount.fuse.runfs usr/sbin/mount.runfs \
        usr/share/man/man1/runfs.1.gz usr/share/man/man8/mount.fuse.runfs.8.gz \
        usr/share/bash-completion/completions/runfs lib/systemd/system/runfs@.service \
        usr/share/doc/runfs/README.md usr/share/doc/runfs/examples/example.json \
        usr/share/doc/runfs/NOTICE usr/share/doc/runfs/SECURITY.md usr/share/doc/runfs/copyright \
        usr/share/doc/runfs/changelog.gz usr/share/doc/runfs/changelog.Debian.gz; do
        find "$root/" -path "$root/*$file" | grep -q . || {
            echo "not in the package: $file"
            return 1
        }
    done
}

depends_on() {
    dpkg-deb -f "$work"/deb/runfs_*.deb Depends
    dpkg-deb -f "$work"/deb/runfs_*.deb Depends | grep -q 'fuse3.*libcurl'
}

knows_version() {
    local version
    version=$(dpkg-deb -f "$work"/deb/runfs_*.deb Version)
    "$runfs" --version
    "$runfs" --version | grep -qx "runfs ${version%-*}"
}

# What is in the program is named with its licence: libfuse exactly where it is linked statically.
names_licences() {
    local file=$root/usr/share/doc/runfs/copyright
    cat "$file"
    head -n 1 "$file" | grep -qx 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/' &&
        grep -qx 'License: Apache-2.0' "$file" && grep -qx 'License: BSD-1-Clause' "$file" || return 1
    if readelf -d "$runfs" | grep -q 'NEEDED.*libfuse3'; then
        [ "$(grep -c libfuse "$file")" -eq 0 ]
    else
        grep -Eq 'libfuse 3\.[0-9.]+, linked statically' "$file" && grep -qx 'License: LGPL-2.1' "$file"
    fi
}

# The text that the foundation publishes, as the distribution has it.
licence_is_whole() {
    cmp "$top/LICENSE" /usr/share/common-licenses/Apache-2.0
}

has_changelogs() {
    local doc=$root/usr/share/doc/runfs
    zcat "$doc/changelog.gz" | grep -x '## \[Unreleased\]' &&
        [ "$(dpkg-parsechangelog -l "$doc/changelog.Debian.gz" -S Version 2>/dev/null ||
            zcat "$doc/changelog.Debian.gz" | sed -n '1s/.*(\(.*\)).*/\1/p')" = \
            "$(dpkg-deb -f "$work"/deb/runfs_*.deb Version)" ]
}

# The user's cache directory, where libfuse may have been built, means nothing elsewhere.
carries_no_path() {
    ! readelf -d "$runfs" | grep -E 'R(UN)?PATH' &&
        ! strings -a "$runfs" | grep -F -e "$HOME/.cache" -e "$top"
}

is_hardened() {
    readelf -h "$runfs" | grep 'Type:.*DYN' &&
        readelf -d "$runfs" | grep 'BIND_NOW\|FLAGS.*NOW' &&
        readelf -lW "$runfs" | grep 'GNU_RELRO' &&
        readelf -lW "$runfs" | grep 'GNU_STACK.*RW ' &&
        readelf -sW --dyn-syms "$runfs" | grep '__stack_chk_fail' &&
        readelf -sW --dyn-syms "$runfs" | grep '_chk@'
}

man_page_is_clean() {
    local warnings
    warnings=$(LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z \
        "$root/usr/share/man/man1/runfs.1.gz" 2>&1 >/dev/null)
    echo "$warnings"
    [ -z "$warnings" ]
}

# The names in the first column of `runfs --help`.
commands() {
    "$runfs" --help | sed -n 's/^  \([a-z]\{2,\}\) .*/\1/p'
}
# A line of the option list is a name and its meaning, two blanks between them, or names alone.
mount_options() {
    "$runfs" mount --help | awk '
        /^Options of -o/ { on = 1; next }
        on && /^  [a-z]/ { split(substr($0, 3), part, "  "); gsub(" ", "\n", part[1]); print part[1] }'
}

man_page_names_all() {
    local word page
    [ "$(mount_options | wc -l)" -gt 15 ] || return 1
    page=$(zcat "$root/usr/share/man/man1/runfs.1.gz")
    for word in $(commands) $(mount_options); do
        grep -qw -- "$word" <<<"$page" || {
            echo "runfs.1 does not say: $word"
            return 1
        }
    done
}

man_page_has_sections() {
    local section
    for section in 'EXIT STATUS' ENVIRONMENT FILES; do
        zcat "$root/usr/share/man/man1/runfs.1.gz" | grep -qx "\.SH \"*$section\"*" || {
            echo "runfs.1 has no section $section"
            return 1
        }
    done
}

# complete WORD...: what the shell would offer for the last of these words.
complete_words() {
    bash -c '
        compopt() { :; }
        . "$1"; shift
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
        _runfs runfs "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf "%s\n" "${COMPREPLY[@]}"' - "$root/usr/share/bash-completion/completions/runfs" "$@"
}

completion_offers_all() {
    local word offered
    offered=$(complete_words runfs "")
    for word in $(commands); do
        grep -qx -- "$word" <<<"$offered" || {
            echo "not offered: $word"
            return 1
        }
    done
    offered=$(complete_words runfs mount -o "")
    for word in $(mount_options); do
        grep -q -- "^$word\b" <<<"$offered" || {
            echo "not offered after -o: $word"
            return 1
        }
    done
    offered=$(complete_words runfs mount -o ro,durab)
    grep -qx 'ro,durability=store' <<<"$offered"
}

# Only the mountpoint is wrong: the file was read and understood.
example_is_understood() {
    if "$runfs" mount "$root/usr/share/doc/runfs/examples/example.json" "$work/nowhere" \
        -o cache_dir="$work/cache" 2>"$work/said"; then
        echo "mounted on what does not exist"
        return 1
    fi
    cat "$work/said"
    grep -q "$work/nowhere" "$work/said"
}

# As mount(8) calls it for a line of fstab.
helper_mounts() {
    local helper
    helper=$(find "$root/" -name mount.fuse.runfs)
    mkdir "$work/store" "$work/mnt"
    "$helper" "$work/store" "$work/mnt" -o "rw,_netdev,cache_dir=$work/cache" &&
        echo content >"$work/mnt/file" &&
        "$runfs" umount "$work/mnt" &&
        grep -qx content "$work/store/file"
}

# demo.sh needs no libcheck and check.sh installs it: who builds after the other, in one clone, gets
# what it asks for. The smallest program stands for all, and the smallest of the tests.
build_follows_libcheck() {
    local clone=$work/clone hidden=$work/pkgconfig dir
    mkdir -p "$clone" "$hidden"
    (cd "$top" && git ls-files -z --cached --others --exclude-standard |
        tar --null --ignore-failed-read -T - -cf -) | tar -xf - -C "$clone"
    pkg-config --variable pc_path pkg-config | tr : '\n' | while read -r dir; do
        find "$dir" -maxdepth 1 -name '*.pc' ! -name check.pc -exec ln -sft "$hidden" {} + 2>/dev/null || true
    done
    PKG_CONFIG_LIBDIR=$hidden "$clone/scripts/build.sh" debug runfs_common &&
        [ -z "$(find "$clone/build/debug" -name '*refuse_backing*.so')" ] &&
        "$clone/scripts/build.sh" debug refuse_backing &&
        [ -n "$(find "$clone/build/debug" -name '*refuse_backing*.so')" ] &&
        PKG_CONFIG_LIBDIR=$hidden "$clone/scripts/build.sh" debug runfs_common
}

check "builds what libcheck allows, before and after it" build_follows_libcheck
check "builds" builds_package
check "holds its files" holds_files
check "depends on what it needs" depends_on
check "program runs and knows its version" knows_version
check "licences are named" names_licences
check "licence is whole" licence_is_whole
check "changelogs tell the version" has_changelogs
check "program carries no path of this machine" carries_no_path
check "program is hardened" is_hardened
check "man page has no warnings" man_page_is_clean
check "man page names every command and option" man_page_names_all
check "man page has its sections" man_page_has_sections
check "completion offers every command and option" completion_offers_all
check "example configuration is understood" example_is_understood
check "mount helper mounts" helper_mounts
echo "package: $passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
