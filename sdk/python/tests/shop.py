"""An MCP server on stdio whose tools change: `open_shop` adds `buy` and takes itself away, and says so (list_changed).

Its other tools answer with what results are made of. `shop.py many N` has N tools without a purpose.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 400_000  # more than what the API answers with as text
OPEN = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ANY = {"type": "object"}
# Written out, this schema has 2^40 parts.
BOMB = {
    "type": "object",
    "properties": {"x": {"$ref": "#/$defs/a0"}},
    "$defs": {f"a{i}": {"properties": {"l": {"$ref": f"#/$defs/a{i + 1}"}, "r": {"$ref": f"#/$defs/a{i + 1}"}}} for i in range(40)}
    | {"a40": {}},
}
ASTRAY = {"type": "object", "properties": {"x": {"$ref": "https://example.com/schema.json"}}}
DEEP = '{"a":' * 950 + "1" + "}" * 950  # as text: Python's json gives up on it

TOOLS: dict[str, Any] = {
    "open_shop": OPEN,
    "say": ANY,
    "picture": ANY,
    "numbers": ANY,
    "sound": ANY,
    "fail": ANY,
    "bomb": BOMB,
    "astray": ASTRAY,
    "deep": DEEP,
}
if sys.argv[1:2] == ["many"]:
    TOOLS = {f"idle_{i}": ANY for i in range(int(sys.argv[2]))}
MANNER = "  It takes its time. " * 30  # what makes tools without a purpose too long for direct mode


def listed(name: str, schema: Any) -> str:
    written = schema if isinstance(schema, str) else json.dumps(schema)
    manner = MANNER if name.startswith("idle_") else ""
    return f'{{"name": {json.dumps(name)}, "description": "Does {name}.{manner}", "inputSchema": {written}}}'


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name == "open_shop":
        del TOOLS["open_shop"]
        TOOLS["buy"] = ANY
        send({"method": "notifications/tools/list_changed"})
        return {"content": [text(f"open in {arguments['city']}"), text("come in")]}
    if name == "picture":
        return {"content": [text("a picture"), {"type": "image", "mimeType": "image/x-any", "data": base64.b64encode(PNG).decode()}]}
    if name == "numbers":
        return {"content": [], "structuredContent": {"sum": 6, "of": [1, 2, 3]}}
    if name == "sound":
        link = {"type": "resource_link", "name": "notes", "uri": "shop://notes"}
        inner = {"type": "resource", "resource": {"uri": "shop://list", "text": "milk"}}
        return {
            "content": [
                {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"},
                {"type": "image", "mimeType": "image/png", "data": "AAAA"},
                link,
                inner,
            ]
        }
    if name == "fail":
        return {"content": [text("sold out")], "isError": True}
    return {"content": [text(json.dumps({name: arguments}))]}


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0"} | message), flush=True)


def answer(method: str, params: dict[str, Any]) -> Any:
    if method == "initialize":
        tools = {"tools": {"listChanged": True}}
        return {"protocolVersion": params["protocolVersion"], "capabilities": tools, "serverInfo": {"name": "shop", "version": "1"}}
    if method == "tools/call":
        return call(params["name"], params.get("arguments") or {})
    raise NotImplementedError(method)


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        if request["method"] == "tools/list":
            tools = [listed(name, schema) for name, schema in TOOLS.items()]
            print(f'{{"jsonrpc": "2.0", "id": {json.dumps(request["id"])}, "result": {{"tools": [{", ".join(tools)}]}}}}', flush=True)
            continue
        try:
            send({"id": request["id"], "result": answer(request["method"], request.get("params") or {})})
        except NotImplementedError as err:
            send({"id": request["id"], "error": {"code": -32601, "message": f"no method {err}"}})


main()
