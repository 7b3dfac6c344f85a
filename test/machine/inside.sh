#!/usr/bin/env bash
# What check.sh runs in the machine: inside.sh PART.
set -euo pipefail
export PATH=/skerry/gobin:$PATH SKERRY_CACHE=/skerry/cache CI=true
export TMPDIR=/var/tmp # /tmp lies in memory on Debian 13, and is too small for two copies of an image
fail() { printf 'FAILED: %s\n' "$*"; exit 1; }
ok() { printf '  %s\n' "$*"; }

ground() {
  [ "$(cat /proc/1/comm)" = systemd ] || fail "process 1 is $(cat /proc/1/comm)"
  [ "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs ] || fail "/sys/fs/cgroup is no cgroup v2"
  ! grep -q ' cgroup ' /proc/self/mountinfo || fail "a cgroup v1 is mounted"
  [ "$(cat /sys/module/apparmor/parameters/enabled)" = Y ] || fail "AppArmor is off"
  ok "$(. /etc/os-release && echo "$PRETTY_NAME"), $(uname -r), $(systemctl --version | head -1)"
  ok "controllers: $(cat /sys/fs/cgroup/cgroup.controllers)"
}

# suite NAME FOLDER runs a test program; its lines about single tests are shown only when it fails.
suite() {
  local log
  log=$(mktemp)
  (cd "/skerry/src/internal/$2" && "/skerry/tests/$1.test" -test.v -test.timeout 90m "${@:3}") >"$log" 2>&1 || {
    grep -E '^ *--- FAIL|^panic|_test.go|\.go:[0-9]+:' "$log" | head -100
    tail -5 "$log"
    fail "$1"
  }
  ok "$1: $(grep -c '^ *--- PASS' "$log") passed, $(grep -c '^ *--- SKIP' "$log" || true) skipped, $(tail -1 "$log")"
  grep -A1 '^ *--- SKIP' "$log" | head -40 || true
}

gvisor() { install -m 755 /skerry/cache/bin/runsc /usr/local/bin/runsc; }

oci() {
  gvisor
  suite oci driver/oci
}

# docker_here starts Docker's engine as it is after its package was installed, with gVisor and the image base.
docker_here() {
  gvisor
  mkdir -p /etc/docker
  printf '{"runtimes": {"runsc": {"path": "/usr/local/bin/runsc", "runtimeArgs": ["--platform=systrap", "--host-uds=all", "--oci-seccomp"]}}}\n' >/etc/docker/daemon.json
  systemctl start docker
  ok "docker $(docker version --format '{{.Server.Version}}'), cgroups by $(docker info --format '{{.CgroupDriver}}') v$(docker info --format '{{.CgroupVersion}}')"
  docker image inspect skerry/base:latest >/dev/null 2>&1 || tar -C /skerry/cache/images/base/rootfs -c . | docker import - skerry/base:latest >/dev/null
}

docker_suite() {
  docker_here
  suite docker driver/docker
}

containerd_suite() { suite containerd driver/containerd; }

drivers() {
  oci
  docker_suite
  containerd_suite
}

attacks() {
  docker_here
  # Without KVM, on a host with nothing else to do: three minutes for a driver with runc or crun, eight with runsc.
  suite attack attack -test.timeout 6h
}

chaos() {
  local log
  log=$(mktemp)
  # A start takes seconds here: less is killed at a time, and fewer threads wait for it.
  (cd /skerry/src && /skerry/bin/chaos -bin /skerry/bin -cache /skerry/cache -driver oci -duration 2m -threads 6 -every 20s) >"$log" 2>&1 || {
    tail -60 "$log"
    fail chaos
  }
  grep -E '^chaos|killed|stopped' "$log"
}

api=http://127.0.0.1:8080/api

# call METHOD PATH [JSON] asks the server; it may be starting.
call() {
  local body=()
  [ $# -lt 3 ] || body=(-d "$3")
  curl -sS --retry 30 --retry-connrefused --retry-delay 1 --max-time 300 -X "$1" "$api/$2" -H 'Content-Type: application/json' "${body[@]}"
}
# exec_in THREAD COMMAND [MORE] runs a command, and prints the answer.
exec_in() { call POST "threads/$1/exec" "$(jq -nc --arg c "$2" '{command: $c, timeout_s: 240} + ($more | fromjson)' --arg more "${3:-{\}}")"; }
sandbox_of() { call GET "threads/$1" | jq -r '.sandbox.id // empty'; }
server() { systemctl show -p MainPID --value skerry; }
# cgroup_of ID is where a sandbox's cgroup is.
cgroup_of() { find /sys/fs/cgroup -type d -name "*$1*" | head -1; }
active() { for _ in $(seq 300); do [ "$(systemctl is-active skerry)" = active ] && return; sleep 1; done; fail "skerry is $(systemctl is-active skerry)"; }

service() {
  install -m 755 /skerry/bin/skerry /skerry/bin/skerry-sandboxd /usr/local/bin/
  install -m 644 /skerry/src/deploy/systemd/* /etc/systemd/system/
  mkdir -p /etc/skerry
  printf 'SKERRY_DRIVER=oci\nSKERRY_IMAGES=/skerry/cache/images\nSKERRY_DISK_QUOTA=off\n' >/etc/skerry/environment
  systemctl daemon-reload
  systemd-analyze verify skerry.service skerry-sandboxes.service
  systemctl enable --now skerry
  active
  ok "started, with Type=notify; exposure: $(systemd-analyze security --no-pager skerry | tail -1)"

  local id group pid
  exec_in a 'echo kept > /mnt/user-data/workspace/f; nproc' | jq -e '.exit_code == 0' >/dev/null || fail "an exec"
  id=$(sandbox_of a)
  group=$(cgroup_of "$id")
  case $group in
  /sys/fs/cgroup/skerry.slice/skerry-sandboxes.service/*) ok "the sandbox's cgroup: ${group#/sys/fs/cgroup}" ;;
  *) fail "the cgroup of $id is $group" ;;
  esac
  local limit
  limit=$(cat "$group/memory.max" "$group/pids.max" "$group/cpu.max" "$group/memory.swap.max" | xargs)
  pid=$(head -1 "$group/cgroup.procs")
  [ "$(cat "/proc/$pid/oom_score_adj")" -gt "$(cat "/proc/$(server)/oom_score_adj")" ] || fail "OOM scores"
  ok "limits $limit; OOM score of a sandbox $(cat "/proc/$pid/oom_score_adj"), of the server $(cat "/proc/$(server)/oom_score_adj")"

  systemctl daemon-reload
  systemctl set-property --runtime skerry.slice CPUWeight=50
  [ "$(cat "$group/memory.max" "$group/pids.max" "$group/cpu.max" "$group/memory.swap.max" | xargs)" = "$limit" ] || fail "a reload of systemd changed the limits"
  ok "limits stay over daemon-reload"

  # shellcheck disable=SC2016 # for the shell in the sandbox
  exec_in a 'head -c 3G /dev/zero | tail' | tee /tmp/oom | jq -e '.status == "oom"' >/dev/null || fail "out of memory is not told: $(cat /tmp/oom)"
  ok "out of memory is told: $(jq -c 'del(.stdout,.stderr)' /tmp/oom)"

  exec_in a 'true' >/dev/null
  id=$(sandbox_of a)
  systemctl restart skerry
  active
  [ "$(sandbox_of a)" = "$id" ] || fail "after a restart the sandbox is $(sandbox_of a), it was $id"
  [ "$(exec_in a 'cat /mnt/user-data/workspace/f' | jq -r .stdout)" = kept ] || fail "a file after a restart"
  ok "a restart of the server leaves the sandbox, which is adopted"

  local load=() n
  for n in 1 2 3; do
    (while exec_in "load$n" 'seq 100000 | sort | tail -1' >/dev/null 2>&1; do [ -e /tmp/load ] || break; done) &
    load+=($!)
  done
  touch /tmp/load
  kill -9 "$(server)"
  sleep 3
  active
  [ "$(exec_in a 'cat /mnt/user-data/workspace/f' | jq -r .stdout)" = kept ] || fail "a file after kill -9"
  [ "$(sandbox_of a)" = "$id" ] || fail "after kill -9 the sandbox is $(sandbox_of a), it was $id"
  ok "kill -9 under load: systemd starts the server again, which adopts the sandboxes"
  systemctl restart skerry
  active
  rm -f /tmp/load
  wait "${load[@]}"
  ok "a restart under load"

  local hung
  hung=$(server)
  kill -STOP "$hung"
  for n in $(seq 120); do [ "$(server)" = "$hung" ] || break; sleep 1; done
  [ "$(server)" != "$hung" ] || fail "the watchdog did not end a server that hangs"
  active
  [ "$(sandbox_of a)" = "$id" ] || fail "after the watchdog the sandbox is $(sandbox_of a), it was $id"
  ok "the watchdog ends a server that hangs, and its sandboxes go on"

  held_socket
  strained "$(cgroup_of "$(sandbox_of a)")"

  [ "$(journalctl -u skerry --no-pager | grep -c 'serving on')" -gt 3 ] || fail "the journal has no line of the server"
  ok "journal: $(journalctl -u skerry --no-pager | grep -c .) lines, of them warnings and errors:"
  journalctl -u skerry --no-pager -o cat | grep -E 'level=(WARN|ERROR)' | sed -E 's/^time=[^ ]+ //' | sort | uniq -c | sort -rn | head -12 || true
}

# package: the release's packages of Debian, on a machine that boots with systemd: installed, started, installed once more and removed
# by dpkg. Upgrades between versions: test/release.
package() {
  local id before files=(/skerry/release/skerry_*.deb /skerry/release/skerry-image-base_*.deb)
  [ -e "${files[0]}" ] || fail "no packages in /skerry/release"
  ! command -v skerry >/dev/null || fail "this machine has skerry, so it shows nothing"
  dpkg -i "${files[@]}" >/tmp/install.log 2>&1 || { cat /tmp/install.log; fail "dpkg -i"; }
  [ "$(systemctl is-active skerry)" != active ] || fail "an install starts the server"
  systemd-analyze verify skerry.service skerry-sandboxes.service
  systemctl enable --now skerry
  active
  exec_in a 'python3 -c "print(6 * 7)" && echo kept > /mnt/user-data/workspace/f' | tee /tmp/first | jq -e '.exit_code == 0 and .stdout == "42\n"' >/dev/null || fail "a first exec: $(cat /tmp/first)"
  id=$(sandbox_of a)
  case $(cgroup_of "$id") in
  /sys/fs/cgroup/skerry.slice/skerry-sandboxes.service/*) ok "$(dpkg-query -W skerry | tr '\t' ' '): systemctl enable --now skerry, and a first exec in the image of the release" ;;
  *) fail "the cgroup of $id is $(cgroup_of "$id")" ;;
  esac
  before=$(server)
  dpkg -i "${files[0]}" >/tmp/install.log 2>&1 || { cat /tmp/install.log; fail "dpkg -i, once more"; }
  active
  [ "$(server)" != "$before" ] || fail "a second install does not start the server again"
  [ "$(sandbox_of a)" = "$id" ] || fail "after a second install the sandbox is $(sandbox_of a), it was $id"
  [ "$(exec_in a 'cat /mnt/user-data/workspace/f' | jq -r .stdout)" = kept ] || fail "a file after a second install"
  ok "a second install starts the server again, which adopts the sandbox"
  dpkg --purge skerry skerry-image-base >/tmp/install.log 2>&1 || { cat /tmp/install.log; fail "dpkg --purge"; }
  [ "$(systemctl is-active skerry)" != active ] || fail "the server runs without its package"
  [ -z "$(cgroup_of "$id")" ] || fail "a sandbox is left"
  [ -d /var/lib/skerry/tenants ] || fail "a removal deleted the data folder"
  ok "a removal ends the server and its sandboxes, and keeps the data"
}

# held_socket: with skerry.socket, a caller waits for a server that starts; without, it is refused.
held_socket() {
  local n
  systemctl stop skerry
  ! curl -sS --max-time 5 "${api%/api}/healthz" 2>/dev/null || fail "something else answers at $api"
  systemctl enable --now skerry.socket
  curl -sS --max-time 300 "${api%/api}/healthz" >/dev/null || fail "the socket does not start the server"
  active
  systemctl restart --no-block skerry
  for n in $(seq 20); do curl -sS --max-time 300 "${api%/api}/healthz" >/dev/null || fail "call $n was refused during a restart"; done
  active
  ok "skerry.socket: 20 calls during a restart, none refused"
}

# strained CGROUP: systemd-oomd ends the sandbox that strains memory, and no other, and not the server.
strained() {
  local before group
  before=$(server)
  mkdir -p /etc/systemd/system/skerry-sandboxes.service.d
  # As in the unit, but it does not wait for a machine that stands still.
  printf '[Service]\nManagedOOMMemoryPressureLimit=5%%\n' >/etc/systemd/system/skerry-sandboxes.service.d/soon.conf
  mkdir -p /etc/systemd/oomd.conf.d
  printf '[OOM]\nDefaultMemoryPressureDurationSec=2s\n' >/etc/systemd/oomd.conf.d/soon.conf
  systemctl daemon-reload
  systemctl restart systemd-oomd
  oomctl | grep -q skerry-sandboxes.service || fail "systemd-oomd does not watch skerry-sandboxes.service: $(oomctl)"
  exec_in strain 'true' >/dev/null
  group=$(cgroup_of "$(sandbox_of strain)")
  # The kernel holds up what goes beyond memory.high, which is memory pressure wherever the test runs.
  echo 64M >"$group/memory.high"
  exec_in strain 'python3 -c "x = [bytearray(1 << 20) for _ in range(700)]"' >/tmp/strained
  journalctl -u systemd-oomd --no-pager -o cat | grep -i 'killed' || fail "systemd-oomd killed nothing: $(cat /tmp/strained), $(oomctl)"
  [ -d "$1" ] || fail "the sandbox of another thread is gone"
  [ "$(server)" = "$before" ] || fail "the server was ended"
  ok "systemd-oomd: $(jq -c 'del(.stdout,.stderr)' /tmp/strained)"
  [ "$(exec_in strain 'echo again' | jq -r .stdout)" = again ] || fail "the thread has no new sandbox"
  systemctl stop systemd-oomd
  rm -r /etc/systemd/system/skerry-sandboxes.service.d /etc/systemd/oomd.conf.d
  systemctl daemon-reload
  call DELETE threads/strain >/dev/null
}

# restricted is a machine that leaves user namespaces to root, as Ubuntu does (there by AppArmor, on Debian by a sysctl).
restricted() {
  gvisor
  local key
  for key in kernel.apparmor_restrict_unprivileged_userns kernel.apparmor_restrict_unprivileged_unconfined; do
    if sysctl -n "$key" >/dev/null 2>&1; then sysctl -q "$key=1" && ok "$key=1"; fi
  done
  sysctl -q kernel.unprivileged_userns_clone=0
  ! sudo -u alice unshare -U true 2>/dev/null || fail "alice makes a user namespace"
  ok "users make no user namespaces"
  suite oci driver/oci -test.run '^TestConformance$/^(runc|crun|runsc)$/^(Lifecycle|Hardening|Weigh)$'
}

# unprivileged: a user who is not root is told what is missing.
unprivileged() {
  local said
  said=$(sudo -u alice /skerry/bin/skerry serve --driver oci --data /tmp/alice 2>&1) && fail "a server without root started: $said"
  grep -q root <<<"$said" || fail "a server without root says: $said"
  ok "without root: $(tail -1 <<<"$said")"
}

# rebooted is what holds after a reboot with live sandboxes.
rebooted() {
  active
  [ "$(exec_in a 'cat /mnt/user-data/workspace/f' | jq -r .stdout)" = kept ] || fail "a file after a reboot"
  ok "a reboot with live sandboxes: the service starts, files are there, an exec runs"
  systemctl stop skerry-sandboxes
  [ "$(systemctl is-active skerry)" != active ] || fail "the server runs without its cgroup"
  [ -z "$(find /sys/fs/cgroup/skerry.slice -name 'skerry-*' -path '*sandboxes*' -name 'skerry-[0-9a-f]*' 2>/dev/null)" ] || fail "sandboxes are left"
  ok "stopping skerry-sandboxes ends all sandboxes"
}

for part; do "$part"; done
