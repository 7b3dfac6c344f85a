#!/usr/bin/env bash
# Installs what building, testing and the demo need, and says so before it does. What is there
# already is left alone, so a second run is quiet and quick.
#
#   scripts/install.sh WHAT…      run | test | runsc | mcp | linters
set -euo pipefail
cache=${SKERRY_CACHE:-/var/cache/skerry}
sudo() { if [ "$(id -u)" = 0 ]; then "$@"; else command sudo "$@"; fi; }
say() { printf '  installing %s\n' "$*"; }
have() { command -v "$1" >/dev/null 2>&1; }

# Debian packages by the program that shows they are there.
install_apt() {
  local want=() p
  for p in "$@"; do
    local program=${p%%=*} package=${p#*=}
    have "$program" || [ -x "/usr/sbin/$program" ] || want+=("$package")
  done
  [ ${#want[@]} -gt 0 ] || return 0
  say "Debian packages: ${want[*]}"
  sudo apt-get update -qq >/dev/null
  sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${want[@]}" >/tmp/skerry-apt.log 2>&1 ||
    { tail -20 /tmp/skerry-apt.log >&2; exit 1; }
}

# gVisor, pinned: the branch that has a Go build is not served by every proxy.
gvisor=v0.0.0-20260527191743-a81fd9dd382e
install_runsc() {
  have runsc && return 0
  say "gVisor's runsc from its Go module (about 2 minutes)"
  GOBIN=$cache/bin go install "gvisor.dev/gvisor/runsc@$gvisor" >/tmp/skerry-runsc.log 2>&1 || { tail -20 /tmp/skerry-runsc.log >&2; exit 1; }
  sudo install -m 0755 "$cache/bin/runsc" /usr/local/bin/runsc
}

# The MCP servers of the demo and the tests, and what the benchmark compares with. They run as
# nobody, so the folder is open to read.
mcp_packages=(@modelcontextprotocol/server-{filesystem,memory,everything}@2026.8.31 typescript@7.0.2 tsx@4.23.15)
install_mcp() {
  local dir=$cache/mcp stamp
  stamp=$(printf '%s\n' "${mcp_packages[@]}" | sha256sum | cut -c1-16)
  [ "$(cat "$dir/stamp" 2>/dev/null)" = "$stamp" ] && return 0
  say "MCP servers from npm: ${mcp_packages[*]}"
  sudo mkdir -p "$dir"
  echo '{"private":true}' | sudo tee "$dir/package.json" >/dev/null
  sudo npm install --prefix "$dir" --no-package-lock --no-audit --no-fund --loglevel=error "${mcp_packages[@]}" >/tmp/skerry-npm.log 2>&1 ||
    { tail -20 /tmp/skerry-npm.log >&2; exit 1; }
  sudo chmod -R a+rX "$dir"
  echo "$stamp" | sudo tee "$dir/stamp" >/dev/null
}

install_linters() {
  local tool
  for tool in golangci-lint=github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0; do
    [ -x "$cache/bin/${tool%%=*}" ] && continue
    say "${tool%%=*} from its Go module (a few minutes)"
    GOBIN=$cache/bin go install "${tool#*=}" >/tmp/skerry-lint.log 2>&1 || { tail -20 /tmp/skerry-lint.log >&2; exit 1; }
  done
}

sudo mkdir -p "$cache/bin"
[ -w "$cache/bin" ] || sudo chown "$(id -u)" "$cache/bin"
for program in go node npm python3; do
  have $program || { echo "scripts/install.sh: $program is missing: install Go (the version in go.mod), Node 20 or newer, and Python 3" >&2; exit 1; }
done
for what in "$@"; do
  case $what in
  run) install_apt runc=runc mmdebstrap=mmdebstrap ;;
  test) install_apt dockerd=docker.io redis-server=redis-server shellcheck=shellcheck protoc=protobuf-compiler ;;
  runsc) install_runsc ;;
  mcp) install_mcp ;;
  linters) install_linters ;;
  *) echo "scripts/install.sh: unknown: $what" >&2; exit 2 ;;
  esac
done
