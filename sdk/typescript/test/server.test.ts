// What a thread can do, against a real server: scripts/clients.sh starts it and names it in SKERRY_SERVER.
import assert from "node:assert/strict";
import { test } from "node:test";
import { PreconditionError, Skerry, SkerryError, stdoutBytes } from "../src/index.js";
import { skerryMessage, skerryOffer, skerryTools } from "../src/langchain.js";

const server = process.env["SKERRY_SERVER"];
if (server === undefined) throw new Error("SKERRY_SERVER names no server: scripts/clients.sh starts one");
const key = process.env["SKERRY_API_KEY"];
const skerry = new Skerry({ server, ...(key === undefined ? {} : { key }) });
const runtime = "Bun" in globalThis ? "bun" : "Deno" in globalThis ? "deno" : "node";

async function inThread(name: string, run: (t: ReturnType<Skerry["thread"]>) => Promise<void>): Promise<void> {
  const thread = skerry.thread(`ts-${runtime}-${name}`);
  try {
    await run(thread);
  } finally {
    await thread.delete().catch((err: unknown) => {
      if (!(err instanceof SkerryError && err.code === "not_found")) throw err; // a test may have deleted it
    });
  }
}

test("sandbox, commands, streams", () =>
  inThread("exec", async (t) => {
    const box = await t.acquire({ labels: { for: t.id } });
    assert.equal(box.state, "running");
    const res = await t.exec("echo out; echo err >&2; exit 3");
    assert.deepEqual([res.status, res.exit_code, res.stdout, res.stderr], ["exited", 3, "out\n", "err\n"]);
    assert.deepEqual(stdoutBytes(await t.exec({ argv: ["printf", "\\377"] })), new Uint8Array([255]));
    const types: string[] = [];
    for await (const e of t.execStream("echo 1; sleep 0.2; echo 2")) types.push(e.type);
    assert.deepEqual([types[0], types.at(-1)], ["started", "exit"]);
    const found: string[] = [];
    for await (const i of skerry.threads({ labels: { for: t.id } })) found.push(i.thread_id);
    assert.deepEqual(found, [t.id]);
    assert.equal((await t.info()).sandbox?.id, box.id);
    assert.ok((await skerry.templates()).length > 0);
  }));

test("a command in the background", () =>
  inThread("start", async (t) => {
    const sort = await t.start("sort");
    await sort.write("pear\n");
    await sort.write(new TextEncoder().encode("apple\n"));
    await sort.closeStdin();
    assert.equal((await sort.wait()).stdout, "apple\npear\n");
    const job = await t.start("trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.05; done");
    for await (const e of job.events()) {
      if (e.type === "stdout" && new TextDecoder().decode(e.data).includes("ready")) await job.signal("TERM");
      if (e.type === "exit") assert.equal(e.result.stdout.includes("caught"), true);
    }
    const sleeper = await t.start({ argv: ["sleep", "600"] });
    await sleeper.kill();
    assert.equal((await sleeper.wait()).status, "killed");
    assert.equal((await sleeper.result()).status, "killed");
    assert.equal((await t.execs()).length, 3);
    const stop = new AbortController();
    setTimeout(() => stop.abort(new Error("enough")), 300);
    await assert.rejects(t.exec("sleep 600", { signal: stop.signal }), /enough/);
  }));

test("code and contexts", () =>
  inThread("code", async (t) => {
    const res = await t.executeCode({ code: "print(sum(range(10)))", language: "py", description: "Adds up" });
    assert.equal(res.stdout, "45\n");
    assert.equal((await t.execs())[0]?.description, "Adds up");
    const called = await t.executeCode({ code: "import { listAllowedDirectories } from './servers/files'; console.log(typeof await listAllowedDirectories({}))" });
    assert.equal(called.tools_called?.[0]?.status, "ok", called.stderr);
    const context = await t.createContext({ language: "python" });
    await context.run("x = 41");
    assert.equal((await context.run("x + 1")).results?.[0]?.["text/plain"], "42");
    await context.restart();
    assert.equal((await context.run("x")).exit_code, 1);
    assert.equal((await context.refresh()).language, "python");
    assert.equal((await t.contexts()).length, 1);
    await context.delete();
  }));

test("files", () =>
  inThread("files", async (t) => {
    const at = "/mnt/user-data/workspace/a";
    await t.files.write(`${at}/one.txt`, "one\ntwo\n");
    await t.files.append(`${at}/one.txt`, "three\n");
    assert.equal((await t.files.read(`${at}/one.txt`, { offset: 1, limit: 1 })).content.trim(), "two");
    assert.equal((await t.files.edit(`${at}/one.txt`, "two", "2")).occurrences, 1);
    const big = new Uint8Array(3 << 20).map((_, i) => i % 251);
    assert.equal((await t.files.put(`${at}/big`, big)).bytes, big.length);
    assert.deepEqual(await t.files.bytes(`${at}/big`), big);
    const stream = new ReadableStream<Uint8Array>({
      start(c) {
        c.enqueue(new TextEncoder().encode("streamed"));
        c.close();
      },
    });
    await t.files.put(`${at}/stream`, stream);
    const got = await t.files.download([`${at}/stream`, `${at}/none`]);
    assert.equal(new TextDecoder().decode(got[0]?.data), "streamed");
    assert.equal(got[1]?.error, "file_not_found");
    const up = await t.files.upload([
      { path: "x/1.txt", data: "1" },
      { path: "/etc/passwd", data: "2" },
    ]);
    assert.deepEqual([up[0]?.path, up[0]?.error, up[1]?.error], ["/mnt/user-data/uploads/x/1.txt", undefined, "permission_denied"]);
    assert.equal((await t.files.list(at)).items.length, 3);
    assert.equal((await t.files.glob(at, "**/*.txt")).items.length, 1);
    assert.equal((await t.files.grep(at, { pattern: "THREE", ignore_case: true })).items[0]?.line, 3);
    await t.files.mkdir(`${at}/b`);
    await t.files.move(`${at}/one.txt`, `${at}/b/one.txt`);
    assert.equal((await t.files.stat(`${at}/b/one.txt`)).is_dir, false);
    await t.files.remove(at, { recursive: true });
    await assert.rejects(t.files.stat(at), (err: unknown) => err instanceof SkerryError && err.code === "not_found");
  }));

test("writes with conditions", () =>
  inThread("conditions", async (t) => {
    const at = "/mnt/user-data/workspace/c";
    const refused = (err: unknown) => err instanceof PreconditionError && err instanceof SkerryError && err.status === 412 && err.code === "conflict";
    const first = await t.files.put(at, "first", { ifAbsent: true });
    const got = await t.files.get(at);
    assert.equal(got.etag, first.etag);
    for await (const chunk of got) assert.equal(new TextDecoder().decode(chunk), "first");
    const second = await t.files.put(at, new Blob(["second"]), { ifMatch: first.etag });
    await assert.rejects(t.files.put(at, "third", { ifMatch: first.etag }), refused);
    await assert.rejects(t.files.put(at, "third", { ifAbsent: true }), refused);
    assert.equal(new TextDecoder().decode(await t.files.bytes(at)), "second");
    const third = await t.files.write(at, "third");
    assert.notEqual(third.etag, second.etag);
    await t.exec("echo by a program > c");
    await assert.rejects(t.files.put(at, "fourth", { ifMatch: third.etag }), refused);
    await t.files.put(at, "fourth", { ifMatch: "*" });
    await assert.rejects(t.files.put(at, "fifth", { ifMatch: "" }), TypeError);
    assert.equal(new TextDecoder().decode(await t.files.bytes(at)), "fourth");
    await assert.rejects(t.files.edit(at, "nothing", "x"), (err) => err instanceof SkerryError && !(err instanceof PreconditionError));
  }));

// The tests of the other runtimes go on at the same time, and a server verifies once at a time.
async function verified(tries = 100) {
  for (;;) {
    try {
      return await skerry.verifyAudit();
    } catch (e) {
      if (!(e instanceof SkerryError) || e.code !== "conflict" || --tries === 0) throw e;
      await new Promise((wake) => setTimeout(wake, 200));
    }
  }
}

test("tools, skills, audit", () =>
  inThread("tools", async (t) => {
    assert.ok((await t.tools.servers()).total_tools > 10);
    assert.equal((await t.tools.search({ query: "read a text file" })).tools[0]?.name, "files__read_text_file");
    const two = await t.tools.search({ query: "read a text file", detail: "full", limit: 2, output_schema: true });
    assert.ok(two.tools.length === 2 && two.tools[0]?.output !== undefined && two.also === undefined);
    const few = await t.tools.search({ query: "read a text file", detail: "full" });
    assert.ok(few.tools.length <= 4 && few.tools[0]?.output === undefined && (few.also?.length ?? 0) > 0);
    assert.ok((await t.tools.of("files")).length > 5);
    assert.equal((await t.tools.call("files__list_allowed_directories")).is_error, false);
    assert.equal((await t.tools.activate("files__read_text_file")).short_name, "read_text_file");
    assert.deepEqual((await t.info()).active_tools, ["files__read_text_file"]);
    await t.tools.putAway("files__read_text_file");
    assert.deepEqual((await t.info()).active_tools ?? [], []);
    assert.match((await t.prompt()).text, /skill/);
    assert.ok((await skerry.skills()).some((s) => s.name === "csv-profile"));
    assert.equal((await skerry.skill("csv-profile")).enabled, true);
    await t.skills.add({ name: "greet", description: "Says hello. Use it to greet.", body: "# Greet\n", files: { "hi.sh": "echo hi $1" } });
    assert.equal((await t.runSkill("greet", { script: "hi.sh", args: ["you"] })).stdout, "hi you\n");
    assert.equal((await t.skills.file("greet", "hi.sh")).text, "echo hi $1");
    assert.match((await t.skills.activate("greet")).content, /Greet/);
    assert.ok((await t.skills.search("greet")).length > 0);
    await t.skills.remove("greet");
    const records = [];
    for await (const r of skerry.audit({ thread: t.id, action: "tool_call", since: new Date(Date.now() - 600_000) })) records.push(r);
    assert.ok(records.length >= 2);
    assert.equal((await verified()).ok, true);
  }));

test("tools of LangChain work in the thread of the run", () =>
  inThread("langchain", async (t) => {
    const tools = skerryTools(skerry);
    const run = (name: string, input: object) => {
      const one = tools.find((x) => x.name === name);
      assert.ok(one, name);
      return one.invoke(input, { configurable: { thread_id: t.id } });
    };
    await run("write_file", { path: "/mnt/user-data/workspace/n.txt", content: "1\n2\n" });
    assert.equal(await run("bash", { command: "wc -l < n.txt; exit 4" }), "2\n\nexit code 4");
    assert.equal(await run("execute_code", { code: "print(open('n.txt').read())", language: "python" }), "1\n2\n\n");
    assert.match(String(await run("read_file", { path: "/mnt/user-data/workspace/none" })), /^error: .*not_found/s);
    assert.match(String(await run("search_tools", { query: "read a text file" })), /files__read_text_file/);
    assert.match(String(await run("activate_skill", { name: "csv-profile" })), /csv-profile/);
    await t.skills.add({ name: "greet", description: "Says hello.", body: "x", files: { "hi.sh": "echo hi $1; exit $2" } });
    assert.equal(await run("run_skill", { skill: "greet", script: "hi.sh", args: ["Bob", "3"] }), "hi Bob\n\nexit code 3");
    await assert.rejects(tools[0]?.invoke({ command: "true" }) ?? Promise.resolve(), /thread_id/);
    await assert.rejects(run("bash", { cmd: "x" }), /schema|required/i);
    assert.match(String(await run("search_skills", { query: "csv" })), /csv-profile/);
    const offer = await skerryOffer(skerry, { configurable: { thread_id: t.id } }, { only: ["bash"] });
    assert.match(offer.text, /csv-profile/);
    assert.deepEqual(offer.tools.map((x) => x.name).filter((n) => ["bash", "ls", "activate_skill"].includes(n)), ["bash", "activate_skill"]);
    assert.deepEqual(skerryTools(skerry, { only: ["bash"] }).map((x) => x.name), ["bash"]);
  }));

test("a folder as a skill", () =>
  inThread("folder", async (t) => {
    const { mkdtemp, mkdir, rm, symlink, writeFile } = await import("node:fs/promises");
    const { tmpdir } = await import("node:os");
    const { join } = await import("node:path");
    const at = await mkdtemp(join(tmpdir(), "skerry-folder-"));
    const folder = join(at, "stamper");
    try {
      await mkdir(join(folder, "scripts"), { recursive: true });
      await writeFile(join(folder, "SKILL.md"), "---\nname: stamper\ndescription: Stamps.\n---\nRun scripts/stamp.sh.\n");
      await writeFile(join(folder, "scripts", "stamp.sh"), "#!/bin/sh\nwc -c < /mnt/skills/virtual/stamper/seal.bin\n");
      await writeFile(join(folder, "seal.bin"), Uint8Array.from({ length: 256 }, (_, i) => i));
      const first = await t.skill(folder);
      assert.deepEqual([first.name, first.category], ["stamper", "virtual"]);
      assert.equal((await t.runSkill("stamper", { script: "scripts/stamp.sh" })).stdout.trim(), "256");
      await writeFile(join(folder, "seal.bin"), "x");
      assert.notEqual((await t.skill(folder)).digest, first.digest); // in place of the first
      assert.equal((await t.runSkill("stamper", { script: "scripts/stamp.sh" })).stdout.trim(), "1");
      await symlink("/etc/passwd", join(folder, "link"));
      await assert.rejects(t.skill(folder), /symbolic link/);
      await assert.rejects(t.skill(at), /no SKILL.md|symbolic link/);
    } finally {
      await rm(at, { recursive: true });
    }
  }));

test("commands that users type", () =>
  inThread("commands", async (t) => {
    const folder = "/mnt/user-data/workspace/plugin";
    const name = `greets-${runtime}`;
    await t.files.write(`${folder}/.claude-plugin/plugin.json`, JSON.stringify({ name }));
    await t.files.write(`${folder}/commands/hello.md`, "Greet $ARGUMENTS");
    const { chunks } = await t.files.getArchive(folder, "zip");
    const parts: Uint8Array[] = [];
    for await (const c of chunks) parts.push(c);
    await t.files.put("/mnt/user-data/outputs/p.zip", new Blob(parts as BlobPart[]));
    await skerry.call({ method: "POST", path: "/api/plugins/install", body: { thread_id: t.id, path: "/mnt/user-data/outputs/p.zip" } });
    try {
      const known = await t.typedCommand(`/${name}:hello Ann`);
      assert.deepEqual([known.recognised, known.message, known.command, known.args], [true, "Greet Ann", `${name}:hello`, "Ann"]);
      const unknown = await t.typedCommand(`/${name}:helo Ann`);
      assert.deepEqual([unknown.recognised, unknown.message, unknown.unknown], [false, `/${name}:helo Ann`, `${name}:helo`]);
      assert.ok(unknown.near?.includes(`${name}:hello`));
      const config = { configurable: { thread_id: t.id } };
      assert.equal(await skerryMessage(skerry, `/${name}:hello Bob`, config), "Greet Bob");
      assert.equal(await skerryMessage(skerry, "hello", {}), "hello"); // the server is not asked
    } finally {
      await skerry.call({ method: "DELETE", path: `/api/plugins/${name}` });
    }
  }));

test("a terminal", () =>
  inThread("terminal", async (t) => {
    const shell = await t.start({ argv: ["sh"], pty: { cols: 80, rows: 24 } });
    const until = async (terminal: AsyncIterable<Uint8Array>, text: string) => {
      let all = "";
      for await (const part of terminal) {
        all += new TextDecoder().decode(part);
        if (all.includes(text)) break;
      }
      assert.ok(all.includes(text), all);
    };
    const first = await shell.terminal();
    first.resize(132, 50);
    first.write("stty size; echo a''b\n");
    await until(first, "50 132");
    const next = first.next;
    first.close();
    const again = await shell.terminal(next - 1);
    again.write("echo c''d; exit 7\n");
    let rest = "";
    for await (const part of again) rest += new TextDecoder().decode(part);
    assert.ok(rest.includes("cd") && !rest.includes("50 132"), rest);
    assert.equal(again.exit?.exit_code, 7);
    await assert.rejects(t.execById("none").terminal(), (err) => err instanceof SkerryError && err.code === "not_found");
  }));

test("archives", () =>
  inThread("archive", async (t) => {
    await t.files.write("/mnt/user-data/workspace/d/a.txt", "one");
    for (const format of ["tar.gz", "tar", "zip"] as const) {
      const { chunks, leftOut } = await t.files.getArchive("/mnt/user-data/workspace", format);
      const parts: Uint8Array[] = [];
      for await (const c of chunks) parts.push(c);
      assert.equal(leftOut, 0);
      const u = await t.files.putArchive(`/mnt/user-data/outputs/${format}`, new Blob(parts as BlobPart[]));
      assert.deepEqual([u.files, u.bytes], [1, 3]);
      assert.equal((await t.files.read(`/mnt/user-data/outputs/${format}/d/a.txt`)).content, "one");
    }
    await assert.rejects(t.files.putArchive("/mnt/user-data/outputs", "no archive"), (err) => err instanceof SkerryError && err.code === "invalid");
  }));

test("events of a thread", () =>
  inThread("events", async (t) => {
    const before = await t.exec("true");
    const others = new Set(["tools.changed", "prompt.changed"]); // packs of other tests come and go
    const seen: string[] = [];
    let resume = "";
    for await (const e of t.events()) {
      if (e.exec?.exec_id === before.exec_id) continue; // its end may be told behind its answer
      if (others.has(e.kind)) continue;
      seen.push(e.kind);
      if (e.kind === "started") await t.executeCode({ language: "bash", code: "echo 1 > a" });
      if (e.kind === "exec.ended") resume = e.id ?? "";
      if (e.kind === "files.changed") {
        assert.deepEqual(e.files?.paths, ["/mnt/user-data/workspace/a"]);
        break;
      }
    }
    assert.deepEqual(seen, ["started", "exec.started", "exec.ended", "files.changed"]);
    const again: string[] = [];
    for await (const e of t.events(resume)) {
      if (others.has(e.kind)) continue;
      again.push(e.kind);
      if (e.kind === "files.changed") await t.delete();
    }
    assert.deepEqual(again.slice(0, 2), ["started", "files.changed"]);
    await assert.rejects(t.events().next(), (err) => err instanceof SkerryError && err.code === "not_found");
  }));

test("a watch", () =>
  inThread("watch", async (t) => {
    await t.exec("true");
    const seen: string[] = [];
    for await (const c of t.files.watch("/mnt/user-data/workspace")) {
      const said = `${c.change} ${c.path}`;
      seen.push(said);
      if (c.change === "started") await t.exec("echo 1 > a");
      if (said === "created /mnt/user-data/workspace/a") await t.files.remove("/mnt/user-data/workspace/a");
      if (said === "deleted /mnt/user-data/workspace/a") await t.release();
    }
    assert.ok(seen.includes("deleted /mnt/user-data/workspace/a"), seen.join());
    await assert.rejects(t.files.watch("/mnt/user-data/none").next(), (err) => err instanceof SkerryError && err.code === "not_found");
  }));
