"""The sandbox client of OpenAI's Agents SDK for E2B. The model of the agent is a script."""

import io
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agents import Model, ModelResponse, RunConfig, Runner, Usage
from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions, E2BSandboxType
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.entries import File
from agents.sandbox.errors import ExecTimeoutError, WorkspaceReadNotFoundError
from agents.sandbox.manifest import Environment
from agents.sandbox.session.sandbox_session import SandboxSession
from agents.sandbox.snapshot import LocalSnapshotSpec
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

# The root that the manifest has by itself, /workspace, is a link here, as on E2B it is a folder.
KINDS = {"/home/user/work": E2BSandboxType.E2B, "/tmp/work": E2BSandboxType.CODE_INTERPRETER}


def options(kind: E2BSandboxType = E2BSandboxType.E2B) -> E2BSandboxClientOptions:
    return E2BSandboxClientOptions(sandbox_type=kind, timeout=600)


@pytest.fixture(params=list(KINDS))
async def session(request: pytest.FixtureRequest) -> AsyncIterator[SandboxSession]:
    client = E2BSandboxClient()
    manifest = Manifest(
        root=request.param, environment=Environment(value={"GREETING": "hello"}), entries={"in/a.txt": File(content=b"one\n")}
    )
    session = await client.create(manifest=manifest, options=options(KINDS[request.param]))
    async with session:
        yield session
    await client.delete(session)


async def text_of(session: SandboxSession, path: str) -> bytes:
    data = (await session.read(Path(path))).read()
    assert isinstance(data, bytes)
    return data


async def test_commands(session: SandboxSession) -> None:
    result = await session.exec("cat in/a.txt; echo $GREETING; echo bad >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code) == (b"one\nhello\n", b"bad\n", 3)
    with pytest.raises(ExecTimeoutError):
        await session.exec("sleep 60", timeout=1)


async def test_files(session: SandboxSession) -> None:
    await session.mkdir(Path("d"))
    await session.write(Path("d/b.bin"), io.BytesIO(bytes(range(256))))
    assert await text_of(session, "d/b.bin") == bytes(range(256))
    assert {e.path.rsplit("/", 1)[-1] for e in await session.ls(Path("."))} >= {"in", "d"}
    with pytest.raises(WorkspaceReadNotFoundError):
        await session.read(Path("none"))


async def test_pty(session: SandboxSession) -> None:
    started = await session.pty_exec_start("bash", "--norc", shell=False, tty=True, yield_time_s=2)
    assert started.process_id is not None
    said = await session.pty_write_stdin(session_id=started.process_id, chars="echo $((6 * 7)) there\n", yield_time_s=3)
    assert b"42 there" in said.output
    await session.pty_terminate_all()


async def test_resumes(tmp_path: Path) -> None:
    """A session that is gone begins with the workspace of its snapshot."""
    client = E2BSandboxClient()
    session = await client.create(manifest=Manifest(root="/home/user/work"), options=options(), snapshot=LocalSnapshotSpec(base_path=tmp_path))
    async with session:
        await session.exec("echo kept >f")
    state = client.deserialize_session_state(json.loads(session.state.model_dump_json()))
    again = await client.resume(state)
    async with again:
        assert await text_of(again, "f") == b"kept\n"
    await client.delete(again)


async def test_default_root() -> None:
    client = E2BSandboxClient()
    session = await client.create(manifest=Manifest(entries={"a.txt": File(content=b"one\n")}), options=options())
    async with session:
        assert (await session.exec("cat a.txt /workspace/a.txt")).stdout == b"one\none\n"
    await client.delete(session)


class Scripted(Model):
    def __init__(self, command: str) -> None:
        self.command, self.seen = command, []

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
        self.seen = input if isinstance(input, list) else []
        outputs = [i["output"] for i in self.seen if isinstance(i, dict) and i.get("type") == "function_call_output"]
        if outputs:
            text = ResponseOutputText(annotations=[], text=str(outputs[-1]), type="output_text")
            message = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
            return ModelResponse(output=[message], usage=Usage(), response_id=None)
        arguments = json.dumps({"cmd": self.command})
        call = ResponseFunctionToolCall(id="c", call_id=uuid.uuid4().hex, name="exec_command", arguments=arguments, type="function_call")
        return ModelResponse(output=[call], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


async def test_agent() -> None:
    agent = SandboxAgent(
        name="analyst",
        model=Scripted("wc -l <report.md"),
        instructions="Use the shell.",
        default_manifest=Manifest(root="/home/user/work", entries={"report.md": File(content=b"a\nb\n")}),
    )
    config = RunConfig(sandbox=SandboxRunConfig(client=E2BSandboxClient(), options=options()), tracing_disabled=True)
    result = await Runner.run(agent, "How many lines?", run_config=config)
    assert "2" in str(result.final_output)
