import type { ExecInfo } from "@skerry/client";
import type { FullRecord } from "../../audit/records";

export type Kind = "exec" | "call" | "file";

/** One thing that happened: a bar of the waterfall, or a mark below the exec that did it. */
export interface Item {
  /** Of the record, or of an exec that has none yet. */
  id: string;
  kind: Kind;
  action: string;
  subject: string;
  start: number; // ms
  /** Undefined: it runs. A change of a file ends when it begins. */
  end: number | undefined;
  outcome: string;
  /** The record of the audit log that says so. */
  record: string | undefined;
  exec: string | undefined;
  /** The server still has the exec, with its output. */
  open: boolean;
  children: Item[];
}

const runs = new Set(["exec", "execute_code", "skill_run"]);
const files = new Set(["file_change", "file_write", "file_edit", "file_delete", "file_move", "file_mkdir"]);

function kindOf(action: string): Kind | undefined {
  return runs.has(action) ? "exec" : action === "tool_call" ? "call" : files.has(action) ? "file" : undefined;
}

/** What records and the list of execs say together, the latest first. An exec has the calls and changes of files that it made below it. */
export function itemsOf(records: readonly FullRecord[], execs: readonly ExecInfo[]): Item[] {
  const results = new Map<string, FullRecord>();
  const attempts = new Set<string>();
  for (const r of records) if (r.phase === "attempt") attempts.add(r.id);
  for (const r of records) if (r.phase !== "attempt" && r.parent !== undefined && attempts.has(r.parent) && r.action !== "file_change") results.set(r.parent, r);
  const byExec = new Map<string, Item>();
  const items: Item[] = [];
  for (const r of records) {
    const kind = kindOf(r.action);
    if (kind === undefined) continue;
    const tried = r.phase === "attempt";
    // The result of an attempt that is here is part of it.
    if (!tried && r.action !== "file_change" && r.parent !== undefined && attempts.has(r.parent)) continue;
    const result = tried ? results.get(r.id) : r;
    const at = Date.parse(r.time);
    const took = result?.ms ?? 0;
    const ended = result === undefined ? undefined : tried && kind !== "file" ? Math.max(Date.parse(result.time), at) : at;
    items.push({
      id: r.id,
      kind,
      action: r.action,
      subject: r.subject ?? "",
      start: tried ? at : at - took,
      end: ended,
      outcome: result?.outcome ?? "",
      record: r.id,
      exec: r.exec ?? result?.exec,
      open: false,
      children: [],
    });
  }
  for (const item of items) if (item.kind === "exec" && item.exec !== undefined) byExec.set(item.exec, item);
  for (const e of execs) {
    const start = Date.parse(e.started_at);
    const end = e.status === "running" ? undefined : start + (e.duration_ms ?? 0);
    const known = byExec.get(e.exec_id);
    const outcome = e.status === "exited" && e.exit_code !== 0 ? `exit ${e.exit_code ?? "?"}` : e.status;
    if (known !== undefined) Object.assign(known, { start, end, outcome, open: true, subject: e.description || e.subject || known.subject });
    else {
      const item: Item = { id: e.exec_id, kind: "exec", action: e.action, subject: e.description || e.subject, start, end, outcome, record: undefined, exec: e.exec_id, open: true, children: [] };
      byExec.set(e.exec_id, item);
      items.push(item);
    }
  }
  const top: Item[] = [];
  for (const item of items) {
    const above = item.kind === "exec" || item.exec === undefined ? undefined : byExec.get(item.exec);
    (above?.children ?? top).push(item);
  }
  for (const item of top) item.children.sort((a, b) => a.start - b.start);
  return top.sort((a, b) => b.start - a.start || (a.id < b.id ? 1 : -1));
}

const bad = new Set(["denied", "error", "timeout", "oom", "killed", "lost", "refused", "expired"]);

/** How something went, for its colour. The words say it, too. */
export function toneOf(i: Item): "good" | "busy" | "bad" {
  return i.end === undefined ? "busy" : bad.has(i.outcome) || /^exit (?!0$)/.test(i.outcome) ? "bad" : "good";
}

export interface Span {
  from: number;
  to: number;
}

/** Whether some of it was in a span of time. */
export function within(i: Item, s: Span, now: number): boolean {
  return i.start <= s.to && (i.end ?? now) >= s.from;
}

/** The span of all items, with a little room on both sides. */
export function spanOf(items: readonly Item[], now: number): Span {
  let from = now;
  let to = 0;
  for (const i of items) {
    from = Math.min(from, i.start);
    to = Math.max(to, i.end ?? now, ...i.children.map((c) => c.end ?? now));
  }
  if (to < from) return { from: now - 60_000, to: now };
  const room = Math.max((to - from) / 50, 500);
  return { from: from - room, to: to + room };
}

/** Steps that people count in, in seconds. */
const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

/** How many things of each kind began in each part of a span, for the plot above the waterfall. */
export function countsOf(items: readonly Item[], s: Span, most: number): { times: number[]; step: number; execs: number[]; calls: number[]; files: number[] } {
  const length = (s.to - s.from) / 1000;
  const step = steps.find((x) => length / x <= most) ?? Math.ceil(length / most / 86400) * 86400;
  const first = Math.floor(s.from / 1000 / step) * step;
  const n = Math.max(1, Math.ceil((s.to / 1000 - first) / step));
  const none = () => new Array<number>(n).fill(0);
  const out = { times: Array.from({ length: n }, (_, i) => first + i * step), step, execs: none(), calls: none(), files: none() };
  const add = (i: Item) => {
    const at = Math.floor((i.start / 1000 - first) / step);
    const list = i.kind === "exec" ? out.execs : i.kind === "call" ? out.calls : out.files;
    if (at >= 0 && at < n) list[at] = (list[at] ?? 0) + 1;
  };
  for (const i of items) {
    add(i);
    i.children.forEach(add);
  }
  return out;
}

/** Moments between the ends of a span, for the lines above the waterfall. */
export function ticksOf(s: Span, most: number): { at: number; label: string }[] {
  const length = (s.to - s.from) / 1000;
  const fine = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5];
  const step = [...fine, ...steps].find((x) => length / x <= most) ?? length / most;
  const out: { at: number; label: string }[] = [];
  const two = (x: number) => String(x).padStart(2, "0");
  for (let t = Math.ceil(s.from / 1000 / step) * step; t * 1000 <= s.to && out.length <= most; t += step) {
    const d = new Date(t * 1000);
    const day = step >= 86400 || s.to - s.from > 86400_000 ? `${d.toLocaleDateString(undefined, { month: "short", day: "numeric" })} ` : "";
    const parts = step < 1 ? `:${two(d.getSeconds())}.${String(d.getMilliseconds()).padStart(3, "0")}` : step < 60 ? `:${two(d.getSeconds())}` : "";
    out.push({ at: t * 1000, label: `${day}${two(d.getHours())}:${two(d.getMinutes())}${parts}` });
  }
  return out;
}
