#!/usr/bin/env bash
# The tests, in tiers with real parts. Tiers that need no quiet machine run side by side; each has a log of its
# own, which is shown whole when the tier fails. docs/testing.md says what each tier proves.
#
#   scripts/test.sh          what a change is likely to break: the first four tiers, with -short (make test)
#   scripts/test.sh all      every tier, whole (make test-all)
#   scripts/test.sh changed  the first four, and of everything else what changed since it last passed on this
#                            machine (CI; on a fresh machine that is every tier, whole)
#
# -short runs a test of sandboxes with two of the five pairs of driver and runtime, and repeats less. Without an argument
# the race detector is off: with it the same tests compute twice as long, and CI has it on.
#
#   check       scripts/check.sh
#   unit        go test of all packages that need no container
#   drivers     go test of what starts sandboxes: Docker, containerd, runc, gVisor
#   system      go test of the whole system, with Redis and MCP servers
#
#   python      the Python client and its adapters: types, lint, tests with a real server
#   clients     the clients for TypeScript and Go, those of MCP, of E2B and of DeerFlow, against a server, and the Rust crate: scripts/clients.sh
#   console     the web console in Chromium, against real servers: console/test/test.sh
#   copies      go test of the orchestrator again, with sandboxes that do not see the server's disk
#   images      builds the images of the templates browser, data and office (5 minutes, or nothing when they are there)
#   templates   runs the tests of these images
#   attack      go test of the attacks
#   foreign     skills, plugins and MCP servers of others, from npm and PyPI, run as their authors document
#   release     makes a release and installs it on fresh Debians: test/release/check.sh
#   compose     builds the Dockerfile and docker-compose.yml, and runs a first exec from outside, only in "all": test/compose/check.sh
#   chaos       two minutes in which servers, sandboxes, Redis and dockerd are killed at random
#   cluster     builds the programs of a Kubernetes (10 minutes, or nothing when they are there)
#   suites      the tests of E2B's own SDKs, from GitHub by digest, only in "all": sdk/e2b/suites/test.sh
#   frameworks  frameworks that use E2B, and LibreChat's tools, from PyPI and npm, only in "all": sdk/e2b/frameworks/test.sh
#   machine     on a Debian with systemd and cgroup v2 in qemu, only in "all": test/machine/README.md
#   kubernetes  on a real cluster: the Helm chart, the attacks in pods, the driver's suite: scripts/e2e-kubernetes.sh
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
wanted=${1:-quick}
case $wanted in
quick | all | changed) ;;
*) echo "scripts/test.sh: what is \"$wanted\"? Wanted: all, changed, or no argument" >&2; exit 2 ;;
esac
# Sandboxes get uids and mounts of their own: the tests run as root.
[ "$(id -u)" = 0 ] || exec sudo -EH env "PATH=$PATH" "$0" "$@"
# tini reaps what tests leave: the init of a container may take seconds, and `runsc delete` waits for it.
if [ -z "${SKERRY_TEST_TINI:-}" ]; then
  command -v tini >/dev/null || scripts/install.sh test || exit 1
  SKERRY_TEST_TINI=1 exec tini -s -- "$0" "$@"
fi
export SKERRY_CACHE=${SKERRY_CACHE:-/var/cache/skerry}
# A clone that belongs to another user has no version that git would tell. What was built without the paths of one
# clone serves the next.
export GOFLAGS=${GOFLAGS:--buildvcs=false -trimpath}
# Without the tables for debuggers a test links in two thirds of the time, and scripts/check.sh vets.
how=(-race)
[ "$wanted" != quick ] || how=(-vet=off -ldflags=-w)
# The race detector needs C. Without it, tests are compiled as the programs are, so a fresh machine compiles once.
[ "$wanted" != quick ] || export CGO_ENABLED=0
logs=$(mktemp -d)
beat=
trap '[ -z "$beat" ] || kill "$beat" 2>/dev/null; rm -rf "$logs"' EXIT
began=$SECONDS
failed=0

at() { printf '[%4ds]' $((SECONDS - began)); }

# tier NAME COMMAND… leaves the output in NAME, its time in NAME.seconds, what its processes computed in NAME.cpu, and
# the exit code in NAME.code once it has ended. Containers compute for their engine, and are not in it.
tier() {
  local name=$1 code=0 start=$SECONDS TIMEFORMAT='%U %S'
  shift
  { time "$@" >"$logs/$name" 2>&1 </dev/null || code=$?; } 2>"$logs/$name.cpu"
  echo $((SECONDS - start)) >"$logs/$name.seconds"
  echo "$code" >"$logs/$name.code"
}

# inputs PACKAGES FOLDERS prints a digest of the files that decide how a tier ends: the scripts, the folders, and those of
# the packages with all of this tree that they import, but for the tests of what they only import.
inputs() {
  local own folders
  # shellcheck disable=SC2086 # lists
  own=$(go list -f '{{.Dir}}' $1) &&
    folders=$(go list -deps -test -f '{{with .Module}}{{if .Main}}{{$.Dir}}{{end}}{{end}}' $1 | sort -u) || return
  # shellcheck disable=SC2086 # lists
  { go version && git ls-files --cached --others --exclude-standard -- go.mod go.sum scripts $2 $folders |
    awk -v root="$PWD/" -v own="$own" 'BEGIN { n = split(own, dirs, "\n"); for (i = 1; i <= n; i++) mine[dirs[i]] }
      { dir = root $0; sub("/[^/]*$", "", dir) } !/_test\.go$/ || dir in mine' | sort -u | tr '\n' '\0' | xargs -0 sha256sum; } | sha256sum
}

# passed NAME DIGEST: the tier passed here with these inputs, so "changed" need not repeat it.
passed() { [ "$wanted" = changed ] && [ -n "$2" ] && [ "$2" = "$(cat "$SKERRY_CACHE/passed/$1" 2>/dev/null)" ]; }

# keep NAME DIGEST notes with which inputs a tier passed.
keep() {
  [ "$(cat "$logs/$1.code")" = 0 ] || return 0
  mkdir -p "$SKERRY_CACHE/passed" && echo "$2" >"$SKERRY_CACHE/passed/$1"
}

# sized NAME PACKAGES FOLDERS ARGUMENTS… is a tier of go tests: whole in "all"; in "changed" unless it passed here
# whole, with the same inputs.
sized() {
  local name=$1 digest='' size=-short
  if [ "$wanted" != quick ]; then
    digest=$(inputs "$2" "$3") || digest=
    passed "$name" "$digest" || size=
  fi
  shift 3
  [ -n "$size" ] || rm -f "$SKERRY_CACHE/passed/$name"
  # shellcheck disable=SC2086 # a flag, or nothing
  tier "$name" go test "${how[@]}" $size "$@"
  [ -n "$size" ] || keep "$name" "$digest"
}

# rest NAME PACKAGES FOLDERS COMMAND… is a tier that "quick" leaves out, and "changed" when it passed here with the
# same inputs.
rest() {
  local name=$1 digest
  [ "$wanted" != quick ] || return 0
  digest=$(inputs "$2" "$3") || digest=
  shift 3
  if passed "$name" "$digest"; then
    echo '-- it passed before, with the same files' >"$logs/$name"
    echo 0 | tee "$logs/$name.seconds" >"$logs/$name.code"
    return
  fi
  rm -f "$SKERRY_CACHE/passed/$name"
  tier "$name" "$@"
  keep "$name" "$digest"
}

# show NAME says how a tier ended: one line a package, or all of it when it failed.
show() {
  local code
  code=$(cat "$logs/$1.code" 2>/dev/null || echo 1)
  if [ "$code" = 0 ]; then
    printf '== %s %s: ok in %d s\n' "$(at)" "$1" "$(cat "$logs/$1.seconds")"
    grep -E '^(ok  |--|==|chaos:|  \[.*done in|  [a-z][a-z :,]+ [0-9[])' "$logs/$1"
  else
    printf '== %s %s: FAILED\n' "$(at)" "$1"
    grep -vE 'no test files|^redis: ' "$logs/$1" | tail -3000
    failed=1
  fi
}

# show_rest NAME shows a tier that "quick" leaves out.
show_rest() { [ "$wanted" = quick ] || show "$1"; }

# heartbeat says twice a minute how far the tiers are.
heartbeat() {
  local log line
  while sleep 30 >/dev/null 2>&1; do
    line=
    for log in "$logs"/*; do
      case $log in *.code | *.seconds | *.cpu) continue ;; esac
      [ -e "$log.code" ] || line+=" $(basename "$log"): $(grep -cE '^(ok  |FAIL	)' "$log") packages $(grep -E '^-- ' "$log" | tail -1);"
    done
    [ -z "$line" ] || printf '   %s%s\n' "$(at)" "$line"
  done
}

# times says where the time went: the tiers, then the ten packages that took longest.
times() {
  local log
  echo '== seconds by tier (they run side by side) with those of the cores, and the slowest packages'
  for log in "$logs"/*.seconds; do
    printf '%7d %7.0f  %s\n' "$(cat "$log")" "$(awk '{print $1 + $2}' "${log%.seconds}.cpu" 2>/dev/null || echo 0)" "$(basename "$log" .seconds)"
  done | sort -rn
  sed -nE 's/^ok  \t([^ \t]+)\t([0-9.]+)s$/\2 \1/p' "$logs"/* | sort -rn | head -10 | while read -r seconds package; do
    printf '%9.1f  %s\n' "$seconds" "${package#github.com/skerry-sandbox/skerry/}"
  done
}

# failures says once more, at the end of a long log, which tests failed and how.
failures() {
  local log
  for log in "$logs"/*.code; do
    [ "$(cat "$log")" != 0 ] || continue
    # What libraries say of their own accord hides what failed.
    grep -vE '^redis: |testcontainers|^[0-9/]+ [0-9:]+ [^ ]+ (Creating|Starting|Stopping|Terminating|Container|Waiting|Shell)' "${log%.code}" |
      grep -E -A 4 '^ *--- FAIL|^panic: |^FAIL	' | cut -c 1-400 | head -40
    # Node's runner repeats them at its end.
    sed -n '/^✖ failing tests:/,$p' "${log%.code}" | cut -c 1-400 | head -40
  done
}

prepare_engine() { scripts/install.sh runsc containerd && scripts/dockerd.sh; }
# What the other tiers need, they install.
# Helm and the S3 server compile for two minutes each, and eight more MCP servers are fetched for as long, for a few
# tests: "quick" runs these where the parts are.
prepare_parts() {
  scripts/install.sh images postgres mcp e2b && images/build.sh base || return
  [ "$wanted" = quick ] || scripts/install.sh mcp-many s3 helm
}

scripts/install.sh run test || exit 1
prepare_parts &
parts=$!
prepare_engine || exit 1
wait $parts || exit 1
# Before go reads what it compiles in: a tier that built it later would change it under the others.
[ "$wanted" = quick ] || scripts/console.sh || exit 1
printf '== %s the machine is prepared\n' "$(at)"

# Not `mapfile < <(go list)`: a package that does not load must not end as one that is not tested.
packages=$(go list ./...) || exit 1
drivers='/internal/(driver|tools/servers)(/|$)'
system='/internal/e2e(/|$)'
attack='/internal/attack(/|$)'
templates='^(TestTemplateImages|TestFigures|TestBundledSkills)$'
# These take longest, so they begin first.
long='/internal/(sandboxd|orchestrator|tools/hub|workspace/paths)$'
# scripts/check.sh runs the rules of the house.
mapfile -t unit < <(grep -E "$long" <<<"$packages" && grep -vE "$long|$drivers|$system|$attack|/internal/archtest$" <<<"$packages")
of() { grep -E "$1" <<<"$packages"; }
# What whole servers are made of.
product="images sandbox-templates skills plugins packs"

heartbeat &
beat=$!
# What is only built or read leaves the cores to the tests, whose clocks run.
background() { tier "$1" nice -n 19 "${@:2}"; }
# hurry PID: it is waited for now, and other work on the machine must not keep it for hours. A thread has a niceness of its own.
hurry() {
  local child
  # shellcheck disable=SC2046 # numbers
  { renice -n 0 -p $(cd "/proc/$1/task" && echo *) || true; } >/dev/null 2>&1 # it may have ended
  # shellcheck disable=SC2013 # words are wanted
  for child in $(cat "/proc/$1"/task/*/children 2>/dev/null); do hurry "$child"; done
}
here=()
[ "$wanted" != quick ] || here=(--here)
background check scripts/check.sh "${here[@]}" &
check=$!
[ "$wanted" = quick ] || background images images/build.sh browser data office &
images=$!
# A cluster that the caller names brings its own programs.
programs=(scripts/cluster.sh --programs)
[ -z "${SKERRY_K8S_IMPORT:-}" ] || programs=(true)
[ "$wanted" = quick ] || background cluster "${programs[@]}" &
cluster=$!
# Tests wait more than they compute, so more of them run side by side than there are cores.
sized unit ./... . -p 4 -parallel 8 -timeout 15m "${unit[@]}"
show unit
[ "$wanted" = quick ] || { hurry $images; hurry $cluster; }
wait $images
show_rest images
wait $cluster
show_rest cluster
# -count=1: go does not see that a test asks for this variable, and would show the result of the other run.
rest copies ./internal/orchestrator "" env SKERRY_TEST_REMOTE=1 go test -race -count=1 -parallel 8 -timeout 15m ./internal/orchestrator
show_rest copies
# -count=1 from here on: these tests build programs, and go's cache of results does not see what those are made of.
# Containers and clocks: after the tests that keep both cores busy, and two packages at a time, because
# the suite of the drivers wants an end to be told within a second. The others have time.
# shellcheck disable=SC2046 # names of packages have no spaces
drivers() { sized drivers "./internal/driver/... ./internal/tools/servers/... ./cmd/..." "images" -count=1 -p 2 -timeout 30m $(of "$drivers"); }
# With -short, drivers and system leave the cores idle for half of their time, so they run side by side.
if [ "$wanted" != quick ]; then
  drivers
  show drivers
fi
# shellcheck disable=SC2046 # the same
{
  [ "$wanted" != quick ] || drivers
  rest python "./cmd/... ./sdk/packs/conformance" "$product sdk/python docs" sdk/python/test.sh
  rest clients "./cmd/... ./sdk/..." "$product sdk docs" scripts/clients.sh
  rest templates "./internal/e2e ./cmd/..." "$product" go test -race -count=1 -timeout 30m -run "$templates" ./internal/e2e
  rest release "./cmd/..." "$product deploy sdk test/release docs/skerry.example.yaml .goreleaser.yaml" test/release/check.sh
  rest attack "./internal/attack/... ./cmd/..." "$product" go test -race -count=1 -p 1 -timeout 30m $(of "$attack")
} &
beside=$!
# shellcheck disable=SC2046 # names of packages have no spaces
sized system "./internal/e2e/... ./cmd/..." "$product" -count=1 -p 2 -parallel 4 -timeout 40m -skip "$templates" $(of "$system")
show system
rest foreign "./internal/e2e ./cmd/..." "$product" env SKERRY_TEST_FOREIGN=1 go test -race -count=1 -timeout 30m -run '^TestForeign$' ./internal/e2e
rest console "./cmd/..." "$product console sdk/typescript/src" console/test/test.sh
wait $beside
[ "$wanted" != quick ] || show drivers
show_rest python
show_rest clients
show_rest console
show_rest templates
show_rest release
show_rest attack
show_rest foreign
# After the others: it keeps both cores busy, and waits for what it kills to come back.
rest chaos "./bench/chaos ./cmd/..." "$product" make chaos CHAOS="-driver docker -duration 2m"
show_rest chaos
# Alone: it measures how soon a killed sandbox is missed, and a cluster of one node keeps a core busy.
rest kubernetes "./internal/e2e/kubernetes ./internal/attack ./internal/driver/kubernetes ./cmd/..." "$product deploy test/cluster" \
  scripts/kubernetes.sh scripts/e2e-kubernetes.sh
show_rest kubernetes
# Never in CI, which has no way to the archives, and no time for the frameworks and a build that begins with empty caches. The images of the tier images are there by now.
if [ "$wanted" = all ]; then
  tier compose test/compose/check.sh
  show compose
  tier suites scripts/clients.sh e2b/suites
  show suites
  tier frameworks scripts/clients.sh e2b/frameworks librechat jupyter
  show frameworks
fi
# Never in CI: without KVM it takes longer than all else, and a busy machine makes it longer still.
# shellcheck disable=SC2317 # called by tier
machine() { scripts/install.sh machine && test/machine/check.sh; }
if [ "$wanted" = all ]; then
  tier machine machine
  show machine
fi
hurry $check
wait $check
show check
times
[ $failed = 0 ] || failures
printf '== %s in %d s\n' "$([ $failed = 0 ] && echo 'all tiers passed' || echo 'FAILED')" $((SECONDS - began))
exit $failed
