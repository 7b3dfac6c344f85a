"""The story of agent.py with tools that live elsewhere: the drive is in this process, the CRM is a pack in Rust.

    (cd sdk/rust && cargo run --example crm) &
    python handlers.py --thread acme

The drive's tools are functions below. The thread has them as a skill while this program runs, and the agent sees them once it
has activated the skill. The code that the model wrote moves the 100 KB of a report from here to the Rust program, by the
sandbox: no message of the model has them.
"""

from __future__ import annotations

import argparse
import sys

from agent import ScriptedModel, call, graph
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver
from mcp_server import DOCUMENTS, get_document, list_documents
from typing_extensions import TypedDict

from skerry import Client
from skerry.packs import SkillTool, ToolError, VirtualSkill

TASK = "Add the latest quarterly report of the drive to the opportunity OPP-001 in the CRM, with its key findings as the description."


class Listed(TypedDict):
    id: str
    title: str
    modifiedTime: str


class Documents(TypedDict):
    documents: list[Listed]


class Document(Listed):
    content: str


def search(query: str) -> Documents:
    """Lists the documents that match a query"""
    found: Documents = list_documents(query)
    return found


def get(documentId: str) -> Document:
    """Reads a document, with all of its content"""
    if documentId not in DOCUMENTS:
        raise ToolError(f"there is no {documentId}")
    found: Document = get_document(documentId)
    return found


DRIVE = VirtualSkill(
    "google-drive",
    "Finds and reads the documents of this user's drive.",
    "List the documents first. Read them in code: they are long.",
    tools=[SkillTool(search, name="list_documents"), SkillTool(get, name="get_document")],
)

MOVE = """
import { getDocument, listDocuments } from './skills/google-drive';
import { updateRecord } from './servers/salesforce';

const { documents } = await listDocuments({ query: 'quarterly report' });
const latest = documents.sort((a, b) => b.modifiedTime.localeCompare(a.modifiedTime))[0];
const { content } = await getDocument({ documentId: latest.id });
const findings = content.split('\\n').filter(l => /key finding|highlight|conclusion/i.test(l)).slice(0, 5);
const { bytes } = await updateRecord({ recordId: 'OPP-001', fields: { Description: findings.join('\\n'), Report: content } });
console.log(`OPP-001 has ${latest.title}: ${findings.length} findings, ${bytes} bytes`);
"""

SCRIPT = [
    AIMessage("", tool_calls=[call("1", "activate_skill", name="google-drive")]),
    AIMessage("", tool_calls=[call("2", "search_tools", query="update record", server="salesforce", detail="full")]),
    AIMessage("", tool_calls=[call("3", "execute_code", code=MOVE)]),
    AIMessage("OPP-001 has the latest quarterly report."),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--thread", required=True)
    args = parser.parse_args()
    config: RunnableConfig = {"configurable": {"thread_id": args.thread}}
    with Client() as client, DRIVE.attach(client.thread(args.thread)), SqliteSaver.from_conn_string(":memory:") as checkpoints:
        state = graph(client, ScriptedModel(script=SCRIPT), checkpoints).invoke({"messages": [HumanMessage(TASK)]}, config)
    for message in state["messages"]:
        message.pretty_print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
