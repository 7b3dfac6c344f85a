#!/usr/bin/env bash
# Builds the web console (console/) into internal/api/console/dist, from where go puts it into bin/skerry. It does so only when
# what it is made of has changed: a digest in dist says of what it was made. Without npm it says so, and exits with 1: `make
# build` goes on, and the binary has no console.
set -euo pipefail
cd "$(dirname "$0")/.."
export SKERRY_CACHE=${SKERRY_CACHE:-/var/cache/skerry}
dist=$PWD/internal/api/console/dist

inputs=$(git ls-files -co --exclude-standard -- console ':!console/test' sdk/typescript/src 2>/dev/null) || inputs=$(find console sdk/typescript/src -type f -not -path '*/node_modules/*' -not -path 'console/test/*' | sort)
# A file that is listed and deleted counts by its absence.
digest=$(while read -r f; do [ ! -f "$f" ] || sha256sum "$f"; done <<<"$inputs" | sha256sum | cut -d ' ' -f 1)
[ "$(cat "$dist/.inputs" 2>/dev/null)" != "$digest" ] || exit 0

refuse() { echo "  the web console is not built: $*. Without it, /ui says how to build it; all else works" >&2; exit 1; }
for program in node npm; do
  type -P $program >/dev/null || refuse "$program is missing (Node 20.19 or newer)"
done
node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 && a != 21 || a == 20 && b >= 19 ? 0 : 1)' || refuse "it takes Node 20.19 or newer, and this is $(node --version)"
scripts/install.sh console || refuse "its packages cannot be installed"

echo "  building the web console"
# node looks for packages beside what imports them.
ln -sfn "$SKERRY_CACHE/console/node_modules" console/node_modules
log=$(mktemp)
trap 'rm -f "$log"; mkdir -p "$dist"; touch "$dist/.gitkeep"' EXIT
(cd console && node_modules/.bin/tsc --noEmit && node_modules/.bin/vite build) >"$log" 2>&1 || { cat "$log" >&2; refuse "its build failed"; }
echo "$digest" >"$dist/.inputs"
