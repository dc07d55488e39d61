#!/usr/bin/env bash
# Test suites of others and everyday programs on mounts, see posix.py and docs/posix.md. Without
# arguments the selection of check.sh; --all runs everything everywhere, for about an hour;
# --prepare only makes ready what has to be compiled.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
case " $* " in *" --all "*) "$here/../../scripts/deps.sh" posix ;; esac
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$here/../lib:$here"
[ "${1:-}" != --prepare ] || exec python3 -c 'import small; small.prepare()'
exec python3 "$here/posix.py" "$@"
