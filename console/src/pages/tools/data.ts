import { path, type Finding } from "@skerry/client";
import { session, type Principal } from "../../session/session";
import { all } from "../../ui/all";
import { parseExact, pretty } from "../../ui/exact";

/** An MCP server, or a pack, as a thread has it. */
export interface Server {
  name: string;
  description: string;
  transport: string;
  /** idle, ready, failed, needs_login, unavailable; off: no thread has it. */
  state: string;
  tool_count: number;
  error?: string;
  /** As in extensions_config.json, for operators. */
  config?: Record<string, unknown>;
}

export interface ServerTool {
  name: string;
  short_name: string;
  server: string;
  description?: string;
  parameters?: unknown;
  output?: unknown;
  wrapper_path?: string;
  findings?: Finding[];
  score?: number;
  quarantined?: boolean;
}

export interface Drift {
  server: string;
  tool: string;
  state: "added" | "changed" | "removed";
  quarantined: boolean;
  hash: string;
  changes: { field: string; before?: string; after?: string; diff?: string }[];
  seen_at: string;
}

export interface Pack {
  id: string;
  version: string;
  description?: string;
  tenant?: string;
  state: "connected" | "draining" | "unavailable";
  error?: string;
  identity: string;
  source: string;
  server?: string;
  since: string;
  running: number;
  max_parallel_calls: number;
  calls: number;
  late: number;
  tool_count: number;
  tools?: { name: string; description: string; required_capabilities?: string[]; timeout_s: number; disclosure?: string }[];
}

export interface Result {
  result: unknown;
  is_error: boolean;
  ms: number;
  call_id: string;
  file?: { path: string; bytes: number; format: string };
  content?: unknown[];
  structured_content?: unknown;
}

/** What a caller may do here. The server refuses the rest anyway. */
export interface Rights {
  /** Its own logins, and changed tools of its plugins. */
  develops: boolean;
  administers: boolean;
  /** The servers that all share. */
  operates: boolean;
}

export function rightsOf(me: Principal): Rights {
  const whole = me.threads === undefined; // a key for some threads is good for nothing else
  return { develops: whole && (me.role === "developer" || me.role === "admin"), administers: whole && me.role === "admin", operates: whole && me.operator };
}

/** The thread that is shown where the address names none. It need not exist: a thread begins with its first exec. */
export function usualThread(me: Principal): string {
  const pattern = me.threads?.[0];
  return pattern === undefined ? "console" : pattern.replace("*", "console");
}

/** The servers of a thread, and for operators all others of the configuration, by name. */
export async function servers(thread: string, operates: boolean, signal: AbortSignal): Promise<Server[]> {
  const [{ servers: list }, configs] = await Promise.all([
    session.client.call<{ servers: Server[] }>({ method: "GET", path: path("threads", thread, "servers") }, { signal }),
    operates ? all<{ name: string; config: Record<string, unknown>; state?: string; error?: string }>("/api/mcp/servers", signal) : [],
  ]);
  const byName = new Map(list.map((s) => [s.name, s]));
  for (const { name, config, state, error } of configs) {
    const known = byName.get(name);
    if (known === undefined) byName.set(name, { name, description: "", transport: typeof config["command"] === "string" ? "stdio" : "http", state: state ?? "off", tool_count: 0, config, ...(error === undefined ? {} : { error }) });
    else byName.set(name, { ...known, config });
  }
  return [...byName.values()].sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
}

/** Under which the tools of a server are known: those of one that connects, or lists another number, are asked for anew. */
export function toolsKey(thread: string, s: Server): readonly unknown[] {
  return ["tools", "of", thread, s.name, s.config !== undefined, s.state, s.tool_count];
}

/** The tools of a server. Operators see those of the configuration with what the scan says, also those that no thread has. */
export function toolsOf(thread: string, server: Server, signal: AbortSignal): Promise<ServerTool[]> {
  if (server.config !== undefined && server.state !== "off") return all<ServerTool>(path("mcp", "servers", server.name, "tools"), signal);
  return all<ServerTool>(path("threads", thread, "servers", server.name, "tools"), signal);
}

// A call may wait for a person, and then for its server.
const callMs = 600_000;

/** Reads JSON for a request: numbers that JavaScript would round stay as they were written, where the browser can. */
export function exactBody(text: string): unknown {
  const { rawJSON } = JSON as unknown as { rawJSON?: (source: string) => unknown };
  if (rawJSON === undefined) return JSON.parse(text);
  const keep = (_key: string, value: unknown, context?: { source?: string }): unknown => (typeof value === "number" && context?.source !== undefined && String(value) !== context.source ? rawJSON(context.source) : value);
  return JSON.parse(text, keep as (key: string, value: unknown) => unknown);
}

export function isObject(v: unknown): v is Record<string, unknown> {
  return typeof v === "object" && v !== null && !Array.isArray(v);
}

/** Calls a tool in a thread: rules and approvals apply, and the audit log has it. */
export async function callTool(thread: string, tool: ServerTool, input: unknown, signal: AbortSignal): Promise<Result> {
  const request = { method: "POST", path: path("threads", thread, "tools", "call"), body: { tool: tool.short_name, server: tool.server, input, content: true }, kind: "once" } as const;
  return parseExact<Result>(await (await session.open(request, AbortSignal.any([signal, AbortSignal.timeout(callMs)]))).text());
}

/** JSON of a stranger, which may be nested deeper than this page can write. */
export function written(v: unknown): string {
  try {
    return pretty(v);
  } catch {
    return "It is nested too deep to be shown.";
  }
}
