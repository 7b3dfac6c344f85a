"""AutoGen's code execution tool on a thread."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor
from autogen_ext.tools.code_execution import CodeExecutionInput, PythonCodeExecutionTool

from skerry import Client, Thread
from skerry.autogen import SkerryCodeExecutor
from tests.conftest import ROOT, Server


async def run(executor: SkerryCodeExecutor, *blocks: tuple[str, str]) -> tuple[int, str]:
    result = await executor.execute_code_blocks([CodeBlock(code, language) for language, code in blocks], CancellationToken())
    return result.exit_code, result.output


async def test_tool(thread: Thread) -> None:
    tool = PythonCodeExecutionTool(SkerryCodeExecutor(thread))
    result = await tool.run(CodeExecutionInput(code="print(6 * 7)"), CancellationToken())
    assert result.success and result.output == "42\n"


async def test_blocks(thread: Thread) -> None:
    async with SkerryCodeExecutor(thread, timeout_s=30) as executor:
        assert await run(executor, ("python", "print(1)"), ("sh", "echo 2"), ("js", "console.log(3)")) == (0, "1\n2\n3\n")
        code, output = await run(executor, ("bash", "echo before; exit 3"), ("python", "print('never')"))
        assert (code, output) == (3, "before\n")
        code, output = await run(executor, ("python", "print('never')"), ("cobol", "x"))
        assert code == 1 and "no language 'cobol' here: use bash, javascript, python, typescript." in output and "never" not in output
        executor.timeout_s = 1
        code, output = await run(executor, ("python", "import time; print('begun', flush=True); time.sleep(60)"))
        assert code == 124 and output == "begun\n\n[ended at its deadline]"


async def test_stateful(thread: Thread) -> None:
    async with SkerryCodeExecutor(thread, stateful=True) as executor:
        assert await run(executor, ("python", "x = 41"), ("python", "x + 1")) == (0, "42\n")
        await executor.restart()
        code, output = await run(executor, ("python", "x"))
        assert code == 1 and "NameError" in output
    assert list(thread.contexts()) == []


async def test_cancelled(thread: Thread) -> None:
    token = CancellationToken()
    thread.acquire()
    work = asyncio.ensure_future(
        SkerryCodeExecutor(thread).execute_code_blocks([CodeBlock("import time; time.sleep(60)", "python")], token)
    )
    ends = time.monotonic() + 50
    while not [e for e in await asyncio.to_thread(thread.execs) if e.status == "running"]:
        assert time.monotonic() < ends, "it does not run"
        await asyncio.sleep(0.05)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    while [e for e in await asyncio.to_thread(thread.execs) if e.status == "running"]:
        assert time.monotonic() < ends, "it goes on"
        await asyncio.sleep(0.05)


async def test_saved(client: Client, thread: Thread) -> None:
    saved = SkerryCodeExecutor(thread, timeout_s=30, stateful=True).dump_component()
    assert "sk_" not in saved.model_dump_json()
    loaded = CodeExecutor.load_component(saved)
    assert isinstance(loaded, SkerryCodeExecutor) and loaded.thread.id == thread.id and loaded.stateful and loaded.timeout_s == 30
    assert await run(loaded, ("python", "6 * 7")) == (0, "42\n")
    await loaded.stop()


async def test_document(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKERRY_SERVER", server.url)
    (block,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/autogen.md").read_text(), re.M | re.S)
    names: dict[str, Any] = {}
    exec(compile(block, "docs/autogen.md", "exec"), names)
    for code, says in (("x = 6", ""), ("print(7 * x)", "42\n")):
        result = await names["tool"].run(CodeExecutionInput(code=code), CancellationToken())
        assert result.success and result.output == says
    names["thread"].delete()
