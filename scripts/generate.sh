#!/usr/bin/env bash
# Makes the code that is generated from the .proto files of this tree, the models and constants of the clients,
# what is of the chart, and docs/api. With --diff it changes nothing, and fails when a committed file is stale.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${SKERRY_CACHE:-/var/cache/skerry}
proto=internal/sandboxapi/v1/sandbox.proto
packs=sdk/packs/v1/packs.proto
wire=internal/sidecar/wire/wire.proto
envd=(internal/api/e2b/envd/process/process.proto internal/api/e2b/envd/filesystem/filesystem.proto)
module=github.com/skerry-sandbox/skerry

# The generators have the versions of the libraries in go.mod.
version() { go list -m -f '{{.Version}}' "$1"; }
protobuf=$(version google.golang.org/protobuf)
connect=$(version connectrpc.com/connect)
bin=$cache/bin/generate-$protobuf-$connect
if [ ! -d "$bin" ]; then
  command -v protoc >/dev/null || scripts/install.sh test
  echo "  installing protoc-gen-go $protobuf and protoc-gen-connect-go $connect"
  GOBIN=$bin.new go install "google.golang.org/protobuf/cmd/protoc-gen-go@$protobuf"
  GOBIN=$bin.new go install "connectrpc.com/connect/cmd/protoc-gen-connect-go@$connect"
  mv -T "$bin.new" "$bin"
fi

# The TypeScript client pins its generator.
es=$(sed -n 's/.*"@bufbuild\/protoc-gen-es": "\(.*\)".*/\1/p' sdk/typescript/package.json)
esbin=$cache/bin/generate-es-$es
if [ ! -d "$esbin" ]; then
  echo "  installing protoc-gen-es $es"
  npm install --prefix "$esbin.new" --no-package-lock --no-audit --no-fund --loglevel=error "@bufbuild/protoc-gen-es@$es" >/dev/null
  mv -T "$esbin.new" "$esbin"
fi

out=.
if [ "${1:-}" = --diff ]; then
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi
PATH=$bin:$PATH protoc --go_out="$out" --go_opt=module=$module --connect-go_out="$out" --connect-go_opt=module=$module $proto $packs "${envd[@]}"
PATH=$bin:$PATH protoc --go_out="$out" --go_opt=module=$module $wire
# Its Python lies in the package of the client, under the name that it is imported by.
mkdir -p "$out/sdk/python/src"
protoc --proto_path=skerry/packs=sdk/packs/v1 --python_out="$out/sdk/python/src" --pyi_out="$out/sdk/python/src" skerry/packs/packs.proto
ts=sdk/typescript/src
mkdir -p "$out/$ts"
PATH=$esbin/node_modules/.bin:$PATH protoc -I sdk --es_out="$out/$ts" --es_opt=target=ts,import_extension=js $packs
if [ "$out" != . ]; then
  for f in internal/sandboxapi/v1/sandbox.pb.go internal/sandboxapi/v1/sandboxv1connect/sandbox.connect.go internal/sidecar/wire/wire.pb.go \
    sdk/packs/v1/packs.pb.go sdk/packs/v1/packsv1connect/packs.connect.go sdk/python/src/skerry/packs/packs_pb2.{py,pyi} $ts/packs/v1/packs_pb.ts \
    internal/api/e2b/envd/{process/process.pb.go,process/processconnect/process.connect.go,filesystem/filesystem.pb.go,filesystem/filesystemconnect/filesystem.connect.go}; do
    # The protoc of another Debian release writes another version into the comment.
    diff -u <(grep -v '^// 	protoc  ' "$f") <(grep -v '^// 	protoc  ' "$out/$f") || { echo "$f is not what its .proto makes: run make generate" >&2; exit 1; }
  done
fi
# Whether the chart's, those of docs/api and the Rust crate's are up to date, their tests say.
if [ "$out" = . ]; then
  sdk/rust/generate.sh
  go test ./internal/api/rest -update -run '^(TestReference|TestClient(Models|Constants))$'
  scripts/install.sh helm
  go test ./deploy/helm -update -run '^(TestSchema|TestReadme|TestGolden|TestImages)$'
else
  go test ./internal/api/rest -run '^TestClient(Models|Constants)$'
fi
