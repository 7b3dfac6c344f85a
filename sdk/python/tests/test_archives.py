"""Archives and watches of files, and what an administrator's client does, against a real server."""

from __future__ import annotations

import io
import tarfile

import pytest

from skerry import Client, Thread, errors

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
