#!/usr/bin/env bash
# scripts/build.sh PRESET [TARGET...]: configures and builds one preset of CMakePresets.json into
# build/PRESET, with all processors and, where there is one, ccache. `debug` and `asan` take the
# system's libfuse, the others the newest (libfuse.sh), so that both are built and tested;
# RUNFS_LIBFUSE=system or own takes this or that.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

preset=${1:?usage: scripts/build.sh PRESET [TARGET...]}
shift
cd "$top"

libfuse=own
case $preset in debug | asan) libfuse=system ;; esac
options=(-DRUNFS_LIBFUSE=)
if [ "${RUNFS_LIBFUSE:-$libfuse}" = own ]; then
    own=$("$top/scripts/libfuse.sh")
    if [ -z "$own" ] && ! pkg-config --atleast-version=3.17 fuse3; then
        echo "SKIP passthrough in $preset: no libfuse 3.17 to be had"
    fi
    options=(-DRUNFS_LIBFUSE="$own")
fi
if [ "$preset" = fuzz ]; then
    compiler=$(command -v clang-14 clang | head -n 1 || true)
    [ -n "$compiler" ] || die "the fuzz preset needs clang"
    options+=(-DCMAKE_C_COMPILER="$compiler")
fi
if [ -z "${CMAKE_C_COMPILER_LAUNCHER:-}" ] && have ccache; then
    export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$top}
    options+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
fi
# Said each time: CMake remembers what it was told in this folder before libcheck was installed.
if pkg-config --exists check; then
    options+=(-DRUNFS_TESTS=ON)
else
    say "there is no libcheck here: the tests are not built (scripts/deps.sh check installs it)"
    options+=(-DRUNFS_TESTS=OFF)
fi

# What the time of it depends on, for check.sh: how many of the objects ccache did not have. Where there
# is no ccache those are all that were compiled.
tell_cold() {
    local of made
    of=$(ninja -C "build/$preset" -t commands "$@" | grep -cE -- ' -o [^ ]+\.o -c ' || true)
    if [ -e "$CCACHE_STATSLOG" ]; then
        made=$(grep -cx cache_miss "$CCACHE_STATSLOG" || true)
    else
        made=$(find "build/$preset" -name '*.o' -newer "$begun" | wc -l)
    fi
    echo "COLD: $made of $of objects compiled"
}

cmake --preset "$preset" "${options[@]}" -DRUNFS_WERROR="${RUNFS_WERROR:-ON}"
begun=$top/build/$preset/.begun
export CCACHE_STATSLOG=$top/build/$preset/.ccache
rm -f "$CCACHE_STATSLOG"
touch "$begun"
cmake --build "build/$preset" --parallel "$(nproc)" ${1:+--target "$@"}
tell_cold "$@"
