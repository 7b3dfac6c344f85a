import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, type ReactNode } from "react";
import { usePrincipal } from "../../session/session";
import { pretty } from "../../ui/exact";
import { Empty } from "../../ui/Empty";
import { Failure } from "../../ui/Failure";
import { bytes, duration } from "../../ui/format";
import { Shown } from "../../ui/Shown";
import { Skeleton } from "../../ui/Skeleton";
import { Ended } from "./Ended";
import { findNode, first, named, related, treeOf, type FullRecord, type Node } from "./records";
import type { AuditSearch, FieldName } from "./route";

export function RecordDetail({ id, search }: { id: string; search: AuditSearch }) {
  // A request may still be going on.
  const refetchInterval = search.live === true ? 5_000 : false;
  const own = useQuery({ queryKey: ["audit", "record", id], queryFn: ({ signal }) => named(id, signal), refetchInterval });
  const known = own.data;
  const all = useQuery({
    queryKey: ["audit", "request", id],
    queryFn: ({ signal }) => related(id, known ?? { records: [], whole: true }, signal),
    enabled: known !== undefined,
    refetchInterval,
  });
  const found = all.data ?? known;
  const tree = useMemo(() => treeOf(found?.records ?? []), [found]);
  const node = useMemo(() => findNode(tree, id), [tree, id]);
  const root = useMemo(() => tree.find((n) => findNode([n], id) !== undefined), [tree, id]);
  return (
    <section className="split-detail audit-detail" aria-label="One record">
      <div className="detail-head">
        <h2 className="mono">{node === undefined ? <bdi>{id}</bdi> : <Title r={first(node)} />}</h2>
        <Link to="/audit" search={({ record: _, ...rest }: AuditSearch) => rest} className="button button-quiet" aria-label="Close the record">
          Close
        </Link>
      </div>
      {own.isPending && <Skeleton rows={5} label="The record is loading" />}
      {own.isError && <Failure error={own.error} what="The record cannot be shown" />}
      {own.isSuccess && node === undefined && (
        <Empty title="There is no such record">
          <p>It is another user&apos;s, or Redis does not keep it any more.</p>
        </Empty>
      )}
      {node !== undefined && (
        <div className="audit-facts" tabIndex={0} role="group" aria-label="What the record says">
          <Facts node={node} />
          {all.isPending && <Skeleton rows={3} label="The rest of the request is loading" />}
          {all.isError && <Failure error={all.error} what="The rest of the request cannot be shown" />}
          {all.isSuccess && root !== undefined && (
            <>
              <h3>The whole request</h3>
              <Branch nodes={[root]} selected={node.id} />
              {all.data.whole === false && <p className="note">It has more records than are shown.</p>}
            </>
          )}
          <Stored node={node} />
        </div>
      )}
    </section>
  );
}

function Title({ r }: { r: FullRecord }) {
  return (
    <>
      {r.action} {r.subject !== undefined && <Shown>{r.subject}</Shown>}
    </>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** A value that all records can be narrowed down to. */
function Narrow({ field, value }: { field: FieldName; value: string }) {
  return (
    <Link to="/audit" search={(s: AuditSearch) => ({ ...s, [field]: value })} title="Only records with this">
      <Shown>{value}</Shown>
    </Link>
  );
}

function exactly(t: string): string {
  return new Date(t).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

function Facts({ node }: { node: Node }) {
  const { role } = usePrincipal();
  const r = first(node);
  const end = node.result ?? r;
  const args = r.args ?? end.args;
  const why = end.why ?? r.why;
  return (
    <>
      <dl className="facts">
        <Fact name="Outcome">
          <Ended node={node} />
        </Fact>
        <Fact name="User">
          <Narrow field="user" value={r.user} />
          {r.actor !== undefined && (
            <>
              {" "}
              by <Shown>{r.actor}</Shown>
            </>
          )}
          {r.role !== undefined && <span className="muted"> {r.role}</span>}
        </Fact>
        {r.thread !== undefined && (
          <Fact name="Thread">
            <Narrow field="thread" value={r.thread} />
            {role !== "auditor" && (
              <>
                {" "}
                <Link to="/threads/$thread" params={{ thread: r.thread }} className="hint">
                  open
                </Link>
              </>
            )}
          </Fact>
        )}
        <Fact name="Time">
          <time dateTime={r.time} title={r.time}>
            {exactly(r.time)}
          </time>
        </Fact>
        {end.ms > 0 && <Fact name="Took">{duration(end.ms)}</Fact>}
        {r.bytes_in > 0 && <Fact name="Came in">{bytes(r.bytes_in)}</Fact>}
        {end.bytes_out > 0 && <Fact name="Went out">{bytes(end.bytes_out)}</Fact>}
      </dl>
      {end.detail !== undefined && end.detail !== "" && (
        <p className="note">
          <Shown>{end.detail}</Shown>
        </p>
      )}
      {args !== undefined && (
        <>
          <h3>Arguments</h3>
          <pre className="output record-json" tabIndex={0} role="region" aria-label="Arguments">
            <Shown>{pretty(args)}</Shown>
          </pre>
          <p className="hint">As they are stored: at most 4 KiB, with *** in place of values whose names tell of a secret.</p>
        </>
      )}
      {why !== undefined && (
        <>
          <h3>Why it was decided so</h3>
          <pre className="output record-json" tabIndex={0} role="region" aria-label="Why it was decided so">
            <Shown>{pretty(why)}</Shown>
          </pre>
        </>
      )}
    </>
  );
}

function Branch({ nodes, selected }: { nodes: readonly Node[]; selected: string }) {
  return (
    <ul className="branch">
      {nodes.map((n) => {
        const r = first(n);
        return (
          <li key={n.id}>
            <span className="branch-line" data-selected={n.id === selected ? "" : undefined}>
              <Link to="/audit" search={(s: AuditSearch) => ({ ...s, record: r.id })} aria-current={n.id === selected ? "true" : undefined}>
                {r.action} <span className="mono">{<Shown>{(r.subject ?? "").slice(0, 120)}</Shown>}</span>
              </Link>
              <Ended node={n} />
            </span>
            {n.children.length > 0 && <Branch nodes={n.children.slice(0, 200)} selected={selected} />}
            {n.children.length > 200 && <p className="hint">{n.children.length - 200} more</p>}
          </li>
        );
      })}
    </ul>
  );
}

function Stored({ node }: { node: Node }) {
  return (
    <details className="stored">
      <summary>The records as they are stored</summary>
      {[node.attempt, node.result].map(
        (r) =>
          r !== undefined && (
            <pre key={r.id} className="output record-json" tabIndex={0} role="region" aria-label={`The ${r.phase}, as it is stored`}>
              <Shown>{pretty(r)}</Shown>
            </pre>
          ),
      )}
    </details>
  );
}
