import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { app } from "../../routes";

/** What a record can be asked for by its value. */
export const fields = ["user", "action", "tool", "outcome", "thread", "exec", "q"] as const;
export type FieldName = (typeof fields)[number];

/** How far back, without a span of its own. The server gets it as a time. */
export const spans = ["1h", "24h", "7d", "30d", "all"] as const;
export type SpanName = (typeof spans)[number];
export const usualSpan: SpanName = "7d";

export type AuditSearch = { [name in FieldName]?: string } & {
  last?: SpanName;
  /** RFC 3339; in place of `last`. */
  since?: string;
  until?: string;
  /** The record that is looked at. */
  record?: string;
  live?: true;
  proof?: true;
};

// As long as the server takes them.
const longest: Record<FieldName, number> = { user: 128, action: 64, tool: 512, outcome: 64, thread: 128, exec: 128, q: 200 };

/** A value of an address that was typed by hand may look like a number. */
function text(v: unknown, most: number): string | undefined {
  const t = typeof v === "number" || typeof v === "boolean" ? String(v) : v;
  return typeof t === "string" && t !== "" && t.length <= most ? t : undefined;
}

function time(v: unknown): string | undefined {
  const t = text(v, 40);
  const at = t === undefined ? Number.NaN : Date.parse(t);
  return Number.isNaN(at) ? undefined : new Date(at).toISOString();
}

const route = createRoute({
  getParentRoute: () => app,
  path: "/audit",
  validateSearch: (s: Record<string, unknown>): AuditSearch => {
    const out: AuditSearch = {};
    for (const name of fields) {
      const value = text(s[name], longest[name]);
      if (value !== undefined) out[name] = value;
    }
    const since = time(s["since"]);
    const until = time(s["until"]);
    const last = spans.find((x) => x === s["last"]);
    if (since !== undefined) out.since = since;
    if (until !== undefined) out.until = until;
    if (last !== undefined && last !== usualSpan && since === undefined && until === undefined) out.last = last;
    const record = text(s["record"], 128);
    if (record !== undefined) out.record = record;
    if (s["live"] === true) out.live = true;
    if (s["proof"] === true) out.proof = true;
    return out;
  },
  component: lazyRouteComponent(() => import("./AuditPage"), "AuditPage"),
});

export const auditPage = { route, nav: { label: "Audit", to: "/audit", roles: ["agent", "developer", "admin", "auditor"] } } as const;
