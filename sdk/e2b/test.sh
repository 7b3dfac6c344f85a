#!/usr/bin/env bash
# E2B's own SDKs, in the versions of versions.json side by side, against a server, which scripts/clients.sh starts.
set -euo pipefail
cd "$(dirname "$0")"
: "${SKERRY_SERVER:?scripts/clients.sh starts a server}"
cache=${SKERRY_CACHE:-/var/cache/skerry}
work=$(mktemp -d)
lanes=()
trap 'kill "${lanes[@]}" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
awk '/^```python/ { on = 1; next } /^```/ { on = 0 } on' ../../docs/e2b.md >"$work/docs.py"
[ -s "$work/docs.py" ] || { echo "docs/e2b.md has no example" >&2; exit 1; }
export E2B_API_URL=$SKERRY_SERVER E2B_SANDBOX_URL=$SKERRY_SERVER
E2B_API_KEY=e2b_$(printf %s "${SKERRY_API_KEY:-}" | od -An -tx1 | tr -d ' \n')
[ "$E2B_API_KEY" != e2b_ ] || E2B_API_KEY=e2b_00
export E2B_API_KEY

# lane N runs the tests with the SDKs in node-N and python-N, in a folder of its own.
lane() {
  local python=$cache/e2b/python-$1/bin/python node=$cache/e2b/node-$1/node_modules
  cp sdk.py sdk.test.mjs "$work/docs.py" "$work/$1/"
  cd "$work/$1"
  ln -s "$node" node_modules
  timeout 120 "$python" docs.py >log 2>&1 || { cat log; return 1; }
  [ "$(cat log)" = $'2 data.csv\n\n2' ] || { cat log; echo "the example of docs/e2b.md says something else"; return 1; }
  timeout 400 "$python" -W ignore sdk.py >log 2>&1 || { cat log; return 1; }
  printf '   Python %s %s, %s\n' "$("$python" -m pip freeze 2>/dev/null | grep -E '^e2b(-code-interpreter)?==' | xargs)" "$(grep -E '^Ran ' log)" "$(tail -n 1 log)"
  timeout 400 node --test sdk.test.mjs >log 2>&1 || { cat log; return 1; }
  printf '   JavaScript e2b %s%s\n' "$(node -p 'require("./node_modules/e2b/package.json").version')" "$(grep -E '^# pass' log | tr -d '#')"
}

for n in 0 1 2; do
  mkdir "$work/$n"
  # The newest version has the test that takes long, too.
  SKERRY_E2B_QUIET=$([ $n -gt 0 ] || echo 1) lane $n >"$work/$n.out" 2>&1 &
  lanes+=($!)
done
failed=0
for n in 0 1 2; do
  wait "${lanes[n]}" || failed=1
  cat "$work/$n.out"
done
exit $failed
