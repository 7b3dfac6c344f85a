import type { AuditRecord, Query } from "@skerry/client";
import { session } from "../../session/session";
import { fields, usualSpan, type AuditSearch, type SpanName } from "./route";

/** A record as the server sends it. The client's type leaves out who did it, and why it was decided so. */
export interface FullRecord extends AuditRecord {
  auth?: string;
  key_id?: string;
  role?: string;
  actor?: string;
  trace_id?: string;
  source?: string;
  user_agent?: string;
  out_hash?: string;
  why?: unknown;
}

export interface RecordPage {
  items: FullRecord[];
  next_cursor?: string;
  partial?: boolean;
}

const hour = 3_600_000;
export const lengths: Record<Exclude<SpanName, "all">, number> = { "1h": hour, "24h": 24 * hour, "7d": 7 * 24 * hour, "30d": 30 * 24 * hour };

/** The span of time that is looked at; what is not bounded is undefined. */
export function spanOf(s: AuditSearch, now: number): { since?: string; until?: string } {
  if (s.since !== undefined || s.until !== undefined) return { ...(s.since === undefined ? {} : { since: s.since }), ...(s.until === undefined ? {} : { until: s.until }) };
  const last = s.last ?? usualSpan;
  return last === "all" ? {} : { since: new Date(now - lengths[last]).toISOString() };
}

/** What the server is asked for, by all that reads records. */
export function filterOf(s: AuditSearch, now: number): Query {
  const out: Query = { ...spanOf(s, now) };
  for (const name of fields) {
    const value = s[name];
    if (value !== undefined) out[name] = value;
  }
  return out;
}

export function listRecords(filter: Query, cursor: string | undefined, signal: AbortSignal, of?: string): Promise<RecordPage> {
  return session.exact<RecordPage>({ method: "GET", path: "/api/audit", query: { limit: 200, ...filter, cursor } }, signal, of);
}

/** One thing that was done: its attempt, its result, and what it led to. */
export interface Node {
  id: string;
  attempt?: FullRecord;
  result?: FullRecord;
  children: Node[];
}

/** The record that says what was done. */
export function first(n: Node): FullRecord {
  return (n.attempt ?? n.result) as FullRecord;
}

export function outcomeOf(n: Node): string {
  return n.result?.outcome ?? (n.attempt === undefined ? "" : "…");
}

const heads = new Set(["exec", "execute_code", "skill_run", "tool_call", "mcp_request"]);

/**
 * Makes a tree of records, newest first: a result joins its attempt, what was done by another record is below it, and what one
 * request did apart from that is below the call that it was about.
 */
export function treeOf(records: readonly FullRecord[]): Node[] {
  const byRecord = new Map<string, Node>();
  const known = new Map(records.map((r) => [r.id, r]));
  const nodes: Node[] = [];
  for (const r of records) {
    const before = r.parent === undefined ? undefined : known.get(r.parent);
    if (before !== undefined && before.phase === "attempt" && r.phase !== "attempt" && before.action === r.action) continue;
    const node: Node = r.phase === "attempt" ? { id: r.id, attempt: r, children: [] } : { id: r.id, result: r, children: [] };
    byRecord.set(r.id, node);
    nodes.push(node);
  }
  for (const r of records) {
    if (byRecord.has(r.id) || r.parent === undefined) continue;
    const node = byRecord.get(r.parent);
    if (node === undefined) continue;
    node.result = r;
    byRecord.set(r.id, node);
  }
  const roots: Node[] = [];
  for (const node of nodes) {
    const parent = first(node).parent;
    const above = parent === undefined ? undefined : byRecord.get(parent);
    // Nothing is below itself, whatever a record says.
    if (above !== undefined && above !== node && !below(node, above)) above.children.push(node);
    else roots.push(node);
  }
  const byRequest = new Map<string, Node>();
  for (const node of roots) {
    const request = first(node).request_id;
    if (request === undefined) continue;
    const head = byRequest.get(request);
    if (head === undefined || rank(node) < rank(head) || (rank(node) === rank(head) && first(node).time < first(head).time)) byRequest.set(request, node);
  }
  const out: Node[] = [];
  for (const node of roots) {
    const request = first(node).request_id;
    const head = request === undefined ? undefined : byRequest.get(request);
    if (head === undefined || head === node) out.push(node);
    else head.children.push(node);
  }
  const oldest = (a: Node, b: Node) => (first(a).time < first(b).time ? -1 : 1);
  for (const node of nodes) node.children.sort(oldest);
  return out.sort((a, b) => oldest(b, a));
}

function rank(n: Node): number {
  return heads.has(first(n).action) ? 0 : 1;
}

function below(top: Node, node: Node): boolean {
  return top.children.some((c) => c === node || below(c, node));
}

export interface Row {
  node: Node;
  depth: number;
}

/** The rows of a tree, of which those below a closed node are left out. */
export function rowsOf(nodes: readonly Node[], closed: ReadonlySet<string>, depth = 0, out: Row[] = []): Row[] {
  for (const node of nodes) {
    out.push({ node, depth });
    if (!closed.has(node.id) && depth < 16) rowsOf(node.children, closed, depth + 1, out);
  }
  return out;
}

export function findNode(nodes: readonly Node[], record: string): Node | undefined {
  for (const node of nodes) {
    if (node.attempt?.id === record || node.result?.id === record) return node;
    const found = findNode(node.children, record);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** When an id was made, as its first digits say (UUIDv7). */
function madeAt(id: string): number | undefined {
  const ms = /^[0-9a-f]{8}-[0-9a-f]{4}-7/.test(id) ? Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16) : Number.NaN;
  return Number.isNaN(ms) ? undefined : ms;
}

const at = (ms: number) => new Date(Math.max(ms, 0)).toISOString();

// Of what belongs to one record.
const mostPages = 5;

/** Reads pages of records until there are no more, or the one that is looked for is there. */
async function all(filter: Query, signal: AbortSignal, into: Map<string, FullRecord>, looked?: string): Promise<boolean> {
  let cursor: string | undefined;
  for (let page = 0; page < mostPages; page++) {
    const answer = await listRecords({ ...filter, limit: 1000 }, cursor, signal);
    for (const r of answer.items) into.set(r.id, r);
    cursor = answer.next_cursor;
    if (cursor === undefined) return true;
    if (looked !== undefined && into.has(looked)) return false;
  }
  return false;
}

export interface Related {
  records: FullRecord[];
  whole: boolean;
}

/** Records by a part of what belongs to one request. */
class Found {
  readonly byId = new Map<string, FullRecord>();
  whole = true;
  readonly signal: AbortSignal;

  constructor(signal: AbortSignal) {
    this.signal = signal;
  }

  async add(filter: Query, looked?: string): Promise<void> {
    if (!(await all(filter, this.signal, this.byId, looked))) this.whole = false;
  }

  related(): Related {
    return { records: [...this.byId.values()].sort((a, b) => (a.time < b.time ? 1 : -1)), whole: this.whole };
  }
}

/** Where a record is, and those that name it. A search for text reads all records of its span of time, so the span is short. */
function about(id: string): Query {
  const made = madeAt(id);
  const minute = 60_000;
  return { q: id, ...(made === undefined ? {} : { since: at(made - minute), until: at(made + minute) }) };
}

/** Where the records of the same request are. Those of a thread are found by an index. */
function near(record: FullRecord): Query {
  const when = Date.parse(record.time);
  return record.thread === undefined ? { since: at(when - 5 * 60_000), until: at(when + 5 * 60_000) } : { thread: record.thread, since: at(when - hour), until: at(when + 24 * hour) };
}

/** A record and its attempt, as far as the caller may see them, with what was read on the way: what there is to show at once. */
export async function named(id: string, signal: AbortSignal): Promise<Related> {
  const found = new Found(signal);
  await found.add(about(id), id);
  const record = found.byId.get(id);
  const up = record?.parent;
  if (record !== undefined && up !== undefined && !found.byId.has(up)) await found.add(record.exec === undefined ? { q: up, ...near(record) } : { exec: record.exec }, up);
  return found.related();
}

/** The records that `named` found, with all that belongs to the request of one of them, as far as the caller may see it. */
export async function related(id: string, known: Related, signal: AbortSignal): Promise<Related> {
  const record = known.records.find((r) => r.id === id);
  if (record === undefined) return known;
  const found = new Found(signal);
  for (const r of known.records) found.byId.set(r.id, r);
  const execs = new Set(known.records.flatMap((r) => (r.exec === undefined ? [] : [r.exec])));
  const wanted: Query[] = [...execs].slice(0, 4).map((exec) => ({ exec }));
  if (!known.whole) wanted.push(about(id)); // those that name it and were not read yet
  if (record.request_id !== undefined) wanted.push({ q: record.request_id, ...near(record) });
  if (record.parent !== undefined) wanted.push({ q: record.parent, ...near(record) });
  await Promise.all(wanted.map((filter) => found.add(filter)));
  return found.related();
}
