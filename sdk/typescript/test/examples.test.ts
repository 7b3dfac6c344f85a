// The blocks of docs/typescript.md, which run here as they stand there.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { AIMessage } from "@langchain/core/messages";
import { LostError, Skerry, SkerryError } from "../src/index.js";
import { skerryPrompt, skerryTools } from "../src/langchain.js";

const server = process.env["SKERRY_SERVER"] ?? "";
const key = process.env["SKERRY_API_KEY"] ?? "";
const runtime = "Bun" in globalThis ? "bun" : "Deno" in globalThis ? "deno" : "node";
const id = `ts-docs-${runtime}`;

async function begin() {
  const skerry = new Skerry({ server, key });
  const thread = skerry.thread(id);

  const res = await thread.exec("echo hello from $(whoami); exit 3");
  console.log(res.stdout, res.status, res.exit_code); // a command that fails is no error
  return res;
}

async function streams(skerry: Skerry) {
  const thread = skerry.thread(id);
  for await (const event of thread.execStream("for i in 1 2 3; do echo line $i; sleep 0.1; done")) {
    if (event.type === "stdout") console.log(new TextDecoder().decode(event.data));
    if (event.type === "exit") console.log("exit code", event.result.exit_code);
  }

  const job = await thread.start("sort"); // in the background
  await job.write("pear\napple\n");
  await job.closeStdin();
  console.log((await job.wait()).stdout);
}

async function more(skerry: Skerry) {
  const thread = skerry.thread(id);
  const context = await thread.createContext({ language: "python" });
  await context.run("x = 41");
  console.log((await context.run("x + 1")).results?.[0]?.["text/plain"]); // 42

  await thread.files.put("/mnt/user-data/uploads/islands.txt", "Unst\nYell\n");
  for await (const chunk of await thread.files.get("/mnt/user-data/uploads/islands.txt")) console.log(chunk.byteLength);

  const found = await thread.tools.search({ query: "read a text file" });
  console.log(found.tools[0]?.name, (await thread.tools.call("files__list_allowed_directories")).is_error);

  for await (const record of skerry.audit({ thread: thread.id })) console.log(record.action, record.outcome);
}

async function errors(skerry: Skerry) {
  const thread = skerry.thread(id);
  try {
    await thread.exec("make", { signal: AbortSignal.timeout(60_000) });
  } catch (err) {
    if (err instanceof SkerryError && err.code === "quota_exceeded") console.log(err.limit);
    else if (err instanceof LostError && err.execId) console.log(await thread.execById(err.execId).wait());
    else throw err;
  }
}

async function langchain(skerry: Skerry) {
  const tools = skerryTools(skerry);
  const config = { configurable: { thread_id: id } };
  const system = await skerryPrompt(skerry, config);
  // model.bindTools(tools), with system as the system prompt; a graph passes its config on to the tools.
  return { tools, config, system };
}

test("docs/typescript.md", { timeout: 100_000 }, async () => {
  const skerry = new Skerry({ server, key });
  try {
    assert.equal((await begin()).exit_code, 3);
    await streams(skerry);
    await more(skerry);
    await errors(skerry);
    const { tools, config, system } = await langchain(skerry);
    assert.match(system, /csv-profile/);
    // What a model would answer, by hand: the tool gets the config of the run, not an argument of the model's.
    const call = new AIMessage({ content: "", tool_calls: [{ name: "bash", args: { command: "echo $SKERRY_THREAD_ID" }, id: "1", type: "tool_call" }] }).tool_calls?.[0];
    const message = await tools.find((t) => t.name === call?.name)?.invoke({ ...call, type: "tool_call" }, config);
    assert.equal(String((message as { content: unknown }).content).trim(), id);
  } finally {
    await skerry.thread(id).delete();
  }
});

test("docs/typescript.md shows what runs here", () => {
  const plain = (text: string) => text.replace(/^ +/gm, "");
  const here = plain(readFileSync("test/examples.test.ts", "utf8"));
  const blocks = [...readFileSync("typescript.md", "utf8").matchAll(/```ts\n(.*?)```/gs)].map((m) => m[1] ?? "");
  assert.ok(blocks.length >= 5);
  for (const block of blocks) {
    // The first lines import what is imported above.
    const body = plain(block).replace(/^import .*\n/gm, "").trim();
    assert.ok(here.includes(body), `no example has this:\n${body}`);
  }
});
