"""What tools return, in the words of MCP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json


class ToolError(Exception):
    """The failure of a tool: the agent reads its text. The text of other exceptions stays in this program's log."""


@dataclass
class Result:
    """The answer of a tool that has more to say than one value."""

    content: list[dict[str, Any]] = field(default_factory=list)  # blocks of MCP, such as {"type": "text", "text": "…"}
    structured: Mapping[str, Any] | None = None  # the value for programs
    is_error: bool = False

    @property
    def text(self) -> str:
        """The text of all blocks."""
        return "\n".join(b["text"] for b in self.content if isinstance(b.get("text"), str))

    def encode(self) -> bytes:
        """The result as the contract has it."""
        answer: dict[str, Any] = {"content": self.content}
        if self.structured is not None:
            answer["structuredContent"] = self.structured
        if self.is_error:
            answer["isError"] = True
        return to_json(answer)


def text_result(text: str, *, is_error: bool = False) -> Result:
    return Result([{"type": "text", "text": text}], is_error=is_error)
