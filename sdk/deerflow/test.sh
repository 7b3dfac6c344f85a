#!/usr/bin/env bash
# DeerFlow against a server with deerflow.enabled, which scripts/clients.sh starts. Its makers publish its code in no package registry, so there are two ways:
#
#   * recorded.json, always: requests that DeerFlow's own client code made, at the commit below, and what it read of the answers.
#   * that code itself, when SKERRY_DEERFLOW_REPOSITORY names a copy of its repository (such as https://github.com/bytedance/deer-flow.git).
#     It is fetched into $SKERRY_CACHE and is no part of this tree. SKERRY_DEERFLOW_RECORD=1 makes recorded.json anew from that run.
set -euo pipefail
cd "$(dirname "$0")"
: "${SKERRY_SERVER:?scripts/clients.sh starts a server}"
commit=f1f4af99bbf1cffb83a80744bf6e4a44ee8f24be # of 2026-08-22, towards 2.1.0
cache=${SKERRY_CACHE:-/var/cache/skerry}/deerflow
mkdir -p "$cache"
export DEERFLOW_COMMIT=$commit

if ! cmp -s requirements.txt "$cache/stamp"; then
  rm -rf "$cache/python"
  python3 -m venv "$cache/python"
  "$cache/python/bin/pip" install --quiet --disable-pip-version-check -r requirements.txt
  cp requirements.txt "$cache/stamp"
fi
log=$(mktemp)
trap 'rm -rf "$log" ${fetched:+"$fetched"}' EXIT

if [ -n "${SKERRY_DEERFLOW_REPOSITORY:-}" ]; then
  if [ ! -d "$cache/$commit" ]; then
    fetched=$(mktemp -d "$cache/fetch-XXXXXX")
    git init -q "$fetched/git"
    timeout 300 git -C "$fetched/git" fetch -q --depth 1 "$SKERRY_DEERFLOW_REPOSITORY" "$commit" || {
      echo "DeerFlow's code cannot be fetched from SKERRY_DEERFLOW_REPOSITORY ($SKERRY_DEERFLOW_REPOSITORY)" >&2
      exit 1
    }
    mkdir "$fetched/tree"
    git -C "$fetched/git" archive "$commit" backend/packages/harness/deerflow | tar -x -C "$fetched/tree"
    mv -T "$fetched/tree" "$cache/$commit"
  fi
  DEERFLOW_SOURCE=$cache/$commit timeout 300 "$cache/python/bin/python" -B -W ignore client.py >"$log" 2>&1 || { cat "$log"; exit 1; }
  printf '   DeerFlow %s, its own client code: %s\n' "${commit:0:7}" "$(grep -E '^Ran ' "$log")"
elif [ -n "${SKERRY_DEERFLOW_RECORD:-}" ]; then
  echo "SKERRY_DEERFLOW_RECORD needs DeerFlow's code: name a copy of its repository in SKERRY_DEERFLOW_REPOSITORY" >&2
  exit 1
fi
timeout 300 "$cache/python/bin/python" -B -W ignore replay.py >"$log" 2>&1 || { cat "$log"; exit 1; }
printf '   DeerFlow %s, %d of its requests as recorded: %s\n' "${commit:0:7}" "$(grep -c '"test"' recorded.json)" "$(grep -E '^Ran ' "$log")"
[ -n "${SKERRY_DEERFLOW_REPOSITORY:-}" ] || echo "   DeerFlow's own client code was not run: SKERRY_DEERFLOW_REPOSITORY names no copy of it"
