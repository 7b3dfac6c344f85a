#!/usr/bin/env bash
# Makes a release and installs it as users do, each time on a file system that is new: a Debian by mmdebstrap, with a
# network namespace that has no way out. Needs root.
#
#   test/release/check.sh            everything
#   test/release/check.sh PART…      with the release in dist/: files, debian-12, debian-13, upgrade, archive, rpm, arm64
#
# RELEASE=folder takes a release that is there, which skerry.pub beside it verifies. BARE=folder keeps the Debians there,
# for the next run while you work on this.
set -euo pipefail
[ "$(id -u)" = 0 ] || exec sudo -E env "PATH=$PATH" "$0" "$@"
umask 022
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
export SKERRY_CACHE=${SKERRY_CACHE:-/var/cache/skerry} GOFLAGS=${GOFLAGS:--buildvcs=false -trimpath}
export PATH=$SKERRY_CACHE/bin:$PATH
work=$(mktemp -d "${TMPDIR:-/tmp}/skerry-release-XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
began=$SECONDS
say() { printf -- '-- [%3ds] %s\n' $((SECONDS - began)) "$*"; }
ok() { printf '  %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*"; exit 1; }

parts=("$@")
dist=${RELEASE:-$root/dist}
if [ $# -eq 0 ]; then
  parts=(files debian-12 debian-13 upgrade archive rpm arm64)
  if [ -z "${RELEASE:-}" ]; then
    say "making a release"
    openssl ecparam -name prime256v1 -genkey -noout -out "$work/key.pem"
    SIGNING_KEY=$work/key.pem IMAGES=${IMAGES:-base} "$root/scripts/release.sh"
  fi
fi
"$root/scripts/install.sh" release
version=$(sed -n "s/^version='\(.*\)'/\1/p" "$dist/install.sh")
arch=$(dpkg --print-architecture)
[ -n "$version" ] || fail "there is no release in $dist"

# bare SUITE prints the archive of a Debian with runc and nothing that builds.
bare() {
  local tar=${BARE:-$work}/$1.tar
  [ -f "$tar" ] || mmdebstrap --quiet --mode=root --variant=minbase --include=runc,openssl,ca-certificates "$1" "$tar" >"$work/mmdebstrap.log" 2>&1 ||
    { cat "$work/mmdebstrap.log" >&2; fail "mmdebstrap $1"; }
  echo "$tar"
}

# fresh NAME SUITE unpacks a Debian, with the release in /release, and prints where.
fresh() {
  local at=$work/$1 tar
  tar=$(bare "$2")
  mkdir -p "$at"
  tar -xpf "$tar" -C "$at"
  mkdir "$at/release"
  echo "$at"
}

# inside ROOT SCRIPT… runs inside.sh on a Debian of its own.
inside() {
  local at=$1
  shift
  unshare --mount --pid --net --ipc --uts --fork --kill-child --propagation private "$here/inside.sh" "$at" "$dist" "$@"
}

files() {
  (cd "$dist" && sha256sum -c --quiet checksums.txt) || fail "checksums.txt"
  base64 -d "$dist/checksums.txt.sig" >"$work/sig"
  openssl dgst -sha256 -verify "$dist/skerry.pub" -signature "$work/sig" "$dist/checksums.txt" >/dev/null || fail "the signature of checksums.txt"
  jq -r .payload "$dist/provenance.intoto.jsonl" | base64 -d >"$work/statement"
  { printf 'DSSEv1 %d %s %d ' 28 application/vnd.in-toto+json "$(stat -c %s "$work/statement")" && cat "$work/statement"; } >"$work/signed"
  jq -r '.signatures[0].sig' "$dist/provenance.intoto.jsonl" | base64 -d >"$work/sig"
  openssl dgst -sha256 -verify "$dist/skerry.pub" -signature "$work/sig" "$work/signed" >/dev/null || fail "the signature of the provenance"
  diff <(jq -r '.subject[] | .digest.sha256 + "  " + .name' "$work/statement") "$dist/checksums.txt" || fail "the provenance has other files than checksums.txt"
  [ "$(jq -r '.predicate.buildDefinition.resolvedDependencies[0].digest.gitCommit' "$work/statement")" = "$(git -C "$root" rev-parse HEAD)" ] || fail "the provenance has another commit"
  ok "checksums.txt has $(wc -l <"$dist/checksums.txt") files; its signature and that of the provenance hold"
  "$SKERRY_CACHE/sbom/bin/python" "$here/sbom.py" "$dist"
  elsewhere
  clients
  images
}

# elsewhere: the command line for macOS and Windows is for them, and of this release.
elsewhere() {
  local at=$work/elsewhere target
  mkdir "$at"
  for target in darwin_amd64 darwin_arm64; do tar -xzf "$dist/skerry_${version}_$target.tar.gz" -C "$at" && mv "$at/skerry" "$at/$target"; done
  python3 -m zipfile -e "$dist/skerry_${version}_windows_amd64.zip" "$at/windows_amd64"
  mv "$at"/windows_amd64/skerry/* "$at/windows_amd64/"
  rmdir "$at/windows_amd64/skerry"
  for target in darwin_amd64 darwin_arm64 windows_amd64; do
    go version -m "$at/$target"/skerry* | awk -v want="${target/_/ }" '$2 ~ /^GOOS=/ { os = substr($2, 6) } $2 ~ /^GOARCH=/ { arch = substr($2, 8) } END { exit os " " arch != want }' || fail "the program for $target"
    grep -aq "$version" "$at/$target"/skerry{,.exe} 2>/dev/null || fail "the program for $target is not of $version"
    [ "$target" != windows_amd64 ] || [ -f "$at/$target/skerry.exe" ] || fail "the program for Windows is no skerry.exe"
    [ -f "$at/$target/LICENSE" ] || fail "the archive for $target has no licence"
    grep -q "  skerry_${version}_$target\." "$dist/checksums.txt" || fail "checksums.txt has no archive for $target"
  done
  ok "the command line for macOS and Windows: 3 archives"
}

# clients installs the packages of the clients as users do.
clients() {
  python3 -m venv --system-site-packages "$work/venv"
  "$work/venv/bin/pip" install -q --disable-pip-version-check --no-deps --force-reinstall "$dist"/skerry-*.whl
  "$work/venv/bin/pip" show -f skerry | grep 'skerry/__init__.py' >/dev/null || fail "the wheel"
  tar -tzf "$dist"/skerry-*.tar.gz | grep 'pyproject.toml$' >/dev/null || fail "the sdist"
  mkdir -p "$work/npm/node_modules/@skerry/client"
  tar -xzf "$dist"/skerry-client-*.tgz -C "$work/npm/node_modules/@skerry/client" --strip-components 1
  (cd "$work/npm" && node --input-type=module -e 'import { Skerry } from "@skerry/client"; new Skerry({ server: "http://127.0.0.1" })') || fail "the npm package"
  tar -tzf "$dist"/skerry-packs-*.crate | grep 'src/lib.rs$' >/dev/null || fail "the crate"
  helm template x "$dist/skerry-$version.tgz" --kube-version 1.33.0 --set apiKey.existingSecret=key >"$work/chart.yaml" 2>"$work/chart.log" || { cat "$work/chart.log"; fail "the chart"; }
  grep -q "skerry/server:$version" "$work/chart.yaml" || fail "the chart has another image than skerry/server:$version"
  ok "wheel, sdist, npm package, crate and chart"
}

# images: Docker's engine takes each archive, and its digest is that in the file beside it. Tags that are there stay.
images() {
  local f ref
  for f in "$dist"/skerry-image-*.tar; do
    [ "$(tar -xOf "$f" index.json | jq -r '.manifests[0].digest')" = "$(cat "${f%.tar}.digest")" ] || fail "the digest of $f"
  done
  timeout 10 docker info >/dev/null 2>&1 || { ok "no Docker here: archives of images were not loaded"; return; }
  ref=skerry/server:$version
  [ -z "$(docker images -q "$ref")" ] || fail "$ref is there before the test"
  docker load -q -i "$dist/skerry-image-server_${version}_linux_$arch.tar" >/dev/null
  f=$(docker run --rm --network none "$ref" version) || fail "the image server"
  docker image rm "$ref" >/dev/null
  [ "$f" = "skerry $version" ] || fail "the image server says $f"
  ok "$(find "$dist" -name 'skerry-image-*.tar' | wc -l) archives of images with their digests; Docker runs the server"
}

debian() { # SUITE
  local at
  at=$(fresh "deb-$1" "$1")
  inside "$at" package deb
  rm -rf --one-file-system "$at"
}

# upgrade: from this release to one with a higher version, and back. The package of that is this release's, with programs
# that say so and a line more in its settings.
upgrade() {
  local at higher=9.9.9 newer=$work/newer program
  at=$(fresh upgrade bookworm)
  dpkg-deb -R "$dist"/skerry_*_"$arch".deb "$newer"
  sed -i "s/^Version: .*/Version: $higher/" "$newer/DEBIAN/control"
  for program in skerry skerry-sandboxd; do
    CGO_ENABLED=0 go -C "$root" build -ldflags "-s -w -X github.com/skerry-sandbox/skerry/internal/platform/buildinfo.version=$higher" -o "$newer/usr/bin/$program" "./cmd/$program"
  done
  echo '# of the newer package' >>"$newer/etc/skerry/skerry.yaml"
  (cd "$newer" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | xargs -0 md5sum >DEBIAN/md5sums)
  dpkg-deb --root-owner-group -Znone -b "$newer" "$work/newer.deb" >/dev/null
  rm -rf "$newer"
  inside "$at" upgrade "$work/newer.deb" "$higher"
  rm -rf --one-file-system "$at"
}

# archive: install.sh, and what it refuses.
archive() {
  local at
  at=$(fresh archive bookworm)
  inside "$at" archive
  rm -rf --one-file-system "$at"
}

# The package of Fedora on the file system of a Debian, whose libraries static programs do not need: rpm's database is
# in it, and the scripts run in it.
rpm_package() {
  local at
  at=$(fresh rpm trixie)
  inside "$at" package rpm
  rm -rf --one-file-system "$at"
}

# arm64: the programs under qemu's user mode, and tests of packages that only compute.
arm64() {
  local at=$work/arm64 package
  mkdir "$at"
  tar -xzf "$dist/skerry_${version}_linux_arm64.tar.gz" -C "$at"
  [ "$(qemu-aarch64-static "$at/skerry/skerry" version)" = "skerry $version" ] || fail "skerry version on arm64"
  for package in internal/sandbox internal/template internal/config internal/platform/jsonedit; do
    CGO_ENABLED=0 GOARCH=arm64 go -C "$root" test -c -vet=off -o "$at/test" "./$package"
    (cd "$root/$package" && timeout 240 qemu-aarch64-static "$at/test" -test.short >"$at/log" 2>&1) || { tail -30 "$at/log"; fail "$package on arm64"; }
  done
  ok "arm64: skerry version, and tests of 4 packages, under qemu"
}

for part in "${parts[@]}"; do
  say "$part"
  case $part in
  files | upgrade | archive | arm64) "$part" ;;
  debian-12) debian bookworm ;;
  debian-13) debian trixie ;;
  rpm) rpm_package ;;
  *) fail "there is no part $part" ;;
  esac
done
say "release: $version installs and runs"
