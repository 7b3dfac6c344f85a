#!/usr/bin/env bash
# A machine as users have it: Debian with systemd and pure cgroup v2, in qemu. Needs root.
#
#   test/machine/machine.sh build            makes its disk from Debian packages, or nothing when it is there
#   test/machine/machine.sh payload FOLDER   packs a folder, which the machine sees as /skerry
#   test/machine/machine.sh up [WORD…]       starts it and waits for it; the words go to the kernel's command line
#   test/machine/machine.sh run COMMAND      runs a command of sh in it, as root
#   test/machine/machine.sh reboot           reboots it and waits for it
#   test/machine/machine.sh down             powers it off
#
#   MACHINE_SUITE   bookworm or trixie; default: bookworm
#   MACHINE_DIR     its disk and what belongs to one run; default: $SKERRY_CACHE/machine/$MACHINE_SUITE
#   MACHINE_ACCEL   kvm, or tcg, which is slow; default: kvm when a machine has started with it, else tcg
#   MACHINE_MEMORY, MACHINE_CPUS   default: 4096 MiB, and 2
#
# It reaches nothing outside; only its ssh is forwarded to a port of 127.0.0.1. What one run writes to its disks is gone
# with it. The kernel's messages are in $MACHINE_DIR/console.log.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
suite=${MACHINE_SUITE:-bookworm}
dir=${MACHINE_DIR:-${SKERRY_CACHE:-/var/cache/skerry}/machine/$suite}
die() { printf 'test/machine/machine.sh: %s\n' "$*" >&2; exit 1; }

packages=systemd-sysv,udev,dbus,linux-image-amd64,openssh-server,iproute2,procps,kmod,sudo,ca-certificates,curl,jq,e2fsprogs
packages+=,docker.io,containerd,runc,crun,apparmor,systemd-oomd,uidmap,redis-server,python3,nodejs,git,make,tini,xz-utils
[ "$suite" = bookworm ] || packages+=,docker-cli # a package of its own from Debian 13 on

ssh_options() {
  ssh=(-i "$dir/key" -p "$(cat "$dir/port")" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR
    -o ConnectTimeout=60 -o ServerAliveInterval=30 -o ServerAliveCountMax=20)
}

build() {
  local stamp root=$dir/root
  stamp=$(sha256sum "$here/machine.sh" | cut -d' ' -f1)
  [ "$(cat "$dir/stamp" 2>/dev/null)" != "$stamp" ] || return 0
  printf '  building the disk of a machine with Debian %s (some minutes)\n' "$suite"
  rm -rf "$dir"
  mkdir -p "$dir/tmp"
  ssh-keygen -q -t ed25519 -N '' -f "$dir/key"
  TMPDIR=$dir/tmp mmdebstrap --quiet --mode=root --variant=minbase --include=$packages \
    --aptopt='APT::Install-Recommends "false"' --dpkgopt=path-exclude='/usr/share/doc/*' --dpkgopt=path-exclude='/usr/share/man/*' \
    --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr "$suite" "$root"
  echo machine >"$root/etc/hostname"
  echo '127.0.0.1 localhost machine' >"$root/etc/hosts"
  printf '%s\n' '/dev/vda / ext4 defaults 0 1' '/dev/vdb /skerry ext4 nofail 0 0' >"$root/etc/fstab"
  mkdir -p "$root/skerry"
  install -d -m 700 "$root/root/.ssh"
  install -m 600 "$dir/key.pub" "$root/root/.ssh/authorized_keys"
  printf '[Match]\nName=en* eth*\n[Network]\nDHCP=yes\n' >"$root/etc/systemd/network/80-dhcp.network"
  # TCG is slow: nothing is to give up early.
  mkdir -p "$root/etc/systemd/system.conf.d"
  printf '[Manager]\nDefaultTimeoutStartSec=600\nDefaultTimeoutStopSec=300\n' >"$root/etc/systemd/system.conf.d/slow.conf"
  chroot "$root" systemctl enable systemd-networkd >/dev/null 2>&1
  # They are started when they are wanted.
  chroot "$root" systemctl disable docker docker.socket containerd redis-server systemd-oomd >/dev/null 2>&1
  chroot "$root" useradd -m -s /bin/bash alice
  cp "$root"/boot/vmlinuz-* "$dir/vmlinuz"
  cp "$root"/boot/initrd.img-* "$dir/initrd"
  mke2fs -q -t ext4 -L root -d "$root" "$dir/root.img" 16G
  rm -rf "$root" "$dir/tmp"
  echo "$stamp" >"$dir/stamp"
}

payload() {
  local size
  size=$(($(du -sm "$1" | cut -f1) * 5 / 4 + 4096)) # room for data folders
  rm -f "$dir/payload.img"
  mke2fs -q -t ext4 -m 0 -L payload -d "$1" "$dir/payload.img" "${size}M"
}

# start ACCEL SECONDS WORD… starts the machine, and fails when it does not answer in time.
start() {
  local accel=$1 time=$2 cpu=max began=$SECONDS disks=()
  shift 2
  [ "$accel" = kvm ] && cpu=host
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])' >"$dir/port"
  [ ! -e "$dir/payload.img" ] || disks=(-drive "file=$dir/payload.img,format=raw,if=virtio,snapshot=on,cache=unsafe")
  : >"$dir/console.log"
  nice -n 5 qemu-system-x86_64 -accel "$accel" -cpu "$cpu" -m "${MACHINE_MEMORY:-4096}" -smp "${MACHINE_CPUS:-2}" -display none \
    -kernel "$dir/vmlinuz" -initrd "$dir/initrd" -append "root=/dev/vda rw console=ttyS0 net.ifnames=0 panic=-1 $*" \
    -drive file="$dir/root.img",format=raw,if=virtio,snapshot=on,cache=unsafe "${disks[@]}" -device virtio-rng-pci \
    -nic user,model=virtio-net-pci,restrict=on,hostfwd=tcp:127.0.0.1:"$(cat "$dir/port")"-:22 \
    -serial file:"$dir/console.log" -monitor none -pidfile "$dir/pid" -daemonize
  answers "$time" || return 1
  printf '  the machine answers after %d s (%s)\n' $((SECONDS - began)) "$accel"
}

# answers SECONDS waits for a machine that has started after the last one that answered.
answers() {
  local began=$SECONDS boot
  ssh_options
  while :; do
    boot=$(ssh "${ssh[@]}" root@127.0.0.1 cat /proc/sys/kernel/random/boot_id 2>/dev/null) && [ "$boot" != "$(cat "$dir/boot" 2>/dev/null)" ] && break
    running || { tail -n 20 "$dir/console.log" >&2; return 1; }
    [ $((SECONDS - began)) -lt "$1" ] || { end; return 1; }
    sleep 1
  done
  echo "$boot" >"$dir/boot"
}

reboot() {
  ssh_options
  ssh "${ssh[@]}" root@127.0.0.1 systemctl reboot || true
  answers 900 || die "it did not answer within 900 s after a reboot: $dir/console.log"
}

running() { [ -s "$dir/pid" ] && kill -0 "$(cat "$dir/pid")" 2>/dev/null; }
end() {
  ! running || kill "$(cat "$dir/pid")"
  rm -f "$dir/pid"
}

up() {
  ! running || die "it runs already (pid $(cat "$dir/pid"))"
  local accel=${MACHINE_ACCEL:-}
  if [ -z "$accel" ]; then
    # A machine in a machine may have /dev/kvm and yet start none.
    accel=$(cat "$dir/accel" 2>/dev/null || true)
    if [ -z "$accel" ]; then
      accel=tcg
      if [ -w /dev/kvm ] && start kvm 90 2>/dev/null; then
        accel=kvm
        down
      fi
      echo "$accel" >"$dir/accel"
    fi
  fi
  [ "$accel" = kvm ] || accel=tcg,thread=multi
  start "$accel" 900 "$@" || die "it did not answer within 900 s: $dir/console.log"
}

down() {
  running || return 0
  ssh_options
  timeout 60 ssh "${ssh[@]}" root@127.0.0.1 systemctl poweroff 2>/dev/null || true
  for _ in $(seq 90); do
    running || break
    sleep 1
  done
  end
}

case ${1:-} in
build) build ;;
payload) payload "$2" ;;
up) shift && up "$@" ;;
run) shift && ssh_options && exec ssh "${ssh[@]}" root@127.0.0.1 "$@" ;;
reboot) reboot ;;
down) down ;;
*) sed -n 2,17p "$0" >&2; exit 2 ;;
esac
