#!/usr/bin/env bash
# The tests of E2B's own SDKs, as their authors have them, against a server, which scripts/clients.sh starts:
#
#   scripts/clients.sh e2b/suites
#
# They come from GitHub, by commit and digest (sources.txt), once; they lie in $SKERRY_CACHE. SKERRY_E2B_SOURCES names a folder
# that has the Git repositories E2B and code-interpreter, for a machine without a way to GitHub. failing.txt lists the tests that do
# not pass, by reason: one that fails and is not there is an error, and so is one that is there and passes.
# SKERRY_E2B_SUITES chooses some of the suites: python, javascript, interpreter-python, interpreter-javascript.
set -euo pipefail
cd "$(dirname "$0")"
: "${SKERRY_SERVER:?scripts/clients.sh starts a server}"
here=$PWD
cache=${SKERRY_CACHE:-/var/cache/skerry}/e2b-suites
export E2B_API_URL=$SKERRY_SERVER E2B_SANDBOX_URL=$SKERRY_SERVER E2B_API_KEY=e2b_00
pnpm=10.34.5 # what both repositories name

# digest prints the digest of all files below this folder.
digest() { find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -d' ' -f1; }

# fetch NAME COMMIT DIGEST FOLDER puts the files of a commit into a folder that is not there yet.
fetch() {
  local name=$1 commit=$2 want=$3 to=$4 got own=${SKERRY_E2B_SOURCES:+$SKERRY_E2B_SOURCES/$1}
  rm -rf "$to.part"
  mkdir -p "$to.part"
  if [ -n "$own" ]; then
    git -C "$own" archive "$commit" | tar -x -C "$to.part" ||
      { echo "SKERRY_E2B_SOURCES: $own is no Git repository with commit $commit" >&2; return 1; }
  else
    curl -fsSL --max-time 120 "https://codeload.github.com/e2b-dev/$name/tar.gz/$commit" | tar -xz --strip-components=1 -C "$to.part" ||
      { echo "the tests of e2b-dev/$name cannot be had from GitHub: SKERRY_E2B_SOURCES may name a folder with a Git repository $name that has commit $commit" >&2; return 1; }
  fi
  got=$(cd "$to.part" && digest)
  [ "$got" = "$want" ] || { echo "e2b-dev/$name at $commit: the digest of its files is $got, want $want" >&2; return 1; }
  mv "$to.part" "$to"
}

# loudly LOG COMMAND… shows the output when the command fails.
loudly() { "${@:2}" >"$1" 2>&1 || { tail -n 40 "$1" >&2; return 1; }; }

# install puts what the tests need beside them: by the lock files of their authors, and by requirements.txt.
install() {
  local dir=$1
  python3 -m venv "$dir/python"
  loudly "$dir/pip.log" "$dir/python/bin/pip" install --disable-pip-version-check -r "$here/requirements.txt"
  loudly "$dir/npm.log" npm install --prefix "$dir/tools" --no-audit --no-fund --loglevel=error "pnpm@$pnpm"
  (cd "$dir/E2B" && loudly "$dir/pnpm.log" "$dir/tools/node_modules/.bin/pnpm" install --frozen-lockfile --ignore-scripts --config.engine-strict=false --filter e2b)
  (cd "$dir/code-interpreter" && loudly "$dir/pnpm.log" "$dir/tools/node_modules/.bin/pnpm" install --frozen-lockfile --ignore-scripts --config.engine-strict=false --filter @e2b/code-interpreter)
}

stamp=$( (cat sources.txt requirements.txt && echo "$pnpm") | sha256sum | cut -c1-16)
dir=$cache/$stamp
if [ ! -e "$dir/ready" ]; then
  rm -rf "$cache"
  mkdir -p "$dir"
  while read -r name commit want; do
    case $name in '' | '#'*) continue ;; esac
    fetch "$name" "$commit" "$want" "$dir/$name"
  done <sources.txt
  install "$dir"
  touch "$dir/ready"
fi

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
# The exit code of a suite says nothing: some of its tests fail. One that wrote no results is an error of compare.py.
python_suite() {
  (cd "$dir/$2" && timeout 1500 "$dir/python/bin/python" -m pytest -q -n 3 --timeout 60 -p no:cacheprovider --junitxml "$results/$1.xml" tests) >"$results/$1.log" 2>&1 || true
}
javascript_suite() {
  (cd "$dir/$2" && timeout 1500 node_modules/.bin/vitest run --reporter=junit --outputFile="$results/$1.xml" "${@:3}") >"$results/$1.log" 2>&1 || true
}
for suite in ${SKERRY_E2B_SUITES:-python javascript interpreter-python interpreter-javascript}; do
  case $suite in
  python) python_suite "$suite" E2B/packages/python-sdk ;;
  # Its tests in a browser want one.
  javascript) javascript_suite "$suite" E2B/packages/js-sdk --project unit --project template --project connectionConfig ;;
  interpreter-python) python_suite "$suite" code-interpreter/python ;;
  interpreter-javascript) javascript_suite "$suite" code-interpreter/js ;;
  *) echo "SKERRY_E2B_SUITES: what is \"$suite\"? There are python, javascript, interpreter-python, interpreter-javascript" >&2; exit 2 ;;
  esac
  [ -s "$results/$suite.xml" ] || { tail -n 40 "$results/$suite.log" >&2; exit 1; }
  [ -z "${SKERRY_E2B_RESULTS:-}" ] || cp "$results/$suite".{xml,log} "$SKERRY_E2B_RESULTS/"
done
python3 compare.py failing.txt "$results"/*.xml
