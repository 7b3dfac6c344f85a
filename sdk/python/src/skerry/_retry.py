"""When a request is sent again. The rules are one for the sync and the async client.

Three kinds of requests:
  SAFE   done twice is done once: reads, and writes of a whole file
  KEYED  has an Idempotency-Key. A retry also says how old the request is, and a server that cannot know whether it was
         done refuses it, so that what it began is never done twice
  ONCE   neither: only sent again when nothing of it can have arrived, or the server says that nothing was done
"""

from __future__ import annotations

import enum
import random
import time
import uuid

import httpx

from skerry import _constants as constants
from skerry.errors import APIError, ConnectionFailed, DeadlineExceeded, OutcomeUnknown, SkerryError

# Nothing of the request was sent when these are raised.
NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
    httpx.InvalidURL,
    httpx.LocalProtocolError,
)


class Kind(enum.Enum):
    SAFE = "safe"
    KEYED = "keyed"
    ONCE = "once"


class Attempts:
    """The attempts at one call: its deadline, its key, and how long to wait before the next one."""

    def __init__(self, what: str, kind: Kind, deadline_s: float, retries: int) -> None:
        self.what = what
        self.kind = kind
        self.key = uuid.uuid4().hex if kind is Kind.KEYED else ""
        self.began = time.monotonic()
        self.ends = self.began + deadline_s
        self.deadline_s = deadline_s
        self.left = retries
        self.sent = False  # a request of which nobody knows what became of it
        self.count = 0

    def remaining(self) -> float:
        left = self.ends - time.monotonic()
        if left <= 0:
            raise self.too_late()
        return left

    def too_late(self) -> SkerryError:
        text = f"{self.what}: no answer within {self.deadline_s:g} s"
        return DeadlineExceeded(text + ("; it may have been done" if self.sent and self.kind is not Kind.SAFE else ""))

    def headers(self) -> dict[str, str]:
        if not self.key:
            return {}
        if not self.count:
            return {constants.HEADER_IDEMPOTENCY_KEY: self.key}
        # Rounded up, so that the server never takes the request for younger than it is.
        age = min(time.monotonic() - self.began + 0.001, constants.MAX_RETRY_AGE_S)
        return {constants.HEADER_IDEMPOTENCY_KEY: self.key, constants.HEADER_IDEMPOTENCY_AGE: f"{age:.3f}"}

    def timeout(self) -> httpx.Timeout:
        left = self.remaining()
        return httpx.Timeout(left, connect=min(left, 10), pool=min(left, 10))

    def after_transport(self, err: Exception) -> float:
        """Seconds to wait before the next attempt after a connection failed; raises when there is none."""
        not_sent = isinstance(err, NOT_SENT)
        self.sent = self.sent or not not_sent
        if not not_sent and isinstance(err, httpx.TimeoutException) and time.monotonic() >= self.ends:
            raise self.too_late() from err
        if isinstance(err, (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.LocalProtocolError)):
            raise ConnectionFailed(f"{self.what}: {err}") from err
        if self.kind is Kind.ONCE and not not_sent:
            raise OutcomeUnknown(f"{self.what}: the connection broke ({name(err)}); it may have been done") from err
        return self.pause(None, self.lost(err))

    def after_answer(self, err: APIError) -> float:
        """Seconds to wait before the next attempt after an error came; raises it when another one is of no use."""
        if err.key_conflict == constants.KEY_RUNNING:
            return self.wait(err.retry_after or 1, err)  # as often as it takes: the first attempt is under way
        if err.key_conflict in (constants.KEY_UNKNOWN, constants.KEY_DONE) and self.count:
            raise OutcomeUnknown(f"{self.what}: {err.detail}") from err
        # A proxy says these in the server's place: whether the request arrived is not known.
        proxy = not err.code and err.status in constants.RETRIED_STATUSES
        if proxy and self.kind is Kind.ONCE:
            raise OutcomeUnknown(f"{self.what}: {err.detail}; it may have been done") from err
        self.sent = self.sent or proxy
        nothing_done = err.status in constants.PASSING_STATUSES or (
            err.status == 503 and (err.not_started or err.code == constants.CODE_CAPACITY_EXCEEDED)
        )
        # With a key the server sees to it that what began is not done again.
        later = err.status == 503 and self.kind is not Kind.ONCE
        if not (proxy or nothing_done or later):
            raise err
        return self.pause(err.retry_after, err)

    def pause(self, retry_after: float | None, err: SkerryError) -> float:
        if self.left <= 0:
            raise err
        self.left -= 1
        backoff = min(constants.FIRST_PAUSE_S * 2.0**self.count, constants.LONGEST_PAUSE_S) * (1 + random.random() / constants.PAUSE_SPREAD)
        return self.wait(max(retry_after or 0, backoff), err)

    def wait(self, pause: float, err: SkerryError) -> float:
        if time.monotonic() + pause >= self.ends:
            raise err
        self.count += 1
        return pause

    def lost(self, err: Exception) -> SkerryError:
        if self.sent and self.kind is not Kind.SAFE:
            return OutcomeUnknown(f"{self.what}: the connection broke ({name(err)}); it may have been done")
        return ConnectionFailed(f"{self.what}: {name(err)}")


def name(err: Exception) -> str:
    return f"{type(err).__name__}: {err}".rstrip(": ")
