"""What an agent's tools do in its thread. Each returns the text that the model reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from skerry._async.thread import Thread
from skerry._constants import EXEC_TIMEOUT_S, READ_LINES, USER_DATA, WORKSPACE
from skerry._results import ExecResult
from skerry._tool_results import Content, ToolError, content_of, text_of
from skerry.errors import NotFound


class AgentTools:
    def __init__(self, thread: Thread) -> None:
        self._thread = thread

    async def bash(self, command: str, timeout_s: float = EXEC_TIMEOUT_S) -> str:
        return shown(await self._thread.exec(command, timeout_s=timeout_s, max_output_bytes=100_000))

    async def execute_code(
        self, code: str, language: Literal["typescript", "javascript", "python", "bash", "wasm"] | None = None, timeout: float | None = None
    ) -> str:
        r = await self._thread.execute_code(code, language=language, timeout_s=timeout)
        said: dict[str, Any] = {"status": r.status, "exit_code": r.exit_code, "stdout": r.stdout, "stderr": r.stderr}
        said["tools_called"] = [call.model_dump(exclude_none=True) for call in r.tools_called or []]
        if r.files:
            said["files"] = [f"{f.change} {f.path} ({f.bytes} bytes)" for f in r.files]
        return as_json(said)

    async def list_servers(self) -> str:
        return as_json((await self._thread.servers()).model_dump(exclude_none=True))

    async def search_tools(
        self,
        query: str,
        server: str | None = None,
        detail: Literal["name", "desc", "full"] = "desc",
        limit: int | None = None,
        output_schema: bool = False,
    ) -> str:
        found = await self._thread.search_tools(query, server=server, detail=detail, limit=limit, output_schema=output_schema)
        return as_json(found.model_dump(exclude_none=True))

    async def read_file(self, path: str, offset: int = 0, limit: int = READ_LINES) -> str:
        text = await self._thread.files.read(path, offset=offset, limit=min(limit, READ_LINES))
        if text.encoding != "utf-8":
            return f"{path} is no text: it has {text.bytes} bytes"
        more = (
            f"\n[Lines {text.start_line} to {text.end_line} of {text.total_lines}; go on with offset {text.next_offset}.]"
            if text.next_offset
            else ""
        )
        return text.content + more

    async def write_file(self, path: str, content: str) -> str:
        return f"wrote {(await self._thread.files.write(path, content)).bytes} bytes to {path}"

    async def edit_file(self, path: str, old: str, new: str, replace_all: bool = False) -> str:
        edited = await self._thread.files.edit(path, old, new, replace_all=replace_all)
        return f"replaced {edited.occurrences} in {path}"

    async def list_files(self, path: str = USER_DATA, depth: int = 1) -> str:
        listing = await self._thread.files.list(path, depth=depth, limit=1000)
        return lines([f"{e.path}/" if e.is_dir else f"{e.path} ({e.bytes} bytes)" for e in listing.items], listing.truncated)

    async def glob_files(self, pattern: str, path: str = WORKSPACE) -> str:
        found = await self._thread.files.glob(pattern, path)
        return lines([e.path for e in found.items[:1000]], found.truncated or len(found.items) > 1000)

    async def grep_files(self, pattern: str, path: str = WORKSPACE, regex: bool = False, glob: str | None = None) -> str:
        found = await self._thread.files.grep(pattern, path, regex=regex, glob=glob, max=200)
        return lines([f"{m.path}:{m.line}: {m.text}" for m in found.items], found.truncated)

    async def search_skills(self, query: str = "") -> str:
        return as_json((await self._thread.search_skills(query)).model_dump(exclude_none=True))

    async def activate_skill(self, name: str) -> str:
        return (await self._thread.activate_skill(name)).content

    async def read_skill_file(self, skill: str, path: str) -> str:
        file = await self._thread.read_skill_file(skill, path)
        return file.text if file.text is not None else f"{file.location} is no text of at most 1 MiB: use it in the sandbox"

    async def run_skill(self, skill: str, script: str, args: Sequence[str] = (), timeout_s: float = EXEC_TIMEOUT_S) -> str:
        return shown(await self._thread.run_skill(skill, script, args, timeout_s=timeout_s))

    async def call_skill_tool(self, skill: str, tool: str, input: Mapping[str, Any]) -> tuple[Content, dict[str, Any]]:
        return await self.call(tool, input, server=f"skill/{skill}")

    async def call(self, name: str, arguments: Mapping[str, Any], server: str | None = None) -> tuple[Content, dict[str, Any]]:
        """Calls a tool of an MCP server. Returns what the model reads, and what is kept for the program."""
        try:
            result = await self._thread.call_tool(name, arguments, server=server, content=True)
        except NotFound as err:
            raise ToolError(f"Error: {err}. The tools may have changed: use one that you have now.") from err
        content, artifact = content_of(result)
        if result.is_error:
            raise ToolError(content if isinstance(content, str) else text_of(result.result))
        return content, artifact


def shown(r: ExecResult) -> str:
    """An exec as a model reads it."""
    notes = [] if r.ok else [f"[{r.status}" + ("" if r.exit_code is None else f", exit code {r.exit_code}") + "]"]
    if r.truncated:
        notes.append(f"[The output was cut. All of it is in {r.stdout_path or r.stderr_path}.]")
    notes += [f"[{f.change} {f.path}]" for f in r.files]
    return "\n".join([*([r.output.rstrip("\n")] if r.output else []), *notes]) or "[no output]"


def lines(found: list[str], truncated: bool) -> str:
    return "\n".join(found + (["[There are more.]"] if truncated else [])) or "[nothing]"


def as_json(said: Any) -> str:
    return json.dumps(said, ensure_ascii=False)
