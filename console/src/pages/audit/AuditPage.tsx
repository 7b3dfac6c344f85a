import { keepPreviousData, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import type { AuditFacet, AuditSummary, Query } from "@skerry/client";
import { createContext, useCallback, useContext, useEffect, useMemo, useState, type FormEvent } from "react";
import { session, usePrincipal } from "../../session/session";
import { Button } from "../../ui/Button";
import { Choice } from "../../ui/Choice";
import { Empty } from "../../ui/Empty";
import { Failure } from "../../ui/Failure";
import { Field } from "../../ui/Field";
import { duration, Time } from "../../ui/format";
import { Grid, type Columns } from "../../ui/Grid";
import { moment, Plot } from "../../ui/Plot";
import { Shown, visible } from "../../ui/Shown";
import { Skeleton } from "../../ui/Skeleton";
import { useTitle } from "../../ui/title";
import { Export } from "./Export";
import { useTail } from "./tail";
import { Proof } from "./Proof";
import { RecordDetail } from "./RecordDetail";
import { Ended } from "./Ended";
import { filterOf, first, listRecords, lengths, rowsOf, spanOf, treeOf, type FullRecord, type Row } from "./records";
import { fields, spans, usualSpan, type AuditSearch, type FieldName, type SpanName } from "./route";
import "./audit.css";

const route = getRouteApi("/app/audit");

const fieldLabels: Record<FieldName, string> = { user: "User", action: "Action", tool: "Tool", outcome: "Outcome", thread: "Thread", exec: "Exec", q: "Text" };
const spanLabels: Record<SpanName, string> = { "1h": "Last hour", "24h": "Last 24 hours", "7d": "Last 7 days", "30d": "Last 30 days", all: "All time" };

const none: ReadonlySet<string> = new Set();

export function AuditPage() {
  useTitle("Audit");
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const { role } = usePrincipal();
  const [now, setNow] = useState(() => Date.now());
  const change = useCallback((to: (s: AuditSearch) => AuditSearch) => void navigate({ search: to }), [navigate]);
  // What is asked for changes with the address and with time, not with what is selected.
  const asked = JSON.stringify(fields.map((f) => search[f])) + (search.since ?? "") + (search.until ?? "") + (search.last ?? "");
  const filter = useMemo(() => filterOf(search, now), [asked, now]); // eslint-disable-line react-hooks/exhaustive-deps
  const summary = useQuery({
    queryKey: ["audit", "summary", filter],
    queryFn: ({ signal }) => session.client.call<AuditSummary>({ method: "GET", path: "/api/audit/summary", query: { ...filter, buckets: 90 } }, { signal }),
    placeholderData: keepPreviousData,
    refetchInterval: search.live === true ? 5_000 : false,
  });
  const canProve = role === "admin" || role === "auditor";
  return (
    <div className="page page-fill audit">
      <div className="page-head">
        <h1>Audit</h1>
        <div className="line">
          <Button onPress={() => setNow(Date.now())}>Refresh</Button>
          <LiveSwitch search={search} change={change} />
          {canProve && (
            <Link to="/audit" search={({ proof, ...rest }) => (proof === true ? rest : { ...rest, proof: true })} className="button" aria-expanded={search.proof === true}>
              Verify
            </Link>
          )}
        </div>
      </div>
      {canProve && search.proof === true && <Proof />}
      <Filters search={search} change={change} />
      <Histogram search={search} summary={summary.data} now={now} change={change} />
      {summary.isError && <Failure error={summary.error} what="The records cannot be counted" />}
      <div className={search.record === undefined ? "audit-body audit-two" : "audit-body"}>
        <Facets search={search} summary={summary.data} />
        <Records key={asked} filter={filter} search={search} change={change} total={summary.data} />
        {search.record !== undefined && <RecordDetail key={search.record} id={search.record} search={search} />}
      </div>
    </div>
  );
}

function LiveSwitch({ search, change }: { search: AuditSearch; change: Change }) {
  const over = search.until !== undefined;
  return (
    <Button
      isDisabled={over}
      aria-pressed={search.live === true}
      onPress={() => change(({ live, ...rest }) => (live === true ? rest : { ...rest, live: true }))}
    >
      <span className={search.live === true && !over ? "live-dot live-on" : "live-dot"} aria-hidden="true" />
      {search.live === true && !over ? "Live: on" : "Live: off"}
    </Button>
  );
}

type Change = (to: (s: AuditSearch) => AuditSearch) => void;

/** The address without the record: another filter may not have it. */
function less({ record: _, ...rest }: AuditSearch): AuditSearch {
  return rest;
}

function without(s: AuditSearch, ...names: (keyof AuditSearch)[]): AuditSearch {
  const out = less(s);
  for (const name of names) delete out[name];
  return out;
}

/** A date and time of the browser's own field, which has no zone. */
function localTime(iso: string | undefined): string {
  if (iso === undefined) return "";
  const d = new Date(iso);
  return new Date(d.getTime() - d.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

function Filters({ search, change }: { search: AuditSearch; change: Change }) {
  const [field, setField] = useState<FieldName>("q");
  const [value, setValue] = useState("");
  const add = (e: FormEvent) => {
    e.preventDefault();
    const text = value.trim();
    if (text === "") return;
    change((s) => ({ ...less(s), [field]: text }));
    setValue("");
  };
  const own = search.since !== undefined || search.until !== undefined;
  const options: readonly { id: SpanName | "own"; label: string }[] = [...spans.map((id) => ({ id, label: spanLabels[id] })), ...(own ? [{ id: "own" as const, label: "A span of its own" }] : [])];
  const set = fields.filter((f) => search[f] !== undefined);
  const edge = (name: "since" | "until", text: string) => change((s) => {
    const at = text === "" ? Number.NaN : new Date(text).getTime();
    return Number.isNaN(at) ? without(s, name) : { ...without(s, "last", "live"), [name]: new Date(at).toISOString() };
  });
  return (
    <div className="filters" role="search" aria-label="Records">
      <form className="line" onSubmit={add}>
        <Choice label="What to look for" value={field} options={fields.map((id) => ({ id, label: fieldLabels[id] }))} onChange={setField} />
        <Field label={`${fieldLabels[field]} to look for`} hideLabel placeholder={field === "q" ? "Text anywhere, arguments too" : `${fieldLabels[field]}, then Enter`} value={value} onChange={setValue} maxLength={field === "q" ? 200 : 512} />
      </form>
      <Choice
        label="Time"
        value={own ? "own" : (search.last ?? usualSpan)}
        options={options}
        onChange={(last) => last !== "own" && change((s) => ({ ...without(s, "since", "until", "last"), ...(last === usualSpan ? {} : { last }) }))}
      />
      <details className="exact-times">
        <summary>Exact times</summary>
        <div className="line">
          <label>
            From <input className="input" type="datetime-local" value={localTime(search.since)} onChange={(e) => edge("since", e.target.value)} />
          </label>
          <label>
            Until <input className="input" type="datetime-local" value={localTime(search.until)} onChange={(e) => edge("until", e.target.value)} />
          </label>
        </div>
      </details>
      {set.map((f) => (
        <Button key={f} aria-label={`Remove the filter ${fieldLabels[f]} ${visible(search[f] ?? "")}`} onPress={() => change((s) => without(s, f))}>
          <span className="muted">{fieldLabels[f]}</span> <span className="chip">{<Shown>{search[f] ?? ""}</Shown>}</span> ×
        </Button>
      ))}
      {set.length > 1 && (
        <Button kind="quiet" onPress={() => change((s) => without(s, ...fields))}>
          Remove all
        </Button>
      )}
    </div>
  );
}

function Histogram({ search, summary, now, change }: { search: AuditSearch; summary: AuditSummary | undefined; now: number; change: Change }) {
  const zoom = useCallback(
    (from: number, until: number) =>
      change((s) => ({ ...without(s, "last", "live"), since: new Date(from * 1000).toISOString(), until: new Date(until * 1000).toISOString() })),
    [change],
  );
  const zoomed = search.since !== undefined || search.until !== undefined;
  const last = search.last ?? usualSpan;
  const wider = spans[spans.indexOf(last) + 1];
  const out = () =>
    change((s) => {
      const span = spanOf(s, now);
      const rest = without(s, "since", "until", "last");
      if (!zoomed) return wider === undefined ? s : { ...rest, ...(wider === usualSpan ? {} : { last: wider }) };
      const until = span.until === undefined ? now : Date.parse(span.until);
      const since = span.since === undefined ? until - lengths["30d"] : Date.parse(span.since);
      const more = until - since;
      const to = Math.min(until + more, Date.now());
      return { ...rest, since: new Date(Math.max(since - more, 0)).toISOString(), ...(to < Date.now() ? { until: new Date(to).toISOString() } : {}) };
    });
  const times = useMemo(() => summary?.buckets.map((b) => Date.parse(b.start) / 1000) ?? [], [summary]);
  const series = useMemo(
    () => [
      { label: "Records", colour: "accent" as const, values: summary?.buckets.map((b) => b.count) ?? [] },
      { label: "Failed or denied", colour: "idle" as const, values: summary?.buckets.map((b) => b.failed + b.denied) ?? [] },
      { label: "Denied", colour: "bad" as const, values: summary?.buckets.map((b) => b.denied) ?? [] },
    ],
    [summary],
  );
  if (summary === undefined) return <div className="plot-box" style={{ height: 112 }} />;
  const words = `${summary.count} records, ${summary.denied} denied, ${summary.failed} failed, from ${moment(Date.parse(summary.from) / 1000)} to ${moment(Date.parse(summary.until) / 1000)}.`;
  return (
    <section aria-label="Records over time" className="audit-plot">
      <div className="line audit-count num">
        <span role="status">
          <strong>{summary.count.toLocaleString()}</strong> {summary.count === 1 ? "record" : "records"}, <span className={summary.denied > 0 ? "bad" : ""}>{summary.denied.toLocaleString()} denied</span>, {summary.failed.toLocaleString()} failed
        </span>
        <span className="muted audit-range">
          {moment(Date.parse(summary.from) / 1000)} to {moment(Date.parse(summary.until) / 1000)}
        </span>
        <Button kind="quiet" isDisabled={!zoomed && wider === undefined} onPress={out}>
          Zoom out
        </Button>
      </div>
      {summary.partial && summary.counted_since !== undefined && (
        <p className="note">
          Counted since {moment(Date.parse(summary.counted_since) / 1000)}: there are too many records to count them all at once. A shorter time, or a user, has all of its own. The list below has all.
        </p>
      )}
      <Plot label="Records over time" summary={words} kind="bars" times={times} series={series} step={summary.bucket_s} height={112} onSelect={zoom} />
    </section>
  );
}

const facetFields = ["user", "tool", "action", "outcome"] as const;

function Facets({ search, summary }: { search: AuditSearch; summary: AuditSummary | undefined }) {
  const [open, setOpen] = useState(false);
  const of: Record<(typeof facetFields)[number], AuditFacet | undefined> = { user: summary?.users, tool: summary?.tools, action: summary?.actions, outcome: summary?.outcomes };
  return (
    <section className={open ? "facets facets-open" : "facets"} aria-label="Narrow down">
      {/* Of narrow windows alone: the others have room for the values. */}
      <div className="facets-switch">
        <Button aria-expanded={open} onPress={() => setOpen(!open)}>
          Narrow down
        </Button>
      </div>
      <div className="facet-list" tabIndex={0} role="group" aria-label="Values to narrow down to">
        {facetFields.map((name) => {
          const facet = of[name];
          if (facet === undefined || facet.values.length === 0) return null;
          return (
            <section key={name} aria-label={`By ${fieldLabels[name].toLowerCase()}`}>
              <h2>{fieldLabels[name]}</h2>
              <ul className="plain">
                {facet.values.map((v) => (
                  <li key={v.value}>
                    <Link
                      to="/audit"
                      search={(s: AuditSearch) => (s[name] === v.value ? without(s, name) : { ...less(s), [name]: v.value })}
                      className="facet"
                      data-chosen={search[name] === v.value ? "" : undefined}
                      aria-current={search[name] === v.value ? "true" : undefined}
                      title={visible(v.value).slice(0, 600)}
                    >
                      <span className="facet-value">
                        <Shown>{v.value}</Shown>
                      </span>
                      {v.denied > 0 && name !== "outcome" && <span className="bad num">{v.denied.toLocaleString()} denied</span>}
                      <span className="num muted">{v.count.toLocaleString()}</span>
                    </Link>
                  </li>
                ))}
              </ul>
              {facet.other > 0 && <p className="hint num">{facet.other.toLocaleString()} of others</p>}
            </section>
          );
        })}
      </div>
    </section>
  );
}

/** Which nodes are closed. The columns stay the same, so that the focus stays on a button that was pressed. */
const Closed = createContext<{ closed: ReadonlySet<string>; toggle: (id: string) => void }>({ closed: none, toggle: () => undefined });

function What({ row: { node, depth } }: { row: Row }) {
  const { closed, toggle } = useContext(Closed);
  const r = first(node);
  return (
    <span className="audit-what" style={{ paddingInlineStart: `${Math.min(depth, 8) * 18}px` }}>
      {node.children.length > 0 ? (
        <button type="button" className="chevron" data-open={closed.has(node.id) ? undefined : ""} aria-expanded={!closed.has(node.id)} aria-label={`What came of it: ${node.children.length}`} onClick={() => toggle(node.id)}>
          <svg viewBox="0 0 10 10" width="10" height="10" aria-hidden="true">
            <path d="m3 1 4 4-4 4" fill="none" stroke="currentColor" strokeWidth="1.5" />
          </svg>
        </button>
      ) : (
        <span className="chevron" />
      )}
      <Link to="/audit" search={(s: AuditSearch) => ({ ...s, record: r.id })} className="row-link" title={visible(r.subject ?? "").slice(0, 400) || undefined}>
        {depth > 0 && <span className="away">Level {depth + 1}: </span>}
        <span className="audit-action">{r.action}</span> <span className="mono">{<Shown>{(r.subject ?? "").slice(0, 300)}</Shown>}</span>
      </Link>
    </span>
  );
}

const columns: Columns<Row> = [
  { id: "what", header: "What", cell: ({ row }) => <What row={row.original} /> },
  { id: "outcome", header: "Outcome", cell: ({ row }) => <Ended node={row.original.node} /> },
  { id: "took", header: "Took", cell: ({ row }) => <span className="num muted">{(row.original.node.result?.ms ?? 0) > 0 ? duration(row.original.node.result?.ms ?? 0) : ""}</span> },
  { id: "user", header: "User", cell: ({ row }) => <span className="muted">{<Shown>{first(row.original.node).user}</Shown>}</span> },
  { id: "thread", header: "Thread", cell: ({ row }) => <span className="muted">{<Shown>{first(row.original.node).thread ?? ""}</Shown>}</span> },
  { id: "time", header: "Time", cell: ({ row }) => <Time at={first(row.original.node).time} /> },
];

// Of what came live: older ones are in the list after a refresh.
const mostLive = 1_000;

function Records({ filter, search, change, total }: { filter: Query; search: AuditSearch; change: Change; total: AuditSummary | undefined }) {
  const list = useInfiniteQuery({
    queryKey: ["audit", "list", filter],
    queryFn: ({ pageParam, signal }) => listRecords(filter, pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor,
    placeholderData: keepPreviousData,
    refetchOnWindowFocus: false,
    staleTime: Infinity,
  });
  const tail = useTail(filter, search.live === true && search.until === undefined && list.isSuccess, mostLive);
  const [closed, setClosed] = useState(none);
  const records = useMemo(() => {
    const all = new Map<string, FullRecord>();
    for (const r of [...tail.records, ...(list.data?.pages.flatMap((p) => p.items) ?? [])]) if (!all.has(r.id)) all.set(r.id, r);
    return [...all.values()];
  }, [list.data, tail.records]);
  const tree = useMemo(() => treeOf(records), [records]);
  const rows = useMemo(() => rowsOf(tree, closed), [tree, closed]);
  const toggle = useCallback((id: string) => setClosed((old) => new Set(old.has(id) ? [...old].filter((x) => x !== id) : [...old, id])), []);
  const open = useMemo(() => ({ closed, toggle }), [closed, toggle]);
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = list;
  const more = useCallback(() => {
    if (hasNextPage && !isFetchingNextPage) void fetchNextPage();
  }, [hasNextPage, isFetchingNextPage, fetchNextPage]);
  // A page may be empty while more follow: the server looked at as many records as it does at once.
  const looked = list.data?.pages.length ?? 0;
  useEffect(() => {
    if (records.length === 0 && looked < 20) more();
  }, [records.length, looked, more]);
  const selected = useMemo(() => rows.find(({ node }) => node.attempt?.id === search.record || node.result?.id === search.record)?.node.id, [rows, search.record]);
  const filtered = fields.some((f) => search[f] !== undefined);
  return (
    <section className="audit-list" aria-label="Records">
      <div className="line audit-list-head">
        <span className="count num" role="status">
          {list.isPending ? "" : `${records.length.toLocaleString()}${hasNextPage ? "+" : ""} ${records.length === 1 ? "record" : "records"} in ${tree.length.toLocaleString()} ${tree.length === 1 ? "request" : "requests"}`}
          {tail.records.length > 0 ? `, ${tail.records.length} of them live` : ""}
        </span>
        <Export filter={filter} newest={records[0]?.time} total={total?.count} />
      </div>
      {tail.error !== undefined && <Failure error={tail.error} what="No more records come live" />}
      {list.isError && <Failure error={list.error} what="The records cannot be listed" />}
      {list.isPending && <Skeleton rows={10} label="Records are loading" />}
      {list.isSuccess && rows.length > 0 && (
        <Closed value={open}>
          <Grid label="Records" columns={columns} rows={rows} rowId={(r) => r.node.id} shape="grid-audit" selected={selected} onEnd={more} rowHeight={36} />
        </Closed>
      )}
      {list.isSuccess && rows.length === 0 && (
        <Empty title={hasNextPage ? "None found so far" : filtered ? "No record fits these filters" : "Nothing was recorded in this time"}>
          {hasNextPage ? (
            <Button onPress={more} isDisabled={isFetchingNextPage}>
              {isFetchingNextPage ? "Looking…" : "Look further"}
            </Button>
          ) : (
            <>
              {filtered && <Button onPress={() => change((s) => without(s, ...fields))}>Remove the filters</Button>}
              {search.last !== "all" && <Button onPress={() => change((s) => ({ ...without(s, "since", "until"), last: "all" }))}>Look at all time</Button>}
            </>
          )}
        </Empty>
      )}
    </section>
  );
}
