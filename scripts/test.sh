#!/usr/bin/env bash
# What `make test` runs: everything, with real parts. Tiers that need no quiet machine run side by
# side; each has a log of its own, which is shown whole when the tier fails.
#
#   check   scripts/check.sh
#   images  the images of the templates data and office, which only the last tier needs (2 minutes, or nothing when they are there)
#   unit    go test -race of all packages that need no container
#   copies  go test -race of the orchestrator again, with sandboxes that do not see the server's disk
#   drivers go test -race of what starts sandboxes: Docker, containerd, runc, gVisor
#   system  go test -race of the whole system, with Redis and MCP servers
#   python  the Python client and its adapters: types, lint, tests with a real server
#   clients the clients for TypeScript and Go, those of MCP, of E2B and of DeerFlow, against a server: scripts/clients.sh
#   attack  go test -race of the attacks
#   cluster the programs of the Kubernetes that the last tier starts (10 minutes, or nothing when they are there)
#   chaos   two minutes in which servers, sandboxes, Redis and dockerd are killed at random
#   kubernetes  on a real cluster: the Helm chart, the attacks in pods, the driver's suite: scripts/e2e-kubernetes.sh
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
# Sandboxes get uids and mounts of their own: the tests run as root.
[ "$(id -u)" = 0 ] || exec sudo -EH env "PATH=$PATH" "$0" "$@"
export SKERRY_CACHE=${SKERRY_CACHE:-/var/cache/skerry}
# A clone that belongs to somebody else has no version that git would tell.
export GOFLAGS=${GOFLAGS:--buildvcs=false}
logs=$(mktemp -d)
trap 'kill "$beat" 2>/dev/null; rm -rf "$logs"' EXIT
began=$SECONDS
failed=0

at() { printf '[%4ds]' $((SECONDS - began)); }

# tier NAME COMMAND… leaves the output in NAME, and the exit code in NAME.code once it has ended.
tier() {
  local name=$1 code=0
  shift
  "$@" >"$logs/$name" 2>&1 </dev/null || code=$?
  echo "$code" >"$logs/$name.code"
}

# show NAME says how a tier ended: one line a package, or all of it when it failed.
show() {
  local code
  code=$(cat "$logs/$1.code" 2>/dev/null || echo 1)
  if [ "$code" = 0 ]; then
    printf '== %s %s: ok\n' "$(at)" "$1"
    grep -E '^(ok  |--|==|chaos:|  \[.*done in|  [a-z][a-z :,]+ [0-9[])' "$logs/$1"
  else
    printf '== %s %s: FAILED\n' "$(at)" "$1"
    grep -v 'no test files' "$logs/$1" | tail -3000
    failed=1
  fi
}

# heartbeat says twice a minute how far the tiers are.
heartbeat() {
  local log line
  while sleep 30 >/dev/null 2>&1; do
    line=
    for log in "$logs"/*; do
      case $log in *.code) continue ;; esac
      [ -e "$log.code" ] || line+=" $(basename "$log"): $(grep -cE '^(ok  |FAIL	)' "$log") packages $(grep -E '^-- ' "$log" | tail -1);"
    done
    [ -z "$line" ] || printf '   %s%s\n' "$(at)" "$line"
  done
}

prepare_engine() { scripts/install.sh runsc containerd && scripts/dockerd.sh; }
prepare_parts() { scripts/install.sh images mcp mcp-many s3 helm python-sdk clients e2b && images/build.sh base; }

scripts/install.sh run test || exit 1
prepare_parts &
parts=$!
prepare_engine || exit 1
wait $parts || exit 1

# Not `mapfile < <(go list)`: a package that does not load must not end as one that is not tested.
packages=$(go list ./...) || exit 1
drivers='/internal/(driver|tools/servers)(/|$)'
system='/internal/e2e(/|$)'
attack='/internal/attack(/|$)'
mapfile -t quick < <(grep -vE "$drivers|$system|$attack" <<<"$packages")
of() { grep -E "$1" <<<"$packages"; }

heartbeat &
beat=$!
tier check scripts/check.sh &
check=$!
tier images images/build.sh data office &
images=$!
# A cluster that the caller names brings its own programs.
# shellcheck disable=SC2317 # called by tier
programs() { [ -n "${SKERRY_K8S_IMPORT:-}" ] || scripts/cluster.sh --programs; }
tier cluster programs &
cluster=$!
tier unit go test -race -timeout 15m "${quick[@]}" &
unit=$!
wait $unit
show unit
wait $images
show images
wait $cluster
show cluster
# -count=1: go does not see that a test asks for this variable, and would show the result of the other run.
tier copies env SKERRY_TEST_REMOTE=1 go test -race -count=1 -timeout 15m ./internal/orchestrator
show copies
# Containers and clocks: after the tests that keep both cores busy, and one package at a time, because
# the suite of the drivers wants an end to be told within a second. The others have time.
# shellcheck disable=SC2046 # names of packages have no spaces
tier drivers go test -race -p 1 -timeout 30m $(of "$drivers")
show drivers
# shellcheck disable=SC2046 # the same
{
  tier python sdk/python/test.sh
  tier clients scripts/clients.sh
  tier attack go test -race -p 1 -timeout 30m $(of "$attack")
  tier chaos make chaos CHAOS="-driver docker -duration 2m"
} &
harm=$!
# shellcheck disable=SC2046 # names of packages have no spaces
tier system go test -race -p 1 -timeout 40m $(of "$system")
show system
wait $harm
show python
show clients
show attack
show chaos
# Alone: it measures how soon a killed sandbox is missed, and a cluster of one node keeps a core busy.
tier kubernetes scripts/kubernetes.sh scripts/e2e-kubernetes.sh
show kubernetes
wait $check
show check
printf '== %s in %d s\n' "$([ $failed = 0 ] && echo 'all tiers passed' || echo 'FAILED')" $((SECONDS - began))
exit $failed
