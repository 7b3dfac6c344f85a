"""Tools bound to the run's thread, and the whole story of the example in two processes."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig

from skerry import AsyncClient, Client, Thread
from skerry.deepagents import SkerrySandbox
from skerry.langgraph import SCHEMAS, Toolkit, atyped_message, tools, typed_message
from tests.conftest import Server

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "drive_to_crm"


def config_of(thread: Thread) -> RunnableConfig:
    return {"configurable": {"thread_id": thread.id}}


def call(name: str, /, **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args, "id": "1", "type": "tool_call"}


def test_every_tool(client: Client, thread: Thread) -> None:
    offered = {t.name: t for t in tools(client)}
    assert list(offered) == list(SCHEMAS)
    config = config_of(thread)

    def ask(tool: str, /, **args: Any) -> str:
        message = offered[tool].invoke(call(tool, **args), config)
        assert isinstance(message, ToolMessage) and message.status == "success", message
        return str(message.content)

    file = "/mnt/user-data/workspace/a.txt"
    assert ask("bash", command="echo $SKERRY_THREAD_ID").strip() == thread.id
    assert ask("bash", command="echo no >&2; exit 3") == "no\n[exited, exit code 3]"
    assert '"stdout": "42\\n"' in ask("execute_code", code="console.log(6 * 7)")
    assert '"servers"' in ask("list_servers")
    assert '"match_count"' in ask("search_tools", query="read a file")
    assert '"showing": 0' in ask("search_tools", query="read a file", detail="full", limit=2, output_schema=True)
    assert ask("write_file", path=file, content="one\ntwo\n") == f"wrote 8 bytes to {file}"
    assert ask("edit_file", path=file, old="two", new="2") == f"replaced 1 in {file}"
    assert ask("read_file", path=file) == "one\n2\n"
    assert ask("read_file", path=file, limit=1) == "one\n\n[Lines 1 to 1 of 2; go on with offset 1.]"
    assert file in ask("list_files", path="/mnt/user-data/workspace")
    assert ask("glob_files", pattern="*.txt") == file
    assert ask("grep_files", pattern="2") == f"{file}:2: 2"
    assert "csv-profile" in ask("search_skills")
    assert "csv-profile" in ask("activate_skill", name="csv-profile")
    assert ask("read_skill_file", skill="csv-profile", path="SKILL.md").startswith("---")
    thread.add_skill("greeter", "Greets people.", "Run it.", files={"scripts/greet.sh": '#!/bin/sh\necho "hello $1"\n'})
    assert ask("run_skill", skill="greeter", script="scripts/greet.sh", args=["Bob"]) == "hello Bob"


def test_threads_do_not_meet(client: Client, thread: Thread) -> None:
    write, read = tools(client, ["write_file", "read_file"])
    write.invoke(call("write_file", path="/mnt/user-data/workspace/mine", content="x"), config_of(thread))
    other = client.thread("other-" + uuid.uuid4().hex[:8])
    message = read.invoke(call("read_file", path="/mnt/user-data/workspace/mine"), config_of(other))
    assert message.status == "error" and "not_found" in message.content
    with pytest.raises(ValueError, match="the run has no thread"):
        read.invoke({"path": "/mnt/user-data/workspace/mine"})
    with pytest.raises(ValueError, match="no such tools: nothing"):
        tools(client, ["nothing"])


async def test_async(client: Client, thread: Thread) -> None:
    (bash,) = tools(client, ["bash"])
    assert (await bash.ainvoke(call("bash", command="echo hi"), config_of(thread))).content == "hi"
    assert "csv-profile" in (await Toolkit(client).aoffer(config_of(thread))).text
    assert "csv-profile" in Toolkit(client).offer(config_of(thread)).text


async def test_typed_commands(client: Client, thread: Thread) -> None:
    folder, config = "/mnt/user-data/workspace/plugin", config_of(thread)
    thread.files.write(f"{folder}/.claude-plugin/plugin.json", '{"name": "greets"}')
    thread.files.write(f"{folder}/commands/hello.md", "Greet $ARGUMENTS")
    packed = io.BytesIO()
    thread.files.download_archive(folder, packed, format="zip")
    thread.files.upload("/mnt/user-data/outputs/p.zip", packed.getvalue())
    client.call("POST", "/api/plugins/install", body={"thread_id": thread.id, "path": "/mnt/user-data/outputs/p.zip"})
    try:
        known = thread.typed_command(" /greets:hello Ann")
        assert (known.recognised, known.message, known.command, known.args) == (True, "Greet Ann", "greets:hello", "Ann")
        unknown = thread.typed_command("/greets:helo Ann")
        assert (unknown.recognised, unknown.message, unknown.near) == (False, "/greets:helo Ann", ["greets:hello"])
        assert typed_message(client, "/greets:hello Bob", config) == "Greet Bob"
        assert await atyped_message(client, "/greets:hello Bob", config) == "Greet Bob"
        assert typed_message(client, "hello", {}) == await atyped_message(client, "hello", {}) == "hello"  # the server is not asked
    finally:
        client.call("DELETE", "/api/plugins/greets")


async def test_async_with_an_http_client_of_ones_own(server: Server, thread: Thread) -> None:
    with httpx.Client() as own, Client(server.url, http=own) as client:
        (bash,) = tools(client, ["bash"])
        assert bash.invoke(call("bash", command="echo hi"), config_of(thread)).content == "hi"
        with pytest.raises(ValueError, match="pass async_client"):
            await bash.ainvoke(call("bash", command="echo hi"), config_of(thread))
        async with httpx.AsyncClient() as aown, AsyncClient(server.url, http=aown) as async_client:
            (bash,) = tools(client, ["bash"], async_client=async_client)
            assert (await bash.ainvoke(call("bash", command="echo hi"), config_of(thread))).content == "hi"
            assert (await SkerrySandbox(client.thread(thread.id), async_client=async_client).aexecute("echo hi")).output == "hi\n"


@pytest.fixture
def office() -> Iterator[Server]:
    """A server with the example's MCP servers, which run as nobody."""
    place = Path(tempfile.mkdtemp(prefix="skerry-office-"))
    place.chmod(0o755)
    program = shutil.copy(EXAMPLE / "mcp_server.py", place)
    os.chmod(program, 0o644)
    start = {"command": "/usr/bin/python3"}
    server = Server(
        {"mcpServers": {"google-drive": start | {"args": [program, "drive"]}, "salesforce": start | {"args": [program, "crm"]}}}
    )
    yield server
    server.stop()
    shutil.rmtree(place)


def test_story(office: Server, tmp_path: Path) -> None:
    env = os.environ | {"SKERRY_SERVER": office.url}

    def agent(step: str, thread: str = "acme") -> str:
        args = [sys.executable, str(EXAMPLE / "agent.py"), step, "--thread", thread, "--checkpoints", str(tmp_path / "c.sqlite")]
        done = subprocess.run(args, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    with Client(office.url) as client:
        thread = client.thread("acme")

        def description() -> str:
            result: Any = thread.call_tool("salesforce__get_record", {"recordId": "OPP-001"}).result
            return str(result["Description"])

        said = agent("begin")
        assert "The run waits: May the CRM be updated?" in said
        assert "3 findings from 107" in said and "Appendix" not in said  # the report stays out of the model's sight
        assert description() == ""
        thread.release()  # not even the sandbox is there in between
        assert "OPP-001 has a summary" in agent("approve")
        assert description().startswith("# Q4 2025 Financial Summary") and "revenue grew 23%" in description()
        called = [r.subject for r in client.audit(thread="acme", action="tool_call") if r.phase == "result" and r.exec]
        assert called == ["salesforce__update_record", "google_drive__get_document", "google_drive__list_documents"]

        agent("begin", "refused")
        assert "Nothing was changed" in agent("deny", "refused")
