#!/usr/bin/env bash
# The official MCP clients, in TypeScript and Python, against /mcp of a server, which scripts/clients.sh starts.
set -euo pipefail
cd "$(dirname "$0")"
: "${SKERRY_SERVER:?scripts/clients.sh starts a server}"
cache=${SKERRY_CACHE:-/var/cache/skerry}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp clients.test.mjs clients.py "$work/"
ln -s "$cache/clients/node_modules" "$work/node_modules"
cd "$work"
timeout 170 node --test clients.test.mjs >node.log 2>&1 || { cat node.log; exit 1; }
printf '   TypeScript%s\n' "$(grep -E '^# pass' node.log | tr -d '#')"
timeout 170 "$cache/clients/python/bin/python" -W ignore clients.py >python.log 2>&1 || { cat python.log; exit 1; }
printf '   Python %s\n' "$(grep -E '^Ran ' python.log)"
