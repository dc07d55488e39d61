#!/usr/bin/env bash
# Saves with real, unmodified frameworks through a mount of a real S3 server and loads in a second
# mount with an empty cache; see run.py. Arguments: the frameworks to run, all without any;
# --prepare only makes them ready, by night (RUNFS_NIGHTLY=1) those of other environments, too.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Horovod's Store needs none of its native parts.
export HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1
export HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_GLOO=1
export UV_BUILD_CONSTRAINT=$here/build-constraints.txt
venv=$("$here/../../scripts/venv.sh" "$here/requirements.txt")
[ "${1:-}" != --prepare ] || [ -n "${RUNFS_NIGHTLY:-}" ] || exit 0

exec "$venv/bin/python" "$here/run.py" "$@"
