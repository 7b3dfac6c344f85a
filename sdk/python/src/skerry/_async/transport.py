"""Requests with retries and deadlines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import httpx

from skerry import _constants as constants
from skerry import _deprecated, errors
from skerry._retry import Attempts, Kind
from skerry._sources import AsyncSource, Source, aiter_source, rewindable
from skerry._sse import Decoder, Message

Params = Mapping[str, str | int | float | bool | list[str] | None]


class Answer:
    """An answer whose body was read, or is being read by a stream."""

    def __init__(self, response: httpx.Response, body: bytes) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.body = body

    def json(self) -> Any:
        return json.loads(self.body) if self.body else None


class Transport:
    def __init__(self, server: str, headers: Mapping[str, str], timeout_s: float, retries: int, http: httpx.AsyncClient | None) -> None:
        self.timeout_s = timeout_s
        self.retries = retries
        self.server = server.rstrip("/")
        self.headers = dict(headers)
        self.has_own_http = http is None
        self._http = http or httpx.AsyncClient(limits=httpx.Limits(max_connections=100, keepalive_expiry=5))

    async def aclose(self) -> None:
        if self.has_own_http:
            await self._http.aclose()

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Any = None,
        content: AsyncSource | Source | None = None,
        kind: Kind | None = None,
        deadline_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Sends a request until an answer comes that counts, and reads it whole."""
        if kind is None:
            kind = Kind.KEYED if method == "POST" else Kind.SAFE
        if content is not None and not rewindable(content):
            kind = Kind.ONCE
        tries = Attempts(f"{method} {path}", kind, deadline_s or self.timeout_s, self.retries)
        while True:
            try:
                async with AsyncExitStack() as stack:
                    response = await stack.enter_async_context(self._stream(tries, method, path, params, body, content, headers))
                    _deprecated.warn(response)
                    data = await self._read(response, tries)
                if response.status_code < 400:
                    return Answer(response, data)
                problem = errors.from_answer(response.status_code, dict(response.headers), data)
                if problem.status == 404 and method == "DELETE" and tries.count:
                    return Answer(response, b"")  # the attempt before this one deleted it
                pause = tries.after_answer(problem)
            except httpx.HTTPError as err:
                pause = tries.after_transport(err)
            await asyncio.sleep(pause)

    def _stream(
        self,
        tries: Attempts,
        method: str,
        path: str,
        params: Params | None,
        body: Any,
        content: AsyncSource | Source | None,
        headers: Mapping[str, str] | None,
        silence_s: float | None = None,
    ) -> Any:
        sent: dict[str, Any] = {}
        given = {**self.headers, **tries.headers(), **(headers or {})}
        if body is not None:
            sent["content"] = json.dumps(body).encode()
            given["Content-Type"] = "application/json"
        elif content is not None:
            sent["content"] = content if isinstance(content, bytes) else aiter_source(content)
            given.setdefault("Content-Type", "application/octet-stream")
        timeout = tries.timeout()
        if silence_s is not None:
            timeout.read = min(tries.remaining(), silence_s)
        query = {k: str(v).lower() if isinstance(v, bool) else v for k, v in (params or {}).items() if v is not None}
        return self._http.stream(method, self.server + path, params=query, headers=given, timeout=timeout, follow_redirects=False, **sent)

    async def _read(self, response: httpx.Response, tries: Attempts) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for chunk in response.aiter_bytes():
            tries.remaining()
            parts.append(chunk)
            size += len(chunk)
            if size > constants.MAX_ANSWER:
                raise errors.SkerryError(f"{tries.what}: the answer has more than {constants.MAX_ANSWER} bytes")
        return b"".join(parts)

    async def download(
        self, path: str, params: Params, headers: Mapping[str, str], deadline_s: float | None
    ) -> tuple[httpx.Response, AsyncExitStack]:
        """Begins to read bytes. The caller closes the stack."""
        tries = Attempts(f"GET {path}", Kind.SAFE, deadline_s or self.timeout_s, self.retries)
        while True:
            stack = AsyncExitStack()
            try:
                response: httpx.Response = await stack.enter_async_context(self._stream(tries, "GET", path, params, None, None, headers))
                _deprecated.warn(response)
                if response.status_code < 400:
                    return response, stack
                data = await self._read(response, tries)
                await stack.aclose()
                pause = tries.after_answer(errors.from_answer(response.status_code, dict(response.headers), data))
            except httpx.HTTPError as err:
                await stack.aclose()
                pause = tries.after_transport(err)
            except BaseException:
                await stack.aclose()
                raise
            await asyncio.sleep(pause)

    async def events(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Any = None,
        deadline_s: float,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Message]:
        """One connection's events. It raises httpx.HTTPError when the connection breaks after the first of them."""
        kind = Kind.SAFE if method == "GET" else Kind.ONCE
        begins = constants.DEFAULT_SILENCE_S if method == "GET" else constants.DEFAULT_WAIT_S
        tries = Attempts(f"{method} {path}", kind, deadline_s, self.retries)
        while True:
            begun = False
            try:
                async with AsyncExitStack() as stack:
                    accept = {**(headers or {}), "Accept": "text/event-stream"}
                    response = await stack.enter_async_context(self._stream(tries, method, path, params, body, None, accept, begins))
                    _deprecated.warn(response)
                    if response.status_code >= 400:
                        data = await self._read(response, tries)
                        raise errors.from_answer(response.status_code, dict(response.headers), data)
                    # From here on the server sends a sign of life.
                    response.request.extensions["timeout"]["read"] = min(tries.remaining(), constants.DEFAULT_SILENCE_S)
                    decoder = Decoder()
                    async for chunk in response.aiter_bytes():
                        tries.remaining()
                        for message in decoder.feed(chunk):
                            begun = True
                            yield message
                return
            except errors.APIError as problem:
                pause = tries.after_answer(problem)
            except httpx.HTTPError as err:
                if begun:
                    raise
                pause = tries.after_transport(err)
            await asyncio.sleep(pause)
