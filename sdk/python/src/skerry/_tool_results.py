"""What a model reads of a tool's result, and what is kept beside it for the program."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from skerry import models

# The kinds of images that models take, by how their files begin. What else a server calls an image ends a run at the provider.
IMAGES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF87a": "image/gif", b"GIF89a": "image/gif"}


class ToolError(Exception):
    """What the model reads when a tool of an MCP server failed."""


Content = str | list[str | dict[str, Any]]


def content_of(result: models.ToolResult) -> tuple[Content, dict[str, Any]]:
    """The content of a message to the model, and its artifact: structured content, blocks that the model is not shown, and the file
    of a result that is cut."""
    artifact: dict[str, Any] = {"call_id": result.call_id}
    if result.structured_content is not None:
        artifact["structured_content"] = result.structured_content
    if result.file is not None:
        artifact["file"] = result.file.model_dump()
    if not result.content:
        return text_of(result.result), artifact
    shown = [shown_block(b) for b in result.content]
    if hidden := [b for b, s in zip(result.content, shown, strict=True) if s is None]:
        artifact["content"] = hidden
    blocks = [s or {"type": "text", "text": placeholder(b)} for b, s in zip(result.content, shown, strict=True)]
    if all(b["type"] == "text" for b in blocks):
        return "\n".join(b["text"] for b in blocks) or text_of(result.structured_content), artifact
    return list(blocks), artifact


def text_of(value: Any) -> str:
    """A result as text: a text as it is, all else as JSON."""
    if value is None or value == "" or value == []:
        return "[no output]"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def shown_block(block: Any) -> dict[str, Any] | None:
    """A block of MCP as one of LangChain's: a text, or an image that models take. None for what they do not take."""
    if not isinstance(block, dict):
        return None
    inner = block.get("resource") if block.get("type") == "resource" else block
    if not isinstance(inner, dict):
        return None
    if isinstance(inner.get("text"), str):
        return {"type": "text", "text": inner["text"]}
    data = inner.get("data") or inner.get("blob")
    if mime := image_type(data):
        return {"type": "image", "base64": data, "mime_type": mime}
    return None


def placeholder(block: Any) -> str:
    """What the model reads in place of a block that it is not shown."""
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "resource_link":
        return f"[a resource of the server: {named(block)}]"
    return f"[{kind or 'a block'} that cannot be shown: {named(block.get('resource', block) if isinstance(block, dict) else None)}]"


def named(block: Any) -> str:
    """What a block says of itself, in a few words."""
    if not isinstance(block, dict):
        return "no object"
    said = [block.get(k) for k in ("name", "uri", "mimeType", "description")]
    return ", ".join(str(s)[:500] for s in said if s) or "without a name"


def image_type(data: Any) -> str | None:
    """The type of an image in base64, by its first bytes; None when it is none that models take."""
    if not isinstance(data, str):
        return None
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for magic, mime in IMAGES.items() if raw.startswith(magic)), None)
