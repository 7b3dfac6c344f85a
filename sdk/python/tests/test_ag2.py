"""AG2's own tools on a thread."""

from __future__ import annotations

import asyncio
import time
from pathlib import PurePosixPath

import pytest
from ag2.tools.sandbox import CodeAdapter, Sandbox, SandboxFactory
from ag2.tools.sandbox.adapter import ShellAdapter
from ag2.tools.sandbox.factory import WorkdirAware

from skerry import Thread
from skerry.ag2 import SkerryEnvironment, SkerrySandbox


async def test_tools(thread: Thread) -> None:
    environment = SkerryEnvironment(thread)
    assert isinstance(environment, SandboxFactory) and isinstance(environment, WorkdirAware)
    shell = ShellAdapter(environment)
    assert (await shell.run("echo out; echo err >&2; pwd")) == "out\nerr\n/mnt/user-data/workspace"
    assert await shell.run("echo no; exit 3") == "no\n[exit code: 3]"
    code = CodeAdapter(environment, languages=("python", "bash", "javascript"))
    assert (await code.run("print(6 * 7)", "python")).output == "42"
    assert (await code.run("echo $((6 * 7))", "bash")).output == "42"
    assert (await code.run("console.log(6 * 7)", "javascript")).output == "42"
    assert not [e for e in thread.files.list("/mnt/user-data/workspace").items if e.path.endswith(".js")]  # it cleans up


async def test_sandbox(thread: Thread) -> None:
    async with SkerrySandbox(thread, timeout_s=30) as sandbox:
        assert isinstance(sandbox, Sandbox) and sandbox.host_workdir is None
        await sandbox.put_file(PurePosixPath("a/b.bin"), b"\x00\xff")
        assert (await sandbox.exec(["od", "-An", "-tx1", "a/b.bin"])).output == "00 ff"
        assert (await sandbox.exec(["sh", "-c", "echo $A"], env={"A": "b c"})).output == "b c"
        await sandbox.remove_file(PurePosixPath("a/b.bin"))
        await sandbox.remove_file(PurePosixPath("a/b.bin"))
        assert not thread.files.exists("/mnt/user-data/workspace/a/b.bin")
        for path in ("/etc/x", "/mnt/user-data/workspace/x"):
            with pytest.raises(ValueError, match="is absolute"):
                await sandbox.put_file(PurePosixPath(path), b"")
        assert (await sandbox.exec([])).exit_code == 2
        assert (await sandbox.exec(["no-such-program"])).exit_code == 127
        late = await sandbox.exec(["sh", "-c", "echo begun; sleep 60"], timeout=1)
        assert late.exit_code == 124 and late.output == "begun\n[ended at its deadline]"


async def test_cancelled(thread: Thread) -> None:
    sandbox = SkerrySandbox(thread)
    thread.acquire()
    work = asyncio.ensure_future(sandbox.exec(["sleep", "600"], timeout=900))
    ends = time.monotonic() + 60
    while not [e for e in await asyncio.to_thread(thread.execs) if e.status == "running"]:
        assert time.monotonic() < ends, "it does not run"
        await asyncio.sleep(0.05)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    while [e for e in await asyncio.to_thread(thread.execs) if e.status == "running"]:
        assert time.monotonic() < ends, "it goes on"
        await asyncio.sleep(0.05)


def test_loops(thread: Thread) -> None:
    """AG2 starts an event loop for each call of a synchronous agent."""
    sandbox = SkerrySandbox(thread)
    for n in range(2):
        assert asyncio.run(sandbox.exec(["echo", str(n)])).output == str(n)
