"""Threads as sandboxes of Inspect: its own checks of a sandbox, and evaluations whose model is a script."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from inspect_ai import Task
from inspect_ai import eval_async as evaluate
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelAPI, ModelOutput, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash_session, text_editor
from inspect_ai.util import SandboxEnvironment, SandboxUnavailableError, SandboxUserUnsupportedError
from inspect_ai.util._sandbox.self_check import *  # noqa: F403 # 44 tests, with the fixture below
from inspect_ai.util._sandbox.self_check import __all__ as checks

from skerry import AsyncClient
from skerry._bounded import bounded
from skerry.errors import NotFound
from skerry.inspect import INLINE_STDIN, PREFIX, SkerrySandboxConfig, SkerrySandboxEnvironment
from tests.conftest import DRIVER, ROOT, Server

# A sandbox has one user, who is not root.
ONE_USER = "test_exec_as_user"


@pytest.fixture
def here(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The adapter reads where the server is from the environment, as a program of Inspect's users does."""
    monkeypatch.setenv("SKERRY_SERVER", server.url)


@pytest.fixture
async def sandbox_env(here: None, request: pytest.FixtureRequest) -> AsyncIterator[SandboxEnvironment]:
    if request.node.originalname == ONE_USER:
        request.node.add_marker(pytest.mark.xfail(raises=SandboxUserUnsupportedError, strict=True))
    made = await SkerrySandboxEnvironment.sample_init("task", None, {})
    yield made["default"]
    await SkerrySandboxEnvironment.sample_cleanup("task", None, made, False)


def test_all_checks_are_here() -> None:
    assert len(checks) == 44
    assert ONE_USER in checks


async def test_ends(here: None) -> None:
    """What a sample leaves is gone with it; of an interrupted one, with the task."""
    async with AsyncClient() as client:
        for interrupted in (False, True):
            made = await SkerrySandboxEnvironment.sample_init("task", SkerrySandboxConfig(timeout_s=9), {})
            one = made["default"].as_type(SkerrySandboxEnvironment)
            assert (await one.connection()).command == f"skerry exec -i -t {one.thread.id} -- bash -l"
            await one.exec(["sh", "-c", "nohup sleep 1000 >/dev/null 2>&1 &"])
            assert "sleep 1000" in (await one.exec(["ps", "ax"])).stdout  # a server that a tool starts stays
            await SkerrySandboxEnvironment.sample_cleanup("task", None, made, interrupted)
            if interrupted:
                assert (await client.thread(one.thread.id).info()).sandbox is not None
                await SkerrySandboxEnvironment.task_cleanup("task", None, True)
            with pytest.raises(NotFound):
                await client.thread(one.thread.id).info()
        kept = await SkerrySandboxEnvironment.sample_init("task", "base", {})
        await SkerrySandboxEnvironment.sample_cleanup("task", None, kept, True)
        await SkerrySandboxEnvironment.task_cleanup("task", None, False)
        assert [t.thread_id async for t in client.threads() if t.thread_id.startswith(PREFIX)]
        await SkerrySandboxEnvironment.cli_cleanup(None)
        assert not [t.thread_id async for t in client.threads() if t.thread_id.startswith(PREFIX)]


async def test_files_change_meanwhile(here: None) -> None:
    """Code may delete the file that its input comes from, and make a file larger than it was said to be."""
    made = await SkerrySandboxEnvironment.sample_init("task", None, {})
    one = made["default"].as_type(SkerrySandboxEnvironment)
    result = await one.exec(["sh", "-c", "rm /mnt/user-data/uploads/.inspect-*; wc -c"], input="x" * (INLINE_STDIN + 1))
    assert result.success and result.stdout.strip() == str(INLINE_STDIN + 1), result
    path = "/mnt/user-data/workspace/grows"
    await one.thread.files.upload(path, b"x" * 1000)
    assert await bounded(one.thread.files, path, 1000) == b"x" * 1000
    assert await bounded(one.thread.files, path, 999) is None
    await SkerrySandboxEnvironment.sample_cleanup("task", None, made, False)


async def test_lost(here: None) -> None:
    made = await SkerrySandboxEnvironment.sample_init("task", None, {})
    one = made["default"].as_type(SkerrySandboxEnvironment)
    run = asyncio.ensure_future(one.exec(["sleep", "60"]))
    await asyncio.sleep(1)
    async with AsyncClient() as client:
        await client.thread(one.thread.id).delete()
    try:
        result = await run
        assert not result.success
        assert "killed" in result.stderr
    except SandboxUnavailableError:
        pass
    await SkerrySandboxEnvironment.sample_cleanup("task", None, made, False)


def scripted(*calls: tuple[str, dict[str, Any]]) -> Any:
    outputs = [ModelOutput.for_tool_call("mockllm/model", name, arguments) for name, arguments in calls]
    return get_model("mockllm/model", custom_outputs=[*outputs, ModelOutput.from_content("mockllm/model", "Day 2.")])


async def tokens(_: ModelAPI, text: str) -> int:
    """Inspect would fetch a table to count them."""
    return len(text) // 4


async def test_evaluation(here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task of the page, with a real evaluation: files of a sample, the tools bash and python, and a score."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "inspect.md").read_text(), re.M | re.S)
    monkeypatch.setattr(ModelAPI, "count_text_tokens", tokens)
    names: dict[str, Any] = {"__name__": "document"}
    exec(compile(block, "docs/inspect.md", "exec"), names)
    model = scripted(
        ("bash", {"command": "tail -n 1 data.csv"}), ("python", {"code": "print(6 * 7)"}), ("bash", {"command": "echo no >&2; exit 3"})
    )
    [log] = await evaluate(names["task"], model=model, log_dir=str(tmp_path))
    assert log.status == "success", log.error
    assert log.samples is not None
    said = [m.text.strip() for m in log.samples[0].messages if m.role == "tool"]
    assert said == ["2,12", "42", "no"]
    assert log.results is not None
    assert log.results.scores[0].metrics["accuracy"].value == 1
    async with AsyncClient() as client:
        assert not [t.thread_id async for t in client.threads() if t.thread_id.startswith(PREFIX)]


async def test_own_tools(here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tools of Inspect that put a program into the sandbox: a shell that stays, and an editor."""
    monkeypatch.setattr(ModelAPI, "count_text_tokens", tokens)
    path = "/workspace/poem.txt"
    model = scripted(
        ("bash_session", {"action": "type_submit", "input": "x=41; cd /tmp"}),
        ("bash_session", {"action": "type_submit", "input": "echo $((x + 1)) in $PWD"}),
        ("text_editor", {"command": "create", "path": path, "file_text": "roses are blue\n"}),
        ("text_editor", {"command": "str_replace", "path": path, "old_str": "blue", "new_str": "red"}),
        ("text_editor", {"command": "view", "path": path}),
        ("bash_session", {"action": "type_submit", "input": f"cat {path}"}),
    )
    task = Task(
        dataset=[Sample(input="Write.", target="Day 2.")],
        solver=[use_tools(bash_session(), text_editor()), generate()],
        scorer=includes(),
        sandbox="skerry",
    )
    [log] = await evaluate(task, model=model, log_dir=str(tmp_path))
    assert log.status == "success", log.error
    assert log.samples is not None
    said = [m for m in log.samples[0].messages if m.role == "tool"]
    assert "42 in /tmp" in said[1].text
    if DRIVER != "docker":  # with a user namespace the root folder's owner has no name, and the editor trusts no such folder
        assert "cannot be trusted" in str(said[2].error)
        return
    assert not [m.error for m in said if m.error]
    assert "roses are red" in said[4].text
    assert "roses are red" in said[5].text
