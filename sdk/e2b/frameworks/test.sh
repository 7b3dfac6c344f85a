#!/usr/bin/env bash
# Frameworks for agents, unmodified, in a sandbox of "E2B", which is a server that scripts/clients.sh starts:
#
#   scripts/clients.sh e2b/frameworks
#
# LangChain runs its own standard tests. The tests of the others do what their pages show: none ships tests of its own that want
# no E2B account. They come from PyPI and npm, by requirements.txt and package-lock.json, once, and lie in $SKERRY_CACHE.
# failing.txt lists the tests that do not pass, by reason: one that fails and is not there is an error, and so is one that is
# there and passes. SKERRY_E2B_FRAMEWORKS chooses some: python, javascript.
set -euo pipefail
cd "$(dirname "$0")"
: "${SKERRY_SERVER:?scripts/clients.sh starts a server}"
cache=${SKERRY_CACHE:-/var/cache/skerry}/e2b-frameworks
export E2B_API_URL=$SKERRY_SERVER E2B_SANDBOX_URL=$SKERRY_SERVER E2B_API_KEY=e2b_00
export AGNO_TELEMETRY=false MASTRA_TELEMETRY_DISABLED=1 OPENAI_AGENTS_DISABLE_TRACING=1 HF_HUB_OFFLINE=1

# loudly LOG COMMAND… shows the output when the command fails.
loudly() { "${@:2}" >"$1" 2>&1 || { tail -n 40 "$1" >&2; return 1; }; }

stamp=$(cat requirements.txt package.json package-lock.json | sha256sum | cut -c1-16)
dir=$cache/$stamp
if [ ! -e "$dir/ready" ]; then
  rm -rf "$cache"
  mkdir -p "$dir"
  python3 -m venv "$dir/python"
  loudly "$dir/pip.log" "$dir/python/bin/pip" install --disable-pip-version-check -r requirements.txt
  cp package.json package-lock.json "$dir/"
  loudly "$dir/npm.log" npm ci --prefix "$dir" --ignore-scripts --no-audit --no-fund --loglevel=error
  touch "$dir/ready"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp ./*.py ./*.mjs pytest.ini "$work/"
ln -s "$dir/node_modules" "$work/node_modules"
# Its exit code says nothing: some of the tests fail. One that wrote no results is an error of compare.py.
for suite in ${SKERRY_E2B_FRAMEWORKS:-python javascript}; do
  case $suite in
  python) (cd "$work" && timeout 900 "$dir/python/bin/python" -m pytest -q --timeout 120 -p no:cacheprovider --junitxml "$suite.xml") >"$work/$suite.log" 2>&1 || true ;;
  javascript) (cd "$work" && timeout 600 node --test --test-timeout 120000 --test-reporter junit --test-reporter-destination "$suite.xml" frameworks.test.mjs) >"$work/$suite.log" 2>&1 || true ;;
  *) echo "SKERRY_E2B_FRAMEWORKS: what is \"$suite\"? There are python, javascript" >&2; exit 2 ;;
  esac
  [ -s "$work/$suite.xml" ] || { tail -n 40 "$work/$suite.log" >&2; exit 1; }
  [ -z "${SKERRY_E2B_RESULTS:-}" ] || cp "$work/$suite".{xml,log} "$SKERRY_E2B_RESULTS/"
done
python3 ../suites/compare.py failing.txt "$work"/*.xml
