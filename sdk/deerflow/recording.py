"""The recording of what DeerFlow's client code asks a server: how client.py makes it, and what replay.py compares.

recorded.json has each request, without secrets, and what DeerFlow's code reads of the answer. Answers are read by the SDK that DeerFlow reads them with.
"""

import hashlib
import http.client
import http.server
import importlib
import json
import pathlib
import re
import threading

from agent_sandbox.core.pydantic_utilities import parse_obj_as

FILE = pathlib.Path(__file__).with_name("recorded.json")

# What differs from one library's version to the next, or from one connection to the next.
NOT_RECORDED = {"accept-encoding", "connection", "content-length", "host", "user-agent"}


def found(data) -> list:
    return sorted(data.files or [])


def listed(data) -> list:
    return sorted(entry.path for entry in data.files or [])


def matched(data) -> dict:
    return {"matches": sorted([m.file, m.line_number, m.line_content] for m in data.matches or []), "truncated": data.truncated}


def shell(data) -> dict:
    output = data.output
    if data.command.startswith("find "):  # AioSandbox.list_dir, in the order of the disk
        output = sorted(output.split("\n"))
    return {"output": output, "status": data.status, "exit_code": data.exit_code}


# Of each route at a sandbox's address: the SDK's model of the answer, and what is read of its data.
ADDRESS = {
    "GET /v1/sandbox": ("SandboxResponse", None),
    "POST /v1/shell/exec": ("ResponseShellCommandResult", shell),
    "POST /v1/shell/sessions/create": ("ResponseShellCreateSessionResponse", lambda data: data.session_id),
    "DELETE /v1/shell/sessions/{id}": ("Response", lambda data: None),
    "POST /v1/bash/exec": ("ResponseBashExecResult", lambda data: {"stdout": data.stdout, "stderr": data.stderr}),
    "POST /v1/file/read": ("ResponseFileReadResult", lambda data: data.content),
    "POST /v1/file/write": ("ResponseFileWriteResult", lambda data: None),
    "GET /v1/file/download": (None, None),
    "POST /v1/file/find": ("ResponseFileFindResult", found),
    "POST /v1/file/list": ("ResponseFileListResult", listed),
    "POST /v1/file/grep": ("ResponseFileGrepResult", matched),
}
PROVISIONER = {"POST /api/sandboxes", "GET /api/sandboxes", "GET /api/sandboxes/{id}", "DELETE /api/sandboxes/{id}"}


def route(method: str, path: str) -> str:
    """The route of a request, in the words of ADDRESS and PROVISIONER."""
    path = re.sub(r"^/deerflow(/sandboxes/[^/]+(?=/v1/))?", "", path.partition("?")[0])
    return f"{method} " + re.sub(r"^(/api/sandboxes|/v1/shell/sessions)/(?!create$)[^/]+$", r"\1/{id}", path)


class Secrets:
    """The key and the addresses of one run, which a recording has by name."""

    def __init__(self, server: str, key: str) -> None:
        self.server = server
        self.names = {key: "{key}"}

    def learn(self, sandbox: str, url: str) -> None:
        secret = re.fullmatch(re.escape(self.server) + r"/deerflow/sandboxes/(sk_[0-9a-f]{64})", url)
        if secret is None:
            raise AssertionError(f"no address of a sandbox of {self.server}: {url}")
        name = f"{{address of {sandbox}}}"
        if self.names.setdefault(secret[1], name) != name or list(self.names.values()).count(name) > 1:
            raise AssertionError(f"the address of the sandbox {sandbox} is not the one that it had, or another one's")

    def hide(self, text: str) -> str:
        for secret, name in self.names.items():
            text = text.replace(secret, name)
        return text.replace(self.server, "{server}")

    def show(self, text: str) -> str:
        for secret, name in self.names.items():
            text = text.replace(name, secret)
        return text


def read(secrets: Secrets, method: str, path: str, status: int, answer: bytes) -> dict:
    """What DeerFlow's code reads of an answer; fails when it could not."""
    where = route(method, path)
    if status >= 400:
        return {"status": status, "code": json.loads(answer)["code"]}
    if where in PROVISIONER:
        data = json.loads(answer)
        if where == "POST /api/sandboxes":
            secrets.learn(data["sandbox_id"], data["sandbox_url"])
        if where == "GET /api/sandboxes":
            of = sorted([s["sandbox_id"], secrets.hide(s["sandbox_url"])] for s in data["sandboxes"])
        elif method == "DELETE":
            of = None
        else:
            of = {"sandbox_url": secrets.hide(data["sandbox_url"]), "status": data["status"]}
        return {"status": status, "of": of}
    model, reader = ADDRESS[where]
    if model is None:
        return {"status": status, "sha256": hashlib.sha256(answer).hexdigest()}
    parsed = parse_obj_as(type_=getattr(importlib.import_module("agent_sandbox"), model), object_=json.loads(answer))
    return {"status": status, "of": parsed.home_dir if reader is None else reader(parsed.data)}


class Recorder:
    """Stands between DeerFlow's code and the server, and writes down what passes."""

    def __init__(self, server: str) -> None:
        self.server = server.removeprefix("http://")
        self.test = None  # whose requests these are; None: they are not written down
        self.requests = []
        self.failed = []
        self.lock = threading.Lock()
        recorder = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 660

            def do_GET(self) -> None:
                recorder.pass_on(self)

            do_POST = do_DELETE = do_GET

            def log_message(self, *_) -> None:
                pass

        self.listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.listener.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.listener.server_port}"
        self.secrets = Secrets(self.url, "")
        threading.Thread(target=self.listener.serve_forever, daemon=True).start()

    def pass_on(self, request: http.server.BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        server = http.client.HTTPConnection(self.server, timeout=650)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in ("accept-encoding", "connection")}
        server.request(request.command, request.path, body or None, headers)
        answer = server.getresponse()
        data = answer.read()
        server.close()
        try:
            self.write_down(request, body, answer.status, data)
        except Exception as e:  # noqa: BLE001 - told at the end; DeerFlow gets its answer
            self.failed.append(f"{request.command} {request.path}: {e!r}")
        request.send_response_only(answer.status)
        for k, v in answer.getheaders():
            if k.lower() not in ("connection", "content-length", "transfer-encoding"):
                request.send_header(k, v)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def write_down(self, request: http.server.BaseHTTPRequestHandler, body: bytes, status: int, answer: bytes) -> None:
        if request.path.endswith("/v1/sandbox") and status == 503:
            return  # is asked again
        with self.lock:
            got = read(self.secrets, request.command, request.path, status, answer)
            headers = {k.lower(): self.secrets.hide(v) for k, v in request.headers.items() if k.lower() not in NOT_RECORDED and not k.lower().startswith("x-fern-")}
            entry = {"test": self.test, "method": request.command, "path": self.secrets.hide(request.path), "headers": dict(sorted(headers.items()))}
            if body:
                entry["body"] = json.loads(body)
            entry["read"] = got
            if self.test and self.requests[-1:] != [entry]:
                self.requests.append(entry)


def save(deerflow: str, sdk: str, day: str, requests: list) -> None:
    lines = ",\n    ".join(json.dumps(entry, ensure_ascii=False) for entry in requests)
    head = json.dumps({"deerflow": deerflow, "agent-sandbox": sdk, "day": day, "made": "by sdk/deerflow/client.py, as docs/deerflow.md says"}, indent=2)
    FILE.write_text(head.removesuffix("\n}") + f',\n  "requests": [\n    {lines}\n  ]\n}}\n')


def differences(old: list, new: list) -> list[str]:
    """What is in one list and not in the other. Those of one test may come in any order: it may have sent them side by side."""
    sides = [sorted(json.dumps(entry, ensure_ascii=False, sort_keys=True) for entry in entries) for entries in (old, new)]
    return [f"- {line}" for line in sides[0] if line not in sides[1]] + [f"+ {line}" for line in sides[1] if line not in sides[0]]
