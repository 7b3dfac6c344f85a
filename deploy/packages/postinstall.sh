#!/bin/sh
# After an install or an upgrade, by dpkg and by rpm. A server that runs is started again: its sandboxes go on, and the new
# server adopts them. A first install starts nothing.
set -e
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
case "${1:-} ${2:-}" in
"configure " | "1 ") echo "Skerry is installed. Start it: systemctl enable --now skerry" ;;
*) systemctl try-restart skerry.service ;;
esac
