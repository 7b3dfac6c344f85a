import type { Approval, Decision, Query } from "@skerry/client";
import { session } from "../../session/session";

/** A request as the server sends it. The client's type leaves out how it was decided. */
export interface Request extends Approval {
  request_id?: string;
  key_id?: string;
  bytes: number;
  annotations?: unknown;
  decision?: { by: string; how: "api" | "webhook"; scope?: Scope; reason?: string; at: string };
  used_at?: string;
  record?: string;
}

export type Scope = "once" | "arguments" | "thread";

interface Page {
  items: Request[];
  next_cursor?: string;
}

function ask<T>(path: string, query: Query, signal: AbortSignal): Promise<T> {
  return session.exact<T>({ method: "GET", path, query }, signal);
}

export async function listRequests(all: boolean, signal: AbortSignal): Promise<Page> {
  return ask<Page>("/api/approvals", { limit: all ? 200 : 1000, ...(all ? {} : { state: "pending" }) }, signal);
}

export function request(id: string, signal: AbortSignal): Promise<Request> {
  return ask<Request>(`/api/approvals/${encodeURIComponent(id)}`, {}, signal);
}

/** The last call of the same tool that was approved, apart from this one. */
export async function lastApproved(of: Request, signal: AbortSignal): Promise<Request | null> {
  const page = await ask<Page>("/api/approvals", { state: "approved", tool: of.tool, limit: 5 }, signal);
  return page.items.find((r) => r.id !== of.id && r.created_at <= of.created_at) ?? null;
}

export function decide(id: string, decision: Decision): Promise<Request> {
  return session.client.decide(id, decision) as Promise<Request>;
}

export const scopes: Record<Scope, string> = {
  once: "this call",
  arguments: "each call of this tool in this thread with exactly these arguments",
  thread: "each call of this tool in this thread",
};
