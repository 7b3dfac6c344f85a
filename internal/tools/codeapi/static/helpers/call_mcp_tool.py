"""Calls a tool of an MCP server through the sandbox's bridge.

It speaks HTTP on a socket of its own: the standard client costs more time to import than a call takes.
"""
from __future__ import annotations

import _thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from threading import local as _Local
    from typing import Any, cast
else:
    # What threading.local is; threading itself costs time to import.
    _Local = _thread._local
    cast = lambda _type, value: value

__all__ = ["MCPToolError", "call_mcp_tool"]

_CONNECT = 10.0  # seconds
_MAX_LINE = 65536
_local = _Local()


class MCPToolError(Exception):
    """A call that failed: by the tool, or on the way to it.

    tool is the tool that was called. status is the HTTP status of the bridge's answer, 0 when there
    was none. code is a stable word such as not_found, invalid, tool_failed, timeout or unavailable.
    """

    def __init__(self, tool: str, status: int, code: str, message: str) -> None:
        super().__init__(message if message.startswith(f"{tool}: ") else f"{tool}: {message}")
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
    import json

    body = json.dumps({"tool": tool, "input": {} if input is None else input}, ensure_ascii=False, allow_nan=False)
    try:
        status, text = _post(body.encode("utf-8", "surrogatepass"))
    except (OSError, ValueError) as err:
        raise MCPToolError(tool, 0, "unavailable", f"the tool bridge does not answer: {err}") from err
    answer: Any = None
    try:
        answer = json.loads(text)
    except ValueError:
        pass
    if isinstance(answer, dict):
        answer = cast("dict[str, Any]", answer)
        error = answer.get("error")
        if isinstance(error, dict):
            error = cast("dict[str, Any]", error)
            raise MCPToolError(tool, status, str(error.get("code")), str(error.get("message")))
        if status == 200 and "result" in answer:
            return answer["result"]
        if status == 200 and isinstance(answer.get("file"), dict):
            return _load(tool, answer["file"])
    raise MCPToolError(tool, status, "unavailable", f"the tool bridge answered with status {status} and no result")


def _load(tool: str, file: dict[str, Any]) -> Any:
    """A large result comes as a file of the thread; code gets it as any other."""
    import json

    try:
        with open(file["path"], encoding="utf-8") as f:
            text = f.read()
        return text if file.get("format") == "text" else json.loads(text)
    except (OSError, ValueError, KeyError) as err:
        raise MCPToolError(tool, 200, "unavailable", f"its result of {file.get('bytes')} bytes cannot be read: {err}") from err


class _Dead(OSError):
    """The connection ended before the first byte of an answer."""


def _post(body: bytes) -> tuple[int, bytes]:
    import os

    env = os.environ
    url = env.get("MCP_RPC_ENDPOINT") or f"http://localhost:{env.get('MCP_BRIDGE_PORT') or '9876'}/call"
    host, port, path = _address(url)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {env.get('SKERRY_EXEC_TOKEN', '')}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    request = head.encode("latin-1") + body
    near = env.get("MCP_BRIDGE_SOCKET", "")
    # A connection belongs to one thread of one process: after a fork the child opens its own.
    key = (os.getpid(), near, host, port)
    kept = getattr(_local, "kept", None)
    _local.kept = None
    if kept is not None:
        if kept[0] == key and not _ended(kept[1]):
            try:
                return _exchange(key, kept[1], kept[2], request)
            except _Dead:
                pass  # it was closed while nobody used it; once more on a new one
        else:
            _close(kept[1], kept[2])
    conn = _connect(near, host, port)
    return _exchange(key, conn, conn.makefile("rb"), request)


def _connect(near: str, host: str, port: int) -> Any:
    """The bridge's own socket is faster than the port in front of it; the port waits while the server starts again."""
    import socket

    conn = None
    if near:
        conn = socket.socket(socket.AF_UNIX)
        try:
            conn.connect(near)
        except OSError:
            conn.close()
            conn = None
    if conn is None:
        conn = socket.create_connection((host, port), _CONNECT)
        # The bridge ends each call in its time, and the exec's deadline ends the wait for a bridge that
        # does not: a timeout here would cost a poll before each read.
        conn.settimeout(None)
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return conn


def _address(url: str) -> tuple[str, int, str]:
    if not url.startswith("http://"):
        raise ValueError("MCP_RPC_ENDPOINT is not an http URL")
    place, slash, path = url[7:].partition("/")
    host, colon, port = place.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = place, "80"
    return host.strip("[]"), int(port), slash + path or "/"


def _ended(conn: Any) -> bool:
    """Whether a kept connection was closed by the bridge, or holds what nobody asked for."""
    import socket

    try:
        conn.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _close(*parts: Any) -> None:
    for part in parts:
        try:
            part.close()
        except OSError:
            pass


def _exchange(key: Any, conn: Any, answer: Any, request: bytes) -> tuple[int, bytes]:
    keep = False
    try:
        try:
            conn.sendall(request)
        except (BrokenPipeError, ConnectionResetError):
            pass  # there may be an answer all the same
        status, text, keep = _read(answer)
        if keep:
            _local.kept = (key, conn, answer)
        return status, text
    finally:
        if not keep:
            _close(answer, conn)


def _line(answer: Any) -> bytes:
    line = answer.readline(_MAX_LINE)
    if not line.endswith(b"\n"):
        raise OSError("the answer was cut off")
    return line.strip()


def _read(answer: Any) -> tuple[int, bytes, bool]:
    try:
        first = answer.peek(1)
    except ConnectionError as err:
        raise _Dead(str(err)) from err
    if not first:
        raise _Dead("the connection was closed")
    status, keep = 100, False
    headers: dict[bytes, bytes] = {}
    while 100 <= status < 200:
        parts = _line(answer).split(None, 2)
        if len(parts) < 2 or not parts[0].startswith(b"HTTP/1."):
            raise OSError("the answer is not HTTP")
        keep = parts[0] != b"HTTP/1.0"
        status = int(parts[1])
        headers.clear()
        while line := _line(answer):
            name, _, value = line.partition(b":")
            headers[name.strip().lower()] = value.strip()
    keep = keep and headers.get(b"connection", b"").lower() != b"close"
    if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        return status, _chunks(answer), keep
    if b"content-length" not in headers:
        return status, answer.read(), False
    return status, _exactly(answer, int(headers[b"content-length"])), keep


def _exactly(answer: Any, size: int) -> bytes:
    text = answer.read(size)
    if len(text) != size:
        raise OSError("the answer was cut off")
    return text


def _chunks(answer: Any) -> bytes:
    parts: list[bytes] = []
    while size := int(_line(answer).partition(b";")[0], 16):
        parts.append(_exactly(answer, size))
        _line(answer)
    while _line(answer):
        pass
    return b"".join(parts)
