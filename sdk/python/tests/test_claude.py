"""Sessions of Claude's Managed Agents in threads. The control plane is a script of ours; Anthropic's SDK and the sandboxes are real."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import itertools
import json
import re
import shutil
import tarfile
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from anthropic import AsyncAnthropic
from anthropic.lib.tools import ToolError
from anthropic.lib.tools._beta_functions import aclose_runnable_tool
from anthropic.lib.tools.agent_toolset import AgentToolContext

from skerry import AsyncClient, _claude_memory
from skerry.claude import MAX_OUTPUT, SkerryWorker, session_tools, thread_of
from tests.conftest import ROOT, Server

WHEN = "2026-01-01T00:00:00Z"
ENVIRONMENT = "env_test"
KEY = "environment-key"


class Stream(httpx.AsyncByteStream):
    def __init__(self, events: AsyncIterator[dict[str, Any]]) -> None:
        self.events = events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for event in self.events:
            yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


class ControlPlane:
    """The side of Anthropic: hands out each session once, asks for one tool call after the other, and keeps what is answered."""

    def __init__(self, sessions: dict[str, list[tuple[str, dict[str, Any]]]], skills: dict[str, bytes]) -> None:
        self.calls, self.skills = sessions, skills
        self.waiting = list(sessions)
        self.events: dict[str, list[dict[str, Any]]] = {s: [] for s in sessions}
        self.results: dict[str, list[dict[str, Any]]] = {s: [] for s in sessions}
        self.changed: dict[str, asyncio.Event] = {s: asyncio.Event() for s in sessions}
        self.stopped: dict[str, asyncio.Event] = {s: asyncio.Event() for s in sessions}
        self.beats = itertools.count()
        self.keys: set[str] = set()

    def client(self) -> AsyncAnthropic:
        transport = httpx.MockTransport(self.answer)
        return AsyncAnthropic(api_key="not-for-workers", http_client=httpx.AsyncClient(transport=transport), base_url="http://control.test")

    async def answer(self, request: httpx.Request) -> httpx.Response:
        self.keys.add(request.headers.get("authorization", ""))
        match request.url.path.strip("/").split("/")[1:]:
            case ["environments", _, "work", "poll"]:
                if not self.waiting:
                    await asyncio.sleep(0.05)
                    return httpx.Response(200, content=b"null", headers={"content-type": "application/json"})
                return httpx.Response(200, json=self.work(self.waiting.pop(0), "queued"))
            case ["environments", _, "work", work, "ack"]:
                return httpx.Response(200, json=self.work(work.removeprefix("work_"), "starting"))
            case ["environments", _, "work", _, "heartbeat"]:
                beat = {"type": "work_heartbeat", "last_heartbeat": f"beat-{next(self.beats)}", "lease_extended": True}
                return httpx.Response(200, json=beat | {"state": "active", "ttl_seconds": 30})
            case ["environments", _, "work", work, "stop"]:
                self.stopped[work.removeprefix("work_")].set()
                return httpx.Response(200, json=self.work(work.removeprefix("work_"), "stopped"))
            case ["sessions", session]:
                agent = {"skills": [{"type": "custom", "skill_id": name, "version": "1"} for name in self.skills]}
                return httpx.Response(200, json={"id": session, "type": "session", "status": "running", "agent": agent, "resources": []})
            case ["sessions", session, "events"] if request.method == "GET":
                return httpx.Response(200, json={"data": self.events[session], "next_page": None})
            case ["sessions", session, "events"]:
                sent = json.loads(request.content)["events"]
                self.results[session] += sent
                self.events[session] += [event | {"id": f"sevt_{uuid.uuid4().hex}", "processed_at": WHEN} for event in sent]
                self.changed[session].set()
                return httpx.Response(200, json={"data": sent})
            case ["sessions", session, "events", "stream"]:
                stream = Stream(self.talk(session))
                return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=stream)
            case ["skills", name, "versions", version, *rest] if not rest:
                return httpx.Response(
                    200, json={"id": version, "skill_id": name, "version": version, "name": name, "type": "skill_version"}
                )
            case ["skills", name, "versions", _, _]:
                return httpx.Response(200, content=self.skills[name])
        return httpx.Response(404, json={"type": "error", "error": {"type": "not_found_error", "message": str(request.url)}})

    def work(self, session: str, state: str) -> dict[str, Any]:
        data = {"type": "session", "id": session}
        return {
            "id": "work_" + session,
            "type": "work",
            "state": state,
            "data": data,
            "environment_id": ENVIRONMENT,
            "created_at": WHEN,
            "metadata": {},
        }

    async def talk(self, session: str) -> AsyncIterator[dict[str, Any]]:
        for name, given in self.calls[session]:
            answered = len(self.results[session])
            event = {"id": f"sevt_{uuid.uuid4().hex}", "type": "agent.tool_use", "name": name, "input": given, "processed_at": WHEN}
            self.events[session].append(event)
            yield event
            while len(self.results[session]) == answered:
                self.changed[session].clear()
                await self.changed[session].wait()
        yield {"id": f"sevt_{uuid.uuid4().hex}", "type": "session.status_terminated", "processed_at": WHEN}


def text_of(result: dict[str, Any]) -> str:
    return "".join(str(block.get("text", "")) for block in result["content"])


def skill(name: str, files: dict[str, tuple[str, int]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for path, (text, mode) in files.items():
            info = tarfile.TarInfo(f"{name}/{path}")
            info.size, info.mode = len(text), mode
            archive.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


@pytest.fixture
async def api(server: Server) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.url) as client:
        yield client


async def test_worker(api: AsyncClient) -> None:
    """Two sessions at once, each with its own files, shell and copy of the skills; the lease of each ends with it."""
    skills = {
        "greet": skill("greet", {"SKILL.md": ("---\nname: greet\ndescription: greets\n---\n", 0o644), "run.sh": ("echo hello $1\n", 0o755)})
    }
    calls: list[tuple[str, dict[str, Any]]] = [
        ("bash", {"command": "cd skills/greet && name=ann"}),
        ("bash", {"command": "./run.sh $name; pwd"}),
        ("write", {"file_path": "notes/a.txt", "content": "one\ntwo\nthree\n"}),
        ("edit", {"file_path": "/workspace/notes/a.txt", "old_string": "two", "new_string": "2"}),
        ("read", {"file_path": "notes/a.txt", "view_range": [2, 3]}),
        ("grep", {"pattern": "^t.*e$"}),
        ("glob", {"pattern": "**/*.txt"}),
        ("read", {"file_path": "nosuch"}),
        ("bash", {"command": "cat ../../notes/a.txt; ls ~/.. >&2; exit 3"}),
    ]
    ids = [f"sesn_{uuid.uuid4().hex}" for _ in range(2)]
    plane = ControlPlane({s: list(calls) for s in ids}, skills)
    worker = SkerryWorker(plane.client(), api, environment_id=ENVIRONMENT, environment_key=KEY, sessions=2, max_idle=1)
    running = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(120):
            for stopped in plane.stopped.values():
                await stopped.wait()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    for session in ids:
        results = plane.results[session]
        texts = [text_of(r) for r in results]
        assert [bool(r.get("is_error")) for r in results] == [False] * 7 + [True] * 2, texts
        assert texts[1] == "hello ann\n/mnt/user-data/workspace/skills/greet"
        assert texts[4].splitlines() == ["2", "three"]
        assert texts[5] == "/mnt/user-data/workspace/notes/a.txt:3:three"
        assert texts[6] == "/mnt/user-data/workspace/notes/a.txt"
        assert "nosuch" in texts[7] and "no such" in texts[7].lower(), texts[7]
        assert "one\n2\nthree" in texts[8] and "the shell ended with exit code 3" in texts[8]
        assert (await api.thread(thread_of(session)).files.read("/mnt/user-data/workspace/notes/a.txt")).content.startswith("one\n2\n")
    assert all("not-for-workers" not in key for key in plane.keys)


@pytest.fixture
async def tools(api: AsyncClient, tmp_path: Path) -> AsyncIterator[dict[str, Any]]:
    context = AgentToolContext(workdir=tmp_path, session_id=f"sesn_{uuid.uuid4().hex}")
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "facts.md").write_text("the sky is blue\n")
    context.allowed_roots = [tmp_path / "memory"]
    made = {tool.name: tool for tool in session_tools(api, context)}
    yield made
    await made["bash"].aclose() if hasattr(made["bash"], "aclose") else None


async def refused(tool: Any, **given: Any) -> str:
    with pytest.raises(ToolError) as caught:
        await tool.call(given)
    return str(caught.value)


async def test_shell(tools: dict[str, Any]) -> None:
    """A shell keeps what a command leaves; one that does not end, or cannot be read, costs no more than itself."""
    bash = tools["bash"]
    assert await bash.call({"command": "x=1; f() { echo $x; }; echo out; echo err >&2"}) == "out\nerr"
    assert await bash.call({"command": "f; printf 'no line'"}) == "1\nno line"
    assert "unexpected" in await refused(bash, command="echo 'open")
    assert await bash.call({"command": "f; cat"}) == "1"
    assert "took more than 1 s" in await refused(bash, command="sleep 100", timeout_ms=1000)
    assert "exit code 127" in await refused(bash, command="f 2>/dev/null")
    many = await bash.call({"command": "seq 1 100000"})
    assert len(many) < MAX_OUTPUT + 100 and many.startswith("[the beginning") and many.endswith("\n100000")
    assert await bash.call({"command": "printf '\\e[31mred\\e[0m'"}) == "red"
    assert "anew" in await bash.call({"restart": True})
    assert "want a command" in await refused(bash)


async def test_memory(tools: dict[str, Any], tmp_path: Path) -> None:
    """Memory is read and written where the worker keeps it like the store, and nothing else of this machine is."""
    facts = str(tmp_path / "memory" / "facts.md")
    assert await tools["read"].call({"file_path": facts}) == "the sky is blue\n"
    await tools["edit"].call({"file_path": facts, "old_string": "blue", "new_string": "grey"})
    assert (tmp_path / "memory" / "facts.md").read_text() == "the sky is grey\n"
    assert "grey" in await tools["grep"].call({"pattern": "sky", "path": str(tmp_path / "memory")})
    (tmp_path / "secret").write_text("s")
    for path in (str(tmp_path / "secret"), f"{tmp_path}/memory/../secret", "../../../etc/shadow"):
        await refused(tools["read"], file_path=path)


async def test_memory_in_commands(api: AsyncClient, tmp_path: Path) -> None:
    """Commands see memory where the agent is told that it is. What they change of it is kept, within bounds; jobs, too, at the end."""
    place = Path("/mnt/memory")
    stores = [place / f"{name}-{uuid.uuid4().hex}" for name in ("own", "team")]
    try:
        for store in stores:
            store.mkdir(parents=True)
            (store / ".anthropic-memory-store").write_text("version 1\nmemstore_1\n")
            (store / "facts.md").write_text("the sky is blue\n")
        own, team = stores
        context = AgentToolContext(workdir=tmp_path, session_id=f"sesn_{uuid.uuid4().hex}")
        context.allowed_roots, context.read_only_roots = stores, [team]
        made = {tool.name: tool for tool in session_tools(api, context)}
        bash = made["bash"]
        assert await bash.call({"command": f"cat {own}/facts.md && ls -A {own}"}) == "the sky is blue\nfacts.md"
        await made["edit"].call({"file_path": f"{own}/facts.md", "old_string": "blue", "new_string": "grey"})
        assert (
            await bash.call({"command": f"cd {own} && cat facts.md && mkdir b && echo new >b/c.md && echo old >d.md"}) == "the sky is grey"
        )
        assert (own / "b/c.md").read_text() == "new\n"
        await made["write"].call({"file_path": f"{own}/e.md", "content": "e\n"})
        assert await bash.call({"command": "rm d.md; sed -i s/grey/red/ facts.md; ls"}) == "b\ne.md\nfacts.md"
        assert sorted(p.name for p in own.iterdir()) == [".anthropic-memory-store", "b", "e.md", "facts.md"]
        assert (own / "facts.md").read_text() == "the sky is red\n"
        # What is not kept is told, once.
        said = await bash.call(
            {"command": f"echo x >{team}/facts.md; head -c 300000 /dev/zero >big; printf '\\xff' >raw; ln -s /etc/passwd l"}
        )
        assert sorted(re.findall(r"/(\S+) was not kept", str(said))) == sorted(
            f"{s}/{n}".lstrip("/") for s, n in ((team, "facts.md"), (own, "big"), (own, "raw"))
        ), said
        assert await bash.call({"command": f"cat {team}/facts.md"}) == "the sky is blue"
        # A folder that is gone, perhaps with the thread, forgets nothing.
        assert "not kept" not in await bash.call({"command": "cd; rm -rf /mnt/memory/*"})
        assert await bash.call({"command": f"cat {own}/facts.md"}) == "the sky is red"
        # A command that is ended, and a job.
        await refused(bash, command=f"echo late >{own}/late.md; sleep 60", timeout_ms=1500)
        assert (own / "late.md").read_text() == "late\n"
        await bash.call({"command": f"(sleep 1; echo job >{own}/job.md) &"})
        await asyncio.sleep(2)
        await aclose_runnable_tool(bash)
        assert (own / "job.md").read_text() == "job\n"
        assert sorted(p.name for p in own.iterdir()) == [".anthropic-memory-store", "b", "e.md", "facts.md", "job.md", "late.md"]
        assert (team / "facts.md").read_text() == "the sky is blue\n"
    finally:
        for store in stores:
            shutil.rmtree(store, ignore_errors=True)
        with contextlib.suppress(OSError):
            await asyncio.to_thread(place.rmdir)


async def test_memory_is_bounded(api: AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often commands make new files, the worker keeps so many of them, and so many bytes, and says so in a few words."""
    for name, limit in {"MAX_FILES": 8, "MAX_BYTES": 4000, "MAX_NOTES": 3}.items():
        monkeypatch.setattr(_claude_memory, name, limit)
    store = Path("/mnt/memory") / f"own-{uuid.uuid4().hex}"
    try:
        store.mkdir(parents=True)
        context = AgentToolContext(workdir=tmp_path, session_id=f"sesn_{uuid.uuid4().hex}")
        context.allowed_roots = [store]
        bash = {tool.name: tool for tool in session_tools(api, context)}["bash"]
        said = ""
        for turn in range(4):  # more than a list shows, so that it is not known what is gone
            said = str(await bash.call({"command": f"cd {store} && rm -f * && for i in 1 2 3 4 5 6 7 8 9 10; do echo x >{turn}-$i; done"}))
        kept = [p for p in store.iterdir() if p.is_file()]
        assert len(kept) <= 8, kept
        assert said.count("was not kept") <= 3 and "more like these" in said, said
        await bash.call({"command": f"cd {store} && rm -f *"})
        said = str(await bash.call({"command": f"cd {store} && for i in 1 2 3 4 5; do head -c 1000 /dev/zero | tr '\\0' y >big-$i; done"}))
        assert sum(p.stat().st_size for p in store.iterdir()) <= 4000, said
        assert "4000 bytes" in said
        await aclose_runnable_tool(bash)
    finally:
        shutil.rmtree(store, ignore_errors=True)
        with contextlib.suppress(OSError):
            store.parent.rmdir()


async def test_taken_shell(tools: dict[str, Any]) -> None:
    """Code that takes over the shell of its session says what it likes there, and breaks nothing else."""
    bash = tools["bash"]
    trap = r"""printf() { builtin printf '\n%s%s %s\n' "$2" "$3" nonsense; }"""
    assert "exit code 1" in await refused(bash, command=trap)
    assert "anew" in await bash.call({"restart": True})
    assert await bash.call({"command": "echo again"}) == "again"
    # A mark that comes in pieces is found.
    assert await bash.call({"command": "for i in $(seq 300); do printf .; done"}) == "." * 300


async def test_media(tools: dict[str, Any]) -> None:
    picture = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
    await tools["bash"].call({"command": f"echo {base64.b64encode(picture).decode()} | base64 -d > p.png; head -c 300000 /dev/zero > z"})
    (block,) = await tools["read"].call({"file_path": "p.png"})
    assert block["source"] == {"type": "base64", "media_type": "image/png", "data": base64.b64encode(picture).decode()}
    assert "view_range" in await refused(tools["read"], file_path="z")


async def test_docs(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of the page serves a session."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "claude.md").read_text(), re.M | re.S)
    session = f"sesn_{uuid.uuid4().hex}"
    plane = ControlPlane({session: [("bash", {"command": "echo served"})]}, {})
    monkeypatch.setattr("anthropic.AsyncAnthropic", plane.client)
    for name, value in {"SKERRY_SERVER": server.url, "ANTHROPIC_ENVIRONMENT_ID": ENVIRONMENT, "ANTHROPIC_ENVIRONMENT_KEY": KEY}.items():
        monkeypatch.setenv(name, value)
    names: dict[str, Any] = {}
    exec(compile(block, "docs/claude.md", "exec"), names)
    running = asyncio.create_task(names["main"]())
    try:
        async with asyncio.timeout(60):
            await plane.stopped[session].wait()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    assert text_of(plane.results[session][0]) == "served"


def test_wrong_options() -> None:
    with pytest.raises(ValueError, match="want at least 1"):
        SkerryWorker(AsyncAnthropic(api_key="x"), environment_id="e", environment_key="k", sessions=0)
