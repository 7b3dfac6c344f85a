// An MCP server on stdio whose tools change: open_shop adds buy and takes itself away, and says so (list_changed).
import { createInterface } from "node:readline";

const any = { type: "object" };
const tools = new Map([
  ["open_shop", { type: "object", properties: { city: { type: "string" } }, required: ["city"] }],
  // LangChain.js would look for a match of this pattern for longer than the universe is old.
  ["say", { type: "object", properties: { word: { type: "string", pattern: "^(a+)+$" } } }],
  ["picture", any],
  ["numbers", any],
  ["fail", any],
]);
const picture = Buffer.concat([Buffer.from("89504e470d0a1a0a", "hex"), Buffer.alloc(400_000)]).toString("base64");
const text = (said) => ({ type: "text", text: said });
const send = (message) => console.log(JSON.stringify({ jsonrpc: "2.0", ...message }));

const results = {
  open_shop: ({ city }) => {
    tools.delete("open_shop");
    tools.set("buy", any);
    send({ method: "notifications/tools/list_changed" });
    return { content: [text(`open in ${city}`)] };
  },
  picture: () => ({ content: [text("a picture"), { type: "image", mimeType: "image/x-any", data: picture }, { type: "audio", mimeType: "audio/wav", data: "AAAA" }] }),
  numbers: () => ({ content: [], structuredContent: { sum: 6 } }),
  fail: () => ({ content: [text("sold out")], isError: true }),
};

const methods = {
  initialize: (p) => ({ protocolVersion: p.protocolVersion, capabilities: { tools: { listChanged: true } }, serverInfo: { name: "shop", version: "1" } }),
  "tools/list": () => ({ tools: [...tools].map(([name, inputSchema]) => ({ name, description: `Does ${name}.`, inputSchema })) }),
  "tools/call": (p) => results[p.name]?.(p.arguments ?? {}) ?? { content: [text(JSON.stringify({ [p.name]: p.arguments ?? {} }))] },
};

createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const run = methods[method];
  send(run === undefined ? { id, error: { code: -32601, message: `no method ${method}` } } : { id, result: run(params ?? {}) });
});
