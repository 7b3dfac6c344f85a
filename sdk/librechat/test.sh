#!/usr/bin/env bash
# The tools that LibreChat runs code with (@librechat/agents, unmodified) against a server with librechat.enabled, which
# scripts/clients.sh starts. The package takes half a gigabyte, so only make test-all installs it.
set -euo pipefail
cd "$(dirname "$0")"
: "${SKERRY_SERVER:?scripts/clients.sh starts a server}"
version=3.2.21
cache=${SKERRY_CACHE:-/var/cache/skerry}/librechat
if [ "$(cat "$cache/stamp" 2>/dev/null)" != "$version" ]; then
  echo "   LibreChat's tools, from npm (1 to 5 minutes)"
  rm -rf "$cache"
  mkdir -p "$cache"
  (cd "$cache" && npm install --ignore-scripts --no-audit --no-fund --silent --prefix . "@librechat/agents@$version")
  echo "$version" >"$cache/stamp"
fi
# Node looks for packages beside the file that imports them.
cp librechat.test.mjs "$cache/"
LIBRECHAT_CODE_BASEURL=$SKERRY_SERVER/librechat/v1 timeout 300 node --test "$cache/librechat.test.mjs" || exit 1
echo "   @librechat/agents $version"
