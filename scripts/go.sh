#!/usr/bin/env bash
# Prints the path of a Go command that can build what asks for Go 1.25: the machine's own when it
# is 1.21 or later (it then brings a newer toolchain by itself), else the distribution's compiler
# is used once, to fetch a newer toolchain through the Go module proxy.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

release=go1.26.8
platform=linux-$(dpkg --print-architecture)
toolchain=$cache/$release.$platform

# "1.19.8" for "go version go1.19.8 linux/amd64".
go_version() {
    "$1" version | sed -n 's/.* go\([0-9.]*\).*/\1/p'
}

# A toolchain is published as a module; a Go older than 1.21 knows nothing of that, but fetches
# and verifies it as any module. It drops the executable bits, as modules have none.
fetch() {
    [ ! -x "$toolchain/bin/go" ] || return 0
    local module
    work=$(mktemp -d "$cache/build-go.XXXXXX")
    trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
    module=golang.org/toolchain@v0.0.1-$release.$platform
    say "fetching $release through the Go module proxy"
    (cd "$work" && GOPATH=$work GOFLAGS=-modcacherw "$1" mod download "$module") >&2
    chmod 0755 "$work/pkg/mod/$module"/bin/* "$work/pkg/mod/$module"/pkg/tool/*/*
    mv -T "$work/pkg/mod/$module" "$toolchain"
}

for go in "$(command -v go || true)" /usr/local/go/bin/go; do
    if [ -x "$go" ] && version_ge "$(go_version "$go")" 1.21; then
        printf '%s\n' "$go"
        exit 0
    fi
done
if [ ! -x "$toolchain/bin/go" ]; then
    have go || "$top/scripts/deps.sh" go
    once go fetch "$(command -v go)"
fi
printf '%s\n' "$toolchain/bin/go"
