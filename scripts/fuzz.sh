#!/usr/bin/env bash
# Runs every fuzz test for a while: scripts/fuzz.sh [TIME], default 10s each.
set -euo pipefail
cd "$(dirname "$0")/.."
for file in $(grep -rlE '^func Fuzz' --include='*_test.go' .); do
  for name in $(grep -oE '^func Fuzz[A-Za-z0-9_]+' "$file" | cut -d' ' -f2); do
    echo "-- $name in $(dirname "$file")"
    go test -run '^$' -fuzz "^$name\$" -fuzztime "${1:-10s}" "$(dirname "$file")"
  done
done
