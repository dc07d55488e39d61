#!/usr/bin/env bash
# Test suites of others and everyday programs on mounts, see posix.py and docs/posix.md. Without
# arguments the selection of check.sh; --all runs everything everywhere, for about an hour.
# presets: release
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
case " $* " in *" --all "*) "$here/../../scripts/deps.sh" posix ;; esac
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$here/../lib:$here"
exec python3 "$here/posix.py" "$@"
