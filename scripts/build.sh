#!/usr/bin/env bash
# scripts/build.sh PRESET [TARGET...]: configures and builds one preset of CMakePresets.json into
# build/PRESET, with all processors. `debug` takes the system's libfuse, the others the newest
# (libfuse.sh), so that both are built and tested. RUNFS_LIBFUSE=system takes the system's always.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

preset=${1:?usage: scripts/build.sh PRESET [TARGET...]}
shift
cd "$top"

options=(-DRUNFS_LIBFUSE=)
if [ "$preset" != debug ] && [ "${RUNFS_LIBFUSE:-}" != system ]; then
    options=(-DRUNFS_LIBFUSE="$("$top/scripts/libfuse.sh")")
fi
if [ "$preset" = fuzz ]; then
    compiler=$(command -v clang-14 clang | head -n 1 || true)
    [ -n "$compiler" ] || die "the fuzz preset needs clang"
    options+=(-DCMAKE_C_COMPILER="$compiler")
fi
# Said each time: CMake remembers what it was told in this folder before libcheck was installed.
if pkg-config --exists check; then
    options+=(-DRUNFS_TESTS=ON)
else
    say "there is no libcheck here: the tests are not built (scripts/deps.sh check installs it)"
    options+=(-DRUNFS_TESTS=OFF)
fi

cmake --preset "$preset" "${options[@]}" -DRUNFS_WERROR="${RUNFS_WERROR:-ON}"
cmake --build "build/$preset" --parallel "$(nproc)" ${1:+--target "$@"}
