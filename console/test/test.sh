#!/usr/bin/env bash
# The web console in a browser, against three servers of this tree: one that wants keys, one that wants none, and one that also
# takes tokens of an identity provider. Names of tests are arguments. With SKERRY_CONSOLE_SHOTS, a folder, it makes the screenshots
# of docs/console.md in place of the tests.
set -euo pipefail
cd "$(dirname "$0")/../.."
export SKERRY_CACHE=${SKERRY_CACHE:-/var/cache/skerry}
scripts/install.sh run console browser
scripts/console.sh # fails where the console cannot be built
ln -sfn "$SKERRY_CACHE/console/node_modules" console/node_modules
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
mkdir -m 711 "$work/keys"
key() { "$work/bin/skerry" keys create --data "$work/keys" --admin "$@"; }
SKERRY_ADMIN_KEY=$(key --name first) SKERRY_OTHER_KEY=$(key --name else --tenant else --user nora)
export SKERRY_ADMIN_KEY SKERRY_OTHER_KEY
servers=()
# serve NAME VARIABLE… starts a server, and adds its address to servers.
serve() {
  local name=$1 address=
  shift
  [ -d "$work/$name" ] || mkdir -m 711 "$work/$name"
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
# listens LOG PATTERN waits for the address that a program writes.
listens() {
  local address=
  for _ in $(seq 40); do
    address=$(sed -n "$2" "$1" 2>/dev/null) || true
    [ -z "$address" ] || break
    sleep 0.25
  done
  [ -n "$address" ] || { echo "$1 names no address" >&2; return 1; }
  echo "$address"
}
# Tools of an MCP server, one of which is denied for some arguments, and commands that a person has to agree to.
"$work/bin/skerry" demo tools --listen 127.0.0.1:0 >"$work/log-tools" 2>&1 &
pids+=($!)
tools=$(listens "$work/log-tools" 's/^MCP server on \(http.*\)$/\1/p')
node console/test/issuer.mjs >"$work/log-issuer" 2>&1 &
pids+=($!)
SKERRY_ISSUER=$(listens "$work/log-issuer" 's/^issuer on \(http.*\)$/\1/p')
mkdir -m 711 "$work/login"
SKERRY_LOGIN_KEY=$("$work/bin/skerry" keys create --data "$work/login" --admin --name first)
echo "{\"mcpServers\": {\"demo\": {\"url\": \"$tools\"}}}" >"$work/extensions.json"
cat >"$work/policy.yaml" <<'END'
version: 1
default: allow
rules:
  - id: not-above
    effect: deny
    match: {server: demo}
    when: args.?path.orValue("").contains("..")
    reason: no path goes up
  - id: ask-first
    effect: require_approval
    match: {kind: exec}
    when: args.?command.orValue("").contains("ask-first")
    reason: a person has to agree
END
chmod 644 "$work/extensions.json" "$work/policy.yaml"
serve keys SKERRY_AUTH=keys SKERRY_EXTENSIONS="$work/extensions.json" SKERRY_POLICY="$work/policy.yaml" SKERRY_LIMITS_USERS='{"*": {tool_calls_per_day: 100000, tool_calls_per_minute: 60000}}' SKERRY_PLUGINS_FOLDERS="$PWD/testdata/knowledge-work-plugins"
serve open SKERRY_AUTH=none
serve login SKERRY_OIDC="[{issuer: '$SKERRY_ISSUER', name: Sign-on of Acme, audiences: [skerry-console], client_id: skerry-console,
  scopes: [openid, skerry, offline_access], tenant: default, user_claim: preferred_username, roles_claim: roles,
  roles: {skerry-admins: admin, agents: agent, auditors: auditor}, clock_skew: 1s}]"
export SKERRY_SERVER=${servers[0]} SKERRY_OPEN_SERVER=${servers[1]} SKERRY_LOG=$work/log-keys
export SKERRY_LOGIN_SERVER=${servers[2]} SKERRY_LOGIN_LOG=$work/log-login SKERRY_ISSUER SKERRY_LOGIN_KEY
if [ -n "${SKERRY_CONSOLE_SHOTS:-}" ]; then
  timeout 300 node console/test/shots.mjs "$SKERRY_CONSOLE_SHOTS"
  exit
fi
log=$work/tests
timeout 2100 node --test --test-concurrency 1 --test-reporter spec ${1:+--test-name-pattern "$1"} console/test/*.test.mjs >"$log" 2>&1 || { cat "$log"; exit 1; }
printf 'ok  \tconsole\t%s\n' "$(grep -E '^ℹ pass' "$log" | tr -dc 'a-z0-9 ')"
