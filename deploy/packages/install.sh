#!/bin/sh
# Installs Skerry @VERSION@, after it has verified what it installs. Packages do the same on Debian and Fedora.
#
#   sudo sh install.sh [FROM]    FROM: folder or https:// address of the release's files; default: the folder of this file
#
#   PREFIX=/usr/local   where programs, man pages and completions go
#   IMAGE=base          image of sandboxes, for the drivers oci and containerd; empty: none
#
# With systemd it installs the units, and starts nothing. It changes no file in /etc/skerry.
set -eu
version='@VERSION@'
key='@PUBLIC_KEY@'
from=${1:-$(dirname "$0")} prefix=${PREFIX:-/usr/local} image=${IMAGE-base}
die() { echo "install.sh: $*" >&2; exit 1; }

for program in openssl sha256sum tar gzip base64; do
  command -v $program >/dev/null || die "$program is missing; install it first"
done
case $(uname -s)-$(uname -m) in
Linux-x86_64) arch=amd64 ;;
Linux-aarch64) arch=arm64 ;;
*) die "Skerry runs on Linux on x86_64 and aarch64, and this is $(uname -s) on $(uname -m)" ;;
esac
case $key in -----BEGIN*) ;; *) die "this release is not signed; install its packages, or build it" ;; esac
[ "$(id -u)" = 0 ] || die "needs root: sudo sh install.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

get() {
  case $from in
  http*) curl -fsSL --retry 3 --proto =https -o "$work/$1" "$from/$1" ;;
  *) cp "$from/$1" "$work/$1" ;;
  esac || die "$1 is not to be had from $from"
}
# verified FILE gets a file that the signed list names with this digest.
verified() {
  get "$1"
  (cd "$work" && awk -v file="$1" '$2 == file' checksums.txt | grep . | sha256sum -c --status) || die "$1 is not the file of the release: nothing was installed"
}

get checksums.txt
get checksums.txt.sig
printf '%s\n' "$key" >"$work/key"
base64 -d "$work/checksums.txt.sig" >"$work/sig" || die "checksums.txt.sig is no signature: nothing was installed"
openssl dgst -sha256 -verify "$work/key" -signature "$work/sig" "$work/checksums.txt" >/dev/null 2>&1 ||
  die "checksums.txt is not signed by the key of the release: nothing was installed"
programs=skerry_${version}_linux_$arch.tar.gz
verified "$programs"
archive=skerry-image-${image}_${version}_linux_$arch.tar
[ -z "$image" ] || verified "$archive"

tar -xzf "$work/$programs" -C "$work"
mkdir -p "$prefix/bin" "$prefix/share/man/man1" "$prefix/share/bash-completion/completions" "$prefix/share/zsh/site-functions" "$prefix/share/fish/vendor_completions.d" /etc/skerry
cd "$work/skerry"
for program in skerry skerry-sandboxd; do
  install -m 755 $program "$prefix/bin/.$program.new"
  mv "$prefix/bin/.$program.new" "$prefix/bin/$program" # sandboxes that run keep the former file
done
install -m 644 man/* "$prefix/share/man/man1/"
install -m 644 completions/skerry.bash "$prefix/share/bash-completion/completions/skerry"
install -m 644 completions/_skerry "$prefix/share/zsh/site-functions/_skerry"
install -m 644 completions/skerry.fish "$prefix/share/fish/vendor_completions.d/skerry.fish"
if [ -n "$image" ]; then
  mkdir -p "/var/cache/skerry/images/$image"
  mv "$work/$archive" "/var/cache/skerry/images/$image/image.tar"
fi
if [ ! -e /etc/skerry/skerry.yaml ]; then
  install -m 600 skerry.yaml /etc/skerry/skerry.yaml
  echo SKERRY_CONFIG=/etc/skerry/skerry.yaml >/etc/skerry/environment
fi
if [ -d /run/systemd/system ]; then
  for unit in systemd/*; do sed "s|/usr/local/bin/|$prefix/bin/|" "$unit" >"/etc/systemd/system/${unit##*/}"; done
  systemctl daemon-reload
  next="systemctl enable --now skerry"
else
  next="skerry serve --config /etc/skerry/skerry.yaml"
fi
"$prefix/bin/skerry" version
echo "Installed. Start the server: $next"
