#!/usr/bin/env bash
# Builds the Dockerfile and docker-compose.yml of this tree, starts them, and runs a first exec from outside.
#
# An image that the files are built on is pulled. Where no registry answers, a stand-in with that name is made of Debian's
# packages, this machine's Go and npm's Node, and is taken away at the end. Needs root and Docker.
set -euo pipefail
[ "$(id -u)" = 0 ] || exec sudo -E env "PATH=$PATH" "$0" "$@"
umask 022
root=$(cd "$(dirname "$0")/../.." && pwd)
export SKERRY_CACHE=${SKERRY_CACHE:-/var/cache/skerry}
cd "$root"
began=$SECONDS
say() { printf -- '-- [%3ds] %s\n' $((SECONDS - began)) "$*"; }
fail() { printf 'FAILED: %s\n' "$*"; exit 1; }

scripts/install.sh run images test compose
scripts/dockerd.sh
work=$(mktemp -d "${TMPDIR:-/tmp}/skerry-compose-XXXXXX")
project=skerry-check-$$
standins=()
export SKERRY_DATA=$work/data SKERRY_ETC=$work/etc
SKERRY_PORT=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export SKERRY_PORT
# Docker finds plugins in the folder of its configuration.
export DOCKER_CONFIG=$SKERRY_CACHE/compose
compose() { docker compose --project-name "$project" --progress plain "$@"; }
finish() {
  compose down --volumes --timeout 50 >/dev/null 2>&1 || true
  docker image rm "${standins[@]}" skerry/server-docker >/dev/null 2>&1 || true
  rm -rf --one-file-system "$work"
}
trap finish EXIT

# debian FOLDER PACKAGES makes a root file system that installs packages as this machine does, behind its proxy, too.
debian() {
  mmdebstrap --quiet --mode=root --variant=minbase --include="ca-certificates$2" bookworm "$1" >"$work/log" 2>&1 || { cat "$work/log"; fail "mmdebstrap"; }
  rm -rf "$1"/etc/apt/apt.conf.d/* "$1/etc/hostname"
  cp /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/ca-certificates.crt"
}

# standin NAME pulls the image, or makes one with this name.
standin() {
  local name=$1 at=$work/image change=()
  docker image inspect "$name" >/dev/null 2>&1 && return
  timeout 60 docker pull --quiet "$name" >/dev/null 2>&1 && return
  say "no registry has $name for us: a stand-in"
  case $name in
  golang:*)
    debian "$at" ""
    mkdir -p "$at/usr/local"
    cp -a "$(go env GOROOT)" "$at/usr/local/go"
    change=(--change "ENV PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin" --change "ENV GOPROXY=$(go env GOPROXY)" --change "ENV GOSUMDB=$(go env GOSUMDB)" --change "ENV GOTOOLCHAIN=local")
    ;;
  node:*)
    debian "$at" ""
    npm install --prefix "$at/usr/local/lib" --no-package-lock --no-audit --no-fund --loglevel=error node@22.23.3 npm@10.9.4 >"$work/log" 2>&1 || { cat "$work/log"; fail "npm"; }
    ln -s ../lib/node_modules/node/bin/node ../lib/node_modules/npm/bin/npm-cli.js ../lib/node_modules/npm/bin/npx-cli.js "$at/usr/local/bin/"
    mv "$at/usr/local/bin/npm-cli.js" "$at/usr/local/bin/npm"
    mv "$at/usr/local/bin/npx-cli.js" "$at/usr/local/bin/npx"
    change=(--change "ENV NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt" --change "ENV npm_config_registry=$(npm config get registry)")
    ;;
  redis:*)
    debian "$at" ,redis-server
    # The one of the registry takes connections of other containers without being told to.
    printf '#!/bin/sh\nexec /usr/bin/redis-server "$@" --protected-mode no\n' >"$at/usr/local/bin/redis-server"
    chmod 0755 "$at/usr/local/bin/redis-server"
    ;;
  *) debian "$at" "" ;;
  esac
  tar -C "$at" --numeric-owner -c . | docker import "${change[@]}" - "$name" >/dev/null
  rm -rf "$at"
  standins+=("$name")
}

images/build.sh base
mapfile -t names < <(sed -nE 's/^FROM ([a-z]+:[^ ]+).*/\1/p; s/^ +image: (redis:.*)/\1/p' Dockerfile docker-compose.yml)
for name in "${names[@]}"; do standin "$name"; done

say "docker compose build"
compose build >"$work/log" 2>&1 || { tail -50 "$work/log"; fail "docker compose build"; }
say "the first key"
compose run --rm --entrypoint skerry server keys create --admin --act-for --redis redis://redis:6379 >"$work/key" 2>"$work/log" || { tail -20 "$work/log"; fail "keys create"; }
key=$(grep -o 'sk_[A-Za-z0-9_-]*' "$work/key" | head -1) || fail "keys create printed no key"
say "docker compose up"
compose up --detach >"$work/log" 2>&1 || { tail -50 "$work/log"; fail "docker compose up"; }
ask() { curl --silent --show-error --fail-with-body --max-time 60 -H "Authorization: Bearer $key" -H 'Content-Type: application/json' "$@"; }
api=http://127.0.0.1:$SKERRY_PORT
logs() { compose logs --no-color | tail -50; }
for _ in $(seq 120); do
  curl --silent --fail --max-time 5 "$api/readyz" >/dev/null && break
  sleep 0.5
done
curl --silent --fail --max-time 5 "$api/readyz" >/dev/null || { logs; fail "the server is not ready within a minute"; }
said=$(ask "$api/api/threads/first/exec" -d '{"command": "echo out of a sandbox | tee kept; id -u"}') || { logs; fail "exec: $said"; }
[[ $said == *"out of a sandbox"* && $said == *'"exit_code":0'* ]] || fail "exec: $said"
say "a first exec answers"
code=$(curl --silent --output /dev/null --write-out '%{http_code}' --max-time 5 "$api/api/threads")
[ "$code" = 401 ] || fail "without a key: $code"
[[ $(curl --silent --max-time 5 "$api/ui/") == *"<html"* ]] || fail "no console"
say "docker compose restart"
compose restart --timeout 50 server >"$work/log" 2>&1 || { tail -20 "$work/log"; fail "restart"; }
said=$(ask --retry 60 --retry-delay 1 --retry-all-errors "$api/api/threads/first/exec" -d '{"command": "cat kept"}') || { logs; fail "exec after a restart: $said"; }
[[ $said == *"out of a sandbox"* ]] || fail "the file is gone: $said"
ask -X DELETE "$api/api/threads/first" >/dev/null || { logs; fail "delete"; }
compose down --volumes --timeout 50 >"$work/log" 2>&1 || { tail -20 "$work/log"; fail "down"; }
say "it keeps its files over a restart, and nothing is left"
