#!/usr/bin/env bash
# The official MCP clients, in TypeScript and Python, against /mcp of a server, which scripts/clients.sh starts.
set -euo pipefail
cd "$(dirname "$0")"
: "${SKERRY_SERVER:?scripts/clients.sh starts a server}"
cache=${SKERRY_CACHE:-/var/cache/skerry}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp clients.test.mjs clients.py "$work/"
# The programs of docs/mcp-clients.md, with what stands around them in anybody's. The header is left out where the server has no keys, as the page says.
block() { awk -v lang="$1" '$0 == "```" lang { on = 1; next } /^```/ { on = 0 } on' ../../docs/mcp-clients.md | sed "s#http://127.0.0.1:8080#$SKERRY_SERVER#"; }
no_key() { if [ -n "${SKERRY_API_KEY:-}" ]; then cat; else sed 's/headers={[^,]*}, //'; fi; }
{
  cat <<'EOF'
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
const key = process.env.SKERRY_API_KEY, headers = key ? { Authorization: `Bearer ${key}` } : {};
EOF
  block js
  echo 'console.log((await client.callTool({ name: "bash", arguments: { command: "ls" } })).content[0].text); await client.close();'
} >"$work/docs.mjs"
{
  printf 'import asyncio, os\nimport httpx2\nfrom mcp import Client\nfrom mcp.client.streamable_http import streamable_http_client\n'
  printf 'async def main():\n    key = os.environ.get("SKERRY_API_KEY")\n'
  block python | no_key | sed 's/^/    /'
  echo 'asyncio.run(main())'
} >"$work/docs.py"
ln -s "$cache/clients/node_modules" "$work/node_modules"
cd "$work"
for program in "node docs.mjs" "$cache/clients/python/bin/python -W ignore docs.py"; do
  # shellcheck disable=SC2086 # a program and its arguments
  said=$(timeout 120 $program 2>&1) || { printf '%s of docs/mcp-clients.md: %s\n' "$program" "$said" >&2; exit 1; }
  [[ $said == *exit_code* ]] || { printf '%s of docs/mcp-clients.md says %s\n' "$program" "$said" >&2; exit 1; }
done
timeout 170 node --test clients.test.mjs >node.log 2>&1 || { cat node.log; exit 1; }
printf '   TypeScript%s\n' "$(grep -E '^# pass' node.log | tr -d '#')"
timeout 170 "$cache/clients/python/bin/python" -W ignore clients.py >python.log 2>&1 || { cat python.log; exit 1; }
printf '   Python %s\n' "$(grep -E '^Ran ' python.log)"
