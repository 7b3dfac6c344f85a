// The program of sdk/packs/conformance/README.md.
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { bearerKey, Pack, sshKeyFile, type Credential } from "../src/packs/index.js";

const pack = new Pack("conformance", "1.0.0", { description: "What a provider promises", maxParallel: 4 });
const noted: string[] = [];

pack.tool("echo", "Returns a text", { input: z.object({ text: z.string() }) }, ({ text }) => text);

pack.tool("add", "Adds two numbers", { input: z.object({ a: z.int(), b: z.int() }), output: z.object({ sum: z.int() }) }, ({ a, b }) => ({ sum: a + b }));

pack.tool("fail", "Fails with a text", { input: z.object({ text: z.string() }) }, ({ text }) => {
  throw new Error(text);
});

pack.tool("crash", "Fails as its author did not expect", {}, () => {
  throw new TypeError("a mistake");
});

pack.tool("who", "Returns for whom the call is made", { output: z.object({ tenant: z.string(), user: z.string(), thread: z.string() }) }, (_, call) => call.caller);

pack.tool("steps", "Reports its progress", { input: z.object({ n: z.int() }) }, ({ n }, call) => {
  for (let i = 1; i <= n; i++) call.progress(i, n, `step ${i}`);
  return "done";
});

pack.tool("wait", "Waits", { input: z.object({ name: z.string(), ms: z.int() }) }, async ({ name, ms }, call) => {
  try {
    await sleep(ms, undefined, { signal: call.signal });
  } catch (err) {
    noted.push(name);
    throw err;
  }
  return "waited";
});

pack.tool("noted", "Returns what was noted", { output: z.object({ names: z.array(z.string()) }) }, () => ({ names: noted }));

pack.tool("large", "Returns a large text", { input: z.object({ bytes: z.int() }) }, ({ bytes }) => "x".repeat(bytes));

pack.tool("options", "Has all options", { title: "Has options", timeoutMs: 2000, requires: ["crm"], disclosure: "hidden", annotations: { readOnlyHint: true } }, () => "options");

pack.tool("grow", "Adds a tool", {}, async () => {
  pack.tool("grown", "Was added", {}, () => "grown");
  await pack.reload();
  return "reloaded";
});

pack.tool("spoil", "Adds a tool that the server refuses", {}, async () => {
  pack.tool("broken", "Is broken", { input: { type: "object", $ref: "https://example.com/x" } }, () => "broken");
  try {
    await pack.reload();
  } catch (err) {
    return (err as Error).message;
  } finally {
    pack.remove("broken");
  }
  return "the server took it";
});

const { SKERRY_SERVER: server = "", SKERRY_KEY: key, SKERRY_SSH_KEY: sshKey } = process.env;
const credential: Credential = sshKey ? sshKeyFile(sshKey) : key ? bearerKey(key) : {};
const { SKERRY_CA: ca, SKERRY_CERTIFICATE: certificate, SKERRY_CERTIFICATE_KEY: certificateKey } = process.env;
const tls = {
  ...(ca ? { ca: readFileSync(ca) } : {}),
  ...(certificate && certificateKey ? { cert: readFileSync(certificate), key: readFileSync(certificateKey) } : {}),
};
const stop = new AbortController();
process.once("SIGTERM", () => stop.abort());
try {
  await pack.serve({ server, credential, tls, signal: stop.signal });
} catch (err) {
  console.error((err as Error).message);
  process.exitCode = 1;
}
