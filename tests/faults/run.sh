#!/usr/bin/env bash
# A store that stops, hangs and cuts, a cache too small, a cache disk that is full; see faults.py.
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/faults.py" "$@"
