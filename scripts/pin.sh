#!/usr/bin/env bash
# scripts/pin.sh [NAME.in...]: writes NAME.txt beside each, all of them unless told: every package
# that is needed, with its version and the hashes of its files, for Python 3.11 and later. Without
# changes in a NAME.in it takes what is newer now, where that file leaves it open.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$top"

oldest=3.11 # Debian 12
uv=$(scripts/venv.sh tests/sign/requirements.txt)/bin/uv

if [ $# -eq 0 ]; then
    mapfile -t files < <(git ls-files '*requirements.in' '*build-constraints.in' scripts/uv.in)
    set -- "${files[@]}"
fi
for file in "$@"; do
    say "$file"
    # What must be built to learn what it needs is built as its tests build it.
    env UV_BUILD_CONSTRAINT="$top/tests/frameworks/build-constraints.in" \
        HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1 \
        HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_GLOO=1 \
        "$uv" pip compile --quiet --universal --python-version "$oldest" --generate-hashes \
        --no-annotate --upgrade --custom-compile-command "scripts/pin.sh $file" \
        "$file" --output-file "${file%.in}.txt"
done
