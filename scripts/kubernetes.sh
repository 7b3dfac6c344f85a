#!/usr/bin/env bash
# A Kubernetes for tests: makes sure that one runs, builds the images of server, bridge and sandboxes, and gives them to its node.
#
#   scripts/kubernetes.sh             prints what to set: eval "$(scripts/kubernetes.sh)"
#   scripts/kubernetes.sh COMMAND…    runs the command with that
#
# A cluster that KUBECONFIG names is used as it is when SKERRY_K8S_IMPORT says that it is meant: the command that takes images, as docker save writes
# them, from its standard input. SKERRY_K8S_KILL, where there is one, is the command that kills a container on its node, whose id comes behind it. Without
# these scripts/cluster.sh gives a cluster on this machine; one that it had to start is gone after the command, and stays when there is none.
#
#   skerry/server:TAG, skerry/bridge:TAG, skerry/base:latest, skerry/redis-test:latest (a Redis of this machine), with TAG from
#   SKERRY_TEST_TAG, or test
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${KUBECONFIG:-}" ] || [ -z "${SKERRY_K8S_IMPORT:-}" ]; then
  [ -z "${KUBECONFIG:-}" ] || echo "  KUBECONFIG is not used: SKERRY_K8S_IMPORT is not set" >&2
  keep=()
  [ $# -gt 0 ] || keep=(--keep)
  exec scripts/cluster.sh "${keep[@]}" scripts/kubernetes.sh "$@"
fi
say() { printf '  %s\n' "$*" >&2; }
tag=${SKERRY_TEST_TAG:-test}

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
  VERSION=$tag images/programs.sh server bridge
  redis_image
  for image in "skerry/server:$tag" "skerry/bridge:$tag" skerry/base:latest skerry/redis-test:latest; do given "$image"; done
} >&2

export SKERRY_TEST_KUBECONFIG=$KUBECONFIG
[ $# -eq 0 ] || exec "$@"
for name in KUBECONFIG PATH SKERRY_K8S_IMPORT SKERRY_K8S_KILL SKERRY_TEST_KUBECONFIG; do
  [ -z "${!name:-}" ] || printf 'export %s=%q\n' "$name" "${!name}"
done
