import { path } from "@skerry/client";
import { session } from "../../session/session";

/** GET /api/secrets: all that is told of one. */
export interface Secret {
  name: string;
  /** tenant, user/NAME, server/NAME or skill/NAME */
  scope: string;
  source: "stored" | "file" | "env";
  /** It may be in the environment of an exec. */
  exec: boolean;
  changed_at?: string;
  changed_by?: string;
  last_used_at?: string;
}

export const secretsKey = ["secrets"] as const;

/** Whose it is, and what gets it, in words. */
export function holderOf(scope: string): string {
  const at = scope.indexOf("/");
  const [kind, name] = at < 0 ? [scope, ""] : [scope.slice(0, at), scope.slice(at + 1)];
  if (kind === "tenant") return "all of the tenant";
  if (kind === "user") return "you alone";
  return kind === "server" ? `MCP server ${name}` : kind === "skill" ? `skill ${name}` : scope;
}

export const sources: Record<Secret["source"], string> = { stored: "stored", file: "a file", env: "a variable" };

/** The value goes into the body of one request, and is nowhere else: the query cache never has it. */
export function store(name: string, scope: string, value: string, exec: boolean): Promise<Secret> {
  // As the command line does it: one line break at the end is of the editor.
  return session.client.call<Secret>({ method: "PUT", path: path("secrets", name), query: { scope: wireScope(scope) }, body: { value: value.replace(/\r?\n$/, ""), exec } });
}

/** The scope as the API takes it: user is the caller's own. */
export function wireScope(scope: string): string {
  return scope.startsWith("user") ? "user" : scope;
}
