#!/usr/bin/env bash
# The TypeScript client: its types, also against what the server publishes, and its tests in Node, bun and
# deno at the same time. scripts/clients.sh starts the server.
set -euo pipefail
cd "$(dirname "$0")"
: "${SKERRY_SERVER:?scripts/clients.sh starts a server}"
modules=${SKERRY_CACHE:-/var/cache/skerry}/clients/node_modules
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r package.json README.md tsconfig*.json src test conformance ../../docs/{typescript,packs,skill-tools}.md "$work/"
ln -s "$modules" "$work/node_modules"
cd "$work"
bin=$modules/.bin
# As users build and install it.
npm pack --silent >/dev/null
mkdir -p user/node_modules/@skerry
tar -xzf skerry-client-*.tgz -C user/node_modules/@skerry
mv user/node_modules/@skerry/package user/node_modules/@skerry/client
echo 'import { Skerry } from "@skerry/client"; import { skerryTools } from "@skerry/client/langchain"; import { skerryMiddleware } from "@skerry/client/langchain/middleware";
  const skerry = new Skerry({ server: "http://127.0.0.1" }); console.log(skerryTools(skerry).length, skerryMiddleware(skerry).name)' >user/main.mjs
[ "$(node user/main.mjs)" = "15 Skerry" ] || { echo "the package does not work as it is packed" >&2; exit 1; }
rm -rf dist user
curl -fsS "$SKERRY_SERVER/openapi.json" -o openapi.json
"$bin/openapi-typescript" openapi.json --default-non-nullable=false -o test/openapi.d.ts >/dev/null 2>&1
"$bin/tsc"
tests=(dist/test/direct.test.js dist/test/examples.test.js dist/test/packs.test.js dist/test/rules.test.js dist/test/server.test.js dist/test/skilltools.test.js)
pids=()
timeout 170 node --experimental-websocket --test "${tests[@]}" >node.log 2>&1 & pids+=("$!")
timeout 170 "$bin/bun" test --timeout 100000 "${tests[@]/#/./}" >bun.log 2>&1 & pids+=("$!")
NO_COLOR=1 timeout 170 "$bin/deno" test --allow-all --no-check "${tests[@]}" >deno.log 2>&1 & pids+=("$!")
failed=0
for runtime in node bun deno; do
  if wait "${pids[0]}"; then
    printf '   %-5s%s\n' "$runtime" "$(grep -E '^# pass|^ +[0-9]+ pass|passed \|' "$runtime.log" | tr -s ' #' ' ')"
  else
    cat "$runtime.log"
    failed=1
  fi
  pids=("${pids[@]:1}")
done
[ $failed = 0 ] || exit 1
here=$OLDPWD
(cd "$here/../.." && go test -count=1 -timeout 10m ./sdk/packs/conformance -provider "node $work/dist/conformance/provider.js")
