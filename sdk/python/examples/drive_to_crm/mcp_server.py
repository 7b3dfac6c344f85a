"""Two small MCP servers on stdio, with nothing but the standard library: `drive` has reports, `crm` has opportunities.

They stand for a Google Drive and a Salesforce, so that the example needs no network.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

REPORT = (
    """Q4 2025 Financial Summary

Key finding: revenue grew 23% over the year, to $4.2B.
Highlight: the operating margin rose by 1.8 points.
The board thanks all who took part.
Conclusion: guidance for the next year goes up.
"""
    + "Appendix line, which nobody needs to read.\n" * 2500
)

DOCUMENTS = {
    "doc-1": {
        "id": "doc-1",
        "title": "Q3 2025 Financial Summary",
        "modifiedTime": "2025-10-14T09:00:00Z",
        "content": "Key finding: none yet.\n",
    },
    "doc-2": {"id": "doc-2", "title": "Q4 2025 Financial Summary", "modifiedTime": "2026-01-20T09:00:00Z", "content": REPORT},
}
RECORDS: dict[str, dict[str, Any]] = {"OPP-001": {"Name": "Acme renewal", "Description": ""}}


def list_documents(query: str) -> Any:
    words = query.lower().split()
    found = [d for d in DOCUMENTS.values() if any(w.rstrip("s") in (d["title"] + " quarterly report").lower() for w in words)]
    return {"documents": [{k: d[k] for k in ("id", "title", "modifiedTime")} for d in found]}


def get_document(documentId: str) -> Any:
    return DOCUMENTS[documentId]


def update_record(recordId: str, fields: dict[str, Any]) -> Any:
    RECORDS[recordId].update(fields)
    return {"updated": recordId}


def get_record(recordId: str) -> Any:
    return RECORDS[recordId]


def tool(call: Callable[..., Any], text: str, **properties: dict[str, Any]) -> tuple[Callable[..., Any], dict[str, Any]]:
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    return call, {"name": call.__name__, "description": text, "inputSchema": schema}


STRING = {"type": "string"}
SERVERS = {
    "drive": [
        tool(list_documents, "List documents in the drive that match a query", query=STRING),
        tool(get_document, "Read a document from the drive, with all of its content", documentId=STRING),
    ],
    "crm": [
        tool(update_record, "Update fields of a record, such as an opportunity", recordId=STRING, fields={"type": "object"}),
        tool(get_record, "Read a record", recordId=STRING),
    ],
}


def answer(server: str, method: str, params: dict[str, Any]) -> Any:
    tools = SERVERS[server]
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": server, "version": "1"}}
    if method == "tools/list":
        return {"tools": [described for _, described in tools]}
    if method == "tools/call":
        call = next(c for c, described in tools if described["name"] == params["name"])
        try:
            result = call(**params.get("arguments", {}))
        except KeyError as err:
            return {"isError": True, "content": [{"type": "text", "text": f"there is no {err}"}]}
        return {"content": [{"type": "text", "text": json.dumps(result)}], "structuredContent": result}
    if method == "ping":
        return {}
    raise LookupError(method)


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        said: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            said["result"] = answer(sys.argv[1], request["method"], request.get("params", {}))
        except LookupError:
            said["error"] = {"code": -32601, "message": f"no method {request['method']}"}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
