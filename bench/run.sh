#!/usr/bin/env bash
# Measures a mount side by side with the native disk and a raw parallel client; see bench.py.
# Give it a release build: RUNFS_BINARY=build/release/runfs bench/run.sh --rounds 5
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=$("$here/../scripts/venv.sh" "$here/requirements.txt")
RUNFS_VERSITYGW=${RUNFS_VERSITYGW:-$("$here/../scripts/versitygw.sh")}
RUNFS_BINARY=${RUNFS_BINARY:-$here/../build/release/runfs}
export RUNFS_VERSITYGW RUNFS_BINARY
export S5CMD=$venv/bin/s5cmd
exec python3 "$here/bench.py" "$@"
