#!/usr/bin/env bash
# scripts/lint.sh [format|tidy|shell...]: checks the layout of the C sources (clang-format), the
# sources themselves (clang-tidy, with the compile commands of build/debug) and the scripts
# (shellcheck); all three unless told. Changes nothing: `clang-format-14 -i FILE` mends a layout.
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

# gcc's compile commands hold flags that clang does not know; they do not matter here.
lint_tidy() {
    [ -e build/debug/compile_commands.json ] || scripts/build.sh debug
    local ours
    mapfile -t ours < <(sources | grep '\.c$' | grep -vE '^(tests|bench)/')
    run-clang-tidy-14 -quiet -p build/debug -j "$(nproc)" \
        -extra-arg=-Wno-unknown-warning-option \
        -extra-arg=-include -extra-arg="$top/scripts/analyzer.h" "${ours[@]}" 2>&1 |
        sed -E 's/\x1b\[[0-9;]*m//g; /^clang-tidy|^[0-9]+ warnings? generated|^Suppressed|^Use -header-filter/d'
    return "${PIPESTATUS[0]}"
}

lint_shell() {
    scripts | xargs shellcheck
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
        failed=$((failed + 1))
    fi
}

[ $# -gt 0 ] || set -- format tidy shell
for what in "$@"; do
    case $what in
    format) lint clang-format-14 format ;;
    tidy) lint run-clang-tidy-14 tidy ;;
    shell) lint shellcheck shell ;;
    *) die "no such check: $what (format, tidy or shell)" ;;
    esac
done
echo "lint: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
