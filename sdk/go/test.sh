#!/usr/bin/env bash
# The Go client's examples and what else needs a server: scripts/clients.sh starts it.
set -euo pipefail
cd "$(dirname "$0")"
exec go test -race -count=1 -timeout 3m -run 'Example|Models|Server' . -server "${SKERRY_SERVER:?scripts/clients.sh starts a server}"
