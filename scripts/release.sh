#!/usr/bin/env bash
# Makes all files of a release in dist/, and signs them: make release. docs/install.md says what users do with them.
#
#   scripts/release.sh [PART…]   programs, images, sdk, chart; without any, all. What is in dist/ of other parts stays.
#
#   VERSION       default: the tag of this commit, else the chart's version with "-snapshot.COMMIT"
#   IMAGES        images of templates, default "base data office"
#   SIGNING_KEY   file with a private key on P-256 in PEM (openssl ecparam -name prime256v1 -genkey -noout). Without it,
#                 nothing is signed, and install.sh refuses to install
#
# Needs root or sudo (files of images belong to others), and no container engine or registry.
set -euo pipefail
[ "$(id -u)" = 0 ] || exec sudo -E env "PATH=$PATH" "$0" "$@"
cd "$(dirname "$0")/.."
umask 022
export SKERRY_CACHE=${SKERRY_CACHE:-/var/cache/skerry} GOFLAGS=${GOFLAGS:--buildvcs=false -trimpath}
cache=$SKERRY_CACHE dist=$PWD/dist work=$PWD/bin/release
export PATH=$cache/bin:$PATH
began=$SECONDS
say() { printf '  [%3ds] %s\n' $((SECONDS - began)) "$*"; }
die() { echo "scripts/release.sh: $*" >&2; exit 1; }

commit=$(git rev-parse HEAD) || die "this is no clone of the repository"
base=$(sed -n 's/^version: //p' deploy/helm/skerry/Chart.yaml)
tag=$(git tag --points-at HEAD 'v*' | head -1)
export SKERRY_VERSION=${VERSION:-${tag#v}}
SKERRY_VERSION=${SKERRY_VERSION:-$base-snapshot.${commit:0:8}}
version=$SKERRY_VERSION
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
SKERRY_DATE=$(date -u -d "@$SOURCE_DATE_EPOCH" +%FT%TZ)
export SOURCE_DATE_EPOCH SKERRY_DATE
read -ra images <<<"${IMAGES:-base data office}"

# same_versions: a release with a tag has one version in all its packages.
same_versions() {
  local file found
  [ -n "$tag" ] || return 0
  for file in deploy/helm/skerry/Chart.yaml sdk/python/pyproject.toml sdk/typescript/package.json sdk/rust/Cargo.toml; do
    found=$(sed -nE 's/^ *"?version"?:? ?=? ?"?([0-9][^"]*)"?,?$/\1/p' "$file" | head -1)
    [ "$found" = "$version" ] || die "$file has the version $found, and the tag is $tag"
  done
}

# share makes what packages have beside programs, of the program itself and of deploy/.
share() {
  local out=$work/share unit
  rm -rf "$out"
  mkdir -p "$out"/{man,completions,systemd}
  "$work/skerry" man "$out/man"
  gzip -n -9 "$out"/man/*.1
  "$work/skerry" completion bash >"$out/completions/skerry.bash"
  "$work/skerry" completion zsh >"$out/completions/_skerry"
  "$work/skerry" completion fish >"$out/completions/skerry.fish"
  for unit in deploy/systemd/*; do
    sed -e 's|/usr/local/bin/|/usr/bin/|' -e 's|^Environment=SKERRY_CGROUP_PARENT=.*|&\nEnvironment=SKERRY_CONFIG=/etc/skerry/skerry.yaml|' \
      -e 's|docs/operations.md#as-a-service-of-systemd says how to install it|skerry(1) has the commands|' \
      -e 's|^# SKERRY_CONFIG=/etc/skerry/skerry.yaml, or single settings.|# Settings here come before those of skerry.yaml.|' "$unit" >"$out/systemd/${unit##*/}"
  done
}

# built PROGRAM ARCHITECTURE prints where goreleaser left a program.
built() { compgen -G "$work/goreleaser/$1_linux_$2*/$1"; }

programs() {
  say "programs for amd64 and arm64, the command line for macOS and Windows, archives, packages"
  mkdir -p "$work"
  SKERRY_CACHE=$cache scripts/console.sh || die "a release has the web console"
  CGO_ENABLED=0 go build -ldflags "-s -w -X github.com/skerry-sandbox/skerry/internal/platform/buildinfo.version=$version" -o "$work/skerry" ./cmd/skerry
  share
  goreleaser release --snapshot --clean --skip=publish,announce >"$work/goreleaser.log" 2>&1 || { tail -40 "$work/goreleaser.log" >&2; die "goreleaser failed"; }
  cp "$work"/goreleaser/*.{tar.gz,zip,deb,rpm} "$dist/"
  local arch client
  for client in darwin_amd64 darwin_arm64 windows_amd64; do
    bill "$dist/skerry_${version}_$client" skerry -program "$(compgen -G "$work/goreleaser/client_$client*/skerry*")"
  done
  for arch in amd64 arm64; do
    bill "$dist/skerry_${version}_linux_$arch" skerry -program "$(built skerry $arch)" "$(built skerry-sandboxd $arch)" "$(built skerry-bridge $arch)"
    own_image server $arch
    own_image bridge $arch
  done
}

# bill FILE NAME [FLAG…] [PROGRAM…] writes what a file of the release is made of beside it, as CycloneDX and as SPDX.
bill() {
  local out=$1 name=$2
  shift 2
  "$work/sbom" -of "$name" -version "$version" -time "$SOURCE_DATE_EPOCH" -out "$out" "$@" || die "the list of parts of $name"
}

# parts ROOTFS prints the packages of an image's root file system, by its own programs: in namespaces, without network.
parts() {
  # shellcheck disable=SC2016 # the inner shell expands it
  unshare --mount --pid --net --ipc --fork --kill-child --propagation private bash -euc '
    mount --bind -o ro "$1" "$1"
    mount -t tmpfs tmpfs "$1/dev"
    mknod -m 666 "$1/dev/null" c 1 3
    exec chroot "$1" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/ LANG=C.UTF-8 setpriv --reuid 65534 --regid 65534 --clear-groups sh -s' \
    bash "$1" <internal/template/sbom/list.sh
}

# own_image NAME ARCHITECTURE makes the image server or bridge, as the Dockerfile has it.
own_image() {
  local root=$work/image config file=$dist/skerry-image-$1_${version}_linux_$2.tar
  rm -rf "$root"
  mkdir "$root"
  case $1 in
  server)
    install -D -m 0755 -t "$root/usr/local/bin" "$(built skerry "$2")" "$(built skerry-sandboxd "$2")"
    install -D -m 0644 "$cache/images/base/rootfs/etc/ssl/certs/ca-certificates.crt" "$root/etc/ssl/certs/ca-certificates.crt"
    install -d -m 1777 "$root/tmp"
    config='{"Env":["PATH=/usr/local/bin"],"Entrypoint":["/usr/local/bin/skerry"],"Cmd":["serve"]}'
    ;;
  bridge)
    install -m 0755 "$(built skerry-bridge "$2")" "$(built skerry-sandboxd "$2")" "$root/"
    config='{"User":"65534:65534","Entrypoint":["/skerry-bridge"]}'
    ;;
  esac
  find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  images/archive.sh "$root" "skerry/$1:$version" "$2" "$file" "$config" >"${file%.tar}.digest"
  case $1 in
  server)
    # Its certificates are those of Debian's package.
    parts "$cache/images/base/rootfs" | awk -F '\t' '$1 != "deb" && $1 != "npm" && $1 != "pypi" || $2 == "ca-certificates"' >"$work/list"
    bill "${file%.tar}" skerry/server -list "$work/list" "$root"/usr/local/bin/*
    ;;
  bridge) bill "${file%.tar}" skerry/bridge "$root"/skerry* ;;
  esac
  rm -rf "$root"
}

# template_images packs what images/build.sh made. Packing base takes half a minute, so what was packed is kept.
template_images() {
  local arch image home packed file
  arch=$(go env GOARCH)
  images/build.sh "${images[@]}"
  for image in "${images[@]}"; do
    home=$cache/images/$image
    packed=$cache/release/$image-$(cat "$home/stamp" images/archive.sh | sha256sum | cut -c1-16)
    if [ ! -f "$packed.digest" ]; then
      say "image $image: packing"
      mkdir -p "$cache/release"
      rm -f "$cache/release/$image"-*
      images/archive.sh "$home/rootfs" "skerry/$image:latest" "$arch" "$packed.tar" >"$packed.new"
      mv "$packed.new" "$packed.digest"
    fi
    file=$dist/skerry-image-${image}_${version}_linux_$arch
    cp "$packed.tar" "$file.tar"
    cp "$packed.digest" "$file.digest"
    parts "$home/rootfs" >"$work/list"
    bill "$file" "skerry/$image" -list "$work/list"
    say "image $image: packages"
    for packager in deb rpm; do
      IMAGE=$image ARCH=$arch ARCHIVE=$file.tar nfpm package -f deploy/packages/image.yaml -p $packager -t "$dist/" >"$work/nfpm.log" 2>&1 ||
        { cat "$work/nfpm.log" >&2; die "nfpm failed"; }
    done
  done
}

sdk() {
  say "packages of the clients: Python, npm, crate"
  scripts/install.sh python-sdk clients
  local stage=$work/sdk
  rm -rf "$stage"
  mkdir -p "$stage"
  (cd sdk/python && git ls-files -z --cached --others --exclude-standard . | xargs -0 cp --parents -t "$stage")
  (cd "$stage" && "$cache/python-sdk/bin/python" -m hatchling build -t wheel -t sdist -d "$dist") >"$work/sdk.log" 2>&1 || { cat "$work/sdk.log" >&2; die "the Python package failed"; }
  rm -rf "$stage"
  mkdir -p "$stage"
  cp -r sdk/typescript/{package.json,README.md,tsconfig.json,tsconfig.build.json,src} "$stage/"
  ln -s "$cache/clients/node_modules" "$stage/node_modules"
  (cd "$stage" && PATH=$cache/clients/node_modules/.bin:$PATH npm pack --silent --pack-destination "$dist") >"$work/sdk.log" 2>&1 || { cat "$work/sdk.log" >&2; die "the npm package failed"; }
  rm -rf "$stage"
  # sdk/rust/test.sh builds the crate from what this packs.
  (cd sdk/rust && CARGO_TARGET_DIR=$work/crate cargo package --quiet --locked --allow-dirty --no-verify) >"$work/sdk.log" 2>&1 || { cat "$work/sdk.log" >&2; die "the crate failed"; }
  cp "$work"/crate/package/*.crate "$dist/"
}

chart() {
  say "the chart"
  scripts/install.sh helm
  helm package deploy/helm/skerry --version "$version" --app-version "$version" -d "$dist" >/dev/null
}

# finish writes what says where the files come from, and that nobody changed them.
finish() {
  local key=${SIGNING_KEY:-} public=
  [ -z "$key" ] || public=$(openssl pkey -in "$key" -pubout) || die "SIGNING_KEY is no private key in PEM: $key"
  cd "$dist"
  rm -f checksums.txt* provenance.* install.sh skerry.pub
  KEY=$public awk '{ gsub(/@VERSION@/, ENVIRON["SKERRY_VERSION"]); gsub(/@PUBLIC_KEY@/, ENVIRON["KEY"]); print }' ../deploy/packages/install.sh >install.sh
  chmod 0755 install.sh
  [ -z "$public" ] || printf '%s\n' "$public" >skerry.pub
  find . -maxdepth 1 -type f -not -name install.sh -not -name skerry.pub -printf '%f\n' | sort | xargs sha256sum >"$work/sums"
  mv "$work/sums" checksums.txt
  # A statement of in-toto with a predicate of SLSA, in an envelope of DSSE.
  jq -R -n -c --arg version "$version" --arg commit "$commit" --arg go "$(go version)" --arg began "$SKERRY_DATE" '
    [inputs | split("  ") | {name: .[1], digest: {sha256: .[0]}}] as $files | {
      _type: "https://in-toto.io/Statement/v1", subject: $files, predicateType: "https://slsa.dev/provenance/v1",
      predicate: {
        buildDefinition: {
          buildType: "https://github.com/skerry-sandbox/skerry/blob/main/scripts/release.sh", externalParameters: {version: $version}, internalParameters: {go: $go},
          resolvedDependencies: [{uri: "git+https://github.com/skerry-sandbox/skerry", digest: {gitCommit: $commit}}]},
        runDetails: {builder: {id: "https://github.com/skerry-sandbox/skerry/blob/main/scripts/release.sh"}, metadata: {invocationId: $version, startedOn: $began}}}}' <checksums.txt | tr -d '\n' >provenance.json
  [ -n "$key" ] || { say "not signed: SIGNING_KEY is not set"; return; }
  openssl dgst -sha256 -sign "$key" checksums.txt | base64 -w0 >checksums.txt.sig
  local type=application/vnd.in-toto+json
  { printf 'DSSEv1 %d %s %d ' ${#type} "$type" "$(stat -c %s provenance.json)" && cat provenance.json; } >"$work/signed"
  jq -n -c --arg payload "$(base64 -w0 provenance.json)" --arg type "$type" --arg sig "$(openssl dgst -sha256 -sign "$key" "$work/signed" | base64 -w0)" \
    '{payloadType: $type, payload: $payload, signatures: [{sig: $sig}]}' >provenance.intoto.jsonl
  rm provenance.json
}

same_versions
scripts/install.sh release
parts=("$@")
[ $# -gt 0 ] || { parts=(programs images sdk chart); rm -rf "$dist"; }
mkdir -p "$dist" "$work"
CGO_ENABLED=0 go build -o "$work/sbom" ./deploy/packages/sbom
for part in "${parts[@]}"; do
  case $part in
  programs) [ -f "$cache/images/base/stamp" ] || images/build.sh base; programs ;;
  images) template_images ;;
  sdk | chart) "$part" ;;
  *) die "there is no part $part, but programs, images, sdk and chart" ;;
  esac
done
finish
say "skerry $version: $(find "$dist" -type f | wc -l) files, $(du -sm "$dist" | cut -f1) MB in dist/"
