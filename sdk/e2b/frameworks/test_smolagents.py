"""The executor of smolagents for E2B: what its code agents ask of it."""

from collections.abc import Iterator

import pytest
from smolagents import ActionStep, CodeAgent, Model, Tool
from smolagents.models import ChatMessage, MessageRole
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import E2BExecutor
from smolagents.utils import AgentError


class Double(Tool):
    name = "double"
    description = "Doubles a number."
    inputs = {"n": {"type": "integer", "description": "The number."}}
    output_type = "integer"

    def forward(self, n: int) -> int:
        return 2 * n


class Scripted(Model):
    def __init__(self, *steps: str) -> None:
        super().__init__()
        self.steps = list(steps)

    def generate(self, messages: object, **_: object) -> ChatMessage:
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"<code>\n{self.steps.pop(0)}\n</code>")


@pytest.fixture(scope="module")
def executor() -> Iterator[E2BExecutor]:
    made = E2BExecutor([], AgentLogger(level=LogLevel.OFF), timeout=600)
    yield made
    made.cleanup()


def test_value_and_logs(executor: E2BExecutor) -> None:
    done = executor("print('said')\n6 * 7")
    assert (done.output, done.logs.strip(), done.is_final_answer) == ("42", "said", False)


def test_variables_stay(executor: E2BExecutor) -> None:
    executor("kept = 41")
    assert executor("kept + 1").output == "42"


def test_variables_are_sent(executor: E2BExecutor) -> None:
    executor.send_variables({"given": {"words": ["a", "b"], "n": 3}})
    assert executor("given['words'] * given['n']").output == "['a', 'b', 'a', 'b', 'a', 'b']"


def test_tools_are_sent(executor: E2BExecutor) -> None:
    executor.send_tools({"double": Double()})
    assert executor("double(n=21)").output == "42"


def test_error(executor: E2BExecutor) -> None:
    with pytest.raises(AgentError) as caught:
        executor("print('before')\n1 / 0")
    assert "before" in str(caught.value)
    assert "ZeroDivisionError" in str(caught.value)


def test_picture(executor: E2BExecutor) -> None:
    done = executor("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.gcf()")
    assert done.output.size[0] > 100


def test_packages_are_installed(executor: E2BExecutor) -> None:
    executor.install_packages(["six"])


def test_agent() -> None:
    """A whole run: a tool, a variable that stays, an error that the model sees, and the final answer."""
    model = Scripted("x = double(n=20)", "1 / 0", "final_answer({'answer': x + 2})")
    with CodeAgent(tools=[Double()], model=model, executor_type="e2b", verbosity_level=LogLevel.OFF, max_steps=4) as agent:
        assert agent.run("Compute.") == {"answer": 42}
        errors = [step.error for step in agent.memory.steps if isinstance(step, ActionStep) and step.error]
    assert len(errors) == 1
    assert "ZeroDivisionError" in str(errors[0])
