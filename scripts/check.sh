#!/usr/bin/env bash
# What `make check` runs: everything that needs no container. `make test`, and so CI, runs it too. With --here it lints only
# where the linters are, and installs none: they compile for minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${SKERRY_CACHE:-/var/cache/skerry}
export GOFLAGS=${GOFLAGS:--buildvcs=false -trimpath} CGO_ENABLED=0 # as scripts/test.sh
step() { printf -- '-- %s\n' "$*"; }
fail() { printf '%s\n' "$*" >&2; exit 1; }

# In two steps each: the exit code of what feeds a mapfile is lost.
files=$(git ls-files '*.go')
mapfile -t go_files <<<"$files"
files=$(git ls-files '*.sh' .ci/run)
mapfile -t shell_files <<<"$files"

step "format"
unformatted=$(gofmt -l "${go_files[@]}")
[ -z "$unformatted" ] || fail "gofmt wants to change: $unformatted"
step "module file"
go mod tidy -diff
step "generated code"
scripts/generate.sh --diff
step "shell"
for f in "${shell_files[@]}"; do bash -n "$f"; done
command -v shellcheck >/dev/null || scripts/install.sh test
shellcheck --external-sources --source-path=SCRIPTDIR "${shell_files[@]}"
step "skills and plugins"
for tests in skills plugins; do
  said=$(python3 -B -m unittest discover -s "$tests/tests" 2>&1) || fail "$said"
done
step "house: imports, sizes, comments, links, dependencies"
go test ./internal/archtest
step "documentation"
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
text=$(scripts/docs.sh "$site" 2>&1) || fail "$text"
if [ "${1:-}" = --here ] && [ ! -x "$cache/bin/golangci-lint" ]; then
  step "no lint: make check installs the linters"
  exit
fi
step "lint"
scripts/install.sh linters
"$cache/bin/golangci-lint" run --allow-parallel-runners
