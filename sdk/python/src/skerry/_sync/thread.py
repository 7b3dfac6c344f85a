# Made from the async client by scripts/generate.py.
"""A thread: one conversation, its files, and its sandbox."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

from typing_extensions import Unpack

from skerry import _constants as constants
from skerry import errors, models
from skerry._options import CodeOptions, CommandOptions, code_body, command_body, deadline_of, given
from skerry._results import Event, ExecResult
from skerry._sync.execs import Context, Exec, follow
from skerry._sync.files import Files
from skerry._sync.transport import Transport

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

    def __enter__(self) -> Thread:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    # The sandbox.

    def acquire(
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
            answer = self._transport.call("PUT", self._base + "/sandbox", body=body, deadline_s=left + 5)
            if answer.status != 202:
                return models.SandboxAnswer.model_validate(answer.json()).sandbox
            time.sleep(0.1)

    def release(self) -> None:
        """Ends the sandbox; the files stay. Nothing happens when there is none."""
        try:
            self._transport.call("DELETE", self._base + "/sandbox")
        except errors.NotFound:
            pass

    def delete(self) -> None:
        """Ends the sandbox and deletes the thread with its files."""
        try:
            self._transport.call("DELETE", self._base)
        except errors.NotFound:
            pass

    def pause(self) -> models.Sandbox:
        return self._sandbox("pause")

    def resume(self) -> models.Sandbox:
        return self._sandbox("resume")

    def hibernate(self, *, force: bool = False) -> models.Sandbox:
        return self._sandbox("hibernate", {"force": force})

    def _sandbox(self, what: str, body: Any = None) -> models.Sandbox:
        answer = self._transport.call("POST", f"{self._base}/sandbox/{what}", body=body, deadline_s=constants.DEFAULT_WAIT_S)
        return models.SandboxOnly.model_validate(answer.json()).sandbox

    def info(self) -> models.Thread:
        return models.Thread.model_validate(self._get(""))

    # Running things.

    def exec(self, command: str | Sequence[str], *, deadline_s: float | None = None, **options: Unpack[CommandOptions]) -> ExecResult:
        """Runs a command (by a shell when it is a string) and waits for its end. It is never run twice.

        deadline_s is for the call; when people have to approve what runs, give it more.
        """
        deadline = deadline_of(deadline_s, options.get("timeout_s"), constants.EXEC_TIMEOUT_S)
        return self._run("/exec", command_body(command, options), deadline)

    def stream(
        self, command: str | Sequence[str], *, deadline_s: float | None = None, **options: Unpack[CommandOptions]
    ) -> Iterator[Event]:
        """Runs a command and yields its events as they come, across broken connections; the last one has the result."""
        deadline = deadline_of(deadline_s, options.get("timeout_s"), constants.EXEC_TIMEOUT_S)
        return follow(self._transport, self._base, path=self._base + "/exec", body=command_body(command, options), deadline_s=deadline)

    def start(
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
        result = self._run("/exec", body, constants.DEFAULT_WAIT_S)
        return self.get_exec(result.exec_id)

    def get_exec(self, exec_id: str) -> Exec:
        return Exec(self._transport, self.id, self._base, exec_id)

    def execs(self) -> Sequence[models.ExecInfo]:
        return models.PageExecInfo.model_validate(self._get("/execs")).items

    def execute_code(self, code: str, *, deadline_s: float | None = None, **options: Unpack[CodeOptions]) -> ExecResult:
        """Runs code in a fresh interpreter; it can call the thread's tools. tools_called and files say what it did."""
        return self._run(
            "/execute_code", code_body(code, options), deadline_of(deadline_s, options.get("timeout_s"), constants.MAX_CODE_TIMEOUT_S)
        )

    def stream_code(self, code: str, *, deadline_s: float | None = None, **options: Unpack[CodeOptions]) -> Iterator[Event]:
        """As execute_code, event by event."""
        deadline = deadline_of(deadline_s, options.get("timeout_s"), constants.MAX_CODE_TIMEOUT_S)
        return follow(self._transport, self._base, path=self._base + "/execute_code", body=code_body(code, options), deadline_s=deadline)

    def context(self, language: Literal["python", "typescript", "javascript"] | None = None, *, cwd: str | None = None) -> Context:
        """A new interpreter that keeps its variables. As a context manager it is deleted when it is left."""
        answer = self._transport.call(
            "POST", self._base + "/contexts", body=given(language=language, cwd=cwd), deadline_s=constants.DEFAULT_WAIT_S
        )
        return Context(self._transport, self._base, models.CodeContext.model_validate(answer.json()))

    def contexts(self) -> Sequence[Context]:
        page = models.PageCodeContext.model_validate(self._get("/contexts"))
        return [Context(self._transport, self._base, info) for info in page.items]

    def _run(self, path: str, body: dict[str, Any], deadline_s: float) -> ExecResult:
        answer = self._transport.call("POST", self._base + path, body=body, deadline_s=deadline_s)
        return ExecResult.model_validate(answer.json())

    # Tools and skills.

    def servers(self) -> models.ServersAnswer:
        """The MCP servers whose tools the thread may use."""
        return models.ServersAnswer.model_validate(self._get("/servers"))

    def search_tools(self, query: str, *, server: str | None = None, detail: Detail | None = None) -> models.ToolSearch:
        """At most 15 tools, best first."""
        return models.ToolSearch.model_validate(self._get("/tools", query=query, server=server, detail=detail))

    def server_tools(self, server: str) -> Sequence[models.ToolFound]:
        """All tools of one MCP server."""
        return models.PageToolFound.model_validate(self._get(f"/servers/{quote(server, safe='')}/tools")).items

    def call_tool(
        self, tool: str, input: Mapping[str, Any] | None = None, *, server: str | None = None, deadline_s: float = constants.DEFAULT_WAIT_S
    ) -> models.ToolResult:
        """Calls a tool by its printed name (server__tool), or by server and its own name. It is never called twice."""
        body = given(tool=tool, server=server, input=dict(input or {}))
        return models.ToolResult.model_validate(
            (self._transport.call("POST", self._base + "/tools/call", body=body, deadline_s=deadline_s)).json()
        )

    def prompt(self) -> models.Prompt:
        """The text that tells an agent of its skills and tools, and the tools to register."""
        return models.Prompt.model_validate(self._get("/prompt"))

    def search_skills(self, query: str = "") -> models.FoundSkills:
        return models.FoundSkills.model_validate(self._get("/skills", query=query))

    def add_skill(self, name: str, description: str, body: str, *, files: Mapping[str, str] | None = None) -> models.VirtualSkill:
        """A skill that only this thread has."""
        sent = given(name=name, description=description, body=body, files=files)
        return models.VirtualSkill.model_validate((self._transport.call("POST", self._base + "/skills", body=sent)).json())

    def install_skill(self, path: str) -> models.SkillInstalled:
        """Installs a .skill file that lies in the thread."""
        body = {"thread_id": self.id, "path": path}
        return models.SkillInstalled.model_validate((self._transport.call("POST", "/api/skills/install", body=body)).json())

    def remove_skill(self, name: str) -> None:
        self._transport.call("DELETE", self._skill(name))

    def activate_skill(self, name: str) -> models.ActiveSkill:
        """A skill's instructions, ready for the model."""
        return models.ActiveSkill.model_validate((self._transport.call("POST", self._skill(name) + "/activate")).json())

    def read_skill_file(self, name: str, path: str) -> models.SkillFile:
        return models.SkillFile.model_validate((self._transport.call("GET", self._skill(name) + "/files", params={"path": path})).json())

    def run_skill(
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
        deadline_s: float | None = None,
    ) -> ExecResult:
        """Runs a script of a skill, or a Python module of it: "scripts.report" as python -m does."""
        body = given(
            script=script, module=module, args=list(args), cwd=cwd, stdin=stdin, timeout_s=timeout_s, env=env, env_secrets=env_secrets
        )
        answer = self._transport.call(
            "POST", self._skill(name) + "/run", body=body, deadline_s=deadline_of(deadline_s, timeout_s, constants.EXEC_TIMEOUT_S)
        )
        return ExecResult.model_validate(answer.json())

    def command(self, plugin: str, command: str, args: str = "") -> models.PluginMessage:
        """The text of a plugin's command, with args put in."""
        path = f"{self._base}/commands/{quote(plugin, safe='')}/{quote(command, safe='')}"
        return models.PluginMessage.model_validate(
            (self._transport.call("POST", path, body={"args": args}, deadline_s=constants.DEFAULT_WAIT_S)).json()
        )

    def _skill(self, name: str) -> str:
        return f"{self._base}/skills/{quote(name, safe='')}"

    def _get(self, path: str, **params: str | int | None) -> object:
        return (self._transport.call("GET", self._base + path, params=params)).json()
