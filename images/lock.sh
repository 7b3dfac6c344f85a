#!/usr/bin/env bash
# Makes requirements.txt (with hashes) and package-lock.json of the images anew: the newest versions that fit
# requirements.in and package.json, and Debian's Python. Run it on purpose, look at the difference, and run
# `make images-test`. It takes a minute; needs Python and npm.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=$(sed -n 's/^python=\([0-9.]*\).*/\1/p' "$here/fetch.sh")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --quiet uv
for file in "$here"/*/requirements.in; do
  echo "  ${file#"$here/"}"
  # For one kind of machine: what it needs, and the hashes of all files, are the same for the other.
  "$scratch/venv/bin/uv" --quiet --no-config pip compile --upgrade --generate-hashes --no-header --no-annotate --no-emit-index-url \
    --python-version "$python" --python-platform x86_64-manylinux_2_28 --only-binary :all: -o "${file%.in}.txt" "$file"
done
for file in "$here"/*/package.json; do
  echo "  ${file#"$here/"}"
  npm install --prefix "$(dirname "$file")" --package-lock-only --ignore-scripts --no-audit --no-fund
done
