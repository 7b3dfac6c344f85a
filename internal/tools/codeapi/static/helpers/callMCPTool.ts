// Calls a tool of an MCP server through the sandbox's bridge. Runs on bun, deno and node as it is.
import type { ToolAnswer, ToolCall, ToolFile } from "./types.ts";

type Answer = { status: number; text(): Promise<string> };
type Request = { method: string; headers: Record<string, string>; body: string };
declare function fetch(url: string, init: Request & { unix?: string }): Promise<Answer>;

type Host = {
  Bun?: unknown;
  process?: { env: Record<string, string | undefined> };
  Deno?: { env: { get(name: string): string | undefined } };
  callMCPTool?: unknown;
};
const host = globalThis as unknown as Host;

function env(name: string): string | undefined {
  return host.process ? host.process.env[name] : host.Deno?.env.get(name);
}

/** A call that failed: by the tool, or on the way to it. */
export class MCPToolError extends Error {
  /** The tool that was called. */
  readonly tool: string;
  /** The HTTP status of the bridge's answer; 0 when there was none. */
  readonly status: number;
  /** A stable word: "not_found", "invalid", "tool_failed", "timeout", "unavailable", … */
  readonly code: string;

  constructor(tool: string, status: number, code: string, message: string, site?: Error) {
    super(message.startsWith(`${tool}: `) ? message : `${tool}: ${message}`);
    this.name = "MCPToolError";
    this.tool = tool;
    this.status = status;
    this.code = code;
    const frames = site?.stack?.split("\n").filter((line) => /^\s+at /.test(line)) ?? [];
    if (frames.length > 1) {
      // The first one is callMCPTool itself. Bun reads its own frames only when they have a name.
      const named = frames.slice(1).map((line) => line.replace(/at ([^ (]+:\d+:\d+)$/, "at <anonymous> ($1)"));
      this.stack = [`${this.name}: ${this.message}`, ...named].join("\n");
    }
  }
}

/**
 * Calls a tool by its full name ("<server>__<tool>") and gives its result. A call that fails throws an
 * MCPToolError and is not made again.
 */
export async function callMCPTool<T = unknown>(tool: string, input: object = {}): Promise<T> {
  // Where the call was made: some runtimes forget it at the first await.
  const site = new Error();
  const url = env("MCP_RPC_ENDPOINT") || `http://localhost:${env("MCP_BRIDGE_PORT") || "9876"}/call`;
  const call: ToolCall = { tool, input };
  const body = JSON.stringify(call);
  const headers: Record<string, string> = { "Content-Type": "application/json", Authorization: `Bearer ${env("SKERRY_EXEC_TOKEN") ?? ""}` };
  if (host.process && !host.Bun && !host.Deno) {
    headers["Skerry-Interim"] = "102"; // Node gives up when it hears nothing for five minutes
  }
  let status = 0;
  let text: string;
  try {
    const answer = await post(url, { method: "POST", headers, body });
    status = answer.status;
    text = await answer.text();
  } catch (err) {
    throw new MCPToolError(tool, status, "unavailable", `the tool bridge does not answer: ${String(err)}`, site);
  }
  let answer: ToolAnswer<T> | null;
  try {
    answer = JSON.parse(text) as ToolAnswer<T> | null;
  } catch {
    throw new MCPToolError(tool, status, "unavailable", `the tool bridge answered with status ${status} and no JSON`, site);
  }
  if (answer?.error) {
    throw new MCPToolError(tool, status, String(answer.error.code), String(answer.error.message), site);
  }
  if (status === 200 && answer?.file) {
    return (await load(tool, answer.file, site)) as T;
  }
  if (status !== 200 || answer === null || typeof answer !== "object" || !("result" in answer)) {
    throw new MCPToolError(tool, status, "unavailable", `the tool bridge answered with status ${status} and no result`, site);
  }
  return answer.result as T;
}

// Bun can reach the bridge's own socket, which is a third faster than the port in front of it. The port
// waits while the server starts again, so it is asked when the socket has no listener.
async function post(url: string, request: Request): Promise<Answer> {
  const unix = host.Bun ? env("MCP_BRIDGE_SOCKET") : undefined;
  if (unix) {
    try {
      return await fetch(url, { ...request, unix });
    } catch (err) {
      const code = (err as { code?: unknown }).code;
      if (code !== "ECONNREFUSED" && code !== "ENOENT") throw err;
    }
  }
  return fetch(url, request);
}

// A large result comes as a file; code gets it as any other.
async function load(tool: string, file: ToolFile, site: Error): Promise<unknown> {
  const name = "node:fs/promises"; // not a literal: type checkers have no types of it here
  try {
    const fs = (await import(name)) as { readFile(path: string, encoding: string): Promise<string> };
    const text = await fs.readFile(file.path, "utf8");
    return file.format === "text" ? text : JSON.parse(text);
  } catch (err) {
    throw new MCPToolError(tool, 200, "unavailable", `its result of ${file.bytes} bytes cannot be read from ${file.path}: ${String(err)}`, site);
  }
}

host.callMCPTool = callMCPTool;
