"""Requests that DeerFlow's own client code made, as recorded, sent to a server: each answer has to be read as it was by DeerFlow's code."""

import http.client
import importlib.metadata
import json
import os
import time
import unittest

import requests
from recording import ADDRESS, FILE, PROVISIONER, Secrets, read, route

SERVER = os.environ["SKERRY_SERVER"]
RECORDED = json.loads(FILE.read_text())


def send(secrets: Secrets, entry: dict) -> dict:
    """Sends a request of the recording and reads its answer."""
    body = json.dumps(entry["body"], ensure_ascii=False).encode() if "body" in entry else None
    headers = {k: secrets.show(v) for k, v in entry["headers"].items()}
    path = secrets.show(entry["path"])
    if "{" in path:
        raise AssertionError(f"{path} names an address that no answer had")
    server = http.client.HTTPConnection(SERVER.removeprefix("http://"), timeout=60)
    try:
        server.request(entry["method"], path, body, headers)
        answer = server.getresponse()
        return read(secrets, entry["method"], path, answer.status, answer.read())
    finally:
        server.close()


class Replay(unittest.TestCase):
    def test_versions(self) -> None:
        """The recording is of what test.sh names, and has every route that is read."""
        self.assertEqual(RECORDED["deerflow"], os.environ["DEERFLOW_COMMIT"])
        self.assertEqual(RECORDED["agent-sandbox"], importlib.metadata.version("agent-sandbox"))
        self.assertEqual({route(entry["method"], entry["path"]) for entry in RECORDED["requests"]}, PROVISIONER | set(ADDRESS))

    def test_requests(self) -> None:
        made = requests.post(SERVER + "/api/keys", json={"name": "deerflow", "user": "df-recorded", "act_for": True}, timeout=60)
        made.raise_for_status()
        secrets = Secrets(SERVER, made.json()["secret"])
        self.addCleanup(self.leave_nothing, made.json()["id"], made.json()["secret"])
        for n, entry in enumerate(RECORDED["requests"]):
            with self.subTest(n=n, test=entry["test"], request=f"{entry['method']} {entry['path']}"):
                got, end = send(secrets, entry), time.monotonic() + 60
                # DeerFlow asks again until a sandbox is ready.
                while got["status"] == 503 and entry["path"].endswith("/v1/sandbox") and time.monotonic() < end:
                    time.sleep(0.5)
                    got = send(secrets, entry)
                self.assertEqual(got, entry["read"])

    def leave_nothing(self, key_id: str, key: str) -> None:
        made = [entry["body"] for entry in RECORDED["requests"] if "thread_id" in entry.get("body", {})]
        for thread, user in {(body["thread_id"], body["user_id"]) for body in made}:
            requests.delete(f"{SERVER}/api/threads/{thread}", headers={"X-API-Key": key, "On-Behalf-Of": user}, timeout=60)
        requests.delete(f"{SERVER}/api/keys/{key_id}", timeout=60).raise_for_status()

    def test_reading(self) -> None:
        """An answer that DeerFlow's code could not read, or would read otherwise, is seen."""
        secrets = Secrets("http://server", "sk_key")
        at = "/deerflow/sandboxes/sk_1"
        command = {"session_id": "a", "command": "c", "status": "completed", "output": "out", "console": None, "exit_code": 0}
        good = read(secrets, "POST", at + "/v1/shell/exec", 200, json.dumps({"success": True, "message": "", "data": command}).encode())
        self.assertEqual(good, {"status": 200, "of": {"output": "out", "status": "completed", "exit_code": 0}})
        for path, answer in (
            ("/v1/shell/exec", {"data": {**command, "output": 7}}),
            ("/v1/shell/exec", {"data": "out"}),
            ("/v1/shell/exec", {}),
            ("/v1/file/read", {"data": {"file": "a"}}),
            ("/v1/file/find", {"data": {"path": "a", "files": "b"}}),
        ):
            with self.subTest(answer), self.assertRaises((ValueError, AttributeError)):
                read(secrets, "POST", at + path, 200, json.dumps(answer).encode())
        for url in ("http://server/deerflow/sandboxes/x", "http://other/deerflow/sandboxes/sk_" + "0" * 64):
            with self.assertRaises(AssertionError):
                read(secrets, "POST", "/deerflow/api/sandboxes", 200, json.dumps({"sandbox_id": "a", "sandbox_url": url, "status": "Running"}).encode())


if __name__ == "__main__":
    unittest.main(verbosity=1)
