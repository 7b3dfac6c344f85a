// E2B's own JavaScript SDKs, as they are on npm, against a server with real containers: only the variables of test.sh
// point them there.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { CommandExitError, NotFoundError, Sandbox as Plain, TimeoutError } from "e2b";
import { Sandbox } from "@e2b/code-interpreter";

// Several versions run side by side, and each looks for its own sandboxes.
const mine = `1&2 ${process.pid}`;
let box;
before(async () => {
  box = await Sandbox.create({ timeoutMs: 600_000, metadata: { suite: "node", "a b": mine }, envs: { GREETING: "moin" } });
});
after(() => box?.kill());

async function within(seconds, what) {
  for (const end = Date.now() + seconds * 1000; ; await sleep(100)) {
    const got = await what();
    if (got) return got;
    assert.ok(Date.now() < end, `nothing within ${seconds} s`);
  }
}

test("life", async () => {
  const one = await Plain.create({ timeoutMs: 300_000, metadata: { life: mine } });
  assert.equal(await one.isRunning(), true);
  const info = await one.getInfo();
  assert.deepEqual([info.sandboxId, info.metadata, info.state], [one.sandboxId, { life: mine }, "running"]);
  await one.setTimeout(900_000);
  assert.ok((await one.getInfo()).endAt - info.endAt > 500_000);
  const found = await Plain.list({ query: { metadata: { life: mine } } }).nextItems();
  assert.deepEqual(found.map((s) => s.sandboxId), [one.sandboxId]);
  await one.files.write("kept.txt", "kept");
  const again = await Plain.connect(one.sandboxId);
  assert.equal(await again.files.read("kept.txt"), "kept");
  assert.equal(await again.kill(), true);
  assert.equal(await one.isRunning(), false);
  assert.equal(await Plain.kill(one.sandboxId), false);
  await assert.rejects(Plain.connect(one.sandboxId), NotFoundError);
});

test("metadata", async () => {
  const found = await Plain.list({ query: { metadata: { "a b": mine, suite: "node" } } }).nextItems();
  assert.deepEqual(found.map((s) => s.sandboxId), [box.sandboxId]);
});

test("timeout", async () => {
  const short = await Plain.create({ timeoutMs: 3000 });
  await within(60, async () => !(await short.isRunning()));
});

test("pause", async () => {
  const one = await Sandbox.create({ timeoutMs: 300_000 });
  try {
    await one.runCode("x = 41");
    assert.equal(await one.pause(), true);
    assert.equal(await one.isRunning(), false);
    const again = await Sandbox.connect(one.sandboxId, { timeoutMs: 300_000 });
    assert.equal((await again.runCode("x + 1")).text, "42");
  } finally {
    await one.kill();
  }
});

test("commands", async () => {
  const got = await box.commands.run("echo $GREETING $HERE; pwd; echo oops >&2", { envs: { HERE: "you" } });
  assert.deepEqual([got.stdout, got.stderr, got.exitCode], ["moin you\n/home/user\n", "oops\n", 0]);
  await assert.rejects(box.commands.run("echo no >&2; exit 7"), (e) => e instanceof CommandExitError && e.exitCode === 7 && e.stderr === "no\n");
  await assert.rejects(box.commands.run("sleep 60", { timeoutMs: 2000 }), TimeoutError);
});

test("background", async () => {
  const handle = await box.commands.run("cat; echo end", { background: true, stdin: true });
  assert.ok((await box.commands.list()).some((p) => p.pid === handle.pid));
  await box.commands.sendStdin(handle.pid, "typed\n");
  await box.commands.closeStdin(handle.pid);
  assert.equal((await handle.wait()).stdout, "typed\nend\n");
  const long = await box.commands.run("sleep 300", { background: true });
  const ends = assert.rejects(long.wait(), CommandExitError);
  assert.equal(await box.commands.kill(long.pid), true);
  await ends;
  assert.equal(await box.commands.kill(long.pid), false);
});

test("files", async () => {
  const bytes = Uint8Array.from({ length: 256 }, (_, i) => i);
  await box.files.write("f/a.txt", "text");
  await box.files.write("f/b.bin", bytes.buffer);
  assert.equal(await box.files.read("f/a.txt"), "text");
  assert.deepEqual(await box.files.read("/home/user/f/b.bin", { format: "bytes" }), bytes);
  assert.deepEqual((await box.files.list("f")).map((e) => e.name).sort(), ["a.txt", "b.bin"]);
  assert.equal(await box.files.exists("f/a.txt"), true);
  assert.equal(await box.files.makeDir("f/new"), true);
  assert.equal(await box.files.makeDir("f/new"), false);
  assert.equal((await box.files.rename("f/a.txt", "f/c.txt")).path, "/home/user/f/c.txt");
  await box.files.remove("f");
  assert.equal(await box.files.exists("f"), false);
  await assert.rejects(box.files.read("f/a.txt"), NotFoundError);
  const written = await box.files.write([{ path: "m/1", data: "one" }, { path: "m/2", data: "two" }]);
  assert.deepEqual(written.map((w) => w.path), ["/home/user/m/1", "/home/user/m/2"]);
});

test("watch", async () => {
  const seen = [];
  await box.files.makeDir("w");
  const watch = await box.files.watchDir("w", (e) => void seen.push(e.name));
  await box.commands.run("echo x > w/new.txt");
  await within(10, () => seen.includes("new.txt"));
  await watch.stop();
});

test("pty", async () => {
  let shown = "";
  const terminal = await box.pty.create({ cols: 100, rows: 30, onData: (d) => void (shown += Buffer.from(d).toString()), timeoutMs: 60_000 });
  await box.pty.resize(terminal.pid, { cols: 120, rows: 40 });
  await box.pty.sendInput(terminal.pid, Buffer.from("stty size; echo $((40 + 2)); exit\n"));
  await terminal.wait();
  assert.match(shown, /40 120/);
  assert.match(shown, /42/);
});

test("code", async () => {
  const got = await box.runCode("print('out')\nimport sys; print('err', file=sys.stderr)\n6 * 7");
  assert.deepEqual([got.text, got.logs.stdout.join(""), got.logs.stderr.join(""), got.error], ["42", "out\n", "err\n", undefined]);
  await box.runCode("y = 5");
  assert.equal((await box.runCode("y")).text, "5");
  const rich = await box.runCode("from IPython.display import HTML, display\ndisplay(HTML('<b>x</b>'))\n'last'");
  assert.deepEqual([rich.results[0].html, rich.text], ["<b>x</b>", "last"]);
  const failed = await box.runCode("1/0");
  assert.deepEqual([failed.error.name, failed.error.value], ["ZeroDivisionError", "division by zero"]);
  await assert.rejects(box.runCode("1", { language: "r" }), /501/);
});

test("killed", async () => {
  for (const run of [(b) => b.runCode("import time; time.sleep(100)"), (b) => b.commands.run("sleep 100")]) {
    const one = await Sandbox.create({ timeoutMs: 300_000 });
    setTimeout(() => void one.kill(), 2000);
    await assert.rejects(run(one), TimeoutError);
  }
});

test("code timeout", async () => {
  const one = await Sandbox.create({ timeoutMs: 300_000 });
  try {
    await one.runCode("x = 41");
    await assert.rejects(one.runCode("import time\nwhile True: time.sleep(0.1)", { timeoutMs: 2000 }), TimeoutError);
    assert.equal((await one.runCode("x + 1")).text, "42");
  } finally {
    await one.kill();
  }
});

test("contexts", async () => {
  const one = await box.createCodeContext({ language: "python" });
  await box.runCode("v = 'one'", { context: one });
  assert.equal((await box.runCode("v", { context: one })).text, "one");
  assert.ok((await box.listCodeContexts()).some((c) => c.id === one.id));
  await box.restartCodeContext(one);
  assert.equal((await box.runCode("v", { context: one })).error.name, "NameError");
  await box.removeCodeContext(one);
  assert.ok(!(await box.listCodeContexts()).some((c) => c.id === one.id));
});

test("refused", async () => {
  await assert.rejects(box.createSnapshot(), /not supported: snapshots/);
  await assert.rejects(box.commands.run("id", { user: "root" }), /not supported: user root/);
});
