"""What becomes of calls when connections break, servers die, and answers say no. Nothing is ever run twice."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from skerry import Client, Thread, errors
from skerry import _constants as constants
from tests.conftest import Server

Handler = Callable[[httpx.Request], httpx.Response]


class Cutter:
    """A way to a server that can be cut: it passes bytes on, until told to break what is under way."""

    def __init__(self, target: str) -> None:
        self.target = ("127.0.0.1", int(target.rsplit(":", 1)[1]))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.cut_answers = 0  # so many connections are cut when their first answer comes
        self.cut_after = -1  # cut a connection after so many bytes of answers; -1: never
        self.connections = 0
        self.open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                self.connections += 1
                server = socket.create_connection(self.target)
                self.open += [client, server]
                threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def cut_now(self) -> None:
        for s in self.open:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        sent = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if answers and self.cut_answers:
                    self.cut_answers -= 1
                    break
                if answers and 0 <= self.cut_after < sent + len(data):
                    self.cut_after = -1
                    break
                sink.sendall(data)
                sent += len(data)
        for s in (source, sink):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()


@pytest.fixture
def cutter(server: Server) -> Iterator[Cutter]:
    c = Cutter(server.url)
    yield c
    c.listener.close()


def counted(thread: Thread) -> int:
    return thread.exec("cat count 2>/dev/null || true").stdout.count("x")


def test_lost_answer_of_an_exec(cutter: Cutter, thread: Thread) -> None:
    thread.acquire()
    with Client(cutter.url) as client:
        cutter.cut_answers = 2
        r = client.thread(thread.id).exec("sleep 0.5; echo x >> count; echo done")
    assert r.stdout == "done\n" and cutter.connections == 3
    assert counted(thread) == 1


def test_lost_while_it_runs(cutter: Cutter, thread: Thread) -> None:
    thread.acquire()
    with Client(cutter.url) as client, ThreadPoolExecutor() as pool:
        under_way = pool.submit(client.thread(thread.id).exec, "echo x >> count; sleep 2; echo done")
        while not counted(thread):
            time.sleep(0.05)
        cutter.cut_now()
        assert under_way.result(60).stdout == "done\n"
    assert counted(thread) == 1 and cutter.connections > 1


def test_broken_stream_goes_on(cutter: Cutter, thread: Thread) -> None:
    thread.acquire()
    with Client(cutter.url) as client:
        cutter.cut_after = 1500
        events = list(client.thread(thread.id).stream("for i in $(seq 40); do echo line $i; sleep 0.02; done"))
    assert "".join(e.text for e in events) == "".join(f"line {i}\n" for i in range(1, 41))
    assert cutter.connections == 2 and cutter.cut_after == -1
    assert events[-1].result and events[-1].result.ok


def test_stream_that_may_have_begun(cutter: Cutter, thread: Thread) -> None:
    thread.acquire()
    with Client(cutter.url) as client:
        cutter.cut_answers = 1
        with pytest.raises(errors.OutcomeUnknown):
            list(client.thread(thread.id).stream("echo x >> count"))
    ends = time.monotonic() + 30
    while not counted(thread) and time.monotonic() < ends:
        time.sleep(0.05)
    assert counted(thread) == 1


def test_server_that_died_and_came_back() -> None:
    server = Server()
    try:
        with Client(server.url, retries=30) as client:
            thread = client.thread("t1")
            thread.acquire()
            caught: list[BaseException] = []

            def run() -> None:
                try:
                    thread.exec("echo x >> count; sleep 3", deadline_s=60)
                except BaseException as err:
                    caught.append(err)

            caller = threading.Thread(target=run)
            caller.start()
            while not thread.files.exists("/mnt/user-data/workspace/count"):
                time.sleep(0.05)
            server.kill()
            server.start()
            caller.join(90)
            assert [type(e) for e in caught] == [errors.OutcomeUnknown], caught
            assert "may have been done" in str(caught[0])
            assert counted(thread) == 1  # and a call that was not under way goes on as if nothing had been
    finally:
        server.stop()


def test_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as s:
        url = f"http://127.0.0.1:{s.getsockname()[1]}"
    with Client(url, retries=1) as client, pytest.raises(errors.ConnectionFailed):
        client.thread("t").exec("true")


def test_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as s:
        with Client(f"http://127.0.0.1:{s.getsockname()[1]}", timeout_s=0.3) as client, pytest.raises(errors.DeadlineExceeded):
            client.health()
        with Client(f"http://127.0.0.1:{s.getsockname()[1]}") as client, pytest.raises(errors.DeadlineExceeded, match="may have been done"):
            client.thread("t").exec("true", deadline_s=0.3)


def test_a_run_may_take_long_to_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DEFAULT_SILENCE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as s:

        def serve() -> None:
            connection = s.accept()[0]
            connection.recv(65536)
            time.sleep(0.5)  # for a place, say
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
            exit = b"id: 1\nevent: exit\ndata: " + json.dumps(RESULT).encode() + b"\n\n"
            connection.sendall(head + exit)
            connection.close()

        threading.Thread(target=serve, daemon=True).start()
        with Client(f"http://127.0.0.1:{s.getsockname()[1]}") as client:
            assert [e.type for e in client.thread("t").stream("true")] == ["exit"]


def scripted(*answers: httpx.Response | Exception, retries: int = 4) -> tuple[Client, list[httpx.Request]]:
    """A client whose server gives these answers."""
    seen: list[httpx.Request] = []
    left = list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        said = left.pop(0)
        if isinstance(said, Exception):
            raise said
        return said

    return Client("http://x", retries=retries, http=httpx.Client(transport=httpx.MockTransport(answer))), seen


def problem(status: int, code: str, key: str = "", retry: str = "0") -> httpx.Response:
    fields = [{"field": "Idempotency-Key", "detail": key}] if key else []
    body = {"type": "", "title": "", "status": status, "detail": "no", "code": code, "errors": fields}
    return httpx.Response(status, json=body, headers={"Content-Type": "application/problem+json", "Retry-After": retry})


RESULT = {
    "exec_id": "e", "status": "exited", "exit_code": 0, "stdout": "", "stderr": "", "truncated": False, "stdout_path": None,
    "stderr_path": None, "duration_ms": 1, "usage": {"cpu_ms": 0, "max_rss_bytes": 0}, "files": [],
}  # fmt: skip
OK = httpx.Response(200, json=RESULT)
LOST = httpx.ReadError("reset")


@pytest.mark.parametrize(
    "answers",
    [
        [problem(503, "capacity_exceeded"), OK],
        [problem(429, "quota_exceeded"), OK],
        [problem(503, "unavailable"), OK],
        [LOST, problem(409, "conflict", "running"), problem(409, "conflict", "running"), OK],
        [httpx.Response(502, text="bad gateway"), OK],
        [httpx.ConnectError("refused"), LOST, OK],
    ],
)
def test_an_exec_is_tried_again(answers: list[httpx.Response | Exception]) -> None:
    client, seen = scripted(*answers)
    assert client.thread("t").exec("true").ok
    keys = {r.headers["Idempotency-Key"] for r in seen}
    assert len(keys) == 1 and len(seen) == len(answers)
    assert "Idempotency-Age" not in seen[0].headers and all(float(r.headers["Idempotency-Age"]) > 0 for r in seen[1:])


@pytest.mark.parametrize(
    ("answers", "error", "calls"),
    [
        ([problem(500, "internal")], errors.Internal, 1),
        ([problem(504, "timeout")], errors.TimedOut, 1),
        ([problem(403, "forbidden")], errors.Forbidden, 1),
        ([problem(409, "conflict")], errors.Conflict, 1),
        ([LOST, problem(409, "conflict", "unknown")], errors.OutcomeUnknown, 2),
        ([LOST, problem(409, "conflict", "done")], errors.OutcomeUnknown, 2),
        ([problem(503, "unavailable")] * 5, errors.Unavailable, 5),
        ([problem(503, "capacity_exceeded", retry="1000")], errors.CapacityExceeded, 1),
        ([LOST] * 5, errors.OutcomeUnknown, 5),
    ],
)
def test_an_exec_that_fails(answers: list[httpx.Response | Exception], error: type[Exception], calls: int) -> None:
    client, seen = scripted(*answers)
    with pytest.raises(error):
        client.thread("t").exec("true")
    assert len(seen) == calls


def test_what_has_no_key() -> None:
    client, seen = scripted(LOST)
    with pytest.raises(errors.OutcomeUnknown):
        client.thread("t").files.write("/mnt/user-data/workspace/a", "x", append=True)
    client, seen = scripted(LOST, httpx.Response(200, json={"path": "a", "bytes": 1, "etag": '"1"'}))
    client.thread("t").files.write("/mnt/user-data/workspace/a", "x")
    assert len(seen) == 2
    client, seen = scripted(LOST)
    with pytest.raises(errors.OutcomeUnknown):
        client.thread("t").files.upload("/mnt/user-data/workspace/a", iter([b"x"]))
    for only in ({"if_match": '"1"'}, {"if_absent": True}):
        client, seen = scripted(LOST)
        with pytest.raises(errors.OutcomeUnknown):
            client.thread("t").files.upload("/mnt/user-data/workspace/a", b"x", **only)
        assert len(seen) == 1
    client, seen = scripted(LOST)
    with pytest.raises(ValueError, match="no condition"):
        client.thread("t").files.upload("/mnt/user-data/workspace/a", b"x", if_match="")
    assert not seen
    client, seen = scripted(LOST, problem(404, "not_found"))
    client.thread("t").delete()  # the first attempt did it


def test_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"status": "ok", "version": "1"})

    monkeypatch.setenv("SKERRY_SERVER", "example:1234")
    monkeypatch.setenv("SKERRY_API_KEY", "k1")
    with Client(on_behalf_of="ann", http=httpx.Client(transport=httpx.MockTransport(answer))) as client:
        client.health()
    assert str(seen[0].url) == "http://example:1234/healthz"
    assert seen[0].headers["Authorization"] == "Bearer k1" and seen[0].headers["On-Behalf-Of"] == "ann"
    assert uuid.UUID(hex=scripted_key()) and "Idempotency-Key" not in seen[0].headers


def test_a_deprecated_route_is_named_once() -> None:
    """A route that the server calls deprecated is a DeprecationWarning, once; another is none."""
    gone = {"Deprecation": "@1688169599", "Sunset": "Tue, 01 Jun 2027 00:00:00 GMT", "Link": '</docs#old>; rel="deprecation"'}
    answers = iter([{}, gone, gone])
    http = httpx.Client(
        transport=httpx.MockTransport(lambda _: httpx.Response(200, json={"status": "ok", "version": "1"}, headers=next(answers)))
    )
    with Client("http://x", http=http) as client, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(3):
            client.health()
    text = f"the server deprecates GET /healthz, which may be gone from {gone['Sunset']} on: {gone['Link']}"
    assert [(w.category, str(w.message)) for w in said] == [(DeprecationWarning, text)]


def scripted_key() -> str:
    client, seen = scripted(OK)
    client.thread("t").exec("true")
    return str(seen[0].headers["Idempotency-Key"])
