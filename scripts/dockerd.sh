#!/usr/bin/env bash
# Makes sure that a Docker daemon answers and knows gVisor: starts one where none runs (on CI and
# test machines without an init system), and tells a running one to read its configuration again
# after runsc was added to it. Never ends a daemon. Needs root or sudo.
set -euo pipefail
[ "$(id -u)" = 0 ] || exec sudo -E env "PATH=$PATH" "$0" "$@"
config=/etc/docker/daemon.json
log=/var/log/skerry-dockerd.log

answers() { timeout 10 docker info >/dev/null 2>&1; }

# add_runsc puts the runtime into daemon.json and keeps all else; 3 = it is there already.
add_runsc() {
  python3 - "$config" "$(command -v runsc)" <<'PY'
import json, os, sys
path, runsc = sys.argv[1:]
config = json.load(open(path)) if os.path.exists(path) else {}
# Without --host-uds no host socket is reachable, without --oci-seccomp the filter is not in force;
# --ignore-cgroups would remove every limit.
want = {"path": runsc, "runtimeArgs": ["--platform=systrap", "--host-uds=all", "--oci-seccomp"]}
if config.setdefault("runtimes", {}).get("runsc") == want:
    sys.exit(3)
config["runtimes"]["runsc"] = want
os.makedirs(os.path.dirname(path), exist_ok=True)
with open(path + ".new", "w") as f:
    json.dump(config, f, indent=2)
os.rename(path + ".new", path)
PY
}

changed=false
if command -v runsc >/dev/null; then
  code=0
  add_runsc || code=$?
  case $code in
  0) changed=true ;;
  3) ;;
  *) echo "scripts/dockerd.sh: $config could not be changed" >&2; exit 1 ;;
  esac
fi
if ! answers; then
  echo "  starting dockerd (its log: $log)"
  setsid nohup dockerd >"$log" 2>&1 </dev/null &
  for _ in $(seq 60); do
    answers && break
    sleep 0.5
  done
  answers || { tail -20 "$log" >&2; echo "scripts/dockerd.sh: dockerd does not answer" >&2; exit 1; }
elif $changed && [ -r /var/run/docker.pid ]; then
  echo "  telling dockerd of the runtime runsc"
  kill -HUP "$(cat /var/run/docker.pid)"
  for _ in $(seq 20); do
    docker info --format '{{json .Runtimes}}' | grep -q '"runsc"' && break
    sleep 0.25
  done
fi
