"""Skills of a thread whose tools are functions of this process."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Iterator

import pytest
from langchain_core.messages import AIMessage, ToolCall
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph

from skerry import APIError, AsyncClient, Client, Thread
from skerry.errors import Conflict, SkerryError
from skerry.langgraph import Toolkit
from skerry.packs import SkillTool, ToolError, VirtualSkill, caller
from tests.conftest import Server
from tests.test_packs import eventually


def count_lines(text: str) -> dict[str, int]:
    """Counts the lines of a text"""
    if not text:
        raise ToolError("there is no text")
    return {"lines": text.count("\n") + 1}


async def whose() -> str:
    return caller().thread


def review() -> VirtualSkill:
    tools = [SkillTool(count_lines, name="count-lines"), SkillTool(whose, description="Says whose thread it is")]
    return VirtualSkill("code-review", "Reviews code", "Count the lines first.", tools=tools)


@contextlib.contextmanager
def refused(code: str) -> Iterator[None]:
    with pytest.raises(APIError) as err:
        yield
    assert err.value.code == code


def test_a_skill_with_functions_of_this_program(client: Client, thread: Thread) -> None:
    with review().attach(thread) as attached:
        with refused("conflict"):  # before it is activated
            thread.call_tool("count-lines", {"text": "a"}, server="skill/code-review")
        told = thread.activate_skill("code-review").content
        assert "Count the lines first." in told and "count-lines" in told and "Says whose thread it is" in told
        assert thread.call_tool("count-lines", {"text": "a\nb"}, server="skill/code-review").result == {"lines": 2}
        assert thread.call_tool("whose", server="skill/code-review").result == thread.id
        failed = thread.call_tool("count-lines", {"text": ""}, server="skill/code-review")
        assert (failed.is_error, failed.result) == (True, "there is no text")
        done = thread.execute_code("from skills.code_review import count_lines\nprint(count_lines(text='x')['lines'])", language="python")
        assert done.stdout == "1\n", done.stderr
        with pytest.raises(Conflict), review().attach(thread):
            pass
        assert attached.error is None
    assert "code-review" not in [s.name for s in thread.search_skills().skills]


def test_a_definition_serves_many_threads(client: Client) -> None:
    skill = review()
    threads = [client.thread("t-" + uuid.uuid4().hex[:12]) for _ in range(3)]
    with contextlib.ExitStack() as stack:
        for t in threads:
            stack.callback(t.delete)
            stack.enter_context(skill.attach(t))
        for t in threads:
            t.activate_skill("code-review")
            assert t.call_tool("whose", server="skill/code-review").result == t.id


async def test_a_thread_of_an_async_client(server: Server) -> None:
    async with AsyncClient(server.url) as client:
        thread = client.thread("t-" + uuid.uuid4().hex[:12])
        async with review().attach(thread) as attached:
            await thread.activate_skill("code-review")
            assert (await thread.call_tool("count-lines", {"text": "a"}, server="skill/code-review")).result == {"lines": 1}
            await thread.remove_skill("code-review")
            await asyncio.to_thread(eventually, "what another has removed is not put back", lambda: attached.error is not None)
        await thread.delete()


def test_it_is_attached_again_when_the_server_has_lost_it() -> None:
    server = Server()
    try:
        with Client(server.url) as client:
            thread = client.thread("t-lost")
            with review().attach(thread) as attached:
                thread.activate_skill("code-review")
                server.kill()
                server.start()

                def back() -> bool:
                    with contextlib.suppress(SkerryError):  # it is away, and OutcomeUnknown says so of a call
                        return bool(thread.call_tool("count-lines", {"text": "a"}, server="skill/code-review").result == {"lines": 1})
                    return False

                eventually("the skill is back, and active", back)
                assert attached.error is None
    finally:
        server.stop()


def test_an_agent_of_langgraph_calls_it(client: Client, thread: Thread) -> None:
    config: RunnableConfig = {"configurable": {"thread_id": thread.id}}
    toolkit = Toolkit(client, [])
    assert "call_skill_tool" not in [t.name for t in toolkit.offer(config).tools]
    with review().attach(thread):
        offered = {t.name: t for t in toolkit.offer(config).tools}
        assert {"activate_skill", "call_skill_tool"} <= offered.keys()
        assert "count-lines" in offered["activate_skill"].invoke({"name": "code-review"}, config)
        arguments = {"skill": "code-review", "tool": "count-lines", "input": {"text": "a\nb\nc"}}
        call = ToolCall(id="1", name="call_skill_tool", args=arguments, type="tool_call")
        graph = StateGraph(MessagesState).add_node("tools", toolkit.node()).add_edge(START, "tools").compile()
        answer = graph.invoke({"messages": [AIMessage("", tool_calls=[call])]}, config)["messages"][-1]
        assert (answer.text, answer.artifact["structured_content"]) == ('{"lines":3}', {"lines": 3})
        said = offered["call_skill_tool"].invoke({**arguments, "input": {"text": ""}}, config)
        assert "there is no text" in said


async def test_an_agent_of_langgraph_calls_it_async(client: Client, thread: Thread) -> None:
    config: RunnableConfig = {"configurable": {"thread_id": thread.id}}
    with review().attach(thread):
        (call,) = [t for t in (await Toolkit(client, []).aoffer(config)).tools if t.name == "call_skill_tool"]
        thread.activate_skill("code-review")
        assert await call.ainvoke({"skill": "code-review", "tool": "whose", "input": {}}, config) == thread.id
