#!/usr/bin/env bash
# E2B's own SDKs, in the versions of versions.json, against a server, which scripts/clients.sh starts.
set -euo pipefail
cd "$(dirname "$0")"
: "${SKERRY_SERVER:?scripts/clients.sh starts a server}"
cache=${SKERRY_CACHE:-/var/cache/skerry}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp sdk.py sdk.test.mjs "$work/"
awk '/^```python/ { on = 1; next } /^```/ { on = 0 } on' ../../docs/e2b.md >"$work/docs.py"
[ -s "$work/docs.py" ] || { echo "docs/e2b.md has no example" >&2; exit 1; }
cd "$work"
export E2B_API_URL=$SKERRY_SERVER E2B_SANDBOX_URL=$SKERRY_SERVER
E2B_API_KEY=e2b_$(printf %s "${SKERRY_API_KEY:-}" | od -An -tx1 | tr -d ' \n')
[ "$E2B_API_KEY" != e2b_ ] || E2B_API_KEY=e2b_00
export E2B_API_KEY
for n in 0 1 2; do
  [ "$(timeout 120 "$cache/e2b/python-$n/bin/python" docs.py)" = $'2 data.csv\n\n2' ] || { echo "the example of docs/e2b.md says something else" >&2; exit 1; }
  timeout 300 "$cache/e2b/python-$n/bin/python" -W ignore sdk.py >python.log 2>&1 || { cat python.log; exit 1; }
  printf '   Python %s %s\n' "$("$cache/e2b/python-$n/bin/pip" freeze 2>/dev/null | grep -E '^e2b' | xargs)" "$(grep -E '^Ran ' python.log)"
  ln -sfn "$cache/e2b/node-$n/node_modules" node_modules
  timeout 300 node --test sdk.test.mjs >node.log 2>&1 || { cat node.log; exit 1; }
  printf '   JavaScript e2b %s%s\n' "$(node -p 'require("./node_modules/e2b/package.json").version')" "$(grep -E '^# pass' node.log | tr -d '#')"
done
