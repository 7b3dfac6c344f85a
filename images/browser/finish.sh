#!/usr/bin/env bash
# Makes Debian's Chromium the browser that Playwright, Puppeteer and people find. install.sh runs it in the image.
set -euo pipefail

# Chromium's own sandbox wants user namespaces or a program with setuid, and there is neither: what a page breaks
# out of Chromium into is this sandbox. Its shared memory goes to /tmp, because /dev/shm is small.
# shellcheck disable=SC2016 # for the script that reads it
echo 'export CHROMIUM_FLAGS="$CHROMIUM_FLAGS --no-sandbox --disable-dev-shm-usage --disable-gpu --no-first-run"' >/etc/chromium.d/skerry

# Playwright for Python brings a node of its own, of 150 MB; there is one.
ln -sf /usr/local/bin/node "$(python3 -c 'import os, playwright; print(os.path.dirname(playwright.__file__))')/driver/node"

# Playwright looks where it would have put a browser of its own, in a folder that its version names.
export PLAYWRIGHT_BROWSERS_PATH=/opt/playwright
case $(uname -m) in
x86_64) whole=chrome-linux64/chrome shell=chrome-headless-shell-linux64/chrome-headless-shell ;;
*) whole=chrome-linux/chrome shell=chrome-linux/headless_shell ;;
esac
for playwright in "node /node_modules/playwright/cli.js" "python3 -m playwright"; do
  $playwright install --dry-run chromium | sed -n 's/^ *Install location: *//p' | while read -r folder; do
    case ${folder##*/} in
    chromium-*) program=$whole ;;
    chromium_headless_shell-*) program=$shell ;;
    *) continue ;; # ffmpeg, which records films
    esac
    mkdir -p "$(dirname "$folder/$program")"
    ln -sf /usr/bin/chromium "$folder/$program"
  done
done
