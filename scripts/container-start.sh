#!/bin/sh
# Starts the server in its image. The docker daemon mounts files of the *host* into sandboxes, so
# skerry-sandboxd must lie in the data folder, which has one path inside and outside.
set -eu
data=${SKERRY_DATA:-/var/lib/skerry}
mkdir -p "$data/bin"
cp /opt/skerry/bin/skerry-sandboxd "$data/bin/.new"
mv "$data/bin/.new" "$data/bin/skerry-sandboxd"
export SKERRY_DATA="$data" SKERRY_SANDBOXD="$data/bin/skerry-sandboxd"
exec /opt/skerry/bin/skerry serve "$@"
