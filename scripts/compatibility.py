"""What docs/compatibility.md tells of the clients that scripts/clients.sh runs: the versions that are pinned, installed and run, in each row.

Without an argument it fails when the page says something else. With --write it fills them in.
"""

import difflib
import json
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).parent.parent
PAGE = HERE / "docs/compatibility.md"
# Clients and their parts that have a row; what else is pinned is a tool of the tests.
ROWS = {
    "@e2b/code-interpreter", "@langchain/core", "@librechat/agents", "@modelcontextprotocol/client", "@modelcontextprotocol/sdk", "agent-sandbox", "bun", "deer-flow", "deno", "e2b",
    "e2b-code-interpreter", "go", "jupyter-kernel-client", "langchain", "mcp", "node", "open-webui", "rust", "typescript",
}  # fmt: skip
HEADING = "## TypeScript, Go, MCP, E2B, DeerFlow and Rust\n"


def pinned() -> dict[str, str]:
    versions = {}
    for requirements in ("sdk/mcp/requirements.txt", "sdk/deerflow/requirements.txt"):
        versions |= dict(line.split("==") for line in (HERE / requirements).read_text().split())
    for package in ("sdk/typescript/package.json", "sdk/mcp/package.json"):
        parts = json.loads((HERE / package).read_text())
        versions |= parts.get("dependencies", {}) | parts.get("devDependencies", {})
    versions["deer-flow"] = re.search("^commit=(.{7})", (HERE / "sdk/deerflow/test.sh").read_text(), re.M)[1]
    versions["@librechat/agents"] = re.search("^version=(.+)", (HERE / "sdk/librechat/test.sh").read_text(), re.M)[1]
    versions["open-webui"] = re.search("^openwebui=(.+)", (HERE / "sdk/jupyter/test.sh").read_text(), re.M)[1]
    versions["jupyter-kernel-client"] = re.search("^jupyter-kernel-client==(.+)", (HERE / "sdk/jupyter/requirements.txt").read_text(), re.M)[1]
    versions["go"] = re.search(r"^go (\d+\.\d+)", (HERE / "go.mod").read_text(), re.M)[1]
    if not shutil.which("rustc"):
        sys.exit("rustc is missing: install Rust 1.88 or newer with rustfmt and clippy (rustup.rs)")
    versions["rust"] = re.match(r"rustc (\d+\.\d+)", subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True).stdout)[1]
    versions["node"] = re.match(r"v(\d+)", subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout)[1]
    e2b = json.loads((HERE / "sdk/e2b/versions.json").read_text())
    registries = {"python": "PyPI", "node": "npm"}
    for package in sorted({name for rows in e2b.values() for row in rows for name in row}):
        of = {registries[kind]: ", ".join(row[package] for row in rows) for kind, rows in e2b.items() if package in rows[0]}
        versions[package] = next(iter(of.values())) if len(of) == 1 else "; ".join(f"{text} ({registry})" for registry, text in of.items())
    return versions


def filled(text: str) -> str:
    """The page with these versions."""
    head, rest = text.split(HEADING)
    versions, rows, seen = pinned(), [], set()
    for line in rest.splitlines(keepends=True):
        cells = line.split(" | ")
        if len(cells) == 5 and cells[1] != "package":
            if cells[1] not in ROWS:
                sys.exit(f"docs/compatibility.md has {cells[1]}, of which ROWS does not know")
            seen.add(cells[1])
            cells[3] = versions[cells[1]]
            line = " | ".join(cells)
        rows.append(line)
    if missing := ROWS - seen:
        sys.exit(f"docs/compatibility.md has no row for {', '.join(sorted(missing))}")
    return head + HEADING + "".join(rows)


def main() -> None:
    was = PAGE.read_text()
    now = filled(was)
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(now)
    elif was != now:
        sys.stderr.writelines(difflib.unified_diff(was.splitlines(True), now.splitlines(True), "docs/compatibility.md", "what is run", n=0))
        sys.exit("docs/compatibility.md tells of other versions: scripts/compatibility.py --write")


if __name__ == "__main__":
    main()
