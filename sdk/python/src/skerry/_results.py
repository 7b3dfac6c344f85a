"""Results of execs, and the events that lead to them."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

from skerry import _constants as constants
from skerry import errors, models
from skerry._sse import Message


class ExecResult(models.ExecResult):
    """How an exec ended. A command that fails is a result, not an exception: look at ok, status and exit_code."""

    @property
    def ok(self) -> bool:
        return self.status == constants.STATUS_EXITED and self.exit_code == 0

    @property
    def stdout_bytes(self) -> bytes:
        return self._bytes(self.stdout)

    @property
    def stderr_bytes(self) -> bytes:
        return self._bytes(self.stderr)

    @property
    def output(self) -> str:
        """stdout, then stderr, as text; what is not UTF-8 is replaced."""
        return (self.stdout_bytes + self.stderr_bytes).decode("utf-8", "replace")

    def check(self) -> ExecResult:
        """Itself, when it is ok; else it raises ExecFailed."""
        if not self.ok:
            raise ExecFailed(self)
        return self

    def _bytes(self, text: str) -> bytes:
        return base64.b64decode(text) if self.encoding == "base64" else text.encode()


class ExecFailed(errors.SkerryError):
    """What ExecResult.check raises."""

    def __init__(self, result: ExecResult) -> None:
        code = "" if result.exit_code is None else f" with code {result.exit_code}"
        super().__init__(f"exec {result.exec_id}: {result.status}{code}: {result.stderr_bytes.decode('utf-8', 'replace')[-2000:]}")
        self.result = result


@dataclass(frozen=True)
class FileEvent:
    """What Files.watch tells of: change is started (of the folder itself, first), created, modified or deleted."""

    path: str
    change: str
    is_dir: bool


@dataclass(frozen=True)
class Event:
    """One event of an exec. type is started, stdout, stderr, approval_required, approval_decided or exit.

    n numbers it; data is what stdout and stderr carry; result is there with exit, detail with the others.
    """

    n: int
    type: str
    data: bytes
    detail: dict[str, Any]
    result: ExecResult | None = None

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


def event_of(message: Message) -> Event:
    detail = json.loads(message.data)
    if message.event == constants.EVENT_ERROR:
        raise errors.APIError.codes.get(str(detail.get("code", "")), errors.APIError)(
            str(detail.get("detail", "")), status=int(detail.get("status", 0)), code=str(detail.get("code", ""))
        )
    n = int(message.id) if message.id.isdigit() else 0
    if message.event == constants.EVENT_EXIT:
        return Event(n, constants.EVENT_EXIT, b"", detail, ExecResult.model_validate(detail))
    text = str(detail.get("data", ""))
    data = base64.b64decode(text) if detail.get("encoding") == "base64" else text.encode()
    return Event(n, message.event, data, detail)
