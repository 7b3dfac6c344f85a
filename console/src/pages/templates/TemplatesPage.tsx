import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { usePrincipal } from "../../session/session";
import { all } from "../../ui/all";
import { Empty } from "../../ui/Empty";
import { Fact } from "../../ui/Fact";
import { Failure } from "../../ui/Failure";
import { bytes } from "../../ui/format";
import { Grid, type Columns } from "../../ui/Grid";
import { Shown, visible } from "../../ui/Shown";
import { Skeleton } from "../../ui/Skeleton";
import { useTitle } from "../../ui/title";
import { listServers, serversKey } from "../servers/data";
import { Packages } from "./Packages";
import type { TemplatesSearch } from "./route";
import "../../ui/parts.css";
import "./templates.css";

const route = getRouteApi("/app/templates");

/** A template of GET /api/templates. */
interface Template {
  name: string;
  description: string;
  /** For operators. */
  image?: string;
  runtime: string;
  languages: string[];
  limits: { memory_bytes: number; cpu_millis: number; pids: number; open_files: number; file_bytes: number; tmp_bytes: number; disk_bytes: number };
  idle_timeout_s: number;
  max_age_s?: number;
  javascript?: string;
  loosened?: string[];
  env?: Record<string, string>;
  interpreters?: Record<string, { warm: number; preload?: string[] }>;
  smoke?: { name: string }[];
  pool?: { target: number; min: number; burst: number; max_age_s: number };
}

/** How many sandboxes wait for threads, by template. Undefined: it is not known to the caller. */
type Ready = ReadonlyMap<string, { waiting: number; starting: number }> | undefined;

const cores = (millis: number) => `${millis / 1000} ${millis === 1000 ? "core" : "cores"}`;
const number = new Intl.NumberFormat();

function span(seconds: number): string {
  const unit = seconds % 86_400 === 0 ? ([86_400, "day"] as const) : seconds % 3600 === 0 ? ([3600, "hour"] as const) : seconds % 60 === 0 ? ([60, "minute"] as const) : ([1, "second"] as const);
  const n = seconds / unit[0];
  return `${n} ${unit[1]}${n === 1 ? "" : "s"}`;
}

function columnsOf(ready: Ready): Columns<Template> {
  return [
    {
      id: "name",
      header: "Template",
      cell: ({ row }) => (
        <Link to="/templates" search={{ template: row.original.name }} className="row-link" title={visible(row.original.description)}>
          <Shown>{row.original.name}</Shown>
        </Link>
      ),
    },
    { id: "memory", header: "Memory", cell: ({ row }) => <span className="num">{bytes(row.original.limits.memory_bytes)}</span> },
    { id: "cpu", header: "CPU", cell: ({ row }) => <span className="num">{cores(row.original.limits.cpu_millis)}</span> },
    { id: "pool", header: "Pool", cell: ({ row }) => <span className="num">{poolOf(row.original, ready)}</span> },
  ];
}

function poolOf(t: Template, ready: Ready): string {
  if (t.pool === undefined) return "–";
  const now = ready?.get(t.name);
  return now === undefined ? `${t.pool.target} wanted` : `${now.waiting} of ${t.pool.target}`;
}

export function TemplatesPage() {
  useTitle("Templates");
  const me = usePrincipal();
  const search = route.useSearch();
  const list = useQuery({ queryKey: ["templates"], queryFn: ({ signal }) => all<Template>("/api/templates", signal), staleTime: 60_000 });
  const pooled = list.data?.some((t) => t.pool !== undefined) ?? false;
  const servers = useQuery({ queryKey: [...serversKey, "all"], queryFn: ({ signal }) => listServers(signal), refetchInterval: 5_000, enabled: me.operator && pooled });
  const ready: Ready = servers.data && sum(servers.data.flatMap((s) => s.report?.pools ?? []));
  const chosen = list.data?.find((t) => t.name === search.template);
  return (
    <div className="page page-fill">
      <div className="page-head">
        <h1>Templates</h1>
      </div>
      {list.isPending && <Skeleton label="Templates are loading" />}
      {list.isError && <Failure error={list.error} what="The templates cannot be listed" />}
      {servers.isError && <Failure error={servers.error} what="It is not known how many sandboxes are ready" />}
      {list.data !== undefined && (
        <div className={search.template === undefined ? "split split-one" : "split split-templates"}>
          <section className="split-list" aria-label="Templates">
            <Grid label="Templates" columns={columnsOf(ready)} rows={list.data} rowId={(t) => t.name} shape="grid-templates" selected={search.template} />
          </section>
          {search.template !== undefined &&
            (chosen === undefined ? (
              <section className="split-detail">
                <Empty title="There is no such template">
                  <p>
                    This server has no <Shown>{search.template}</Shown>, or no image of it for its driver.
                  </p>
                </Empty>
              </section>
            ) : (
              <Detail key={chosen.name} t={chosen} view={search.view} ready={ready} />
            ))}
        </div>
      )}
    </div>
  );
}

function sum(pools: readonly { template: string; waiting: number; starting: number }[]): Ready {
  const out = new Map<string, { waiting: number; starting: number }>();
  for (const p of pools) {
    const before = out.get(p.template) ?? { waiting: 0, starting: 0 };
    out.set(p.template, { waiting: before.waiting + p.waiting, starting: before.starting + p.starting });
  }
  return out;
}

function Detail({ t, view, ready }: { t: Template; view: TemplatesSearch["view"]; ready: Ready }) {
  return (
    <section className="split-detail" aria-label="One template">
      <div className="pane-head">
        <h2>
          <Shown>{t.name}</Shown>
        </h2>
      </div>
      <nav className="tabs" aria-label="Parts of the template">
        <Link to="/templates" search={{ template: t.name }} activeOptions={{ exact: true, includeSearch: true }} data-status={view === undefined ? "active" : undefined} aria-current={view === undefined ? "page" : undefined}>
          What it is
        </Link>
        <Link to="/templates" search={{ template: t.name, view: "packages" }} activeOptions={{ exact: true, includeSearch: true }} data-status={view === "packages" ? "active" : undefined} aria-current={view === "packages" ? "page" : undefined}>
          Packages
        </Link>
      </nav>
      {view === "packages" ? (
        <Packages template={t.name} />
      ) : (
        <div className="scroll" tabIndex={0} role="group" aria-label="About the template">
          <About t={t} ready={ready} />
        </div>
      )}
    </section>
  );
}

function About({ t, ready }: { t: Template; ready: Ready }) {
  const l = t.limits;
  const now = ready?.get(t.name);
  const env = Object.entries(t.env ?? {});
  const warm = Object.entries(t.interpreters ?? {});
  return (
    <>
      <p>
        <Shown>{t.description}</Shown>
      </p>
      <dl className="facts">
        {t.image !== undefined && (
          <Fact name="Image">
            <code>
              <Shown>{t.image}</Shown>
            </code>
          </Fact>
        )}
        <Fact name="Runtime">
          <Shown>{t.runtime}</Shown>
        </Fact>
        <Fact name="Network">none: tools are called by the server</Fact>
        <Fact name="Languages">{t.languages.join(", ")}</Fact>
        <Fact name="Hibernated when unused for">{t.idle_timeout_s === 0 ? "never" : span(t.idle_timeout_s)}</Fact>
        {t.max_age_s !== undefined && <Fact name="At most as old as">{span(t.max_age_s)}</Fact>}
        {t.loosened !== undefined && <Fact name="Taken back of the hardening">{t.loosened.join(", ")}</Fact>}
      </dl>
      <h3>Limits of a sandbox</h3>
      <dl className="facts">
        <Fact name="Memory">{bytes(l.memory_bytes)}</Fact>
        <Fact name="CPU">{cores(l.cpu_millis)}</Fact>
        <Fact name="Processes and threads">{number.format(l.pids)}</Fact>
        <Fact name="Open files a process">{number.format(l.open_files)}</Fact>
        <Fact name="Largest file">{bytes(l.file_bytes)}</Fact>
        <Fact name="/tmp">{bytes(l.tmp_bytes)}</Fact>
        <Fact name="Files of the thread">{bytes(l.disk_bytes)}</Fact>
      </dl>
      <h3>Pool</h3>
      {t.pool === undefined ? (
        <p className="hint">None: a sandbox starts when a thread asks for one.</p>
      ) : (
        <dl className="facts">
          <Fact name="Wanted, of all servers">{t.pool.target}</Fact>
          {now !== undefined && (
            <>
              <Fact name="Ready">{now.waiting}</Fact>
              <Fact name="Starting">{now.starting}</Fact>
            </>
          )}
          <Fact name="Made at once">{t.pool.min}</Fact>
          <Fact name="Side by side">{t.pool.burst}</Fact>
          {t.pool.max_age_s > 0 && <Fact name="One waits at most">{span(t.pool.max_age_s)}</Fact>}
        </dl>
      )}
      {warm.length > 0 && (
        <>
          <h3>Interpreters that wait</h3>
          <ul className="plain">
            {warm.map(([language, i]) => (
              <li key={language}>
                <Shown>{`${language}: ${i.warm}${i.preload === undefined ? "" : `, with ${i.preload.join(", ")}`}`}</Shown>
              </li>
            ))}
          </ul>
        </>
      )}
      {env.length > 0 && (
        <>
          <h3>Environment of its execs</h3>
          <ul className="plain mono">
            {env.map(([name, value]) => (
              <li key={name}>
                <Shown>{`${name}=${value}`}</Shown>
              </li>
            ))}
          </ul>
        </>
      )}
      <h3>Smoke tests</h3>
      {(t.smoke ?? []).length === 0 ? <p className="hint">None.</p> : <p className="hint">{(t.smoke ?? []).map((s) => visible(s.name)).join(", ")}: skerry templates test {t.name} runs them.</p>}
    </>
  );
}
