"""Skerry's tools for LangGraph, each bound to the thread of the run that calls it.

    from langgraph.prebuilt import ToolNode
    from skerry import Client
    from skerry.langgraph import prompt_section, tools

    node = ToolNode(tools(Client()))
    graph.invoke(..., config={"configurable": {"thread_id": "my-thread"}})

The thread_id of the run's config names the Skerry thread: what belongs to one conversation stays with it, in a checkpoint that is
taken up by another process, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

from skerry._versions import require

require("skerry.langgraph", "langgraph", "1.2", "2")
require("skerry.langgraph", "langchain-core", "1.4", "2")

from langchain_core.runnables import RunnableConfig  # noqa: E402
from langchain_core.tools import BaseTool, StructuredTool, ToolException  # noqa: E402
from pydantic import BaseModel, Field  # noqa: E402

from skerry._async.agent_tools import AgentTools as AsyncAgentTools  # noqa: E402
from skerry._async.client import AsyncClient  # noqa: E402
from skerry._constants import (  # noqa: E402
    CODE_TIMEOUT_S,
    EXEC_TIMEOUT_S,
    MAX_CODE_TIMEOUT_S,
    MAX_EXEC_TIMEOUT_S,
    READ_LINES,
    USER_DATA,
    WORKSPACE,
)
from skerry._loops import AsyncTwins  # noqa: E402
from skerry._sync.agent_tools import AgentTools  # noqa: E402
from skerry._sync.client import Client  # noqa: E402
from skerry.errors import SkerryError  # noqa: E402


class Bash(BaseModel):
    """Run a shell command in the sandbox of this conversation. Files in /mnt/user-data are kept."""

    command: str
    timeout_s: float = Field(EXEC_TIMEOUT_S, gt=0, le=MAX_EXEC_TIMEOUT_S, description="Seconds until it is ended")


class ExecuteCode(BaseModel):
    """Run code in the sandbox. TypeScript, JavaScript and Python can call tools: import them from './servers/<server>'
    (Python: from servers.<server> import …), or use callMCPTool(name, input) (Python: call_mcp_tool). Print what you want to see."""

    code: str
    language: Literal["typescript", "javascript", "python", "bash"] = "typescript"
    timeout: float = Field(CODE_TIMEOUT_S, gt=0, le=MAX_CODE_TIMEOUT_S, description="Seconds until it is ended")


class ListServers(BaseModel):
    """List the MCP servers whose tools code can call."""


class SearchTools(BaseModel):
    """Search the tools that code can call. At most 15, best first; detail full has their parameters."""

    query: str = Field(description="What the tool should do")
    server: str | None = Field(None, description="Only tools of this server")
    detail: Literal["name", "desc", "full"] = "desc"


class ReadFile(BaseModel):
    """Read lines of a text file."""

    path: str = Field(description="Absolute, below /mnt/user-data, /mnt/skills, /mnt/plugins or /mnt/code-api")
    offset: int = Field(0, ge=0, description="Lines to pass over")
    limit: int = Field(READ_LINES, ge=1, le=READ_LINES)


class WriteFile(BaseModel):
    """Write a text file whole; its folders are made."""

    path: str = Field(description="Absolute, below /mnt/user-data")
    content: str


class EditFile(BaseModel):
    """Replace a text in a file. It must be there once, unless replace_all."""

    path: str = Field(description="Absolute, below /mnt/user-data")
    old: str
    new: str
    replace_all: bool = False


class ListFiles(BaseModel):
    """List a folder."""

    path: str = USER_DATA
    depth: int = Field(1, ge=1, le=64)


class GlobFiles(BaseModel):
    """Find files and folders by a pattern such as **/*.py."""

    pattern: str
    path: str = WORKSPACE


class GrepFiles(BaseModel):
    """Find lines in text files."""

    pattern: str = Field(description="Taken literally, unless regex")
    path: str = WORKSPACE
    regex: bool = Field(False, description="pattern is an RE2 expression")
    glob: str | None = Field(None, description="Only files that match")


class SearchSkills(BaseModel):
    """Search the skills: instructions for particular tasks. Without a query, all."""

    query: str = ""


class ActivateSkill(BaseModel):
    """Get the instructions of a skill, with its folder and the list of its files."""

    name: str


class ReadSkillFile(BaseModel):
    """Read a text file of a skill."""

    skill: str
    path: str = Field(description="Relative to the skill's folder")


class RunSkill(BaseModel):
    """Run a script of a skill in the sandbox."""

    skill: str
    script: str = Field(description="Relative to the skill's folder, such as scripts/extract.py")
    args: list[str] = []
    timeout_s: float = Field(EXEC_TIMEOUT_S, gt=0, le=MAX_EXEC_TIMEOUT_S)


SCHEMAS: dict[str, type[BaseModel]] = {
    "bash": Bash,
    "execute_code": ExecuteCode,
    "list_servers": ListServers,
    "search_tools": SearchTools,
    "read_file": ReadFile,
    "write_file": WriteFile,
    "edit_file": EditFile,
    "list_files": ListFiles,
    "glob_files": GlobFiles,
    "grep_files": GrepFiles,
    "search_skills": SearchSkills,
    "activate_skill": ActivateSkill,
    "read_skill_file": ReadSkillFile,
    "run_skill": RunSkill,
}


def thread_id(config: RunnableConfig) -> str:
    """The Skerry thread of a run."""
    found = (config.get("configurable") or {}).get("thread_id")
    if not found:
        raise ValueError('the run has no thread: give it config={"configurable": {"thread_id": …}}, as for a checkpointer')
    return str(found)


def tools(client: Client, names: Sequence[str] | None = None, *, async_client: AsyncClient | None = None) -> list[BaseTool]:
    """The tools, or those of names, in that order. An error of the server is the tool's answer to the model, with status error.

    Async calls have connections of their own, for each event loop, or those of async_client.
    """
    unknown = set(names or ()) - set(SCHEMAS)
    if unknown:
        raise ValueError(f"no such tools: {', '.join(sorted(unknown))}; there are {', '.join(SCHEMAS)}")
    twins = AsyncTwins(client, async_client)
    return [tool(client, twins, name) for name in (SCHEMAS if names is None else names)]


def tool(client: Client, twins: AsyncTwins, name: str) -> BaseTool:
    def run(*, config: RunnableConfig, **args: Any) -> str:
        call = getattr(AgentTools(client.thread(thread_id(config))), name)
        try:
            return cast(str, call(**args))
        except SkerryError as err:
            raise ToolException(f"Error: {err}") from err

    async def arun(*, config: RunnableConfig, **args: Any) -> str:
        call = getattr(AsyncAgentTools(twins.client().thread(thread_id(config))), name)
        try:
            return cast(str, await call(**args))
        except SkerryError as err:
            raise ToolException(f"Error: {err}") from err

    schema = SCHEMAS[name]
    return StructuredTool(
        name=name,
        description=schema.__doc__ or "",
        args_schema=schema,
        func=run,
        coroutine=arun,
        handle_tool_error=True,
        response_format="content",
    )


def prompt_section(client: Client, config: RunnableConfig) -> str:
    """What the system prompt should say of the thread's skills, commands and tools."""
    return client.thread(thread_id(config)).prompt().text


async def aprompt_section(client: Client, config: RunnableConfig) -> str:
    """As prompt_section."""
    async with AsyncTwins(client).client() as twin:
        return (await twin.thread(thread_id(config)).prompt()).text


__all__ = ["SCHEMAS", "aprompt_section", "prompt_section", "thread_id", "tools"]
