#!/usr/bin/env bash
# scripts/lint.sh [--full] [format|locks|tidy|shell|pins|docs|owners...]: checks the layout of the C sources
# (clang-format), that they use under its lock what a lock guards (clang's thread-safety analysis),
# the sources themselves (clang-tidy; only those that changed since they were clean, unless --full),
# the scripts (shellcheck), that every Python package is named with its version and hashes, and that
# the documents name what exists, in lines of 140 columns (docs.py), that each state of cache/ is
# assigned in one file (owners.py); all seven unless told. Changes
# nothing: `clang-format-14 -i FILE` mends a layout, scripts/pin.sh what is not pinned.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$top"

folders=(common backends cache runs fuse cli tests bench scripts)
passed=0 failed=0 skipped=0

sources() {
    local folder
    for folder in "${folders[@]}"; do
        [ ! -d "$folder" ] || find "$folder" -name '*.c' -o -name '*.h'
    done | sort
}

scripts() {
    git ls-files --cached --others --exclude-standard | while read -r file; do
        case $file in
        *.sh) printf '%s\n' "$file" ;;
        *) [ ! -f "$file" ] || ! head -n 1 "$file" | grep -qaE '^#!.*\b(ba)?sh\b' || printf '%s\n' "$file" ;;
        esac
    done
}

# The layout differs between versions of clang-format: it must be 14.
lint_format() {
    local file result=0
    while read -r file; do
        clang-format-14 --dry-run -Werror "$file" 2>/dev/null || {
            echo "layout: clang-format-14 -i $file"
            result=1
        }
    done < <(sources)
    return "$result"
}

# How everything is compiled, without compiling it: so that no build is waited for.
commands() {
    mkdir -p build
    cmake --preset debug -B build/lint -DRUNFS_TESTS=OFF -DCMAKE_C_COMPILER_LAUNCHER= >build/lint.log 2>&1 || {
        cat build/lint.log
        return 1
    }
}

# common/lock.h says what the marks mean. Tests use what is guarded while no thread runs. No other
# warning of clang counts, but -w would silence these as well.
lint_locks() {
    commands || return 1
    python3 -c '
import json, os, shlex, sys
for unit in json.load(open("build/lint/compile_commands.json")):
    if os.path.relpath(unit["file"]).startswith(tuple(sys.argv[1:])):
        print("clang-14 -fsyntax-only", shlex.join(shlex.split(unit["command"])[1:]),
              "-Wno-everything -Werror=ignored-attributes -Werror=thread-safety")' \
        common/ backends/ cache/ fuse/ cli/ |
        xargs -d '\n' -n 1 -P "$(nproc)" sh -c
}

# gcc's compile commands hold flags that clang does not know; they do not matter here.
lint_tidy() {
    local ours
    commands || return 1
    mapfile -t ours < <(sources | grep '\.c$' | grep -vE '^(tests|bench)/')
    python3 scripts/tidy.py ${full:+--full} build/lint "${ours[@]}"
}

lint_shell() {
    scripts | xargs shellcheck
}

# Each NAME.in has its NAME.txt, in which each package has one version and hashes, and nothing else
# says where a package comes from.
lint_pins() {
    local file loose result=0
    local hash='^ +--hash=sha256:[0-9a-f]{64}( \\)?$' package='^[A-Za-z0-9_.-]+==[^ ]+( ; [^\]+)? \\$'
    while read -r file; do
        loose=$(grep -vE -e '^#' -e "$hash" -e "$package" "$file" || true)
        if [ ! -e "${file%.txt}.in" ] || [ -n "$loose" ]; then
            printf 'not pinned: scripts/pin.sh %s\n%.400s\n' "${file%.txt}.in" "$loose"
            result=1
        fi
    done < <(git ls-files --cached --others --exclude-standard '*requirements*.txt' '*constraints.txt' scripts/uv.txt)
    return "$result"
}

lint_docs() {
    python3 scripts/docs.py
}

lint_owners() {
    python3 scripts/owners.py
}

lint() {
    local tool=$1 what=$2
    if ! have "$tool"; then
        echo "SKIP $what: no $tool here"
        skipped=$((skipped + 1))
    elif "lint_$what"; then
        echo "ok   $what"
        passed=$((passed + 1))
    else
        echo "FAIL $what"
        echo "REPEAT: scripts/lint.sh $what"
        failed=$((failed + 1))
    fi
}

full=
if [ "${1:-}" = --full ]; then
    full=yes
    shift
fi
[ $# -gt 0 ] || set -- format locks tidy shell pins docs owners
for what in "$@"; do
    case $what in
    format) lint clang-format-14 format ;;
    locks) lint clang-14 locks ;;
    tidy) lint clang-tidy-14 tidy ;;
    shell) lint shellcheck shell ;;
    pins) lint git pins ;;
    docs) lint python3 docs ;;
    owners) lint python3 owners ;;
    *) die "no such check: $what (format, locks, tidy, shell, pins, docs or owners)" ;;
    esac
done
echo "lint: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
