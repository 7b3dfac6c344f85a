#!/usr/bin/env bash
# The crate skerry-packs: format, generated code, lint, tests, the package for the registry, and the suite of
# sdk/packs/conformance, which starts its own servers. Then the story of examples/crm.rs with an agent in Python. What
# cargo builds is in SKERRY_CACHE: the tree stays clean.
set -euo pipefail
cd "$(dirname "$0")"
for tool in cargo rustfmt cargo-clippy; do
  command -v "$tool" >/dev/null || {
    echo "sdk/rust: $tool is missing: install Rust 1.88 or newer with rustfmt and clippy (rustup.rs)" >&2
    exit 1
  }
done
../../scripts/install.sh test rust python-sdk
export SKERRY_CACHE=${SKERRY_CACHE:-/var/cache/skerry}
target=$SKERRY_CACHE/rust-target
export CARGO_TARGET_DIR=$target RUST_BACKTRACE=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cargo fmt --check
./generate.sh "$work"
diff -u src/v1.rs "$work/v1.rs" || { echo "sdk/rust/src/v1.rs is not what packs.proto makes: run make generate" >&2; exit 1; }
cargo test --quiet --locked
cargo clippy --quiet --locked --all-targets -- -D warnings
cargo package --quiet --locked --allow-dirty # what a registry would get builds by itself
cargo build --quiet --locked --example conformance --example crm
(cd ../.. && go test -count=1 -timeout 10m ./sdk/packs/conformance -provider "$target/debug/examples/conformance")
[ -n "${SKERRY_BIN:-}" ] || make -s -C ../.. build # scripts/clients.sh has built one
cd ../python
SKERRY_TEST_CRM=$target/debug/examples/crm PYTHONPATH=src "$SKERRY_CACHE/python-sdk/bin/python" -m pytest -q tests/test_story_rust.py
