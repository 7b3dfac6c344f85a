import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { path, SkerryError } from "@skerry/client";
import { session } from "../../session/session";
import { Empty } from "../../ui/Empty";
import { Fact } from "../../ui/Fact";
import { Failure } from "../../ui/Failure";
import { Time } from "../../ui/format";
import { Grid, type Columns } from "../../ui/Grid";
import { Shown, visible } from "../../ui/Shown";
import { Skeleton } from "../../ui/Skeleton";
import { State } from "../../ui/State";
import { all } from "../../ui/all";
import type { Pack } from "./data";
import type { ToolsSearch } from "./route";

const tones = { connected: "good", draining: "busy", unavailable: "bad" } as const;

const columns: Columns<Pack> = [
  {
    id: "name",
    header: "Pack",
    cell: ({ row }) => (
      <Link from="/tools" to="/tools" search={(s: ToolsSearch) => ({ ...s, pack: row.original.id })} className="row-link" title={visible(row.original.id)}>
        <Shown>{row.original.id}</Shown>
      </Link>
    ),
  },
  { id: "state", header: "State", cell: ({ row }) => <State name={row.original.state} tone={tones[row.original.state]} /> },
  { id: "tools", header: "Tools", cell: ({ row }) => <span className="num">{row.original.tool_count}</span> },
  { id: "transport", header: "Since", cell: ({ row }) => <Time at={row.original.since} /> },
];

/** Programs outside that offer tools over a connection of their own. */
export function Packs({ chosen }: { chosen: string | undefined }) {
  const list = useQuery({ queryKey: ["tools", "packs"], queryFn: ({ signal }) => all<Pack>("/api/packs", signal), refetchInterval: 5_000 });
  const none = list.error instanceof SkerryError && list.error.code === "not_supported";
  if (list.isPending) return <Skeleton label="Packs are loading" />;
  if (none) {
    return (
      <Empty title="This server takes no tool packs">
        <p>
          The setting <code>packs.enabled</code> switches them on.
        </p>
      </Empty>
    );
  }
  if (list.isError) return <Failure error={list.error} what="The packs cannot be listed" />;
  if (list.data.length === 0 && chosen === undefined) {
    return (
      <Empty title="No tool pack is connected">
        <p>A pack is a program of yours that connects, and offers tools.</p>
      </Empty>
    );
  }
  return (
    <div className={chosen === undefined ? "split split-one" : "split split-tools"}>
      <section className="split-list" aria-label="Packs">
        <Grid label="Packs" columns={columns} rows={list.data} rowId={(p) => p.id} shape="grid-servers" selected={chosen} />
      </section>
      {chosen !== undefined && <One key={chosen} id={chosen} />}
    </div>
  );
}

function One({ id }: { id: string }) {
  const pack = useQuery({ queryKey: ["tools", "packs", id], queryFn: ({ signal }) => session.client.call<Pack>({ method: "GET", path: path("packs", id) }, { signal }), refetchInterval: 5_000 });
  const p = pack.data;
  return (
    <section className="split-detail" aria-label="One pack">
      <div className="pane-head">
        <h2>
          <Shown>{id}</Shown>
        </h2>
      </div>
      {pack.isPending && <Skeleton rows={4} label="The pack is loading" />}
      {pack.isError && <Failure error={pack.error} what="The pack cannot be shown" />}
      {p !== undefined && (
        <div className="scroll" tabIndex={0} role="group" aria-label="About the pack">
          <dl className="facts">
            <Fact name="State">
              <State name={p.state} tone={tones[p.state]} />
            </Fact>
            <Fact name="Version">
              <Shown>{p.version}</Shown>
            </Fact>
            <Fact name="Users of">{p.tenant === undefined ? "all tenants" : <Shown>{p.tenant}</Shown>}</Fact>
            <Fact name="Calls">
              <span className="num">
                {p.calls}, {p.running} of {p.max_parallel_calls} under way{p.late > 0 ? `, ${p.late} too late` : ""}
              </span>
            </Fact>
            <Fact name="Key">
              <span className="mono">
                <Shown>{p.identity}</Shown>
              </span>
            </Fact>
            <Fact name="From">
              <span className="mono">
                <Shown>{p.source}</Shown>
              </span>
            </Fact>
          </dl>
          {p.description !== undefined && (
            <p>
              <Shown>{p.description}</Shown>
            </p>
          )}
          {p.error !== undefined && (
            <p className="failure">
              <Shown>{p.error}</Shown>
            </p>
          )}
          <ul className="rows" aria-label="Its tools">
            {(p.tools ?? []).slice(0, 500).map((t) => (
              <li key={t.name}>
                <code>
                  <Shown>{t.name}</Shown>
                </code>
                <span className="muted">
                  <Shown>{t.description}</Shown>
                </span>
                {t.required_capabilities !== undefined && t.required_capabilities.length > 0 && (
                  <span className="hint">
                    needs <Shown>{t.required_capabilities.join(", ")}</Shown>
                  </span>
                )}
              </li>
            ))}
          </ul>
        </div>
      )}
    </section>
  );
}
