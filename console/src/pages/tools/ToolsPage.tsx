import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useState, type FormEvent } from "react";
import { session, usePrincipal } from "../../session/session";
import { Empty } from "../../ui/Empty";
import { Failure } from "../../ui/Failure";
import { Grid, type Columns } from "../../ui/Grid";
import { Shown, visible } from "../../ui/Shown";
import { Skeleton } from "../../ui/Skeleton";
import { useTitle } from "../../ui/title";
import { rightsOf, servers, usualThread, type Rights, type Server } from "./data";
import { Changed } from "./Changed";
import { Packs } from "./Packs";
import { atServer, type ToolsSearch } from "./route";
import { ServerDetail } from "./ServerDetail";
import { ServerForm } from "./ServerForm";
import { ServerState } from "./ServerState";
import { ToolDetail } from "./ToolDetail";
import "../../ui/parts.css";
import "./tools.css";

const route = getRouteApi("/app/tools");

const columns: Columns<Server> = [
  {
    id: "name",
    header: "Server",
    cell: ({ row }) => (
      <Link from="/tools" to="/tools" search={(s: ToolsSearch) => atServer(s, row.original.name)} className="row-link" title={visible(row.original.name)}>
        <Shown>{row.original.name}</Shown>
      </Link>
    ),
  },
  { id: "state", header: "State", cell: ({ row }) => <ServerState state={row.original.state} /> },
  { id: "tools", header: "Tools", cell: ({ row }) => <span className="num">{row.original.tool_count}</span> },
  { id: "transport", header: "By", cell: ({ row }) => <span className="muted">{row.original.transport}</span> },
];

export function ToolsPage() {
  useTitle("Tools");
  const search = route.useSearch();
  const me = usePrincipal();
  const rights = rightsOf(me);
  const thread = search.thread ?? usualThread(me);
  const tab = (search.tab === "changed" && rights.develops) || (search.tab === "packs" && rights.administers) ? search.tab : undefined;
  return (
    <div className="page page-fill">
      <div className="page-head">
        <h1>Tools</h1>
        <div className="line">
          {tab === undefined && <ThreadChoice key={thread} thread={thread} />}
          {rights.operates && tab === undefined && (
            <Link from="/tools" to="/tools" search={({ thread: t }: ToolsSearch): ToolsSearch => ({ ...(t === undefined ? {} : { thread: t }), edit: "new" })} activeOptions={{ exact: true, includeSearch: true }} className="button button-primary">
              Add a server
            </Link>
          )}
        </div>
      </div>
      {rights.develops && (
        <nav className="tabs" aria-label="Parts of tools">
          <Tab label="Servers" on={tab === undefined} />
          <Tab label="Changed tools" tab="changed" on={tab === "changed"} />
          {rights.administers && <Tab label="Packs" tab="packs" on={tab === "packs"} />}
        </nav>
      )}
      {tab === "changed" ? <Changed server={search.server} /> : tab === "packs" ? <Packs chosen={search.pack} /> : <Servers search={search} thread={thread} rights={rights} />}
    </div>
  );
}

function Tab({ label, tab, on }: { label: string; tab?: "changed" | "packs"; on: boolean }) {
  return (
    <Link
      from="/tools"
      to="/tools"
      search={({ thread }: ToolsSearch) => ({ ...(thread === undefined ? {} : { thread }), ...(tab === undefined ? {} : { tab }) })}
      activeOptions={{ exact: true, includeSearch: true }}
      data-status={on ? "active" : undefined}
      aria-current={on ? "page" : undefined}
    >
      {label}
    </Link>
  );
}

/** Of which thread the tools are. The caller's threads are offered, and any other id will do. */
function ThreadChoice({ thread }: { thread: string }) {
  const navigate = route.useNavigate();
  const [value, setValue] = useState(thread);
  const { threads: limited } = usePrincipal();
  const known = useQuery({
    queryKey: ["tools", "threads"],
    staleTime: 30_000,
    enabled: limited === undefined,
    queryFn: async ({ signal }) => (await session.client.call<{ items: { thread_id: string }[] }>({ method: "GET", path: "/api/threads", query: { limit: 100 } }, { signal })).items.map((t) => t.thread_id),
  });
  const valid = /^[A-Za-z0-9_-]{1,128}$/.test(value);
  const go = (e: FormEvent) => {
    e.preventDefault();
    if (valid && value !== thread) void navigate({ search: (s: ToolsSearch) => ({ ...s, thread: value }) });
  };
  return (
    <form onSubmit={go} className="line thread-choice">
      <label className="label" htmlFor="tools-thread">
        Thread
      </label>
      <input id="tools-thread" className="input" list="tools-threads" value={value} onChange={(e) => setValue(e.target.value.trim())} aria-invalid={!valid} aria-describedby="tools-thread-hint" spellCheck={false} autoComplete="off" />
      <datalist id="tools-threads">
        {(known.data ?? []).map((id) => (
          <option key={id} value={id} />
        ))}
      </datalist>
      <span id="tools-thread-hint" className="away">
        Enter shows the tools of this thread
      </span>
    </form>
  );
}

function Servers({ search, thread, rights }: { search: ToolsSearch; thread: string; rights: Rights }) {
  const list = useQuery({
    queryKey: ["tools", "servers", thread, rights.operates],
    queryFn: ({ signal }) => servers(thread, rights.operates, signal),
    refetchInterval: 5_000,
  });
  const chosen = list.data?.find((s) => s.name === search.server);
  const open = search.server !== undefined || (search.edit === "new" && rights.operates);
  if (list.isPending) return <Skeleton label="Servers are loading" />;
  if (list.isError) return <Failure error={list.error} what="The servers cannot be listed" />;
  const items = list.data;
  if (items.length === 0 && !open) {
    return (
      <Empty title="This thread has no MCP server">
        <p>{rights.operates ? "Add one here, or name it in extensions_config.json." : "An operator adds servers for all; plugins bring servers of your own."}</p>
      </Empty>
    );
  }
  return (
    <div className={open ? "split split-tools" : "split split-one"}>
      <section className="split-list" aria-label="Servers">
        <Grid label="Servers" columns={columns} rows={items} rowId={(s) => s.name} shape="grid-servers" selected={search.server} />
      </section>
      {search.edit === "new" && rights.operates ? (
        <ServerForm taken={items.map((s) => s.name)} />
      ) : search.server === undefined ? null : chosen === undefined ? (
        <section className="split-detail">
          <Empty title="This thread has no such server">
            <p>
              It has no <Shown>{search.server}</Shown>: it was removed, is switched off, or another thread has it.
            </p>
          </Empty>
        </section>
      ) : search.edit === "config" && rights.operates && chosen.config !== undefined ? (
        <ServerForm key={chosen.name} server={chosen} taken={[]} />
      ) : search.tool !== undefined ? (
        <ToolDetail key={`${thread} ${chosen.name} ${search.tool}`} thread={thread} server={chosen} name={search.tool} view={search.view} />
      ) : (
        <ServerDetail key={`${thread} ${chosen.name}`} thread={thread} server={chosen} rights={rights} />
      )}
    </div>
  );
}
