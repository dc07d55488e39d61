#!/usr/bin/env bash
# Compares our signatures with botocore's, over generated requests; see sign.py. Needs no server.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=$("$here/../../scripts/venv.sh" "$here/requirements.txt")

exec "$venv/bin/python" "$here/sign.py" "$@"
