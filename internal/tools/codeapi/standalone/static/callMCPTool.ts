// Calls a tool of an MCP server from outside of a sandbox. Runs on bun, deno and node as it is.
//
// Where a call goes: to MCP_RPC_ENDPOINT (the bridge of a sandbox); else to the Skerry server that
// SKERRY_SERVER or connection.ts names, with the key in SKERRY_API_KEY; else to the command in
// connection.ts, which is started anew for each call: state that a server keeps in memory is then lost
// between calls.
import { connection } from "./connection.ts";

type Answer = { status: number; text(): Promise<string> };
declare function fetch(url: string, init: { method: string; headers: Record<string, string>; body: string }): Promise<Answer>;

type Output = { setEncoding(encoding: string): void; on(event: "data", take: (text: string) => void): void };
type Child = {
  stdin: { end(text: string): void; on(event: "error", take: () => void): void };
  stdout: Output;
  stderr: Output;
  on(event: "error", take: (err: unknown) => void): void;
  on(event: "close", take: (code: number | null) => void): void;
};
type Spawn = (command: string, args: string[], options: { stdio: string[] }) => Child;

type Host = {
  process?: { env: Record<string, string | undefined> };
  Deno?: { env: { get(name: string): string | undefined } };
  callMCPTool?: unknown;
};
const host = globalThis as unknown as Host;

function env(name: string): string {
  return (host.process ? host.process.env[name] : host.Deno?.env.get(name)) ?? "";
}

/** A call that failed: by the tool, or on the way to it. */
export class MCPToolError extends Error {
  /** The tool that was called. */
  readonly tool: string;
  /** The HTTP status of the answer; 0 when there was none. */
  readonly status: number;
  /** A stable word: "not_found", "invalid", "tool_failed", "timeout", "unavailable", … */
  readonly code: string;

  constructor(tool: string, status: number, code: string, message: string) {
    super(`${tool}: ${message}`);
    this.name = "MCPToolError";
    this.tool = tool;
    this.status = status;
    this.code = code;
  }
}

/**
 * Calls a tool by its full name ("<server>__<tool>") and gives its result. A call that fails throws an
 * MCPToolError and is not made again.
 */
export async function callMCPTool<T = unknown>(tool: string, input: object = {}): Promise<T> {
  const bridge = env("MCP_RPC_ENDPOINT");
  const server = env("SKERRY_SERVER") || connection.server;
  if (bridge) return (await post(tool, bridge, env("SKERRY_EXEC_TOKEN"), input)) as T;
  if (server) {
    const url = `${server.replace(/\/+$/, "")}/api/threads/${encodeURIComponent(connection.thread)}/tools/call`;
    return (await post(tool, url, env("SKERRY_API_KEY"), input)) as T;
  }
  return (await start(tool, input)) as T;
}

async function post(tool: string, url: string, key: string, input: object): Promise<unknown> {
  const headers: Record<string, string> = { "Content-Type": "application/json" };
  if (key) headers["Authorization"] = `Bearer ${key}`;
  let status = 0;
  let text: string;
  try {
    const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify({ tool, input }) });
    status = answer.status;
    text = await answer.text();
  } catch (err) {
    throw new MCPToolError(tool, status, "unavailable", `${url} does not answer: ${String(err)}`);
  }
  return unwrap(tool, status, text);
}

type Wire = {
  result?: unknown;
  is_error?: boolean;
  error?: { code?: unknown; message?: unknown };
  code?: unknown;
  detail?: unknown;
  errors?: { location?: unknown; message?: unknown }[];
};

/** Reads an answer of the bridge, of the API, or of the command line. */
function unwrap(tool: string, status: number, text: string): unknown {
  let answer: Wire | null = null;
  try {
    answer = JSON.parse(text) as Wire | null;
  } catch {
    // below
  }
  if (answer === null || typeof answer !== "object") {
    throw new MCPToolError(tool, status, "unavailable", `the answer, of status ${status}, is not a JSON object`);
  }
  if (answer.error) throw new MCPToolError(tool, status, String(answer.error.code), String(answer.error.message));
  if (status !== 200 || !("result" in answer)) {
    const fields = (answer.errors ?? []).map((e) => `; ${String(e.location)}: ${String(e.message)}`).join("");
    throw new MCPToolError(tool, status, String(answer.code ?? "unavailable"), `${String(answer.detail ?? `status ${status}`)}${fields}`);
  }
  if (answer.is_error) {
    const text = typeof answer.result === "string" ? answer.result : JSON.stringify(answer.result);
    throw new MCPToolError(tool, status, "tool_failed", text);
  }
  return answer.result;
}

/** Starts the command line for one call. */
async function start(tool: string, input: object): Promise<unknown> {
  const module: string = "node:child_process"; // not a literal: the types of node need not be there
  const { spawn } = (await import(module)) as { spawn: Spawn };
  const [program, ...first] = connection.command;
  if (!program) throw new MCPToolError(tool, 0, "unavailable", "connection.ts names neither a server nor a command");
  const [out, err] = await new Promise<[string, string]>((resolve, reject) => {
    const child = spawn(program, [...first, tool, "--args", "-", "--json"], { stdio: ["pipe", "pipe", "pipe"] });
    let out = "";
    let err = "";
    child.stdout.setEncoding("utf8");
    child.stderr.setEncoding("utf8");
    child.stdout.on("data", (text) => (out += text));
    child.stderr.on("data", (text) => (err += text));
    child.on("error", (err) => reject(new MCPToolError(tool, 0, "unavailable", `${program} cannot be started: ${String(err)}`)));
    child.on("close", () => resolve([out, err]));
    child.stdin.on("error", () => undefined); // it ended without reading: its output says why
    child.stdin.end(JSON.stringify(input));
  });
  if (!out.trim()) throw new MCPToolError(tool, 0, "unavailable", err.trim() || `${program} said nothing`);
  return unwrap(tool, 200, out);
}

host.callMCPTool = callMCPTool;
