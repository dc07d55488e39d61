#!/bin/bash
# Mounts stores of each kind, with and without passthrough, and checks that the mount behaves as a
# local filesystem does. Needs root or a usable /dev/fuse, and RUNFS_BINARY or build/debug.
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$here/../lib:$here/../faults:$here"
exec python3 "$here/suite.py" "$@"
