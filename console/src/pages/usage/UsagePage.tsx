import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { session, usePrincipal } from "../../session/session";
import { Choice } from "../../ui/Choice";
import { Failure } from "../../ui/Failure";
import { bytes } from "../../ui/format";
import { Limits, share, type Limit } from "../../ui/limits";
import { Plot, type PlotSeries } from "../../ui/Plot";
import { Shown } from "../../ui/Shown";
import { Skeleton } from "../../ui/Skeleton";
import { useTitle } from "../../ui/title";
import type { UsageSearch } from "./route";
import "./usage.css";

const route = getRouteApi("/app/usage");

interface Amounts {
  requests: number;
  refused: number;
  execs: number;
  exec_seconds: number;
  cpu_seconds: number;
  tool_calls: number;
  code_tool_calls: number;
  tool_result_bytes: number;
  returned_bytes: number;
  sandbox_starts: number;
  sandbox_seconds: number;
}

interface Item extends Amounts {
  day?: string;
  user?: string;
  key_id?: string;
}

/** GET /api/usage. */
interface Report {
  from: string;
  to: string;
  by: "day" | "user" | "key";
  items: Item[];
  total: Amounts;
  limits: Limit[];
}

const spans = [
  { id: "7", label: "Last 7 days" },
  { id: "30", label: "Last 30 days" },
  { id: "92", label: "Last 92 days" },
] as const;

const day = 86_400_000;
const mib = 1 << 20;
const number = new Intl.NumberFormat();
const exact = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const hours = (seconds: number) => exact.format(seconds / 3600);

interface Shape {
  title: string;
  format: (n: number) => string;
  series: { of: (a: Amounts) => number; label: string; colour: PlotSeries["colour"] }[];
}

// Bars all begin at zero, so a part comes behind the whole.
const plots: readonly Shape[] = [
  { title: "Requests a day", format: number.format, series: [{ of: (a) => a.requests, label: "made", colour: "accent" }, { of: (a) => a.refused, label: "met a limit", colour: "bad" }] },
  { title: "Execs a day", format: number.format, series: [{ of: (a) => a.execs, label: "ended", colour: "accent" }] },
  { title: "Tool calls a day", format: number.format, series: [{ of: (a) => a.tool_calls, label: "made", colour: "accent" }, { of: (a) => a.code_tool_calls, label: "by code", colour: "good" }] },
  { title: "CPU seconds a day", format: exact.format, series: [{ of: (a) => a.cpu_seconds, label: "computed", colour: "accent" }] },
  { title: "Sandbox hours a day", format: exact.format, series: [{ of: (a) => a.sandbox_seconds / 3600, label: "sandboxes were there", colour: "accent" }] },
  { title: "MiB of tool results a day", format: exact.format, series: [{ of: (a) => a.tool_result_bytes / mib, label: "answered by tools", colour: "accent" }, { of: (a) => a.returned_bytes / mib, label: "returned to callers", colour: "good" }] },
];

export function UsagePage() {
  useTitle("Usage");
  const me = usePrincipal();
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const admin = me.role === "admin";
  const days = search.days ?? 30;
  const by = admin ? search.by : undefined;
  const user = admin ? search.user : undefined;
  const report = useQuery({
    queryKey: ["usage", days, by ?? "day", user ?? ""],
    queryFn: ({ signal }) => {
      const now = Date.now();
      const query = { from: new Date(now - (days - 1) * day).toISOString().slice(0, 10), to: new Date(now).toISOString().slice(0, 10), by: by ?? "day", ...(user === undefined ? {} : { user }) };
      return session.client.call<Report>({ method: "GET", path: "/api/usage", query }, { signal });
    },
    refetchInterval: 30_000,
    placeholderData: keepPreviousData,
  });
  const r = report.data;
  return (
    <div className="page">
      <div className="page-head">
        <h1>Usage</h1>
        <Choice
          label="Span"
          value={String(days) as "7" | "30" | "92"}
          options={spans}
          onChange={(d) => void navigate({ search: ({ days: _, ...s }: UsageSearch) => ({ ...s, ...(d === "7" ? { days: 7 as const } : d === "92" ? { days: 92 as const } : {}) }) })}
        />
      </div>
      {report.isPending && <Skeleton rows={6} label="Usage is loading" />}
      {report.isError && <Failure error={report.error} what="The usage cannot be shown" />}
      {r !== undefined && (
        <>
          <section className="usage-panel" aria-label="Limits">
            <h2>Limits</h2>
            {r.limits.length === 0 ? <p className="hint">This server sets you no limits.</p> : <Limits list={r.limits.toSorted((a, b) => share(b) - share(a))} />}
          </section>
          {admin && (
            <nav className="tabs" aria-label="Whose usage">
              <Tab label={user === undefined ? "By day" : "One user by day"} on={by === undefined} />
              <Tab label="By user" by="user" on={by === "user"} />
              <Tab label="By key" by="key" on={by === "key"} />
            </nav>
          )}
          {user !== undefined && by === undefined && (
            <p className="line">
              <span>
                Of the user <Shown>{user}</Shown> alone.
              </span>
              <Link from="/usage" to="/usage" search={({ user: _, ...s }: UsageSearch) => s} className="button">
                All users
              </Link>
            </p>
          )}
          {r.by === "day" ? <ByDay report={r} /> : <Table report={r} />}
          <p className="hint">Days are those of UTC, and are kept for 92 days. {admin ? "" : "This is what you used yourself. "}Counts come every few seconds.</p>
        </>
      )}
    </div>
  );
}

function Tab({ label, by, on }: { label: string; by?: "user" | "key"; on: boolean }) {
  return (
    <Link
      from="/usage"
      to="/usage"
      search={({ by: _, user: _user, ...s }: UsageSearch) => ({ ...s, ...(by === undefined ? {} : { by }) })}
      activeOptions={{ exact: true, includeSearch: true }}
      data-status={on ? "active" : undefined}
      aria-current={on ? "page" : undefined}
    >
      {label}
    </Link>
  );
}

const zero: Amounts = { requests: 0, refused: 0, execs: 0, exec_seconds: 0, cpu_seconds: 0, tool_calls: 0, code_tool_calls: 0, tool_result_bytes: 0, returned_bytes: 0, sandbox_starts: 0, sandbox_seconds: 0 };

/** The days of a report, those without usage too. */
function daysOf(r: Report): { day: string; amounts: Amounts }[] {
  const known = new Map(r.items.map((i) => [i.day, i]));
  const out = [];
  for (let t = Date.parse(`${r.from}T00:00:00Z`); t <= Date.parse(`${r.to}T00:00:00Z`); t += day) {
    const name = new Date(t).toISOString().slice(0, 10);
    out.push({ day: name, amounts: known.get(name) ?? zero });
  }
  return out;
}

/** A day of UTC where a plot of local times has its name: at this place's midnight. */
function midnight(name: string): number {
  const [y = 0, m = 1, d = 1] = name.split("-").map(Number);
  return new Date(y, m - 1, d).getTime() / 1000;
}

const dayName = (seconds: number) => new Date(seconds * 1000).toLocaleDateString(undefined, { dateStyle: "medium" });

function ByDay({ report }: { report: Report }) {
  const list = daysOf(report);
  const times = list.map((d) => midnight(d.day));
  return (
    <div className="usage-plots">
      {plots.map((p) => {
        const series = p.series.map((s): PlotSeries => ({ label: s.label, colour: s.colour, values: list.map((d) => s.of(d.amounts)) }));
        const sums = p.series.map((s) => `${p.format(s.of(report.total))} ${s.label}`).join(", ");
        return (
          <section key={p.title} className="usage-panel" aria-label={p.title}>
            <h2>{p.title}</h2>
            <Plot label={p.title} summary={`In all: ${sums}.`} times={times} series={series} kind="bars" step={86_400} format={p.format} when={dayName} />
            <p className="hint num">In all: {sums}</p>
          </section>
        );
      })}
    </div>
  );
}

const columns: readonly { label: string; of: (a: Amounts) => string }[] = [
  { label: "Requests", of: (a) => number.format(a.requests) },
  { label: "Met a limit", of: (a) => number.format(a.refused) },
  { label: "Execs", of: (a) => number.format(a.execs) },
  { label: "CPU seconds", of: (a) => exact.format(a.cpu_seconds) },
  { label: "Tool calls", of: (a) => number.format(a.tool_calls) },
  { label: "By code", of: (a) => number.format(a.code_tool_calls) },
  { label: "Tool results", of: (a) => bytes(a.tool_result_bytes) },
  { label: "Returned", of: (a) => bytes(a.returned_bytes) },
  { label: "Starts", of: (a) => number.format(a.sandbox_starts) },
  { label: "Sandbox hours", of: (a) => hours(a.sandbox_seconds) },
];

function Table({ report }: { report: Report }) {
  const users = report.by === "user";
  if (report.items.length === 0) return <p className="hint">Nothing was used on these days.</p>;
  return (
    <div className="usage-table" tabIndex={0} role="region" aria-label={users ? "Usage by user" : "Usage by key"}>
      <table>
        <thead>
          <tr>
            <th scope="col">{users ? "User" : "Key"}</th>
            {columns.map((c) => (
              <th scope="col" key={c.label}>
                {c.label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {report.items
            .toSorted((a, b) => b.requests - a.requests)
            .map((i) => (
              <Row key={i.user ?? i.key_id ?? ""} amounts={i}>
                {i.user !== undefined ? (
                  <Link from="/usage" to="/usage" search={({ by: _, ...s }: UsageSearch) => ({ ...s, user: i.user ?? "" })}>
                    <Shown>{i.user}</Shown>
                  </Link>
                ) : (
                  <Link to="/keys" search={{ key: i.key_id ?? "" }} className="mono">
                    <Shown>{i.key_id ?? ""}</Shown>
                  </Link>
                )}
              </Row>
            ))}
        </tbody>
        <tfoot>
          <Row amounts={report.total}>All</Row>
        </tfoot>
      </table>
    </div>
  );
}

function Row({ amounts, children }: { amounts: Amounts; children: ReactNode }) {
  return (
    <tr>
      <th scope="row">{children}</th>
      {columns.map((c) => (
        <td key={c.label} className="num">
          {c.of(amounts)}
        </td>
      ))}
    </tr>
  );
}
