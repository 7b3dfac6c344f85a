import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useRouter } from "@tanstack/react-router";
import { useEffect, useMemo, useState } from "react";
import { usePrincipal } from "../../session/session";
import { Button } from "../../ui/Button";
import { Empty } from "../../ui/Empty";
import { Failure } from "../../ui/Failure";
import { Time } from "../../ui/format";
import { Grid, type Columns } from "../../ui/Grid";
import { Shown, visible } from "../../ui/Shown";
import { Skeleton } from "../../ui/Skeleton";
import { useTitle } from "../../ui/title";
import { notifications, useNotifications } from "./notify";
import { Left, RequestDetail, RequestState } from "./RequestDetail";
import { listRequests, type Request } from "./requests";
import type { ApprovalsSearch } from "./route";
import "./approvals.css";

const route = getRouteApi("/app/approvals");

const columns: Columns<Request> = [
  {
    id: "tool",
    header: "Call",
    cell: ({ row }) => (
      <Link to="/approvals" search={(s: ApprovalsSearch) => ({ ...s, id: row.original.id })} className="row-link mono" title={visible(row.original.tool).slice(0, 400)}>
        <Shown>{row.original.tool.slice(0, 200)}</Shown>
      </Link>
    ),
  },
  { id: "state", header: "State", cell: ({ row }) => <RequestState r={row.original} /> },
  { id: "user", header: "User", cell: ({ row }) => <span className="muted">{<Shown>{row.original.user}</Shown>}</span> },
  { id: "thread", header: "Thread", cell: ({ row }) => <span className="muted">{<Shown>{row.original.thread_id}</Shown>}</span> },
  { id: "time", header: "When", cell: ({ row }) => (row.original.state === "pending" ? <Left until={row.original.expires_at} /> : <Time at={row.original.decision?.at ?? row.original.created_at} />) },
];

export function ApprovalsPage() {
  const search = route.useSearch();
  const { role } = usePrincipal();
  const decides = role === "developer" || role === "admin";
  const list = useQuery({
    queryKey: ["approvals", "list", search.all === true],
    queryFn: ({ signal }) => listRequests(search.all === true, signal),
    refetchInterval: 2_000,
  });
  const items = useMemo(() => list.data?.items ?? [], [list.data]);
  const waiting = items.filter((r) => r.state === "pending").length;
  useTitle(waiting > 0 ? `(${waiting}) Approvals` : "Approvals");
  return (
    <div className="page page-fill">
      <div className="page-head">
        <h1>Approvals</h1>
        <div className="line">
          <nav aria-label="Which requests" className="line">
            <Link to="/approvals" search={({ id: _, all: _all, ...rest }: ApprovalsSearch) => rest} activeOptions={{ exact: true, includeSearch: true }} className="button" aria-current={search.all === true ? undefined : "page"}>
              Waiting
            </Link>
            <Link to="/approvals" search={{ all: true }} className="button" aria-current={search.all === true ? "page" : undefined}>
              All
            </Link>
          </nav>
          {decides && <Notify />}
        </div>
      </div>
      {!decides && <p className="note">Calls of yours that wait for a person. Your role does not decide on them.</p>}
      <p className="away" role="status">
        {list.isSuccess ? (waiting === 1 ? "1 call waits" : `${waiting} calls wait`) : ""}
      </p>
      {list.isError && <Failure error={list.error} what="The requests cannot be listed" />}
      {list.isPending && <Skeleton label="Requests are loading" />}
      {list.isSuccess && items.length === 0 && search.id === undefined && (
        <Empty title={search.all === true ? "No call has asked for an approval yet" : "No call waits for an approval"}>
          <p>A call appears here, without loading the page again, when a rule of the policy wants a person to decide.</p>
        </Empty>
      )}
      {list.isSuccess && (items.length > 0 || search.id !== undefined) && (
        <div className={search.id === undefined ? "split split-one" : "split"}>
          <section className="split-list" aria-label="Requests">
            {items.length > 0 ? (
              <Grid label="Requests" columns={columns} rows={items} rowId={(r) => r.id} shape="grid-approvals" selected={search.id} />
            ) : (
              <Empty title="No other call waits" />
            )}
            {list.data.next_cursor !== undefined && <p className="note">There are older ones: skerry approvals ls shows them.</p>}
          </section>
          {search.id !== undefined && <RequestDetail key={search.id} id={search.id} decides={decides} />}
        </div>
      )}
    </div>
  );
}

/** Notifications of the browser, when a person asks for them. */
function Notify() {
  const router = useRouter();
  const on = useNotifications();
  const [refused, setRefused] = useState(false);
  useEffect(() => {
    if (on) setRefused(false);
  }, [on]);
  if (!notifications.possible) return null;
  return (
    <>
      <Button
        aria-pressed={on}
        onPress={() => {
          if (on) notifications.stop();
          else void notifications.start((id) => void router.navigate({ to: "/approvals", search: { id } })).then((ok) => setRefused(!ok));
        }}
      >
        {on ? "Notifications: on" : "Notify me"}
      </Button>
      {refused && (
        <span className="hint" role="status">
          This browser does not allow notifications of this page.
        </span>
      )}
    </>
  );
}
