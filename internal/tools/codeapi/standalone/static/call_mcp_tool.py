"""Calls a tool of an MCP server from outside of a sandbox.

Where a call goes: to MCP_RPC_ENDPOINT (the bridge of a sandbox); else to the Skerry server that
SKERRY_SERVER or connection.py names, with the key in SKERRY_API_KEY; else to the command in
connection.py, which is started anew for each call: state that a server keeps in memory is then lost
between calls.
"""
from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.parse
import urllib.request

from helpers.connection import CONNECTION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["MCPToolError", "call_mcp_tool"]

_TIMEOUT = 600.0  # seconds; the server gives up long before


class MCPToolError(Exception):
    """A call that failed: by the tool, or on the way to it.

    tool is the tool that was called. status is the HTTP status of the answer, 0 when there was none.
    code is a stable word such as not_found, invalid, tool_failed, timeout or unavailable.
    """

    def __init__(self, tool: str, status: int, code: str, message: str) -> None:
        super().__init__(f"{tool}: {message}")
        self.tool = tool
        self.status = status
        self.code = code
        self.message = message

    def __reduce__(self) -> Any:
        return MCPToolError, (self.tool, self.status, self.code, self.message)


def call_mcp_tool(tool: str, input: dict[str, Any] | None = None) -> Any:
    """Call a tool by its full name ("<server>__<tool>") and give its result.

    A call that fails raises an MCPToolError. Threads may call at the same time.
    """
    env = os.environ
    given = {} if input is None else input
    bridge = env.get("MCP_RPC_ENDPOINT", "")
    server = env.get("SKERRY_SERVER", "") or str(CONNECTION["server"])
    if bridge:
        return _post(tool, bridge, env.get("SKERRY_EXEC_TOKEN", ""), given)
    if server:
        thread = urllib.parse.quote(str(CONNECTION["thread"]), safe="")
        url = f"{server.rstrip('/')}/api/threads/{thread}/tools/call"
        return _post(tool, url, env.get("SKERRY_API_KEY", ""), given)
    return _start(tool, given)


def _post(tool: str, url: str, key: str, given: dict[str, Any]) -> Any:
    body = json.dumps({"tool": tool, "input": given}, allow_nan=False).encode()
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    if not url.startswith(("http://", "https://")):
        raise MCPToolError(tool, 0, "unavailable", f"{url} is not an http address")
    request = urllib.request.Request(url, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
            return _unwrap(tool, answer.status, answer.read())
    except urllib.error.HTTPError as err:
        with err:
            return _unwrap(tool, err.code, err.read())
    except OSError as err:
        raise MCPToolError(tool, 0, "unavailable", f"{url} does not answer: {err}") from err


def _unwrap(tool: str, status: int, text: bytes | str) -> Any:
    """Read an answer of the bridge, of the API, or of the command line."""
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise MCPToolError(tool, status, "unavailable", f"the answer, of status {status}, is not a JSON object")
    error = answer.get("error")
    if isinstance(error, dict):
        raise MCPToolError(tool, status, str(error.get("code")), str(error.get("message")))
    if status != 200 or "result" not in answer:
        fields = "".join(f"; {e.get('location')}: {e.get('message')}" for e in answer.get("errors") or [])
        detail = answer.get("detail", f"status {status}")
        raise MCPToolError(tool, status, str(answer.get("code", "unavailable")), f"{detail}{fields}")
    result: Any = answer["result"]
    if answer.get("is_error"):
        raise MCPToolError(tool, status, "tool_failed", result if isinstance(result, str) else json.dumps(result))
    return result


def _start(tool: str, given: dict[str, Any]) -> Any:
    """Start the command line for one call."""
    command = [str(part) for part in CONNECTION["command"]]
    if not command:
        raise MCPToolError(tool, 0, "unavailable", "connection.py names neither a server nor a command")
    text = json.dumps(given, allow_nan=False)
    try:
        done = subprocess.run(
            [*command, tool, "--args", "-", "--json"], input=text.encode(), capture_output=True, timeout=_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        raise MCPToolError(tool, 0, "unavailable", f"{command[0]}: {err}") from err
    if not done.stdout.strip():
        said = done.stderr.decode("utf-8", "replace").strip()
        raise MCPToolError(tool, 0, "unavailable", said or f"{command[0]} said nothing")
    return _unwrap(tool, 200, done.stdout)
