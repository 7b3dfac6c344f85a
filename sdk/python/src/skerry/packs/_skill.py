"""A skill of one thread whose tools are functions of this program."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload
from urllib.parse import quote

from skerry._async.thread import Thread as AsyncThread
from skerry._sync.thread import Thread
from skerry.errors import Conflict, NotFound, NotSupported, SkerryError
from skerry.packs._credentials import TLS, BearerKey
from skerry.packs._pack import F, Pack
from skerry.packs._schema import Function
from skerry.packs._serve import DRAIN_S, Provider, Refused, ends_channel

log = logging.getLogger("skerry.packs")

T = TypeVar("T")
Request = Callable[[str, str, Any], Awaitable[Any]]


@dataclass(frozen=True)
class SkillTool:
    """A tool of a skill. The schema comes from the annotations of handler, as that of a pack's tool; name and description too, when they
    are absent."""

    handler: Function
    name: str | None = None
    description: str | None = None


class VirtualSkill:
    """A skill that threads are given, with tools that are functions of this program. body is the Markdown that the agent reads when it
    activates the skill; the names, descriptions and schemas of the tools follow it by themselves.

        skill = VirtualSkill("code-review", "Reviews code", "Count the lines first.", tools=[count_lines])

        with skill.attach(client.thread("t1")):
            ...
    """

    def __init__(
        self,
        name: str,
        description: str,
        body: str,
        tools: Sequence[SkillTool | Function] = (),
        *,
        files: Mapping[str, str] | None = None,
        max_parallel: int = 16,
    ) -> None:
        self.name = name
        self.description = description
        self.body = body
        self.files = files
        self.pack = Pack(name, "1", max_parallel=max_parallel)  # pack.call runs a tool in a test
        for t in tools:
            given = t if isinstance(t, SkillTool) else SkillTool(t)
            self.tool(name=given.name, description=given.description)(given.handler)

    def tool(
        self, function: F | None = None, /, *, name: str | None = None, description: str | None = None, timeout_s: float | None = None
    ) -> Any:
        """Makes a tool of a function, as Pack.tool does. The name counts within the skill."""
        add = self.pack.tool(name=name, description=description, timeout_s=timeout_s)
        return add if function is None else add(function)

    @overload
    def attach(self, thread: Thread, *, tls: TLS | None = None, replace: bool = False, drain_s: float = DRAIN_S) -> AttachedSkill: ...

    @overload
    def attach(
        self, thread: AsyncThread, *, tls: TLS | None = None, replace: bool = False, drain_s: float = DRAIN_S
    ) -> AsyncAttachedSkill: ...

    def attach(
        self, thread: Thread | AsyncThread, *, tls: TLS | None = None, replace: bool = False, drain_s: float = DRAIN_S
    ) -> AttachedSkill | AsyncAttachedSkill:
        """Gives the skill to a thread for as long as the context that this returns is open: with, or async with for a thread of an
        AsyncClient. When it is entered the tools can be called; when it is left, calls under way end and the skill is removed.

        replace takes the place of a skill of that name that the thread has. When the server has lost the skill, because it was restarted,
        it is attached again. When another program has removed or replaced it, it is not: error then says so.
        """
        base = f"/api/threads/{quote(thread.id, safe='')}/skills"
        body = {"name": self.name, "description": self.description, "body": self.body, "channel": True, "replace": replace}
        if self.files:
            body["files"] = dict(self.files)
        pack, server = self.pack.copy(), thread._transport.server
        if isinstance(thread, AsyncThread):
            return AsyncAttachedSkill(Channel(pack, server, ask_async(thread), base, body, tls, drain_s))
        return AttachedSkill(Channel(pack, server, ask_sync(thread), base, body, tls, drain_s))


def ask_async(thread: AsyncThread) -> Request:
    async def ask(method: str, path: str, body: Any) -> Any:
        answer = await thread._transport.call(method, path, body=body)
        return answer.json() if body is not None else None

    return ask


def ask_sync(thread: Thread) -> Request:
    def ask(method: str, path: str, body: Any) -> Any:
        answer = thread._transport.call(method, path, body=body)
        return answer.json() if body is not None else None

    return lambda method, path, body: asyncio.to_thread(ask, method, path, body)


class Channel:
    """The stream of a thread's skill, and the skill's place on the server."""

    def __init__(self, pack: Pack, server: str, request: Request, base: str, body: dict[str, Any], tls: TLS | None, drain_s: float) -> None:
        self.pack = pack
        self.error: SkerryError | None = None
        self._server = server
        self._request = request
        self._base = base
        self._body = body
        self._tls = tls
        self._drain_s = drain_s
        self._serving: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Attaches the skill, and returns when its tools can be called."""
        key = await self._attach(self._body)
        there = asyncio.Event()
        self._serving = asyncio.create_task(self._serve(key, there))
        waiting = asyncio.create_task(there.wait())
        try:
            await asyncio.wait({self._serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._serving.cancel()
            raise
        finally:
            waiting.cancel()
        if self._serving.done():
            await self._serving  # raises what no server caused
            raise self.error or SkerryError(f"the skill {self.pack.id} was not attached")

    async def close(self) -> None:
        """Takes no new calls, lets those that run end, and removes the skill."""
        self.pack.stop()
        if self._serving is not None:
            await self._serving

    async def _attach(self, body: dict[str, Any]) -> str:
        added = await self._request("POST", self._base, body)
        if not added.get("channel"):
            await self._remove()
            raise NotSupported("the server is too old: it knows no skills whose tools are functions of a program")
        return str(added["channel"]["key"])

    async def _remove(self) -> None:
        try:
            await self._request("DELETE", f"{self._base}/{quote(self.pack.id, safe='')}", None)
        except NotFound:
            pass

    async def _serve(self, key: str, there: asyncio.Event) -> None:
        provider = Provider(self.pack, self._server, None, self._tls, self._drain_s, there.set)
        self.pack.provider = provider
        try:
            while True:
                provider.credential = BearerKey(key)
                try:
                    return await provider.serve(ends_channel)
                except Refused as err:
                    self.error = err
                    if err.code != "unauthenticated" or provider.stopping:
                        raise
                # The server has lost the skill. One that another program has put in its place stays.
                key = await self._attach(self._body | {"replace": False})
                self.error = None
        except SkerryError as err:
            self.error = err
            if not provider.stopping:
                log.warning("the tools of the skill %s are gone: %s", self.pack.id, err)
        finally:
            self.pack.provider = None
            if not self._is_anothers():
                await self._remove()

    def _is_anothers(self) -> bool:
        """Whether the skill is another program's now, or was removed."""
        return isinstance(self.error, Conflict) or (isinstance(self.error, Refused) and self.error.code == "permission_denied")


class AsyncAttachedSkill:
    """A skill that a thread has while this is open."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    @property
    def error(self) -> SkerryError | None:
        """Why the tools are gone while the context is open; None: they are there."""
        return self._channel.error

    async def __aenter__(self) -> AsyncAttachedSkill:
        await self._channel.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()


class AttachedSkill:
    """A skill that a thread has while this is open. Its calls come by an event loop in a thread, which all skills share."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    @property
    def error(self) -> SkerryError | None:
        """Why the tools are gone while the context is open; None: they are there."""
        return self._channel.error

    def __enter__(self) -> AttachedSkill:
        loop.run(self._channel.open())
        return self

    def __exit__(self, *_: object) -> None:
        loop.run(self._channel.close())


class BackgroundLoop:
    """An event loop in a thread, from the first use to the end of the program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="skerry-skills", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


loop = BackgroundLoop()
