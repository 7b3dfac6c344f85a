#!/usr/bin/env bash
# Clients of Jupyter, unmodified, against a server with jupyter.enabled, which scripts/clients.sh starts: the module of Open
# WebUI that runs code, and jupyter-kernel-client. Open WebUI's package has 100 MB, so only make test-all installs it.
set -euo pipefail
cd "$(dirname "$0")"
: "${SKERRY_SERVER:?scripts/clients.sh starts a server}"
openwebui=0.12.4
cache=${SKERRY_CACHE:-/var/cache/skerry}/jupyter
stamp="$openwebui $(sha256sum <requirements.txt | cut -c1-16)"
if [ "$(cat "$cache/stamp" 2>/dev/null)" != "$stamp" ]; then
  echo "   Open WebUI and jupyter-kernel-client, from PyPI (1 to 3 minutes)"
  rm -rf "$cache"
  python3 -m venv "$cache"
  "$cache/bin/pip" install --quiet --disable-pip-version-check -r requirements.txt
  "$cache/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-cache-dir "open-webui==$openwebui"
  echo "$stamp" >"$cache/stamp"
fi
# Open WebUI wants a data folder and a key of its own to be imported.
data=$(mktemp -d)
trap 'rm -rf "$data"' EXIT
DATA_DIR=$data WEBUI_SECRET_KEY=$(head -c 32 /dev/urandom | base64) OFFLINE_MODE=true timeout 300 "$cache/bin/python" -m pytest -q -p no:cacheprovider test_jupyter.py
echo "   open-webui $openwebui"
