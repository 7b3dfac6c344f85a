// The blocks of docs/typescript.md and docs/skill-tools.md, which run here as they stand there.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { AIMessage, ToolMessage, type BaseMessage } from "@langchain/core/messages";
import { LostError, PreconditionError, Skerry, SkerryError } from "../src/index.js";
import type { BaseChatModel } from "@langchain/core/language_models/chat_models";
import { FakeListChatModel } from "@langchain/core/utils/testing";
import { createAgent } from "langchain";
import { z } from "zod";
import { skerryMiddleware } from "../src/middleware.js";
import { virtualSkill } from "../src/packs/index.js";

const runtime = "Bun" in globalThis ? "bun" : "Deno" in globalThis ? "deno" : "node";
const id = `ts-docs-${runtime}`;

async function begin() {
  const skerry = new Skerry(); // SKERRY_SERVER and SKERRY_API_KEY, or { server, key }
  const thread = skerry.thread("docs");

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

async function conditions(skerry: Skerry) {
  const thread = skerry.thread(id);
  const plan = "/mnt/user-data/workspace/plan.md";
  const { etag } = await thread.files.put(plan, "# Plan\n", { ifAbsent: true });
  await thread.files.put(plan, "# Plan\nPack.\n", { ifMatch: etag });
  try {
    await thread.files.put(plan, "# Another plan\n", { ifMatch: etag });
  } catch (err) {
    if (!(err instanceof PreconditionError)) throw err;
    console.log("another version is there"); // read it, and decide
  }
}

async function handlers(skerry: Skerry) {
  const thread = skerry.thread(id);
  const text = z.object({ text: z.string() });
  const review = virtualSkill({
    name: "code-review",
    description: "Reviews code",
    body: "Count the lines first.",
    tools: [{ name: "count-lines", description: "Counts the lines of a text", input: text, handler: ({ text }) => text.split("\n").length }],
  });
  const attached = await review.attach(thread);
  await thread.skills.activate("code-review"); // as the agent does
  console.log((await thread.tools.call("skill/code-review/count-lines", { text: "a\nb" })).result); // 2
  await attached.close(); // takes the skill away
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

async function langchain(skerry: Skerry, model: BaseChatModel) {
  const agent = createAgent({ model, systemPrompt: "You work in a sandbox.", middleware: [skerryMiddleware(skerry)] });
  const config = { configurable: { thread_id: id } };
  const state = await agent.invoke({ messages: [{ role: "user", content: "Which shell is this?" }] }, config);
  console.log(state.messages.at(-1)?.text);
  return state;
}

/** A model that asks for a command and says what it answered. */
class Asking extends FakeListChatModel {
  override bindTools(): this {
    return this;
  }

  override async _generate(messages: BaseMessage[]) {
    const last = messages.at(-1);
    const calls = [{ name: "bash", args: { command: "echo $SKERRY_THREAD_ID" }, id: "1", type: "tool_call" as const }];
    const message = last !== undefined && ToolMessage.isInstance(last) ? new AIMessage(`It said: ${last.text}`) : new AIMessage({ content: "", tool_calls: calls });
    return { generations: [{ text: message.text, message }] };
  }
}

test("docs/typescript.md", { timeout: 100_000 }, async () => {
  const skerry = new Skerry();
  try {
    assert.equal((await begin()).exit_code, 3);
    await streams(skerry);
    await more(skerry);
    await conditions(skerry);
    await handlers(skerry);
    await errors(skerry);
    // The tool gets the thread of the run's config, not one of the model's.
    const state = await langchain(skerry, new Asking({ responses: [""] }));
    assert.equal(state.messages.at(-1)?.text.trim(), `It said: ${id}`);
  } finally {
    await skerry.thread(id).delete();
  }
});

for (const [page, least] of [["docs/typescript.md", 7], ["docs/skill-tools.md", 1]] as const) {
  test(`${page} shows what runs here`, () => {
    const plain = (text: string) => text.replace(/^ +/gm, "");
    const here = plain(["examples", "direct"].map((name) => readFileSync(`test/${name}.test.ts`, "utf8")).join("\n"));
    const blocks = [...readFileSync(page.replace("docs/", ""), "utf8").matchAll(/```ts\n(.*?)```/gs)].map((m) => m[1] ?? "");
    assert.ok(blocks.length >= least);
    for (const block of blocks) {
      // The first lines import what is imported above.
      const body = plain(block).replace(/^import .*\n/gm, "").trim();
      assert.ok(here.includes(body), `no example has this:\n${body}`);
    }
  });
}
