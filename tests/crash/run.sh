#!/usr/bin/env bash
# Kills the daemon again and again under writers and looks for what was lost; see crash.py.
# Crash steps exist in debug builds (asan is one), passthrough where libfuse has it: so both.
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/crash.py" "$@"
