"""A worker for Claude's Managed Agents that runs each session in a thread.

    from anthropic import AsyncAnthropic
    from skerry.claude import SkerryWorker

    await SkerryWorker(AsyncAnthropic(), environment_id="env_…", environment_key="…").run()

Anthropic's own SDK takes the work, holds the lease, fetches skills and memory, and answers. The tools bash, read, write,
edit, glob and grep run in the session's thread. Its workspace is /mnt/user-data/workspace.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import os
import re
import secrets
import tarfile
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Optional, cast

from skerry._versions import require

require("skerry.claude", "anthropic", "2.12", "3")

import anyio  # noqa: E402
from anthropic import AsyncAnthropic  # noqa: E402
from anthropic.lib.environments import DEFAULT_MEMORY_SYNC_INTERVAL, EnvironmentWorker  # noqa: E402
from anthropic.lib.tools import BetaAsyncFunctionTool, BetaFunctionToolResultType, ToolError, beta_async_tool  # noqa: E402
from anthropic.lib.tools.agent_toolset import AgentToolContext, beta_agent_toolset_20260401  # noqa: E402

from skerry import _constants as constants  # noqa: E402
from skerry._async.client import AsyncClient  # noqa: E402
from skerry._async.execs import Exec  # noqa: E402
from skerry._async.thread import Thread  # noqa: E402
from skerry._bounded import bounded  # noqa: E402
from skerry._claude_memory import Memory  # noqa: E402
from skerry._folders import files_of  # noqa: E402
from skerry._results import Event  # noqa: E402
from skerry.errors import NotFound, SkerryError  # noqa: E402

SESSIONS = 4
"""How many sessions a worker serves at once."""

BASH_TIMEOUT_S = 120.0
MAX_OUTPUT = 100 << 10
"""Bytes of a command's output, of a search, and of a file that is read as text: the ends of outputs, the beginnings of the others."""

MAX_TEXT = 256 << 10
MAX_MEDIA = 20 << 20
MAX_FOUND = 200
MAX_SHELL_OUTPUT = 15 << 20
"""What a shell may have written in all before it starts anew: the server keeps 16 MiB of an exec's output."""

MAX_MARK = 100
"""More than the line that ends a command has, in bytes."""

MEDIA = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".pdf": "application/pdf",
}
MAX_IMAGE = 5 * (1 << 20) // 4 * 3

# Where the prompts of agents look for the workspace: the images have links there.
WORKSPACE_LINKS = ("/workspace", "/home/user")

ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class SkerryWorker:
    """Serves the sessions of a self-hosted environment, several at once. run goes on until it is cancelled."""

    def __init__(
        self,
        claude: AsyncAnthropic,
        client: AsyncClient | None = None,
        *,
        environment_id: str,
        environment_key: str,
        sessions: int = SESSIONS,
        template: str | None = None,
        max_idle: float | None = 60.0,
        memory_sync_interval: float | None = DEFAULT_MEMORY_SYNC_INTERVAL,
    ) -> None:
        if sessions < 1:
            raise ValueError(f"sessions is {sessions}: want at least 1")
        self._claude, self._client, self._template = claude, client, template
        self._environment_id, self._environment_key = environment_id, environment_key
        self._sessions, self._max_idle, self._sync = sessions, max_idle, memory_sync_interval

    async def run(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            client = self._client if self._client is not None else await stack.enter_async_context(AsyncClient())
            async with anyio.create_task_group() as group:
                for _ in range(self._sessions):
                    group.start_soon(self._serve, client)

    async def _serve(self, client: AsyncClient) -> None:
        # A folder for each: skills and memory of one session never lie beside those of another.
        with tempfile.TemporaryDirectory(prefix="skerry-claude-") as folder:
            await EnvironmentWorker(
                self._claude,
                environment_id=self._environment_id,
                environment_key=self._environment_key,
                tools=lambda context: session_tools(client, context, template=self._template),
                workdir=folder,
                max_idle=self._max_idle,
                memory_sync_interval=self._sync,
            ).run()


def thread_of(session_id: str) -> str:
    """The thread of a session. It has the session's name, so that a session that comes back finds its files."""
    return "claude-" + session_id


def session_tools(client: AsyncClient, context: AgentToolContext, *, template: str | None = None) -> list[BetaAsyncFunctionTool[Any]]:
    """The tools of the session that Anthropic's worker made context for: its parameter tools takes this function."""
    session_id = context.session.id if context.session is not None else context.session_id
    if not session_id:
        raise ValueError("the context has no session: let the worker make it")
    return _Session(client.thread(thread_of(session_id)), context, template).tools()


class _Session:
    def __init__(self, thread: Thread, context: AgentToolContext, template: str | None) -> None:
        self.thread, self.context, self.template = thread, context, template
        self._begun = False
        self._beginning = asyncio.Lock()
        # Memory lies on this machine, where the worker of the SDK keeps it like the store. Its own tools read and write it; commands
        # have a copy.
        self.memory = Memory(self.thread.files, context)
        self._own = {tool.name: tool for tool in beta_agent_toolset_20260401(context)}

    async def begin(self) -> Thread:
        """The thread with its sandbox and the skills of the agent, which the worker has fetched."""
        async with self._beginning:
            if not self._begun:
                await self.thread.acquire(template=self.template)
                folder = Path(self.context.workdir) / "skills"
                if folder.is_dir():
                    archive = await asyncio.to_thread(_packed, folder)
                    await self.thread.files.upload_archive(constants.WORKSPACE + "/skills", archive)
                self._begun = True
        return self.thread

    def tools(self) -> list[BetaAsyncFunctionTool[Any]]:
        # Optional, not |: the SDK evaluates these annotations.
        async def read(file_path: str, view_range: Optional[list[int]] = None) -> BetaFunctionToolResultType:  # noqa: UP045
            """Read a file."""
            if self._is_memory(file_path):
                return await self._beside("read", file_path=file_path, view_range=view_range)
            return await self._read(file_path, view_range)

        async def write(file_path: str, content: str) -> BetaFunctionToolResultType:
            """Write a file, with the folders above it."""
            if self._is_memory(file_path):
                return await self._beside("write", file_path=file_path, content=content)
            with _told("write"):
                await (await self.begin()).files.write(_path(file_path), content)
            return f"wrote {len(content.encode())} bytes to {file_path}"

        async def edit(
            file_path: str,
            old_string: str,
            new_string: str,
            replace_all: Optional[bool] = None,  # noqa: UP045
        ) -> BetaFunctionToolResultType:
            """Replace text in a file."""
            if self._is_memory(file_path):
                return await self._beside(
                    "edit", file_path=file_path, old_string=old_string, new_string=new_string, replace_all=replace_all
                )
            with _told("edit"):
                files = (await self.begin()).files
                done = await files.edit(_path(file_path), old_string, new_string, replace_all=bool(replace_all))
            return f"edited {file_path} ({done.occurrences} replacement(s))"

        async def glob(pattern: str, path: Optional[str] = None) -> BetaFunctionToolResultType:  # noqa: UP045
            """Find files by a pattern, the newest first."""
            if path and self._is_memory(path):
                return await self._beside("glob", pattern=pattern, path=path)
            with _told("glob"):
                found = await (await self.begin()).files.glob(pattern, _path(path or "."))
            newest = sorted((f for f in found.items if not f.is_dir), key=lambda f: f.modified_at, reverse=True)
            return "\n".join(f.path for f in newest[:MAX_FOUND]) or "no matches"

        async def grep(pattern: str, path: Optional[str] = None) -> BetaFunctionToolResultType:  # noqa: UP045
            """Search files for a regular expression."""
            if path and self._is_memory(path):
                return await self._beside("grep", pattern=pattern, path=path)
            with _told("grep"):
                found = await (await self.begin()).files.grep(pattern, _path(path or "."), regex=True)
            lines = [f"{m.path}:{m.line}:{m.text}" for m in found.items]
            return _head("\n".join(lines), found.truncated) or "no matches"

        own = (("read", read), ("write", write), ("edit", edit), ("glob", glob), ("grep", grep))
        made = [self._tool(name, function) for name, function in own]
        return [self._tool("bash", self._bash), *made]

    def _tool(self, name: str, function: Callable[..., Any]) -> BetaAsyncFunctionTool[Any]:
        return beta_async_tool(name=name, input_schema=self._own[name].input_schema)(cast(Any, function))

    def _is_memory(self, path: str) -> bool:
        at = PurePosixPath(os.path.normpath(path))
        return at.is_absolute() and any(at.is_relative_to(PurePosixPath(root)) for root in self.context.allowed_roots)

    async def _beside(self, tool: str, **arguments: Any) -> BetaFunctionToolResultType:
        given = {name: value for name, value in arguments.items() if value is not None}
        return await self._own[tool].call(given)

    async def _read(self, file_path: str, view_range: list[int] | None) -> BetaFunctionToolResultType:
        if view_range and len(view_range) != 2:
            raise ToolError("read: view_range must be [start_line, end_line]")
        path = _path(file_path)
        media = MEDIA.get(PurePosixPath(path).suffix.lower())
        with _told("read"):
            files = (await self.begin()).files
            if view_range:
                if media:
                    raise ToolError("read: view_range is not supported for image/PDF files")
                first = max(view_range[0], 1)
                last = view_range[1] if view_range[1] > 0 else first + constants.READ_LINES - 1
                if last < first:
                    return ""
                text = await files.read(path, offset=first - 1, limit=int(last - first + 1))
                return _head(text.content, text.next_offset is not None and text.end_line < last)
            size = (await files.stat(path)).bytes
            limit = {None: MAX_TEXT, "application/pdf": MAX_MEDIA}.get(media, MAX_IMAGE)
            data = await bounded(files, path, limit) if size <= limit else None
            if data is None:
                hint = "" if media else ' Use view_range to read some of its lines, such as "view_range": [1, 500].'
                raise ToolError(f"read: {file_path} has {max(size, limit + 1)} bytes, and at most {limit} can be read at once.{hint}")
        if media:
            return [cast(Any, _block(media, data))]
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise ToolError(f"read: {file_path} is no text in UTF-8; of other files, images and PDF can be read") from None

    @contextlib.asynccontextmanager
    async def _bash(self) -> AsyncIterator[Callable[..., Awaitable[str]]]:
        """Run a command in a shell that stays."""
        shell = _Shell(self)

        async def bash(
            command: Optional[str] = None,  # noqa: UP045
            restart: Optional[bool] = None,  # noqa: UP045
            timeout_ms: Optional[int] = None,  # noqa: UP045
        ) -> str:
            if restart:
                await shell.close()
                return "the shell was started anew"
            if not command:
                raise ToolError("bash: want a command, or restart")
            with _told("bash"):
                out, code = await shell.run(command, timeout_ms / 1000 if timeout_ms else BASH_TIMEOUT_S)
            if code != 0:
                raise ToolError(out or f"exit code {code}")
            return out

        try:
            yield bash
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(10), contextlib.suppress(SkerryError):
                await shell.end()


class _Shell:
    """A bash in the sandbox that keeps its folder, variables and jobs between commands. One command runs at a time."""

    def __init__(self, session: _Session) -> None:
        self._session = session
        self._exec: Exec | None = None
        self._events: AsyncIterator[Event] | None = None
        self._written = 0
        self._turn = asyncio.Lock()

    async def run(self, command: str, timeout_s: float) -> tuple[str, int]:
        async with self._turn:
            note = ""
            if self._exec is not None and self._written > MAX_SHELL_OUTPUT:
                await self.close()
                note = "[the shell had written all that it may, and was started anew]\n"
            await self._session.begin()
            await self._session.memory.push()
            try:
                with anyio.fail_after(timeout_s):
                    out, code = await self._run(command)
            except TimeoutError:
                await self.close()
                await self._pull()
                raise ToolError(f"bash: the command took more than {timeout_s:g} s; the shell and all in it was ended") from None
            except BaseException:
                # Whatever interrupts a command, the next one must not read its output.
                with anyio.CancelScope(shield=True), anyio.move_on_after(10), contextlib.suppress(SkerryError):
                    await self.close()
                raise
            return note + out + await self._pull(), code

    async def _pull(self) -> str:
        """Takes over what a command did to memory, and says what of it was not."""
        try:
            notes = await self._session.memory.pull()
        except SkerryError as err:
            notes = [f"what was written to memory was not kept: {err}"]
        return "".join(f"\n[{note}]" for note in notes)

    async def _run(self, command: str) -> tuple[str, int]:
        if self._exec is None:
            thread = await self._session.begin()
            self._exec = await thread.start(
                ["bash", "--noprofile", "--norc"],
                keep_stdin=True,
                timeout_s=constants.MAX_EXEC_TIMEOUT_S,
                cwd=constants.WORKSPACE,
                env={"TERM": "dumb"},
                max_output_bytes=16 << 20,
            )
            self._events, self._written = self._exec.events(), 0
        assert self._events is not None
        # The mark is made anew for each command, so that the output of none ends it. eval: a command that bash cannot read ends with an
        # error, and does not swallow the line with the mark.
        mark = f"skerry-{secrets.token_hex(16)}-done"
        encoded = base64.b64encode(command.encode()).decode()
        await self._exec.send(f"eval \"$(base64 -d <<<{encoded})\" </dev/null 2>&1; printf '\\n%s%s %d\\n' {mark[:7]} {mark[7:]} $?\n")
        out = bytearray()
        cut = False
        async for event in self._events:
            if event.type == constants.EVENT_EXIT:
                self._exec = self._events = None
                result = event.result
                code = result.exit_code if result is not None and result.exit_code is not None else 1
                why = (
                    ""
                    if result is None or result.status == constants.STATUS_EXITED
                    else f": {result.status} {result.detail or ''}".rstrip()
                )
                return _tail(out, cut) + f"\n[the shell ended with exit code {code}{why}; the next command has a new one]", code
            # What came before was searched, but for a mark that was not whole: output in small pieces costs no more.
            begin = max(0, len(out) - MAX_MARK)
            out += event.data
            self._written += len(event.data)
            found = out.rfind(b"\n" + mark.encode() + b" ", begin)
            if found >= 0 and (end := out.find(b"\n", found + 1)) >= 0:
                word = bytes(out[found + 1 : end].rsplit(b" ", 1)[1])
                # Code that took over the shell, with a trap of its own, may print anything.
                code = int(word) if len(word) <= 3 and word.isdigit() else 1
                return _tail(out[:found], cut), code
            if len(out) > 2 * MAX_OUTPUT:
                del out[: len(out) - MAX_OUTPUT]
                cut = True
        self._exec = self._events = None
        raise ToolError("bash: the shell was lost; the next command has a new one")

    async def end(self) -> None:
        """Also takes over what a job wrote after the last command."""
        if self._exec is not None:
            await self._pull()
        await self.close()

    async def close(self) -> None:
        ended, self._exec, self._events = self._exec, None, None
        if ended is not None:
            with contextlib.suppress(NotFound):
                await ended.kill()


@contextlib.contextmanager
def _told(tool: str) -> Iterator[None]:
    """Turns what Skerry refuses into what the model is told."""
    try:
        yield
    except SkerryError as err:
        raise ToolError(f"{tool}: {err}") from err


def _path(path: str) -> str:
    at = PurePosixPath(path)
    for link in WORKSPACE_LINKS:
        if at.is_relative_to(link):
            at = at.relative_to(link)
    return str(PurePosixPath(constants.WORKSPACE) / at)


def _tail(out: bytes | bytearray, cut: bool) -> str:
    cut = cut or len(out) > MAX_OUTPUT
    text = ANSI.sub("", bytes(out[-MAX_OUTPUT:]).decode("utf-8", "replace"))
    return ("[the beginning of the output is left out]\n" if cut else "") + text.rstrip("\n")


def _head(text: str, more: bool) -> str:
    raw = text.encode()
    if len(raw) > MAX_OUTPUT:
        text, more = raw[:MAX_OUTPUT].decode("utf-8", "ignore"), True
    return text + ("\n[there is more]" if more else "")


def _block(media: str, data: bytes) -> dict[str, Any]:
    source = {"type": "base64", "media_type": media, "data": base64.b64encode(data).decode()}
    return {"type": "document" if media == "application/pdf" else "image", "source": source}


def _packed(folder: Path) -> bytes:
    """A folder as a tar archive, with the modes of its files, and without links."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path in files_of(folder):
            archive.add(path, path.relative_to(folder).as_posix(), recursive=False)
    return out.getvalue()
