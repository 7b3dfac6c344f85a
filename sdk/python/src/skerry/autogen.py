"""A Skerry thread as a code executor of AutoGen.

    from autogen_ext.tools.code_execution import PythonCodeExecutionTool
    from skerry import Client
    from skerry.autogen import SkerryCodeExecutor

    tool = PythonCodeExecutionTool(SkerryCodeExecutor(Client().thread("my-thread")))

The sandbox starts with the first block, and its files stay with the thread. Code can call the tools of the thread.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from skerry._versions import require

require("skerry.autogen", "autogen-core", "0.7.5", "0.8")

from autogen_core import CancellationToken, Component  # noqa: E402
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult  # noqa: E402
from pydantic import BaseModel  # noqa: E402
from typing_extensions import Self  # noqa: E402

from skerry._cancellable import exit_code, result_of, with_reason  # noqa: E402
from skerry._results import ExecResult  # noqa: E402
from skerry._sync.client import Client  # noqa: E402
from skerry._sync.execs import Context  # noqa: E402
from skerry._sync.thread import Thread  # noqa: E402
from skerry.errors import NotFound  # noqa: E402

Language = Literal["python", "typescript", "javascript", "bash"]
LANGUAGES: dict[str, Language] = {
    "python": "python",
    "py": "python",
    "bash": "bash",
    "sh": "bash",
    "shell": "bash",
    "javascript": "javascript",
    "js": "javascript",
    "typescript": "typescript",
    "ts": "typescript",
}


class SkerryCodeExecutorConfig(BaseModel):
    """What a saved executor says. The key is not in it: it is read from SKERRY_API_KEY."""

    server: str
    thread: str
    timeout_s: float = 60
    stateful: bool = False


class SkerryCodeExecutor(CodeExecutor, Component[SkerryCodeExecutorConfig]):
    """Runs blocks one after another, up to the first that fails.

    With stateful, blocks of Python keep their variables until restart or stop. timeout_s is a block's, at most 120.
    """

    component_config_schema = SkerryCodeExecutorConfig
    component_provider_override = "skerry.autogen.SkerryCodeExecutor"

    def __init__(self, thread: Thread, *, timeout_s: float = 60, stateful: bool = False) -> None:
        self.thread = thread
        self.timeout_s = timeout_s
        self.stateful = stateful
        self._context: Context | None = None

    async def execute_code_blocks(self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken) -> CodeResult:
        for block in code_blocks:
            if block.language.lower() not in LANGUAGES:
                return CodeResult(1, f"There is no language {block.language!r} here: use {', '.join(sorted(set(LANGUAGES.values())))}.")
        texts: list[str] = []
        for block in code_blocks:
            work = asyncio.ensure_future(self._run(block.code, LANGUAGES[block.language.lower()]))
            cancellation_token.link_future(work)
            result = await work
            texts.append(with_reason(result, shown(result)))
            if code := exit_code(result):
                return CodeResult(code, "".join(texts))
        return CodeResult(0, "".join(texts))

    async def _run(self, code: str, language: Language) -> ExecResult:
        if self.stateful and language == "python":
            context = await asyncio.to_thread(self._kept)
            return await result_of(self.thread, lambda: context.stream(code, timeout_s=self.timeout_s))
        return await result_of(self.thread, lambda: self.thread.stream_code(code, language=language, timeout_s=self.timeout_s))

    def _kept(self) -> Context:
        if self._context is None:
            self._context = self.thread.context("python")
        return self._context

    async def start(self) -> None:
        """Starts the sandbox, so that the first block need not wait for it."""
        await asyncio.to_thread(self.thread.acquire)

    async def stop(self) -> None:
        """Forgets the variables. The files stay, and the sandbox ends when it has been idle."""
        context, self._context = self._context, None
        if context is not None:
            try:
                await asyncio.to_thread(context.delete)
            except NotFound:
                pass  # its sandbox has ended

    async def restart(self) -> None:
        await self.stop()

    def _to_config(self) -> SkerryCodeExecutorConfig:
        server = self.thread._transport.server
        return SkerryCodeExecutorConfig(server=server, thread=self.thread.id, timeout_s=self.timeout_s, stateful=self.stateful)

    @classmethod
    def _from_config(cls, config: SkerryCodeExecutorConfig) -> Self:
        return cls(Client(config.server).thread(config.thread), timeout_s=config.timeout_s, stateful=config.stateful)


def shown(result: ExecResult) -> str:
    """What a block printed, and the value of its last expression in a context."""
    values: list[Any] = [r["text/plain"] for r in result.results or [] if "text/plain" in r]
    return result.output + "".join(f"{v}\n" for v in values)


__all__ = ["SkerryCodeExecutor", "SkerryCodeExecutorConfig"]
