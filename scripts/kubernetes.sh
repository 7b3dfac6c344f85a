#!/usr/bin/env bash
# A Kubernetes for tests: makes sure that one runs, builds the images of server, bridge and sandboxes, and gives them to its node.
#
#   scripts/kubernetes.sh             prints what to set: eval "$(scripts/kubernetes.sh)"
#   scripts/kubernetes.sh COMMAND…    runs the command with that
#
# A cluster that KUBECONFIG names is used as it is: SKERRY_K8S_IMPORT is the command that takes images, as docker save writes them, from its
# standard input. Without KUBECONFIG it starts the cluster of one node in ${SKERRY_K8S:-../shared/k8s}, which needs root; one that
# runs is left as it is.
#
#   skerry/server:test, skerry/bridge:test, skerry/base:latest, skerry/redis-test:latest (a Redis of this machine)
set -euo pipefail
cd "$(dirname "$0")/.."
say() { printf '  %s\n' "$*" >&2; }

if [ -z "${KUBECONFIG:-}" ]; then
  cluster=$(cd "${SKERRY_K8S:-../shared/k8s}" 2>/dev/null && pwd) || { echo "scripts/kubernetes.sh: no cluster: set KUBECONFIG and SKERRY_K8S_IMPORT, or SKERRY_K8S to the folder of one" >&2; exit 1; }
  "$cluster/up.sh" >&2
  state=${K8S_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/k8s-node}
  export KUBECONFIG=$state/kubeconfig PATH=${K8S_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/k8s-node}/bin:$PATH
  SKERRY_K8S_IMPORT="ctr --address $state/containerd.sock --namespace k8s.io images import -"
fi
: "${SKERRY_K8S_IMPORT:?is the command that takes images from standard input}"
export SKERRY_K8S_IMPORT

# The Redis of the tests, from this machine's own: a registry may be out of reach.
redis_image() {
  ! docker image inspect skerry/redis-test:latest >/dev/null 2>&1 || return 0
  local root file
  root=$(mktemp -d)
  mkdir -m 1777 "$root/tmp"
  for file in $(type -P redis-server) $(ldd "$(type -P redis-server)" | grep -o '/[^ ]*'); do install -D "$file" "$root$file"; done
  tar -C "$root" -c . | docker import --change 'ENV PATH=/usr/bin:/bin' - skerry/redis-test:latest >/dev/null
  rm -rf "$root"
}

# given IMAGE gives an image to the node, when it is another one than it has.
given() {
  local id stamp=${XDG_STATE_HOME:-$HOME/.local/state}/skerry-kubernetes
  id="$(docker image inspect --format '{{.Id}}' "$1") of $(kubectl get namespace kube-system -o 'jsonpath={.metadata.uid}')"
  mkdir -p "$stamp"
  [ "$(cat "$stamp/${1//\//_}" 2>/dev/null)" != "$id" ] || return 0
  say "giving $1 to the node"
  docker save "$1" | $SKERRY_K8S_IMPORT >/dev/null
  echo "$id" >"$stamp/${1//\//_}"
}

{
  images/build.sh base
  VERSION="test" images/programs.sh server bridge
  redis_image
  for image in skerry/server:test skerry/bridge:test skerry/base:latest skerry/redis-test:latest; do given "$image"; done
} >&2

[ $# -eq 0 ] || exec "$@"
printf 'export KUBECONFIG=%q PATH=%q\n' "$KUBECONFIG" "$PATH"
