#!/bin/sh
# Before a removal, by dpkg ("remove") and by rpm (0). An upgrade stops nothing.
set -e
[ -d /run/systemd/system ] || exit 0
case "${1:-}" in
remove | 0) systemctl disable --now skerry.service skerry.socket skerry-sandboxes.service || true ;;
esac
