#!/usr/bin/env bash
# Installs what building, testing and the demo need, and says so before it does. What is there
# already is left alone, so a second run is quiet and quick.
#
#   scripts/install.sh WHAT…
#     run      runc, from Debian
#     images   what builds the images of templates: mmdebstrap, and pip where Python has none, from Debian
#     test     Docker, Redis, protoc with its standard messages, shellcheck and a C compiler (for go test -race), from Debian
#     postgres PostgreSQL, from Debian, for the tests of packs/sql. Its service is not started
#     runsc    gVisor, from its Go module
#     containerd  the newest containerd and its shim, from its Go module, beside the one of Debian
#     mcp      the MCP servers of the demo and the tests, tsx, tsc and pyright, from npm; the official
#              conformance suite, with a Node that is new enough for it
#     mcp-many eight more MCP servers, for the test of many at once, from npm
#     rivals   llm-sandbox, which make bench measures beside Skerry, from PyPI
#     python-sdk  what the Python client, its adapters and their tests need, in a venv of their own, from PyPI
#     python-autogen, python-deepagents-code, python-openai-agents  those adapters in a venv each: what they pin does not go with the others
#     clients  what the tests of the TypeScript client and of MCP clients need, bun and deno among it, from npm and PyPI
#     console  what the web console is built and tested with, from npm
#     browser  Chromium, for the tests of the web console, from Debian
#     e2b      E2B's SDKs in three versions each, from npm and PyPI
#     docs     MkDocs with Material, which makes the documentation's site, from PyPI
#     s3       versitygw, an S3-compatible server for the tests, from its Go module
#     helm     Helm and kubeconform, from their Go modules
#     machine  qemu and what makes the disk of a machine with systemd, from Debian
#     linters  golangci-lint, from its Go module
#     release  what makes and tries a release: goreleaser and nfpm, from their Go modules; rpm, jq and qemu's user
#              mode, from Debian; what reads lists of parts, from PyPI
#     compose  Docker Compose, from its Go module
#     rust     what the tests of the Rust crate need besides cargo: OpenSSH, from Debian
#
# Debian packages and runsc go where Debian puts them, all else into $SKERRY_CACHE (default
# /var/cache/skerry). Needs root or sudo.
set -euo pipefail
umask 022
cache=${SKERRY_CACHE:-/var/cache/skerry}
here=$(cd "$(dirname "$0")" && pwd)

die() { printf 'scripts/install.sh: %s\n' "$*" >&2; exit 1; }
# type -P, not command -v: a function of this script is no program.
have() { type -P "$1" >/dev/null || [ -x "/usr/sbin/$1" ]; }
asroot() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif have sudo; then
    sudo "$@"
  else
    die "needs root, or sudo"
  fi
}

# step NAME TEXT COMMAND… says TEXT and runs the command; its output is shown only when it fails. The command stops at the
# first of its own that fails: left of || bash would go on, so the exit code is asked for afterwards.
step() {
  local log=$cache/log/$1.log began=$SECONDS code
  printf '  installing %s\n' "$2"
  shift 2
  set +e
  (set -e; "$@") >"$log" 2>&1
  code=$?
  set -e
  [ $code = 0 ] || { tail -30 "$log" >&2; die "that failed after $((SECONDS - began)) s; all of its output is in $log"; }
  printf '  … done in %d s\n' $((SECONDS - began))
}

# folders makes the folders of the cache, for the user who runs this.
folders() {
  local dir
  for dir in bin log mcp mcp-many containerd clients console e2b compose; do
    [ -w "$cache/$dir" ] && continue
    asroot mkdir -p "$cache/$dir"
    [ -w "$cache/$dir" ] || asroot chown -R "$(id -u)" "$cache/$dir"
  done
}

apt_get() { asroot env DEBIAN_FRONTEND=noninteractive apt-get "$@"; }

apt_install() {
  # A list that cannot be renewed (a mirror of something else is down) need not be a reason to fail.
  apt_get update || true
  apt_get install -y --no-install-recommends "$@"
}

# Debian's package makes a cluster and starts it: the tests have one of their own, so it is told not to, before it comes.
fetch_postgres() {
  apt_install postgresql-common
  asroot sed -i 's/^#*create_main_cluster .*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
  apt_install postgresql
}

# debian NAME FILE=PACKAGE… installs the packages whose program or file is not there.
debian() {
  local name=$1 pair want=()
  shift
  for pair in "$@"; do
    case $pair in
    /*) [ -e "${pair%%=*}" ] || want+=("${pair#*=}") ;;
    *) have "${pair%%=*}" || want+=("${pair#*=}") ;;
    esac
  done
  [ ${#want[@]} -eq 0 ] || step "$name" "Debian packages: ${want[*]}" apt_install "${want[@]}"
}

# Pinned: the branch of gVisor that go install can build is not served by every module proxy.
gvisor=gvisor.dev/gvisor/runsc@v0.0.0-20260527191743-a81fd9dd382e

build_runsc() {
  # Static, because it starts itself again inside of the sandbox's root.
  CGO_ENABLED=0 GOBIN=$cache/bin go install "$gvisor"
  asroot install -m 0755 "$cache/bin/runsc" /usr/local/bin/runsc
}

containerd=github.com/containerd/containerd/v2/cmd
containerd_version=v2.4.2

# Without what Kubernetes and rarer file systems need: half of it. The folder is on the PATH of nobody.
build_containerd() {
  rm -f "$cache/containerd/stamp"
  CGO_ENABLED=0 GOBIN=$cache/containerd go install -tags no_cri,no_btrfs,no_devmapper,no_zfs \
    $containerd/containerd@$containerd_version $containerd/containerd-shim-runc-v2@$containerd_version
  echo $containerd_version >"$cache/containerd/stamp"
}

# They run as nobody, so the folder is open to read. The package node is for the conformance suite alone.
mcp_packages=(@modelcontextprotocol/conformance@0.2.0-alpha.12 node@22.23.3
  @modelcontextprotocol/server-{filesystem,memory,everything}@2026.8.31 typescript@7.0.2 tsx@4.23.15 pyright@1.1.414)

fetch_mcp() {
  local dir=$cache/mcp
  rm -f "$dir/stamp"
  echo '{"private":true}' >"$dir/package.json"
  npm install --prefix "$dir" --no-package-lock --no-audit --no-fund --loglevel=error "${mcp_packages[@]}"
  chmod -R a+rX "$dir"
  printf '%s\n' "${mcp_packages[*]}" >"$dir/stamp"
}

mcp_many_packages=(@modelcontextprotocol/server-sequential-thinking@2026.8.31 @modelcontextprotocol/server-pdf@2.0.4 @playwright/mcp@0.0.83
  chrome-devtools-mcp@1.11.0 @notionhq/notion-mcp-server@2.5.2 @upstash/context7-mcp@4.1.1 mcp-server-kubernetes@4.1.7 @sentry/mcp-server@0.39.0)

# Their browsers are not needed: a call that wants one has its named error.
fetch_mcp_many() {
  local dir=$cache/mcp-many
  rm -f "$dir/stamp"
  echo '{"private":true}' >"$dir/package.json"
  npm install --prefix "$dir" --no-package-lock --no-audit --no-fund --loglevel=error --ignore-scripts "${mcp_many_packages[@]}"
  chmod -R a+rX "$dir"
  printf '%s\n' "${mcp_many_packages[*]}" >"$dir/stamp"
}

helm=helm.sh/helm/v3/cmd/helm@v3.19.5
kubeconform=github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0

build_helm() {
  CGO_ENABLED=0 GOBIN=$cache/bin go install "$helm"
  CGO_ENABLED=0 GOBIN=$cache/bin go install "$kubeconform"
  printf '%s\n' "$helm $kubeconform" >"$cache/bin/helm.stamp"
}

golangci=github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

build_linters() {
  CGO_ENABLED=0 GOBIN=$cache/bin go install "$golangci"
  printf '%s\n' "$golangci" >"$cache/bin/golangci-lint.stamp"
}

# The newest that build: later ones need a module that the proxy does not serve, or a newer Go.
release_tools=(github.com/goreleaser/goreleaser/v2@v2.15.0 github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2)

build_release() {
  local tool
  for tool in "${release_tools[@]}"; do CGO_ENABLED=0 GOBIN=$cache/bin go install "$tool"; done
  printf '%s\n' "${release_tools[*]}" >"$cache/bin/release.stamp"
}

compose=github.com/docker/compose/v5 compose_version=v5.6.0

# go install refuses this module, because it excludes versions of others. So a module of its own builds the program.
build_compose() {
  local dir=$cache/compose/module
  rm -rf "$dir"
  mkdir -p "$dir" "$cache/compose/cli-plugins"
  (cd "$dir" && go mod init compose && go get -tool $compose/cmd@$compose_version &&
    CGO_ENABLED=0 go build -ldflags "-s -w -X $compose/internal.Version=$compose_version" -o "$cache/compose/cli-plugins/docker-compose" $compose/cmd)
  rm -rf "$dir"
  echo $compose_version >"$cache/compose/stamp"
}

llm_sandbox='llm-sandbox[docker]==0.3.46'

fetch_rivals() {
  rm -rf "$cache/rivals"
  python3 -m venv "$cache/rivals" || { apt_install python3-venv && python3 -m venv "$cache/rivals"; }
  "$cache/rivals/bin/pip" install --disable-pip-version-check "$llm_sandbox"
  printf '%s\n' "$llm_sandbox" >"$cache/rivals/stamp"
}

# fetch_python NAME REQUIREMENTS makes a venv. Every version is pinned: scripts and documents say what is tested.
fetch_python() {
  rm -rf "${cache:?}/$1"
  python3 -m venv "$cache/$1" || { apt_install python3-venv && python3 -m venv "$cache/$1"; }
  "$cache/$1/bin/pip" install --disable-pip-version-check --no-deps -r "$2"
  "$cache/$1/bin/pip" check
  cp "$2" "$cache/$1/stamp"
}

# python NAME REQUIREMENTS WHAT makes a venv unless it is there with these requirements.
python() { cmp -s "$cache/$1/stamp" "$here/../$2" || step "$1" "$3" fetch_python "$1" "$here/../$2"; }

# client_parts prints what to install: every version is pinned in the files that name them. What else these bring along is not.
client_parts() {
  node -e 'const parts = process.argv.slice(1).map((f) => JSON.parse(require("fs").readFileSync(f)));
    console.log(JSON.stringify({ private: true, dependencies: Object.assign({}, ...parts.map((p) => ({ ...p.dependencies, ...p.devDependencies }))) }))' \
    "$here"/../sdk/{typescript,mcp}/package.json
  cat "$here/../sdk/mcp/requirements.txt"
}

fetch_clients() {
  local dir=$cache/clients
  rm -rf "$dir"
  mkdir -p "$dir"
  client_parts | sed -n 1p >"$dir/package.json"
  npm install --prefix "$dir" --no-package-lock --no-audit --no-fund --loglevel=error
  python3 -m venv "$dir/python" || { apt_install python3-venv && python3 -m venv "$dir/python"; }
  "$dir/python/bin/pip" install --disable-pip-version-check -r "$here/../sdk/mcp/requirements.txt"
  client_parts >"$dir/stamp"
}

# What package-lock.json names, and nothing else.
fetch_console() {
  local dir=$cache/console
  rm -rf "$dir/stamp" "$dir/node_modules"
  cp "$here"/../console/package{,-lock}.json "$dir/"
  npm ci --prefix "$dir" --no-audit --no-fund --loglevel=error
  chmod -R a+rX "$dir"
  cp "$here/../console/package-lock.json" "$dir/stamp"
}

# One folder for each version of E2B's SDKs, the newest first.
fetch_e2b() {
  local dir=$cache/e2b versions=$here/../sdk/e2b/versions.json n
  rm -rf "$dir"
  mkdir -p "$dir"
  for n in 0 1 2; do
    mkdir "$dir/node-$n"
    node -e 'const [file, n] = process.argv.slice(1); console.log(JSON.stringify({ private: true, dependencies: JSON.parse(require("fs").readFileSync(file)).node[n] }))' "$versions" "$n" >"$dir/node-$n/package.json"
    npm install --prefix "$dir/node-$n" --no-package-lock --no-audit --no-fund --loglevel=error
    python3 -m venv "$dir/python-$n" || { apt_install python3-venv && python3 -m venv "$dir/python-$n"; }
    node -e 'const [file, n] = process.argv.slice(1); for (const [k, v] of Object.entries(JSON.parse(require("fs").readFileSync(file)).python[n])) console.log(k + "==" + v)' "$versions" "$n" >"$dir/python-$n.txt"
    "$dir/python-$n/bin/pip" install --disable-pip-version-check -r "$dir/python-$n.txt"
  done
  cp "$versions" "$dir/stamp"
}

versitygw=github.com/versity/versitygw/cmd/versitygw@v1.8.0

build_s3() {
  CGO_ENABLED=0 GOBIN=$cache/bin go install "$versitygw"
  printf '%s\n' "$versitygw" >"$cache/bin/versitygw.stamp"
}

# stamped FILE TEXT: FILE is there and says TEXT.
stamped() { [ "$(cat "$1" 2>/dev/null)" = "$2" ]; }

for program in go node npm python3; do
  have $program || die "$program is missing: Skerry needs Go ($(sed -n 's/^go //p' "$here/../go.mod") or newer), Node (18 or newer) with npm, and Python 3"
done
(cd "$here" && go version >/dev/null) || die "this Go cannot build what go.mod asks for ($(sed -n 's/^go //p' "$here/../go.mod"))"
folders
for what in "$@"; do
  # Tiers of the tests run side by side: one of them installs, the others wait for it.
  exec 9>"$cache/log/$what.lock"
  flock 9
  case $what in
  run) debian run runc=runc ;;
  images)
    debian images mmdebstrap=mmdebstrap
    python3 -m pip --version >/dev/null 2>&1 || step images "pip for python3, from Debian" apt_install python3-pip
    ;;
  test)
    debian test tini=tini mkfs.ext4=e2fsprogs mkfs.btrfs=btrfs-progs dockerd=docker.io redis-server=redis-server shellcheck=shellcheck openssl=openssl curl=curl protoc=protobuf-compiler /usr/include/google/protobuf/timestamp.proto=libprotobuf-dev gcc=gcc /usr/include/stdio.h=libc6-dev
    debian test docker=docker-cli # a package of its own from Debian 13 on
    ;;
  postgres) compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || step postgres "Debian packages: postgresql" fetch_postgres ;;
  runsc) have runsc || step runsc "gVisor's runsc, from its Go module (2 to 4 minutes)" build_runsc ;;
  containerd) stamped "$cache/containerd/stamp" $containerd_version || step containerd "containerd $containerd_version, from its Go module (1 to 2 minutes)" build_containerd ;;
  mcp) stamped "$cache/mcp/stamp" "${mcp_packages[*]}" || step mcp "from npm: ${mcp_packages[*]}" fetch_mcp ;;
  mcp-many) stamped "$cache/mcp-many/stamp" "${mcp_many_packages[*]}" || step mcp-many "from npm: ${mcp_many_packages[*]} (a minute)" fetch_mcp_many ;;
  rivals) stamped "$cache/rivals/stamp" "$llm_sandbox" || step rivals "from PyPI: $llm_sandbox" fetch_rivals ;;
  python-sdk) python python-sdk sdk/python/requirements.txt "the parts of the Python client's tests, from PyPI (1 to 2 minutes)" ;;
  python-autogen | python-deepagents-code | python-openai-agents) python "$what" "sdk/python/requirements-${what#python-}.txt" "${what#python-} with what its tests need, from PyPI (a minute)" ;;
  docs) python docs docs/requirements.txt "MkDocs with Material, from PyPI (half a minute)" ;;
  e2b) stamped "$cache/e2b/stamp" "$(cat "$here/../sdk/e2b/versions.json")" || step e2b "E2B's SDKs, from npm and PyPI (two minutes)" fetch_e2b ;;
  clients) stamped "$cache/clients/stamp" "$(client_parts)" || step clients "what the tests of clients need, from npm and PyPI (a minute)" fetch_clients ;;
  console) cmp -s "$cache/console/stamp" "$here/../console/package-lock.json" || step console "what the web console is built with, from npm (half a minute)" fetch_console ;;
  browser) debian browser chromium=chromium ;;
  s3) stamped "$cache/bin/versitygw.stamp" "$versitygw" || step s3 "versitygw, from its Go module (1 to 2 minutes)" build_s3 ;;
  helm) stamped "$cache/bin/helm.stamp" "$helm $kubeconform" || step helm "Helm and kubeconform, from their Go modules (2 to 4 minutes)" build_helm ;;
  machine) debian machine qemu-system-x86_64=qemu-system-x86 mmdebstrap=mmdebstrap ssh-keygen=openssh-client mke2fs=e2fsprogs ;;
  rust) debian rust ssh-keygen=openssh-client ssh-agent=openssh-client ;;
  release)
    debian release rpm=rpm qemu-aarch64-static=qemu-user-static mmdebstrap=mmdebstrap jq=jq openssl=openssl
    stamped "$cache/bin/release.stamp" "${release_tools[*]}" || step release "goreleaser and nfpm, from their Go modules (3 to 6 minutes)" build_release
    python sbom test/release/requirements.txt "what reads lists of parts, from PyPI (half a minute)"
    ;;
  compose) stamped "$cache/compose/stamp" $compose_version || step compose "Docker Compose $compose_version, from its Go module (1 to 5 minutes)" build_compose ;;
  linters) stamped "$cache/bin/golangci-lint.stamp" "$golangci" || step linters "golangci-lint, from its Go module (1 to 3 minutes)" build_linters ;;
  *) die "unknown: $what" ;;
  esac
done
