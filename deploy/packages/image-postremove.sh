#!/bin/sh
# After a removal, by dpkg ("remove") and by rpm (0): what the server unpacked of this package's archive goes, too.
# Sandboxes that run on it would lose their programs, so it stays while a mount names it.
set -e
case "${1:-}" in
remove | 0) ;;
*) exit 0 ;;
esac
for home in /var/cache/skerry/images/*/; do
  home=${home%/}
  if [ ! -f "$home/.unpacked" ] || [ -e "$home/image.tar" ]; then continue; fi
  if cat /proc/[0-9]*/mountinfo 2>/dev/null | grep -qF "$home/"; then
    echo "skerry: sandboxes run on $home; delete it when they have ended" >&2
  else
    rm -rf "$home"
  fi
done
