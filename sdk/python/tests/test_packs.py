"""Packs on a real server: agents call functions of this process by the public API."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from skerry import APIError, Client, Thread
from skerry.packs import BearerKey, Credential, Pack, Refused, SSHAgent, SSHKeyFile, ToolError, caller, cancelled, progress
from tests.conftest import ROOT, Server


class Lead(BaseModel):
    email: str


def crm(name: str = "crm") -> Pack:
    pack = Pack(name, "1.0.0")

    @pack.tool
    def find_lead(name: str) -> Lead:
        """Finds a lead by name"""
        if name == "Eve":
            raise ToolError("no lead of that name")
        return Lead(email=f"{name}@{caller().thread}")

    return pack


def eventually(what: str, holds: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < ends, f"not within a minute: {what}"
        time.sleep(0.02)


class Served:
    """A pack that is served in a thread, as a program serves it."""

    def __init__(self, pack: Pack, url: str, credential: Credential | None = None) -> None:
        self.pack = pack
        self.connections = 0
        self.failed: BaseException | None = None
        self.thread = threading.Thread(target=self.serve, args=(url, credential))
        self.thread.start()
        try:
            eventually("the pack is connected", lambda: self.connections > 0 or not self.thread.is_alive())
        except AssertionError:
            pack.stop()
            raise

    def serve(self, url: str, credential: Credential | None) -> None:
        try:
            self.pack.run(url, credential, connected=self.connected)
        except BaseException as err:
            self.failed = err

    def connected(self) -> None:
        self.connections += 1

    def __enter__(self) -> Served:
        if self.failed is not None:
            raise self.failed
        return self

    def __exit__(self, *_: object) -> None:
        self.pack.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()


def test_an_agent_calls_a_function_of_this_program(server: Server, client: Client, thread: Thread) -> None:
    with Served(crm(), server.url):
        assert thread.call_tool("crm__find_lead", {"name": "Ada"}).result == {"email": f"Ada@{thread.id}"}
        failed = thread.call_tool("crm__find_lead", {"name": "Eve"})
        assert (failed.is_error, failed.result) == (True, "no lead of that name")
        with pytest.raises(APIError, match=r"input\.name"):
            thread.call_tool("crm__find_lead", {"name": 5})
        (mine,) = [s for s in thread.servers().servers if s.name == "crm"]
        assert (mine.transport, mine.tool_count) == ("pack", 1)
        done = thread.execute_code("from servers.crm import find_lead\nprint(find_lead(name='Bo')['email'])", language="python")
        assert done.stdout == f"Bo@{thread.id}\n"
    gone = httpx.post(f"{server.url}/api/threads/{thread.id}/tools/call", json={"tool": "crm__find_lead", "input": {"name": "Ada"}})
    assert gone.json()["code"] == "unavailable"


def test_tools_come_and_go(server: Server, thread: Thread) -> None:
    pack = crm()
    with Served(pack, server.url):
        pack.tool(name="count_leads")(count_leads)
        pack.reload()
        eventually("the tool is listed", lambda: "count_leads" in thread.search_tools("count leads").model_dump_json())
        assert thread.call_tool("crm__count_leads").result == "two"
        pack.tool(name="not a name")(count_leads)
        with pytest.raises(Refused, match="not a name"):
            pack.reload()
        pack.remove("not a name")
        assert thread.call_tool("crm__count_leads").result == "two"


def count_leads() -> str:
    return "two"


def test_a_caller_that_gives_up_ends_the_tool(server: Server, thread: Thread) -> None:
    pack, began, ended = Pack("slow", "1"), threading.Event(), threading.Event()

    @pack.tool
    def sleep() -> str:
        progress(0, message="sleeps")
        began.set()
        if cancelled(wait_s=60):
            ended.set()
        return "slept"

    @pack.tool(timeout_s=1)
    def late() -> str:
        told = cancelled(wait_s=60)
        time.sleep(1)  # server and pack have the same deadline: an answer in that moment may still be in time
        return f"cancelled: {told}"

    with Served(pack, server.url):
        url = f"{server.url}/api/threads/{thread.id}/tools/call"

        def give_up() -> None:
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(url, json={"tool": "slow__sleep", "input": {}}, timeout=httpx.Timeout(10, read=2))

        caller = threading.Thread(target=give_up)
        caller.start()
        assert began.wait(60) and ended.wait(60)
        caller.join()
        with pytest.raises(APIError) as over:
            thread.call_tool("slow__late")
        assert over.value.code == "timeout"


def test_it_returns_to_a_server_that_was_killed(thread_of: Callable[[Server], Thread]) -> None:
    server = Server()
    try:
        with Served(crm(), server.url) as served:
            thread = thread_of(server)
            assert not thread.call_tool("crm__find_lead", {"name": "Ada"}).is_error
            server.kill()
            server.start()
            eventually("the pack is back", lambda: served.connections == 2)
            assert thread.call_tool("crm__find_lead", {"name": "Ada"}).result == {"email": f"Ada@{thread.id}"}
    finally:
        server.stop()


@pytest.fixture
def thread_of() -> Iterator[Callable[[Server], Thread]]:
    clients: list[Client] = []

    def make(server: Server) -> Thread:
        clients.append(Client(server.url))
        return clients[-1].thread("t-packs")

    yield make
    for c in clients:
        c.close()


DOCUMENT = """
import sys
from typing import Annotated
from pydantic import BaseModel
class Lead(BaseModel):
    email: str
class leads:
    find = staticmethod(lambda name: Lead(email=name + "@example.com"))
server, key = sys.argv[1:]
"""


def test_the_program_of_the_page(keys: Keys) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/packs.md").read_text(), re.M | re.S)
    program = subprocess.Popen([sys.executable, "-c", DOCUMENT + block, keys.server.url, keys.key("pack")], env=os.environ)
    try:
        call = {"tool": "crm__find_lead", "input": {"name": "Ada"}}

        def answers() -> bool:
            assert program.poll() is None
            answer = keys.http.post("/api/threads/t-page/tools/call", json=call).json()
            return bool(answer.get("result") == {"email": "Ada@example.com"})

        eventually("the program answers calls", answers)
        program.send_signal(signal.SIGTERM)
        assert program.wait(60) == 0
    finally:
        program.kill()


PROGRAM = """
import sys, time
from skerry.packs import Pack, progress
pack = Pack("dying", "1")
@pack.tool
def work() -> str:
    print("works", flush=True)
    time.sleep(1)
    return "worked"
pack.run(sys.argv[1], connected=lambda: print("connected", flush=True))
"""


def test_sigterm_lets_calls_end(server: Server, thread: Thread) -> None:
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, server.url], stdout=subprocess.PIPE, text=True, env=os.environ)
    assert program.stdout is not None
    try:
        assert program.stdout.readline() == "connected\n"
        results: list[Any] = []
        call = threading.Thread(target=lambda: results.append(thread.call_tool("dying__work").result))
        call.start()
        assert program.stdout.readline() == "works\n"
        program.send_signal(signal.SIGTERM)
        assert program.wait(60) == 0
        call.join(60)
        assert results == ["worked"]
    finally:
        program.kill()
        program.stdout.close()


class Keys:
    """A server with keys, and what its administrator does."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.http = httpx.Client(base_url=server.url, timeout=60)
        self.admin = self.key("admin")
        self.http.headers["Authorization"] = f"Bearer {self.admin}"

    def key(self, role: str) -> str:
        made = self.http.post("/api/keys", json={"name": role, "user": role, "role": role})
        return str(made.raise_for_status().json()["secret"])

    def identity(self, credential: Credential, name: str = "") -> str:
        """Whom the server sees who provides a pack with this credential. Each has a name of its own, which a server keeps for its owner."""
        name = name or "crm-" + uuid.uuid4().hex[:8]
        with Served(crm(name), self.server.url, credential):
            return str(self.http.get(f"/api/packs/{name}").raise_for_status().json()["identity"])


@pytest.fixture(scope="module")
def keys() -> Iterator[Keys]:
    server = Server()
    k = Keys(server)
    yield k
    k.http.close()
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(60)
    server.stop()


def keygen(*args: str | Path) -> str:
    return subprocess.run(["ssh-keygen", *map(str, args)], capture_output=True, text=True, check=True).stdout


def test_a_bearer_key(keys: Keys) -> None:
    assert "key" in keys.identity(BearerKey(keys.key("pack")))
    assert "secret" not in repr(BearerKey("secret"))
    for bad in (None, BearerKey(keys.key("agent")), BearerKey("sk_" + "0" * 64)):
        with pytest.raises(Refused), Served(crm(), keys.server.url, bad):
            pass


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_an_ssh_key(keys: Keys, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "key"
    keygen("-q", "-t", kind, *(["-b", "3072"] if kind == "rsa" else []), "-N", "", "-f", file)
    with pytest.raises(Refused, match="not among the keys"), Served(crm(), keys.server.url, SSHKeyFile(file)):
        pass
    keys.http.post("/api/packs/keys", json={"key": (tmp_path / "key.pub").read_text(), "packs": ["crm-*"]}).raise_for_status()
    fingerprint = keygen("-lf", file).split()[1]
    assert fingerprint in keys.identity(SSHKeyFile(file))
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(tmp_path / "agent")], stdout=subprocess.DEVNULL)
    try:
        eventually("the agent listens", (tmp_path / "agent").exists)
        subprocess.run(["ssh-add", "-q", str(file)], check=True, env=os.environ | {"SSH_AUTH_SOCK": str(tmp_path / "agent")})
        assert fingerprint in keys.identity(SSHAgent(str(tmp_path / "agent"), fingerprint))
        with pytest.raises(Refused, match="no key"), Served(crm(), keys.server.url, SSHAgent(str(tmp_path / "agent"), "SHA256:other")):
            pass
    finally:
        agent.terminate()
        agent.wait(10)


def test_a_certificate(keys: Keys, tmp_path: Path) -> None:
    for name in ("ca", "key"):
        keygen("-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name)
    authority = {"key": (tmp_path / "ca.pub").read_text(), "cert_authority": True, "packs": ["crm-*"]}
    keys.http.post("/api/packs/keys", json=authority).raise_for_status()
    keygen("-q", "-s", tmp_path / "ca", "-I", "ci", "-n", "other", tmp_path / "key.pub")
    with pytest.raises(Refused), Served(crm(), keys.server.url, SSHKeyFile(tmp_path / "key")):
        pass
    keygen("-q", "-s", tmp_path / "ca", "-I", "ci", "-n", "crm-signed", tmp_path / "key.pub")
    assert "ci" in keys.identity(SSHKeyFile(tmp_path / "key"), "crm-signed")
    (tmp_path / "key-cert.pub").write_text((tmp_path / "ca.pub").read_text())
    with pytest.raises(Refused, match="certificate"), Served(crm(), keys.server.url, SSHKeyFile(tmp_path / "key")):
        pass


def test_the_program_of_the_conformance_suite_ends_when_it_is_refused(keys: Keys) -> None:
    program = ROOT / "sdk" / "python" / "conformance" / "provider.py"
    env = {**os.environ, "SKERRY_SERVER": keys.server.url, "SKERRY_KEY": "sk_wrong"}
    said = subprocess.run([sys.executable, str(program)], env=env, capture_output=True, text=True, timeout=60)
    assert said.returncode == 1 and "refuses the pack" in said.stderr
