"""Packs without a Skerry server: schemas, the test harness, and streams to servers of ours that misbehave."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any

import grpc
import pytest
from pydantic import BaseModel, Field

from skerry.errors import ConnectionFailed
from skerry.packs import Caller, Pack, Refused, Result, ToolError, caller, cancelled, progress
from skerry.packs import packs_pb2 as pb
from skerry.packs._credentials import signed_text
from skerry.packs._serve import pause_after
from tests.conftest import ROOT


class Lead(BaseModel):
    """What the CRM knows."""

    email: str
    manager: Lead | None = None


class Query(BaseModel):
    name: str = Field(description="whom to look for")
    limit: int = 10


@dataclass
class Found:
    names: list[str]


def crm() -> Pack:
    pack = Pack("crm", "1.0.0")

    @pack.tool
    def find_lead(name: Annotated[str, "whom to look for"], limit: int = 10) -> Found:
        """Finds leads

        It looks at names only.

        Args:
            name: is said better in the annotation
            limit: how many at most
        """
        if name == "Eve":
            raise ToolError("no lead of that name")
        if name == "Mallory":
            raise RuntimeError("password=hunter2")
        return Found([name] * limit)

    @pack.tool(name="find.one", description="Finds one", title="Find", requires=["crm"], timeout_s=90.5, disclosure="always")
    async def find_one(query: Query) -> Lead:
        return Lead(email=f"{query.name}@{caller().tenant}")

    @pack.tool(annotations={"readOnlyHint": True})
    def names(schema: str = "public") -> list[str]:
        return [schema]

    return pack


def test_schemas_come_from_annotations() -> None:
    found, one, names = crm().manifest().tools
    assert (found.name, found.description) == ("find_lead", "Finds leads\n\nIt looks at names only.")
    assert json.loads(found.input_schema_json) == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "whom to look for"},
            "limit": {"type": "integer", "description": "how many at most", "default": 10},
        },
        "required": ["name"],
        "additionalProperties": False,
    }
    assert json.loads(found.output_schema_json) == {
        "type": "object",
        "properties": {"names": {"type": "array", "items": {"type": "string"}}},
        "required": ["names"],
    }
    assert (one.name, one.description, one.title, one.timeout_seconds, one.disclosure) == ("find.one", "Finds one", "Find", 90, "always")
    assert list(one.required_capabilities) == ["crm"]
    assert json.loads(one.input_schema_json)["properties"]["name"] == {"type": "string", "description": "whom to look for"}
    assert json.loads(one.output_schema_json)["type"] == "object"  # though the model contains itself
    assert (names.output_schema_json, names.annotations_json) == ("", '{"readOnlyHint": true}')


def test_what_has_no_schema_is_refused_with_the_name_of_the_tool() -> None:
    pack = crm()
    with pytest.raises(ValueError, match="find_lead: the pack has one"):
        pack.tool(name="find_lead")(lambda: "")
    with pytest.raises(TypeError, match=r"tool untyped: .*x has no annotation"):
        pack.tool(name="untyped")(lambda x: "")

    def rest(*args: str) -> str:
        return ""

    with pytest.raises(TypeError, match=r"tool rest: .*\*args"):
        pack.tool(rest)


def test_call_needs_no_server(caplog: pytest.LogCaptureFixture) -> None:
    pack = crm()
    found = pack.call("find_lead", {"name": "Ada", "limit": 1})
    assert (found.structured, found.text, found.is_error) == ({"names": ["Ada"]}, '{"names":["Ada"]}', False)
    assert pack.call("find.one", {"name": "ada"}, caller=Caller("acme")).structured == {"email": "ada@acme", "manager": None}
    assert pack.call("names").text == '["public"]'
    for wrong in ({}, {"name": 5}, {"name": "Ada", "limit": "1"}, {"name": "Ada", "more": 1}):
        with pytest.raises(ValueError, match="do not fit the schema"):
            pack.call("find_lead", wrong)
    with pytest.raises(LookupError):
        pack.call("find_leads")
    assert pack.call("find_lead", {"name": "Eve"}) == Result([{"type": "text", "text": "no lead of that name"}], is_error=True)
    crashed = pack.call("find_lead", {"name": "Mallory"})
    assert crashed.is_error and "hunter2" not in crashed.text and "hunter2" in caplog.text
    pack.remove("names")
    with pytest.raises(LookupError):
        pack.call("names")


def test_pauses_grow() -> None:
    for tries, least in enumerate((0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10)):
        assert least <= pause_after(tries) <= least * 1.25


def test_messages_are_those_of_the_contract() -> None:
    """The module works with the protobuf that is installed, and has each message that the contract has."""
    text = (ROOT / "sdk/packs/v1/packs.proto").read_text()
    assert {line.split()[1] for line in text.splitlines() if line.startswith("message ")} == set(pb.DESCRIPTOR.message_types_by_name)
    message = pb.PackMessage(result=pb.ToolResult(request_id=1 << 40, part=b"\x00\xff", last=True))
    assert pb.PackMessage.FromString(message.SerializeToString()) == message


# Servers that misbehave. Each test writes what its server does with a stream.


class Stream:
    """A stream as the server has it."""

    def __init__(self, incoming: AsyncIterator[pb.PackMessage], context: Any) -> None:
        self.incoming = incoming
        self.context = context
        self.open = pb.Open()
        self.manifest = pb.PackManifest()

    async def take(self, kind: str | None = None) -> Any:
        """The next message that is no heartbeat: of this kind, or any."""
        async for message in self.incoming:
            got = message.WhichOneof("message")
            if got == "heartbeat":
                continue
            assert kind in (None, got), f"{got} came, not {kind}: {message}"
            return getattr(message, str(got)) if kind else message
        raise EOFError

    async def welcome(self, **limits: int) -> None:
        self.open = await self.take("open")
        await self.context.write(pb.ServerMessage(challenge=pb.Challenge(server_id="s", namespace="skerry-pack@v1")))
        self.manifest = (await self.take("register")).manifest
        usual: dict[str, Any] = {
            "heartbeat_seconds": 60,
            "call_window": 1 << 20,
            "connection_window": 1 << 22,
            "max_part_bytes": 1 << 18,
            "max_result_bytes": 1 << 24,
        }
        await self.context.write(pb.ServerMessage(welcome=pb.Welcome(**(usual | limits))))

    async def execute(self, number: int, tool: str, arguments: dict[str, Any] | None = None, timeout_ms: int = 60_000) -> None:
        request = pb.ExecuteToolRequest(
            request_id=number, tool_name=tool, input_json=json.dumps(arguments or {}).encode(), timeout_ms=timeout_ms
        )
        await self.context.write(pb.ServerMessage(execute=pb.ExecuteTool(request=request)))

    async def send(self, **message: Any) -> None:
        await self.context.write(pb.ServerMessage(**message))


Script = Callable[[Stream], Awaitable[None]]


async def against(pack: Pack, *scripts: Script) -> None:
    """Serves the pack to a server that does with its streams what the scripts say, one after the other."""
    left, ended, failed = list(scripts), asyncio.Event(), list[Exception]()

    async def connect(incoming: AsyncIterator[pb.PackMessage], context: Any) -> None:
        script = left.pop(0)
        try:
            await script(Stream(incoming, context))
        except grpc.aio.AbortError:
            raise  # and what the pack makes of it comes later
        except Exception as err:
            failed.append(err)
            left.clear()
        if not left:
            ended.set()

    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(
        connect, request_deserializer=pb.PackMessage.FromString, response_serializer=pb.ServerMessage.SerializeToString
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("skerry.packs.v1.PackService", {"Connect": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    serving = asyncio.ensure_future(pack.serve(f"http://127.0.0.1:{port}"))
    ending = asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait({serving, ending}, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        if failed:
            raise failed[0]
        if serving.done():
            serving.result()
        assert ended.is_set(), "the scripts did not come to their end"
    finally:
        ending.cancel()
        pack.stop()
        await asyncio.wait({serving}, timeout=10)
        serving.cancel()
        await server.stop(None)


def talkative() -> tuple[Pack, list[str], threading.Event]:
    """A pack for streams; what its tools note; what lets the blocking one end."""
    pack, notes, go_on = Pack("talk", "1", max_parallel=2), list[str](), threading.Event()

    @pack.tool
    def echo(text: str) -> str:
        return text

    @pack.tool
    def block(name: str) -> str:
        progress(0, message="runs")
        go_on.wait(60)
        notes.append(f"{name} {'ended' if cancelled(wait_s=60) else 'not told'}")
        return "late"

    @pack.tool
    async def wait(name: str) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            notes.append(name)
            raise
        return "waited"

    @pack.tool
    def count(n: int) -> str:
        for i in range(n):
            progress(i + 1, n, f"step {i + 1}")
        return "counted"

    return pack, notes, go_on


def text_in(raw: bytes) -> str:
    return str(json.loads(raw)["content"][0]["text"])


async def test_no_more_bytes_than_the_windows_let() -> None:
    async def script(s: Stream) -> None:
        await s.welcome(call_window=10, connection_window=100, max_part_bytes=7)
        await s.execute(1, "echo", {"text": "x" * 50})
        raw = (await s.take("result")).part + (await s.take("result")).part
        assert len(raw) == 10
        await s.execute(2, "echo", {"text": "y"})  # another call goes on meanwhile
        assert (await s.take("result")).request_id == 2
        await s.send(window=pb.Window(request_id=1, bytes=1000))
        last = False
        while not last:
            part = await s.take("result")
            assert len(part.part) <= 7
            if part.request_id == 1:
                raw, last = raw + part.part, part.last
            if len(raw) == 90 - 10:  # what the window of the connection lets, less the 10 bytes of the other call
                await s.send(window=pb.Window(bytes=1000))
                await s.send(window=pb.Window(request_id=2, bytes=1000))
        assert text_in(raw) == "x" * 50

    await against(talkative()[0], script)


async def test_progress_comes_in_order_and_before_the_result() -> None:
    async def script(s: Stream) -> None:
        await s.welcome()
        await s.execute(1, "count", {"n": 50})
        said = [await s.take("progress") for _ in range(50)]
        assert [(p.progress, p.total, p.message) for p in said] == [(i, 50, f"step {i}") for i in range(1, 51)]
        result = await s.take("result")
        assert result.last and text_in(result.part) == "counted"

    await against(talkative()[0], script)


async def test_a_blocking_tool_blocks_nothing_and_takes_a_place() -> None:
    pack, notes, go_on = talkative()

    async def script(s: Stream) -> None:
        await s.welcome()
        for number in (1, 2, 3):
            await s.execute(number, "block", {"name": f"n{number}"})
            await s.take("progress")
        await s.execute(4, "echo", {"text": "here"})
        assert text_in((await s.take("result")).part) == "here"
        for number in (1, 2, 3):
            await s.send(cancel=pb.Cancel(request_id=number))
        await s.execute(5, "wait", {"name": "four"})
        await s.execute(6, "echo", {"text": "x"})
        assert (await s.take("result")).error.code == pb.ToolError.CODE_BUSY
        go_on.set()
        await s.send(cancel=pb.Cancel(request_id=5))
        await s.execute(7, "nothing")
        while (r := await s.take("result")).error.code == pb.ToolError.CODE_BUSY:
            await s.execute(7, "nothing")
        assert (r.request_id, r.error.code) == (7, pb.ToolError.CODE_UNKNOWN_TOOL)  # and nothing for those that were cancelled
        for _ in range(3000):  # one of the four had made the place; the others end on threads that nothing else waits for
            if len(notes) < 4:
                await asyncio.sleep(0.01)

    await against(pack, script)
    assert sorted(notes) == ["four", "n1 ended", "n2 ended", "n3 ended"]


async def test_a_deadline_ends_the_tool() -> None:
    pack, notes, go_on = talkative()
    go_on.set()

    async def script(s: Stream) -> None:
        await s.welcome()
        await s.execute(1, "wait", {"name": "async"}, timeout_ms=20)
        assert "deadline" in text_in((await s.take("result")).part)
        await s.execute(2, "block", {"name": "sync"}, timeout_ms=20)
        await s.take("progress")
        assert (await s.take("result")).request_id == 2

    await against(pack, script)
    assert notes == ["async", "sync ended"]


async def test_stop_drains() -> None:
    pack, notes, go_on = talkative()

    async def script(s: Stream) -> None:
        await s.welcome()
        await s.execute(1, "block", {"name": "running"}, timeout_ms=100)
        await s.take("progress")
        pack.stop()
        await s.take("drain")
        await s.execute(2, "echo", {"text": "x"})
        assert (await s.take("result")).error.code == pb.ToolError.CODE_DRAINING
        go_on.set()
        assert (await s.take("result")).request_id == 1
        with pytest.raises(EOFError):
            await s.take()

    await against(pack, script)
    assert notes == ["running ended"]


async def test_it_comes_back_with_the_same_instance() -> None:
    instances = []

    async def drains(s: Stream) -> None:
        await s.welcome()
        instances.append(s.open.instance)
        await s.send(drain=pb.Drain())
        await s.take("drain")
        with pytest.raises(EOFError):
            await s.take()

    async def ends(s: Stream) -> None:
        await s.welcome()
        instances.append(s.open.instance)
        await s.context.abort(grpc.StatusCode.PERMISSION_DENIED, "the key was revoked, and may be good again")

    async def silent(s: Stream) -> None:
        await s.welcome(heartbeat_seconds=1)
        instances.append(s.open.instance)
        with pytest.raises((EOFError, asyncio.CancelledError)):
            await s.take()

    async def last(s: Stream) -> None:
        await s.welcome()
        instances.append(s.open.instance)

    await against(talkative()[0], drains, ends, silent, last)
    assert len(instances) == 4 and len(set(instances)) == 1 and len(instances[0]) > 20


async def test_a_refusal_is_final() -> None:
    async def refuses(s: Stream) -> None:
        await s.take("open")
        await s.context.abort(grpc.StatusCode.INVALID_ARGUMENT, "tools[0]: it is wrong")

    with pytest.raises(Refused, match=r"tools\[0\]: it is wrong"):
        await against(talkative()[0], refuses)


async def test_a_lost_connection_ends_its_calls_and_reloads() -> None:
    pack, notes, _ = talkative()
    reloads = []

    async def reload() -> None:
        try:
            await pack.areload()
        except ConnectionFailed:
            notes.append("reload")

    async def script(s: Stream) -> None:
        await s.welcome()
        await s.execute(1, "wait", {"name": "gone"})
        await s.execute(2, "echo", {"text": "the pack has been told that it is welcome"})
        await s.take("result")
        reloads.append(asyncio.ensure_future(reload()))
        await s.take("reload")
        await s.context.abort(grpc.StatusCode.UNAVAILABLE, "bye")

    async def again(s: Stream) -> None:
        await s.welcome()

    await against(pack, script, again)
    await asyncio.gather(*reloads)
    assert sorted(notes) == ["gone", "reload"]


def test_another_signature_is_not_made() -> None:
    good = pb.Challenge(server_id="s", nonce=b"\x01\xff", expires_at=7, namespace="skerry-pack@v1")
    assert signed_text(good, "crm", "host:1") == b"skerry-pack-v1\ns\n01ff\n7\ncrm\nhost:1\n"
    for bad in (pb.Challenge(server_id="s", namespace="git"), pb.Challenge(server_id="s\nx", namespace="skerry-pack@v1")):
        with pytest.raises(ValueError, match="namespace"):
            signed_text(bad, "crm", "host:1")
