"""From a report in the drive to an opportunity in the CRM, with a person's word in between.

    python agent.py begin   --thread acme --checkpoints acme.sqlite
    python agent.py approve --thread acme --checkpoints acme.sqlite

`begin` finds the report, takes its key findings out in the sandbox and leaves them there in a file; the graph then waits for a
person, and the process ends. `approve` is another process: it takes the run up from its checkpoint, finds the file where it was,
and updates the CRM. The 100 KB of the report never pass through the model.

The model is a script, so that the example needs no network. Any chat model with tools takes its place.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolCall
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, interrupt

from skerry import Client
from skerry.langgraph import Toolkit

TASK = "Find the latest quarterly report in the drive and update the opportunity OPP-001 in the CRM with a summary of the key findings."

FIND = """
import { callMCPTool } from './helpers/callMCPTool';
import { writeFileSync } from 'node:fs';

const { documents } = await callMCPTool('google_drive__list_documents', { query: 'quarterly report' });
const latest = documents.sort((a, b) => b.modifiedTime.localeCompare(a.modifiedTime))[0];
const doc = await callMCPTool('google_drive__get_document', { documentId: latest.id });
const findings = doc.content.split('\\n').filter(l => /key finding|highlight|conclusion/i.test(l)).slice(0, 5);
writeFileSync('/mnt/user-data/workspace/summary.md', `# ${latest.title}\\n\\n${findings.join('\\n')}\\n`);
console.log(`${latest.title}: ${findings.length} findings from ${doc.content.length} characters`);
"""

UPDATE = """
import { callMCPTool } from './helpers/callMCPTool';
import { readFileSync } from 'node:fs';

const summary = readFileSync('/mnt/user-data/workspace/summary.md', 'utf8');
await callMCPTool('salesforce__update_record', { recordId: 'OPP-001', fields: { Description: summary } });
console.log('OPP-001 has the summary');
"""


def call(id: str, name: str, /, **args: Any) -> ToolCall:
    return ToolCall(id=id, name=name, args=args, type="tool_call")


SCRIPT: list[AIMessage] = [
    AIMessage("", tool_calls=[call("1", "list_servers")]),
    AIMessage(
        "",
        tool_calls=[
            call("2", "search_tools", query="list documents", server="google-drive", detail="full"),
            call("3", "search_tools", query="update record", server="salesforce", detail="full"),
        ],
    ),
    AIMessage("", tool_calls=[call("4", "execute_code", code=FIND)]),
    AIMessage("", tool_calls=[call("5", "read_file", path="/mnt/user-data/workspace/summary.md")]),
    AIMessage("", tool_calls=[call("6", "execute_code", code=UPDATE)]),
    AIMessage("OPP-001 has a summary of the latest quarterly report."),
]


class ScriptedModel(BaseChatModel):
    """Says the next line of a script, whatever it is told: which one follows from how often it spoke."""

    script: list[AIMessage]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        spoken = sum(isinstance(m, AIMessage) for m in messages)
        return ChatResult(generations=[ChatGeneration(message=self.script[spoken].model_copy())])

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self


def graph(client: Client, model: BaseChatModel, checkpoints: SqliteSaver) -> CompiledStateGraph[Any, Any, Any, Any]:
    toolkit = Toolkit(client)

    def agent(state: MessagesState, config: RunnableConfig) -> dict[str, list[BaseMessage]]:
        offer = toolkit.offer(config)  # what the server offers now: text and tools speak of the same
        system = SystemMessage("You work in a sandbox.\n\n" + offer.text)
        return {"messages": [model.bind_tools(offer.tools).invoke([system, *state["messages"]], config)]}

    def route(state: MessagesState) -> str:
        last = state["messages"][-1]
        calls = last.tool_calls if isinstance(last, AIMessage) else []
        if not calls:
            return END
        return "approval" if any("salesforce__update" in str(c["args"].get("code", "")) for c in calls) else "tools"

    def approval(state: MessagesState) -> Command[str]:
        said = interrupt({"question": "May the CRM be updated?"})
        if said == "yes":
            return Command(goto="tools")
        return Command(goto=END, update={"messages": [AIMessage("Nothing was changed in the CRM.")]})

    g = StateGraph(MessagesState)
    g.add_node("agent", agent)
    g.add_node("tools", toolkit.node())
    g.add_node("approval", approval, destinations=("tools", END))
    g.add_edge(START, "agent")
    g.add_conditional_edges("agent", route, ["tools", "approval", END])
    g.add_edge("tools", "agent")
    return g.compile(checkpointer=checkpoints)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["begin", "approve", "deny"])
    parser.add_argument("--thread", required=True)
    parser.add_argument("--checkpoints", required=True)
    args = parser.parse_args()
    config: RunnableConfig = {"configurable": {"thread_id": args.thread}}
    with Client() as client, SqliteSaver.from_conn_string(args.checkpoints) as checkpoints:
        compiled = graph(client, ScriptedModel(script=SCRIPT), checkpoints)
        given: Any = (
            {"messages": [HumanMessage(TASK)]} if args.step == "begin" else Command(resume="yes" if args.step == "approve" else "no")
        )
        if args.step != "begin" and not compiled.get_state(config).next:
            parser.error(f"thread {args.thread} waits for nothing in {args.checkpoints}")
        state = compiled.invoke(given, config)
    for message in state["messages"]:
        message.pretty_print()
    if "__interrupt__" in state:
        print(f"\nThe run waits: {state['__interrupt__'][0].value['question']} Go on with: agent.py approve")
    return 0


if __name__ == "__main__":
    sys.exit(main())
