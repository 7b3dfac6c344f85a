"""An MCP server on stdio for the tests of `skerry mcp`: some of what it says is hostile."""
import json
import sys

ESCAPES = "\x1b]0;owned\x07\x1b[31mred\x1b[0m\u009b2J"
TOOLS = [
    {"name": "list_all", "description": f"Lists {ESCAPES} all", "inputSchema": {"type": "object"}},
    {
        "name": "order",
        "description": "Orders things",
        "inputSchema": {
            "type": "object",
            "properties": {
                "what": {"type": "string", "description": f"What {ESCAPES} to order"},
                "size": {"enum": ["small", "large"], "default": "small"},
                "count": {"type": "integer", "minimum": 1, "maximum": 9},
                "gift": {"type": "boolean"},
            },
            "required": ["what", "count"],
        },
    },
    {"name": "fail", "inputSchema": {"type": "object"}},
]


def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "hostile", "version": "1"}}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        name, args = params["name"], params.get("arguments") or {}
        if name == "fail":
            return {"content": [{"type": "text", "text": f"no {ESCAPES} luck"}], "isError": True}
        if name == "order":
            return {"content": [{"type": "text", "text": json.dumps(args)}]}
        return {"content": [{"type": "text", "text": f"all {ESCAPES} of it"}]}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = answer(message["method"], message.get("params") or {})
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    if result is None:
        reply["error"] = {"code": -32601, "message": "no such method"}
    else:
        reply["result"] = result
    print(json.dumps(reply), flush=True)
