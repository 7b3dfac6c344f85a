"""Archives and watches of files, and what an administrator's client does, against a real server."""

from __future__ import annotations

import io
import tarfile

import pytest

from skerry import AsyncClient, Client, Thread, errors
from tests.conftest import Server

WORK = "/mnt/user-data/workspace"


def test_archives(thread: Thread) -> None:
    thread.files.write(f"{WORK}/d/a.txt", "one")
    for format in ("tar.gz", "tar", "zip"):
        out = io.BytesIO()
        assert thread.files.download_archive(WORK, out, format=format) == len(out.getvalue())
        written = thread.files.upload_archive(f"/mnt/user-data/outputs/{format}", out.getvalue())
        assert (written.files, written.bytes) == (1, 3)
        assert thread.files.read(f"/mnt/user-data/outputs/{format}/d/a.txt").content == "one"
    hostile = io.BytesIO()
    with tarfile.open(fileobj=hostile, mode="w:gz") as tar:
        link = tarfile.TarInfo("passwd")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(errors.Invalid, match="link"):
        thread.files.upload_archive("/mnt/user-data/outputs", hostile.getvalue())


def test_watch(thread: Thread) -> None:
    thread.exec("true")
    seen = []
    for event in thread.files.watch(WORK):
        seen.append((event.change, event.path))
        match seen[-1]:
            case ("started", _):
                thread.exec("echo 1 > a")
            case ("created", "/mnt/user-data/workspace/a"):
                thread.files.delete(f"{WORK}/a")
            case ("deleted", "/mnt/user-data/workspace/a"):
                thread.release()
    assert ("deleted", f"{WORK}/a") in seen
    with pytest.raises(errors.NotFound):
        next(iter(thread.files.watch("/mnt/user-data/none")))


def test_events(thread: Thread) -> None:
    before = thread.exec("true")
    seen, resume = [], ""
    for event in thread.events():
        if event.exec is not None and event.exec.exec_id == before.exec_id:
            continue  # its end may be told behind its answer
        if event.kind in ("tools.changed", "prompt.changed"):
            continue  # packs of other tests come and go
        seen.append(event.kind)
        match event.kind:
            case "started":
                thread.execute_code("echo 1 > a", language="bash")
            case "exec.ended":
                resume = event.id or ""
            case "files.changed":
                assert event.files is not None and event.files.paths == [f"{WORK}/a"]
                break
    assert seen == ["started", "exec.started", "exec.ended", "files.changed"]
    with pytest.raises(errors.DeadlineExceeded):
        list(thread.events(deadline_s=1))
    again = []
    for event in thread.events(resume):
        if event.kind in ("tools.changed", "prompt.changed"):
            continue
        again.append(event.kind)
        if event.kind == "files.changed":
            thread.delete()
    assert again[:2] == ["started", "files.changed"]
    with pytest.raises(errors.NotFound):
        next(iter(thread.events()))


async def test_events_async(server: Server) -> None:
    async with AsyncClient(server.url, timeout_s=20) as client:
        thread = client.thread("events-async")
        await thread.exec("true")
        async for event in thread.events():
            if event.kind == "started":
                await thread.exec("true")
            if event.kind == "exec.ended":
                await thread.delete()
        assert event.kind == "sandbox.ended"


def test_administration(client: Client, thread: Thread) -> None:
    thread.exec("true")
    assert list(client.approvals()) == []
    names = [s.name for s in client.skills()]
    if names:
        assert client.skill(names[0]).name == names[0]
        assert client.switch_skill(names[0], True).enabled
    with pytest.raises(errors.NotFound):
        client.skill("none-of-that-name")
    with pytest.raises(errors.NotFound):
        client.decide("none", "deny")
    with pytest.raises(errors.APIError):
        thread.install_skill(f"{WORK}/none.skill")
    with pytest.raises(errors.NotFound):
        thread.server_tools("none")
