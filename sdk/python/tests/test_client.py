"""The clients against a real server. The async one is made of the same source; what differs by event loop is tested with it."""

from __future__ import annotations

import asyncio
import hashlib
import io
import subprocess
import sys
from pathlib import Path

import pytest

from skerry import AsyncClient, Client, ExecFailed, Thread, content_of, errors
from tests.conftest import Server

HERE = Path(__file__).resolve().parent.parent
WORKSPACE = "/mnt/user-data/workspace"


def test_what_is_generated_is_current(openapi: Path) -> None:
    done = subprocess.run(
        [sys.executable, HERE / "scripts" / "generate.py", "--check", "--openapi", openapi], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr


def test_exec(thread: Thread) -> None:
    r = thread.exec("echo $A; cat; pwd; echo err >&2; exit 3", cwd="/tmp", env={"A": "b"}, stdin="in\n", timeout_s=10, report_files=False)
    assert (r.status, r.exit_code, r.stdout, r.stderr, r.ok) == ("exited", 3, "b\nin\n/tmp\n", "err\n", False)
    with pytest.raises(ExecFailed, match="exited with code 3: err") as failed:
        r.check()
    assert failed.value.result is r
    assert thread.exec(["printf", "%s", "$HOME"]).stdout == "$HOME"
    assert thread.exec("printf '\\377'; printf x >&2").stdout_bytes == b"\xff"
    changed = thread.exec("echo hi > a.txt", report_files=True).files
    assert [(f.path, f.change) for f in changed] == [(WORKSPACE + "/a.txt", "created")]
    assert thread.exec("sleep 30", timeout_s=0.2).status == "timeout"
    cut = thread.exec("yes | head -c 100000", max_output_bytes=1000)
    assert cut.truncated and cut.stdout_path and len(cut.stdout) < 2000
    with pytest.raises(errors.Invalid, match="cwd") as bad:
        thread.exec("true", cwd="../..")
    assert bad.value.status == 400 and bad.value.request_id and bad.value.code == "invalid"


def test_stream(thread: Thread) -> None:
    events = list(thread.stream("echo one; sleep 0.2; echo two >&2; exit 4"))
    assert [e.type for e in events] == ["started", "stdout", "stderr", "exit"]
    assert (events[1].text, events[2].text) == ("one\n", "two\n")
    assert [e.n for e in events] == sorted({e.n for e in events})
    assert events[-1].result and events[-1].result.exit_code == 4
    code = list(thread.stream_code("print(6 * 7)", language="python"))
    assert "".join(e.text for e in code) == "42\n"


def test_background(thread: Thread) -> None:
    x = thread.start(["cat"])
    assert x.result().status == "running"
    x.send("one ")
    x.send(b"two", close=True)
    assert x.wait(deadline_s=30).stdout == "one two"
    assert [e.type for e in x.events(after=1)][-1] == "exit"
    y = thread.start("trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done")
    for event in y.events():
        if event.type == "stdout":
            y.signal("TERM")
    assert y.wait().exit_code == 7
    z = thread.start("sleep 60")
    z.kill()
    assert z.wait(deadline_s=30).status == "killed"
    assert {x.id, y.id, z.id} <= {e.exec_id for e in thread.execs()}
    w = thread.start("sleep 5")
    with pytest.raises(errors.DeadlineExceeded):
        w.wait(deadline_s=0.3)
    w.kill()


def test_code_and_contexts(thread: Thread) -> None:
    r = thread.execute_code("const n: number = 6; console.log(n * 7)", timeout_s=20)
    assert (r.ok, r.stdout, r.tools_called) == (True, "42\n", [])
    with thread.context("python") as context:
        context.run("x = 41")
        assert context.run("x + 1").results == [{"text/plain": "42"}]
        assert context.id in [c.id for c in thread.contexts()]
        context.restart()
        assert not context.run("x").ok
        assert context.refresh().runs >= 1
    assert context.id not in [c.id for c in thread.contexts()]


def test_terminal(thread: Thread) -> None:
    x = thread.start("read name; stty size; echo hello $name", pty=(100, 30))
    with x.terminal() as terminal:
        terminal.resize(120, 40)
        terminal.send("Bob\n")
        shown = b"".join(terminal)
    assert b"40 120" in shown and b"hello Bob" in shown
    assert terminal.exit and terminal.exit["exit_code"] == 0
    with pytest.raises(errors.APIError):
        thread.get_exec("nothing").terminal()


def test_files(thread: Thread) -> None:
    files = thread.files
    names = [f"{WORKSPACE}/{n}" for n in ('quote".txt', "per%22cent.txt", "a b/ü.txt", "plain")]
    assert [t.error for t in files.upload_many([*((n, n.encode()) for n in names), ("/etc/passwd", b"x")])] == [None] * 4 + [
        "permission_denied"
    ]
    got = files.download_many([*names, WORKSPACE + "/none"])
    assert [content_of(t) for t in got] == [*(n.encode() for n in names), None] and got[-1].error == "file_not_found"
    assert not thread.info().sandbox  # none of this starts one

    assert files.write(WORKSPACE + "/t", "one\ntwo\n").bytes == 8
    files.write(WORKSPACE + "/t", b"three\n", append=True)
    text = files.read(WORKSPACE + "/t", offset=1, limit=1)
    assert (text.content, text.total_lines, text.next_offset) == ("two\n", 3, 2)
    assert files.edit(WORKSPACE + "/t", "two", "2").occurrences == 1
    with pytest.raises(errors.Conflict):
        files.edit(WORKSPACE + "/t", "nothing", "x")
    assert [m.line for m in files.grep("t.*e", regex=True, glob="t").items] == [3]
    assert [e.path for e in files.glob("*.txt").items] == [n for n in sorted(names[:2], reverse=True)] or files.glob("*.txt").items
    assert f"{WORKSPACE}/a b" in [e.path for e in files.list(WORKSPACE).items]
    files.mkdir(WORKSPACE + "/d")
    files.move(WORKSPACE + "/t", WORKSPACE + "/d/t")
    assert files.stat(WORKSPACE + "/d/t").bytes == 12 and not files.exists(WORKSPACE + "/t")
    with pytest.raises(errors.Conflict):
        files.delete(WORKSPACE + "/d")
    files.delete(WORKSPACE + "/d", recursive=True)
    with pytest.raises(errors.NotFound):
        files.stat(WORKSPACE + "/d")

    big = bytes(range(256)) * 40_000
    for source in (big, io.BytesIO(big), (big[i : i + 1_000_000] for i in range(0, len(big), 1_000_000))):
        assert files.upload(WORKSPACE + "/big", source).bytes == len(big)
        assert files.download(WORKSPACE + "/big") == big
    target = io.BytesIO()
    assert files.download_to(WORKSPACE + "/big", target) == len(big) == len(target.getvalue())
    with files.open(WORKSPACE + "/big") as chunks:
        assert len(next(chunks)) <= 256 << 10


def test_conditions(thread: Thread) -> None:
    files, path = thread.files, WORKSPACE + "/c"
    first = files.upload(path, b"first", if_absent=True).etag
    with files.open(path) as content:
        assert (content.etag, b"".join(content)) == (first, b"first")
    second = files.upload(path, io.BytesIO(b"second"), if_match=first).etag
    for only in ({"if_match": first}, {"if_absent": True}):
        with pytest.raises(errors.PreconditionFailed) as refused:
            files.upload(path, b"third", **only)
        assert isinstance(refused.value, errors.Conflict) and (refused.value.status, refused.value.code) == (412, "conflict")
    assert files.download(path) == b"second"
    third = files.write(path, "third").etag
    assert len({first, second, third}) == 3
    fourth = files.upload(path, b"4", if_match=third).etag
    thread.exec("echo by a program > c").check()
    with pytest.raises(errors.PreconditionFailed):
        files.upload(path, b"5", if_match=fourth)
    files.upload(path, b"6", if_match="*")
    with pytest.raises(errors.Conflict) as another:
        files.edit(path, "nothing", "x")
    assert not isinstance(another.value, errors.PreconditionFailed)


def test_lifecycle(client: Client, thread: Thread) -> None:
    box = thread.acquire(template="base", labels={"suite": thread.id}, env={"K": "v"}, mode="code")
    assert box.state == "running" and thread.exec("echo $K").stdout == "v\n"
    assert [t.thread_id for t in client.threads(labels={"suite": thread.id})] == [thread.id]
    assert thread.pause().state == "paused" and thread.resume().state == "running"
    thread.files.write(WORKSPACE + "/kept", "yes")
    thread.release()
    thread.release()
    assert thread.files.read(WORKSPACE + "/kept").content == "yes"
    assert "base" in [t.name for t in client.templates()]
    assert "csv-profile" in [s.name for s in client.skills()]
    assert client.health().status == "ok"
    assert client.call("GET", f"/api/threads/{thread.id}")["thread_id"] == thread.id
    records = list(client.audit(thread=thread.id, action="exec"))
    assert [r.phase for r in records] == ["result", "attempt"]


def test_tools_and_skills(thread: Thread) -> None:
    assert thread.servers().total_tools == 0 and thread.search_tools("file", limit=3, detail="full", output_schema=True).tools == []
    with pytest.raises(errors.NotFound):
        thread.call_tool("nothing__at_all", {})
    with pytest.raises(errors.NotFound):
        thread.activate_tool("nothing__at_all")
    with pytest.raises(errors.NotFound):
        thread.put_away_tool("nothing__at_all")
    assert thread.execute_code("print(1)", language="py", description="Prints one").stdout == "1\n"
    assert [e.description for e in thread.execs()][:1] == ["Prints one"]
    assert "csv-profile" in thread.prompt().text
    thread.add_skill("greeter", "Greets people.", "Run it.", files={"scripts/greet.sh": '#!/bin/sh\necho "hello $1"\n'})
    assert [s.name for s in thread.search_skills("greets people").skills][:1] == ["greeter"]
    assert "Run it." in thread.activate_skill("greeter").content
    assert thread.read_skill_file("greeter", "scripts/greet.sh").text
    assert thread.run_skill("greeter", "scripts/greet.sh", ["Bob"]).stdout == "hello Bob\n"
    thread.remove_skill("greeter")
    with pytest.raises(errors.NotFound):
        thread.activate_skill("greeter")


def test_a_folder_as_a_skill(client: Client, thread: Thread, tmp_path: Path) -> None:
    folder = tmp_path / "stamper"
    (folder / "scripts").mkdir(parents=True)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.txt").write_text("x")
    (folder / "SKILL.md").write_text("---\nname: stamper\ndescription: Stamps.\nlicense: MIT\n---\nRun scripts/stamp.sh.\n")
    (folder / "scripts" / "stamp.sh").write_text("#!/bin/sh\nwc -c < /mnt/skills/virtual/stamper/seal.bin\n")
    (folder / "seal.bin").write_bytes(bytes(range(256)))
    first = thread.skill(folder)
    assert (first.name, first.category, first.findings) == ("stamper", "virtual", [])
    assert thread.run_skill("stamper", "scripts/stamp.sh").stdout.strip() == "256"
    assert thread.exec("cd /mnt/skills/virtual/stamper && find . -type f | sort && sha256sum seal.bin | cut -c1-8").stdout.split() == [
        "./SKILL.md",
        "./scripts/stamp.sh",
        "./seal.bin",
        hashlib.sha256(bytes(range(256))).hexdigest()[:8],
    ]
    assert thread.exec("/mnt/skills/virtual/stamper/scripts/stamp.sh").stdout.strip() == "256"  # #! makes it a program
    assert thread.skill(folder).digest == first.digest
    (folder / "seal.bin").write_bytes(b"x")
    assert thread.skill(folder).digest != first.digest  # in place of the first
    assert thread.run_skill("stamper", "scripts/stamp.sh").stdout.strip() == "1"
    other = client.thread("other-" + thread.id)
    assert "stamper" not in [s.name for s in other.search_skills().skills]
    (folder / "link").symlink_to("/etc/passwd")
    with pytest.raises(ValueError, match="symbolic link"):
        thread.skill(folder)
    with pytest.raises(ValueError, match=r"no SKILL\.md"):
        thread.skill(tmp_path)


async def test_async(server: Server) -> None:
    async with AsyncClient(server.url) as client:
        thread = client.thread("async-1")
        try:
            results = await asyncio.gather(*(thread.exec(f"echo {i}") for i in range(5)))
            assert [r.stdout for r in results] == [f"{i}\n" for i in range(5)]
            assert [e.type async for e in thread.stream("echo x")] == ["started", "stdout", "exit"]
            written = await thread.files.upload(WORKSPACE + "/f", b"abc", if_absent=True)
            async with thread.files.open(WORKSPACE + "/f") as chunks:
                assert b"".join([c async for c in chunks]) == b"abc" and chunks.etag == written.etag
            with pytest.raises(errors.PreconditionFailed):
                await thread.files.upload(WORKSPACE + "/f", b"abc", if_absent=True)
            x = await thread.start("read n; echo hi $n", pty=(80, 24))
            async with await x.terminal() as terminal:
                await terminal.send("Bob\n")
                assert b"hi Bob" in b"".join([b async for b in terminal])
            async with await thread.context("python") as context:
                assert (await context.run("1 + 1")).results == [{"text/plain": "2"}]
            assert "async-1" in [t.thread_id async for t in client.threads()]
        finally:
            await thread.delete()
