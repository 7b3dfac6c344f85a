"""Input schemas of MCP servers, made fit for LangChain.

LangChain writes out each $ref of a schema before it binds a tool. A schema comes from a stranger: written out it may have no end,
and a $ref that leads nowhere would end the agent's run.
"""

from __future__ import annotations

from typing import Any

MAX_PLACES = 20_000  # values of a schema, with its references written out
MAX_DEPTH = 200


def bindable(schema: Any) -> dict[str, Any]:
    """The schema, or one that allows every object when it cannot be written out. The server checks all arguments anyway."""
    if not isinstance(schema, dict) or not isinstance(schema.get("properties", {}), dict) or not Walk(schema).ends(schema, 0):
        return {"type": "object", "properties": {}, "additionalProperties": True}
    return {"type": "object", "properties": {}} | schema


class Walk:
    """Goes where LangChain's dereference_refs goes, and gives up early."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._places = 0
        self._within: set[str] = set()

    def ends(self, value: Any, depth: int) -> bool:
        """Whether all references below value lead somewhere, within the bounds."""
        self._places += 1
        if self._places > MAX_PLACES or depth > MAX_DEPTH:
            return False
        if isinstance(value, list):
            return all(self.ends(v, depth + 1) for v in value)
        if not isinstance(value, dict):
            return True
        if "$ref" in value and not self._follow(value["$ref"], depth):
            return False
        return all(self.ends(v, depth + 1) for k, v in value.items() if k not in ("$ref", "$defs"))

    def _follow(self, ref: Any, depth: int) -> bool:
        if not isinstance(ref, str) or not ref.startswith("#") or ref.split("/")[0] != "#":
            return False
        if ref in self._within:  # a circle, which is cut there
            return True
        found: Any = self._root
        for part in ref.split("/")[1:]:
            if isinstance(found, dict) and part in found:
                found = found[part]
            elif isinstance(found, list) and part.isdecimal() and int(part) < len(found) and part not in found:
                found = found[int(part)]
            else:
                return False
        self._within.add(ref)
        try:
            return self.ends(found, depth + 1)
        finally:
            self._within.discard(ref)
