import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { usePrincipal } from "../../session/session";
import { all } from "../../ui/all";
import { Empty } from "../../ui/Empty";
import { Failure } from "../../ui/Failure";
import { Worst } from "../../ui/Findings";
import { Grid, type Columns } from "../../ui/Grid";
import { Shown, visible } from "../../ui/Shown";
import { Skeleton } from "../../ui/Skeleton";
import { State } from "../../ui/State";
import { useTitle } from "../../ui/title";
import { Commands } from "./Commands";
import { pluginsKey, rightsOf, type Plugin } from "./data";
import { Install } from "./Install";
import { Markets } from "./Markets";
import { PluginDetail } from "./PluginDetail";
import type { PluginsSearch } from "./route";
import "../../ui/parts.css";
import "./plugins.css";

const route = getRouteApi("/app/plugins");

const columns: Columns<Plugin> = [
  {
    id: "name",
    header: "Plugin",
    cell: ({ row }) => (
      <Link to="/plugins" search={{ plugin: row.original.name }} className="row-link" title={visible(row.original.name)}>
        <Shown>{row.original.name}</Shown>
      </Link>
    ),
  },
  { id: "state", header: "State", cell: ({ row }) => (row.original.enabled ? <State name="on" tone="good" /> : <State name="off" tone="none" />) },
  { id: "has", header: "Skills · commands · servers", cell: ({ row }) => <span className="num muted">{`${row.original.skills.length} · ${row.original.commands.length} · ${row.original.mcp_servers.length}`}</span> },
  { id: "findings", header: "Findings", cell: ({ row }) => <Worst list={row.original.findings} /> },
];

const tabs = [
  { tab: undefined, label: "Yours" },
  { tab: "commands", label: "Commands" },
  { tab: "markets", label: "Marketplaces" },
] as const;

export function PluginsPage() {
  useTitle("Plugins");
  const search = route.useSearch();
  const rights = rightsOf(usePrincipal());
  const adding = search.add === true && (search.tab === "markets" ? rights.administers : rights.develops);
  const list = useQuery({ queryKey: [...pluginsKey, "list"], queryFn: ({ signal }) => all<Plugin>("/api/plugins", signal), refetchInterval: 10_000 });
  return (
    <div className="page page-fill">
      <div className="page-head">
        <h1>Plugins</h1>
        <div className="line">
          {search.tab === "markets"
            ? rights.administers && (
                <Link to="/plugins" search={{ tab: "markets", add: true }} activeOptions={{ exact: true, includeSearch: true }} className="button button-primary">
                  Add a marketplace
                </Link>
              )
            : rights.develops && (
                <Link to="/plugins" search={{ add: true }} activeOptions={{ exact: true, includeSearch: true }} className="button button-primary">
                  Install a plugin
                </Link>
              )}
        </div>
      </div>
      <nav className="tabs" aria-label="Parts of plugins">
        {tabs.map((t) => (
          <Link key={t.label} to="/plugins" search={t.tab === undefined ? {} : { tab: t.tab }} activeOptions={{ exact: true, includeSearch: true }} data-status={search.tab === t.tab ? "active" : undefined} aria-current={search.tab === t.tab ? "page" : undefined}>
            {t.label}
          </Link>
        ))}
      </nav>
      {search.tab === "markets" ? (
        <Markets chosen={search.market} adding={adding} rights={rights} />
      ) : list.isPending ? (
        <Skeleton label="Plugins are loading" />
      ) : list.isError ? (
        <Failure error={list.error} what="The plugins cannot be listed" />
      ) : search.tab === "commands" ? (
        <Commands plugins={list.data} />
      ) : (
        <Yours search={search} adding={adding} plugins={list.data} rights={rights} />
      )}
    </div>
  );
}

function Yours({ search, adding, plugins, rights }: { search: PluginsSearch; adding: boolean; plugins: Plugin[]; rights: ReturnType<typeof rightsOf> }) {
  const open = search.plugin !== undefined || adding;
  if (plugins.length === 0 && !open) {
    return (
      <Empty title="You have no plugin">
        <p>A plugin brings skills, commands and MCP servers in one step.</p>
      </Empty>
    );
  }
  return (
    <div className={open ? "split split-plugins" : "split split-one"}>
      <section className="split-list" aria-label="Plugins">
        <Grid label="Plugins" columns={columns} rows={plugins} rowId={(p) => p.name} shape="grid-plugins" selected={search.plugin} />
      </section>
      {adding ? <Install rights={rights} /> : search.plugin !== undefined && <PluginDetail key={search.plugin} name={search.plugin} view={search.view} rights={rights} />}
    </div>
  );
}
