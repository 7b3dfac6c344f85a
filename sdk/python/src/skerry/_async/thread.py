"""A thread: one conversation, its files, and its sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

import httpx
from typing_extensions import Unpack

from skerry import _constants as constants
from skerry import errors, models
from skerry._async.execs import Context, Exec, follow
from skerry._async.files import Files
from skerry._async.transport import Transport
from skerry._folders import skill_of
from skerry._options import CodeOptions, CommandOptions, ContextLanguage, code_body, command_body, deadline_of, given
from skerry._results import Event, ExecResult

Mode = Literal["direct", "code", "auto"]
Detail = Literal["name", "desc", "full"]


class Thread:
    """What a server does for one thread. It comes into being with the first call that needs it.

    As a context manager it ends the thread's sandbox when it is left; the files stay.
    """

    def __init__(self, transport: Transport, thread_id: str) -> None:
        self._transport = transport
        self.id = thread_id
        self._base = f"/api/threads/{quote(thread_id, safe='')}"
        self.files = Files(transport, self._base)

    async def __aenter__(self) -> Thread:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release()

    # The sandbox.

    async def acquire(
        self,
        *,
        template: str | None = None,
        labels: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        skills: Sequence[str] | None = None,
        capabilities: Sequence[str] | None = None,
        mode: Mode | None = None,
        deadline_s: float = constants.DEFAULT_WAIT_S,
    ) -> models.Sandbox:
        """Gives the thread a sandbox, and waits until it is ready. Many callers at once get the same one."""
        ends = time.monotonic() + deadline_s
        while True:
            left = ends - time.monotonic()
            if left <= 0:
                raise errors.DeadlineExceeded(f"thread {self.id}: no sandbox within {deadline_s:g} s; it goes on starting")
            body = given(
                template=template, labels=labels, env=env, skills=skills, capabilities=capabilities, mode=mode, wait_s=min(left, 30.0)
            )
            answer = await self._transport.call("PUT", self._base + "/sandbox", body=body, deadline_s=left + 5)
            if answer.status != 202:
                return models.SandboxAnswer.model_validate(answer.json()).sandbox
            await asyncio.sleep(0.1)

    async def release(self) -> None:
        """Ends the sandbox; the files stay. Nothing happens when there is none."""
        try:
            await self._transport.call("DELETE", self._base + "/sandbox")
        except errors.NotFound:
            pass

    async def delete(self) -> None:
        """Ends the sandbox and deletes the thread with its files."""
        try:
            await self._transport.call("DELETE", self._base)
        except errors.NotFound:
            pass

    async def pause(self) -> models.Sandbox:
        return await self._sandbox("pause")

    async def resume(self) -> models.Sandbox:
        return await self._sandbox("resume")

    async def hibernate(self, *, force: bool = False) -> models.Sandbox:
        return await self._sandbox("hibernate", {"force": force})

    async def _sandbox(self, what: str, body: Any = None) -> models.Sandbox:
        answer = await self._transport.call("POST", f"{self._base}/sandbox/{what}", body=body, deadline_s=constants.DEFAULT_WAIT_S)
        return models.SandboxOnly.model_validate(answer.json()).sandbox

    async def info(self) -> models.Thread:
        return models.Thread.model_validate(await self._get(""))

    # Running things.

    async def exec(self, command: str | Sequence[str], *, deadline_s: float | None = None, **options: Unpack[CommandOptions]) -> ExecResult:
        """Runs a command (by a shell when it is a string) and waits for its end. It is never run twice.

        deadline_s is for the call; when people have to approve what runs, give it more.
        """
        deadline = deadline_of(deadline_s, options.get("timeout_s"), constants.EXEC_TIMEOUT_S)
        return await self._run("/exec", command_body(command, options), deadline)

    def stream(
        self, command: str | Sequence[str], *, deadline_s: float | None = None, **options: Unpack[CommandOptions]
    ) -> AsyncIterator[Event]:
        """Runs a command and yields its events as they come, across broken connections; the last one has the result."""
        deadline = deadline_of(deadline_s, options.get("timeout_s"), constants.EXEC_TIMEOUT_S)
        return follow(self._transport, self._base, path=self._base + "/exec", body=command_body(command, options), deadline_s=deadline)

    async def start(
        self,
        command: str | Sequence[str],
        *,
        keep_stdin: bool | None = None,
        pty: tuple[int, int] | None = None,
        **options: Unpack[CommandOptions],
    ) -> Exec:
        """Starts a command in the background. pty (columns, rows) attaches it to a terminal."""
        body = command_body(command, options)
        body |= given(background=True, keep_stdin=keep_stdin, pty=pty and {"cols": pty[0], "rows": pty[1]})
        result = await self._run("/exec", body, constants.DEFAULT_WAIT_S)
        return self.get_exec(result.exec_id)

    def get_exec(self, exec_id: str) -> Exec:
        return Exec(self._transport, self.id, self._base, exec_id)

    async def execs(self) -> Sequence[models.ExecInfo]:
        return models.PageExecInfo.model_validate(await self._get("/execs")).items

    async def processes(self, *, all: bool = False) -> Sequence[models.Process]:
        """What commands with leave_processes left; with all also the processes of commands that run, 512 at most."""
        return models.PageProcess.model_validate(await self._get("/processes?all=true" if all else "/processes")).items

    async def metrics(self) -> models.SandboxMetrics:
        """What the sandbox uses now. It starts none."""
        return models.SandboxMetrics.model_validate(await self._get("/sandbox/metrics"))

    async def kill_process(self, pid: int) -> None:
        """Ends a process that a command left, with all below it."""
        await self._transport.call("DELETE", f"{self._base}/processes/{pid}")

    async def execute_code(self, code: str, *, deadline_s: float | None = None, **options: Unpack[CodeOptions]) -> ExecResult:
        """Runs code in a fresh interpreter; it can call the thread's tools. tools_called and files say what it did."""
        return await self._run(
            "/execute_code", code_body(code, options), deadline_of(deadline_s, options.get("timeout_s"), constants.MAX_CODE_TIMEOUT_S)
        )

    def stream_code(self, code: str, *, deadline_s: float | None = None, **options: Unpack[CodeOptions]) -> AsyncIterator[Event]:
        """As execute_code, event by event."""
        deadline = deadline_of(deadline_s, options.get("timeout_s"), constants.MAX_CODE_TIMEOUT_S)
        return follow(self._transport, self._base, path=self._base + "/execute_code", body=code_body(code, options), deadline_s=deadline)

    async def context(self, language: ContextLanguage | None = None, *, cwd: str | None = None) -> Context:
        """A new interpreter that keeps its variables. As a context manager it is deleted when it is left."""
        answer = await self._transport.call(
            "POST", self._base + "/contexts", body=given(language=language, cwd=cwd), deadline_s=constants.DEFAULT_WAIT_S
        )
        return Context(self._transport, self._base, models.CodeContext.model_validate(answer.json()))

    async def contexts(self) -> Sequence[Context]:
        page = models.PageCodeContext.model_validate(await self._get("/contexts"))
        return [Context(self._transport, self._base, info) for info in page.items]

    async def _run(self, path: str, body: dict[str, Any], deadline_s: float) -> ExecResult:
        answer = await self._transport.call("POST", self._base + path, body=body, deadline_s=deadline_s)
        return ExecResult.model_validate(answer.json())

    # Tools and skills.

    async def servers(self) -> models.ServersAnswer:
        """The MCP servers whose tools the thread may use."""
        return models.ServersAnswer.model_validate(await self._get("/servers"))

    async def search_tools(
        self,
        query: str,
        *,
        server: str | None = None,
        detail: Detail | None = None,
        limit: int | None = None,
        output_schema: bool | None = None,
    ) -> models.ToolSearch:
        """At most limit tools, best first; without a limit 15, and with full the few that fit best: also names the others."""
        answer = await self._get("/tools", query=query, server=server, detail=detail, limit=limit, output_schema=output_schema)
        return models.ToolSearch.model_validate(answer)

    async def server_tools(self, server: str) -> Sequence[models.ToolFound]:
        """All tools of one MCP server."""
        return models.PageToolFound.model_validate(await self._get(f"/servers/{quote(server, safe='')}/tools")).items

    async def call_tool(
        self,
        tool: str,
        input: Mapping[str, Any] | None = None,
        *,
        server: str | None = None,
        content: bool = False,
        deadline_s: float = constants.DEFAULT_WAIT_S,
    ) -> models.ToolResult:
        """Calls a tool by its printed name (server__tool), or by server and its own name. It is never called twice.

        With content the result has the MCP server's own blocks of content, too: images, for instance.
        """
        body = given(tool=tool, server=server, input=dict(input or {}), content=content or None)
        return models.ToolResult.model_validate(
            (await self._transport.call("POST", self._base + "/tools/call", body=body, deadline_s=deadline_s)).json()
        )

    async def activate_tool(self, tool: str) -> models.ToolFound:
        """Puts the definition of a tool (server__tool) before the thread's agent, until it is put away."""
        return models.ToolFound.model_validate((await self._transport.call("PUT", self._active_tool(tool))).json())

    async def put_away_tool(self, tool: str) -> None:
        """Takes a tool out of the active ones, which info() lists."""
        await self._transport.call("DELETE", self._active_tool(tool))

    def _active_tool(self, tool: str) -> str:
        return f"{self._base}/tools/active/{quote(tool, safe='')}"

    async def prompt(self) -> models.Prompt:
        """The text that tells an agent of its skills and tools, and the tools to register."""
        return models.Prompt.model_validate(await self._get("/prompt"))

    async def events(self, after: str = "", *, deadline_s: float | None = None) -> AsyncIterator[models.ThreadEvent]:
        """What happens in the thread, as it happens: behind the event with the id after, or from now on.

        The first event is started, or reset where events are missing: read the thread's state anew. A connection that is lost is
        made again, and goes on where it was. It ends when the thread is deleted; DeadlineExceeded after deadline_s, when that is given.
        """
        ends = None if deadline_s is None else time.monotonic() + deadline_s
        failing: float | None = None
        patience = max(constants.TAKE_UP_FOR_S, self._transport.timeout_s)
        while True:
            left = constants.TRANSFER_S if ends is None else ends - time.monotonic()
            if left <= 0:
                raise errors.DeadlineExceeded(f"thread {self.id}: its events were followed for {deadline_s:g} s")
            broke: Exception | None = None
            try:
                async for message in self._transport.events(
                    "GET", self._base + "/events", params={"after": after or None}, deadline_s=left
                ):
                    if message.event == constants.EVENT_END:
                        return
                    if message.event == constants.EVENT_ERROR:
                        raise errors.from_answer(int(json.loads(message.data).get("status", 500)), {}, message.data.encode())
                    after, failing = message.id, None
                    yield models.ThreadEvent.model_validate_json(message.data)
            except httpx.HTTPError as err:
                broke = errors.ConnectionFailed(f"thread {self.id}: its events were cut off ({type(err).__name__}: {err})")
            except errors.ConnectionFailed as err:
                broke = err
            except errors.APIError as err:
                if err.status < 500 and err.status not in constants.PASSING_STATUSES:
                    raise
                broke = err
            except errors.DeadlineExceeded:
                if ends is not None:
                    raise
            if broke is not None:
                failing = failing if failing is not None else time.monotonic()
                if time.monotonic() - failing > patience:
                    raise broke
            await asyncio.sleep(constants.TAKE_UP_PAUSE_S)

    async def search_skills(self, query: str = "") -> models.FoundSkills:
        return models.FoundSkills.model_validate(await self._get("/skills", query=query))

    async def add_skill(self, name: str, description: str, body: str, *, files: Mapping[str, str] | None = None) -> models.VirtualSkill:
        """A skill that only this thread has."""
        sent = given(name=name, description=description, body=body, files=files)
        return models.VirtualSkill.model_validate((await self._transport.call("POST", self._base + "/skills", body=sent)).json())

    async def skill(self, folder: str | os.PathLike[str]) -> models.VirtualSkill:
        """Attaches a skill's folder of this machine to the thread, as it is now, in place of what was attached under its name.

        The thread alone has it, in the server's memory. The folder is not needed afterwards.
        """
        answer = await self._transport.call("POST", self._base + "/skills", body=skill_of(folder))
        return models.VirtualSkill.model_validate(answer.json())

    async def install_skill(self, path: str) -> models.SkillInstalled:
        """Installs a .skill file that lies in the thread."""
        body = {"thread_id": self.id, "path": path}
        return models.SkillInstalled.model_validate((await self._transport.call("POST", "/api/skills/install", body=body)).json())

    async def remove_skill(self, name: str) -> None:
        await self._transport.call("DELETE", self._skill(name))

    async def activate_skill(self, name: str) -> models.ActiveSkill:
        """A skill's instructions, ready for the model."""
        return models.ActiveSkill.model_validate((await self._transport.call("POST", self._skill(name) + "/activate")).json())

    async def read_skill_file(self, name: str, path: str) -> models.SkillFile:
        return models.SkillFile.model_validate(
            (await self._transport.call("GET", self._skill(name) + "/files", params={"path": path})).json()
        )

    async def run_skill(
        self,
        name: str,
        script: str | None = None,
        args: Sequence[str] = (),
        *,
        module: str | None = None,
        cwd: str | None = None,
        stdin: str | None = None,
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
        env_secrets: Mapping[str, str] | None = None,
        redact_env: bool | None = None,
        deadline_s: float | None = None,
    ) -> ExecResult:
        """Runs a script of a skill, or a Python module of it: "scripts.report" as python -m does."""
        body = given(
            script=script,
            module=module,
            args=list(args),
            cwd=cwd,
            stdin=stdin,
            timeout_s=timeout_s,
            env=env,
            env_secrets=env_secrets,
            redact_env=redact_env,
        )
        answer = await self._transport.call(
            "POST", self._skill(name) + "/run", body=body, deadline_s=deadline_of(deadline_s, timeout_s, constants.EXEC_TIMEOUT_S)
        )
        return ExecResult.model_validate(answer.json())

    async def command(self, plugin: str, command: str, args: str = "") -> models.PluginMessage:
        """The text of a plugin's command, with args put in."""
        path = f"{self._base}/commands/{quote(plugin, safe='')}/{quote(command, safe='')}"
        return models.PluginMessage.model_validate(
            (await self._transport.call("POST", path, body={"args": args}, deadline_s=constants.DEFAULT_WAIT_S)).json()
        )

    async def typed_command(self, text: str) -> models.TypedCommand:
        """The text of the command that a user typed, such as "/sales:call-prep Acme", or the message as it came."""
        answer = await self._transport.call("POST", self._base + "/commands", body={"text": text}, deadline_s=constants.DEFAULT_WAIT_S)
        return models.TypedCommand.model_validate(answer.json())

    def _skill(self, name: str) -> str:
        return f"{self._base}/skills/{quote(name, safe='')}"

    async def _get(self, path: str, **params: str | int | None) -> object:
        return (await self._transport.call("GET", self._base + path, params=params)).json()
