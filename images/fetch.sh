#!/usr/bin/env bash
# Fetches what an image has that is not from Debian: Python packages from PyPI, JavaScript from npm. The
# Dockerfiles run it in a stage of their own, build.sh on the host; it installs nothing where it runs.
#
#   images/fetch.sh NAME DEST     DEST: a new folder; its tree goes over the root of the image
#
# Needs npm, and python3 with pip, of any version: the packages are for the image's Python.
set -euo pipefail
umask 022
here=$(cd "$(dirname "$0")" && pwd)
name=$1 dest=$2
runtimes=() binaries=() globals=() programs=() names=()
# shellcheck source=images/base/packages.sh
. "$here/$name/packages.sh"
python=3.11.2 # Debian bookworm's
mkdir -p "$dest"
scratch=$(mktemp -d "$dest/.fetch-XXXXXX")
trap 'rm -rf "$scratch"' EXIT

# The runtimes are copied as they are; what npm says of them is kept for the list of parts.
if [ ${#runtimes[@]} -gt 0 ]; then
  echo "JavaScript runtimes from npm: ${runtimes[*]}"
  npm install --prefix "$scratch" --no-save --ignore-scripts --no-package-lock --no-audit --no-fund --force "${runtimes[@]}"
  for path in "${binaries[@]}"; do
    package=${path%/bin/*}
    [ -f "$scratch/node_modules/$package/package.json" ] || package=${path%/*}
    install -D -m 0755 "$scratch/node_modules/$path" "$dest/usr/local/bin/$(basename "$path")"
    install -D -m 0644 "$scratch/node_modules/$package/package.json" "$dest/usr/local/share/skerry/parts/$(basename "$path")/package.json"
  done
fi

if [ ${#globals[@]} -gt 0 ]; then
  echo "programs from npm: ${globals[*]}"
  npm install --prefix "$scratch/globals" --no-save --ignore-scripts --no-package-lock --no-audit --no-fund "${globals[@]}"
  mkdir -p "$dest/usr/local/lib" "$dest/usr/local/bin"
  mv "$scratch/globals/node_modules" "$dest/usr/local/lib/node_modules"
  rm -rf "$dest/usr/local/lib/node_modules/.bin" "$dest/usr/local/lib/node_modules/.package-lock.json"
  chmod -R u=rwX,go=rX "$dest/usr/local/lib/node_modules"
  for program in "${programs[@]}"; do
    chmod 0755 "$dest/usr/local/lib/node_modules/${program% *}"
    ln -s "../lib/node_modules/${program% *}" "$dest/usr/local/bin/${program#* }"
  done
fi
[ ${#names[@]} = 0 ] || mkdir -p "$dest/usr/local/bin"
for pair in "${names[@]}"; do ln -s "${pair% *}" "$dest/usr/local/bin/${pair#* }"; done

# /node_modules is the last folder that node, bun and deno look into, from wherever a program is.
if [ -f "$here/$name/package-lock.json" ]; then
  echo "packages from npm by package-lock.json"
  mkdir "$scratch/npm"
  cp "$here/$name/package.json" "$here/$name/package-lock.json" "$scratch/npm/"
  npm ci --prefix "$scratch/npm" --ignore-scripts --no-audit --no-fund
  mv "$scratch/npm/node_modules" "$dest/node_modules"
  rm -rf "$dest/node_modules/.package-lock.json"
  chmod -R u=rwX,go=rX "$dest/node_modules"
fi

if [ -f "$here/$name/requirements.txt" ]; then
  echo "packages from PyPI by requirements.txt"
  site=$dest/usr/local/lib/python${python%.*}/dist-packages
  platforms=()
  for glibc in 2_17 2_24 2_27 2_28 2_31 2_34 2_35 2_36; do platforms+=(--platform "manylinux_${glibc}_$(uname -m)"); done
  # A pip that runs inside of another one's configuration could take packages from elsewhere; the hashes would not fit.
  python3 -m pip install --quiet --disable-pip-version-check --no-input --no-compile --no-cache-dir --no-deps --require-hashes --only-binary :all: \
    --implementation cp --python-version "$python" "${platforms[@]}" --platform "manylinux2014_$(uname -m)" --platform "linux_$(uname -m)" \
    --target "$site" -r "$here/$name/requirements.txt"
  if [ -d "$site/bin" ]; then
    mkdir -p "$dest/usr/local/bin"
    for program in "$site"/bin/*; do
      # Its first line names the Python that pip ran with.
      sed -i '1s|^#!.*python.*|#!/usr/bin/python3|' "$program"
      install -m 0755 "$program" "$dest/usr/local/bin/"
    done
    rm -rf "${site:?}/bin"
  fi
  # Tests of the packages are a fifth of all, and nothing imports them but numpy its own.
  find "$site" -mindepth 2 -type d -name tests -not -path '*/numpy/*' -prune -exec rm -rf {} +
fi
