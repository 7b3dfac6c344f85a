"""Execs and contexts."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import httpx

from skerry import _constants as constants
from skerry import errors, models
from skerry._async.transport import Transport
from skerry._options import deadline_of, given
from skerry._results import Event, ExecResult, event_of

if TYPE_CHECKING:
    from skerry._async.terminal import Terminal


async def follow(
    transport: Transport, base: str, *, path: str = "", body: Any = None, exec_id: str = "", after: int = 0, deadline_s: float
) -> AsyncIterator[Event]:
    """The events of an exec, to its end. path starts one; else exec_id names it. A broken connection is taken up again."""
    ends = time.monotonic() + deadline_s
    heard = time.monotonic()
    while True:
        left = ends - time.monotonic()
        if left <= 0:
            raise errors.DeadlineExceeded(f"exec {exec_id}: no end within {deadline_s:g} s; it goes on until its own deadline")
        if exec_id:
            messages = transport.events("GET", f"{base}/execs/{exec_id}/events", params={"after": after}, deadline_s=left)
        else:
            messages = transport.events("POST", path, body=body, deadline_s=left)
        try:
            async for message in messages:
                event = event_of(message)
                heard = time.monotonic()
                after = max(after, event.n)
                exec_id = str(event.detail.get("exec_id", exec_id))
                yield event
                if event.type == constants.EVENT_EXIT:
                    return
        except httpx.HTTPError as err:
            if not exec_id:
                raise errors.OutcomeUnknown(f"POST {path}: the connection broke ({err}); it may have been done") from err
        # The stream ended before the exec did.
        if not exec_id or time.monotonic() - heard > constants.TAKE_UP_FOR_S:
            raise errors.OutcomeUnknown(f"exec {exec_id}: its events broke off")
        await asyncio.sleep(constants.TAKE_UP_PAUSE_S)


class Exec:
    """An exec that was started in the background, or is under way."""

    def __init__(self, transport: Transport, thread: str, base: str, exec_id: str) -> None:
        self._transport, self._thread, self._base = transport, thread, base
        self.id = exec_id

    @property
    def _path(self) -> str:
        return f"{self._base}/execs/{self.id}"

    async def result(self) -> ExecResult:
        """What is known of it now; status is running as long as it runs."""
        return ExecResult.model_validate((await self._transport.call("GET", self._path)).json())

    def events(self, after: int = 0, *, deadline_s: float = constants.MAX_EXEC_TIMEOUT_S) -> AsyncIterator[Event]:
        """Its events from number after + 1 on, to its end, across broken connections."""
        return follow(self._transport, self._base, exec_id=self.id, after=after, deadline_s=deadline_s)

    async def wait(self, *, deadline_s: float = constants.MAX_EXEC_TIMEOUT_S) -> ExecResult:
        """Waits for its end."""
        async for event in self.events(deadline_s=deadline_s):
            if event.result is not None:
                return event.result
        return await self.result()

    async def send(self, data: bytes | str, *, close: bool = False) -> None:
        """Writes to its stdin; close also ends it."""
        raw = data.encode() if isinstance(data, str) else data
        body = {"data": base64.b64encode(raw).decode(), "encoding": "base64", "close": close}
        await self._transport.call("POST", self._path + "/stdin", body=body)

    async def signal(self, name: str) -> None:
        await self._transport.call("POST", self._path + "/signal", body={"signal": name})

    async def kill(self) -> None:
        """Ends it and all that it started."""
        await self._transport.call("DELETE", self._path)

    async def terminal(self, after: int = 0) -> Terminal:
        """Joins the terminal of an exec that was started with pty. Needs the extra skerry[terminal]."""
        from skerry._async.terminal import join

        return await join(self._transport, f"{self._base}/pty", self.id, after)


class Context:
    """An interpreter that keeps its variables between runs."""

    def __init__(self, transport: Transport, base: str, info: models.CodeContext) -> None:
        self._transport, self._base = transport, base
        self.info = info

    @property
    def id(self) -> str:
        return self.info.context_id

    @property
    def _path(self) -> str:
        return f"{self._base}/contexts/{self.id}"

    async def run(
        self, code: str, *, timeout_s: float | None = None, max_output_chars: int | None = None, env: Mapping[str, str] | None = None
    ) -> ExecResult:
        path, body, deadline = self._request(code, timeout_s, max_output_chars, env)
        return ExecResult.model_validate((await self._transport.call("POST", path, body=body, deadline_s=deadline)).json())

    def stream(
        self, code: str, *, timeout_s: float | None = None, max_output_chars: int | None = None, env: Mapping[str, str] | None = None
    ) -> AsyncIterator[Event]:
        """As run, event by event."""
        path, body, deadline = self._request(code, timeout_s, max_output_chars, env)
        return follow(self._transport, self._base, path=path, body=body, deadline_s=deadline)

    def _request(
        self, code: str, timeout_s: float | None, max_output_chars: int | None, env: Mapping[str, str] | None
    ) -> tuple[str, dict[str, Any], float]:
        body = given(code=code, context_id=self.id, timeout=timeout_s, max_output_chars=max_output_chars, env=env)
        return f"{self._base}/execute_code", body, deadline_of(None, timeout_s, constants.MAX_CODE_TIMEOUT_S)

    async def refresh(self) -> models.CodeContext:
        return self._take(await self._transport.call("GET", self._path))

    async def interrupt(self) -> models.CodeContext:
        """Stops what runs in it; its variables stay."""
        return self._take(await self._transport.call("POST", self._path + "/interrupt"))

    async def restart(self) -> models.CodeContext:
        """Makes it anew, without variables."""
        return self._take(await self._transport.call("POST", self._path + "/restart"))

    async def delete(self) -> None:
        await self._transport.call("DELETE", self._path)

    def _take(self, answer: Any) -> models.CodeContext:
        self.info = models.CodeContext.model_validate(answer.json())
        return self.info

    async def __aenter__(self) -> Context:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.delete()
