#!/usr/bin/env bash
# What `make test` runs: everything, with real parts. The tiers that need no quiet machine run side
# by side; each writes a log of its own, and the log of one that fails is shown whole.
set -uo pipefail
cd "$(dirname "$0")/.."
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
began=$SECONDS
fail=0

show() { # NAME CODE
  if [ "$2" = 0 ]; then
    printf '== %s: ok [%ds]\n' "$1" $((SECONDS - began))
  else
    printf '== %s: FAILED [%ds]\n' "$1" $((SECONDS - began))
    fail=1
  fi
  grep -vE '^(ok|\?) .*\(cached\)|no test files' "$logs/$1" | tail -400
}

tier() { # NAME COMMAND…
  local name=$1 code=0
  shift
  "$@" >"$logs/$name" 2>&1 || code=$?
  echo $code >"$logs/$name.code"
}

scripts/install.sh run test mcp runsc || exit 1
scripts/dockerd.sh || exit 1
images/base/build.sh || exit 1

real='internal/e2e|internal/driver'
mapfile -t quick < <(go list ./... | grep -vE "$real")
mapfile -t slow < <(go list ./... | grep -E "$real")

tier check scripts/check.sh &
check=$!
tier unit go test -race -timeout 15m "${quick[@]}" &
unit=$!
wait $unit
show unit "$(cat "$logs/unit.code")"
# Containers and clocks: after the tests that keep both cores busy.
tier real go test -race -p 1 -timeout 25m "${slow[@]}" 
show real "$(cat "$logs/real.code")"
wait $check
show check "$(cat "$logs/check.code")"
printf '== %s in %ds\n' "$([ $fail = 0 ] && echo 'all tiers passed' || echo 'FAILED')" $((SECONDS - began))
exit $fail
