import { useMutation, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { path } from "@skerry/client";
import { session } from "../../session/session";
import { Button } from "../../ui/Button";
import { Written } from "../../ui/Diff";
import { Empty } from "../../ui/Empty";
import { Failure } from "../../ui/Failure";
import { Time } from "../../ui/format";
import { Shown, visible } from "../../ui/Shown";
import { Skeleton } from "../../ui/Skeleton";
import { State } from "../../ui/State";
import { all } from "../../ui/all";
import type { Drift } from "./data";
import { useFresh } from "./fresh";
import type { ToolsSearch } from "./route";

const tones = { added: "idle", changed: "bad", removed: "none" } as const;

/** Tools that are not as they were first seen, or approved. */
export function Changed({ server }: { server: string | undefined }) {
  const list = useQuery({ queryKey: ["tools", "changed", server], queryFn: ({ signal }) => all<Drift>("/api/mcp/drift", signal, { server }), refetchInterval: 10_000 });
  return (
    <section className="scroll changed" aria-label="Changed tools">
      <p className="hint">
        Skerry remembers each tool as it first saw it. A model reads what a server says of its tools: look at what changed before you take it.
        {server !== undefined && (
          <>
            {" "}
            Of <Shown>{server}</Shown> alone. <Link from="/tools" to="/tools" search={({ server: _, ...s }: ToolsSearch) => s}>Show all</Link>
          </>
        )}
      </p>
      {list.isPending && <Skeleton label="Changed tools are loading" />}
      {list.isError && <Failure error={list.error} what="Changed tools cannot be listed" />}
      {list.isSuccess && list.data.length === 0 && (
        <Empty title="No tool has changed">
          <p>All are as they were first seen, or approved since.</p>
        </Empty>
      )}
      {list.data?.map((d) => <One key={`${d.server}\n${d.tool}`} d={d} />)}
    </section>
  );
}

function One({ d }: { d: Drift }) {
  const fresh = useFresh();
  const approve = useMutation({
    mutationFn: () => session.client.call({ method: "POST", path: `${path("mcp", "servers", d.server)}/drift/approve`, body: { tool: d.tool, ...(d.hash === "" ? {} : { hash: d.hash }) } }),
    onSettled: fresh,
  });
  return (
    <article className="card" aria-label={`${visible(d.server)} ${visible(d.tool)}`}>
      <div className="pane-head">
        <h2 className="mono">
          <Shown>{d.server}</Shown> <span className="muted">/</span> <Shown>{d.tool}</Shown>
        </h2>
        <Button isDisabled={approve.isPending} onPress={() => approve.mutate()}>
          {approve.isPending ? "Accepting…" : d.state === "removed" ? "Forget it" : "Accept it as it is now"}
        </Button>
      </div>
      <div className="line">
        <State name={d.state} tone={tones[d.state]} />
        {d.quarantined && <State name="quarantined" label="no thread has it until it is accepted" tone="bad" />}
        <span className="hint">
          <Time at={d.seen_at} />
        </span>
      </div>
      {d.changes.map((c) => (
        <div key={c.field} className="change">
          <h3>{c.field}</h3>
          {c.diff === undefined || c.diff === "" ? <p className="hint">{c.before === undefined ? "It is new." : c.after === undefined ? "It is gone." : "It is another one."}</p> : <Written diff={c.diff} label={`How ${c.field} of ${visible(d.server)} ${visible(d.tool)} changed`} />}
        </div>
      ))}
      {d.state !== "removed" && (
        <p className="hint">
          As it is now: <code>{d.hash.slice(0, 16)}…</code> When the tool changes once more before you accept, nothing is accepted.
        </p>
      )}
      {approve.isError && <Failure error={approve.error} what="It was not accepted" />}
    </article>
  );
}
