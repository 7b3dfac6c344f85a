import { useMutation, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { SkerryError } from "@skerry/client";
import { session } from "../../session/session";
import { Button } from "../../ui/Button";
import { Failure } from "../../ui/Failure";
import { moment } from "../../ui/Plot";
import { Shown } from "../../ui/Shown";
import { Skeleton } from "../../ui/Skeleton";
import { State } from "../../ui/State";

interface Head {
  writer: string;
  seq: number;
  hash: string;
  time: string;
  signer?: string;
}

interface Writer extends Head {
  from?: number;
  signed_seq: number;
  signed_at?: string;
  signed_with?: string;
  unchecked?: number;
  overdue?: boolean;
}

interface Verification {
  ok: boolean;
  records: number;
  first_bad?: { writer: string; seq: number; id?: string; segment?: string; line?: number; reason: string; through?: number; detail?: string };
  writers?: Writer[];
}

const reasons: Record<string, string> = {
  changed: "It was changed: its hash does not match.",
  removed: "It is missing, and later records exist.",
  reordered: "It stands where an earlier one belongs.",
  inserted: "It does not belong there: a copy, another writer's, or a forgery.",
  rechained: "All hashes are right, but a signature or a head that is kept elsewhere differs.",
  lost: "A head that is kept elsewhere has it, and the log ends before.",
};

const at = (t: string) => moment(Date.parse(t) / 1000);

/** Whether the log is as it was written: chain, signatures, and what is kept elsewhere. */
export function Proof() {
  const heads = useQuery({
    queryKey: ["audit", "checkpoint"],
    queryFn: ({ signal }) => session.client.call<{ items: Head[] }>({ method: "GET", path: "/api/audit/checkpoint" }, { signal }),
  });
  // It reads the whole log.
  const verify = useMutation({ mutationFn: () => session.client.call<Verification>({ method: "POST", path: "/api/audit/verify", body: {} }, { timeoutMs: 3_600_000 }) });
  const none = heads.error instanceof SkerryError && heads.error.status === 501;
  return (
    <section className="proof" aria-label="Verification">
      <div className="detail-head">
        <h2>Is the log as it was written?</h2>
        <Button kind="primary" isDisabled={verify.isPending || none} onPress={() => verify.mutate()}>
          {verify.isPending ? "Verifying…" : verify.isSuccess ? "Verify again" : "Verify now"}
        </Button>
      </div>
      {none && <p className="note">This server does not verify its audit log.</p>}
      {heads.isPending && <Skeleton rows={1} label="The last checkpoint is loading" />}
      {heads.isError && !none && <Failure error={heads.error} what="The last checkpoint cannot be shown" />}
      {heads.data !== undefined && (
        <>
          <h3>Last checkpoint</h3>
          {heads.data.items.length === 0 && <p className="hint">The log is not signed, or nothing is signed yet.</p>}
          {heads.data.items.length > 0 && (
            <ul className="plain num">
              {heads.data.items.map((h) => (
                <li key={h.writer}>
                  <code>{h.writer}</code> record {h.seq.toLocaleString()}, signed {at(h.time)}
                  {h.signer !== undefined && (
                    <>
                      {" "}
                      with <code>{h.signer}</code>
                    </>
                  )}
                  , hash <code title={h.hash}>{h.hash.slice(0, 16)}…</code>
                </li>
              ))}
            </ul>
          )}
          <p className="hint">Keep a checkpoint on another machine: it shows later whether the log was cut or written anew before it.</p>
        </>
      )}
      <div role="status">
        {verify.data !== undefined && <Result v={verify.data} />}
      </div>
      {verify.isError && <Failure error={verify.error} what="The log could not be verified" />}
    </section>
  );
}

function Result({ v }: { v: Verification }) {
  const bad = v.first_bad;
  return (
    <div className={v.ok ? "proof-result" : "failure"}>
      <State name={v.ok ? "ok" : "error"} tone={v.ok ? "good" : "bad"} label={v.ok ? `All ${v.records.toLocaleString()} records are as they were written` : "A record is not as it was written"} />
      {bad !== undefined && (
        <p>
          Record {bad.seq.toLocaleString()}
          {bad.through !== undefined && bad.through > bad.seq ? ` to ${bad.through.toLocaleString()}` : ""} of <code>{bad.writer}</code>: {reasons[bad.reason] ?? bad.reason}{" "}
          {bad.detail !== undefined && <Shown>{bad.detail}</Shown>}
          {bad.segment !== undefined && (
            <>
              {" "}
              In <code>{bad.segment}</code>, line {bad.line ?? "?"}.
            </>
          )}
          {bad.id !== undefined && bad.id !== "" && (
            <>
              {" "}
              <Link to="/audit" search={(s) => ({ ...s, record: bad.id ?? "" })}>
                Show it
              </Link>
            </>
          )}
        </p>
      )}
      <h3>What this covers</h3>
      <ul className="plain num">
        {v.writers?.map((w) => (
          <li key={w.writer}>
            <code>{w.writer}</code>: records {(w.from ?? 1).toLocaleString()} to {w.seq.toLocaleString()} follow each other
            {w.signed_seq > 0 ? `; signed to ${w.signed_seq.toLocaleString()}${w.signed_at === undefined ? "" : `, ${at(w.signed_at)}`}` : "; none of them is signed"}
            {w.signed_with !== undefined && (
              <>
                {" "}
                with <code>{w.signed_with}</code>
              </>
            )}
            .{w.from !== undefined && w.from > 1 ? " Earlier ones are archived: verify the archive with skerry audit verify --segments." : ""}
            {(w.unchecked ?? 0) > 0 ? ` ${w.unchecked} signatures are of keys that this server does not have.` : ""}
            {w.overdue === true && <strong className="bad"> The end has been unsigned for too long.</strong>}
          </li>
        ))}
      </ul>
      <p className="hint">
        The records on this server&apos;s disk, against their hashes, the signatures, and the heads that are kept beside the key and in Redis. Records of other servers and of the archive are not among them. Who has
        root on this host can do more than that shows.
      </p>
    </div>
  );
}
