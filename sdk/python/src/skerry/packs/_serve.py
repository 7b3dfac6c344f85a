"""Keeps a pack connected to a server."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import random
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import grpc

from skerry.errors import ConnectionFailed, SkerryError
from skerry.packs._connection import Connection, InFlight, SignFailed
from skerry.packs._credentials import TLS, Credential, NoCredential

if TYPE_CHECKING:
    from skerry.packs._pack import Pack

log = logging.getLogger("skerry.packs")

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0
LONGEST_MOVE_S = 1.0  # while the server that stops still has the pack
PAUSE_SPREAD = 0.25  # a pause is longer by up to this part
DRAIN_S = 30.0
MAX_MESSAGE = 8 << 20  # bytes of a message of the server


class Refused(SkerryError):
    """The server refuses the pack: its manifest, or its credential. The text is the server's, code that of the stream's end."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class Provider:
    """A pack that is being served."""

    def __init__(
        self,
        pack: Pack,
        server: str,
        credential: Credential | None,
        tls: TLS | None,
        drain_s: float,
        connected: Callable[[], object] | None,
    ) -> None:
        url = urlsplit(server)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError(f"{server!r} is not the URL of a server, such as http://127.0.0.1:8080")
        self.pack = pack
        self.server = server
        self.address = url.netloc.rpartition("@")[2]
        self.path = url.path.rstrip("/")
        self.credential = credential or NoCredential()
        self.drain_s = drain_s
        self.connected = connected or (lambda: None)
        self.instance = secrets.token_hex(12)
        self.in_flight: set[InFlight] = set()  # calls of all connections: a tool that hangs keeps its place
        self.connection: Connection | None = None
        self._tls = (tls or TLS()) if url.scheme == "https" else None
        self._target = f"{url.hostname if ':' not in url.hostname else f'[{url.hostname}]'}:{url.port or (443 if self._tls else 80)}"
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()

    @property
    def stopping(self) -> bool:
        return self._stopped.is_set()

    async def stopped(self) -> None:
        await self._stopped.wait()

    def stop(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._stopped.set)
        except RuntimeError:
            pass  # the loop has ended, and with it the serving

    def is_here(self) -> bool:
        """Whether the caller runs on the event loop of the connection."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def reload(self) -> concurrent.futures.Future[None]:
        return asyncio.run_coroutine_threadsafe(self._reload(), self._loop)

    async def _reload(self) -> None:
        if self.connection is None:
            raise ConnectionFailed(f"the pack {self.pack.id} is not connected")
        if error := await self.connection.reload():
            raise Refused(error)

    def channel(self) -> grpc.aio.Channel:
        """A channel for one try: it does not wait after a failure, because the provider does."""
        options = [
            ("grpc.default_authority", self.address),
            ("grpc.max_receive_message_length", MAX_MESSAGE),
            ("grpc.max_send_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),
        ]
        if self._tls is None:
            return grpc.aio.insecure_channel(self._target, options=options)
        return grpc.aio.secure_channel(self._target, self._tls.channel_credentials(), options=options)

    async def serve(self, final: Callable[[Exception, bool], bool] | None = None) -> None:
        """Serves until stop. final says whether an error is the end; the flag that it gets: the server took the pack before."""
        running: set[asyncio.Future[None]] = set()  # connections; those to servers that stop go on for a while
        try:
            await self._serve(running, final or refuses)
        except asyncio.CancelledError:
            for connection in running:
                connection.cancel()
            raise
        finally:
            await asyncio.gather(*running, return_exceptions=True)

    async def _serve(self, running: set[asyncio.Future[None]], final: Callable[[Exception, bool], bool]) -> None:
        welcomed, tries = False, 0
        old: Connection | None = None  # to a server that stops, until another one takes the pack
        while not self.stopping:
            connection = Connection(self, old)
            run = asyncio.ensure_future(connection.run())
            running.add(run)
            leaves = asyncio.ensure_future(connection.leaves.wait())
            try:
                await asyncio.wait({run, leaves}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                leaves.cancel()
            if not run.done():
                old, welcomed, tries = connection, True, 0
                continue
            running.discard(run)
            try:
                run.result()
                why = "the server ended the stream"
            except (grpc.RpcError, SkerryError, OSError, asyncio.TimeoutError, asyncio.InvalidStateError) as err:
                why = text_of(err)
                if not self.stopping and final(err, welcomed or connection.welcomed):
                    raise Refused(why, code_of(err)) from err
            if connection.welcomed:
                old, welcomed, tries = None, True, 0
            if self.stopping:
                return
            pause = pause_after(tries)
            if old is not None and not old.over:
                pause = min(pause, LONGEST_MOVE_S)
            tries += 1
            log.warning("the pack %s is not connected, and tries again in %.1f s: %s", self.pack.id, pause, why)
            try:
                await asyncio.wait_for(self.stopped(), pause)
            except asyncio.TimeoutError:
                pass


def pause_after(tries: int) -> float:
    """How long to wait after so many failures before the last one. Packs of one server do not all return at once."""
    pause: float = min(FIRST_PAUSE_S * 2 ** min(tries, 10), LONGEST_PAUSE_S)
    return pause * (1 + random.random() * PAUSE_SPREAD)


def refuses(err: Exception, welcomed: bool) -> bool:
    """Whether another try has no use. A server that took the pack before may take it again."""
    if isinstance(err, SignFailed):
        return not welcomed
    if not isinstance(err, grpc.aio.AioRpcError):
        return False
    if err.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED):
        return True
    return not welcomed and err.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


def ends_channel(err: Exception, welcomed: bool) -> bool:
    """As refuses, for the tools of a thread's skill: a key is lost with its skill, so another try has no use either."""
    return refuses(err, welcomed) or code_of(err) in ("unauthenticated", "permission_denied")


def code_of(err: Exception) -> str:
    return str(err.code().name.lower()) if isinstance(err, grpc.aio.AioRpcError) else ""


def text_of(err: Exception) -> str:
    if isinstance(err, grpc.aio.AioRpcError):
        return f"{err.details() or 'no reason'} ({code_of(err)})"
    return str(err) or type(err).__name__
