"""The story of examples/drive_to_crm with tools that live elsewhere. sdk/rust/test.sh builds the CRM, and runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from skerry import APIError, Client, Thread
from tests.conftest import ROOT, Server

EXAMPLE = ROOT / "sdk" / "python" / "examples" / "drive_to_crm"
CRM = os.environ.get("SKERRY_TEST_CRM", "")

pytestmark = pytest.mark.skipif(not CRM, reason="SKERRY_TEST_CRM names no program: sdk/rust/test.sh builds it")


@pytest.fixture
def crm(server: Server) -> Iterator[None]:
    env = {k: v for k, v in os.environ.items() if k != "SKERRY_KEY"} | {"SKERRY_SERVER": server.url}
    program = subprocess.Popen([CRM], env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "connected\n"
        yield
        program.terminate()
        assert program.wait(60) == 0
    finally:
        program.kill()
        program.wait(60)


def test_story(server: Server, client: Client, thread: Thread, crm: None) -> None:
    args = [sys.executable, str(EXAMPLE / "handlers.py"), "--thread", thread.id]
    done = subprocess.run(args, env=os.environ | {"SKERRY_SERVER": server.url}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    # What the program prints is all that the model has seen.
    assert "OPP-001 has Q4 2025 Financial Summary: 3 findings, 107" in done.stdout, done.stdout
    assert "Appendix" not in done.stdout and len(done.stdout) < 10_000
    record: Any = thread.call_tool("salesforce__get_record", {"recordId": "OPP-001"}).result
    assert record["fields"]["Description"].startswith("Key finding: revenue grew 23%")
    report = record["fields"]["Report"]
    assert len(report.encode()) > 100_000 and report.count("Appendix line") == 2500 and report.endswith("read.\n")
    called = [r for r in client.audit(thread=thread.id, action="tool_call") if r.phase == "result" and r.exec]
    assert [r.subject for r in reversed(called)] == [
        "skill/google-drive/list_documents",
        "skill/google-drive/get_document",
        "salesforce__update_record",
    ]
    assert len({r.exec for r in called}) == 1
    with pytest.raises(APIError) as gone:  # with the program that had them
        thread.call_tool("list_documents", {"query": "report"}, server="skill/google-drive")
    assert gone.value.code == "not_found"
