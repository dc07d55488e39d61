#!/usr/bin/env bash
# scripts/venv.sh REQUIREMENTS.txt: prints the folder of a Python environment that holds exactly
# these packages; makes it when it is not in the cache yet. Its name carries a hash of the file
# and of the interpreter's version, so that a change of either makes a new one. The file names all
# packages with their hashes (pin.sh writes it): what the registry has is not believed beyond that.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

requirements=${1:?usage: scripts/venv.sh REQUIREMENTS.txt}
python=${PYTHON:-python3}
[ -r "$requirements" ] || die "$requirements: no such file"

hash=$({
    "$python" --version
    cat "$requirements"
} | sha256sum | cut -c 1-16)
venv=$cache/venv-$hash

# uv installs large environments several times faster than pip; the environment carries its own.
build() {
    [ ! -e "$venv/.complete" ] || return 0
    say "making the Python environment of $requirements (log: $cache/venv.log)"
    rm -rf "$venv"
    if ! {
        "$python" -m venv "$venv" &&
            "$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: \
                --require-hashes --requirement "$top/scripts/uv.txt" &&
            VIRTUAL_ENV=$venv UV_CACHE_DIR=$venv/.uv UV_LINK_MODE=hardlink \
                "$venv/bin/uv" pip install --require-hashes --requirement "$requirements"
    } >"$cache/venv.log" 2>&1; then
        tail -n 15 "$cache/venv.log" >&2
        die "the Python environment of $requirements could not be made"
    fi
    rm -rf "$venv/.uv"
    touch "$venv/.complete"
}

[ -e "$venv/.complete" ] || once venv build
printf '%s\n' "$venv"
