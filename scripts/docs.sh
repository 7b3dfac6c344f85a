#!/usr/bin/env bash
# Makes the documentation's site with MkDocs: scripts/docs.sh [FOLDER], default bin/site. It fails when a link
# or an anchor leads nowhere, or a page is missing from the navigation (mkdocs.yml).
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${SKERRY_CACHE:-/var/cache/skerry}
out=$(realpath -m "${1:-bin/site}")
scripts/install.sh docs
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
# The documents keep their paths, so that links between them are the same on the site and in the tree.
git ls-files -z --cached --others --exclude-standard '*.md' 'docs/*.svg' 'docs/*.json' 'docs/*.yaml' ':!testdata' ':!skills' ':!plugins' ':!*/testdata/*' |
  xargs -0 cp --parents -t "$stage"
SKERRY_DOCS_STAGE=$stage DISABLE_MKDOCS_2_WARNING=true NO_MKDOCS_2_WARNING=true \
  "$cache/docs/bin/python" -m mkdocs build --strict --clean --site-dir "$out"
echo "$(find "$out" -name '*.html' | wc -l) pages; begin with ${out#"$PWD"/}/index.html"
