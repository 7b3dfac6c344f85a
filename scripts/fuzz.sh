#!/usr/bin/env bash
# Runs every fuzz test for a while: scripts/fuzz.sh [TIME], default 10s each.
set -euo pipefail
cd "$(dirname "$0")/.."
git grep -E --no-color '^func Fuzz[A-Za-z0-9_]+\(' -- '*_test.go' | while IFS=: read -r file func; do
  name=${func#func } name=${name%%(*}
  echo "-- $name in $(dirname "$file")"
  go test -run '^$' -fuzz "^$name\$" -fuzztime "${1:-10s}" "./$(dirname "$file")"
done
