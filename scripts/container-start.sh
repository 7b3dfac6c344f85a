#!/bin/sh
# Starts the server in its image. The docker daemon mounts files of the *host* into sandboxes:
# skerry-sandboxd into all of them, skerry itself into the probe of a runtime. So both must lie in the
# data folder, which has the same path inside and outside, and run from there.
set -eu
data=${SKERRY_DATA:-/var/lib/skerry}
if ! cut -d' ' -f5 /proc/self/mountinfo | grep -qxF "$data"; then
  echo "skerry: mount a folder of the host at $data, and at the same path as on the host: docker run -v $data:$data …" >&2
  exit 1
fi
mkdir -p "$data/bin"
chmod 0711 "$data" "$data/bin" # sandboxes run the daemon with uids of their own
for program in skerry skerry-sandboxd; do
  # By rename: sandboxes of a former server go on running the former file.
  cp "/opt/skerry/bin/$program" "$data/bin/.$program.new"
  mv "$data/bin/.$program.new" "$data/bin/$program"
done
export SKERRY_DATA="$data"
exec "$data/bin/skerry" serve "$@"
