// What the prompt tells of is what a model gets: an agent of LangChain and a graph of LangGraph with a scripted model,
// against a real server whose MCP servers change while the agent runs. The graph is the one of docs/typescript.md.
import assert from "node:assert/strict";
import { chmodSync, copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { BaseChatModel, type BindToolsInput } from "@langchain/core/language_models/chat_models";
import { AIMessage, SystemMessage, ToolMessage, type BaseMessage } from "@langchain/core/messages";
import type { ChatResult } from "@langchain/core/outputs";
import { tool, type StructuredToolInterface } from "@langchain/core/tools";
import { convertToOpenAITool } from "@langchain/core/utils/function_calling";
import { MessagesAnnotation, StateGraph } from "@langchain/langgraph";
import { createAgent } from "langchain";
import { Skerry, type Thread, type ToolResult } from "../src/index.js";
import { skerryCalls, skerryOffer } from "../src/langchain.js";
import { skerryMiddleware } from "../src/middleware.js";
import { contentOf } from "../src/toolresults.js";

const server = process.env["SKERRY_SERVER"] ?? "";
const key = process.env["SKERRY_API_KEY"];
const skerry = new Skerry({ server, ...(key === undefined ? {} : { key }) });
const runtime = "Bun" in globalThis ? "bun" : "Deno" in globalThis ? "deno" : "node";

/** One call of the model: what it was given. */
class Seen {
  constructor(
    readonly system: string,
    readonly tools: Map<string, { description?: string | undefined; parameters?: unknown }>,
    readonly messages: BaseMessage[],
  ) {}

  has(...names: string[]): boolean {
    return names.every((n) => this.tools.has(n));
  }

  /** What the last calls returned, by tool. */
  answers(): Record<string, ToolMessage> {
    const last = this.messages.findLastIndex((m) => AIMessage.isInstance(m));
    return Object.fromEntries(this.messages.slice(last + 1).filter((m) => ToolMessage.isInstance(m)).map((m) => [m.name, m]));
  }
}

type Turn = (seen: Seen) => AIMessage;

/** Takes the next turn of a script, which looks at what the model was given. */
class Scripted extends BaseChatModel {
  constructor(
    readonly turns: Turn[],
    readonly taken: number[] = [],
    readonly bound: BindToolsInput[] = [],
  ) {
    super({});
  }

  override _llmType() {
    return "scripted";
  }

  override bindTools(tools: BindToolsInput[]) {
    return new Scripted(this.turns, this.taken, tools);
  }

  override async _generate(messages: BaseMessage[]): Promise<ChatResult> {
    const described = this.bound.map((t) => convertToOpenAITool(t as StructuredToolInterface).function);
    const tools = new Map(described.map((d) => [d.name, d]));
    assert.equal(tools.size, described.length, "a name is bound twice");
    const system = messages.filter((m) => SystemMessage.isInstance(m)).map((m) => m.text).join("");
    const turn = this.turns[this.taken.length];
    assert.ok(turn, "the script has no more turns");
    this.taken.push(this.taken.length);
    const message = turn(new Seen(system, tools, messages));
    return { generations: [{ text: message.text, message }] };
  }
}

let ids = 0;
function asks(...calls: [string, object][]): AIMessage {
  return new AIMessage({ content: "", tool_calls: calls.map(([name, args]) => ({ id: `call-${ids++}`, name, args: { ...args }, type: "tool_call" as const })) });
}

async function until(holds: () => Promise<boolean>): Promise<string> {
  for (const ends = Date.now() + 60_000; !(await holds()); ) {
    assert.ok(Date.now() < ends, "it does not come");
    await new Promise((wake) => setTimeout(wake, 50));
  }
  return "it is so";
}

/** Runs with an MCP server of the test's own, in a thread in direct mode. */
async function withShop(way: string, run: (t: Thread, shop: string) => Promise<void>): Promise<void> {
  const shop = `shop${runtime}${way}`;
  const place = mkdtempSync(join(tmpdir(), "skerry-shop-"));
  chmodSync(place, 0o755); // MCP servers run as another user
  copyFileSync("test/shop.mjs", join(place, "shop.mjs"));
  const t = skerry.thread(`ts-direct-${runtime}-${way}`);
  try {
    await skerry.call({ method: "PUT", path: `/api/mcp/servers/${shop}`, body: { command: "node", args: [join(place, "shop.mjs")] }, kind: "safe" });
    await t.acquire({ mode: "direct" });
    await until(async () => (await t.prompt()).tools.some((d) => d.name === `${shop}__open_shop`));
    await run(t, shop);
  } finally {
    await t.delete();
    await skerry.call({ method: "DELETE", path: `/api/mcp/servers/${shop}`, kind: "safe" });
    rmSync(place, { recursive: true });
  }
}

/** Tools of the agent's own, with which the script changes the world and waits until the server knows. */
function changes(t: Thread, shop: string): StructuredToolInterface[] {
  const settle = async () => until(async () => (await t.prompt()).tools.some((d) => d.name === `${shop}__buy`));
  const mode = async (input: unknown) => {
    const { to } = input as { to: "direct" | "code" };
    await t.acquire({ mode: to });
    return until(async () => (await t.prompt()).mode === to);
  };
  return [
    tool(settle, { name: "settle", description: "Waits until the shop sells.", schema: { type: "object", properties: {} } }),
    tool(mode, { name: "mode", description: "Changes the mode of the thread.", schema: { type: "object", properties: { to: { type: "string" }, n: { type: "number" } } } }),
  ] as unknown as StructuredToolInterface[];
}

/** Direct mode, a tool set that changes, code mode, and back. Each turn looks at what the one before brought. */
function script(shop: string): Turn[] {
  const of = (name: string) => `${shop}__${name}`;
  const text = (m: ToolMessage | undefined) => m?.text ?? "";
  return [
    (seen) => {
      assert.ok(seen.has(...["open_shop", "say", "picture", "numbers", "fail"].map(of), "execute_code", "bash", "settle"), [...seen.tools.keys()].join());
      assert.ok(!seen.has("search_tools") && !seen.has(of("buy")));
      assert.match(seen.system, /^Be brief\..*Call a tool directly/s);
      assert.deepEqual(seen.tools.get(of("open_shop"))?.parameters, { type: "object", properties: { city: { type: "string" } }, required: ["city"] });
      const word = `${"a".repeat(60)}!`;
      return asks([of("picture"), {}], [of("numbers"), {}], [of("fail"), {}], [of("say"), { word, config: 1 }], [of("open_shop"), {}], ["execute_code", { cod: "1" }]);
    },
    (seen) => {
      const got = seen.answers();
      const [said, image, sound] = got[of("picture")]?.content as { text?: string; image_url?: { url: string } }[];
      assert.deepEqual(said, { type: "text", text: "a picture" });
      assert.match(image?.image_url?.url ?? "", /^data:image\/png;base64,iVBOR/);
      assert.match(sound?.text ?? "", /audio that cannot be shown/);
      assert.deepEqual((got[of("picture")]?.artifact as { content: { type: string }[] }).content.map((b) => b.type), ["audio"]);
      assert.equal(text(got[of("numbers")]), '{"sum":6}');
      assert.deepEqual((got[of("numbers")]?.artifact as Record<string, unknown>)["structured_content"], { sum: 6 });
      assert.deepEqual([text(got[of("fail")]), got[of("fail")]?.status], ["sold out", "error"]);
      assert.equal(got[of("say")]?.status, "error", "the server checks the pattern, and it is quick");
      assert.match(text(got[of("open_shop")]), /city/);
      assert.equal(got["execute_code"]?.status, "error");
      return asks([of("open_shop"), { city: "Rome" }]);
    },
    (seen) => {
      assert.equal(text(seen.answers()[of("open_shop")]), "open in Rome");
      return asks(["settle", {}]);
    },
    (seen) => {
      assert.ok(seen.has(of("buy")) && !seen.has(of("open_shop")));
      return asks([of("open_shop"), { city: "Oslo" }], [of("buy"), { n: 1 }], ["nothing", {}]);
    },
    (seen) => {
      const got = seen.answers();
      assert.equal(got[of("open_shop")]?.status, "error");
      assert.match(text(got[of("open_shop")]), /there is no tool.*use one that you have now/s);
      assert.equal(text(got[of("buy")]), '{"buy":{"n":1}}');
      assert.equal(got["nothing"]?.status, "error");
      return asks(["mode", { to: "code" }]);
    },
    (seen) => {
      assert.ok(seen.has("execute_code", "search_tools", "list_servers", "bash"));
      assert.deepEqual([...seen.tools.keys()].filter((n) => n.includes("__")), []);
      assert.match(seen.system, /find one with search_tools/);
      assert.doesNotMatch(seen.system, /Call a tool directly/);
      const code = `console.log(JSON.stringify(await callMCPTool('${of("buy")}', { n: 2 })))`;
      return asks(["search_tools", { query: "buy", server: shop }], ["execute_code", { code }], [of("say"), { word: "a" }]);
    },
    (seen) => {
      const got = seen.answers();
      assert.match(text(got["search_tools"]), /__buy/);
      assert.match(text(got["execute_code"]), /"n":2/);
      assert.equal(text(got[of("say")]), '{"say":{"word":"a"}}'); // bound before the mode changed
      return asks(["mode", { to: "direct" }]);
    },
    (seen) => {
      assert.ok(seen.has(of("buy"), of("say")) && !seen.has("search_tools"));
      assert.match(seen.system, /Call a tool directly/);
      return new AIMessage("done");
    },
  ];
}

const hello = { messages: [{ role: "user" as const, content: "Go on." }] };

test("an agent's tools are those that the prompt tells of", { timeout: 150_000 }, () =>
  withShop("agent", async (t, shop) => {
    const model = new Scripted(script(shop));
    const agent = createAgent({ model, tools: changes(t, shop), systemPrompt: "Be brief.", middleware: [skerryMiddleware(t)] });
    const state = await agent.invoke(hello, { recursionLimit: 60 });
    assert.equal(state.messages.at(-1)?.text, "done");
    assert.equal(model.taken.length, model.turns.length);
  }));

test("so are those of a graph of one's own", { timeout: 150_000 }, () =>
  withShop("graph", async (t, shop) => {
    const model = new Scripted(script(shop));
    const tools = changes(t, shop);
    const graph = new StateGraph(MessagesAnnotation)
      .addNode("agent", async (state, config) => {
        const offer = await skerryOffer(skerry, config); // text and tools of one answer
        const system = new SystemMessage(`Be brief. ${offer.text}`);
        const bound = model.bindTools([...offer.tools, ...tools]); // tools: some of your own
        return { messages: [await bound.invoke([system, ...state.messages], config)] };
      })
      .addNode("tools", async (state, config) => ({ messages: await skerryCalls(skerry, state.messages.at(-1), config, { tools }) }))
      .addEdge("__start__", "agent")
      .addConditionalEdges("agent", (state) => (((state.messages.at(-1) as AIMessage).tool_calls ?? []).length > 0 ? "tools" : "__end__"))
      .addEdge("tools", "agent")
      .compile();
    const state = await graph.invoke(hello, { configurable: { thread_id: t.id }, recursionLimit: 60 });
    assert.equal(state.messages.at(-1)?.text, "done");
    assert.equal(model.taken.length, model.turns.length);
  }));

test("what a model reads of a result", () => {
  const block = (data: string) => ({ type: "image", mimeType: "image/svg+xml", data });
  const table: [Partial<ToolResult>, unknown, number][] = [
    [{ result: "text" }, "text", 0],
    [{ result: { a: 1 } }, '{"a":1}', 0],
    [{ result: null }, "[no output]", 0],
    [{ content: [{ type: "text", text: "" }], structured_content: { a: 1 } }, '{"a":1}', 0],
    [{ content: [{ type: "text", text: "a" }, { type: "resource", resource: { uri: "a:b", text: "b" } }] }, "a\nb", 0],
    [{ content: [7, { type: "resource_link", uri: "a:b" }] }, "[a block that cannot be shown: without a name]\n[a resource of the server: a:b]", 2],
    [{ content: [block("R0lGODlh")] }, [{ type: "image_url", image_url: { url: "data:image/gif;base64,R0lGODlh" } }], 0],
    [{ content: [block("R0lGODl!")] }, "[image that cannot be shown: image/svg+xml]", 1],
  ];
  for (const [result, want, hidden] of table) {
    const [content, artifact] = contentOf({ is_error: false, ms: 1, call_id: "c", ...result });
    assert.deepEqual(content, want);
    assert.equal(((artifact["content"] ?? []) as unknown[]).length, hidden);
  }
});
