#!/usr/bin/env bash
# Makes sure that a docker daemon answers and knows gVisor: starts one where none runs (for CI and
# test machines without an init system), and tells a running one to read its configuration again
# after runsc was added to it. Never ends a daemon.
set -euo pipefail
config=/etc/docker/daemon.json
log=/tmp/skerry-dockerd.log

answers() { timeout 10 docker info >/dev/null 2>&1; }

# add_runsc puts the runtime into daemon.json and keeps all else; fails when it is there already.
add_runsc() {
  python3 - "$config" "$(command -v runsc)" <<'PY'
import json, os, sys
path, runsc = sys.argv[1:]
config = json.load(open(path)) if os.path.exists(path) else {}
# Without --host-uds no host socket is reachable; --ignore-cgroups would remove every limit.
want = {"path": runsc, "runtimeArgs": ["--platform=systrap", "--host-uds=all", "--oci-seccomp"]}
if config.setdefault("runtimes", {}).get("runsc") == want:
    sys.exit(1)
config["runtimes"]["runsc"] = want
os.makedirs(os.path.dirname(path), exist_ok=True)
with open(path + ".new", "w") as f:
    json.dump(config, f, indent=2)
os.rename(path + ".new", path)
PY
}

changed=false
if command -v runsc >/dev/null && add_runsc; then changed=true; fi
if ! answers; then
  echo "  starting dockerd (log in $log)"
  setsid nohup dockerd >"$log" 2>&1 </dev/null &
  for _ in $(seq 60); do
    answers && break
    sleep 0.5
  done
  answers || { tail -20 "$log" >&2; exit 1; }
elif $changed && [ -r /var/run/docker.pid ]; then
  kill -HUP "$(cat /var/run/docker.pid)"
  sleep 1
fi
