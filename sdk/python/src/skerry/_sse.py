"""Server-sent events, read from bytes. Lines end at LF alone: a NEL or a line separator may be in the JSON."""

from __future__ import annotations

from dataclasses import dataclass

from skerry._constants import MAX_ANSWER


@dataclass(frozen=True)
class Message:
    id: str
    event: str
    data: str


class Decoder:
    """Takes bytes as they come, and returns the messages that are whole."""

    def __init__(self) -> None:
        self._rest = b""
        self._id = ""
        self._event = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[Message]:
        lines = (self._rest + chunk).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > MAX_ANSWER:
            raise ValueError(f"an event of more than {MAX_ANSWER} bytes")
        return [m for line in lines if (m := self._line(line.rstrip(b"\r").decode("utf-8", "replace")))]

    def _line(self, line: str) -> Message | None:
        if not line:
            message = Message(self._id, self._event or "message", "\n".join(self._data)) if self._data else None
            self._event, self._data = "", []
            return message
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "id":
            self._id = value
        elif field == "event":
            self._event = value
        elif field == "data":
            self._data.append(value)
        return None
