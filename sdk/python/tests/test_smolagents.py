"""A real CodeAgent whose Python is a thread, with a model that says what a test tells it to."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image
from smolagents import CodeAgent, Tool
from smolagents.models import ChatMessage, MessageRole, Model
from smolagents.utils import AgentError

from skerry import Client, Thread
from skerry.smolagents import SkerryExecutor


class Scripted(Model):
    """Answers with one piece of code after another, and keeps what it was shown."""

    def __init__(self, *steps: str) -> None:
        super().__init__(model_id="scripted")
        self.steps = list(steps)
        self.seen: list[str] = []

    def generate(self, messages: list[Any], **_: Any) -> ChatMessage:
        self.seen.append(str(messages[-1].content))
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"Thoughts: go on.\n<code>\n{self.steps.pop(0)}\n</code>")


class Double(Tool):
    name = "double"
    description = "Doubles a number."
    inputs = {"n": {"type": "integer", "description": "the number"}}  # noqa: RUF012
    output_type = "integer"

    def forward(self, n: int) -> int:
        return 2 * n


@pytest.fixture
def executor(thread: Thread) -> Iterator[SkerryExecutor]:
    made = SkerryExecutor(thread, timeout_s=30)
    yield made
    made.cleanup()


def test_agent(thread: Thread) -> None:
    model = Scripted(
        "x = double(n=20)\nopen('/mnt/user-data/workspace/x.txt', 'w').write(str(x))\nprint('x is', x)\nx + 1",
        "import no_such_module",
        "final_answer({'x': double(n=x), 'given': given})",
    )
    with CodeAgent(tools=[Double()], model=model, executor=SkerryExecutor(thread), verbosity_level=0, max_steps=5) as agent:
        answer = agent.run("Double 20 twice.", additional_args={"given": [1, 2]})
    assert answer == {"x": 80, "given": [1, 2]}
    assert "x is 40" in model.seen[1] and "41" in model.seen[1]
    assert "No module named 'no_such_module'" in model.seen[2]
    assert thread.files.read("/mnt/user-data/workspace/x.txt").content.strip() == "40"
    assert list(thread.contexts()) == []  # the agent cleans up


def test_values(executor: SkerryExecutor) -> None:
    assert executor("7 * 6").output == "42"
    assert executor("y = 1").output is None
    assert executor("print('a'); print('b')").logs == "a\nb\n"
    png = (
        "from IPython.display import Image, display\nimport base64\n"
        "Image(base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='))"
    )
    shown = executor(png).output
    assert isinstance(shown, Image.Image) and shown.size == (1, 1)
    executor.send_variables({"when": datetime.date(2026, 11, 27), "raw": b"\x00\xff"})
    assert executor("print(when.year, raw)").logs == "2026 b'\\x00\\xff'\n"


def test_failures(executor: SkerryExecutor) -> None:
    with pytest.raises(AgentError, match="ZeroDivisionError"):
        executor("print('before')\n1 / 0")
    short = SkerryExecutor(executor.thread, timeout_s=1)
    with pytest.raises(AgentError, match="ended at its deadline"):
        short("while True: pass")
    assert short("'it goes on'").output == "'it goes on'"
    short.cleanup()


def test_packages(thread: Thread) -> None:
    SkerryExecutor(thread, ["ipython>=8", "json"]).cleanup()
    with pytest.raises(AgentError, match="has no no-such-package: make one that has"):
        SkerryExecutor(thread, ["ipython", "no-such-package==2"])


def test_large_answer(thread: Thread) -> None:
    model = Scripted("final_answer('x' * 3_000_000)")
    with CodeAgent(tools=[], model=model, executor=SkerryExecutor(thread), verbosity_level=0) as agent:
        assert agent.run("Answer at length.") == "x" * 3_000_000


def test_lost_interpreter(client: Client, executor: SkerryExecutor) -> None:
    executor("x = 1")
    executor.thread.release()
    executor.cleanup()  # its context is gone, and that is no error
    with pytest.raises(AgentError, match="NameError"):
        executor("x")
