#!/usr/bin/env bash
# The Python client: lint, types, tests against a server of this tree. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")"
cache=${SKERRY_CACHE:-/var/cache/skerry}
../../scripts/install.sh python-sdk python-autogen python-deepagents-code python-openai-agents
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
PYTHONPATH=src "$python" -m pytest -q --durations=5 --ignore tests/test_autogen.py --ignore tests/test_deepagents_code.py --ignore tests/test_openai_agents.py "$@" 2>&1 | tee "$log"
printf 'ok  \tsdk/python\t%s\n' "$(tail -1 "$log")"
# apart NAME ARGUMENT… runs tests in a venv of their own: what they need does not go with the others.
apart() {
  echo "-- $1"
  PYTHONPATH=src "$cache/python-$1/bin/python" -m pytest -q "${@:2}"
}
apart autogen tests/test_autogen.py
apart openai-agents tests/test_openai_agents.py
# deepagents 0.7.6 itself finds folders twice by commands.
apart deepagents-code tests/test_deepagents_code.py tests/test_deepagents.py --deselect tests/test_deepagents.py::TestSuiteInSandbox::test_glob_with_directories
echo "-- conformance"
(cd ../.. && go test -count=1 -timeout 10m ./sdk/packs/conformance -provider "env PYTHONPATH=$PWD/sdk/python/src $python $PWD/sdk/python/conformance/provider.py")
