import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { session, usePrincipal, type Principal } from "../../session/session";
import { Choice } from "../../ui/Choice";
import { Failure } from "../../ui/Failure";
import { bytes, Time } from "../../ui/format";
import { Limits, share, type Limit } from "../../ui/limits";
import { Plot, type PlotSeries } from "../../ui/Plot";
import { Skeleton } from "../../ui/Skeleton";
import { State } from "../../ui/State";
import { useTitle } from "../../ui/title";
import "./overview.css";

const route = getRouteApi("/app/overview");

/** GET /api/overview. */
interface Overview {
  replica: string;
  version: string;
  started_at: string;
  now: {
    sandboxes: Record<string, number>;
    max_sandboxes: number;
    execs: number;
    queue: number;
    pools: { template: string; waiting: number; starting: number; target: number }[];
    audit_lag: number;
    audit_failing: boolean;
    audit_unsigned: number;
  };
  disk?: { total_bytes: number; free_bytes: number };
  step_s: number;
  times: number[];
  series: { name: string; kind: "level" | "count"; values: number[] }[];
}

/** GET /api/doctor. */
interface Findings {
  at: string;
  items: { check: string; name?: string; state: "ok" | "warning" | "problem"; detail: string; fix?: string }[];
}

const windows = [
  { id: "hour", label: "Last hour" },
  { id: "day", label: "Last day" },
] as const;

const number = new Intl.NumberFormat();

export function OverviewPage() {
  useTitle("Overview");
  const me = usePrincipal();
  const { window } = route.useSearch();
  const navigate = route.useNavigate();
  return (
    <div className="page">
      <div className="page-head">
        <h1>Overview</h1>
        {me.operator && <Choice label="Span of the plots" value={window ?? "hour"} options={windows} onChange={(w) => void navigate({ search: w === "day" ? { window: w } : {} })} />}
      </div>
      <Tenant me={me} />
      {me.operator && <Server span={window ?? "hour"} />}
      <NearLimits />
    </div>
  );
}

function Tile({ name, value, note, bad = false, children }: { name: string; value: ReactNode; note?: ReactNode; bad?: boolean; children?: ReactNode }) {
  return (
    <div className="tile" data-bad={bad ? "" : undefined}>
      <dt>{name}</dt>
      <dd>
        <span className="tile-value num">{value}</span>
        {note !== undefined && <span className="muted">{note}</span>}
        {children}
      </dd>
    </div>
  );
}

/** What concerns the caller's tenant, or of those who do not administer it themselves alone. */
function Tenant({ me }: { me: Principal }) {
  const all = me.role === "admin";
  const threads = useQuery({
    queryKey: ["overview", "threads"],
    queryFn: ({ signal }) => session.client.call<{ total?: number }>({ method: "GET", path: "/api/threads", query: { limit: 1, ...(all ? { user: "*" } : {}) } }, { signal }),
    refetchInterval: 10_000,
    enabled: me.threads === undefined,
  });
  const waiting = useQuery({
    queryKey: ["overview", "approvals"],
    queryFn: ({ signal }) => session.client.call<{ items: { created_at: string }[]; next_cursor?: string }>({ method: "GET", path: "/api/approvals", query: { state: "pending", limit: 100 } }, { signal }),
    refetchInterval: 5_000,
  });
  const calls = waiting.data?.items.length ?? 0;
  return (
    <dl className="tiles">
      {threads.data !== undefined && (
        <Tile name={all ? "Threads of the tenant" : "Your threads"} value={number.format(threads.data.total ?? 0)}>
          <Link to="/threads">See them</Link>
        </Tile>
      )}
      {waiting.data !== undefined && <Tile name="Calls that wait for a decision" value={`${calls}${waiting.data.next_cursor === undefined ? "" : "+"}`} bad={calls > 0}>
          <Link to="/approvals">Decide</Link>
        </Tile>}
      {threads.isError && <Failure error={threads.error} what="Threads cannot be counted" />}
    </dl>
  );
}

/** How the server that answers goes. For operators: its numbers are of all tenants. */
function Server({ span }: { span: "hour" | "day" }) {
  const overview = useQuery({
    queryKey: ["overview", "server", span],
    queryFn: ({ signal }) => session.client.call<Overview>({ method: "GET", path: "/api/overview", query: { window: span } }, { signal }),
    refetchInterval: span === "hour" ? 10_000 : 60_000,
    placeholderData: (before) => before,
  });
  if (overview.isPending) return <Skeleton rows={6} label="The server is asked" />;
  if (overview.isError) return <Failure error={overview.error} what="The server does not say how it goes" />;
  const o = overview.data;
  const sandboxes = Object.values(o.now.sandboxes).reduce((a, b) => a + b, 0);
  const free = o.disk === undefined || o.disk.total_bytes === 0 ? undefined : o.disk.free_bytes / o.disk.total_bytes;
  return (
    <>
      <Examined />
      <dl className="tiles">
        <Tile
          name="Sandboxes"
          value={number.format(sandboxes)}
          note={o.now.max_sandboxes > 0 ? `of ${number.format(o.now.max_sandboxes)}` : undefined}
          bad={o.now.max_sandboxes > 0 && sandboxes >= o.now.max_sandboxes}
        >
          <span className="muted">
            {Object.entries(o.now.sandboxes)
              .filter(([, n]) => n > 0)
              .map(([s, n]) => `${n} ${s}`)
              .join(", ")}
          </span>
        </Tile>
        <Tile name="Execs that run" value={number.format(o.now.execs)} />
        <Tile name="Wait for a place" value={number.format(o.now.queue)} bad={o.now.queue > 0} />
        {o.now.pools.map((p) => (
          <Tile key={p.template} name={`Pool of ${p.template}`} value={p.waiting} note={`of ${p.target}`} bad={p.target > 0 && p.waiting === 0}>
            {p.starting > 0 && <span className="muted">{p.starting} starting</span>}
          </Tile>
        ))}
        {o.disk !== undefined && <Tile name="Disk of the data folder" value={bytes(o.disk.free_bytes)} note={`free of ${bytes(o.disk.total_bytes)}`} bad={free !== undefined && free < 0.1} />}
        <Tile
          name="Audit log"
          value={o.now.audit_failing ? "fails" : "works"}
          note={o.now.audit_lag > 0 ? `${number.format(o.now.audit_lag)} records are not in Redis yet` : undefined}
          bad={o.now.audit_failing}
        />
      </dl>
      <div className="plots">
        {plots.map((p) => (
          <section key={p.title} className="panel" aria-label={p.title}>
            <h2>{p.title}</h2>
            <Plotted overview={o} plot={p} />
          </section>
        ))}
      </div>
      <p className="hint">
        Of the server {o.replica}, version {o.version}, which counts since <Time at={o.started_at} />. Each server keeps its own numbers, and a restart begins anew.
      </p>
    </>
  );
}

const order = { problem: 0, warning: 1, ok: 2 } as const;

/** What the server finds of itself and of its machine, and what to do. What is in order is one line. */
function Examined() {
  const found = useQuery({
    queryKey: ["overview", "doctor"],
    queryFn: ({ signal }) => session.client.call<Findings>({ method: "GET", path: "/api/doctor" }, { signal }),
    refetchInterval: 30_000,
  });
  if (found.isPending) return null;
  if (found.isError) return <Failure error={found.error} what="The server does not examine itself" />;
  const wrong = found.data.items.filter((l) => l.state !== "ok").toSorted((a, b) => order[a.state] - order[b.state]);
  const checks = new Set(found.data.items.map((l) => l.check));
  for (const l of wrong) checks.delete(l.check);
  return (
    <section className="panel" aria-label="Findings">
      <h2>{wrong.length === 0 ? "Nothing to mend" : "To mend"}</h2>
      {wrong.length > 0 && (
        <ul className="examined">
          {wrong.map((l) => (
            <li key={`${l.check} ${l.name ?? ""} ${l.detail}`}>
              <strong>
                <State name={l.state} tone={l.state === "problem" ? "bad" : "busy"} /> {l.check}
                {l.name !== undefined && <>, {l.name}</>}
              </strong>
              <span>{l.detail}</span>
              {l.fix !== undefined && <span className="muted">What to do: {l.fix}</span>}
            </li>
          ))}
        </ul>
      )}
      <p className="hint">
        {checks.size > 0 && <>In order: {[...checks].join(", ")}. </>}
        The server looked at <Time at={found.data.at} />; <code>skerry doctor</code> on its machine looks further.
      </p>
    </section>
  );
}

interface Shown {
  title: string;
  /** Counts are shown by the minute, levels as they are. */
  series: { name: string; label: string; colour: PlotSeries["colour"] }[];
}

const plots: readonly Shown[] = [
  {
    title: "Sandboxes",
    series: [
      { name: "sandboxes_running", label: "running", colour: "good" },
      { name: "sandboxes_starting", label: "starting", colour: "busy" },
      { name: "sandboxes_paused", label: "paused", colour: "idle" },
    ],
  },
  {
    title: "Execs a minute",
    series: [
      { name: "execs", label: "ended", colour: "accent" },
      { name: "execs_failed", label: "cut off", colour: "bad" },
    ],
  },
  {
    title: "Tool calls a minute",
    series: [
      { name: "tool_calls", label: "made", colour: "accent" },
      { name: "tool_errors", label: "failed or denied", colour: "bad" },
    ],
  },
  {
    title: "Requests a minute",
    series: [
      { name: "requests", label: "answered", colour: "accent" },
      { name: "request_errors", label: "faults of the server", colour: "bad" },
      { name: "refused", label: "met a limit", colour: "busy" },
    ],
  },
  {
    title: "Queue and pool",
    series: [
      { name: "queue", label: "wait for a place", colour: "bad" },
      { name: "pool", label: "ready in the pool", colour: "good" },
    ],
  },
  {
    title: "Starts a minute",
    series: [
      { name: "starts", label: "started", colour: "good" },
      { name: "start_failures", label: "failed", colour: "bad" },
    ],
  },
];

function Plotted({ overview, plot }: { overview: Overview; plot: Shown }) {
  const series = plot.series.map((s): PlotSeries => {
    const found = overview.series.find((x) => x.name === s.name);
    const scale = found?.kind === "count" ? 60 / overview.step_s : 1;
    return { label: s.label, colour: s.colour, values: found?.values.map((v) => v * scale) ?? [] };
  });
  if (overview.times.length < 2) return <p className="hint">The first numbers come within a minute.</p>;
  const now = series.map((s) => `${short(s.values.at(-1) ?? 0)} ${s.label}`).join(", ");
  const most = series.map((s) => `${short(Math.max(...s.values.map((v) => v ?? 0)))} ${s.label}`).join(", ");
  return <Plot label={plot.title} summary={`Now ${now}. At most ${most}.`} times={overview.times} series={series} kind="lines" step={overview.step_s} format={short} />;
}

function short(n: number): string {
  return n >= 100 || Number.isInteger(n) ? number.format(Math.round(n)) : n.toFixed(1);
}

/** Bounds of which half and more is taken. */
function NearLimits() {
  const usage = useQuery({
    queryKey: ["overview", "limits"],
    queryFn: ({ signal }) => session.client.call<{ limits: Limit[] }>({ method: "GET", path: "/api/usage" }, { signal }),
    refetchInterval: 30_000,
    retry: false,
  });
  const near = usage.data?.limits.filter((l) => share(l) >= 0.5).toSorted((a, b) => share(b) - share(a)) ?? [];
  if (usage.isError || usage.isPending) return null;
  return (
    <section className="panel" aria-label="Limits">
      <h2>Limits near their end</h2>
      {near.length === 0 && <p className="hint">{usage.data.limits.length === 0 ? "This server sets you no limits." : "Of none is half taken."}</p>}
      {near.length > 0 && <Limits list={near} />}
    </section>
  );
}
