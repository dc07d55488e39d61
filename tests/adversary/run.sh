#!/usr/bin/env bash
# Attacks whole mounts from outside and asks afterwards what was lost; see adversary.py.
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/adversary.py" "$@"
