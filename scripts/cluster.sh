#!/usr/bin/env bash
# Runs a command with a Kubernetes of one node on this machine, which needs root:
#
#   scripts/cluster.sh COMMAND…         with KUBECONFIG, a PATH that has kubectl and helm, SKERRY_K8S_IMPORT and SKERRY_K8S_KILL
#   scripts/cluster.sh --keep COMMAND…  the same, and the cluster stays
#   scripts/cluster.sh --programs       only makes the programs that it consists of: ten minutes on two cores, or nothing when they are there
#
# The cluster is made by build.sh, up.sh and down.sh of the folder ${SKERRY_K8S:-test/cluster}. One that runs already is used and left as
# it is. One that was started here is taken down by the last command that uses it, whatever becomes of that.
#
#   K8S_CACHE         the programs; default: ~/.cache/k8s-node when they are there, else $SKERRY_CACHE/k8s-node
#   K8S_STATE         the cluster that runs; default: ~/.local/state/k8s-node
#   SKERRY_K8S_TIME   seconds that one try to start it may take; default 2400, for the first build
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$(cd "$root" && cd "${SKERRY_K8S:-test/cluster}" 2>/dev/null && pwd) ||
  { echo "scripts/cluster.sh: no cluster: set SKERRY_K8S to a folder with up.sh and down.sh, or KUBECONFIG and SKERRY_K8S_IMPORT to use one that runs elsewhere" >&2; exit 1; }
export K8S_STATE=${K8S_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/k8s-node}
home=${XDG_CACHE_HOME:-$HOME/.cache}/k8s-node
if [ -z "${K8S_CACHE:-}" ]; then
  K8S_CACHE=$home
  [ -e "$home/stamp" ] || [ -z "${SKERRY_CACHE:-}" ] || K8S_CACHE=$SKERRY_CACHE/k8s-node
fi
export K8S_CACHE
time=${SKERRY_K8S_TIME:-2400}
began=$SECONDS
say() { printf '  cluster: [%ds] %s\n' $((SECONDS - began)) "$*" >&2; }

if [ "${1:-}" = --programs ]; then
  mkdir -p "$K8S_CACHE"
  flock "$K8S_CACHE/.building" timeout --kill-after=10 "$time" "$folder/build.sh" # two at once take each other's sources away
  exit
fi
keep=
if [ "${1:-}" = --keep ]; then keep=yes && shift; fi
[ $# -gt 0 ] || { echo "scripts/cluster.sh: name the command to run" >&2; exit 2; }

# Who starts or ends the cluster holds "turn"; who uses it holds "users" with others. No process of the cluster inherits them.
locks=$K8S_STATE.skerry
mkdir -p "$locks"
exec 8>"$locks/turn" 9>"$locks/users"
own() { "$@" 8>&- 9>&-; }

ready() { own env "PATH=$K8S_CACHE/bin:$PATH" kubectl --kubeconfig "$K8S_STATE/kubeconfig" --request-timeout=10s get --raw /readyz >/dev/null 2>&1; }
# There is a process of a cluster, be it well or not.
running() { local pid; read -r pid _ 2>/dev/null <"$K8S_STATE/node.pid" && [ -e "/proc/$pid" ]; }

# One that is busy may not answer at once: up.sh would take it for a dead one.
wait_for_running() {
  local until=$((SECONDS + ${SKERRY_K8S_BUSY:-120}))
  while running && [ $SECONDS -lt $until ]; do
    ready && return 0
    sleep 2
  done
  return 1
}

logs() {
  local log
  for log in "$K8S_STATE"/log/*.log; do
    [ ! -s "$log" ] || { echo "--- $(basename "$log")"; tail -n 15 "$log" | cut -c1-400; } >&2
  done
}

bring_up() {
  local try code
  if wait_for_running; then
    say "one runs already"
    return
  fi
  flock -n -x 9 || { say "the one that others use does not answer" && return 1; }
  flock -u 9
  rm -f "$locks/started"
  for try in 1 2 3; do
    say "starts (try $try of 3, $time s at most; the first time it is built, for ten minutes or more)"
    code=0
    own timeout --kill-after=10 "$time" "$folder/up.sh" > >(own sed -u 's/^/  cluster: /' >&2) 2>&1 || code=$?
    if [ $code = 0 ] && ready; then
      say "runs"
      [ -n "$keep" ] || touch "$locks/started"
      return
    fi
    say "did not start (exit code $code)"
    logs
    own timeout --kill-after=10 120 "$folder/down.sh" >&2 || say "down.sh failed, too"
  done
  return 1
}

child=
# shellcheck disable=SC2317 # called by the trap
finish() {
  local code=$?
  trap '' INT TERM
  [ -z "$child" ] || kill -TERM "$child" 2>/dev/null || true
  flock -u 9
  if flock -w 300 8 && [ -e "$locks/started" ] && flock -n -x 9; then
    own timeout --kill-after=10 120 "$folder/down.sh" >&2 || code=1
    rm -f "$locks/started"
  fi
  exit "$code"
}

flock -w "$time" 8 || { say "another one starts or ends it all the time" && exit 1; }
bring_up || { echo "scripts/cluster.sh: no cluster after three tries: what its parts said stands above" >&2; exit 1; }
[ -z "$keep" ] || rm -f "$locks/started"
flock -s 9
trap finish EXIT
trap 'exit 143' INT TERM
flock -u 8

export KUBECONFIG=$K8S_STATE/kubeconfig PATH=$K8S_CACHE/bin:$PATH
ctr="ctr --address $K8S_STATE/containerd.sock --namespace k8s.io"
export SKERRY_K8S_IMPORT="$ctr images import -" SKERRY_K8S_KILL="$ctr tasks kill --signal SIGKILL"
"$@" 8>&- 9>&- <&0 &
child=$!
code=0
wait $child || code=$?
child=
exit "$code"
