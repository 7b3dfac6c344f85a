"""What the prompt tells of is what a model gets: agents of LangChain and graphs of LangGraph with a scripted model, against a real
server whose MCP servers change while the agent runs."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import tools_condition
from pydantic import Field

from skerry import Client, Thread, models
from skerry._schemas import bindable
from skerry._tool_results import content_of
from skerry.deepagents import SkerrySandbox
from skerry.langchain import SkerryMiddleware
from skerry.langgraph import SCHEMAS, Toolkit, tools
from tests.conftest import Server


@dataclass
class Seen:
    """One call of the model: what it was given."""

    system: str
    tools: dict[str, dict[str, Any]]  # by name, as OpenAI's API takes them
    messages: list[BaseMessage]

    def answers(self) -> dict[str, ToolMessage]:
        """What the last calls returned, by tool."""
        last = max(i for i, m in enumerate(self.messages) if isinstance(m, AIMessage))
        return {str(m.name): m for m in self.messages[last + 1 :] if isinstance(m, ToolMessage)}


Turn = Callable[[Seen], AIMessage]


class Scripted(BaseChatModel):
    """Takes the next turn of a script, which looks at what the model was given."""

    turns: list[Turn]
    taken: list[int]
    bound: dict[str, Any] = Field(default_factory=dict)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        described = [convert_to_openai_tool(t)["function"] for t in tools]
        assert len({d["name"] for d in described}) == len(described), "a name is bound twice"
        return self.model_copy(update={"bound": {d["name"]: d for d in described}})

    def _generate(self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        system = "".join(m.text for m in messages if isinstance(m, SystemMessage))
        said = self.turns[len(self.taken)](Seen(system, self.bound, messages))
        self.taken.append(len(self.taken))
        return ChatResult(generations=[ChatGeneration(message=said)])


def asks(*calls: tuple[str, dict[str, Any]]) -> AIMessage:
    return AIMessage("", tool_calls=[ToolCall(id=uuid.uuid4().hex, name=name, args=args, type="tool_call") for name, args in calls])


def until(holds: Callable[[], bool]) -> str:
    ends = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < ends, "it does not come"
        time.sleep(0.05)
    return "it is so"


@pytest.fixture(scope="module")
def program() -> Iterator[str]:
    """The shop's program, where the user of MCP servers can read it."""
    place = Path(tempfile.mkdtemp(prefix="skerry-shop-"))
    place.chmod(0o755)
    copied = shutil.copy(Path(__file__).parent / "shop.py", place)
    os.chmod(copied, 0o644)
    yield str(copied)
    shutil.rmtree(place)


@pytest.fixture
def mall(program: str) -> Iterator[Server]:
    server = Server({"mcpServers": {"shop": {"command": "/usr/bin/python3", "args": [program]}}})
    yield server
    server.stop()


@pytest.fixture
def place(mall: Server) -> Iterator[Thread]:
    with Client(mall.url) as client:
        yield client.thread("acme")


def changes(thread: Thread, program: str) -> list[BaseTool]:
    """Tools of the agent's own, with which the script changes the world and waits until the server knows."""
    client = Client(thread._transport.server)
    config = {"command": "/usr/bin/python3", "args": [program, "many", "25"]}

    def mode(wanted: str) -> bool:
        return thread.prompt().mode == wanted

    def settle(tool: str) -> str:
        """Waits until there is a tool."""
        return until(lambda: any(t.name == tool for t in thread.prompt().tools))

    def add_many() -> str:
        """Adds a server whose definitions are more than direct mode takes."""
        client.call("PUT", "/api/mcp/servers/many", body=config)
        return until(lambda: mode("code"))

    def remove_many() -> str:
        """Removes it again."""
        client.call("DELETE", "/api/mcp/servers/many")
        return until(lambda: mode("direct"))

    return [StructuredTool.from_function(f) for f in (settle, add_many, remove_many)]


ODD = {"config": 1, "self": {"a": [None]}, "run_manager": "x", "callbacks": [], "args": 2, "kwargs": 3, "runtime": 4, "name": "n"}
SHOP = {f"shop__{name}" for name in ("open_shop", "say", "picture", "numbers", "sound", "fail", "bomb", "astray")}


def script() -> list[Turn]:
    """Direct mode, a tool set that changes, code mode, and back. Each turn looks at what the one before brought."""

    def results(seen: Seen) -> AIMessage:
        assert set(seen.tools) >= SHOP | {"execute_code", "bash", "read_file", "settle"}
        assert not set(seen.tools) & {"search_tools", "list_servers", "shop__deep", "shop__buy"}
        assert seen.system.startswith("Be brief.") and "Call a tool directly" in seen.system and "search_tools" not in seen.system
        assert seen.tools["shop__open_shop"]["description"] == "Does open_shop."
        assert seen.tools["shop__open_shop"]["parameters"]["properties"]["city"] == {"type": "string"}
        assert seen.tools["shop__bomb"]["parameters"]["properties"] == {} == seen.tools["shop__astray"]["parameters"]["properties"]
        names = ("picture", "numbers", "sound", "fail", "bomb")
        return asks(*((f"shop__{name}", {}) for name in names), ("shop__say", ODD), ("shop__open_shop", {}), ("execute_code", {"cod": "1"}))

    def opens(seen: Seen) -> AIMessage:
        got = seen.answers()
        text, image = list(got["shop__picture"].content)
        assert isinstance(image, dict) and text == {"type": "text", "text": "a picture"}
        assert image["type"] == "image" and image["mime_type"] == "image/png" and len(image["base64"]) > 500_000
        assert json.loads(got["shop__numbers"].text) == {"sum": 6, "of": [1, 2, 3]} == got["shop__numbers"].artifact["structured_content"]
        assert got["shop__sound"].text.splitlines() == [
            "[audio that cannot be shown: audio/wav]",
            "[image that cannot be shown: image/png]",
            "[a resource of the server: notes, shop://notes]",
            "milk",
        ]
        assert [b["type"] for b in got["shop__sound"].artifact["content"]] == ["audio", "image", "resource_link"]
        assert got["shop__fail"].status == "error" and got["shop__fail"].text == "sold out"
        assert json.loads(got["shop__say"].text) == {"say": ODD}
        assert got["shop__open_shop"].status == "error" and "city" in got["shop__open_shop"].text
        assert got["execute_code"].status == "error" and "code" in got["execute_code"].text
        assert all(m.status == "success" for name, m in got.items() if name not in ("shop__fail", "shop__open_shop", "execute_code"))
        return asks(("shop__open_shop", {"city": "Rome"}))

    def settles(seen: Seen) -> AIMessage:
        assert seen.answers()["shop__open_shop"].text == "open in Rome\ncome in"
        return asks(("settle", {"tool": "shop__buy"}))

    def buys(seen: Seen) -> AIMessage:
        assert "shop__buy" in seen.tools and "shop__open_shop" not in seen.tools
        return asks(("shop__open_shop", {"city": "Oslo"}), ("shop__buy", {"n": 1}), ("shop__none", {}), ("nothing", {}))

    def grows(seen: Seen) -> AIMessage:
        got = seen.answers()
        assert got["shop__open_shop"].status == "error" and "there is no tool" in got["shop__open_shop"].text
        assert "use one that you have now" in got["shop__none"].text and got["nothing"].status == "error"
        assert got["shop__buy"].text == '{"buy": {"n": 1}}'
        return asks(("add_many", {}))

    def codes(seen: Seen) -> AIMessage:
        assert seen.answers()["add_many"].text == "it is so"
        assert set(seen.tools) >= {"execute_code", "search_tools", "list_servers", "bash"}
        assert not [name for name in seen.tools if "__" in name]
        assert "find one with search_tools" in seen.system and "Call a tool directly" not in seen.system
        code = "print(call_mcp_tool('shop__buy', {'n': 2}))"
        return asks(("search_tools", {"query": "buy"}), ("execute_code", {"code": code, "language": "python"}), ("shop__say", {"late": 1}))

    def shrinks(seen: Seen) -> AIMessage:
        got = seen.answers()
        assert "shop__buy" in got["search_tools"].text and "'n': 2" in got["execute_code"].text, got["execute_code"].text
        assert got["shop__say"].text == '{"say": {"late": 1}}'  # bound before the mode changed
        return asks(("remove_many", {}))

    def ends(seen: Seen) -> AIMessage:
        assert set(seen.tools) >= (SHOP - {"shop__open_shop"}) | {"shop__buy"} and "search_tools" not in seen.tools
        assert "Call a tool directly" in seen.system
        return AIMessage("done")

    return [results, opens, settles, buys, grows, codes, shrinks, ends]


def check(thread: Thread, model: Scripted, said: str) -> None:
    assert said == "done" and len(model.taken) == len(model.turns)
    with Client(thread._transport.server) as client:
        made = [(r.subject, r.outcome) for r in client.audit(thread=thread.id, action="tool_call") if r.phase == "result"]
    assert ("shop__picture", "ok") in made and ("shop__fail", "error") in made and ("shop__none", "error") in made


CONFIG: RunnableConfig = {"configurable": {"thread_id": "acme"}, "recursion_limit": 50}
HELLO: Any = {"messages": [("user", "Go on.")]}


def test_agent(place: Thread, program: str) -> None:
    model = Scripted(turns=script(), taken=[])
    with Client(place._transport.server) as client:
        agent = create_agent(model, changes(place, program), middleware=[SkerryMiddleware(client)], system_prompt="Be brief.")
        check(place, model, agent.invoke(HELLO, CONFIG)["messages"][-1].text)


async def test_agent_async(place: Thread, program: str) -> None:
    model = Scripted(turns=script(), taken=[])
    agent = create_agent(model, changes(place, program), middleware=[SkerryMiddleware(place)], system_prompt="Be brief.")
    check(place, model, (await agent.ainvoke(HELLO, {"recursion_limit": 50}))["messages"][-1].text)


def graph_of(toolkit: Toolkit, model: Scripted, own: list[BaseTool]) -> CompiledStateGraph[Any, Any, Any, Any]:
    def agent(state: MessagesState, config: RunnableConfig) -> dict[str, list[BaseMessage]]:
        offer = toolkit.offer(config)
        system = SystemMessage("Be brief. " + offer.text)
        return {"messages": [model.bind_tools([*offer.tools, *own]).invoke([system, *state["messages"]], config)]}

    async def aagent(state: MessagesState, config: RunnableConfig) -> dict[str, list[BaseMessage]]:
        offer = await toolkit.aoffer(config)
        system = SystemMessage("Be brief. " + offer.text)
        return {"messages": [await model.bind_tools([*offer.tools, *own]).ainvoke([system, *state["messages"]], config)]}

    from langgraph._internal._runnable import RunnableCallable  # one node for both, as StateGraph makes it of two functions

    graph = StateGraph(MessagesState)
    graph.add_node("agent", RunnableCallable(agent, aagent))
    graph.add_node("tools", toolkit.node(own))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile()


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_graph_of_ones_own(way: str, place: Thread, program: str) -> None:
    model = Scripted(turns=script(), taken=[])
    with Client(place._transport.server) as client:
        graph = graph_of(Toolkit(client), model, changes(place, program))
        state = graph.invoke(HELLO, CONFIG) if way == "invoke" else await graph.ainvoke(HELLO, CONFIG)
        check(place, model, state["messages"][-1].text)


POLICY = """
version: 1
default: allow
rules:
  - {id: none, effect: deny, match: {server: shop, tool: fail}}
  - {id: some, effect: deny, match: {server: shop, tool: say}, when: 'args.?word.orValue("") == "no"', reason: not that word}
  - {id: asked, effect: require_approval, match: {server: shop, tool: numbers}}
"""


def test_policy(mall: Server, place: Thread) -> None:
    """A call of an agent is decided as one of code is: what the policy denies to all is not even offered."""
    (mall.data / "policy").mkdir(exist_ok=True)
    (mall.data / "policy" / "policy.yaml").write_text(POLICY)

    def calls(seen: Seen) -> AIMessage:
        assert "shop__fail" not in seen.tools and "shop__say" in seen.tools
        return asks(("shop__say", {"word": "no"}), ("shop__numbers", {}), ("shop__fail", {}))

    def ends(seen: Seen) -> AIMessage:
        got = seen.answers()
        assert got["shop__say"].status == "error" and "not that word" in got["shop__say"].text
        assert got["shop__fail"].status == "error" and "there is no tool" in got["shop__fail"].text
        assert got["shop__numbers"].artifact["structured_content"]["sum"] == 6
        return AIMessage("done")

    with Client(mall.url) as client, ThreadPoolExecutor() as person:
        until(lambda: "shop__say" in (names := {t.name for t in place.prompt().tools}) and "shop__fail" not in names)

        def pending() -> list[Any]:
            found: Any = client.call("GET", "/api/approvals", params={"state": "pending"})
            return list(found["items"])

        def approve() -> None:
            until(lambda: bool(pending()))
            client.call("POST", f"/api/approvals/{pending()[0]['id']}", body={"decision": "approve"})

        approved = person.submit(approve)
        model = Scripted(turns=[calls, ends], taken=[])
        agent = create_agent(model, middleware=[SkerryMiddleware(client)])
        assert agent.invoke(HELLO, CONFIG)["messages"][-1].text == "done"
        approved.result(60)


def test_deepagent(place: Thread) -> None:
    def turns() -> Iterator[Turn]:
        def first(seen: Seen) -> AIMessage:
            assert set(seen.tools) >= {"shop__say", "execute_code", "execute", "write_file"} and "bash" not in seen.tools
            return asks(("shop__say", {"x": 1}), ("execute", {"command": "echo here"}))

        def second(seen: Seen) -> AIMessage:
            got = seen.answers()
            assert got["shop__say"].text == '{"say": {"x": 1}}' and "here" in got["execute"].text
            return AIMessage("done")

        yield from (first, second)

    model = Scripted(turns=list(turns()), taken=[])
    agent = create_deep_agent(model=model, backend=SkerrySandbox(place), middleware=[SkerryMiddleware(place, names=[])])
    assert agent.invoke(HELLO)["messages"][-1].text == "done"


def test_tools_of_a_thread(place: Thread) -> None:
    def names(offered: Sequence[BaseTool]) -> set[str]:
        return {t.name for t in offered}

    direct = tools(place)
    assert names(direct) >= SHOP | {"bash", "execute_code"} and all(isinstance(t, StructuredTool) for t in direct)
    assert names(tools(place, ["bash"])) & set(SCHEMAS) < {
        "bash",
        "execute_code",
        "activate_skill",
        "read_skill_file",
        "search_skills",
        "run_skill",
        "x",
    }
    (say,) = (t for t in direct if t.name == "shop__say")
    assert say.invoke({"a": 1}) == '{"say": {"a": 1}}'  # without a config: the thread is fixed
    place.acquire(mode="code")
    assert names(tools(place)) >= {"search_tools", "list_servers", "execute_code"} and not names(tools(place)) & SHOP
    place.release()
    with Client(place._transport.server) as client:
        assert list(names(tools(client, ["bash"]))) == ["bash"]
        with pytest.raises(ValueError, match="no such tools: nothing"):
            Toolkit(client, ["nothing"])
        with pytest.raises(ValueError, match="the run has no thread"):
            Toolkit(client).offer({})


def test_tools_left_out() -> None:
    """Those that only a search finds, for a provider that has none, and those that this package cannot call."""

    def defined(name: str, **more: Any) -> models.ToolDefinition:
        return models.ToolDefinition(name=name, description="d", input_schema={"type": "object"}, **more)

    prompt = models.Prompt(
        mode="direct", sections={}, text="t", version="v", tools=[defined("a__b"), defined("a__c", defer_loading=True), defined("of_later")]
    )
    with Client("http://127.0.0.1:1") as client:
        assert [t.name for t in Toolkit(client, [])._offer(prompt).tools] == ["a__b"]
        offered = Toolkit(client, [], deferred=True)._offer(prompt).tools
        assert [(t.name, t.extras) for t in offered] == [("a__b", None), ("a__c", {"defer_loading": True})]


def nested(depth: int) -> dict[str, Any]:
    return {"properties": {"x": nested(depth - 1)}} if depth else {}


@pytest.mark.parametrize(
    ("schema", "kept"),
    [
        ({"type": "object", "properties": {"a": {"type": "string"}}}, True),
        ({"type": "object"}, True),
        ({"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"properties": {"next": {"$ref": "#/$defs/A"}}}}}, True),
        ({"properties": {"a": {"$ref": "#/properties/b"}, "b": {"anyOf": [{"type": "string"}]}}}, True),
        ({"properties": {"a": {"$ref": "#/properties/b/anyOf/0"}, "b": {"anyOf": [{"type": "string"}]}}}, True),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, False),
        ({"properties": {"a": {"$ref": "https://example.com/a"}}}, False),
        ({"properties": {"$ref": {"type": "string"}}}, False),
        ({"properties": {f"p{i}": {"$ref": f"#/$defs/a{i % 12}"} for i in range(12)}
          , "$defs": {f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{j}"} for j in range(12)]} for i in range(12)}}, False),
        (nested(300), False),
        ({"properties": []}, False),
        ("object", False),
    ],
)  # fmt: skip
def test_schemas(schema: Any, kept: bool) -> None:
    made = bindable(schema)
    assert (made == {"type": "object", "properties": {}} | schema) if kept else made["properties"] == {}
    tool = StructuredTool(name="t", description="d", args_schema=made, func=lambda: None)
    assert convert_to_openai_tool(tool)["function"]["name"] == "t" and isinstance(tool.args, dict)


@pytest.mark.parametrize(
    ("answer", "content", "hidden"),
    [
        ({"result": "text"}, "text", None),
        ({"result": {"a": 1}}, '{"a": 1}', None),
        ({"result": None}, "[no output]", None),
        ({"result": [], "content": []}, "[no output]", None),
        ({"result": "cut", "file": {"path": "/mnt/x", "bytes": 9, "format": "text"}}, "cut", None),
        ({"result": 1, "content": [{"type": "text", "text": ""}], "structured_content": {"a": 1}}, '{"a": 1}', None),
        (
            {"result": 1, "content": [7, {"type": "resource"}, {"type": "resource", "resource": {"uri": "a:b", "blob": "!"}}]},
            "[a block that cannot be shown: no object]\n"
            "[resource that cannot be shown: without a name]\n[resource that cannot be shown: a:b]",
            3,
        ),
        ({"result": 1, "content": [{"type": "image", "data": "R0lGODlh", "mimeType": "image/svg+xml"}]},
         [{"type": "image", "base64": "R0lGODlh", "mime_type": "image/gif"}], None),
    ],
)  # fmt: skip
def test_results(answer: dict[str, Any], content: Any, hidden: int | None) -> None:
    got, artifact = content_of(models.ToolResult.model_validate({"call_id": "c", "is_error": False, "ms": 1} | answer))
    assert got == content and len(artifact.get("content", [])) == (hidden or 0)
    assert ("file" in artifact) == ("file" in answer) and artifact.get("structured_content") == answer.get("structured_content")
