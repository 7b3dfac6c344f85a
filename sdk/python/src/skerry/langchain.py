"""Skerry for agents of LangChain: what the server offers a thread is bound before each call of the model.

    from langchain.agents import create_agent
    from skerry import Client
    from skerry.langchain import SkerryMiddleware

    agent = create_agent(model, middleware=[SkerryMiddleware(Client())])
    agent.invoke({"messages": [...]}, {"configurable": {"thread_id": "my-thread"}})

The system prompt says what the tools are that the model gets in the same call, in direct mode and in code mode, also when MCP servers
come and go while the agent runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from skerry._versions import require

require("skerry.langchain", "langchain", "1.4", "2")

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse  # noqa: E402
from langchain_core.messages import SystemMessage  # noqa: E402
from langchain_core.runnables import RunnableConfig  # noqa: E402
from langchain_core.tools import BaseTool  # noqa: E402
from langgraph.config import get_config  # noqa: E402
from langgraph.prebuilt.tool_node import ToolCallRequest  # noqa: E402

from skerry._async.client import AsyncClient  # noqa: E402
from skerry._sync.client import Client  # noqa: E402
from skerry._sync.thread import Thread  # noqa: E402
from skerry.langgraph import Offer, Toolkit  # noqa: E402


class SkerryMiddleware(AgentMiddleware[Any, Any, Any]):
    """Binds the tools of a thread, and adds the thread's prompt to the system message. The parameters are those of Toolkit.

    A tool of the agent's own stays when the server has one of the same name.
    """

    def __init__(
        self,
        of: Client | Thread,
        names: Sequence[str] | None = None,
        *,
        deferred: bool = False,
        async_client: AsyncClient | None = None,
    ) -> None:
        super().__init__()
        self._toolkit = Toolkit(of, names, deferred=deferred, async_client=async_client)
        self.tools = self._toolkit.tools

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]) -> ModelResponse[Any]:
        return handler(with_offer(request, self._toolkit.offer(config_of(request)), self.tools))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        return await handler(with_offer(request, await self._toolkit.aoffer(config_of(request)), self.tools))

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        return self._toolkit.wrap_tool_call(request, handler)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]) -> Any:
        return await self._toolkit.awrap_tool_call(request, handler)


def with_offer(request: ModelRequest[Any], offer: Offer, own: Sequence[BaseTool]) -> ModelRequest[Any]:
    """The request with what the server offers. The agent already has the kit's own tools, less those that another middleware took out."""
    there = {name_of(t) for t in (*request.tools, *own)}
    tools = [*request.tools, *(t for t in offer.tools if t.name not in there)]
    if not offer.text:
        return request.override(tools=tools)
    message = request.system_message or SystemMessage([])
    before = [{"type": "text", "text": message.content}] if isinstance(message.content, str) else message.content
    content = [*before, {"type": "text", "text": offer.text}]
    return request.override(tools=tools, system_message=message.model_copy(update={"content": content}))


def name_of(tool: BaseTool | dict[str, Any]) -> str:
    return tool.name if isinstance(tool, BaseTool) else str(tool.get("name") or tool.get("function", {}).get("name"))


def config_of(request: ModelRequest[Any]) -> RunnableConfig:
    try:
        return get_config()
    except RuntimeError:  # a coroutine before Python 3.11
        info = request.runtime.execution_info
        return {"configurable": {"thread_id": info.thread_id if info else None}}


__all__ = ["SkerryMiddleware"]
