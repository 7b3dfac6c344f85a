#!/bin/sh
# After a removal. /var/lib/skerry and the keys in /etc/skerry stay, also when the package is purged: they are the
# administrator's to delete.
set -e
[ ! -d /run/systemd/system ] || systemctl daemon-reload
