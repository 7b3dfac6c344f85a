"""Errors. All are SkerryError; those that the server answered with are APIError, one class for each code."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from skerry import _constants as constants


class SkerryError(Exception):
    """Whatever goes wrong in this package."""


class ConnectionFailed(SkerryError):
    """The server was not reached, or the connection broke, and what was asked for was not done or can be done again."""


class OutcomeUnknown(SkerryError):
    """The request was sent, its answer did not come, and it may have been done. It is not sent again by itself."""


class DeadlineExceeded(SkerryError, TimeoutError):
    """The call's own deadline passed. What runs on the server goes on until its own."""


@dataclass(frozen=True)
class FieldError:
    """What is wrong with one field of a request."""

    field: str
    detail: str


class APIError(SkerryError):
    """What the server answered with instead of a result (RFC 9457). code is stable, the texts are not."""

    codes: ClassVar[dict[str, type[APIError]]] = {}
    code: str = ""

    def __init__(
        self,
        detail: str,
        *,
        status: int = 0,
        code: str = "",
        title: str = "",
        errors: list[FieldError] | None = None,
        limit: dict[str, Any] | None = None,
        request_id: str = "",
        retry_after: float | None = None,
        not_started: bool = False,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.status = status
        self.code = code or type(self).code
        self.title = title
        self.errors = errors or []
        self.limit = limit
        self.request_id = request_id
        self.retry_after = retry_after
        self.not_started = not_started  # the server says that nothing was done

    def __init_subclass__(cls) -> None:
        APIError.codes.setdefault(cls.code, cls)

    def __str__(self) -> str:
        return f"{self.detail} ({self.code}, request {self.request_id})" if self.request_id else f"{self.detail} ({self.code})"

    @property
    def key_conflict(self) -> str:
        """Of a conflict over the Idempotency-Key: running, done or unknown; else empty."""
        return next((e.detail for e in self.errors if e.field == constants.HEADER_IDEMPOTENCY_KEY and self.status == 409), "")


class NotFound(APIError):
    code = constants.CODE_NOT_FOUND


class Invalid(APIError):
    code = constants.CODE_INVALID


class Conflict(APIError):
    code = constants.CODE_CONFLICT


class PreconditionFailed(Conflict):
    """A file is not what if_match or if_absent wants (412), and nothing was written."""


class Forbidden(APIError):
    code = constants.CODE_FORBIDDEN


class Unauthorized(APIError):
    code = constants.CODE_UNAUTHORIZED


class QuotaExceeded(APIError):
    code = constants.CODE_QUOTA_EXCEEDED


class CapacityExceeded(APIError):
    code = constants.CODE_CAPACITY_EXCEEDED


class NotSupported(APIError):
    code = constants.CODE_NOT_SUPPORTED


class SandboxLost(APIError):
    code = constants.CODE_SANDBOX_LOST


class ToolFailed(APIError):
    code = constants.CODE_TOOL_FAILED


class TimedOut(APIError):
    code = constants.CODE_TIMEOUT


class Unavailable(APIError):
    code = constants.CODE_UNAVAILABLE


class Internal(APIError):
    code = constants.CODE_INTERNAL


def from_answer(status: int, headers: dict[str, str], body: bytes) -> APIError:
    """The error of an answer of status 400 or more. An answer that is no problem document came from a proxy."""
    request_id, retry = headers.get(constants.HEADER_REQUEST_ID.lower(), ""), seconds(headers.get(constants.HEADER_RETRY_AFTER.lower(), ""))
    try:
        p = json.loads(body) if headers.get("content-type", "").startswith("application/problem+json") else None
    except ValueError:
        p = None
    if not isinstance(p, dict):
        text = body[:200].decode("utf-8", "replace").strip()
        return APIError(
            f"HTTP {status} without a problem document: {text!r}", status=status, code="", request_id=request_id, retry_after=retry
        )
    code = str(p.get("code", ""))
    errors = [FieldError(str(e.get("field", "")), str(e.get("detail", ""))) for e in p.get("errors") or [] if isinstance(e, dict)]
    kind = PreconditionFailed if status == 412 and code == Conflict.code else APIError.codes.get(code, APIError)
    return kind(
        str(p.get("detail", "")),
        status=status,
        code=code,
        title=str(p.get("title", "")),
        errors=errors,
        limit=p.get("limit"),
        request_id=request_id,
        retry_after=retry,
        not_started=bool(p.get("not_started")),
    )


def seconds(text: str) -> float | None:
    try:
        return max(0.0, float(text))
    except ValueError:
        return None
