#!/usr/bin/env bash
# Builds the images that have our own programs and nothing else, without a container registry:
#
#   images/programs.sh [NAME…]     server, bridge; without any, both
#
#   server  the server on Kubernetes: no shell, no interpreter. Stdio MCP servers run in sandboxes, whose images have
#           what they need, and HTTP ones elsewhere
#   bridge  what the driver kubernetes puts into every pod of a sandbox
#
# The targets of the same names in the Dockerfile make the same. Leaves the images skerry/NAME:${VERSION:-latest} in the
# docker daemon; an image with the same programs is left alone. Needs root or sudo, and images/build.sh base once: its
# certificates of authorities are the server's.
set -euo pipefail
[ "$(id -u)" = 0 ] || exec sudo -E env "PATH=$PATH" "$0" "$@"
umask 022
here=$(cd "$(dirname "$0")" && pwd)
authorities=${SKERRY_CACHE:-/var/cache/skerry}/images/base/rootfs/etc/ssl/certs/ca-certificates.crt
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

# contents NAME fills root, and says in changes what a container of the image does.
contents() {
  case $1 in
  server)
    [ -f "$authorities" ] || { echo "images/programs.sh: $authorities is missing; build it: images/build.sh base" >&2; exit 1; }
    install -D -m 0755 -t "$root/usr/local/bin" "$here/../bin/skerry" "$here/../bin/skerry-sandboxd"
    install -D -m 0644 "$authorities" "$root/etc/ssl/certs/ca-certificates.crt"
    install -d -m 1777 "$root/tmp"
    changes=('ENV PATH=/usr/local/bin' 'ENTRYPOINT ["/usr/local/bin/skerry"]' 'CMD ["serve"]')
    ;;
  bridge)
    install -m 0755 "$here/../bin/skerry-bridge" "$here/../bin/skerry-sandboxd" "$root/"
    changes=('ENTRYPOINT ["/skerry-bridge"]' 'USER 65534:65534')
    ;;
  *) echo "images/programs.sh: there is no image $1, but server and bridge" >&2; exit 2 ;;
  esac
  chmod 0755 "$root"
}

# build NAME makes an image, when its programs are others by now.
build() {
  local image=skerry/$1:${VERSION:-latest} root=$stage/$1 changes=() stamp
  mkdir "$root"
  contents "$1"
  stamp=$({ (cd "$root" && find . -type f -exec sha256sum {} + | sort); printf '%s\n' "${changes[@]}"; } | sha256sum | cut -c1-32)
  [ "$(docker image inspect --format '{{index .Config.Labels "io.skerry.stamp"}}' "$image" 2>/dev/null)" != "$stamp" ] || return 0
  tar -C "$root" --numeric-owner --sort=name --mtime=@0 -c . |
    docker import "${changes[@]/#/--change=}" --change "LABEL io.skerry.stamp=$stamp" - "$image" >/dev/null
  printf '  image %s, %d MB\n' "$image" "$(du -sm "$root" | cut -f1)"
}

make -s -C "$here/.." build
[ $# -gt 0 ] || set -- server bridge
for image in "$@"; do build "$image"; done
