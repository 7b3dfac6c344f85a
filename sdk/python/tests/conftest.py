"""A real server with real sandboxes: bin/skerry of this tree, or the program that SKERRY_BIN names."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from skerry import Client, Thread

ROOT = Path(__file__).resolve().parents[3]
DRIVER = os.environ.get("SKERRY_TEST_DRIVER", "docker")
PROGRAM = Path(os.environ.get("SKERRY_BIN") or ROOT / "bin" / "skerry")


@dataclass
class Server:
    """bin/skerry serve with a data folder of its own, which outlives restarts."""

    extensions: dict[str, object] = field(default_factory=dict)
    url: str = ""

    def __post_init__(self) -> None:
        self.data = Path(tempfile.mkdtemp(prefix="skerry-python-"))
        self.data.chmod(0o711)
        self.log = self.data / "serve.log"
        (self.data / "extensions_config.json").write_text(json.dumps(self.extensions))
        self.start()

    def start(self) -> None:
        command = [
            str(PROGRAM),
            "serve",
            "--data",
            str(self.data),
            "--driver",
            DRIVER,
            "--listen",
            self.url.removeprefix("http://") or "127.0.0.1:0",
        ]
        env = {k: v for k, v in os.environ.items() if not k.startswith("SKERRY_") or k == "SKERRY_CACHE"}
        env |= {"SKERRY_DISK_QUOTA": "off", "SKERRY_AUDIT_SIGNING_KEY_FILE": ""}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env)
        ends = time.monotonic() + 60
        while time.monotonic() < ends and self.process.poll() is None:
            if found := re.search(r"serving on (http://\S+)", self.log.read_text()):
                self.url = found.group(1)
                return
            time.sleep(0.05)
        raise RuntimeError(f"no server: {self.log.read_text()}")

    def kill(self) -> None:
        """As a crash does it."""
        self.process.kill()
        self.process.wait(30)

    def stop(self) -> None:
        if self.process.poll() is None:
            with Client(self.url) as client:
                for thread in list(client.threads()):
                    client.thread(thread.thread_id).delete()
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)
        shutil.rmtree(self.data, ignore_errors=True)
        shutil.rmtree(f"{self.data}.keys", ignore_errors=True)  # where the server keeps keys that must not lie in its data


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    if not PROGRAM.exists():
        pytest.fail(f"{PROGRAM} is missing: make build")
    s = Server()
    yield s
    s.stop()


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as c:
        yield c


@pytest.fixture
def thread(client: Client) -> Iterator[Thread]:
    t = client.thread("t-" + uuid.uuid4().hex[:12])
    yield t
    t.delete()


@pytest.fixture(scope="session")
def openapi(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("openapi") / "openapi.json"
    path.write_bytes(httpx.get(server.url + "/openapi.json").raise_for_status().content)
    return path
