#!/usr/bin/env bash
# Builds the images of the built-in templates without a container registry: a bare Debian by mmdebstrap, then what
# each image's Dockerfile does, by the same scripts.
#
#   images/build.sh [NAME…]     base, browser, data, office; without any, base. Those that they are built on come first.
#
# Leaves ${SKERRY_CACHE:-/var/cache/skerry}/images/NAME/rootfs (what the drivers oci and containerd use) and, where a
# docker daemon answers, the image skerry/NAME:latest. A second run with the same inputs does nothing. Needs root or sudo.
set -euo pipefail
[ "$(id -u)" = 0 ] || exec sudo -E env "PATH=$PATH" "$0" "$@"
umask 022
here=$(cd "$(dirname "$0")" && pwd)
cache=${SKERRY_CACHE:-/var/cache/skerry}/images
began=$SECONDS
stage=
trap '[ -z "$stage" ] || rm -rf "$stage"' EXIT

say() { printf '  [%3ds] %s\n' $((SECONDS - began)) "$*"; }
docker_answers() { command -v docker >/dev/null && timeout 10 docker info >/dev/null 2>&1; }
below() { [ "$1" = base ] || echo base; }

# stamp NAME: a hash of all that the image is made of.
stamp() {
  local parent
  parent=$(below "$1")
  {
    [ -z "$parent" ] || stamp "$parent"
    cat "$here"/{build,fetch,install}.sh "$here/$1/packages.sh"
    for f in "$here/$1"/{finish.sh,requirements.txt,package-lock.json}; do [ ! -f "$f" ] || cat "$f"; done
  } | sha256sum | cut -c1-32
}

# loudly TEXT COMMAND… says what begins, and every half minute that it goes on; the output is shown when it fails.
loudly() {
  local text=$1 log=$out/build.log beat code=0
  shift
  say "$text"
  (while sleep 30; do say "  … $(tail -n 1 "$log" | tr -d '\r' | cut -c1-100)"; done) &
  beat=$!
  "$@" >>"$log" 2>&1 </dev/null || code=$?
  { kill "$beat" && wait "$beat"; } 2>/dev/null || true
  [ "$code" = 0 ] || { tail -n 20 "$log" >&2; exit 1; }
}

# inside ROOT COMMAND… runs a command in a root file system, in mounts of its own, which end with it.
inside() {
  local root=$1
  shift
  # shellcheck disable=SC2016 # the inner shell expands it
  unshare --mount --pid --fork --kill-child --propagation private bash -euc '
    root=$1 images=$2
    shift 2
    mkdir -p "$root/run/images"
    mount --bind -o ro "$images" "$root/run/images"
    mount -t proc proc "$root/proc"
    mount -t tmpfs tmpfs "$root/dev"
    mkdir "$root/dev/pts" "$root/dev/shm"
    for device in null zero full random urandom tty; do : >"$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"; done
    ln -s /proc/self/fd "$root/dev/fd"
    exec chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
      ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} "$@"
  ' bash "$root" "$here" "$@" || return # loudly turns errexit off
  rmdir "$root/run/images"
}

# below_tree NAME ROOT makes the root file system that the image is built on.
below_tree() {
  local parent
  parent=$(below "$1")
  if [ -n "$parent" ]; then
    loudly "copying $parent" cp -a --reflink=auto "$cache/$parent/rootfs" "$2"
  else
    loudly "a bare Debian bookworm (about 20 s)" mmdebstrap --quiet --mode=root --variant=minbase --include=ca-certificates bookworm "$2"
    rm -rf "$2"/etc/apt/apt.conf.d/* "$2"/etc/hostname "$2"/etc/machine-id
  fi
}

# make NAME STAMP builds the root file system and puts it in its place.
make() {
  local name=$1 root old
  stage=$(mktemp -d "$out/.stage-XXXXXX")
  root=$stage/rootfs
  : >"$out/build.log"
  loudly "what is from npm and PyPI" "$here/fetch.sh" "$name" "$stage/fetched"
  below_tree "$name" "$root"
  cp -a "$stage/fetched/." "$root/"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  loudly "Debian's packages, and what belongs to them" inside "$root" /run/images/install.sh "$name"
  : >"$root/etc/resolv.conf"
  chmod 0755 "$root"
  # A sandbox that runs keeps the tree it was started from. A bind mount names it as it is called now, an overlay as
  # it was called then: while any names the place, no old tree is taken away, but by a later build.
  rm -f "$out/stamp"
  [ ! -e "$out/rootfs" ] || mv "$out/rootfs" "$(mktemp -d "$out/.old-XXXXXX")/rootfs"
  mv "$root" "$out/rootfs"
  echo "$2" >"$out/stamp"
  for old in "$out"/.old-*; do
    [ ! -d "$old" ] || grep -qsF -e "${old##*/}" -e "$out/rootfs" /proc/[0-9]*/mountinfo || rm -rf "$old"
  done
  rm -rf "$stage"
  stage=
  say "unpacked in $out/rootfs, $(du -sm "$out/rootfs" | cut -f1) MB"
}

# hand_over NAME STAMP gives the image to the docker daemon, where there is one.
hand_over() {
  local image=skerry/$1:latest old
  if ! docker_answers || [ "$(docker image inspect --format '{{index .Config.Labels "io.skerry.stamp"}}' "$image" 2>/dev/null)" = "$2" ]; then
    return 0
  fi
  say "docker image $image"
  old=$(docker image inspect --format '{{.Id}}' "$image" 2>/dev/null || true)
  tar -C "$out/rootfs" --numeric-owner -c . | docker import \
    --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' --change 'ENV LANG=C.UTF-8' \
    --change "LABEL io.skerry.stamp=$2" - "$image" >/dev/null
  # Refused while a sandbox runs on it.
  [ -z "$old" ] || docker image rm "$old" >/dev/null 2>&1 || true
}

# build NAME makes an image, after the one below it.
build() {
  local name=$1 stamp began=$SECONDS parent
  [ -f "$here/$name/packages.sh" ] || { echo "images/build.sh: there is no image $name" >&2; exit 2; }
  parent=$(below "$name")
  [ -z "$parent" ] || build "$parent"
  stamp=$(stamp "$name")
  out=$cache/$name
  mkdir -p "$out"
  exec {lock}>"$out/.lock"
  flock "$lock"
  if [ "$(cat "$out/stamp" 2>/dev/null)" != "$stamp" ]; then
    say "image $name"
    make "$name" "$stamp"
  fi
  hand_over "$name" "$stamp"
  exec {lock}>&-
  [ $((SECONDS - began)) -lt 2 ] || say "image $name done in $((SECONDS - began)) s"
}

[ $# -gt 0 ] || set -- base
for image in "$@"; do build "$image"; done
