#!/usr/bin/env bash
# How soon the console's pages answer with many threads and a long audit log, in a browser: figures, no test.
# MANY=100000 threads of 500 users, RECORDS=1000000 records of ten days.
set -euo pipefail
cd "$(dirname "$0")/../.."
export SKERRY_CACHE=${SKERRY_CACHE:-/var/cache/skerry} SKERRY_MANY=${MANY:-100000} SKERRY_BENCH_RECORDS=${RECORDS:-1000000}
scripts/install.sh run console browser
scripts/console.sh
work=$(mktemp -d /tmp/skerry-many-XXXXXX)
chmod 711 "$work"
pid=
finish() {
  local code=$?
  trap - EXIT
  [ -z "$pid" ] || { kill "$pid" && wait "$pid"; } || true
  [ "$code" = 0 ] || tail -n 20 "$work/log" >&2 || true
  rm -rf "$work"
  exit "$code"
}
trap finish EXIT
CGO_ENABLED=0 go build -trimpath -o "$work/bin/" ./cmd/skerry ./cmd/skerry-sandboxd
mkdir -m 711 "$work/data"
# The journal of the embedded state: internal/store/keys.go.
python3 - "$SKERRY_MANY" >"$work/data/state.jsonl" <<'END'
import json, sys
for i in range(int(sys.argv[1])):
    user, thread = f"user-{i % 500:03d}", f"thread-{i % 500:03d}-{i // 500:02d}"
    at = f"2026-{1 + i % 10:02d}-{1 + i // 10 % 28:02d}T{i // 280 % 24:02d}:{i % 60:02d}:00Z"
    key = "skerry:{default}:threads:" + user
    record = {"tenant": "default", "user": user, "thread_id": thread, "labels": {"team": f"t{i % 7}"}, "created_at": at, "last_active_at": at}
    print(json.dumps({"k": key, "f": thread, "i": key + ":index", "v": record}))
END
echo "  writing $SKERRY_BENCH_RECORDS records of the audit log (half a minute)"
SKERRY_BENCH_DIR=$work/data/audit go test -run '^$' -bench '^BenchmarkHistory$' -benchtime 1x ./internal/audit >"$work/written"
SKERRY_ADMIN_KEY=sk_$(openssl rand -hex 32)
export SKERRY_ADMIN_KEY
env SKERRY_DISK_QUOTA=off SKERRY_AUTH=keys SKERRY_FIRST_KEY="$SKERRY_ADMIN_KEY" "$work/bin/skerry" serve --listen 127.0.0.1:0 --data "$work/data" --driver docker >"$work/log" 2>&1 &
pid=$!
for _ in $(seq 240); do
  SKERRY_SERVER=$(sed -n 's/^.* serving on \(http[^ ]*\).*$/\1/p' "$work/log" 2>/dev/null) || true
  [ -z "$SKERRY_SERVER" ] || break
  kill -0 "$pid" 2>/dev/null || exit 1
  sleep 0.5
done
[ -n "$SKERRY_SERVER" ] || { echo "the server does not serve after two minutes" >&2; exit 1; }
export SKERRY_SERVER SKERRY_OPEN_SERVER=
ln -sfn "$SKERRY_CACHE/console/node_modules" console/node_modules
timeout 900 node console/test/many.mjs
