#!/usr/bin/env bash
# Makes the code that is generated from sandbox.proto. With --diff it only says whether what is
# committed is what would be made, in a copy.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${SKERRY_CACHE:-/var/cache/skerry}
proto=internal/sandboxapi/v1/sandbox.proto
for tool in google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12 connectrpc.com/connect/cmd/protoc-gen-connect-go@v1.21.1; do
  name=${tool%@*} name=${name##*/}
  [ -x "$cache/bin/$name" ] || { echo "  installing $name"; GOBIN=$cache/bin go install "$tool"; }
done
command -v protoc >/dev/null || scripts/install.sh test
out=.
if [ "${1:-}" = --diff ]; then
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi
module=github.com/skerry-sandbox/skerry
PATH=$cache/bin:$PATH protoc --go_out="$out" --go_opt=module=$module --connect-go_out="$out" --connect-go_opt=module=$module $proto
if [ "$out" != . ]; then
  for f in internal/sandboxapi/v1/sandbox.pb.go internal/sandboxapi/v1/sandboxv1connect/sandbox.connect.go; do
    # The protoc of another Debian release writes another version into the comment.
    diff -u <(grep -v '^// 	protoc  ' $f) <(grep -v '^// 	protoc  ' "$out/$f") || { echo "$f is not what $proto makes: run make generate" >&2; exit 1; }
  done
fi
