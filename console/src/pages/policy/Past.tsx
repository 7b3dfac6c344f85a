import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useMemo } from "react";
import { session, usePrincipal } from "../../session/session";
import { Choice } from "../../ui/Choice";
import { Empty } from "../../ui/Empty";
import { Failure } from "../../ui/Failure";
import { Time } from "../../ui/format";
import { Grid, type Columns } from "../../ui/Grid";
import { Shown, visible } from "../../ui/Shown";
import { Skeleton } from "../../ui/Skeleton";
import type { Scope } from "./route";

const route = getRouteApi("/app/policy");

type Effect = "allow" | "require_approval" | "deny";

interface Call {
  record: string;
  ts: string;
  user: string;
  thread_id: string;
  action: string;
  subject: string;
  now: Effect;
  then: Effect;
  rules?: { rule: string; text?: string }[];
}

/** POST /api/policy/replay. */
interface Report {
  since: string;
  until: string;
  calls: number;
  changed: number;
  now: Record<Effect, number>;
  then: Record<Effect, number>;
  items: Call[];
  partial?: boolean;
  unread?: number;
  notes: string[];
}

const spans = [
  { id: "1", label: "Last day" },
  { id: "7", label: "Last 7 days" },
  { id: "30", label: "Last 30 days" },
] as const;

const effects: readonly { id: Effect; label: string }[] = [
  { id: "allow", label: "allowed" },
  { id: "require_approval", label: "put to a person" },
  { id: "deny", label: "denied" },
];

const words: Record<Effect, string> = { allow: "allow", require_approval: "ask a person", deny: "deny" };
const day = 86_400_000;

/** What rules say of the calls that were made. */
export function Past({ text, changed, scope }: { text: string; changed: boolean; scope: Scope }) {
  const { days = 7 } = route.useSearch();
  const navigate = route.useNavigate();
  const report = useQuery({
    queryKey: ["policy", "past", scope, days, changed ? text : ""],
    queryFn: ({ signal }) =>
      session.client.call<Report>(
        { method: "POST", path: "/api/policy/replay", query: { scope }, body: { ...(changed ? { text } : {}), since: new Date(Date.now() - days * day).toISOString() } },
        { signal, timeoutMs: 30_000 },
      ),
    staleTime: 60_000,
  });
  const r = report.data;
  return (
    <section className="policy" aria-label="Past calls">
      <div className="line">
        <Choice
          label="Calls of"
          value={String(days) as "1" | "7" | "30"}
          options={spans}
          onChange={(d) => void navigate({ search: ({ days: _, ...s }) => (d === "1" ? { ...s, days: 1 as const } : d === "30" ? { ...s, days: 30 as const } : s) })}
        />
        <span className="hint">{changed ? "The rules as you changed them, beside those in force." : "The rules in force. Change them to see which calls they would decide otherwise."}</span>
      </div>
      {report.isPending && <Skeleton rows={5} label="The calls are tried" />}
      {report.isError && <Failure error={report.error} what="The rules cannot be tried" />}
      {r !== undefined && (
        <>
          <table className="effects">
            <caption className="away">Calls by what rules say of them</caption>
            <thead>
              <tr>
                <th scope="col">{r.calls.toLocaleString()} calls</th>
                {effects.map((e) => (
                  <th scope="col" key={e.id}>
                    {e.label}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              <Row name="in force" counts={r.now} />
              {changed && <Row name="with your change" counts={r.then} />}
            </tbody>
          </table>
          {r.partial === true && (
            <p className="note">
              There are too many records to try all: these are the calls since <Time at={r.since} />.
            </p>
          )}
          {(r.unread ?? 0) > 0 && <p className="note">{r.unread} calls were not tried: their arguments were not kept whole.</p>}
          {changed && r.changed === 0 && <Empty title="No call would have been decided otherwise" />}
          {r.items.length > 0 && <Changed calls={r.items} more={r.changed - r.items.length} />}
          <p className="hint">{r.notes.join("; ")}.</p>
        </>
      )}
    </section>
  );
}

function Row({ name, counts }: { name: string; counts: Record<Effect, number> }) {
  return (
    <tr>
      <th scope="row">{name}</th>
      {effects.map((e) => (
        <td key={e.id} className="num">
          {counts[e.id].toLocaleString()}
        </td>
      ))}
    </tr>
  );
}

function Changed({ calls, more }: { calls: Call[]; more: number }) {
  const me = usePrincipal();
  const columns = useMemo(
    (): Columns<Call> => [
      { id: "when", header: "When", cell: ({ row }) => <Time at={row.original.ts} /> },
      { id: "user", header: "User", cell: ({ row }) => <Shown>{row.original.user}</Shown> },
      {
        id: "call",
        header: "Call",
        cell: ({ row }) => (
          <span title={visible(row.original.subject)}>
            <Shown>{row.original.subject === "" ? row.original.action : row.original.subject}</Shown>
          </span>
        ),
      },
      { id: "now", header: "Now", cell: ({ row }) => words[row.original.now] },
      { id: "then", header: "Then", cell: ({ row }) => <strong className={row.original.then === "deny" ? "bad" : undefined}>{words[row.original.then]}</strong> },
      { id: "rule", header: "By", cell: ({ row }) => <Shown>{row.original.rules?.[0]?.rule ?? "the default"}</Shown> },
    ],
    [],
  );
  return (
    <>
      <h2>Decided otherwise</h2>
      <Grid label="Calls that would be decided otherwise" columns={columns} rows={calls} rowId={(c) => c.record} shape="grid-past" />
      {more > 0 && (
        <p className="hint">
          These are the newest {calls.length}, and there are {more.toLocaleString()} more.
        </p>
      )}
      {me.role === "admin" && (
        <Link to="/audit" search={{}}>
          See the records
        </Link>
      )}
    </>
  );
}
