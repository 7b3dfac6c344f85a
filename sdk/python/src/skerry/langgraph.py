"""Skerry's tools for LangGraph, each bound to the thread of the run that calls it.

    from skerry import Client
    from skerry.langgraph import Toolkit

    toolkit = Toolkit(Client())
    offer = toolkit.offer(config)             # before each call of the model: what the server offers the run's thread now
    model.bind_tools(offer.tools).invoke([SystemMessage(offer.text), *messages])
    graph.add_node("tools", toolkit.node())   # calls what was offered, whatever it was

An agent of langchain.create_agent takes skerry.langchain.SkerryMiddleware instead, which does both.

The thread_id of the run's config names the Skerry thread: what belongs to one conversation stays with it, in a checkpoint that is
taken up by another process, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from skerry._versions import require

require("skerry.langgraph", "langgraph", "1.2", "2")
require("skerry.langgraph", "langchain-core", "1.4", "2")

from langchain_core.runnables import RunnableConfig, ensure_config  # noqa: E402
from langchain_core.tools import BaseTool, StructuredTool, ToolException  # noqa: E402
from langgraph.prebuilt import ToolNode  # noqa: E402
from langgraph.prebuilt.tool_node import ToolCallRequest  # noqa: E402
from pydantic import BaseModel, Field, PrivateAttr  # noqa: E402

from skerry import models  # noqa: E402
from skerry._async.agent_tools import AgentTools as AsyncAgentTools  # noqa: E402
from skerry._async.client import AsyncClient  # noqa: E402
from skerry._async.thread import Thread as AsyncThread  # noqa: E402
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
from skerry._schemas import bindable  # noqa: E402
from skerry._sync.agent_tools import AgentTools  # noqa: E402
from skerry._sync.client import Client  # noqa: E402
from skerry._sync.thread import Thread  # noqa: E402
from skerry._tool_results import ToolError  # noqa: E402
from skerry.errors import SkerryError  # noqa: E402


class Bash(BaseModel):
    """Run a shell command in the sandbox of this conversation. Files in /mnt/user-data are kept."""

    command: str
    timeout_s: float = Field(EXEC_TIMEOUT_S, gt=0, le=MAX_EXEC_TIMEOUT_S, description="Seconds until it is ended")


class ExecuteCode(BaseModel):
    """Run code in the sandbox. TypeScript, JavaScript and Python can call tools: import them from './servers/<server>'
    (Python: from servers.<server> import …), or use callMCPTool(name, input) (Python: call_mcp_tool). Print what you want to see."""

    code: str
    language: Literal["typescript", "javascript", "python", "bash"] | None = Field(
        None, description="typescript, if the server has no other"
    )
    timeout: float | None = Field(None, gt=0, le=MAX_CODE_TIMEOUT_S, description=f"Seconds until it is ended; {CODE_TIMEOUT_S:g} as a rule")


class ListServers(BaseModel):
    """List the MCP servers whose tools code can call."""


class SearchTools(BaseModel):
    """Search the tools that code can call, best first. detail full has the parameters of the best few, and names the next. A text that
    ends in … is whole in the file at wrapper_path."""

    query: str = Field(description="What the tool should do")
    server: str | None = Field(None, description="Only tools of this server")
    detail: Literal["name", "desc", "full"] = "desc"
    limit: int | None = Field(None, ge=1, le=15, description="How many tools to describe")
    output_schema: bool = Field(False, description="With full: the schemas of results too")


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


class CallSkillTool(BaseModel):
    """Call a tool that belongs to an active skill. activate_skill shows which there are."""

    skill: str
    tool: str = Field(description="Its name within the skill")
    input: dict[str, Any] = Field(description="As the input schema of the tool says")


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
    "call_skill_tool": CallSkillTool,
    "read_skill_file": ReadSkillFile,
    "run_skill": RunSkill,
}


# What the prompt tells of is bound when it tells of it, as it describes it.
TOLD = ("execute_code", "list_servers", "search_tools", "search_skills", "activate_skill", "call_skill_tool", "read_skill_file")
OWN = tuple(name for name in SCHEMAS if name not in TOLD)

OPEN = {"type": "object", "properties": {}, "additionalProperties": True}


def thread_id(config: RunnableConfig) -> str:
    """The Skerry thread of a run."""
    found = (config.get("configurable") or {}).get("thread_id")
    if not found:
        raise ValueError('the run has no thread: give it config={"configurable": {"thread_id": …}}, as for a checkpointer')
    return str(found)


class SkerryTool(StructuredTool):
    """A tool that the server carries out: one of Skerry's own, or one of an MCP server.

    The model's arguments are passed on by their names, whatever these are: no parameter of this class can be meant.
    """

    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    handle_tool_error: Any = True
    _source: Source = PrivateAttr()

    @classmethod
    def of(cls, source: Source, name: str, description: str, schema: type[BaseModel] | dict[str, Any], **more: Any) -> SkerryTool:
        tool = cls(name=name, description=description, args_schema=schema, **more)
        tool._source = source
        return tool

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return await BaseTool.ainvoke(self, input, config, **kwargs)  # StructuredTool's own wants a coroutine

    def _run(self, /, *_: Any, **arguments: Any) -> Any:
        tools = AgentTools(self._source.thread(ensure_config()))
        try:
            if self.name not in SCHEMAS:
                return tools.call(self.name, arguments)
            answer = getattr(tools, self.name)(**checked(self.name, arguments))
            return answer if isinstance(answer, tuple) else (answer, None)
        except (SkerryError, ToolError) as err:
            raise ToolException(said(err)) from err

    async def _arun(self, /, *_: Any, **arguments: Any) -> Any:
        tools = AsyncAgentTools(self._source.athread(ensure_config()))
        try:
            if self.name not in SCHEMAS:
                return await tools.call(self.name, arguments)
            answer = await getattr(tools, self.name)(**checked(self.name, arguments))
            return answer if isinstance(answer, tuple) else (answer, None)
        except (SkerryError, ToolError) as err:
            raise ToolException(said(err)) from err


def checked(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a tool of Skerry's, as its parameters are. Wrong ones are a ValidationError, which goes back to the model."""
    found = SCHEMAS[name].model_validate(arguments)
    return {k: getattr(found, k) for k in type(found).model_fields if k in found.model_fields_set}


def said(err: Exception) -> str:
    return str(err) if isinstance(err, ToolError) else f"Error: {err}"


class Source:
    """Finds the thread of a call: the run's own, or one that is fixed."""

    def __init__(self, of: Client | Thread, async_client: AsyncClient | None) -> None:
        self._of = of
        self._twins = AsyncTwins(of._transport if isinstance(of, Thread) else of, async_client)

    def thread(self, config: RunnableConfig) -> Thread:
        return self._of if isinstance(self._of, Thread) else self._of.thread(thread_id(config))

    def athread(self, config: RunnableConfig) -> AsyncThread:
        return self._twins.client().thread(self._of.id if isinstance(self._of, Thread) else thread_id(config))


@dataclass(frozen=True)
class Offer:
    """What the server offers a thread at one moment. Text and tools are of one answer, so they speak of the same."""

    text: str  # for the system prompt
    mode: str  # "direct": the model calls each tool itself; "code": it calls tools by execute_code
    tools: list[BaseTool]  # to bind


class Toolkit:
    """The tools of a thread: those for commands and files, and what the thread's prompt tells of.

    of is a client (each run then works in the thread of its config) or one thread. names are the tools for commands, files and scripts of
    skills that a model gets, all when absent; what the prompt tells of, it always gets. With deferred it also gets the tools that are
    marked as defer_loading, for providers that search by themselves. Async calls have connections of their own, for each event
    loop, or those of async_client.
    """

    def __init__(
        self,
        of: Client | Thread,
        names: Sequence[str] | None = None,
        *,
        deferred: bool = False,
        async_client: AsyncClient | None = None,
    ) -> None:
        self._source = Source(of, async_client)
        self._deferred = deferred
        known(names)
        self.tools: list[BaseTool] = [self._own(name) for name in OWN if names is None or name in names]

    def offer(self, config: RunnableConfig | None = None) -> Offer:
        """Asks the server what it offers the run's thread now. Ask before each call of the model: tools come and go."""
        return self._offer(self._source.thread(config or {}).prompt())

    async def aoffer(self, config: RunnableConfig | None = None) -> Offer:
        """As offer."""
        return self._offer(await self._source.athread(config or {}).prompt())

    def _offer(self, prompt: models.Prompt) -> Offer:
        told = [self._bound(d) for d in prompt.tools if (self._deferred or not d.defer_loading) and is_skerrys(d.name)]
        names = {t.name for t in told}
        return Offer(prompt.text, prompt.mode, [*(t for t in self.tools if t.name not in names), *told])

    def _bound(self, d: models.ToolDefinition) -> BaseTool:
        extras = {"defer_loading": True} if d.defer_loading else None
        return SkerryTool.of(self._source, d.name, d.description, bindable(d.input_schema), extras=extras)

    def _own(self, name: str) -> BaseTool:
        schema = SCHEMAS[name]
        return SkerryTool.of(self._source, name, schema.__doc__ or "", schema)

    def node(self, tools: Sequence[BaseTool | Callable[..., Any]] = ()) -> ToolNode:
        """A node that calls the tools of this kit, also those that were offered after the graph was made, and the given ones."""
        return ToolNode([*self.tools, *tools], wrap_tool_call=self.wrap_tool_call, awrap_tool_call=self.awrap_tool_call)

    def wrap_tool_call(self, request: ToolCallRequest, execute: Callable[[ToolCallRequest], Any]) -> Any:
        """Finds the tool of a call that the node was not made with. One that is gone is an error for the model to read."""
        return execute(self._found(request))

    async def awrap_tool_call(self, request: ToolCallRequest, execute: Callable[[ToolCallRequest], Awaitable[Any]]) -> Any:
        """As wrap_tool_call."""
        return await execute(self._found(request))

    def _found(self, request: ToolCallRequest) -> ToolCallRequest:
        name = request.tool_call["name"]
        if request.tool is not None or not is_skerrys(name):
            return request
        return request.override(tool=SkerryTool.of(self._source, name, "", SCHEMAS.get(name, OPEN)))


def is_skerrys(name: str) -> bool:
    """Whether a tool is one that this package can call: one of an MCP server has __ in its name, behind the server's."""
    return "__" in name or name in SCHEMAS


def known(names: Sequence[str] | None) -> None:
    if unknown := set(names or ()) - set(SCHEMAS):
        raise ValueError(f"no such tools: {', '.join(sorted(unknown))}; there are {', '.join(SCHEMAS)}")


def tools(of: Client | Thread, names: Sequence[str] | None = None, *, async_client: AsyncClient | None = None) -> list[BaseTool]:
    """Of a thread: the tools that a model gets in it now, with those that its prompt tells of. Of a client: Skerry's own tools, or those of
    names in that order, each for the thread of the run that calls it; a client alone does not know which tools of MCP servers there are.

    An error of the server is the tool's answer to the model, with status error. See Toolkit for tools that come and go.
    """
    toolkit = Toolkit(of, names, async_client=async_client)
    if isinstance(of, Thread):
        return toolkit.offer().tools
    return [toolkit._own(name) for name in (SCHEMAS if names is None else names)]


def typed_message(client: Client, text: str, config: RunnableConfig) -> str:
    """What the agent gets for a message of a user: the text of the command that it is ("/sales:call-prep Acme"), or itself.

    The server is not asked about a message that does not begin with a slash.
    """
    return client.thread(thread_id(config)).typed_command(text).message if text.lstrip().startswith("/") else text


async def atyped_message(client: Client, text: str, config: RunnableConfig) -> str:
    """As typed_message."""
    if not text.lstrip().startswith("/"):
        return text
    async with AsyncTwins(client).client() as twin:
        return (await twin.thread(thread_id(config)).typed_command(text)).message


__all__ = ["SCHEMAS", "Offer", "SkerryTool", "Toolkit", "atyped_message", "thread_id", "tools", "typed_message"]
