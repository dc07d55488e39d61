#!/usr/bin/env bash
# Measures a mount side by side with the native disk, parallel clients and other filesystems; see
# bench.py and `bench/run.sh --help`. With --scale as its first word: how it grows, see scale.py.
# Makes the release build unless RUNFS_BINARY names another.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=$("$here/../scripts/venv.sh" "$here/requirements.txt")
RUNFS_VERSITYGW=${RUNFS_VERSITYGW:-$("$here/../scripts/versitygw.sh")}
if [ -z "${RUNFS_BINARY:-}" ]; then
    "$here/../scripts/deps.sh" check >&2
    "$here/../scripts/build.sh" release runfs >&2
    RUNFS_BINARY=$here/../build/release/runfs
fi
export RUNFS_VERSITYGW RUNFS_BINARY
export S5CMD=$venv/bin/s5cmd
if [ "${1:-}" = --scale ]; then
    shift
    exec python3 "$here/scale.py" "$@"
fi
exec python3 "$here/bench.py" "$@"
