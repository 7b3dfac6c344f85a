#!/usr/bin/env bash
# Builds the image of the template "base" without a container registry: Debian packages by
# mmdebstrap, the JavaScript runtimes from npm. images/base/Dockerfile makes the same with one.
#
#   images/base/build.sh [OUT]     default OUT: ${SKERRY_CACHE:-/var/cache/skerry}/images/base
#
# Leaves OUT/rootfs (what the oci driver uses) and, where a docker daemon answers, the image
# skerry/base:latest. A second run with the same inputs does nothing. Needs root or sudo.
set -euo pipefail
[ "$(id -u)" = 0 ] || exec sudo -E env "PATH=$PATH" "$0" "$@"
umask 022
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-${SKERRY_CACHE:-/var/cache/skerry}/images/base}
image=skerry/base:latest
# shellcheck source=images/base/packages.sh
. "$here/packages.sh"

began=$SECONDS
say() { printf '  [%3ds] %s\n' $((SECONDS - began)) "$*"; }
docker_answers() { command -v docker >/dev/null && timeout 10 docker info >/dev/null 2>&1; }

stamp=$(cat "$here/build.sh" "$here/packages.sh" | sha256sum | cut -c1-32)
mkdir -p "$out"
exec 9>"$out/.lock"
flock 9

if [ "$(cat "$out/stamp" 2>/dev/null)" != "$stamp" ]; then
  stage=$(mktemp -d "$out/.stage-XXXXXX")
  trap 'rm -rf "$stage"' EXIT
  say "base image: Debian bookworm and ${#packages[@]} packages (about 40 s)"
  mmdebstrap --quiet --mode=root --variant=minbase --include="$(IFS=,; echo "${packages[*]}")" \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/info/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    bookworm "$stage/rootfs" >"$out/build.log" 2>&1 || { tail -20 "$out/build.log" >&2; exit 1; }
  say "JavaScript runtimes from npm: ${runtimes[*]} (about 20 s)"
  mkdir "$stage/npm"
  npm install --prefix "$stage/npm" --no-save --ignore-scripts --no-package-lock --force "${runtimes[@]}" >>"$out/build.log" 2>&1 ||
    { tail -20 "$out/build.log" >&2; exit 1; }
  for path in "${binaries[@]}"; do
    install -m 0755 "$stage/npm/node_modules/$path" "$stage/rootfs/usr/local/bin/$(basename "$path")"
  done
  say "stripping what no sandbox needs"
  root=$stage/rootfs
  rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/var/log/* "$root"/etc/apt/apt.conf.d/* \
    "$root"/tmp/* "$root"/root/.[!.]* "$root"/etc/hostname "$root"/etc/machine-id
  : >"$root/etc/resolv.conf"
  # Nothing in the image may raise privileges; no-new-privileges would stop it, this is the second lock.
  find "$root" -xdev -perm /6000 -type f -exec chmod a-s {} +
  for dir in mnt/user-data mnt/skills mnt/plugins mnt/code-api home/agent run/skerry opt/skerry; do mkdir -p "$root/$dir"; done
  : >"$root/opt/skerry/skerry-sandboxd"
  chmod 0755 "$root"
  # A sandbox that runs keeps the tree it was started from, under whatever name: trees that none
  # uses any more are taken away, now or by a later build.
  rm -f "$out/stamp"
  [ ! -e "$out/rootfs" ] || mv "$out/rootfs" "$(mktemp -d "$out/.old-XXXXXX")/rootfs"
  mv "$root" "$out/rootfs"
  echo "$stamp" >"$out/stamp"
  for old in "$out"/.old-*; do
    [ ! -d "$old" ] || grep -qsF "${old##*/}" /proc/[0-9]*/mountinfo || rm -rf "$old"
  done
  say "unpacked in $out/rootfs, $(du -sm "$out/rootfs" | cut -f1) MB"
fi

if docker_answers && [ "$(docker image inspect --format '{{index .Config.Labels "io.skerry.stamp"}}' $image 2>/dev/null)" != "$stamp" ]; then
  say "docker image $image (about 20 s)"
  old=$(docker image inspect --format '{{.Id}}' $image 2>/dev/null || true)
  tar -C "$out/rootfs" --numeric-owner -c . | docker import \
    --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' --change 'ENV LANG=C.UTF-8' \
    --change "LABEL io.skerry.stamp=$stamp" - $image >/dev/null
  # Refused while a sandbox runs on it.
  [ -z "$old" ] || docker image rm "$old" >/dev/null 2>&1 || true
fi
[ $((SECONDS - began)) -lt 2 ] || say "done"
