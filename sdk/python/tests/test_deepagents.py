"""SkerrySandbox passes the public suite for sandboxes of deepagents, with real containers."""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Iterator
from importlib import metadata

import pytest
from deepagents.backends.protocol import GlobResult, SandboxBackendProtocol, WriteResult
from deepagents.middleware.skills import SkillsMiddleware, SkillsState
from langchain_tests.integration_tests import SandboxIntegrationTests
from langgraph.runtime import Runtime

from skerry import Client, Thread
from skerry.deepagents import SkerrySandbox
from skerry.errors import NotFound
from tests.conftest import Server

NATIVE = "/mnt/user-data/workspace/suite"


def with_python(client: Client) -> Thread:
    """The suite runs "python", and the image base has python3 alone."""
    thread = client.thread("suite-" + uuid.uuid4().hex[:8])
    thread.acquire(env={"PATH": "/mnt/user-data/workspace/.bin:/usr/local/bin:/usr/bin:/bin"})
    thread.exec("mkdir -p .bin && ln -s /usr/bin/python3 .bin/python").check()
    return thread


class OfTheSuite(SkerrySandbox):
    """What langchain-tests 1.1.9 wants is the contract of deepagents before 0.7, whose write refuses to replace a file and
    whose glob gives folders, too, and paths relative to where it searches. Today's contract is the contrary, in these two
    methods, so the suite gets them as it wants them; all else is the backend as it is. TestContract is for today's."""

    def write(self, file_path: str, content: str) -> WriteResult:
        if self.thread.exec(["test", "-e", file_path]).ok:
            return WriteResult(error=f"Error: File already exists: '{file_path}'")
        return super().write(file_path, content)

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        found = super().glob(pattern, path)
        root = (path or "/").rstrip("/") + "/"
        folders = (
            self.thread.exec(["find", root, "-mindepth", "1", "-maxdepth", "1", "-type", "d"]).stdout.split() if pattern == "*" else []
        )
        matches = [{**m, "path": m["path"].removeprefix(root)} for m in found.matches or []]
        matches += [{"path": f.removeprefix(root), "is_dir": True} for f in folders]
        return GlobResult(error=found.error, matches=matches)  # type: ignore[arg-type]


class Suite(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self, client: Client) -> Iterator[SandboxBackendProtocol]:
        thread = with_python(client)
        yield OfTheSuite(thread)
        thread.delete()


class TestSuiteOnFiles(Suite):
    """All of it, where the API has the files."""

    @property
    def sandbox_root_dir(self) -> str:
        return NATIVE


class TestSuiteInSandbox(Suite):
    """All of it again at the suite's own place, /tmp, which only commands reach."""


class TestContract:
    """What deepagents 0.7 wants, where the suite says another thing or nothing."""

    @pytest.fixture
    def sandbox(self, thread: Thread) -> SkerrySandbox:
        return SkerrySandbox(thread)

    def test_write_replaces(self, sandbox: SkerrySandbox) -> None:
        for text in ("one", "two"):
            assert sandbox.write(f"{NATIVE}/a", text).path == f"{NATIVE}/a"
        assert sandbox.read(f"{NATIVE}/a").file_data == sandbox.read(f"{NATIVE}/a", limit=1).file_data
        assert not sandbox.thread.info().sandbox  # files need none

    def test_glob_is_absolute_and_of_files(self, sandbox: SkerrySandbox) -> None:
        for name in ("a.py", "d/b.py", ".h/c.py", ".h/.d.py", "x.txt"):
            sandbox.write(f"{NATIVE}/{name}", "x")

        def found(pattern: str, path: str | None = NATIVE) -> list[str]:
            result = sandbox.glob(pattern, path)
            assert result.error is None and result.matches is not None
            return sorted(m["path"].removeprefix(NATIVE + "/") for m in result.matches)

        assert found("*.py") == [".h/c.py", "a.py", "d/b.py"]
        assert found("**/*.py") == ["a.py", "d/b.py"]
        assert found("/*.py") == ["a.py"]
        assert found("*") == [".h/c.py", "a.py", "d/b.py", "x.txt"]
        assert found("{a,b}.py") == ["a.py", "d/b.py"]
        assert found("*.txt", "/") == found("*.txt", None) == ["x.txt"]
        assert sandbox.glob("../*", NATIVE).error and sandbox.glob("*", "/mnt/none").error

    def test_read_windows(self, sandbox: SkerrySandbox) -> None:
        sandbox.write(f"{NATIVE}/a", "1\r\n2\n3")
        got = sandbox.read(f"{NATIVE}/a", offset=0, limit=2)
        assert got.file_data and got.file_data["content"] == "1\n2"
        assert (got.start_line, got.end_line, got.next_offset, got.total_lines) == (1, 2, 2, 3)
        assert all("beyond the end: the file has 3 lines" in str(sandbox.read(f"{NATIVE}/a", offset=n).error) for n in (3, 9))
        assert sandbox.read(f"{NATIVE}/a", limit=0).no_lines_requested
        assert sandbox.read(f"{NATIVE}/a", offset=-1, limit=1).start_line == 1

    def test_edit_keeps_line_ends(self, sandbox: SkerrySandbox) -> None:
        sandbox.write(f"{NATIVE}/a", "one\r\ntwo\r\n")
        assert sandbox.edit(f"{NATIVE}/a", "one\ntwo", "1\n2").occurrences == 1
        assert sandbox.thread.files.download(f"{NATIVE}/a") == b"1\r\n2\r\n"
        assert sandbox.edit(f"{NATIVE}/a", "", "x").error

    def test_grep_is_bounded(self, sandbox: SkerrySandbox) -> None:
        sandbox.write(f"{NATIVE}/.h/b.py", "x\n" * 5)
        sandbox.write(f"{NATIVE}/a.py", "x\n" * 5)
        got = sandbox.grep("x", NATIVE, "**/*.py")
        assert not got.truncated and [m["path"] for m in got.matches or []] == [f"{NATIVE}/a.py"] * 5
        for most, truncated in ((5, False), (4, True), (0, True)):
            got = sandbox.grep("x", NATIVE, "**/*.py", max_count=most)
            assert (len(got.matches or []), got.truncated) == (most, truncated)

    def test_delete(self, sandbox: SkerrySandbox) -> None:
        sandbox.write(f"{NATIVE}/d/a", "x")
        assert sandbox.delete(f"{NATIVE}/d").error is None
        assert "not found" in str(sandbox.delete(f"{NATIVE}/d").error)

    def test_execute(self, sandbox: SkerrySandbox) -> None:
        got = sandbox.execute("echo 1; echo 2 >&2; echo 3; exit 5")
        assert (got.output, got.exit_code) == ("1\n2\n3\n", 5)
        assert sandbox.execute("sleep 30", timeout=1).exit_code == 124
        cut = sandbox.execute("yes | head -c 3000000")
        assert cut.truncated and "All of the output is in" in cut.output

    def test_new_thread_has_skills(self, client: Client) -> None:
        """Agents look for them before anything runs, and do not make the thread by that."""
        sandbox = SkerrySandbox(client.thread("new-" + uuid.uuid4().hex[:8]))
        middleware = SkillsMiddleware(backend=sandbox, sources=["/mnt/skills/public"])
        found = middleware.before_agent(SkillsState(messages=[]), Runtime(), {})
        assert found and "csv-profile" in {skill["name"] for skill in found["skills_metadata"]}
        empty = sandbox.ls("/mnt/user-data/workspace")
        assert empty.error is None and not empty.entries
        with pytest.raises(NotFound):
            sandbox.thread.info()

    def test_errors_are_results(self, server: Server) -> None:
        with Client(server.url, api_key="none", retries=0) as client:
            bad = SkerrySandbox(client.thread("no/such name"))
            assert bad.execute("true").exit_code is None and bad.write(f"{NATIVE}/a", "x").error


def test_other_versions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import skerry.deepagents

    for version in ("0.6.12", "0.7.5", "0.8.0", "1.0"):
        with monkeypatch.context() as m, pytest.raises(ImportError, match=f"from 0.7.6 to below 0.8, and {version} is installed"):
            m.setattr(metadata, "version", lambda _, v=version: v)
            importlib.reload(skerry.deepagents)
