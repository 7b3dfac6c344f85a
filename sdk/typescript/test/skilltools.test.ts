// Skills whose tools are functions of this program, against a real server: scripts/clients.sh starts it and names it in
// SKERRY_SERVER.
import assert from "node:assert/strict";
import { test } from "node:test";
import { AIMessage, ToolMessage } from "@langchain/core/messages";
import { z } from "zod";
import { Skerry, SkerryError } from "../src/index.js";
import { skerryCalls, skerryOffer } from "../src/langchain.js";
import { virtualSkill } from "../src/packs/index.js";

const server = process.env["SKERRY_SERVER"];
if (server === undefined) throw new Error("SKERRY_SERVER names no server: scripts/clients.sh starts one");
const key = process.env["SKERRY_API_KEY"];
const skerry = new Skerry({ server, ...(key === undefined ? {} : { key }) });
const runtime = "Bun" in globalThis ? "bun" : "Deno" in globalThis ? "deno" : "node";
const quiet = { log: { info: () => undefined, warn: () => undefined, error: () => undefined } };

test("a skill of one thread with tools of this program", async () => {
  const thread = skerry.thread(`ts-${runtime}-skill-tools`);
  const other = skerry.thread(`ts-${runtime}-skill-tools-other`);
  const review = virtualSkill({
    name: "code-review",
    description: "Reviews code",
    body: "Count the lines first.",
    tools: [
      { name: "count-lines", description: "Counts the lines of a text", input: z.object({ text: z.string() }), handler: ({ text }) => text.split("\n").length },
      { name: "who", description: "Says where it runs", input: { type: "object" }, handler: (_, call) => `${process.pid} ${call.caller.thread}` },
    ],
  });
  const attached = await review.attach(thread, quiet);
  try {
    assert.equal(attached.added.name, "code-review");
    const name = "skill/code-review/count-lines";
    await assert.rejects(thread.tools.call(name, { text: "a" }), (err: unknown) => err instanceof SkerryError && err.code === "conflict"); // before activation
    const active = (await thread.skills.activate("code-review")) as { tools?: { name: string }[] };
    assert.deepEqual(active.tools?.map((t) => t.name), ["count-lines", "who"]);
    assert.equal((await thread.tools.call(name, { text: "a\nb" })).result, 2);
    assert.equal((await thread.tools.call("skill/code-review/who")).result, `${process.pid} ${thread.id}`);
    await assert.rejects(thread.tools.call(name, { text: 5 }), SkerryError);
    await assert.rejects(other.tools.call(name, { text: "a" }), (err: unknown) => err instanceof SkerryError && err.code === "not_found");

    const offer = await skerryOffer(thread);
    assert.ok(offer.tools.some((t) => t.name === "call_skill_tool"));
    const args = { skill: "code-review", tool: "count-lines", input: { text: "a\nb\nc" } };
    const [answer] = await skerryCalls(thread, new AIMessage({ content: "", tool_calls: [{ name: "call_skill_tool", args, id: "1" }] }));
    assert.deepEqual([answer?.text, answer?.status, ToolMessage.isInstance(answer)], ["3", "success", true]);
    const [failed] = await skerryCalls(thread, new AIMessage({ content: "", tool_calls: [{ name: "call_skill_tool", args: { ...args, tool: "none" }, id: "2" }] }));
    assert.equal(failed?.status, "error");
    assert.ok(!(await skerryOffer(other)).tools.some((t) => t.name === "call_skill_tool"));
  } finally {
    await attached.close();
  }
  assert.equal(await attached.closed, undefined);
  assert.ok(!(await thread.skills.search()).some((s) => s.name === "code-review"));
  await thread.delete();
});

test("a skill that was taken away is not attached again", async () => {
  const thread = skerry.thread(`ts-${runtime}-skill-gone`);
  const tools = [{ name: "x", description: "X", input: { type: "object" }, handler: () => "x" }];
  await using attached = await virtualSkill({ name: "gone", description: "Goes", body: "x", tools }).attach(thread, quiet).then((a) => ({ closed: a.closed, [Symbol.asyncDispose]: () => a.close().catch(() => undefined) }));
  await thread.skills.remove("gone");
  assert.match((await attached.closed)?.message ?? "", /the server refuses the pack gone/);
  assert.ok(!(await thread.skills.search()).some((s) => s.name === "gone"));
  await thread.delete();
});
