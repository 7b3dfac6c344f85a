#!/usr/bin/env bash
# Makes an image out of what it is built on: run inside of it, as root, after fetch.sh's tree was laid over it. Both the
# Dockerfiles and build.sh run this, so that their images are the same.
#
#   images/install.sh NAME
set -euo pipefail
umask 022
here=$(cd "$(dirname "$0")" && pwd)
name=$1
packages=()
# shellcheck source=images/base/packages.sh
. "$here/$name/packages.sh"
export DEBIAN_FRONTEND=noninteractive

# Texts that nobody reads in a sandbox. What says who wrote a package, and under which licence, stays.
cat >/etc/dpkg/dpkg.cfg.d/skerry <<'CFG'
path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
path-exclude=/usr/share/man/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/locale/*
path-exclude=/usr/share/lintian/*
CFG
apt-get update -q
apt-get install -y -q --no-install-recommends "${packages[@]}"

# pip refuses to put anything beside Debian's own packages, which are for machines that last. A sandbox does not: what pip
# and uv install there goes into the home of its user, and ends with it.
rm -f /usr/lib/python3*/EXTERNALLY-MANAGED

# The root is read-only later: what Python would write down at the first import is written now.
for site in /usr/local/lib/python3.*/dist-packages; do
  [ ! -d "$site" ] || python3 -m compileall -q -j 0 "$site" || true # packages hold templates that are no Python
done
if command -v fc-cache >/dev/null; then fc-cache -s -f; fi
[ ! -x "$here/$name/finish.sh" ] || "$here/$name/finish.sh"

# Uids of sandboxes are in no passwd file, HOME is empty, and nothing but /tmp and HOME can be written.
mkdir -p /mnt/user-data /mnt/skills /mnt/plugins /mnt/code-api /home/agent /run/skerry /opt/skerry
# Where programs that were written for other sandboxes look for their files.
ln -sfn /mnt/user-data/workspace /home/user
ln -sfn /mnt/user-data/workspace /workspace
ln -sfn /mnt/user-data/workspace /mnt/data
ln -sfn /mnt/user-data/workspace/.memory /mnt/memory
[ -L /var/tmp ] || { rm -rf /var/tmp && ln -s /tmp /var/tmp; }
: >/opt/skerry/skerry-sandboxd
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/* /var/cache/debconf/*-old /var/lib/dpkg/*-old /tmp/* /root/.[!.]* \
  /usr/share/man/* /usr/share/info/* /usr/share/locale/*
find /usr/share/doc -mindepth 1 -type f -not -name copyright -delete # links lead to the copyright of another package
find /usr/share/doc -mindepth 1 -type d -empty -delete
# Nothing in the image may raise privileges; no-new-privileges would stop it, this is the second lock.
find / -xdev -perm /6000 -type f -exec chmod a-s {} +
