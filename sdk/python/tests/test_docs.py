"""The Python blocks of the documents run as they are written, one after the other, and the package installs from the tree."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ag2.events import ToolCallEvent
from ag2.testing import TestConfig
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from tests.conftest import ROOT, Server
from tests.test_smolagents import Scripted


class Counter(BaseChatModel):
    """Asks a tool for the number of lines, and says what it answered."""

    tool: str

    @property
    def _llm_type(self) -> str:
        return "counter"

    def _generate(self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        last = messages[-1]
        if isinstance(last, ToolMessage):
            said = AIMessage(f"It said: {last.text}")
        else:
            command = "seq 7 > /mnt/user-data/workspace/a.txt; wc -l < /mnt/user-data/workspace/a.txt"
            said = AIMessage("", tool_calls=[ToolCall(id="1", name=self.tool, args={"command": command}, type="tool_call")])
        return ChatResult(generations=[ChatGeneration(message=said)])

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


@pytest.mark.parametrize(
    ("document", "model", "says"),
    [
        ("README.md", None, "\n"),
        ("sdk/python/README.md", None, "6\n 0"),
        ("docs/python.md", None, "killed"),
        ("docs/deepagents.md", Counter(tool="execute"), "It said: 7"),
        ("docs/langgraph.md", Counter(tool="bash"), "It said: 7"),
        ("docs/smolagents.md", Scripted("final_answer(len('x\\n' * 7) // 2)"), "7"),
        (
            "docs/ag2.md",
            TestConfig(ToolCallEvent(name="run_code", arguments=json.dumps({"code": "print(3 + 4)", "language": "python"})), "It said: 7"),
            "It said: 7",
        ),
    ],
)
def test_blocks(
    document: str, model: Any, says: str, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SKERRY_SERVER", server.url)
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / document).read_text(), re.M | re.S)
    assert blocks
    names: dict[str, Any] = {"model": model, "__name__": "document"}
    for number, block in enumerate(blocks, 1):
        exec(compile(block.replace("http://127.0.0.1:8080", server.url), f"{document} block {number}", "exec"), names)
    assert says in capsys.readouterr().out


def test_install(tmp_path: Path) -> None:
    source = ROOT / "sdk" / "python"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*pip, "--target", str(tmp_path), str(source)], check=True, timeout=120)
    code = "import skerry, importlib.metadata as m; print(skerry.__file__, skerry.__version__ == m.version('skerry'))"
    said = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True
    ).stdout
    assert said.startswith(str(tmp_path)) and said.endswith("True\n")
    assert (tmp_path / "skerry" / "py.typed").exists()


def test_accepted_versions_are_those_of_the_package() -> None:
    source = ROOT / "sdk" / "python"
    project = (source / "pyproject.toml").read_text()
    required = [
        r
        for name in (
            "deepagents",
            "deepagents_code",
            "langgraph",
            "langchain",
            "smolagents",
            "ag2",
            "autogen",
            "openai_agents",
            "inspect",
            "claude",
            "packs/__init__",
            "packs/_credentials",
        )
        for r in re.findall(r'^ *require\("skerry\.(\w+)", "(.+)", "(.+)", "(.+)"\)', (source / f"src/skerry/{name}.py").read_text(), re.M)
    ]
    assert len(required) == 14
    for extra, package, least, below in required:
        (line,) = re.findall(rf"^{extra.replace('_', '-')} = (.*)$", project, re.M)
        assert f'"{package}>={least},<{below}"' in line
