#!/usr/bin/env bash
# What is tested on a real cluster. scripts/kubernetes.sh gives it one: scripts/kubernetes.sh scripts/e2e-kubernetes.sh [all]
#
#   chart    helm install with two replicas, helm test, the demo, the network, a rolling upgrade under load, what is killed
#   attack   every attack from inside, in pods on runc and gVisor
#   driver   the driver's suite on runc, and what a sandbox reaches of a cluster on runc and gVisor; with "all", the suite on gVisor, too
#
# With "all" it is what `make e2e-kubernetes` runs, without it what CI does.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
: "${SKERRY_TEST_KUBECONFIG:?names no cluster: scripts/kubernetes.sh scripts/e2e-kubernetes.sh}"
less='^TestConformance$/^runsc$'
[ "${1:-}" != all ] || less='^$'
failed=0

# part NAME PACKAGE ARGUMENT… runs all parts, also after one that failed.
part() {
  local name=$1 package=$2 began=$SECONDS
  shift 2
  printf -- '-- %s\n' "$name"
  go test -race -count=1 -timeout 30m "$@" "$package" || failed=1
  printf -- '-- %s: %d s\n' "$name" $((SECONDS - began))
}

part chart ./internal/e2e/kubernetes
part attack ./internal/attack -run '^TestInside$/^kubernetes$'
part driver ./internal/driver/kubernetes -skip "$less"
exit $failed
