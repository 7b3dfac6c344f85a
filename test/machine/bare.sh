#!/usr/bin/env bash
# What a fresh machine lacks: a plain clone, on a Debian that has nothing but Go, Node, Python, git and make. It runs
# "make demo" and "make check", or other targets: test/machine/bare.sh [TARGET…]. Needs root, and the package registries.
#
# The root file system has mounts and processes of its own, and the network of this machine. Go is this machine's; Node
# and Python are Debian's. From this machine come its certificates, what it says about registries, and Go's caches.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
dir=${SKERRY_CACHE:-/var/cache/skerry}/machine/bare
suite=${MACHINE_SUITE:-bookworm}
targets=("$@")
[ $# -gt 0 ] || targets=(demo check)

if [ -z "${BARE_INSIDE:-}" ]; then
  stamp=$suite-$(sha256sum "$0" | cut -d' ' -f1)
  if [ "$(cat "$dir/stamp" 2>/dev/null)" != "$stamp" ]; then
    printf '  a bare Debian %s with Node and Python (two minutes)\n' "$suite"
    rm -rf "$dir"
    mkdir -p "$dir/tmp"
    TMPDIR=$dir/tmp mmdebstrap --quiet --mode=root --variant=minbase --include=ca-certificates,git,make,python3,nodejs,npm \
      --aptopt='APT::Install-Recommends "false"' --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr "$suite" "$dir/root" >"$dir/log" 2>&1 ||
      { tail -n 20 "$dir/log" >&2; exit 1; }
    echo "$stamp" >"$dir/stamp"
  fi
  export BARE_INSIDE=1
  exec unshare --mount --pid --ipc --uts --fork --kill-child "$0" "$@"
fi

new=$dir/merged
rm -rf "$dir/upper" "$dir/work"
mkdir -p "$dir"/{upper,work,merged}
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$dir/root,upperdir=$dir/upper,workdir=$dir/work" "$new"
for path in /etc/ssl/certs/ca-certificates.crt /etc/pip.conf /etc/npmrc /usr/local/etc/npmrc /root/.npmrc /etc/apt/apt.conf.d /etc/apt/auth.conf.d /etc/resolv.conf /etc/hosts; do
  [ -e "$path" ] || continue
  mkdir -p "$new$(dirname "$path")"
  cp -rL --remove-destination "$path" "$new$(dirname "$path")/"
done
git clone -q "$root" "$new/root/skerry"
mkdir -p "$new"/{usr/local/go,root/go/pkg/mod,root/.cache/go-build,proc,sys,dev}
mount --rbind /dev "$new/dev"
mount --rbind /sys "$new/sys"
mount -t proc proc "$new/proc"
mount -t tmpfs tmpfs "$new/run"
mount --bind "$(go env GOROOT)" "$new/usr/local/go"
mount --bind "$(go env GOMODCACHE)" "$new/root/go/pkg/mod"
mount --bind "$(go env GOCACHE)" "$new/root/.cache/go-build"
environment=(HOME=/root "PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" LANG=C.UTF-8 "CI=${CI:-}")
while IFS= read -r line; do environment+=("$line"); done < <(env | grep -E '^(GOPROXY|GOSUMDB|GOFLAGS|PIP_[A-Z_]*|(npm_config|NPM_CONFIG)_[A-Za-z_]*|https?_proxy|HTTPS?_PROXY|no_proxy|NO_PROXY|SSL_CERT_FILE|NODE_EXTRA_CA_CERTS)=' || true)
for target in "${targets[@]}"; do
  began=$SECONDS
  printf -- '-- make %s\n' "$target"
  chroot "$new" env -i "${environment[@]}" sh -c "cd /root/skerry && exec make $target"
  printf -- '-- make %s: %d s\n' "$target" $((SECONDS - began))
done
