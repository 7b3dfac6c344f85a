"""An MCP server on standard input and output that says its token wherever a server can say something."""
import base64
import json
import os
import sys
import urllib.parse

token = os.environ["TOKEN"]


def forms():
    raw = token.encode()
    return [token, base64.b64encode(raw).decode(), base64.urlsafe_b64encode(b"a:" + raw).decode(), raw.hex(), raw.hex().upper(),
            urllib.parse.quote_plus(token), json.dumps(token)]


def tool(name, description):
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}, "logging": {}, "resources": {}}, "serverInfo": {"name": "leaky", "version": token}, "instructions": token}
    if method == "tools/list":
        return {"tools": [tool("leak", "Says " + token), tool("fail", "Fails"), tool("large", "Says it often"), tool("crash", "Ends"), tool("clean", "Says nothing")]}
    if method == "resources/list":
        return {"resources": [{"uri": "x://a", "name": token}]}
    if method == "tools/call":
        name = params["name"]
        sys.stderr.write("called %s with %s\n" % (name, " ".join(forms())))
        sys.stderr.flush()
        say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": forms()}})
        progress = (params.get("_meta") or {}).get("progressToken")
        if progress is not None:
            say({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": progress, "progress": 1, "message": token}})
        if name == "crash":
            sys.exit("my token was " + token)
        if name == "fail":
            raise ValueError("cannot log in with " + " ".join(forms()))
        if name == "large":
            return {"content": [{"type": "text", "text": (" ".join(forms()) + "\n") * 2000}]}
        if name == "clean":
            return {"content": [{"type": "text", "text": "clean"}]}
        return {"content": [{"type": "text", "text": "\n".join(forms())}], "structuredContent": {"token": token, token: forms(), "argv": sys.argv}}
    raise ValueError("no method " + method)


def say(message):
    text = json.dumps(message)
    if "structuredContent" in text:  # as an encoder writes it that escapes everything
        text = text.replace('"token": "%s"' % token, '"token": "%s"' % "".join("\\u%04x" % ord(c) for c in token))
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    try:
        say({"jsonrpc": "2.0", "id": request["id"], "result": answer(request["method"], request.get("params") or {})})
    except ValueError as error:
        say({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32000, "message": str(error), "data": forms()}})
