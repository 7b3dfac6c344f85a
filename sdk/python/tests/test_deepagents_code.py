"""Deep Agents Code's own way to a sandbox: the entry point, and what `dcode --sandbox skerry` does with it."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from deepagents_code.integrations import sandbox_factory
from deepagents_code.integrations.sandbox_provider import SandboxError
from deepagents_code.integrations.sandbox_registry import SandboxRegistry

from skerry import Client
from skerry.deepagents_code import SkerryProvider
from tests.conftest import ROOT, Server


@pytest.fixture
def installed(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package as it is installed: entry points are in its metadata."""
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--no-index", "--target", str(tmp_path), str(ROOT / "sdk/python")], check=True, timeout=120)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SKERRY_SERVER", server.url)
    monkeypatch.setenv("HOME", str(tmp_path))
    yield


@pytest.mark.usefixtures("installed")
def test_sandboxes(client: Client) -> None:
    assert "skerry" in SandboxRegistry().available_providers()
    assert sandbox_factory.get_default_working_dir("skerry") == "/mnt/user-data/workspace"
    with sandbox_factory.create_sandbox("skerry", params={"timeout_s": 30}) as sandbox:
        made = sandbox.id
        assert sandbox.execute("pwd; echo kept > a.txt").output == "/mnt/user-data/workspace\n"
        assert sandbox.read("/mnt/user-data/workspace/a.txt").file_data["content"].strip() == "kept"
    assert made.startswith("dcode-") and made not in [t.thread_id for t in client.threads()]
    name = "t-" + uuid.uuid4().hex[:12]
    for said in ("", "kept\n"):  # one that is named stays
        with sandbox_factory.create_sandbox("skerry", sandbox_id=name) as sandbox:
            assert sandbox.id == name and sandbox.execute("cat a.txt 2>/dev/null; echo kept > a.txt").output == said
    client.thread(name).delete()


def test_refusals(client: Client) -> None:
    provider = SkerryProvider(client)
    with pytest.raises(ValueError, match="takes the parameters template and timeout_s, and not snapshot"):
        provider.get_or_create(snapshot="x")
    with pytest.raises(SandboxError, match="no-such-template"):
        provider.get_or_create(template="no-such-template")
    provider.delete(sandbox_id="never-made")
