// What is sent again after what, and what is not: against a server that fails on purpose.
import assert from "node:assert/strict";
import { test } from "node:test";
import { LostError, Skerry, SkerryError, type ExecEvent, type Options } from "../src/index.js";
import { cut, events, exit, hang, hello, problem, says, scripted, started, world, type Scripted, type Step } from "./scripted.js";

async function against(steps: Step[], options: Partial<Options>, run: (c: Skerry, s: Scripted) => Promise<void>): Promise<void> {
  const s = await scripted(...steps);
  try {
    await run(new Skerry({ server: s.url + "/", ...options }), s);
  } finally {
    await s.close();
  }
}

test("what options leave out comes from the environment", async () => {
  const s = await scripted(says(200, { items: [] }), says(200, { items: [] }));
  const before = { server: process.env["SKERRY_SERVER"], key: process.env["SKERRY_API_KEY"] };
  process.env["SKERRY_SERVER"] = s.url.replace("http://", "");
  process.env["SKERRY_API_KEY"] = "from-here";
  try {
    await new Skerry().templates();
    await new Skerry({ key: "" }).templates();
    assert.deepEqual(s.seen.map((r) => r.headers["authorization"]), ["Bearer from-here", undefined]);
  } finally {
    for (const [name, value] of [["SKERRY_SERVER", before.server], ["SKERRY_API_KEY", before.key]] as const) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
    await s.close();
  }
});

test("a route that the server calls deprecated is named once", async () => {
  const headers = { Deprecation: "@1688169599", Sunset: "Tue, 01 Jun 2027 00:00:00 GMT", Link: '</docs#old>; rel="deprecation"' };
  const said: unknown[] = [];
  const before = console.warn;
  console.warn = (text: unknown) => void said.push(text);
  try {
    await against([says(200, { items: [] }), says(200, { items: [] }, headers)], {}, async (c) => {
      for (let i = 0; i < 3; i++) await c.templates();
    });
  } finally {
    console.warn = before;
  }
  assert.deepEqual(said, ['skerry: the server deprecates GET /api/templates, which may be gone from Tue, 01 Jun 2027 00:00:00 GMT on: </docs#old>; rel="deprecation"']);
});

const soon = { "Retry-After": "1" };
const ok = says(200, { exec_id: "e1", status: "running" });
const stream = events(started, exit);
const full = problem(503, "capacity_exceeded", {}, soon);
const away = problem(503, "unavailable", {}, soon);
const safe = problem(503, "unavailable", { not_started: true }, soon);
const running = problem(409, "conflict", { errors: [{ field: "Idempotency-Key", detail: "running" }] }, soon);

const calls = {
  read: (c: Skerry) => c.thread("t").info(),
  write: (c: Skerry) => c.thread("t").files.write("/a", ""),
  put: (c: Skerry) => c.thread("t").files.put("/a", new Uint8Array([1])),
  putIf: (c: Skerry) => c.thread("t").files.put("/a", "x", { ifAbsent: true }),
  delete: (c: Skerry) => c.thread("t").delete(),
  edit: (c: Skerry) => c.thread("t").files.edit("/a", "x", "y"),
  append: (c: Skerry) => c.thread("t").files.append("/a", ""),
  start: (c: Skerry) => c.thread("t").start("x"),
  exec: (c: Skerry) => c.thread("t").exec("x"),
  code: (c: Skerry) => c.thread("t").executeCode({ code: "1" }),
  tool: (c: Skerry) => c.thread("t").tools.call("a__b"),
  stdin: (c: Skerry) => c.thread("t").execById("e1").write("x"),
};

const table: [keyof typeof calls, string, Step, Step, number][] = [
  ["read", "cut", cut, ok, 2],
  ["read", "unavailable", away, ok, 2],
  ["read", "no such thread", problem(404, "not_found"), ok, 1],
  ["write", "cut", cut, ok, 2],
  ["put", "cut", cut, ok, 2],
  ["putIf", "cut", cut, ok, 1],
  ["putIf", "not started", safe, ok, 2],
  ["delete", "cut, and then gone", cut, problem(404, "not_found"), 2],
  ["edit", "cut", cut, ok, 2],
  ["edit", "its first request runs", running, ok, 2],
  ["edit", "conflict", problem(409, "conflict"), ok, 1],
  ["append", "cut", cut, ok, 1],
  ["append", "full", full, ok, 2],
  ["start", "cut", cut, ok, 1],
  ["start", "unavailable", away, ok, 1],
  ["start", "not started", safe, ok, 2],
  ["start", "full, and the server does not say when it is not", problem(503, "capacity_exceeded"), ok, 1],
  ["exec", "cut", cut, stream, 1],
  ["exec", "unavailable", away, stream, 1],
  ["exec", "not started", safe, stream, 2],
  ["exec", "too many", problem(429, "quota_exceeded", {}, soon), stream, 2],
  ["exec", "internal", problem(500, "internal"), stream, 1],
  ["code", "cut", cut, stream, 1],
  ["code", "full", full, stream, 2],
  ["tool", "cut", cut, ok, 1],
  ["tool", "failed", problem(502, "tool_failed"), ok, 1],
  ["tool", "not started", safe, ok, 2],
  ["stdin", "cut", cut, ok, 1],
];

for (const [name, what, first, then, wanted] of table) {
  test(`${name}, ${what}: ${wanted === 2 ? "sent again" : "not sent again"}`, () =>
    against([first, then], {}, async (c, s) => {
      let failed: unknown;
      await calls[name](c).catch((err: unknown) => (failed = err));
      assert.equal(s.seen.length, wanted, String(failed));
      assert.equal(failed === undefined, wanted === 2, String(failed));
      if (what === "cut" && wanted === 1) assert.ok(failed instanceof LostError, `that it may have been done is not said: ${failed}`);
      if (wanted === 2) assert.equal(s.seen[0]?.body, s.seen[1]?.body);
    }));
}

test("a second request has the key of the first one and says how old it is", () =>
  against([cut, says(200, {})], {}, async (c, s) => {
    await c.thread("t").files.mkdir("/a");
    const [one, two] = s.seen;
    assert.ok((one?.headers["idempotency-key"]?.length ?? 0) > 15);
    assert.equal(two?.headers["idempotency-key"], one?.headers["idempotency-key"]);
    assert.equal(one?.headers["idempotency-age"], undefined);
    assert.ok(Number(two?.headers["idempotency-age"]) > 0);
  }));

test("what nobody knows is said so", () =>
  against([cut, problem(409, "conflict", { errors: [{ field: "Idempotency-Key", detail: "unknown" }] })], {}, async (c) => {
    await assert.rejects(c.thread("t").files.mkdir("/a"), LostError);
  }));

test("where no connection is made, nothing was sent: a command is sent again, and nothing is lost", async () => {
  const s = await scripted(ok);
  const port = new URL(s.url).port;
  await s.close();
  const quick = new Skerry({ server: `http://127.0.0.1:${port}`, patienceMs: 300 });
  for (const call of [calls.start, calls.exec]) {
    await assert.rejects(call(quick), (err: Error) => err.name === "ConnectionError");
  }
});

test("a lost stream goes on behind its last event", () =>
  against([events(started, hello), cut, problem(503, "unavailable"), events(world, exit)], {}, async (c, s) => {
    const got: string[] = [];
    for await (const e of c.thread("a/b").execStream("x")) got.push(shown(e));
    assert.deepEqual(got, ["1 started e1", "2 stdout e1 hello ", "3 stdout e1 world\ufffd", "4 exit e1 0"]);
    assert.equal(s.seen[0]?.method, "POST");
    assert.equal(s.seen[0]?.headers["idempotency-key"], undefined);
    for (const later of s.seen.slice(1)) assert.equal(`${later.method} ${later.url}`, "GET /api/threads/a%2Fb/execs/e1/events?after=2");
  }));

function shown(e: ExecEvent): string {
  const rest = "data" in e ? ` ${new TextDecoder().decode(e.data)}` : "result" in e ? ` ${e.result.exit_code}` : "";
  return `${e.n} ${e.type} ${e.exec_id}${rest}`;
}

test("a stream that cannot be taken up ends with the server's word", () =>
  against([events(started, hello), problem(404, "not_found")], {}, async (c, s) => {
    await assert.rejects(c.thread("t").exec("x"), (err: unknown) => err instanceof SkerryError && err.code === "not_found");
    assert.equal(s.seen.length, 2);
  }));

test("a server that says nothing is given up", () =>
  against([hang], { timeoutMs: 100, silenceMs: 100, waitMs: 100, patienceMs: 0 }, async (c) => {
    for (const call of [calls.read, calls.exec, calls.start]) await assert.rejects(call(c));
    await assert.rejects(c.thread("t").files.bytes("/a"));
  }));

test("a signal ends a call", () =>
  against([hang], {}, async (c) => {
    const stop = new AbortController();
    const call = c.thread("t").exec("x", { signal: stop.signal });
    setTimeout(() => stop.abort(new Error("enough")), 50);
    await assert.rejects(call, /enough/);
    await assert.rejects(c.thread("t").info({ timeoutMs: 50 }), (err: Error) => err.name === "DeadlineError");
  }));

test("an error has its code, its fields and its limit", () =>
  against(
    [
      problem(
        429,
        "quota_exceeded",
        { errors: [{ field: "f", detail: "d" }], limit: { limit: "execs", scope: "user", who: "ann", max: 16, used: 16 } },
        { "X-Request-Id": "r1", "Retry-After": "42" },
      ),
      says(502, "<html>"),
    ],
    { patienceMs: 0, key: "k", onBehalfOf: "ann" },
    async (c, s) => {
      const one = (await c.thread("t").info().catch((err: unknown) => err)) as SkerryError;
      assert.ok(one instanceof SkerryError);
      assert.deepEqual(
        [one.status, one.code, one.requestId, one.retryAfterMs, one.limit?.who, one.message],
        [429, "quota_exceeded", "r1", 42000, "ann", "what is wrong\n  f: d (quota_exceeded)"],
      );
      const two = (await c.thread("t").info().catch((err: unknown) => err)) as SkerryError;
      assert.equal(two.code, "unavailable");
      assert.equal(s.seen[0]?.headers["authorization"], "Bearer k");
      assert.equal(s.seen[0]?.headers["on-behalf-of"], "ann");
    },
  ));

test("a list goes on over its pages", () =>
  against([says(200, { items: [{ thread_id: "a" }], next_cursor: "n" }), says(200, { items: [{ thread_id: "b" }] })], {}, async (c, s) => {
    const got: string[] = [];
    for await (const t of c.threads({ labels: { k: "v" }, state: "running" })) got.push(t.thread_id);
    assert.deepEqual(got, ["a", "b"]);
    assert.equal(s.seen[0]?.url, "/api/threads?label=k%3Dv&state=running");
    assert.equal(new URL(s.seen[1]?.url ?? "", s.url).searchParams.get("cursor"), "n");
  }));

test("threads are listed by the size of their files", () =>
  against([says(200, { items: [{ thread_id: "a", usage: { disk_bytes: 7, execs: 2, exec_seconds: 1.5 } }] })], {}, async (c, s) => {
    for await (const t of c.threads({ user: "*", sort: "disk_bytes", minDiskMib: 100 })) assert.equal(t.usage?.disk_bytes, 7);
    const asked = new URL(s.seen[0]?.url ?? "", s.url).searchParams;
    assert.deepEqual([asked.get("user"), asked.get("sort"), asked.get("min_disk_mib")], ["*", "disk_bytes", "100"]);
  }));

test("audit records go on behind the last one", () => {
  const record = (id: string) => `id: ${id}\nevent: record\ndata: {"id":"${id}"}`;
  return against([events(record("a"), record("b")), events(record("c"))], {}, async (c, s) => {
    const got: string[] = [];
    for await (const e of c.followAudit({ outcome: "denied" })) {
      got.push(e.record.id);
      if (got.length === 3) break;
    }
    assert.deepEqual(got, ["a", "b", "c"]);
    assert.equal(s.seen[1]?.headers["last-event-id"], "b");
  });
});
