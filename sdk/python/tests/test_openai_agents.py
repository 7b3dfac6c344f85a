"""Sandbox sessions of OpenAI's Agents SDK on threads. The model is a script; all else is real."""

from __future__ import annotations

import asyncio
import io
import json
import re
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agents import Model, ModelResponse, RunConfig, Runner, Usage
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.entries import File
from agents.sandbox.errors import (
    ConfigurationError,
    ExecTimeoutError,
    ExposedPortUnavailableError,
    InvalidManifestPathError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.manifest import Environment
from agents.sandbox.session.sandbox_session import SandboxSession
from agents.sandbox.snapshot import LocalSnapshotSpec
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from skerry import AsyncClient
from skerry.openai_agents import SkerrySandboxClient, SkerrySandboxClientOptions, SkerrySandboxSession
from tests.conftest import ROOT, Server


@pytest.fixture
async def api(server: Server) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.url) as client:
        yield client


@pytest.fixture
async def session(api: AsyncClient) -> AsyncIterator[SandboxSession]:
    client = SkerrySandboxClient(api)
    session = await client.create(
        manifest=Manifest(environment=Environment(value={"GREETING": "hello"}), entries={"in/a.txt": File(content=b"one\n")})
    )
    async with session:
        yield session
    await client.delete(session)


def thread_of(session: SandboxSession) -> str:
    inner = session._inner
    assert isinstance(inner, SkerrySandboxSession)
    return inner.thread.id


async def text_of(session: SandboxSession, path: str) -> bytes:
    data = (await session.read(Path(path))).read()
    assert isinstance(data, bytes)
    return data


async def test_commands(session: SandboxSession) -> None:
    result = await session.exec("cat in/a.txt; echo $GREETING; echo bad >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code) == (b"one\nhello\n", b"bad\n", 3)
    assert (await session.exec("printf", "%s|", "a b", "$c", shell=False)).stdout == b"a b|$c|"
    assert (await session.exec("pwd")).stdout == b"/mnt/user-data/workspace\n"
    assert (await session.exec("printf '\\377\\000'")).stdout == b"\xff\x00"
    with pytest.raises(ExecTimeoutError):
        await session.exec("sleep 60", timeout=1)
    with pytest.raises(ConfigurationError, match="one user"):
        await session.exec("true", user="root")
    assert (await session.exec("ls /mnt/skills/public")).stdout.split()  # skills are where each thread has them


async def test_files(session: SandboxSession) -> None:
    await session.write(Path("d/b.bin"), io.BytesIO(bytes(range(256))))
    assert await text_of(session, "d/b.bin") == bytes(range(256))
    assert await text_of(session, "/mnt/user-data/workspace/in/a.txt") == b"one\n"
    assert await session.read_bounded(Path("d/b.bin"), max_bytes=3) == b"\0\1\2"
    for reading in (session.read(Path("none")), session.read_bounded(Path("none"), max_bytes=3)):
        with pytest.raises(WorkspaceReadNotFoundError):
            await reading
    for outside in ("/etc/passwd", "../x"):
        with pytest.raises(InvalidManifestPathError):
            await session.read(Path(outside))
    await session.mkdir(Path("made/deep"), parents=True)
    assert {e.path.rsplit("/", 1)[-1] for e in await session.ls(Path("."))} == {"in", "d", "made"}
    await session.rm(Path("d"), recursive=True)
    assert not (await session.exec("test -e d")).ok()


async def test_archive_keeps_links_and_modes(session: SandboxSession) -> None:
    await session.exec("echo x > run.sh; chmod 750 run.sh; ln -s run.sh link; mkdir empty; touch -- '--checkpoint=1'")
    archive = (await session.persist_workspace()).read()
    await session.exec("rm -rf ./* ./--checkpoint=1")
    await session.hydrate_workspace(io.BytesIO(archive))
    assert (await session.exec("readlink link; stat -c %a run.sh; ls -d empty; ls -a ../outputs")).stdout.split() == [
        *(b"run.sh", b"750", b"empty"),
        *(b".", b".."),
    ]
    with pytest.raises(WorkspaceArchiveWriteError):
        await session.hydrate_workspace(io.BytesIO(b"no archive"))


async def test_resumed_from_its_thread(api: AsyncClient) -> None:
    client = SkerrySandboxClient(api)
    async with await client.create() as session:
        await session.exec("echo kept > f")
    assert not await session.running()
    saved = json.loads(json.dumps(client.serialize_session_state(session.state)))
    assert "sk_" not in json.dumps(saved)
    async with await SkerrySandboxClient(api).resume(client.deserialize_session_state(saved)) as again:
        assert thread_of(again) == thread_of(session) and await text_of(again, "f") == b"kept\n"
    await client.delete(again)
    assert thread_of(session) not in [t.thread_id async for t in api.threads()]


async def test_resumed_from_a_snapshot(api: AsyncClient, tmp_path: Path) -> None:
    client = SkerrySandboxClient(api)
    async with await client.create(snapshot=LocalSnapshotSpec(base_path=tmp_path)) as session:
        await session.exec("echo kept > f; ln -s f link")
    await client.delete(session)
    state = client.deserialize_session_state(client.serialize_session_state(session.state))
    async with await client.resume(state) as again:
        assert await text_of(again, "link") == b"kept\n"
    await client.delete(again)


async def test_named_thread_is_kept(api: AsyncClient) -> None:
    name = "named-" + uuid.uuid4().hex[:8]
    client = SkerrySandboxClient(api)
    async with await client.create(options=SkerrySandboxClientOptions(thread=name)) as session:
        await session.exec("echo mine > f")
        with pytest.raises(ConfigurationError, match="below /mnt/user-data"):
            await client.create(manifest=Manifest(root="/srv"))
        with pytest.raises(ExposedPortUnavailableError):
            await session.resolve_exposed_port(8080)
    await client.delete(session)
    assert await api.thread(name).files.download("/mnt/user-data/workspace/f") == b"mine\n"
    await api.thread(name).delete()


async def test_sandbox_that_ends(session: SandboxSession, api: AsyncClient) -> None:
    task = asyncio.ensure_future(session.exec("sleep 30"))
    thread = api.thread(thread_of(session))
    while not [e for e in await thread.execs() if e.status == "running" and "sleep 30" in str(e.subject)]:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await thread.release()
    assert (await task).exit_code == 137
    assert (await session.exec("echo again")).stdout == b"again\n"  # the next command has a new one


class Script(Model):
    """A model that makes the given calls, then says what the last of them answered."""

    def __init__(self, *calls: tuple[str, dict[str, Any]]) -> None:
        self.calls = list(calls)
        self.seen: list[str] = []

    async def get_response(
        self, system_instructions: Any, input: Any, model_settings: Any, tools: Any, *_: Any, **__: Any
    ) -> ModelResponse:
        self.seen += [t.name for t in tools]
        if self.calls:
            name, args = self.calls.pop(0)
            call = ResponseFunctionToolCall(type="function_call", name=name, arguments=json.dumps(args), call_id="c" + uuid.uuid4().hex)
            return ModelResponse([call], Usage(), None)
        answers = [i["output"] for i in input if isinstance(i, dict) and i.get("type") == "function_call_output"]
        text = ResponseOutputText(type="output_text", text=str(answers[-1]), annotations=[])
        message = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        return ModelResponse([message], Usage(), None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


async def test_agent(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the page shows it: the agent's own tools work in the thread."""
    monkeypatch.setenv("SKERRY_SERVER", server.url)
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    (block,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/openai-agents.md").read_text(), re.M | re.S)
    names: dict[str, Any] = {}
    exec(compile(block, "docs/openai-agents.md", "exec"), names)
    model = Script(("exec_command", {"cmd": "wc -l < data.csv; ls /mnt/skills/public | head -1"}))
    agent = names["agent"].clone(model=model)
    assert isinstance(agent, SandboxAgent)
    result = await Runner.run(agent, "How many lines has data.csv?", run_config=names["config"])
    assert "3" in result.final_output and "exec_command" in model.seen


def test_options_are_saved() -> None:
    options = SkerrySandboxClientOptions(thread="t", template="data")
    assert SkerrySandboxClientOptions.parse(options.model_dump()) == options
    assert isinstance(RunConfig(sandbox=SandboxRunConfig(options=options)).sandbox, SandboxRunConfig)
