import type { Finding } from "@skerry/client";
import { session, type Principal } from "../../session/session";

export interface Option {
  key: string;
  type: "string" | "number" | "boolean" | "directory" | "file";
  title?: string;
  description?: string;
  required?: boolean;
  sensitive?: boolean;
  default?: unknown;
  variable?: boolean;
  set: boolean;
  /** *** when sensitive. */
  value?: unknown;
}

export interface Command {
  name: string;
  description: string;
  argument_hint: string;
  allowed_tools?: string[];
  model?: string;
  kind: "command" | "skill";
  hidden?: boolean;
}

export interface Origin {
  kind: string;
  from?: string;
  ref?: string;
  commit?: string;
  path?: string;
  sha256?: string;
  marketplace?: string;
}

export interface Plugin {
  name: string;
  display_name?: string;
  version?: string;
  description: string;
  author?: string;
  homepage?: string;
  repository?: string;
  license?: string;
  keywords?: string[];
  format: string;
  enabled: boolean;
  shared: boolean;
  digest: string;
  location: string;
  source: Origin;
  installed_at: string;
  skills: { name: string; description: string; location: string; broken?: boolean }[];
  commands: Command[];
  mcp_servers: { name: string; registered: string; transport: string; state: "ok" | "unusable" | "duplicate"; reason?: string }[];
  options?: Option[];
  findings: Finding[];
}

export interface Entry {
  name: string;
  display_name?: string;
  description: string;
  version?: string;
  category?: string;
  source: string;
  pinned: boolean;
  problem?: string;
  installed: boolean;
}

export interface Market {
  name: string;
  owner?: string;
  description?: string;
  source: Origin;
  added_at: string;
  plugins: Entry[];
  skills?: Entry[];
  findings: Finding[];
}

export const pluginsKey = ["plugins"] as const;

export interface Rights {
  /** Installs, switches, values and removal, for the caller. */
  develops: boolean;
  /** Marketplaces, and plugins of all users of the tenant. */
  administers: boolean;
}

export function rightsOf(me: Principal): Rights {
  const whole = me.threads === undefined; // a key for some threads is good for nothing else
  return { develops: whole && (me.role === "developer" || me.role === "admin"), administers: whole && me.role === "admin" };
}

export type Source = { file: File } | { source: string; ref?: string; folder?: string } | { marketplace: string; plugin: string };

export interface Installing {
  source: Source;
  /** What the scan calls an error refuses it. */
  strict: boolean;
  shared: boolean;
  replace: boolean;
}

// A repository is fetched, and scanned, meanwhile.
const installMs = 600_000;

/** Installs a plugin. One of the caller's own stays off until its user has seen what it has. */
export async function install({ source, strict, shared, replace }: Installing): Promise<Plugin> {
  const query = { enabled: shared, ...(strict ? { strict } : {}), ...(shared ? { shared } : {}), ...(replace ? { replace } : {}) };
  const at = { method: "POST", path: "/api/plugins/install", query, kind: "once" } as const;
  let content: FormData | undefined;
  if ("file" in source) {
    content = new FormData();
    content.append("file", source.file, source.file.name);
  }
  const answer = await session.client.call<{ plugin: Plugin }>(content === undefined ? { ...at, body: source } : { ...at, content }, { timeoutMs: installMs });
  return answer.plugin;
}

/** Where it came from, in a line of text. */
export function originOf(s: Origin): string {
  const parts = [s.marketplace === undefined ? "" : `${s.marketplace}:`, s.kind === "server" ? "comes with the server" : (s.from ?? s.kind), s.path === undefined ? "" : `folder ${s.path}`, s.ref ?? "", s.commit === undefined ? "" : `commit ${s.commit.slice(0, 12)}`];
  return parts.filter((p) => p !== "").join(" ");
}

/** Whether a value that it needs is missing. */
export function lacks(p: Plugin): boolean {
  return (p.options ?? []).some((o) => o.required === true && !o.set);
}
