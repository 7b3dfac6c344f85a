// The official TypeScript clients of MCP, the one of today and the one before, against /mcp of a real server:
// scripts/clients.sh starts it and names it in SKERRY_SERVER.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as v2 from "@modelcontextprotocol/client";
import { Client as ClientV1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as StdioV1 } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as TransportV1 } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const server = process.env.SKERRY_SERVER;
if (!server) throw new Error("SKERRY_SERVER names no server: scripts/clients.sh starts one");
const key = process.env.SKERRY_API_KEY;
const headers = key ? { Authorization: `Bearer ${key}` } : {};
const api = (method, path) => fetch(server + path, { method, headers });

// skerry mcp serve speaks for the endpoint, for clients that only know stdio. The thread is that of the address.
const stdio = (address) => ({
  command: process.env.SKERRY_BIN,
  args: ["mcp", "serve", "--address", server, "--thread", address.pathname.split("/").pop()],
  env: { SKERRY_API_KEY: key ?? "" },
});

// Each gives a connected client, its version of the protocol, and the arguments of its call of a tool.
const clients = {
  "@modelcontextprotocol/sdk 1.x": async (address, requestInit) => {
    const client = new ClientV1({ name: "test", version: "1" });
    await client.connect(new TransportV1(address, { requestInit }));
    return { client, call: (params, options) => client.callTool(params, undefined, options) };
  },
  "@modelcontextprotocol/client 2.x, with a session": async (address, requestInit) => {
    const client = new v2.Client({ name: "test", version: "1" }, { versionNegotiation: { mode: "legacy" } });
    await client.connect(new v2.StreamableHTTPClientTransport(address, { requestInit }));
    return { client, call: (params, options) => client.callTool(params, options), protocol: "2025-11-25" };
  },
  "@modelcontextprotocol/client 2.x, 2026-07-28": async (address, requestInit) => {
    const client = new v2.Client({ name: "test", version: "1" }, { versionNegotiation: { mode: "auto" } });
    await client.connect(new v2.StreamableHTTPClientTransport(address, { requestInit }));
    return { client, call: (params, options) => client.callTool(params, options), protocol: "2026-07-28" };
  },
};

const overStdio = {
  "@modelcontextprotocol/sdk 1.x over stdio": async (address) => {
    const client = new ClientV1({ name: "test", version: "1" });
    await client.connect(new StdioV1(stdio(address)));
    return { client, call: (params, options) => client.callTool(params, undefined, options) };
  },
  "@modelcontextprotocol/client 2.x over stdio, 2026-07-28": async (address) => {
    const client = new v2.Client({ name: "test", version: "1" }, { versionNegotiation: { mode: "auto" } });
    await client.connect(new StdioClientTransport(stdio(address)));
    return { client, call: (params, options) => client.callTool(params, options), protocol: "2026-07-28" };
  },
};

// The thread is named by the path, or by a header.
const ways = [
  (thread) => [new URL(`${server}/mcp/${thread}`), { headers }],
  (thread) => [new URL(`${server}/mcp`), { headers: { ...headers, "Skerry-Thread": thread } }],
];

let n = 0;
for (const [name, connect] of Object.entries({ ...clients, ...overStdio })) {
  test(name, { timeout: 60_000 }, async () => {
    const way = name in overStdio ? ways[0] : ways[n % ways.length];
    n++;
    const thread = `mcp-ts-${n}`;
    const { client, call, protocol } = await connect(...way(thread));
    try {
      assert.equal(client.getServerVersion().name, "skerry");
      if (protocol) assert.equal(client.getNegotiatedProtocolVersion(), protocol);

      const { tools } = await client.listTools();
      for (const wanted of ["bash", "execute_code", "read_file", "files__read_text_file"]) assert.ok(tools.some((t) => t.name === wanted), wanted);

      const progress = [];
      const ran = await call({ name: "bash", arguments: { command: "sleep 2.5; echo hi" } }, { onprogress: (p) => progress.push(p.progress) });
      assert.equal(JSON.parse(ran.content[0].text).stdout, "hi\n");
      assert.ok(progress.length > 0, "no progress");
      const code = await call({ name: "execute_code", arguments: { language: "python", code: "print(6 * 7)" } });
      assert.equal(JSON.parse(code.content[0].text).stdout, "42\n");
      const wrong = await call({ name: "read_file", arguments: { path: "/mnt/user-data/workspace/none" } });
      assert.equal(wrong.isError, true);

      // Its process has begun when its file is there; a cancelled call ends it.
      const stop = new AbortController();
      const hanging = call({ name: "bash", arguments: { command: "touch began; sleep 600" } }, { signal: stop.signal });
      const cancelled = assert.rejects(hanging);
      await until(async () => (await api("GET", `/api/threads/${thread}/files/stat?path=/mnt/user-data/workspace/began`)).ok);
      stop.abort("not wanted any more");
      await cancelled;
      await until(async () => (await (await api("GET", `/api/threads/${thread}/execs`)).json()).items[0].status === "killed");

      const { resources } = await client.listResources();
      const skill = resources.find((r) => r.uri === "skill://csv-profile/SKILL.md");
      assert.ok(skill, "the skill is no resource");
      const { contents } = await client.readResource({ uri: skill.uri });
      assert.match(contents[0].text, /csv/i);
      assert.ok(Array.isArray((await client.listPrompts()).prompts));
    } finally {
      await client.close();
      await api("DELETE", `/api/threads/${thread}`);
    }
  });
}

test("over stdio a client hears that the tools changed", { timeout: 60_000 }, async () => {
  const thread = "mcp-ts-changed";
  const { client } = await overStdio["@modelcontextprotocol/sdk 1.x over stdio"](new URL(`${server}/mcp/${thread}`));
  try {
    const heard = new Promise((done) => client.setNotificationHandler(ToolListChangedNotificationSchema, done));
    const body = JSON.stringify({ name: "own", description: "of the thread", body: "x" });
    const added = await fetch(`${server}/api/threads/${thread}/skills`, { method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body });
    assert.equal(added.status, 201);
    await heard;
    const { tools } = await client.listTools();
    assert.ok(tools.find((t) => t.name === "activate_skill").inputSchema.properties.name.enum.includes("own"));
  } finally {
    await client.close();
    await api("DELETE", `/api/threads/${thread}`);
  }
});

test("a bad thread is refused in so many words", async () => {
  await assert.rejects(clients["@modelcontextprotocol/client 2.x, with a session"](new URL(`${server}/mcp/${encodeURIComponent("a b")}`), { headers }));
});

async function until(done) {
  for (let i = 0; i < 200; i++) {
    if (await done()) return;
    await new Promise((next) => setTimeout(next, 100));
  }
  assert.fail("it did not happen within 20 s");
}
