"""One stream to a server. All of it runs on one event loop, so nothing here is locked."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc

from skerry.errors import ConnectionFailed
from skerry.packs import packs_pb2 as pb
from skerry.packs._call import Caller, Running
from skerry.packs._result import Result, text_result

if TYPE_CHECKING:
    from skerry.packs._pack import Tool
    from skerry.packs._serve import Provider

log = logging.getLogger("skerry.packs")

METHOD = "/skerry.packs.v1.PackService/Connect"
DIAL_TIME_S = 10.0
SILENT_BEATS = 3  # heartbeats without any message after which the server is gone
MAX_PROGRESS = 1000  # messages that wait to be sent, after which reports of progress are left out


class SignFailed(ConnectionFailed):
    """The challenge cannot be signed."""


class InFlight:
    """A call under way."""

    def __init__(self, number: int, window: int) -> None:
        self.number = number
        self.window = window
        self.wanted = True  # the server takes an answer
        self.task: asyncio.Future[None] | None = None
        self.interruptible = False  # the tool is not in a thread, which cannot be ended from outside
        self.running: Running | None = None

    def end(self, *, wanted: bool) -> None:
        """Tells the tool that its caller waits no longer."""
        self.wanted = self.wanted and wanted
        if self.running is not None:
            self.running.ended.set()
        if self.task is not None and self.interruptible:
            self.task.cancel()


class Connection:
    def __init__(self, provider: Provider, old: Connection | None = None) -> None:
        """old is the connection that this one replaces."""
        self.welcomed = False
        self.leaves = asyncio.Event()  # the server stops, and others go on
        self.over = False
        self._old = old
        self._provider = provider
        self._pack = provider.pack
        self._limits = pb.Welcome()
        self._calls: dict[int, InFlight] = {}
        self._window = 0  # bytes of results that the server takes, of all calls
        self._wider = asyncio.Event()  # set, and replaced, when a window is wider
        self._draining = False
        self._idle = asyncio.Event()
        self._closing: asyncio.Future[None] | None = None
        self._heard = 0.0
        self._beat_waits = False
        self._reloads: deque[asyncio.Future[str]] = deque()
        self._outbox: asyncio.Queue[tuple[pb.PackMessage, asyncio.Future[None] | None] | None] = asyncio.Queue()
        self._rpc: Any = None

    async def run(self) -> None:
        """Connects, and serves until the stream ends. What it raises says why."""
        async with self._provider.channel() as channel:
            connect = channel.stream_stream(
                self._provider.path + METHOD,
                request_serializer=pb.PackMessage.SerializeToString,
                response_deserializer=pb.ServerMessage.FromString,
            )
            self._rpc = connect(metadata=self._provider.credential.metadata())
            try:
                handshake = asyncio.ensure_future(asyncio.wait_for(self._handshake(), DIAL_TIME_S))
                if not await self._before_stop(handshake):
                    return
                await self._serve()
            finally:
                self.over = True
                self._rpc.cancel()

    async def _before_stop(self, work: asyncio.Future[None]) -> bool:
        """Waits for work, and reports whether it came to its end before the pack was stopped."""
        stopped = asyncio.ensure_future(self._provider.stopped())
        try:
            await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            return work.done()
        finally:
            stopped.cancel()
            work.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await work

    async def _handshake(self) -> None:
        p, pack = self._provider, self._pack
        await self._rpc.write(pb.PackMessage(open=pb.Open(pack_id=pack.id, instance=p.instance, address=p.address)))
        challenge = await self._rpc.read()
        if challenge is grpc.aio.EOF or challenge.WhichOneof("message") != "challenge":
            raise ConnectionFailed("the server sent no challenge")
        try:
            signature = await p.credential.sign(challenge.challenge, pack.id, p.address)
        except (OSError, ValueError, ImportError) as err:
            raise SignFailed(f"the challenge cannot be signed: {err}") from err
        await self._rpc.write(pb.PackMessage(register=pb.Register(manifest=pack.manifest(), signature=signature)))
        welcome = await self._rpc.read()
        if welcome is grpc.aio.EOF or welcome.WhichOneof("message") != "welcome":
            raise ConnectionFailed("the server sent no welcome")
        self._limits = welcome.welcome
        self._window, self._heard, self.welcomed = self._limits.connection_window, time.monotonic(), True

    async def _serve(self) -> None:
        p = self._provider
        reader = asyncio.ensure_future(self._read())
        others = [asyncio.ensure_future(w) for w in (self._watch(), self._drain_at_stop())]
        writer = asyncio.ensure_future(self._write())
        p.connection = self
        if self._old is not None and not self._old.over:
            self._old._drain()
        self._old = None
        try:
            log.info("the pack %s is connected to %s", self._pack.id, p.server)
            p.connected()
            done, _ = await asyncio.wait({reader, *others}, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
        finally:
            if p.connection is self:
                p.connection = None
            tasks = [reader, writer, *others, *([self._closing] if self._closing else [])]
            for t in tasks:
                t.cancel()
            for call in list(self._calls.values()):
                call.end(wanted=False)
            for answer in self._reloads:
                if not answer.done():
                    answer.set_exception(ConnectionFailed("the connection was lost before the server answered"))
            await asyncio.gather(*tasks, return_exceptions=True)

    # Messages of the server.

    async def _read(self) -> None:
        while (message := await self._rpc.read()) is not grpc.aio.EOF:
            self._heard = time.monotonic()
            kind = message.WhichOneof("message")
            if kind == "execute":
                self._begin(message.execute.request)
            elif kind == "cancel":
                if (call := self._calls.get(message.cancel.request_id)) is not None:
                    call.end(wanted=False)
            elif kind == "window":
                self._widen(message.window)
            elif kind == "reload_result":
                if self._reloads and not (answer := self._reloads.popleft()).done():
                    answer.set_result(message.reload_result.error)
            elif kind == "drain":
                self.leaves.set()

    def _begin(self, request: pb.ExecuteToolRequest) -> None:
        number = request.request_id
        if self._draining:
            return self._fail(number, pb.ToolError.CODE_DRAINING, "the pack stops")
        if len(self._provider.in_flight) >= 2 * (self._pack.max_parallel or 16):  # the server does not wait for calls that it has cancelled
            return self._fail(number, pb.ToolError.CODE_BUSY, "calls of tools that do not end take all places")
        tool = self._pack.find(request.tool_name)
        if tool is None:
            return self._fail(number, pb.ToolError.CODE_UNKNOWN_TOOL, f"the pack has no tool {request.tool_name}")
        call = InFlight(number, self._limits.call_window)
        self._calls[number] = call
        self._provider.in_flight.add(call)
        call.task = asyncio.ensure_future(self._execute(call, tool, request))
        call.task.add_done_callback(lambda _: self._ended(call))

    def _ended(self, call: InFlight) -> None:
        self._calls.pop(call.number, None)
        self._provider.in_flight.discard(call)
        if self._draining and not self._calls:
            self._idle.set()

    async def _execute(self, call: InFlight, tool: Tool, request: pb.ExecuteToolRequest) -> None:
        loop, here = asyncio.get_running_loop(), threading.get_ident()
        context = request.context

        def report(done: float, total: float, message: str) -> None:
            if threading.get_ident() == here:  # at once, because the result may follow
                self._report(call, done, total, message)
            else:
                loop.call_soon_threadsafe(self._report, call, done, total, message)

        call.running = Running(Caller(context.tenant, context.user, context.thread), report)
        late = loop.call_later(request.timeout_ms / 1000, lambda: call.end(wanted=True)) if request.timeout_ms > 0 else None
        call.interruptible = tool.is_async
        try:
            result = await tool.answer(call.running, request.input_json or b"{}")
        except asyncio.CancelledError:
            if not call.wanted:
                return
            late_text = "the tool did not end before its deadline"
            result = text_result(late_text if call.running.ended.is_set() else "the tool cancelled itself", is_error=True)
        finally:
            if late is not None:
                late.cancel()
        call.interruptible = True
        if call.wanted:
            await self._reply(call, self._encoded(result))

    def _encoded(self, result: Result) -> bytes:
        try:
            raw = result.encode()
        except ValueError as err:
            return text_result(f"the result cannot be written: {err}", is_error=True).encode()
        if len(raw) > (most := self._limits.max_result_bytes):
            text = f"the result has {len(raw)} bytes, and the server takes at most {most}"
            return text_result(text, is_error=True).encode()
        return raw

    # Messages of the pack.

    async def _write(self) -> None:
        """Sends what the outbox has. The reader learns why a stream takes no more."""
        with suppress(grpc.RpcError, asyncio.InvalidStateError):
            while (item := await self._outbox.get()) is not None:
                message, sent = item
                if message.WhichOneof("message") == "heartbeat":
                    self._beat_waits = False
                await self._rpc.write(message)
                if sent is not None and not sent.done():
                    sent.set_result(None)
            await self._rpc.done_writing()

    def _send(self, message: pb.PackMessage, sent: asyncio.Future[None] | None = None) -> None:
        self._outbox.put_nowait((message, sent))

    def _fail(self, number: int, code: pb.ToolError.Code, text: str) -> None:
        error = pb.ToolError(code=code, message=text)
        self._send(pb.PackMessage(result=pb.ToolResult(request_id=number, last=True, error=error)))

    def _report(self, call: InFlight, done: float, total: float, message: str) -> None:
        if call.wanted and call.number in self._calls and self._outbox.qsize() < MAX_PROGRESS:
            self._send(pb.PackMessage(progress=pb.Progress(request_id=call.number, progress=done, total=total, message=message)))

    async def _reply(self, call: InFlight, raw: bytes) -> None:
        """Sends a result in parts, as far as the windows let it. The next part waits until the last one is sent."""
        most = self._limits.max_part_bytes if self._limits.max_part_bytes > 0 else len(raw)  # else the windows alone bound a part
        at = 0
        while True:
            n = await self._claim(call, min(len(raw) - at, most))
            last = at + n == len(raw)
            if last:  # the server's next call may come at once
                self._provider.in_flight.discard(call)
            sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._send(pb.PackMessage(result=pb.ToolResult(request_id=call.number, part=raw[at : at + n], last=last)), sent)
            await sent
            if last:
                return
            at += n

    async def _claim(self, call: InFlight, most: int) -> int:
        """Takes up to most bytes from the windows, and waits while there are none."""
        while (n := min(most, call.window, self._window)) <= 0:
            await self._wider.wait()
        call.window -= n
        self._window -= n
        return n

    def _widen(self, window: pb.Window) -> None:
        if window.request_id == 0:
            self._window += window.bytes
        elif (call := self._calls.get(window.request_id)) is not None:
            call.window += window.bytes
        self._wider.set()
        self._wider = asyncio.Event()

    async def reload(self) -> str:
        """Sends the manifest, and returns why the server refuses it, or ""."""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._reloads.append(answer)  # answers come in the order of the messages
        self._send(pb.PackMessage(reload=pb.Reload(manifest=self._pack.manifest())))
        return await answer

    # The stream's end.

    async def _watch(self) -> None:
        """Sends heartbeats, and ends when the server is silent."""
        every = max(self._limits.heartbeat_seconds, 1)
        while True:
            await asyncio.sleep(every)
            silent = time.monotonic() - self._heard
            if silent > SILENT_BEATS * every:
                raise ConnectionFailed(f"nothing has been heard of the server for {silent:.0f} s")
            if not self._beat_waits:  # the server may not read
                self._beat_waits = True
                self._send(pb.PackMessage(heartbeat=pb.Heartbeat()))

    def _drain(self) -> None:
        """Takes no new calls. The stream is closed when those that run have ended."""
        if self._draining:
            return
        self._draining = True
        self._send(pb.PackMessage(drain=pb.Drain()))
        if not self._calls:
            self._idle.set()
        self._closing = asyncio.ensure_future(self._close_when_idle())

    async def _drain_at_stop(self) -> None:
        """Drains when the pack is stopped. It ends when the server does not end the stream afterwards."""
        await self._provider.stopped()
        self._drain()
        await asyncio.sleep(self._provider.drain_s + DIAL_TIME_S)

    async def _close_when_idle(self) -> None:
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._idle.wait(), self._provider.drain_s)
        self._outbox.put_nowait(None)  # the reader sees the end
