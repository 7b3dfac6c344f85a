#!/usr/bin/env bash
# The Python client: lint, types, tests against a server of this tree. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")"
cache=${SKERRY_CACHE:-/var/cache/skerry}
../../scripts/install.sh python-sdk
make -s -C ../.. build
python=$cache/python-sdk/bin/python
echo "-- lint"
"$python" -m ruff format --check -q . || { echo "run: $python -m ruff format sdk/python" >&2; exit 1; }
"$python" -m ruff check -q --no-cache .
echo "-- types"
"$python" -m mypy --cache-dir "$cache/python-sdk/mypy" --no-error-summary
# The oldest Python that the client promises; deepagents wants a newer one.
"$python" -m mypy --cache-dir "$cache/python-sdk/mypy" --no-error-summary --python-version 3.10 src/skerry/__init__.py src/skerry/_sync/terminal.py src/skerry/langgraph.py
echo "-- tests"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
PYTHONPATH=src "$python" -m pytest -q --durations=5 --ignore tests/test_autogen.py "$@" 2>&1 | tee "$log"
printf 'ok  \tsdk/python\t%s\n' "$(tail -1 "$log")"
echo "-- autogen"
# In a venv of its own: it wants an older protobuf.
autogen=$cache/python-autogen
if ! cmp -s requirements-autogen.txt "$autogen/stamp"; then
  rm -rf "$autogen"
  python3 -m venv "$autogen"
  "$autogen/bin/pip" install --quiet --disable-pip-version-check --no-deps -r requirements-autogen.txt
  "$autogen/bin/pip" check
  cp requirements-autogen.txt "$autogen/stamp"
fi
PYTHONPATH=src "$autogen/bin/python" -m pytest -q tests/test_autogen.py
echo "-- conformance"
(cd ../.. && go test -count=1 -timeout 10m ./sdk/packs/conformance -provider "env PYTHONPATH=$PWD/sdk/python/src $python $PWD/sdk/python/conformance/provider.py")
