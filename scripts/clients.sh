#!/usr/bin/env bash
# The clients of sdk/ against a server of this tree, which it starts and ends: each folder's test.sh is told
# the server's address in SKERRY_SERVER. Names of folders run only these. sdk/python starts its own servers.
set -euo pipefail
cd "$(dirname "$0")/.."
export SKERRY_CACHE=${SKERRY_CACHE:-/var/cache/skerry}
export PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin # where rustup puts Rust, also for a shell that has not read its profile
scripts/install.sh run mcp clients e2b
work=$(mktemp -d /tmp/skerry-clients-XXXXXX)
chmod 711 "$work" # sandboxes pass through, as other uids
pid=

# Whatever happened: what tests left of threads goes, and then the server.
finish() {
  local code=$? thread
  trap - EXIT
  if [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; then
    for thread in $(curl -fsS "$SKERRY_SERVER/api/threads?limit=1000" | python3 -c 'import json, sys; print(*(t["thread_id"] for t in json.load(sys.stdin)["items"]))'); do
      curl -fsS -o /dev/null -X DELETE "$SKERRY_SERVER/api/threads/$thread" || code=1
    done
    kill "$pid"
    wait "$pid" || true
  fi
  [ "$code" = 0 ] || tail -100 "$work/log" >&2 || true
  rm -rf "$work"
  exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

python3 scripts/compatibility.py # docs/compatibility.md says what is pinned

# Not bin/: another tier may build there at the same time.
CGO_ENABLED=0 go build -trimpath -o "$work/bin/" ./cmd/skerry ./cmd/skerry-sandboxd
# The commands that ask a server are also for people on other systems.
for os in darwin windows; do GOOS=$os CGO_ENABLED=0 go build -o /dev/null ./cmd/skerry; done
mkdir -m 711 "$work/data"
mkdir -m 755 "$work/shared"
python3 - "$SKERRY_CACHE" "$work" >"$work/data/extensions_config.json" <<'EOF'
import json, sys
cache, work = sys.argv[1:]
server = cache + "/mcp/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"
print(json.dumps({"mcpServers": {"files": {"command": "node", "args": [server, work + "/shared"], "description": "Files of a shared folder"}}}))
EOF
chmod 600 "$work/data/extensions_config.json"
env SKERRY_DISK_QUOTA=off SKERRY_AUTH=none SKERRY_E2B=true SKERRY_DEERFLOW_ENABLED=true SKERRY_LIBRECHAT_ENABLED=true SKERRY_JUPYTER_ENABLED=true SKERRY_SKILLS="$PWD/skills" SKERRY_AUDIT_SIGNING_KEY_FILE="$work/keys/audit.pem" \
  "$work/bin/skerry" serve --listen 127.0.0.1:0 --data "$work/data" --driver docker >"$work/log" 2>&1 &
pid=$!
for _ in $(seq 120); do
  SKERRY_SERVER=$(sed -n 's/^.* serving on \(http[^ ]*\).*$/\1/p' "$work/log" 2>/dev/null) || true # the log may not be there yet
  [ -z "$SKERRY_SERVER" ] || break
  kill -0 "$pid" 2>/dev/null || exit 1
  sleep 0.5
done
[ -n "$SKERRY_SERVER" ] || { echo "the server does not serve after a minute" >&2; exit 1; }
export SKERRY_SERVER SKERRY_BIN="$work/bin/skerry"

names=("$@")
[ $# -gt 0 ] || names=(go mcp typescript e2b deerflow rust)
for name in "${names[@]}"; do
  [ -x "sdk/$name/test.sh" ] || { echo "sdk/$name has no test.sh" >&2; exit 1; }
  printf -- '-- %s\n' "$name"
  began=$SECONDS
  "sdk/$name/test.sh"
  printf 'ok  \tsdk/%s\t%d s\n' "$name" $((SECONDS - began))
done
