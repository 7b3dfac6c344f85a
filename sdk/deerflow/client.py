"""DeerFlow's own client code against a server: its remote backend asks for sandboxes, its AioSandbox uses them.

The code is that of a checkout of DeerFlow ($DEERFLOW_SOURCE), as it is. Only its two modules are replaced that say who the user is and which
skills it has, because they need the whole of DeerFlow.

What it asks passes through a recorder, and has to be what recorded.json has, which replay.py sends where DeerFlow's code is not to be had.
With SKERRY_DEERFLOW_RECORD=1 recorded.json is made anew.
"""

import asyncio
import datetime
import hashlib
import importlib
import importlib.metadata
import json
import os
import pathlib
import re
import sys
import threading
import time
import types
import unittest

import recording
import requests

SERVER = os.environ["SKERRY_SERVER"]
RECORDER = recording.Recorder(SERVER)
DEERFLOW = RECORDER.url + "/deerflow"
# Tests whose requests are not recorded: 13 MB of a file.
NOT_RECORDED = {"test_large"}
SOURCE = pathlib.Path(os.environ["DEERFLOW_SOURCE"]) / "backend/packages/harness/deerflow"


def package(name: str, folder: pathlib.Path) -> None:
    """A package whose modules are DeerFlow's, without what its own __init__ would import."""
    module = types.ModuleType(name)
    module.__path__ = [str(folder)]
    sys.modules[name] = module


for name in ("", "config", "sandbox", "utils", "community", "community/aio_sandbox"):
    package(".".join(["deerflow", *filter(None, name.split("/"))]), SOURCE / name)
for name, members in {
    "deerflow.runtime": {},
    "deerflow.runtime.user_context": {"get_effective_user_id": lambda: "default"},
    "deerflow.skills": {},
    "deerflow.skills.storage": {"user_should_see_legacy_skills": lambda user: False},
}.items():
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(members)

AioSandbox = importlib.import_module("deerflow.community.aio_sandbox.aio_sandbox").AioSandbox
RemoteSandboxBackend = importlib.import_module("deerflow.community.aio_sandbox.remote_backend").RemoteSandboxBackend
readiness = importlib.import_module("deerflow.community.aio_sandbox.backend")

MOUNTS = [("/srv/deerflow/skills", "/mnt/skills/custom", True), ("/srv/deerflow/user-data", "/mnt/user-data", False)]


def api(method: str, path: str, **options) -> requests.Response:
    return requests.request(method, SERVER + path, timeout=60, **options)


def sandbox_id(thread: str, user: str) -> str:
    """As AioSandboxProvider makes it."""
    return hashlib.sha256(f"{user}:{thread}".encode()).hexdigest()[:16]


class DeerFlow(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.run_name = "recorded"
        RECORDER.test = "setup"
        made = api("POST", "/api/keys", json={"name": "deerflow", "user": f"df-{cls.run_name}", "act_for": True})
        made.raise_for_status()
        cls.key_id, cls.key = made.json()["id"], made.json()["secret"]
        RECORDER.secrets = recording.Secrets(RECORDER.url, cls.key)
        cls.backend = RemoteSandboxBackend(DEERFLOW, api_key=cls.key)
        cls.threads = []
        cls.addClassCleanup(cls.leave_nothing)
        cls.user, cls.thread = f"ann-{cls.run_name}", f"talk-{cls.run_name}"
        cls.info = cls.create(cls.thread, cls.user)
        cls.box = AioSandbox(cls.info.sandbox_id, cls.info.sandbox_url)
        cls.addClassCleanup(cls.box.close)

    def setUp(self) -> None:
        RECORDER.test = None if self._testMethodName in NOT_RECORDED else self._testMethodName

    @classmethod
    def create(cls, thread: str, user: str):
        cls.threads.append((thread, user))
        info = cls.backend.create(thread, sandbox_id(thread, user), MOUNTS, user_id=user, provision_lark_cli_runtime=True)
        if not readiness.wait_for_sandbox_ready(info.sandbox_url, timeout=60):
            raise AssertionError("the sandbox is not ready after a minute")
        return info

    @classmethod
    def leave_nothing(cls) -> None:
        for thread, user in cls.threads:
            api("DELETE", f"/api/threads/{thread}", headers={"X-API-Key": cls.key, "On-Behalf-Of": user})
        api("DELETE", f"/api/keys/{cls.key_id}").raise_for_status()

    def test_provisioner(self) -> None:
        self.assertTrue(self.backend.is_alive(self.info))
        self.assertEqual(self.backend.create(self.thread, self.info.sandbox_id, MOUNTS, user_id=self.user).sandbox_url, self.info.sandbox_url)
        self.assertEqual(self.backend.discover(self.info.sandbox_id).sandbox_url, self.info.sandbox_url)
        self.assertIn((self.info.sandbox_id, self.info.sandbox_url), [(i.sandbox_id, i.sandbox_url) for i in self.backend.list_running()])
        self.assertIsNone(self.backend.discover("0" * 16))
        self.assertTrue(asyncio.run(readiness.wait_for_sandbox_ready_async(self.info.sandbox_url, timeout=10)))
        self.assertEqual(requests.get(SERVER + "/deerflow/health", timeout=10).json(), {"status": "ok"})

    def test_destroy(self) -> None:
        """The address ends with the sandbox, the files stay, and the next one has them."""
        thread = f"again-{self.run_name}"
        info = self.create(thread, self.user)
        box = AioSandbox(info.sandbox_id, info.sandbox_url)
        box.write_file("/mnt/user-data/workspace/kept.txt", "kept")
        self.backend.destroy(info)
        self.assertFalse(self.backend.is_alive(info))
        self.assertIn("401", box.execute_command("echo alive"))
        self.assertFalse(readiness.wait_for_sandbox_ready(info.sandbox_url, timeout=1))
        again = self.create(thread, self.user)
        box = AioSandbox(again.sandbox_id, again.sandbox_url)
        self.assertEqual(box.execute_command("cat kept.txt"), "kept")
        self.backend.destroy(again)

    def test_command(self) -> None:
        self.assertEqual(self.box.home_dir, "/home/agent")
        self.assertEqual(self.box.execute_command("pwd; echo out; echo err >&2; exit 3").split(), ["/mnt/user-data/workspace", "out", "err"])
        self.assertEqual(self.box.execute_command("true"), "(no output)")
        self.assertEqual(self.box.execute_command("a=(1 2); echo ${#a[@]} é"), "2 é\n")  # bash, and not sh
        out = self.box.execute_command('echo "$TOKEN"; echo err >&2', env={"TOKEN": "short"})
        self.assertEqual(out, "short\n\nStd Error:\nerr\n")
        self.assertEqual(self.box.execute_command("echo ${TOKEN:-gone}"), "gone\n")

    def test_session(self) -> None:
        """What AioSandbox does when a shell of the all-in-one sandbox is broken."""
        client = self.box._client
        client.shell.create_session(id="fresh")
        result = client.shell.exec_command(command="echo hello", id="fresh", no_change_timeout=600).data
        self.assertEqual((result.session_id, result.status, result.output, result.exit_code), ("fresh", "completed", "hello\n", 0))
        client.shell.cleanup_session("fresh")
        result = client.shell.exec_command(command="echo begun; sleep 60", hard_timeout=1).data
        self.assertEqual((result.status, result.exit_code), ("hard_timeout", None))
        self.assertRegex(result.output, "begun\n+.*took too long")

    def test_commands_side_by_side(self) -> None:
        """The lock in AioSandbox is one of a process: two gateways run commands at the same time."""
        boxes = [AioSandbox(self.info.sandbox_id, self.info.sandbox_url) for _ in range(4)]
        outputs = [None] * len(boxes)

        def run(i: int) -> None:
            outputs[i] = boxes[i].execute_command(f"sleep 0.2; echo {i}")

        workers = [threading.Thread(target=run, args=(i,)) for i in range(len(boxes))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
        self.assertEqual(outputs, [f"{i}\n" for i in range(len(boxes))])

    def test_text(self) -> None:
        path = "/mnt/user-data/workspace/notes/a.txt"
        self.box.write_file(path, "one\ntwo\n")
        self.box.write_file(path, "drei é", append=True)
        self.assertEqual(self.box.read_file(path), "one\ntwo\ndrei é")
        self.assertEqual(self.box.read_file(path, start_line=2, end_line=2), "two")
        self.assertEqual(self.box.read_file(path, start_line=2), "two\ndrei é")
        self.assertEqual(self.box.execute_command(f"cat {path}"), "one\ntwo\ndrei é")
        self.assertTrue(self.box.read_file("/mnt/user-data/workspace/none").startswith("Error:"))
        self.assertTrue(self.box.read_file("/etc/passwd").startswith("Error:"))
        with self.assertRaises(Exception):
            self.box.write_file("/mnt/skills/public/x", "x")

    def test_bytes(self) -> None:
        self.bytes(bytes(range(256)))
        with self.assertRaises(OSError):
            self.box.download_file("/mnt/user-data/none")
        with self.assertRaises(PermissionError):
            self.box.download_file("/mnt/user-data/../../etc/passwd")

    def test_large(self) -> None:
        self.bytes(bytes(range(256)) * 40_000)

    def bytes(self, data: bytes) -> None:
        self.box.update_file("/mnt/user-data/uploads/b.bin", data)
        self.assertEqual(self.box.download_file("/mnt/user-data/uploads/b.bin"), data)
        self.assertIn(hashlib.sha256(data).hexdigest(), self.box.execute_command("sha256sum /mnt/user-data/uploads/b.bin"))

    def test_search(self) -> None:
        root = "/mnt/user-data/workspace/src"
        self.box.execute_command(f"mkdir -p {root}/sub/.hid {root}/node_modules; cd {root}; echo 'x = 1  # TODO' >a.py; echo 'todo(a.b)' >sub/b.py; echo TODO >node_modules/c.py; echo TODO >sub/.hid/d.py")
        found, truncated = self.box.glob(root, "*.py")
        self.assertEqual(sorted(found), [f"{root}/a.py", f"{root}/sub/.hid/d.py", f"{root}/sub/b.py"])
        self.assertFalse(truncated)
        self.assertEqual(self.box.glob(root, "**/b.py")[0], [f"{root}/sub/b.py"])
        self.assertEqual(len(self.box.glob(root, "**/*.py", max_results=1)[0]), 1)
        self.assertEqual(sorted(self.box.glob(root, "*", include_dirs=True)[0]), [f"{root}/a.py", f"{root}/sub", f"{root}/sub/b.py"])
        matches, _ = self.box.grep(root, "todo", glob="*.py")
        self.assertEqual(sorted((m.path, m.line_number) for m in matches if "/.hid/" not in m.path), [(f"{root}/a.py", 1), (f"{root}/sub/b.py", 1)])
        matches, _ = self.box.grep(root, "a.b)", literal=True)
        self.assertEqual([m.line for m in matches], ["todo(a.b)"])
        self.assertEqual(self.box.grep(root, "todo", case_sensitive=True, literal=True)[0][0].path, f"{root}/sub/b.py")
        self.assertIn(f"{root}/a.py", self.box.list_dir(root))

    def test_users_are_apart(self) -> None:
        """Threads of two users have nothing in common, also when they have one name."""
        self.box.write_file("/mnt/user-data/workspace/mine.txt", "ann's")
        other = self.create(self.thread, f"bob-{self.run_name}")
        self.assertNotEqual(other.sandbox_url, self.info.sandbox_url)
        box = AioSandbox(other.sandbox_id, other.sandbox_url)
        self.assertNotIn("ann's", box.execute_command("cat mine.txt"))
        self.backend.destroy(other)
        self.assertTrue(self.backend.is_alive(self.info))

    def test_sealed(self) -> None:
        """What DeerFlow's own sandboxes have is not here: a network, root."""
        self.assertEqual(self.box.execute_command("[ $(id -u) = 0 ] || echo nobody"), "nobody\n")
        self.assertIn("none", self.box.execute_command("getent hosts example.org || echo none"))

    def test_refused(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "401"):
            RemoteSandboxBackend(DEERFLOW).create("t", "a" * 16, user_id="ann")
        with self.assertRaisesRegex(RuntimeError, "401"):
            RemoteSandboxBackend(DEERFLOW, api_key="sk_" + "0" * 64).create("t", "a" * 16, user_id="ann")
        at = self.info.sandbox_url[: -len("0" * 64)] + "0" * 64
        self.assertIn("401", AioSandbox("x", at).execute_command("id"))
        token = re.search("sk_[0-9a-f]{64}", self.info.sandbox_url)[0]
        headers = {"Authorization": f"Bearer {token}"}
        self.assertEqual(api("GET", "/api/threads", headers=headers).status_code, 403)
        self.assertEqual(api("GET", "/api/threads/other", headers=headers).status_code, 403)

    def test_recorded(self) -> None:
        """What is done at an address is done by the key, for the user."""
        self.box.execute_command(f"echo {self.run_name}-recorded")
        deadline = time.monotonic() + 30
        while True:
            items = api("GET", "/api/audit", params={"thread": self.thread, "action": "exec", "limit": 1000}).json()["items"]
            mine = [r for r in items if f"{self.run_name}-recorded" in str(r)]
            if mine or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        self.assertTrue(mine, "no record of the command")
        self.assertEqual({r["user"] for r in mine}, {self.user})


def compare() -> None:
    """What was asked is what the recording has, or becomes it."""
    made, sdk = RECORDER.requests, importlib.metadata.version("agent-sandbox")
    if RECORDER.failed:
        sys.exit("not recorded: " + "; ".join(RECORDER.failed))
    if os.environ.get("SKERRY_DEERFLOW_RECORD"):
        recording.save(os.environ["DEERFLOW_COMMIT"], sdk, datetime.date.today().isoformat(), made)
        return
    if other := recording.differences(json.loads(recording.FILE.read_text())["requests"], made):
        sys.exit("recorded.json has other requests or answers (SKERRY_DEERFLOW_RECORD=1 makes it anew):\n" + "\n".join(other[:20]))


if __name__ == "__main__":
    if not unittest.main(verbosity=1, exit=False).result.wasSuccessful():
        sys.exit(1)
    compare()
