# shellcheck shell=bash
# What the scripts share: where things are, how they speak, how they become root. Sourced.

# The repository, and where everything that is built or downloaded once is kept for all clones.
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/runfs
export top cache

# say TEXT...: one line of progress, on stderr, so that a script's stdout can carry its answer.
say() {
    printf '>> %s\n' "$*" >&2
}

# die TEXT...: the reason on stderr, exit 1.
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# as_root COMMAND...: runs it as root, through sudo when we are somebody else.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif have sudo; then
        sudo -- "$@"
    else
        printf 'error: this needs root, and there is no sudo: %s\n' "$*" >&2
        return 1
    fi
}

# version_ge A B: whether version A is B or later.
version_ge() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# Two builds of one thing in one cache directory would trip over each other: the first builds,
# the others wait and find it done. once NAME COMMAND...
once() {
    local name=$1
    shift
    mkdir -p "$cache"
    (
        flock 9
        "$@"
    ) 9>"$cache/.$name.lock"
}

# Prints why nothing can be mounted here; nothing when it can.
fuse_problem() {
    [ -e /dev/fuse ] || as_root modprobe fuse 2>/dev/null || true
    if [ ! -e /dev/fuse ]; then
        echo "there is no /dev/fuse: load the module (modprobe fuse), or start the container with" \
            "--device /dev/fuse --cap-add SYS_ADMIN"
    elif ! (: <>/dev/fuse) 2>/dev/null; then
        echo "this user can't open /dev/fuse: run as root, or make it what udev makes it" \
            "(chmod 0666 /dev/fuse)"
    fi
}
