#!/usr/bin/env bash
# What check.sh runs in namespaces of its own: inside.sh ROOT RELEASE package deb|rpm, archive, or
# upgrade NEWER.deb VERSION. The programs of this
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
holder=
group=skerry-release-$$-$RANDOM
cleanup() {
  [ -z "$server" ] || kill -9 "$server" 2>/dev/null || true
  [ -z "$holder" ] || { kill -9 "$holder" && wait "$holder"; } 2>/dev/null || true
  find /sys/fs/cgroup -depth -type d -path "*$group*" -exec rmdir {} + 2>/dev/null || true
}
trap cleanup EXIT

environment=(/usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/root DEBIAN_FRONTEND=noninteractive)
run() { chroot "$at" "${environment[@]}" "$@"; }
absent() { for p in "$@"; do ! run /bin/sh -c "command -v $p" >/dev/null || fail "this file system has $p, so it shows nothing"; done; }

# serve UNIT starts the server as a unit of systemd does. Its root is the root of its mounts, because the kernel makes no
# user namespace in a chroot. The mounts are those of one process, so that the next server sees what a former one mounted.
serve() {
  local line settings=() command=()
  while read -r line; do settings+=("$line"); done < <(sed -n 's/^Environment=//p' "$at$1")
  [ ! -f "$at/etc/skerry/environment" ] || while read -r line; do settings+=("$line"); done <"$at/etc/skerry/environment"
  read -ra command <<<"$(sed -n 's/^ExecStart=//p' "$at$1")"
  # A group of the test's own: the name of the unit's is a running server's on this machine.
  # shellcheck disable=SC2016 # the inner shell expands it
  if [ -z "$holder" ]; then
    unshare --mount --propagation private bash -euc 'cd "$1"; pivot_root . mnt; cd /; umount -l /mnt; : >/run/mounted; exec sleep infinity' bash "$at" &
    holder=$!
    until [ -e "$at/run/mounted" ]; do kill -0 "$holder" || fail "no mounts of a server"; sleep 0.1; done
  fi
  nsenter --mount="$at/proc/$holder/ns/mnt" --root="$at/proc/$holder/root" --wd="$at/proc/$holder/root" "${environment[@]}" "${settings[@]}" SKERRY_CGROUP_PARENT="$group" "${command[@]}" >"$at/server.log" 2>&1 &
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
  leave
}

# leave ends the server as systemd does, and its sandboxes go on.
leave() {
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

# said COMMAND prints what a command in the thread says, once a server answers.
said() {
  local answer until=$((SECONDS + 120))
  while ! answer=$(curl -fsS --max-time 60 -H 'Content-Type: application/json' -d "$(jq -n --arg command "$1" '{command: $command, leave_processes: true, timeout_s: 30}')" \
    "http://127.0.0.1:$port/api/threads/first/exec" 2>"$at/curl.log"); do
    kill -0 "$server" 2>/dev/null || fail "the server ended"
    [ $SECONDS -lt $until ] || fail "no exec within two minutes: $(cat "$at/curl.log")"
    sleep 0.2
  done
  jq -e '.exit_code == 0' <<<"$answer" >/dev/null || fail "$1: $answer"
  jq -r .stdout <<<"$answer"
}

# upgrade: the package of a higher version over one that runs, and back. The thread, its live sandbox with a process, and
# what an administrator changed stay.
upgrade() {
  local newer=$1 higher=$2 lower files unit=/usr/lib/systemd/system/skerry.service pid seen
  # What unattended-upgrades says to dpkg, so that it does not ask.
  local kept=(--force-confdef --force-confold)
  files=("$dist"/skerry_*_"$(dpkg --print-architecture)".deb "$dist"/skerry-image-base_*_"$(dpkg --print-architecture)".deb)
  files=("${files[@]/#$dist//release}")
  run dpkg -i "${files[@]}" >"$at/install.log" 2>&1 || { cat "$at/install.log"; fail "dpkg -i"; }
  lower=$(run skerry version)
  sed -i 's/^#\{0,1\}log_level:.*/log_level: debug/' "$at/etc/skerry/skerry.yaml"
  echo '# mine' >>"$at/etc/skerry/skerry.yaml"
  cp "$at/etc/skerry/skerry.yaml" "$at/mine.yaml"
  serve "$unit"
  first_exec
  # shellcheck disable=SC2016 # for the shell in the sandbox
  pid=$(said 'echo kept >/mnt/user-data/workspace/kept; echo alive >/tmp/alive; nohup sleep 100000 >/dev/null 2>&1 & echo $!')

  cp "$newer" "$at/newer.deb"
  run dpkg "${kept[@]}" -i /newer.deb >"$at/install.log" 2>&1 || { cat "$at/install.log"; fail "dpkg -i of the newer package"; }
  [ "$(run skerry version)" = "skerry $higher" ] || fail "after the upgrade: $(run skerry version)"
  [ "$(said 'cat /tmp/alive')" = alive ] || fail "the server that runs lost its sandbox by the upgrade"
  cmp "$at/mine.yaml" "$at/etc/skerry/skerry.yaml" || fail "the upgrade changed skerry.yaml"
  grep -q '^# of the newer package' "$at/etc/skerry/skerry.yaml.dpkg-dist" || fail "the settings of the newer package are not beside the old ones"
  leave
  serve "$unit"
  seen=$(said "cat /mnt/user-data/workspace/kept /tmp/alive; kill -0 $pid && echo runs" | xargs)
  [ "$seen" = "kept alive runs" ] || fail "after the upgrade the sandbox has: $seen"
  [ "$(curl -fsS --max-time 30 "http://127.0.0.1:$port/api/threads" | jq -r '[.items[].thread_id] | join(" ")')" = first ] || fail "the list of threads after the upgrade"
  ok "$lower to $higher: the data folder opens, thread and file are there, the sandbox with its process is adopted, skerry.yaml is the administrator's"

  leave
  run dpkg "${kept[@]}" -i "${files[0]}" >"$at/install.log" 2>&1 || { cat "$at/install.log"; fail "dpkg -i of the older package"; }
  [ "$(run skerry version)" = "$lower" ] || fail "after the way back: $(run skerry version)"
  cmp "$at/mine.yaml" "$at/etc/skerry/skerry.yaml" || fail "the way back changed skerry.yaml"
  serve "$unit"
  seen=$(said "cat /mnt/user-data/workspace/kept /tmp/alive; kill -0 $pid && echo runs" | xargs)
  [ "$seen" = "kept alive runs" ] || fail "after the way back the sandbox has: $seen"
  ok "and back to $lower, with the same sandbox: both read the format $(cat "$at/var/lib/skerry/format")"

  stop
  echo 99 >"$at/var/lib/skerry/format"
  serve "$unit"
  ! wait "$server" || fail "a server opened the data folder of a newer one"
  server=
  grep -q 'a newer Skerry wrote it' "$at/server.log" || fail "a server does not say why it refuses the data folder of a newer one"
  ok "refused: a data folder that a newer format is in ($(grep -o '/var/lib/skerry has format.*' "$at/server.log" | head -1 | cut -c1-150))"
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
