import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { SkerryError, type Decision } from "@skerry/client";
import { useEffect, useRef, useState, type ReactNode } from "react";
import { Button } from "../../ui/Button";
import { Empty } from "../../ui/Empty";
import { Failure } from "../../ui/Failure";
import { Checkbox, Field } from "../../ui/Field";
import { bytes, Time } from "../../ui/format";
import { Shown } from "../../ui/Shown";
import { Skeleton } from "../../ui/Skeleton";
import { State } from "../../ui/State";
import { Arguments } from "./Arguments";
import { decide, lastApproved, request, scopes, type Request } from "./requests";
import type { ApprovalsSearch } from "./route";

const tones = { pending: "busy", approved: "good", denied: "bad", expired: "idle", cancelled: "none" } as const;

export function RequestState({ r }: { r: Request }) {
  return <State name={r.state} tone={tones[r.state]} label={r.state === "pending" ? "waiting" : r.state} />;
}

/** How long there is still time. */
export function Left({ until }: { until: string }) {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  const s = Math.max(0, Math.round((Date.parse(until) - now) / 1000));
  return (
    <time dateTime={until} className="num">
      {s >= 3600 ? `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min left` : `${Math.floor(s / 60)}:${String(s % 60).padStart(2, "0")} left`}
    </time>
  );
}

export function RequestDetail({ id, decides }: { id: string; decides: boolean }) {
  const one = useQuery({
    queryKey: ["approvals", "one", id],
    queryFn: ({ signal }) => request(id, signal),
    refetchInterval: (q) => (q.state.data === undefined || q.state.data.state === "pending" ? 2_000 : false),
  });
  const missing = one.error instanceof SkerryError && one.error.status === 404;
  return (
    <section className="split-detail approval" aria-label="One request">
      <div className="detail-head">
        <h2 className="mono">{one.data === undefined ? <bdi>{id}</bdi> : <Shown>{one.data.tool}</Shown>}</h2>
        <Link to="/approvals" search={({ id: _, ...rest }: ApprovalsSearch) => rest} className="button button-quiet" aria-label="Close the request">
          Close
        </Link>
      </div>
      {one.isPending && <Skeleton rows={5} label="The request is loading" />}
      {missing && (
        <Empty title="There is no such request">
          <p>It is another user&apos;s, or it is so old that it is in the audit log alone.</p>
        </Empty>
      )}
      {one.isError && !missing && <Failure error={one.error} what="The request cannot be shown" />}
      {one.data !== undefined && <Known r={one.data} decides={decides} />}
    </section>
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

interface Cut {
  truncated: true;
  bytes: number;
}

function isCut(v: unknown): v is Cut {
  return typeof v === "object" && v !== null && (v as Partial<Cut>).truncated === true && typeof (v as Partial<Cut>).bytes === "number";
}

function Known({ r, decides }: { r: Request; decides: boolean }) {
  const before = useQuery({ queryKey: ["approvals", "before", r.id], queryFn: ({ signal }) => lastApproved(r, signal), staleTime: 60_000 });
  const [compare, setCompare] = useState(true);
  const last = before.data ?? undefined;
  const equal = last !== undefined && last.args_hash === r.args_hash && !isCut(r.arguments);
  return (
    <div className="approval-body" tabIndex={0} role="group" aria-label="What is asked">
      <Outcome r={r} decides={decides} />
      <dl className="facts">
        <Fact name="State">
          <RequestState r={r} />
        </Fact>
        <Fact name="User">
          <Shown>{r.user}</Shown>
        </Fact>
        <Fact name="Thread">
          <Link to="/threads/$thread" params={{ thread: r.thread_id }} {...(r.exec_id === undefined ? {} : { search: { exec: r.exec_id } })}>
            <Shown>{r.thread_id}</Shown>
          </Link>
        </Fact>
        {r.server !== undefined && (
          <Fact name="Server">
            <Shown>{r.server}</Shown>
          </Fact>
        )}
        {r.skill !== undefined && (
          <Fact name="Skill">
            <Shown>{r.skill}</Shown>
          </Fact>
        )}
        <Fact name="Asked">
          <Time at={r.created_at} />
        </Fact>
        {r.state === "pending" && (
          <Fact name="Denied by itself">
            <Left until={r.expires_at} />
          </Fact>
        )}
      </dl>
      <p className="note">
        <Shown>{r.why}</Shown>
      </p>
      <div className="detail-head">
        <h3>Arguments{last !== undefined && compare && !equal ? ", and what differs from the last approved call" : ""}</h3>
        {last !== undefined && !equal && (
          <Checkbox isSelected={compare} onChange={setCompare}>
            Compare
          </Checkbox>
        )}
      </div>
      {last !== undefined && (
        <p className="hint">
          {equal ? "The same arguments as" : "Compared with"} the last approved call of this tool: <Shown>{last.user}</Shown> in <Shown>{last.thread_id}</Shown>, approved by{" "}
          <Shown>{last.decision?.by ?? "?"}</Shown> <Time at={last.decision?.at ?? last.created_at} />.
        </p>
      )}
      {before.isSuccess && last === undefined && <p className="hint">No call of this tool was approved before.</p>}
      {before.isError && <Failure error={before.error} what="The last approved call cannot be shown" />}
      {r.arguments === undefined ? <p className="hint">It has no arguments.</p> : <Arguments now={r.arguments} {...(last?.arguments !== undefined && compare && !equal ? { before: last.arguments } : {})} />}
      {isCut(r.arguments) ? (
        <p className="failure">
          <strong>Not all of it is shown</strong>
          <span>Only the beginning of {bytes(r.arguments.bytes)} of arguments is kept for people to see.</span>
        </p>
      ) : (
        <p className="hint num">
          {bytes(r.bytes)} as sent, with *** in place of values whose names tell of a secret. sha256 <code>{r.args_hash.slice(0, 16)}…</code>
        </p>
      )}
      {r.annotations !== undefined && (
        <>
          <h3>What the server says of the tool</h3>
          <Arguments now={r.annotations} />
          <p className="hint">Hints of the MCP server: do not trust them.</p>
        </>
      )}
      {r.record !== undefined && (
        <p className="hint">
          <Link to="/audit" search={{ record: r.record }}>
            In the audit log
          </Link>
        </p>
      )}
    </div>
  );
}

/** How it was decided, or what to decide with. What another person decided meanwhile takes the place of the buttons. */
function Outcome({ r, decides }: { r: Request; decides: boolean }) {
  const known = useQueryClient();
  const [reason, setReason] = useState("");
  const said = useRef<HTMLParagraphElement>(null);
  const act = useMutation({
    mutationFn: (d: Decision) => decide(r.id, d),
    onSuccess: (after) => known.setQueryData(["approvals", "one", r.id], (old: Request | undefined) => ({ ...old, ...after, arguments: old?.arguments ?? after.arguments })),
    onSettled: () => known.invalidateQueries({ queryKey: ["approvals"] }),
  });
  const first = act.error instanceof SkerryError && act.error.status === 409;
  const over = r.state !== "pending";
  // The buttons are gone, so the focus goes to what came of them.
  useEffect(() => {
    if (over && (act.isSuccess || first)) said.current?.focus();
  }, [over, act.isSuccess, first]);
  const decision = r.decision;
  if (over) {
    return (
      <div className={`verdict verdict-${r.state}`}>
        {first && <strong>Another decision was first. Yours changed nothing.</strong>}
        <p ref={said} tabIndex={-1}>
          {decision === undefined ? (
            r.state === "expired" ? (
              "No decision came in time: the call was denied."
            ) : (
              "The call is over: its exec ended, or its caller went away."
            )
          ) : (
            <>
              {r.state === "denied" ? "Denied" : "Approved"} by <Shown>{decision.by}</Shown>
              {decision.how === "webhook" ? " (webhook)" : ""} <Time at={decision.at} />
              {r.state !== "denied" && decision.scope !== undefined && `, for ${scopes[decision.scope]}`}.
              {r.state === "expired" && " No call used it."}
            </>
          )}
        </p>
        {decision?.reason !== undefined && decision.reason !== "" && (
          <p className="verdict-why">
            <Shown>{decision.reason}</Shown>
          </p>
        )}
      </div>
    );
  }
  if (!decides) return null;
  const give = (d: Decision) => act.mutate({ ...d, ...(reason.trim() === "" ? {} : { reason: reason.trim() }) });
  return (
    <div className="decide" role="group" aria-label="Decide">
      <div className="line">
        <Button kind="primary" isDisabled={act.isPending} onPress={() => give({ decision: "approve", scope: "once" })}>
          Approve once
        </Button>
        <Button isDisabled={act.isPending} onPress={() => give({ decision: "approve", scope: "arguments" })}>
          For these arguments
        </Button>
        <Button isDisabled={act.isPending} onPress={() => give({ decision: "approve", scope: "thread" })}>
          For the thread
        </Button>
      </div>
      <div className="line decide-deny">
        <Field label="Why; the agent reads the reason of a denial" value={reason} onChange={setReason} maxLength={256} />
        <Button kind="danger" isDisabled={act.isPending} onPress={() => give({ decision: "deny" })}>
          Deny
        </Button>
      </div>
      <p className="hint">The last two approvals hold until the thread is deleted: for {scopes.arguments}, or for {scopes.thread}, whatever its arguments.</p>
      {act.isError && !first && <Failure error={act.error} what="It could not be decided" />}
    </div>
  );
}
