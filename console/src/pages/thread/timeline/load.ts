import { useQuery, useQueryClient } from "@tanstack/react-query";
import type { ExecInfo } from "@skerry/client";
import { useMemo } from "react";
import { listRecords, type FullRecord } from "../../audit/records";
import type { Owned } from "../owned";
import { itemsOf, type Item } from "./model";

// As much of the audit log as a page can draw. The newest come first, and a shorter span of time has all of its own.
const mostRecords = 12_000;
const pageSize = 1_000;
// Records of two servers may come a little out of order.
const overlapMs = 10_000;

interface Loaded {
  records: FullRecord[]; // newest first
  /** Records that are older than the last one here were left out. */
  cut: boolean;
}

interface Bounds {
  from: string | undefined;
  to: string | undefined;
}

/** The records of a span. What is known already is not asked for again. */
async function load(owned: Owned, user: string, { from, to }: Bounds, before: Loaded | undefined, signal: AbortSignal): Promise<Loaded> {
  const found = new Map<string, FullRecord>();
  const newest = before?.records[0]?.time;
  const since = newest === undefined ? from : new Date(Date.parse(newest) - overlapMs).toISOString();
  let cursor: string | undefined;
  let cut = false;
  do {
    const page = await listRecords({ thread: owned.thread.id, user, since, until: to, limit: pageSize }, cursor, signal, owned.of);
    for (const r of page.items) found.set(r.id, r);
    cursor = page.next_cursor;
    cut = cursor !== undefined && found.size >= mostRecords;
  } while (cursor !== undefined && !cut);
  for (const r of cut ? [] : (before?.records ?? [])) if (!found.has(r.id)) found.set(r.id, r);
  const records = [...found.values()].sort((a, b) => (a.time < b.time ? 1 : -1));
  return { records: records.slice(0, mostRecords), cut: cut || before?.cut === true || records.length > mostRecords };
}

export interface History {
  items: Item[];
  cut: boolean;
  error: unknown;
  pending: boolean;
}

/** What happened in the thread in a span of time, as the events of the thread say that there is more of it. */
export function useHistory(owned: Owned, user: string, bounds: Bounds): History {
  const known = useQueryClient();
  const execs = useQuery({ queryKey: [...owned.known, "execs"], queryFn: ({ signal }) => owned.thread.execs({ signal }), refetchInterval: 15_000 });
  const key = [...owned.known, "timeline", bounds.from ?? "", bounds.to ?? ""];
  const records = useQuery({
    queryKey: key,
    queryFn: ({ signal }) => load(owned, user, bounds, known.getQueryData<Loaded>(key), signal),
    refetchInterval: bounds.to === undefined ? 15_000 : false,
    structuralSharing: false,
  });
  const items = useMemo(() => itemsOf(records.data?.records ?? [], listed(execs.data, bounds)), [records.data, execs.data, bounds]);
  return { items, cut: records.data?.cut ?? false, error: records.error ?? execs.error, pending: records.isPending || execs.isPending };
}

/** Execs of the span: those outside of it have their records left out, too. */
function listed(execs: readonly ExecInfo[] | undefined, { from, to }: Bounds): ExecInfo[] {
  const low = from === undefined ? -Infinity : Date.parse(from);
  const high = to === undefined ? Infinity : Date.parse(to);
  return (execs ?? []).filter((e) => {
    const start = Date.parse(e.started_at);
    return start <= high && (e.status === "running" || start + (e.duration_ms ?? 0) >= low);
  });
}
