// Tool packs: without a server, against one that follows a script, and against a real one, which scripts/clients.sh
// starts and names in SKERRY_SERVER.
import assert from "node:assert/strict";
import { createServer, type Server } from "node:net";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Code, ConnectError } from "@connectrpc/connect";
import ssh2 from "ssh2";
import { z } from "zod";
import { path, Skerry } from "../src/index.js";
import { bearerKey, Pack, Result, sshAgent, sshKeyFile, type Credential, type StandardSchema } from "../src/packs/index.js";
import { ToolError_Code } from "../src/packs/v1/packs_pb.js";
import { execute, packServer, resultOf, welcome, type Script, type Stream } from "./packserver.js";

const leads = { find: (name: string) => ({ email: `${name}@example.com` }) };
const quiet = { info: () => undefined, warn: () => undefined, error: () => undefined };

/** The program of docs/packs.md. */
async function program(server: string, key: string, signal: AbortSignal) {
  const pack = new Pack("crm", "1.0.0");
  const input = z.object({ name: z.string().describe("whom to look for") });
  const output = z.object({ email: z.string() });
  pack.tool("find_lead", "Finds a lead by name", { input, output }, ({ name }) => leads.find(name));
  await pack.serve({ server, credential: bearerKey(key), signal });
}

test("docs/packs.md shows what runs here", () => {
  const plain = (text: string) => text.replace(/^ +/gm, "");
  const here = plain(readFileSync("test/packs.test.ts", "utf8"));
  const blocks = [...readFileSync("packs.md", "utf8").matchAll(/```ts\n(.*?)```/gs)].map((m) => m[1] ?? "");
  assert.ok(blocks.length >= 1);
  for (const block of blocks) assert.ok(here.includes(plain(block).replace(/^import .*\n/gm, "").trim()), `no test has this:\n${block}`);
});

test("the program of docs/packs.md", () =>
  within(async (s) => {
    assert.equal(s.authorization, "Bearer sk_x");
    const { manifest } = await welcome(s);
    assert.equal(manifest?.tools[0]?.name, "find_lead");
    execute(s, 1, "find_lead", { name: "Ada" });
    assert.deepEqual(JSON.parse((await resultOf(s)).text), {
      content: [{ type: "text", text: '{"email":"Ada@example.com"}' }],
      structuredContent: { email: "Ada@example.com" },
    });
  }, (url, signal) => program(url, "sk_x", signal)));

function tools(): Pack {
  const pack = new Pack("tools", "2", { description: "d", maxParallel: 2 });
  pack.tool(
    "find",
    "Finds",
    {
      input: z.object({ name: z.string().describe("whom"), limit: z.int().max(9).default(3), tags: z.array(z.enum(["a", "b"])).optional() }),
      output: z.object({ names: z.array(z.string()) }),
      title: "Find",
      requires: ["crm", "web"],
      timeoutMs: 90_500,
      disclosure: "always",
      annotations: { readOnlyHint: true },
    },
    ({ name, limit }) => ({ names: Array<string>(limit).fill(name) }),
  );
  pack.tool("plain", "Plain", { input: { type: "object", properties: { n: { type: "integer" } }, required: ["n"] } }, ({ n }) => [n]);
  pack.tool("fail", "Fails", {}, () => {
    throw new Error("whom?");
  });
  pack.tool("crash", "Crashes", {}, () => (undefined as unknown as { x: string }).x);
  pack.tool("result", "A result", {}, (_, call) => new Result({ content: [{ type: "image", data: "AA==", mimeType: "image/png" }], isError: call.caller.user !== "ann" }));
  pack.tool("nothing", "Nothing", {}, () => undefined);
  pack.tool("bigint", "No JSON", {}, () => ({ n: 1n }));
  return pack;
}

test("the manifest has the schemas and the options", () => {
  const { tools: defined, ...manifest } = tools().manifest();
  assert.deepEqual([manifest.packId, manifest.version, manifest.description, manifest.maxParallelCalls], ["tools", "2", "d", 2]);
  const [find, plain, fail] = defined;
  assert.deepEqual(JSON.parse(find?.inputSchemaJson ?? ""), {
    type: "object",
    properties: {
      name: { type: "string", description: "whom" },
      limit: { type: "integer", minimum: Number.MIN_SAFE_INTEGER, maximum: 9, default: 3 },
      tags: { type: "array", items: { type: "string", enum: ["a", "b"] } },
    },
    required: ["name"],
  });
  assert.deepEqual(JSON.parse(find?.outputSchemaJson ?? ""), {
    type: "object",
    properties: { names: { type: "array", items: { type: "string" } } },
    required: ["names"],
    additionalProperties: false,
  });
  assert.deepEqual(
    [find?.title, find?.requiredCapabilities, find?.timeoutSeconds, find?.disclosure, find?.annotationsJson],
    ["Find", ["crm", "web"], 90, "always", '{"readOnlyHint":true}'],
  );
  assert.deepEqual([plain?.inputSchemaJson, plain?.outputSchemaJson], ['{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}', ""]);
  assert.deepEqual([fail?.inputSchemaJson, fail?.title, fail?.timeoutSeconds, fail?.annotationsJson], ['{"type":"object"}', "", 0, ""]);
});

test("a tool that cannot be offered is refused at once", () => {
  const pack = tools();
  assert.throws(() => pack.tool("find", "", {}, () => ""), /the pack has one of that name/);
  const mute: StandardSchema = { "~standard": { version: 1, vendor: "old", validate: (value) => ({ value }) } };
  assert.throws(() => pack.tool("mute", "", { input: mute }, () => ""), /tool mute: the schema of its arguments: old does not write/);
  pack.remove("find");
  pack.tool("find", "", {}, () => "");
});

test("a pack runs without a server", async () => {
  const pack = tools();
  const found = await pack.call("find", { name: "Ada" });
  assert.deepEqual([found.isError, found.text, found.structuredContent], [undefined, '{"names":["Ada","Ada","Ada"]}', { names: ["Ada", "Ada", "Ada"] }]);
  assert.deepEqual(JSON.parse(JSON.stringify(await pack.call("plain", { n: 1 }))), { content: [{ type: "text", text: "[1]" }] });
  await assert.rejects(pack.call("find", { name: 5 }), /the arguments do not fit the schema: name: .*string/);
  await assert.rejects(pack.call("plain", { n: "x" }), /the arguments do not fit the schema: .*integer/);
  await assert.rejects(pack.call("none"), /the pack has no tool none/);
  assert.deepEqual(JSON.parse(JSON.stringify(await pack.call("fail"))), { content: [{ type: "text", text: "whom?" }], isError: true });
  for (const name of ["crash", "bigint"]) {
    const failed = await pack.call(name);
    assert.deepEqual([failed.isError, failed.text], [true, "the tool failed in a way that its author did not expect"]);
  }
  assert.equal((await pack.call("result", {}, { caller: { tenant: "", user: "ann", thread: "" } })).isError, undefined);
  assert.equal((await pack.call("result")).isError, true);
  assert.deepEqual((await pack.call("nothing")).content, []);
  pack.tool("unfit", "", { output: z.object({ n: z.number() }) }, () => ({ n: "one" }) as never);
  assert.match((await pack.call("unfit")).text, /the result of the tool does not fit its schema: n: /);
});

/** Runs a script as the only stream of a server, and a pack, or a program, against it. Both have to succeed. */
async function within(script: Script, client: Pack | ((url: string, signal: AbortSignal) => Promise<void>)): Promise<void> {
  const stop = new AbortController();
  let finish: (value: unknown) => void = () => undefined;
  const done = new Promise((resolve) => (finish = resolve));
  const once = async (s: Stream) => {
    finish(await script(s).catch((err: unknown) => err));
    while ((await s.next()) !== undefined); // until the pack has drained
  };
  const server = await packServer(once);
  try {
    const run = client instanceof Pack ? client.serve({ server: server.url, signal: stop.signal, drainMs: 100, log: quiet }) : client(server.url, stop.signal);
    const failed = await Promise.race([done, run.then(() => new Error("serve has returned"))]);
    if (failed !== undefined) throw failed;
    stop.abort();
    await run;
  } finally {
    stop.abort();
    await server.close();
  }
}

/** A pack whose tool `wait` ends by its signal, or when the test lets it. */
function waiting() {
  const log: string[] = [];
  const ends: (() => void)[] = [];
  const pack = new Pack("waiting", "1", { maxParallel: 2 });
  pack.tool("wait", "", { input: z.object({ stubborn: z.boolean().optional() }) }, ({ stubborn }, call) => {
    log.push("begun");
    return new Promise<string>((resolve, reject) => {
      ends.push(() => resolve("waited"));
      if (stubborn !== true) call.signal.addEventListener("abort", () => (log.push((call.signal.reason as Error).name), reject(call.signal.reason as Error)));
    });
  });
  pack.tool("echo", "", { input: z.object({ text: z.string() }) }, ({ text }) => text);
  pack.tool("steps", "", {}, (_, call) => {
    call.progress(1, 2, "one");
    call.progress(2, 2, "two");
    setTimeout(() => call.progress(3), 0); // after the end
    return "done";
  });
  return { pack, log, ends };
}

test("a result is sent as far as the windows let it, and other calls go on meanwhile", () => {
  const { pack } = waiting();
  return within(async (s) => {
    await welcome(s, { callWindow: 10n, connectionWindow: 25n, maxPartBytes: 8 });
    const texts = ["", "", ""];
    const sent = async (...lengths: number[]) => {
      while (lengths.some((n, id) => (texts[id]?.length ?? 0) < n)) {
        const m = await s.next();
        if (m?.case !== "result") throw new Error(`${m?.case} in place of a result`);
        assert.ok(m.value.part.length > 0 && m.value.part.length <= 8);
        texts[Number(m.value.requestId)] += new TextDecoder().decode(m.value.part);
      }
      assert.deepEqual(texts.map((t) => t.length), lengths);
    };
    const widen = (requestId: bigint, bytes: bigint) => s.send({ case: "window", value: { requestId, bytes } });
    const whole = (text: string) => JSON.stringify({ content: [{ type: "text", text }] });
    execute(s, 1, "echo", { text: "x".repeat(100) });
    execute(s, 2, "echo", { text: "y" });
    await sent(0, 10, 10);
    widen(2n, 100n);
    await sent(0, 10, 15); // the window of the stream is used up
    widen(0n, 1000n);
    await sent(0, 10, whole("y").length);
    execute(s, 3, "none");
    assert.equal((await s.next())?.case, "result"); // nothing else came meanwhile
    widen(1n, 1000n);
    await sent(0, whole("x".repeat(100)).length, whole("y").length);
    assert.deepEqual(texts, ["", whole("x".repeat(100)), whole("y")]);
  }, pack);
});

test("a result that is too large is an error", () => {
  const { pack } = waiting();
  return within(async (s) => {
    await welcome(s, { maxResultBytes: 200n });
    execute(s, 1, "echo", { text: "x".repeat(200) });
    assert.match((await resultOf(s)).text, /the result has \d+ bytes, and the server takes at most 200.*"isError":true/);
  }, pack);
});

test("progress comes before the result, and none after it", () => {
  const { pack } = waiting();
  return within(async (s) => {
    await welcome(s);
    execute(s, 1, "steps");
    const cases: string[] = [];
    for (let m = await s.next(); m?.case !== "result"; m = await s.next()) if (m?.case === "progress") cases.push(`${m.value.progress}/${m.value.total} ${m.value.message}`);
    assert.deepEqual(cases, ["1/2 one", "2/2 two"]);
    execute(s, 2, "echo", { text: "next" });
    assert.equal((await s.next())?.case, "result");
  }, pack);
});

test("a cancellation and a deadline end a tool", () => {
  const { pack, log } = waiting();
  return within(async (s) => {
    await welcome(s);
    execute(s, 1, "wait");
    execute(s, 2, "wait", {}, 50);
    await resultOf(s); // that of the deadline; the server would not take it any more
    s.send({ case: "cancel", value: { requestId: 1n, reason: "enough" } });
    execute(s, 3, "echo", { text: "next" });
    assert.equal((await resultOf(s)).id, 3); // nothing of the first
    assert.deepEqual(log, ["begun", "begun", "TimeoutError", "AbortError"]);
  }, pack);
});

test("a pack refuses what it has no place for, and tools that it has not", () => {
  const { pack, ends } = waiting();
  return within(async (s) => {
    await welcome(s);
    for (let id = 1; id <= 4; id++) execute(s, id, "wait", { stubborn: true });
    for (let id = 1; id <= 4; id++) s.send({ case: "cancel", value: { requestId: BigInt(id) } });
    execute(s, 5, "echo", { text: "x" });
    assert.deepEqual(await resultOf(s).then((r) => [r.id, r.code]), [5, ToolError_Code.BUSY]);
    for (const end of ends) end();
    execute(s, 6, "none");
    assert.deepEqual(await resultOf(s).then((r) => [r.id, r.code]), [6, ToolError_Code.UNKNOWN_TOOL]);
  }, pack);
});

test("a pack that stops drains: it ends what runs, and takes nothing new", async () => {
  const { pack, ends } = waiting();
  const stop = new AbortController();
  const server = await packServer(async (s) => {
    await welcome(s);
    execute(s, 1, "wait");
    while (ends.length === 0) await new Promise((r) => setTimeout(r, 5));
    stop.abort();
    assert.equal((await s.next())?.case, "drain");
    execute(s, 2, "echo", { text: "x" });
    assert.equal((await resultOf(s)).code, ToolError_Code.DRAINING);
    ends[0]?.();
    assert.match((await resultOf(s)).text, /waited/);
    assert.equal(await s.next(), undefined);
  });
  try {
    await pack.serve({ server: server.url, signal: stop.signal, log: quiet });
  } finally {
    await server.close();
  }
});

test("a pack that stops does not wait for ever", async () => {
  const { pack, ends } = waiting();
  const stop = new AbortController();
  const server = await packServer(async (s) => {
    await welcome(s);
    execute(s, 1, "wait", { stubborn: true });
    while (ends.length === 0) await new Promise((r) => setTimeout(r, 5));
    stop.abort();
    while ((await s.next()) !== undefined);
  });
  try {
    await pack.serve({ server: server.url, signal: stop.signal, drainMs: 10, log: quiet });
  } finally {
    await server.close();
  }
});

/** Runs scripts one after another; the pack stops with the last one. Returns the warnings. */
async function again(pack: Pack, ...scripts: Script[]): Promise<string[]> {
  const stop = new AbortController();
  const warnings: string[] = [];
  const last = scripts.pop();
  const server = await packServer(...scripts, async (s) => {
    await last?.(s);
    stop.abort();
    while ((await s.next()) !== undefined);
  });
  try {
    await pack.serve({ server: server.url, signal: stop.signal, log: { ...quiet, warn: (text) => warnings.push(text) } });
  } finally {
    await server.close();
  }
  return warnings;
}

test("a pack comes back, as the same run: after a lost stream, a server that drains, one that is silent", async () => {
  const { pack } = waiting();
  const instances = new Set<string>();
  const note = async (s: Stream) => instances.add((await welcome(s, { heartbeatSeconds: 1 })).open.instance);
  const warnings = await again(
    pack,
    note, // and ends the stream
    async (s) => {
      await note(s);
      s.send({ case: "drain", value: {} });
      assert.equal((await s.next())?.case, "drain");
      assert.equal(await s.next(), undefined);
    },
    async (s) => {
      await note(s);
      await s.next().catch(() => undefined); // and says nothing
    },
    note,
  );
  assert.equal(instances.size, 1);
  assert.equal(warnings.length, 2, warnings.join("\n")); // at a server that drains the pack is not lost
  assert.match(warnings[1] ?? "", /silent/);
});

test("pauses grow while a server is not there", async () => {
  const away: Script = async () => {
    throw new ConnectError("away", Code.Unavailable);
  };
  const warnings = await again(waiting().pack, away, away, away, (s) => welcome(s));
  const pauses = warnings.map((w) => Number(/in (\d+) ms: .*away/.exec(w)?.[1]));
  assert.deepEqual(pauses.map((ms) => Math.floor(Math.log2(ms / 100))), [0, 1, 2], warnings.join("\n"));
});

test("a server that refuses a pack ends it, with its text", async () => {
  for (const code of [Code.InvalidArgument, Code.Unauthenticated, Code.PermissionDenied]) {
    const refuse: Script = async () => {
      throw new ConnectError("tools[0]: no", code);
    };
    await assert.rejects(again(waiting().pack, refuse, refuse), /the server refuses the pack waiting: tools\[0\]: no/);
  }
  await assert.rejects(waiting().pack.serve({ server: "nowhere" }), /nowhere is not the URL of a server/);
});

test("a wrong challenge is not signed", async () => {
  const { pack } = waiting();
  const server = await packServer(async (s) => {
    await s.next();
    s.send({ case: "challenge", value: { serverId: "s", namespace: "git" } });
    await s.next();
  });
  try {
    await assert.rejects(pack.serve({ server: server.url, credential: sshKeyFile("none"), log: quiet }), /cannot be signed: the server asks for a signature of the namespace "git"/);
  } finally {
    await server.close();
  }
});

test("a reload is answered, also within a call, and one on a lost stream fails", () => {
  const { pack } = waiting();
  pack.tool("reload", "", {}, () => pack.reload().then(() => "taken"));
  return within(async (s) => {
    await assert.rejects(new Pack("x", "1").reload(), /not connected/);
    await welcome(s);
    for (const error of ["", "tools[9]: no"]) {
      execute(s, error === "" ? 1 : 2, "reload");
      assert.equal((await s.next())?.case, "reload");
      s.send({ case: "reloadResult", value: { error } });
      assert.match((await resultOf(s)).text, error === "" ? /taken/ : /the server refuses the tools: tools\[9\]: no/);
    }
  }, pack);
});

const real = process.env["SKERRY_SERVER"];
if (real === undefined) throw new Error("SKERRY_SERVER names no server: scripts/clients.sh starts one");
const key = process.env["SKERRY_API_KEY"];
const skerry = new Skerry({ server: real, ...(key === undefined ? {} : { key }) });
const runtime = "Bun" in globalThis ? "bun" : "Deno" in globalThis ? "deno" : "node";

/** Serves a pack on the real server while run runs. */
async function served(pack: Pack, run: (stop: () => Promise<void>) => Promise<void>, credential: Credential = key === undefined ? {} : bearerKey(key)): Promise<void> {
  const stop = new AbortController();
  let connected: () => void = () => undefined;
  const there = new Promise<void>((resolve) => (connected = resolve));
  const serving = pack.serve({ server: real as string, credential, signal: stop.signal, connected, log: quiet });
  const end = async () => {
    stop.abort();
    await serving;
  };
  try {
    await Promise.race([there, serving]);
    await run(end);
  } finally {
    await end();
  }
}

test("a thread of a real server calls the tools", async () => {
  const { pack: scripted, log, ends } = waiting();
  const id = `ts-${runtime}-pack`;
  const pack = new Pack(id, "1.0.0");
  pack.tool("find_lead", "Finds a lead", { input: z.object({ name: z.string() }), output: z.object({ email: z.string() }) }, ({ name }) => leads.find(name));
  pack.tool("who", "Who", {}, (_, call) => call.caller);
  pack.tool("fail", "Fails", {}, () => Promise.reject(new Error("no such lead")));
  for (const name of ["wait", "steps"]) pack.tool(name, name, {}, (input, call) => scripted.find(name)?.run(input as never, call));
  const thread = skerry.thread(id);
  const printed = (name: string) => `${id.replaceAll("-", "_")}__${name}`;
  const call = (name: string, input: object = {}) => thread.tools.call(printed(name), input);
  await served(pack, async (stop) => {
    assert.equal((await thread.tools.servers()).servers.find((s) => s.name === id)?.transport, "pack");
    const found = await call("find_lead", { name: "Ada" });
    assert.deepEqual([found.is_error, found.result], [false, { email: "Ada@example.com" }]);
    assert.equal(((await call("who")).result as { thread: string }).thread, id);
    assert.deepEqual(await call("fail").then((r) => [r.is_error, r.result]), [true, "no such lead"]);
    assert.deepEqual(await progressOf(id, printed("steps")), [[1, "one"], [2, "two"]]);

    const giveUp = new AbortController();
    const lost = thread.tools.call(printed("wait"), {}, { signal: giveUp.signal });
    await until(() => ends.length === 1);
    giveUp.abort(new Error("enough"));
    await assert.rejects(lost, /enough/);
    await until(() => log.includes("AbortError"));

    pack.tool("later", "Later", {}, () => "later");
    await pack.reload();
    await until(async () => (await thread.tools.servers()).servers.find((s) => s.name === id)?.tool_count === 6);
    assert.equal((await call("later")).result, "later");

    const last = call("wait");
    await until(() => ends.length === 2);
    const stopped = stop();
    await until(async () => (await call("who").catch((err: unknown) => err)) instanceof Error);
    ends[1]?.();
    assert.equal((await last).result, "waited");
    await stopped;
  });
});

async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await holds())) await new Promise((r) => setTimeout(r, 10));
}

/** The progress of a call by /mcp. */
async function progressOf(thread: string, name: string): Promise<[number, string][]> {
  const post = async (session: string, body: object) => {
    const headers = { "Content-Type": "application/json", Accept: "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25" };
    const answer = await fetch(`${real}/mcp/${thread}`, {
      method: "POST",
      headers: { ...headers, ...(session === "" ? {} : { "Mcp-Session-Id": session }), ...(key === undefined ? {} : { Authorization: `Bearer ${key}` }) },
      body: JSON.stringify({ jsonrpc: "2.0", ...body }),
    });
    return { session: answer.headers.get("Mcp-Session-Id") ?? "", text: await answer.text() };
  };
  const clientInfo = { name: "test", version: "1" };
  const { session } = await post("", { id: 1, method: "initialize", params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo } });
  await post(session, { method: "notifications/initialized" });
  const { text } = await post(session, { id: 2, method: "tools/call", params: { name, arguments: {}, _meta: { progressToken: "p" } } });
  return [...text.matchAll(/^data: (.*notifications\/progress.*)$/gm)].map((m) => {
    const { params } = JSON.parse(m[1] ?? "") as { params: { progress: number; message: string } };
    return [params.progress, params.message];
  });
}

test("SSH keys prove who a pack is: files, and an agent", async () => {
  const dir = mkdtempSync(join(tmpdir(), "skerry-ssh-"));
  const identity = async (id: string) => (await skerry.call<{ identity: string }>({ method: "GET", path: `/api/packs/${id}` })).identity;
  const kinds: [string, { private: string; public: string }][] = [
    ["ed25519", ed25519()],
    ["ecdsa", ssh2.utils.generateKeyPairSync("ecdsa", { bits: 384 })],
    ["rsa", ssh2.utils.generateKeyPairSync("rsa", { bits: 3072 })],
  ];
  try {
    for (const [kind, pair] of kinds) {
      const id = `ts-${runtime}-${kind}`;
      const pack = new Pack(id, "1");
      pack.tool("x", "X", {}, () => "x");
      const added = await skerry.call<{ id: string }>({ method: "POST", path: "/api/packs/keys", body: { key: pair.public, packs: [id] } });
      const file = join(dir, kind);
      writeFileSync(file, pair.private, { mode: 0o600 });
      await served(pack, async () => assert.equal(await identity(id), `the SSH key ${added.id}`), sshKeyFile(file));
      if (kind !== "ecdsa") {
        const agent = await agentWith(join(dir, `${kind}.sock`), pair.private);
        await served(pack, async () => assert.equal(await identity(id), `the SSH key ${added.id}`), sshAgent(join(dir, `${kind}.sock`), added.id));
        agent.close();
      }
      await assert.rejects(served(new Pack("ts-other", "1"), async () => undefined, sshKeyFile(file)), /may not provide the pack "ts-other"/);
      await skerry.call({ method: "DELETE", path: path("packs", "keys", added.id) });
    }
  } finally {
    rmSync(dir, { recursive: true });
  }
});

/** A key of Ed25519. The generator takes zeros away at the beginning of one in 128. */
function ed25519() {
  for (;;) {
    const pair = ssh2.utils.generateKeyPairSync("ed25519");
    if (Buffer.from(pair.public.split(" ")[1] ?? "", "base64").length === 51) return pair;
  }
}

/** An SSH agent with one key, whose signatures need no other form than Node's: not ECDSA. */
async function agentWith(socket: string, secret: string): Promise<Server> {
  const key = ssh2.utils.parseKey(secret);
  if (key instanceof Error) throw key;
  const server = createServer((conn) => {
    const agent = new ssh2.AgentProtocol(false);
    agent.on("identities", (req) => agent.getIdentitiesReply(req, [key]));
    agent.on("sign", (req, _, data, options) => agent.signReply(req, key.sign(data, options.hash)));
    conn.pipe(agent).pipe(conn);
  });
  await new Promise<void>((done) => server.listen(socket, done));
  return server;
}
