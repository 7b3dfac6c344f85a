"""A Skerry thread as the environment of AG2's tools for commands and code.

    from ag2.tools import SandboxCodeTool, SandboxShellTool
    from skerry import Client
    from skerry.ag2 import SkerryEnvironment

    environment = SkerryEnvironment(Client().thread("my-thread"))
    tools = [SandboxShellTool(environment), SandboxCodeTool(environment, languages=("python", "bash"))]

The sandbox starts with the first command, and its files stay with the thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from skerry._versions import require

require("skerry.ag2", "ag2", "1.2", "2")

from ag2.tools.sandbox import ExecResult, SandboxBase  # noqa: E402

from skerry import errors  # noqa: E402
from skerry._cancellable import exit_code, result_of, with_reason  # noqa: E402
from skerry._constants import WORKSPACE  # noqa: E402
from skerry._sync.thread import Thread  # noqa: E402

if TYPE_CHECKING:
    from ag2.context import ConversationContext

WORKDIR = PurePosixPath(WORKSPACE)


class SkerrySandbox(SandboxBase):
    """A thread as a sandbox of AG2. Closing it ends nothing: the thread goes on, and its sandbox ends when it has been idle."""

    def __init__(self, thread: Thread, *, timeout_s: float = 60) -> None:
        self.thread = thread
        self.timeout_s = timeout_s

    def __deepcopy__(self, _: dict[int, object]) -> SkerrySandbox:
        return self  # agents copy their tools, and a thread is one

    @property
    def workdir(self) -> PurePosixPath:
        return WORKDIR

    @property
    def host_workdir(self) -> Path | None:
        return None

    async def exec(self, argv: list[str], *, env: dict[str, str] | None = None, timeout: float | None = None) -> ExecResult:
        if not argv:
            return ExecResult(output="", exit_code=2)
        seconds = self.timeout_s if timeout is None else timeout
        # One pipe, so that both streams stay in the order in which they were written.
        command = ["sh", "-c", 'exec "$@" 2>&1', "sh", *argv]
        result = await result_of(self.thread, lambda: self.thread.stream(command, cwd=str(WORKDIR), env=env, timeout_s=seconds))
        return ExecResult(output=with_reason(result, result.output.strip()), exit_code=exit_code(result))

    async def put_file(self, path: PurePosixPath, content: bytes) -> None:
        await asyncio.to_thread(self.thread.files.write, str(self._inside(path)), content)

    async def remove_file(self, path: PurePosixPath) -> None:
        try:
            await asyncio.to_thread(self.thread.files.delete, str(self._inside(path)))
        except errors.NotFound:
            pass

    def _inside(self, path: PurePosixPath) -> PurePosixPath:
        if path.is_absolute():
            raise ValueError(f"{path} is absolute: wanted is a path below {WORKDIR}")
        return WORKDIR / path


class SkerryEnvironment:
    """What AG2's tools are given. timeout_s is a command's, when the tool does not say."""

    def __init__(self, thread: Thread, *, timeout_s: float = 60) -> None:
        self._sandbox = SkerrySandbox(thread, timeout_s=timeout_s)

    def __deepcopy__(self, _: dict[int, object]) -> SkerryEnvironment:
        return self

    @property
    def workdir(self) -> PurePosixPath:
        return WORKDIR

    @asynccontextmanager
    async def open(self, context: ConversationContext | None = None) -> AsyncGenerator[SkerrySandbox]:
        yield self._sandbox


__all__ = ["SkerryEnvironment", "SkerrySandbox"]
