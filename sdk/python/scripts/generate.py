"""Makes what is generated: skerry/models.py from a server's /openapi.json, skerry/_sync from skerry/_async, the table of versions
in docs/compatibility.md from what is installed.

    python scripts/generate.py [--openapi FILE|URL] [--check]

Without --openapi the models stay as they are. --check changes nothing, and fails when a file is not current.
"""

from __future__ import annotations

import argparse
import difflib
import json
import platform
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import httpx

HERE = Path(__file__).resolve().parent.parent
PACKAGE = HERE / "src" / "skerry"

# One source, two clients: each of these words of the async one becomes another in the sync one.
WORDS = {
    "async def": "def",
    "async with": "with",
    "async for": "for",
    "await ": "",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "StopAsyncIteration": "StopIteration",
    "AsyncIterator": "Iterator",
    "AsyncGenerator": "Generator",
    "AsyncIterable": "Iterable",
    "AsyncExitStack": "ExitStack",
    "enter_async_context": "enter_context",
    "asynccontextmanager": "contextmanager",
    "AsyncClient": "Client",
    "AsyncBytes": "SyncBytes",
    "AsyncSource": "Source",
    "aiter_raw": "iter_raw",
    "aiter_lines": "iter_lines",
    "aiter_bytes": "iter_bytes",
    "aiter_source": "iter_source",
    "aread": "read",
    "aclose": "close",
    "websockets.asyncio": "websockets.sync",
    "asyncio.sleep": "time.sleep",
    "import asyncio": "import time",
    "skerry._async": "skerry._sync",
}


def sync_text(text: str) -> str:
    pattern = re.compile("|".join(rf"(?<![A-Za-z_]){re.escape(w)}(?![A-Za-z_])" if w.strip() == w else re.escape(w) for w in WORDS))
    return "# Made from the async client by scripts/generate.py.\n" + pattern.sub(lambda m: WORDS[m.group()], text)


def simplified(document: dict[str, Any]) -> dict[str, Any]:
    """The schemas as this client reads them: a newer server may add fields and values, so nothing here refuses them."""

    def walk(x: Any) -> Any:
        if isinstance(x, list):
            return [walk(v) for v in x]
        if not isinstance(x, dict):
            return x
        out = {k: walk(v) for k, v in x.items() if k != "enum" and not (k == "additionalProperties" and v is False)}
        for bound in ("minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "pattern"):
            out.pop(bound, None)
        return out

    schemas = {k: walk(v) for k, v in document["components"]["schemas"].items() if not re.search(r"(Body|Request)$", k)}
    return {"openapi": "3.1.0", "info": {"title": "Skerry", "version": "0"}, "paths": {}, "components": {"schemas": schemas}}


def models_text(openapi: str) -> str:
    text = httpx.get(openapi).raise_for_status().text if "://" in openapi else Path(openapi).read_text()
    document = simplified(json.loads(text))
    with tempfile.TemporaryDirectory() as tmp:
        source, target = Path(tmp, "openapi.json"), Path(tmp, "models.py")
        source.write_text(json.dumps(document))
        subprocess.run(
            [sys.executable, "-m", "datamodel_code_generator", "--input", source, "--input-file-type", "openapi", "--output", target,
             "--output-model-type", "pydantic_v2.BaseModel", "--target-python-version", "3.10", "--base-class", "skerry._base.Model",
             "--use-standard-collections", "--use-union-operator", "--use-annotated", "--field-constraints", "--disable-timestamp",
             "--use-field-description", "--collapse-root-models", "--snake-case-field", "--formatters", "builtin",
             "--disable-appending-item-suffix",
             "--custom-file-header", "# Made from a server's /openapi.json by scripts/generate.py."],
            check=True,
        )  # fmt: skip
        return formatted(target.read_text())


# What docs/compatibility.md says of Python: the adapter, the package, what it may be, and which tests show it.
TESTED = [
    ("`skerry`", "python", ">=3.10", "`test_client.py`, `test_retries.py`"),
    ("`skerry`", "httpx", "", "the same"),
    ("`skerry`", "pydantic", "", "the same"),
    ("`skerry[terminal]`", "websockets", "", "`test_client.py`"),
    ("`skerry.packs`", "grpcio", "", "`test_packs.py`"),
    ("`skerry.packs`", "protobuf", "", "the same"),
    ("`skerry.packs`", "jsonschema", "", "the same"),
    ("`skerry.packs`", "docstring_parser", "", "the same"),
    ("`skerry[ssh]`", "asyncssh", "", "the same"),
    ("`skerry.deepagents`", "deepagents", "", "`test_deepagents.py`, with all of the suite of langchain-tests"),
    ("`skerry.deepagents`", "langchain-tests", "the suite", "`SandboxIntegrationTests`"),
    ("`skerry.langgraph`", "langgraph", "", "`test_langgraph.py`, `test_direct.py`"),
    ("`skerry.langgraph`", "langchain-core", "", "the same"),
    ("`skerry.langchain`", "langchain", "", "`test_direct.py`"),
    (
        "`skerry.deepagents_code`",
        "deepagents-code",
        "",
        "`test_deepagents_code.py`, `test_deepagents.py`, with the deepagents 0.7.6 that it pins",
    ),
    ("`skerry.smolagents`", "smolagents", "", "`test_smolagents.py`, with a real `CodeAgent`"),
    ("`skerry.ag2`", "ag2", "", "`test_ag2.py`"),
    ("`skerry.openai_agents`", "openai-agents", "", "`test_openai_agents.py`, in a venv of its own"),
    ("`skerry.inspect`", "inspect-ai", "", "`test_inspect.py`, with all of Inspect's own checks of a sandbox"),
    ("`skerry.claude`", "anthropic", "", "`test_claude.py`, with a control plane of the test's own"),
    ("`skerry.autogen`", "autogen-core", "", "`test_autogen.py`, in a venv of its own"),
    ("`examples/drive_to_crm`", "langgraph-checkpoint-sqlite", "any", "`test_langgraph.py`, in two processes"),
]

# Those that have a venv of their own.
APART = ("autogen-core", "deepagents-code", "openai-agents")


def compatibility(text: str) -> str:
    """docs/compatibility.md with today's table: the versions are those that this runs with."""
    project = (HERE / "pyproject.toml").read_text()
    rows = ["", "| adapter | package | accepted | tested with | by |", "|---|---|---|---|---|"]
    for adapter, package, accepted, tests in TESTED:
        found = re.search(rf'"{package}([<>=][^"]*)"', project)
        tested = ".".join(platform.python_version_tuple()[:2]) if package == "python" else version_of(package)
        rows.append(f"| {adapter} | {package} | {accepted or (found and found.group(1)) or 'any'} | {tested} | {tests} |")
    begin, end = "from what the tests run with -->\n", "<!-- end -->"
    head, rest = text.split(begin)
    return head + begin + "\n".join(rows).lstrip("\n") + "\n" + end + rest.split(end)[1]


def version_of(package: str) -> str:
    if package not in APART:
        return metadata.version(package)
    texts = "".join(p.read_text() for p in HERE.glob("requirements-*.txt"))
    return str(re.findall(rf"^{package}==(.*)$", texts, re.M)[0])


def formatted(text: str) -> str:
    for command in (["check", "--fix-only", "--quiet", "--select", "I,F401,UP"], ["format", "--quiet"]):
        args = [
            sys.executable,
            "-m",
            "ruff",
            *command,
            "--config",
            str(HERE / "pyproject.toml"),
            "--stdin-filename",
            str(PACKAGE / "made.py"),
            "-",
        ]
        text = subprocess.run(args, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--openapi")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    wanted = {PACKAGE / "_sync" / p.name: formatted(sync_text(p.read_text())) for p in sorted((PACKAGE / "_async").glob("*.py"))}
    if args.openapi:
        wanted[PACKAGE / "models.py"] = models_text(args.openapi)
    page = HERE.parent.parent / "docs" / "compatibility.md"
    wanted[page] = compatibility(page.read_text())
    stale = 0
    for path, text in wanted.items():
        was = path.read_text() if path.exists() else ""
        if was == text:
            continue
        if not args.check:
            path.write_text(text)
            continue
        stale += 1
        sys.stdout.writelines(difflib.unified_diff(was.splitlines(True), text.splitlines(True), str(path), "as it would be made", n=1))
    if stale:
        print(
            f"{stale} files are not current: start a server, and run sdk/python/scripts/generate.py --openapi http://…/openapi.json",
            file=sys.stderr,
        )
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
