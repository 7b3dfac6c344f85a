#!/usr/bin/env bash
# Runs the product and its tests on a machine with systemd and cgroup v2: test/machine/README.md says what. Needs root.
#
#   test/machine/check.sh            everything
#   test/machine/check.sh PART…      bare, ground, package, service, unprivileged, drivers, restricted, attacks, chaos
#
#   RELEASE=folder   has the packages of a release; without it, package makes a release
#   MACHINE_KEEP=1   leaves the machine on, for test/machine/machine.sh run
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${SKERRY_CACHE:-/var/cache/skerry}
parts=("$@")
[ $# -gt 0 ] || parts=(bare ground package service unprivileged drivers restricted attacks chaos)
began=$SECONDS
say() { printf -- '-- [%4ds] %s\n' $((SECONDS - began)) "$*"; }
machine=$here/machine.sh

if [ "${parts[0]}" = bare ]; then
  say bare
  "$here/bare.sh"
  parts=("${parts[@]:1}")
  [ ${#parts[@]} -gt 0 ] || exit 0
fi
"$machine" build

say "packing the product, its tests and its images"
pack=$(mktemp -d "$cache/machine/pack-XXXXXX")
trap 'rm -rf "$pack"' EXIT
mkdir -p "$pack"/{bin,built,tests,src,cache/bin,cache/images}
(cd "$root" && git ls-files -z --cached --others --exclude-standard | grep -zvE '^(sdk|docs/.*\.(svg|png)|testdata|test/cluster)(/|$)' |
  tar --null --ignore-failed-read -T - -cf - 2>/dev/null) | tar -xf - -C "$pack/src"
export CGO_ENABLED=0 GOFLAGS=${GOFLAGS:--buildvcs=false -trimpath}
build() { go -C "$root" build -ldflags '-s -w' -o "$1" "$2"; }
for program in skerry skerry-sandboxd skerry-bridge; do
  build "$pack/bin/$program" "./cmd/$program"
  mkdir -p "$pack/built/cmd/$program"
  ln "$pack/bin/$program" "$pack/built/cmd/$program/program"
done
build "$pack/bin/chaos" ./bench/chaos
for package in internal/driver/drivertest/probe internal/attack/probe; do
  mkdir -p "$pack/built/$package"
  build "$pack/built/$package/program" "./$package"
done
for package in internal/driver/oci internal/driver/docker internal/driver/containerd internal/attack; do
  go -C "$root" test -c -o "$pack/tests/$(basename "$package").test" "./$package"
done
cp "$here/inside.sh" "$pack/"
install -D "$here/go" "$pack/gobin/go"
cp -a "$cache/containerd" "$pack/cache/"
cp -a "$(command -v runsc)" "$pack/cache/bin/runsc"
cp -a "$cache/images/base" "$pack/cache/images/"
case " ${parts[*]} " in
*' package '*)
  release=${RELEASE:-$root/dist}
  if [ -z "${RELEASE:-}" ]; then
    "$root/scripts/install.sh" release
    openssl ecparam -name prime256v1 -genkey -noout -out "$pack/key.pem"
    SIGNING_KEY=$pack/key.pem IMAGES=base "$root/scripts/release.sh" >"$cache/machine/release.log" 2>&1 || { tail -30 "$cache/machine/release.log" >&2; exit 1; }
    rm "$pack/key.pem"
  fi
  install -D -m 644 -t "$pack/release" "$release"/skerry_*_"$(dpkg --print-architecture)".deb "$release"/skerry-image-base_*_"$(dpkg --print-architecture)".deb
  ;;
esac
"$machine" payload "$pack"
rm -rf "$pack"

say "starting the machine"
"$machine" up
[ -n "${MACHINE_KEEP:-}" ] || trap '"$machine" down' EXIT
for part in "${parts[@]}"; do
  say "$part"
  "$machine" run "/skerry/inside.sh $part"
  case $part in
  package) # the next part has a machine without its data
    "$machine" down
    "$machine" up
    ;;
  service)
    "$machine" reboot
    "$machine" run "/skerry/inside.sh rebooted"
    ;;
  esac
done
say "done"
