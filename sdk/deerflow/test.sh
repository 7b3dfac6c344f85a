#!/usr/bin/env bash
# DeerFlow's own client code, at the commit below, against a server with deerflow.enabled, which scripts/clients.sh starts. The code is fetched
# into $SKERRY_CACHE, from the repository that SKERRY_DEERFLOW_REPOSITORY names, and is no part of this tree.
set -euo pipefail
cd "$(dirname "$0")"
: "${SKERRY_SERVER:?scripts/clients.sh starts a server}"
commit=f1f4af99bbf1cffb83a80744bf6e4a44ee8f24be # of 2026-08-22, towards 2.1.0
repository=${SKERRY_DEERFLOW_REPOSITORY:-https://github.com/bytedance/deer-flow.git}
cache=${SKERRY_CACHE:-/var/cache/skerry}/deerflow
mkdir -p "$cache"

if [ ! -d "$cache/$commit" ]; then
  fetched=$(mktemp -d "$cache/fetch-XXXXXX")
  trap 'rm -rf "$fetched"' EXIT
  git init -q "$fetched/git"
  timeout 300 git -C "$fetched/git" fetch -q --depth 1 "$repository" "$commit" || {
    echo "DeerFlow's code cannot be fetched from $repository: name another copy in SKERRY_DEERFLOW_REPOSITORY" >&2
    exit 1
  }
  mkdir "$fetched/tree"
  git -C "$fetched/git" archive "$commit" backend/packages/harness/deerflow | tar -x -C "$fetched/tree"
  mv -T "$fetched/tree" "$cache/$commit"
fi
if ! cmp -s requirements.txt "$cache/stamp"; then
  rm -rf "$cache/python"
  python3 -m venv "$cache/python"
  "$cache/python/bin/pip" install --quiet --disable-pip-version-check -r requirements.txt
  cp requirements.txt "$cache/stamp"
fi
log=$(mktemp)
DEERFLOW_SOURCE=$cache/$commit timeout 300 "$cache/python/bin/python" -W ignore client.py >"$log" 2>&1 || { cat "$log"; exit 1; }
printf '   DeerFlow %s: %s\n' "${commit:0:7}" "$(grep -E '^Ran ' "$log")"
rm -f "$log"
