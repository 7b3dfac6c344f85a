#!/usr/bin/env bash
# Makes an archive of an image out of a root file system, without a container engine:
#
#   images/archive.sh ROOTFS IMAGE ARCHITECTURE FILE [CONFIG]
#
# IMAGE is a reference such as skerry/base:latest, CONFIG a JSON object as OCI's image config has it under "config". FILE
# is in OCI's format and, beside it, in that of "docker save": `docker load`, `ctr images import` and the drivers oci and
# containerd take it. The same tree gives the same bytes. Prints the digest of the image's manifest. Needs root.
set -euo pipefail
umask 022
[ $# -ge 4 ] || { echo "usage: images/archive.sh ROOTFS IMAGE ARCHITECTURE FILE [CONFIG]" >&2; exit 2; }
rootfs=$1 image=$2 arch=$3 file=$4 config=${5:-'{"Env":["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin","LANG=C.UTF-8"]}'}
date=1970-01-01T00:00:00Z
stage=$(mktemp -d "$file.XXXXXX")
trap 'rm -rf "$stage"' EXIT
blobs=$stage/tree/blobs/sha256
mkdir -p "$blobs"

# blob FILE puts a file among the blobs, and prints its digest.
blob() {
  local digest
  digest=$(sha256sum "$1" | cut -c1-64)
  mv "$1" "$blobs/$digest"
  echo "$digest"
}
size() { stat -c %s "$blobs/$1"; }

# gzip: Docker's engine before 23 reads no layer in zstd. Times stay: Python compares them with those in its compiled files.
tar -C "$rootfs" --numeric-owner --xattrs --sort=name --pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime -c . |
  tee >(sha256sum | cut -c1-64 >"$stage/plain") | gzip -n -6 >"$stage/layer"
layer=$(blob "$stage/layer")
# tee's other reader ends after it.
for _ in $(seq 100); do [ -s "$stage/plain" ] && break; sleep 0.1; done
plain=$(cat "$stage/plain")
[ ${#plain} = 64 ] || { echo "images/archive.sh: the layer has no digest" >&2; exit 1; }
printf '{"created":"%s","architecture":"%s","os":"linux","config":%s,"rootfs":{"type":"layers","diff_ids":["sha256:%s"]},"history":[{"created":"%s","created_by":"images/archive.sh"}]}' \
  "$date" "$arch" "$config" "$plain" "$date" >"$stage/config"
conf=$(blob "$stage/config")
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:%s","size":%d},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"sha256:%s","size":%d}]}' \
  "$conf" "$(size "$conf")" "$layer" "$(size "$layer")" >"$stage/manifest"
manifest=$(blob "$stage/manifest")
printf '{"imageLayoutVersion":"1.0.0"}' >"$stage/tree/oci-layout"
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:%s","size":%d,"platform":{"architecture":"%s","os":"linux"},"annotations":{"io.containerd.image.name":"docker.io/%s","org.opencontainers.image.ref.name":"%s"}}]}' \
  "$manifest" "$(size "$manifest")" "$arch" "$image" "${image##*:}" >"$stage/tree/index.json"
printf '[{"Config":"blobs/sha256/%s","RepoTags":["%s"],"Layers":["blobs/sha256/%s"]}]' "$conf" "$image" "$layer" >"$stage/tree/manifest.json"
# oci-layout and index.json come first: who reads the archive as a stream knows then what it is.
tar -C "$stage/tree" --owner=0 --group=0 --numeric-owner --mtime=@0 --sort=name -cf "$stage/archive" oci-layout index.json manifest.json blobs
mv "$stage/archive" "$file"
printf 'sha256:%s\n' "$manifest"
