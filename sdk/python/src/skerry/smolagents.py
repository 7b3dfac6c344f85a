"""A Skerry thread as the Python of a CodeAgent of smolagents.

    from smolagents import CodeAgent
    from skerry import Client
    from skerry.smolagents import SkerryExecutor

    with CodeAgent(tools=[], model=..., executor=SkerryExecutor(Client().thread("my-thread"))) as agent:
        agent.run("...")

Each step runs in one interpreter of the sandbox, which keeps its variables. The sandbox has no network, so packages are those of
its template.
"""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Sequence
from typing import Any

from skerry._versions import require

require("skerry.smolagents", "smolagents", "1.24", "2")

from PIL import Image  # noqa: E402
from smolagents.local_python_executor import CodeOutput  # noqa: E402
from smolagents.monitoring import AgentLogger  # noqa: E402
from smolagents.remote_executors import RemotePythonExecutor  # noqa: E402
from smolagents.tools import Tool, get_tools_definition_code  # noqa: E402
from smolagents.utils import AgentError  # noqa: E402

from skerry._cancellable import with_reason  # noqa: E402
from skerry._results import ExecResult  # noqa: E402
from skerry._sync.execs import Context  # noqa: E402
from skerry._sync.thread import Thread  # noqa: E402
from skerry.errors import NotFound  # noqa: E402

ANSWER = "application/vnd.skerry.answer+json"
KEPT_FILE = "application/vnd.skerry.file+json"  # what was too large for the answer of the API
MAX_ANSWER = 64 << 20

# The source of a tool begins with all that it imports, also what it can do without.
IMPORT = re.compile(r"^(import|from) .+$", re.MULTILINE)

# smolagents ends a run by an exception whose value is the answer. Its text in a traceback would be cut, so it is displayed.
PRELUDE = f"""
def _skerry_answer(shell, kind, value, trace, tb_offset=None):
    if kind.__name__ == {RemotePythonExecutor.FINAL_ANSWER_EXCEPTION!r}:
        from IPython.display import display
        display({{{ANSWER!r}: {{"value": value.value}}}}, raw=True)
    else:
        shell.showtraceback((kind, value, trace), tb_offset=tb_offset)

get_ipython().set_custom_exc((BaseException,), _skerry_answer)
"""

# Prints those of the packages that are not there.
MISSING = """
import importlib.metadata, importlib.util
def _skerry_missing(names):
    import re
    for name in names:
        plain = re.split(r"[\\[<>=!~; ]", name)[0]
        try:
            importlib.metadata.version(plain)
        except importlib.metadata.PackageNotFoundError:
            if importlib.util.find_spec(plain.replace("-", "_").split(".")[0]) is None:
                yield plain
print("\\n".join(_skerry_missing({names!r})))
"""


class SkerryExecutor(RemotePythonExecutor):
    """Runs the code of an agent in a thread. timeout_s is a step's, at most 120."""

    def __init__(
        self,
        thread: Thread,
        additional_imports: Sequence[str] = (),
        logger: AgentLogger | None = None,
        *,
        timeout_s: float = 120,
        allow_pickle: bool = False,
    ) -> None:
        super().__init__(list(additional_imports), logger or AgentLogger(), allow_pickle)
        self.thread = thread
        self.timeout_s = timeout_s
        self._context: Context | None = None
        self.installed_packages = self.install_packages(self.additional_imports)

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        if self._context is None:
            context = self.thread.context("python")
            context.run(PRELUDE).check()
            self._context = context
        result = self._context.run(code, timeout_s=self.timeout_s)
        logs = result.stdout_bytes.decode("utf-8", "replace")
        shown = [self._whole(r) for r in result.results or []]
        for r in shown:
            if ANSWER in r:
                answer = self._deserialize_final_answer(r[ANSWER]["value"], self.allow_pickle)
                return CodeOutput(output=answer, logs=logs, is_final_answer=True)
        if not result.ok:
            raise AgentError(failure(result, logs), self.logger)
        return CodeOutput(output=value_of(shown[-1]) if shown else None, logs=logs, is_final_answer=False)

    def send_tools(self, tools: dict[str, Tool]) -> None:
        """Defines the tools in the interpreter. One that imports what the template has not fails when it is called."""
        if "final_answer" in tools:
            self._patch_final_answer_with_exception(tools["final_answer"])
        if code := get_tools_definition_code(tools):
            self.run_code_raise_errors(IMPORT.sub(r"try:\n    \g<0>\nexcept ImportError:\n    pass", code))

    def install_packages(self, additional_imports: list[str]) -> list[str]:
        """Checks that the packages are there: a sandbox cannot install any. Raises AgentError."""
        missing = self.run_code_raise_errors(MISSING.format(names=additional_imports)).logs.split() if additional_imports else []
        if missing:
            text = f"the template of the sandbox has no {', '.join(missing)}: make one that has (skerry templates new NAME --pip ...)"
            raise AgentError(text, self.logger)
        return additional_imports

    def cleanup(self) -> None:
        """Ends the interpreter. The files stay, and the sandbox ends when it has been idle."""
        context, self._context = self._context, None
        if context is not None:
            try:
                context.delete()
            except NotFound:
                pass  # its sandbox has ended

    def _whole(self, shown: dict[str, Any]) -> dict[str, Any]:
        """What was displayed, with an answer that the API has put into a file."""
        kept = shown.get(KEPT_FILE)
        for part in kept if isinstance(kept, list) else []:
            if part["mime"] == ANSWER:
                if part["bytes"] > MAX_ANSWER:
                    raise AgentError(f"the answer has {part['bytes']} bytes: at most {MAX_ANSWER} are taken", self.logger)
                return {ANSWER: json.loads(self.thread.files.download(part["path"]))}
        return shown


def value_of(shown: dict[str, Any]) -> Any:
    """The value of the last expression, as smolagents has it of other sandboxes: an image, or a text."""
    for mime in ("image/png", "image/jpeg"):
        if mime in shown:
            return Image.open(io.BytesIO(base64.b64decode(shown[mime])))
    for mime in ("application/json", "text/html", "text/latex", "text/markdown", "image/svg+xml", "text/plain"):
        if mime in shown:
            return shown[mime]
    return None


def failure(result: ExecResult, logs: str) -> str:
    return with_reason(
        result, "\n".join(t for t in (logs, "Executing code yielded an error:", result.stderr_bytes.decode("utf-8", "replace")) if t)
    )


__all__ = ["SkerryExecutor"]
