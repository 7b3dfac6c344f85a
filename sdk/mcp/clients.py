"""The official Python client of MCP against /mcp of a real server: scripts/clients.sh starts it and names it in SKERRY_SERVER."""

import asyncio
import json
import os
import unittest
import urllib.error
import urllib.request

import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

SERVER = os.environ["SKERRY_SERVER"]
KEY = os.environ.get("SKERRY_API_KEY")
HEADERS = {"Authorization": f"Bearer {KEY}"} if KEY else {}


def api(method: str, path: str):
    request = urllib.request.Request(SERVER + path, method=method, headers=HEADERS)
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text else None


async def until(done):
    for _ in range(200):
        if await asyncio.to_thread(done):
            return
        await asyncio.sleep(0.1)
    raise AssertionError("it did not happen within 20 s")


def there(thread: str, name: str) -> bool:
    try:
        api("GET", f"/api/threads/{thread}/files/stat?path=/mnt/user-data/workspace/{name}")
    except urllib.error.HTTPError:
        return False
    return True


class PythonClient(unittest.IsolatedAsyncioTestCase):
    async def over_http(self, mode: str, protocol: str, address: str, headers: dict[str, str], thread: str):
        async with httpx2.AsyncClient(headers={**HEADERS, **headers}, timeout=60) as http:
            await self.goes_through(mode, protocol, streamable_http_client(address, http_client=http), thread)

    async def over_stdio(self, mode: str, protocol: str, thread: str):
        command = ["mcp", "serve", "--thread", thread, "--address", SERVER]
        program = StdioServerParameters(command=os.environ["SKERRY_BIN"], args=command, env={"SKERRY_API_KEY": KEY or ""})
        await self.goes_through(mode, protocol, stdio_client(program), thread)

    async def goes_through(self, mode: str, protocol: str, transport, thread: str):
        try:
            async with asyncio.timeout(90), Client(transport, mode=mode) as client:
                self.assertEqual(client.protocol_version, protocol)
                self.assertEqual(client.server_info.name, "skerry")
                names = {tool.name for tool in (await client.list_tools()).tools}
                self.assertLessEqual({"bash", "execute_code", "read_file", "run_skill", "files__read_text_file"}, names)

                heard = []

                async def progress(done, total, message):
                    heard.append(message)

                ran = await client.call_tool("bash", {"command": "sleep 2.5; echo hi"}, progress_callback=progress)
                self.assertEqual(json.loads(ran.content[0].text)["stdout"], "hi\n")
                self.assertTrue(heard, "no progress")
                wrong = await client.call_tool("read_file", {"path": "/mnt/user-data/workspace/none"})
                self.assertTrue(wrong.is_error)

                hanging = asyncio.create_task(client.call_tool("bash", {"command": "touch began; sleep 600"}))
                await until(lambda: there(thread, "began"))
                hanging.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await hanging
                await until(lambda: api("GET", f"/api/threads/{thread}/execs")["items"][0]["status"] == "killed")

                uris = {str(resource.uri) for resource in (await client.list_resources()).resources}
                self.assertIn("skill://csv-profile/SKILL.md", uris)
                skill = await client.read_resource("skill://csv-profile/SKILL.md")
                self.assertIn("csv", skill.contents[0].text.lower())
                await client.list_prompts()
        finally:
            api("DELETE", f"/api/threads/{thread}")

    async def test_of_today(self):
        await self.over_http("auto", "2026-07-28", f"{SERVER}/mcp/mcp-py-1", {}, "mcp-py-1")

    async def test_with_a_session(self):
        await self.over_http("legacy", "2025-11-25", f"{SERVER}/mcp", {"Skerry-Thread": "mcp-py-2"}, "mcp-py-2")

    async def test_over_stdio(self):
        await self.over_stdio("auto", "2026-07-28", "mcp-py-3")

    async def test_over_stdio_with_a_session(self):
        await self.over_stdio("legacy", "2025-11-25", "mcp-py-4")


if __name__ == "__main__":
    unittest.main(verbosity=2)
