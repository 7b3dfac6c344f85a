import { keepPreviousData, useMutation, useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { path } from "@skerry/client";
import { useMemo, useState } from "react";
import { session } from "../../session/session";
import { Button } from "../../ui/Button";
import { Confirm } from "../../ui/Confirm";
import { Fact } from "../../ui/Fact";
import { Failure } from "../../ui/Failure";
import { Field } from "../../ui/Field";
import { Worst } from "../../ui/Findings";
import { Grid, type Columns } from "../../ui/Grid";
import { Shown, visible } from "../../ui/Shown";
import { Skeleton } from "../../ui/Skeleton";
import { State } from "../../ui/State";
import { toolsKey, toolsOf, type Rights, type Server, type ServerTool } from "./data";
import { useFresh } from "./fresh";
import { Login } from "./Login";
import type { ToolsSearch } from "./route";
import { ServerState } from "./ServerState";

const route = getRouteApi("/app/tools");

const plainColumns: Columns<ServerTool> = [
  {
    id: "name",
    header: "Tool",
    cell: ({ row }) => (
      <Link from="/tools" to="/tools" search={(s: ToolsSearch) => ({ ...s, tool: row.original.short_name })} className="row-link mono" title={visible(row.original.short_name)}>
        <Shown>{row.original.short_name}</Shown>
      </Link>
    ),
  },
  {
    id: "description",
    header: "What it says it does",
    cell: ({ row }) => (
      <span className="muted">
        <Shown>{(row.original.description ?? "").slice(0, 200)}</Shown>
      </span>
    ),
  },
];

const operatorColumns: Columns<ServerTool> = [
  ...plainColumns,
  { id: "findings", header: "Findings", cell: ({ row }) => (row.original.quarantined === true ? <State name="quarantined" tone="bad" /> : <Worst list={row.original.findings ?? []} />) },
];

export function ServerDetail({ thread, server, rights }: { thread: string; server: Server; rights: Rights }) {
  const fresh = useFresh();
  const navigate = route.useNavigate();
  const mine = server.name.startsWith("plugin:");
  const configured = server.config !== undefined;
  const act = useMutation({
    mutationFn: async (what: "reconnect" | "install" | "delete") => {
      const at = path("mcp", "servers", server.name);
      if (what === "delete") await session.client.call({ method: "DELETE", path: at });
      else if (what === "reconnect") await session.client.call({ method: "POST", path: `${at}/reconnect` });
      else return (await session.client.call<{ tools: number }>({ method: "POST", path: `${at}/install` }, { timeoutMs: 330_000 })).tools;
      return undefined;
    },
    onSuccess: (_, what) => {
      if (what === "delete") void navigate({ search: ({ thread: t }: ToolsSearch) => (t === undefined ? {} : { thread: t }) });
    },
    onSettled: fresh,
  });
  const program = server.transport === "stdio";
  const fetches = rights.develops && program && (mine || (configured && rights.operates && server.config?.["sandbox"] !== undefined));
  return (
    <section className="split-detail" aria-label="One server">
      <div className="pane-head">
        <h2>
          <Shown>{server.name}</Shown>
        </h2>
        <div className="line">
          {configured && rights.operates && (
            <>
              {server.state !== "off" && (
                <Button isDisabled={act.isPending} onPress={() => act.mutate("reconnect")}>
                  {act.isPending && act.variables === "reconnect" ? "Connecting…" : "Reconnect"}
                </Button>
              )}
              <Link from="/tools" to="/tools" search={(s: ToolsSearch) => ({ ...s, edit: "config" as const })} activeOptions={{ exact: true, includeSearch: true }} className="button">
                Change
              </Link>
              <Confirm label="Remove…" title={`Remove ${visible(server.name)}?`} yes="Remove" isDisabled={act.isPending} onConfirm={() => act.mutate("delete")}>
                <p>All users lose its tools. Its entry leaves extensions_config.json, with the secrets in it.</p>
              </Confirm>
            </>
          )}
          {fetches && (
            <Button isDisabled={act.isPending} onPress={() => act.mutate("install")}>
              {act.isPending && act.variables === "install" ? "Fetching…" : "Fetch packages"}
            </Button>
          )}
        </div>
      </div>
      <div className="scroll server-body" tabIndex={0} role="group" aria-label="About the server">
        <dl className="facts">
          <Fact name="State">
            <ServerState state={server.state} />
          </Fact>
          <Fact name="Reached by">{server.transport === "stdio" ? "its program" : server.transport}</Fact>
          <Fact name="Tools">
            <span className="num">{server.tool_count}</span>
          </Fact>
          {configured && typeof server.config?.["scope"] === "string" && <Fact name="Connection of">{server.config["scope"]}</Fact>}
        </dl>
        {server.description !== "" && (
          <p>
            <Shown>{server.description}</Shown>
          </p>
        )}
        {server.error !== undefined && server.state !== "needs_login" && (
          <div className="failure" role="alert">
            <strong>{server.state === "failed" ? "It failed" : "It says"}</strong>
            <p className="mono pre">
              <Shown>{server.error}</Shown>
            </p>
          </div>
        )}
        {act.isError && <Failure error={act.error} what="It could not be done" />}
        {act.isSuccess && act.variables === "reconnect" && <p className="note" role="status">Its connections were dropped, and are made anew.</p>}
        {act.isSuccess && act.variables === "install" && (
          <p className="note" role="status">
            Its packages are there. It has {act.data} tools.
          </p>
        )}
        <Login server={server} rights={rights} />
        {server.state === "off" ? <p className="hint">It is switched off in the configuration, so no thread has its tools.</p> : <ServerTools thread={thread} server={server} rights={rights} />}
      </div>
    </section>
  );
}

function ServerTools({ thread, server, rights }: { thread: string; server: Server; rights: Rights }) {
  const [words, setWords] = useState("");
  const list = useQuery({
    queryKey: toolsKey(thread, server),
    placeholderData: keepPreviousData,
    queryFn: ({ signal }) => toolsOf(thread, server, signal),
    enabled: server.state !== "needs_login",
    staleTime: 10_000,
  });
  const items = useMemo(() => {
    const wanted = words.toLowerCase();
    return (list.data ?? []).filter((t) => t.short_name.toLowerCase().includes(wanted) || (t.description ?? "").toLowerCase().includes(wanted));
  }, [list.data, words]);
  if (server.state === "needs_login") return null;
  if (list.isPending) return <Skeleton label="Tools are loading" />;
  // What the server said of its failure is above.
  if (list.isError) return server.error === undefined ? <Failure error={list.error} what="Its tools cannot be listed" /> : null;
  if (list.data.length === 0) return <p className="hint">It has no tools{rights.operates ? "" : " for you"}.</p>;
  return (
    <>
      {list.data.length > 10 && <Field hideLabel label="Find a tool of this server" placeholder="Part of a name or a description" value={words} onChange={setWords} />}
      <Grid label="Tools" columns={rights.operates && server.config !== undefined ? operatorColumns : plainColumns} rows={items} rowId={(t) => t.short_name} shape={rights.operates && server.config !== undefined ? "grid-tools grid-tools-findings" : "grid-tools"} />
      {items.length === 0 && <p className="hint">No tool fits.</p>}
    </>
  );
}
