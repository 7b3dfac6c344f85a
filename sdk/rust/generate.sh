#!/usr/bin/env bash
# Makes v1.rs from packs.proto, in the folder of the argument, src without it.
set -euo pipefail
cd "$(dirname "$0")"
out=$(realpath "${1:-src}")
command -v cargo >/dev/null || { echo "sdk/rust: cargo is missing: install Rust 1.88 or later (rustup.rs)" >&2; exit 1; }
export CARGO_TARGET_DIR=${SKERRY_CACHE:-/var/cache/skerry}/rust-target
cargo run --quiet --locked --manifest-path generate/Cargo.toml -- ../packs/v1/packs.proto "$out"
rustfmt --edition 2024 --config-path . "$out/v1.rs"
