#!/usr/bin/env bash
# The web console in a browser, against two servers of this tree: one that wants keys, and one that wants none. Names of tests are
# arguments. With SKERRY_CONSOLE_SHOTS, a folder, it makes the screenshots of docs/console.md in place of the tests.
set -euo pipefail
cd "$(dirname "$0")/../.."
export SKERRY_CACHE=${SKERRY_CACHE:-/var/cache/skerry}
scripts/install.sh run console browser
scripts/console.sh # fails where the console cannot be built
work=$(mktemp -d /tmp/skerry-console-XXXXXX)
chmod 711 "$work" # sandboxes pass through, as other uids
pids=()

# Whatever happened: what tests left of threads goes, and then the servers.
finish() {
  local code=$? pid thread key=(-H "Authorization: Bearer $SKERRY_ADMIN_KEY")
  trap - EXIT
  # The other server has no thread.
  for thread in $(curl -fsS "${key[@]}" "${servers[0]:-}/api/threads?limit=1000" | python3 -c 'import json, sys; print(*(t["thread_id"] for t in json.load(sys.stdin)["items"]))'); do
    curl -fsS -o /dev/null -X DELETE "${key[@]}" "${servers[0]}/api/threads/$thread" || code=1
  done
  for pid in "${pids[@]}"; do
    kill "$pid" || true
    wait "$pid" || true
  done
  [ "$code" = 0 ] || tail -n 40 "$work"/log-* >&2 || true
  rm -rf "$work"
  exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

# Not bin/: another tier may build there at the same time.
CGO_ENABLED=0 go build -trimpath -o "$work/bin/" ./cmd/skerry ./cmd/skerry-sandboxd
SKERRY_ADMIN_KEY=sk_$(openssl rand -hex 32)
export SKERRY_ADMIN_KEY
servers=()
# serve NAME VARIABLE… starts a server, and adds its address to servers.
serve() {
  local name=$1 address=
  shift
  mkdir -m 711 "$work/$name"
  env SKERRY_DISK_QUOTA=off SKERRY_SKILLS="$PWD/skills" "$@" "$work/bin/skerry" serve --listen 127.0.0.1:0 --data "$work/$name" --driver docker >"$work/log-$name" 2>&1 &
  pids+=($!)
  for _ in $(seq 120); do
    address=$(sed -n 's/^.* serving on \(http[^ ]*\).*$/\1/p' "$work/log-$name" 2>/dev/null) || true # the log may not be there yet
    [ -z "$address" ] || break
    kill -0 "${pids[-1]}" 2>/dev/null || exit 1
    sleep 0.5
  done
  [ -n "$address" ] || { echo "the server does not serve after a minute" >&2; exit 1; }
  servers+=("$address")
}
serve keys SKERRY_AUTH=keys SKERRY_FIRST_KEY="$SKERRY_ADMIN_KEY"
serve open SKERRY_AUTH=none
export SKERRY_SERVER=${servers[0]} SKERRY_OPEN_SERVER=${servers[1]} SKERRY_LOG=$work/log-keys
ln -sfn "$SKERRY_CACHE/console/node_modules" console/node_modules
if [ -n "${SKERRY_CONSOLE_SHOTS:-}" ]; then
  timeout 300 node console/test/shots.mjs "$SKERRY_CONSOLE_SHOTS"
  exit
fi
log=$work/tests
timeout 480 node --test --test-reporter spec ${1:+--test-name-pattern "$1"} console/test/size.test.mjs console/test/console.test.mjs >"$log" 2>&1 || { cat "$log"; exit 1; }
printf 'ok  \tconsole\t%s\n' "$(grep -E '^ℹ pass' "$log" | tr -dc 'a-z0-9 ')"
