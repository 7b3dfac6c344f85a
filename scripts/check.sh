#!/usr/bin/env bash
# What `make check` runs: everything that needs no container. CI runs exactly this, too.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${SKERRY_CACHE:-/var/cache/skerry}
step() { printf -- '-- %s\n' "$*"; }

step "format"
unformatted=$(gofmt -l $(git ls-files '*.go'))
[ -z "$unformatted" ] || { echo "gofmt wants to change: $unformatted" >&2; exit 1; }
step "vet"
go vet ./...
step "module file"
go mod tidy -diff
step "generated code"
scripts/generate.sh --diff
step "lint"
scripts/install.sh linters
"$cache/bin/golangci-lint" run
step "shell"
if command -v shellcheck >/dev/null; then shellcheck $(git ls-files '*.sh'); fi
for f in $(git ls-files '*.sh') .ci/run; do bash -n "$f"; done
step "skills"
python3 -m unittest discover -s skills/tests 2>&1 | tail -3
