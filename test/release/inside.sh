#!/usr/bin/env bash
# What check.sh runs in namespaces of its own: inside.sh ROOT RELEASE package deb|rpm, or archive. The programs of this
# script are the host's; what belongs to the test runs in ROOT.
set -euo pipefail
at=$1 dist=$2 what=$3
shift 3
began=$SECONDS
port=8080
ok() { printf '  %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*"; [ ! -f "$at/server.log" ] || tail -30 "$at/server.log"; exit 1; }

mount --bind "$at" "$at" # runc wants a root that is a mount
mount -t proc proc "$at/proc"
mount --rbind /sys "$at/sys"
mount --rbind /dev "$at/dev"
mount --bind "$dist" "$at/release"
mount -o remount,bind,ro "$at/release"
mount -t tmpfs tmpfs "$at/run"
ip link set lo up
server=
group=skerry-release-$$-$RANDOM
cleanup() {
  [ -z "$server" ] || kill -9 "$server" 2>/dev/null || true
  find /sys/fs/cgroup -depth -type d -path "*$group*" -exec rmdir {} + 2>/dev/null || true
}
trap cleanup EXIT

environment=(/usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/root DEBIAN_FRONTEND=noninteractive)
run() { chroot "$at" "${environment[@]}" "$@"; }
absent() { for p in "$@"; do ! run /bin/sh -c "command -v $p" >/dev/null || fail "this file system has $p, so it shows nothing"; done; }

# serve UNIT starts the server as a unit of systemd does. Its root is the root of its mounts, because the kernel makes no
# user namespace in a chroot.
serve() {
  local line settings=() command=()
  while read -r line; do settings+=("$line"); done < <(sed -n 's/^Environment=//p' "$at$1")
  [ ! -f "$at/etc/skerry/environment" ] || while read -r line; do settings+=("$line"); done <"$at/etc/skerry/environment"
  read -ra command <<<"$(sed -n 's/^ExecStart=//p' "$at$1")"
  # A group of the test's own: the name of the unit's is a running server's on this machine.
  # shellcheck disable=SC2016 # the inner shell expands it
  unshare --mount --propagation private bash -euc 'cd "$1"; shift; pivot_root . mnt; cd /; umount -l /mnt; exec "$@"' bash "$at" \
    "${environment[@]}" "${settings[@]}" SKERRY_CGROUP_PARENT="$group" "${command[@]}" >"$at/server.log" 2>&1 &
  server=$!
}

# first_exec asks the server until a command has run, and prints how long that took since the install began. Alone on two
# cores it is a quarter of a minute; a busy machine has more time.
first_exec() {
  local body answer until=$((began + 300))
  body='{"command": "command -v bun python3 >/dev/null && python3 -c \"print(6 * 7)\" && id -u && cat /etc/os-release | head -1", "timeout_s": 30}'
  while ! answer=$(curl -fsS --max-time 60 -H 'Content-Type: application/json' -d "$body" "http://127.0.0.1:$port/api/threads/first/exec" 2>"$at/curl.log"); do
    kill -0 "$server" 2>/dev/null || fail "the server ended"
    [ $SECONDS -lt $until ] || fail "no exec within five minutes: $(cat "$at/curl.log")"
    sleep 0.2
  done
  jq -e '.exit_code == 0 and (.stdout | startswith("42\n")) and (.stdout | contains("Debian"))' <<<"$answer" >/dev/null || fail "the first exec: $answer"
  ok "$(sed -n 's/^PRETTY_NAME=//p' "$at/etc/os-release" | tr -d '"'): a first exec $((SECONDS - began)) s after the install began, in the image of the release"
}

stop() {
  curl -fsS --max-time 60 -X DELETE "http://127.0.0.1:$port/api/threads/first" >/dev/null || fail "the thread is not deleted"
  kill -TERM "$server"
  wait "$server" || fail "the server ended with $?"
  server=
}

# documents: completions load and man pages are there.
documents() { # BASH-COMPLETION MAN
  run /bin/bash -n "$1"
  run /bin/sh -c "gzip -dc $2/skerry-exec.1.gz" | grep 'skerry exec' >/dev/null || fail "the man page of skerry exec"
}

package() {
  absent gcc cc go node npm python3 skerry docker
  local unit=/usr/lib/systemd/system/skerry.service arch files
  arch=$(dpkg --print-architecture)
  case $1 in
  deb)
    files=("$dist"/skerry_*_"$arch".deb "$dist"/skerry-image-base_*_"$arch".deb)
    files=("${files[@]/#$dist//release}")
    run dpkg -i "${files[@]}" >"$at/install.log" 2>&1 || { cat "$at/install.log"; fail "dpkg -i"; }
    ;;
  rpm)
    rpm --root "$at" --nodeps -i "$dist"/skerry-[0-9]*"$(uname -m)".rpm "$dist"/skerry-image-base-*"$(uname -m)".rpm >"$at/install.log" 2>&1 || { cat "$at/install.log"; fail "rpm -i"; }
    rpm --root "$at" --nodeps -V skerry skerry-image-base || fail "rpm -V"
    ;;
  esac
  [ "$(run stat -c %a /etc/skerry/skerry.yaml)" = 600 ] || fail "the mode of /etc/skerry/skerry.yaml"
  # The unit's own check, where systemd-analyze is: bare file systems have none, test/machine runs the units.
  serve "$unit"
  first_exec
  stop
  documents /usr/share/bash-completion/completions/skerry /usr/share/man/man1
  echo '# mine' >>"$at/etc/skerry/skerry.yaml"
  case $1 in
  deb)
    run dpkg -i "${files[0]}" >"$at/install.log" 2>&1 || { cat "$at/install.log"; fail "dpkg -i, once more"; }
    grep -q '^# mine' "$at/etc/skerry/skerry.yaml" || fail "an upgrade replaced the settings"
    run dpkg --purge skerry skerry-image-base >"$at/install.log" 2>&1 || { cat "$at/install.log"; fail "dpkg --purge"; }
    ;;
  rpm)
    rpm --root "$at" --nodeps -U --replacepkgs "$dist"/skerry-[0-9]*"$(uname -m)".rpm || fail "rpm -U"
    grep -q '^# mine' "$at/etc/skerry/skerry.yaml" || fail "an upgrade replaced the settings"
    rpm --root "$at" --nodeps -e skerry skerry-image-base || fail "rpm -e"
    ;;
  esac
  [ ! -e "$at/usr/bin/skerry" ] || fail "the program is left over"
  [ ! -e "$at/var/cache/skerry/images/base/rootfs" ] || fail "the unpacked image is left over"
  [ -d "$at/var/lib/skerry/tenants" ] || fail "a removal deleted the data folder"
  ok "$1: an upgrade keeps the settings, a removal keeps the data"
}

# tampered FILE COMMAND… : install.sh refuses a release with this change, and installs nothing.
tampered() {
  local what=$1 text
  shift
  rm -rf "$at/bad"
  mkdir "$at/bad"
  cp "$dist"/{install.sh,checksums.txt*,skerry_*.tar.gz,skerry-image-base_*.tar} "$at/bad/"
  (cd "$at/bad" && "$@")
  ! text=$(run /bin/sh /bad/install.sh 2>&1) || fail "install.sh took a release with $what"
  case $text in *"nothing was installed"*) ;; *) fail "install.sh says of $what: $text" ;; esac
  [ ! -e "$at/usr/local/bin/skerry" ] || fail "install.sh refused $what and installed programs"
  [ ! -e "$at/etc/skerry" ] || fail "install.sh refused $what and made /etc/skerry"
  rm -rf "$at/bad"
  ok "refused: $what ($text)"
}

flip() { printf 'x' | dd of="$1" bs=1 seek=1000 conv=notrunc status=none; }
other_list() { flip "$1" && sha256sum "$1" >>checksums.txt; }
other_key() {
  openssl ecparam -name prime256v1 -genkey -noout -out k.pem
  openssl dgst -sha256 -sign k.pem checksums.txt | base64 -w0 >checksums.txt.sig
}

archive() {
  local tar image
  absent gcc cc go node npm python3 skerry docker curl
  tar=$(basename "$(compgen -G "$dist/skerry_*_linux_$(dpkg --print-architecture).tar.gz")")
  image=$(basename "$(compgen -G "$dist/skerry-image-base_*.tar")")
  tampered "another program" flip "$tar"
  tampered "another image" flip "$image"
  tampered "another list" other_list "$tar"
  tampered "a signature by another key" other_key
  began=$SECONDS
  run /bin/sh /release/install.sh >"$at/install.log" 2>&1 || { cat "$at/install.log"; fail "install.sh"; }
  tar -xzOf "$dist/$tar" skerry/systemd/skerry.service >"$at/unit"
  serve /unit
  first_exec
  stop
  documents /usr/local/share/bash-completion/completions/skerry /usr/local/share/man/man1
  run /bin/sh /release/install.sh >"$at/install.log" 2>&1 || { cat "$at/install.log"; fail "install.sh, once more"; }
}

"$what" "$@"
