import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { stderrBytes, stdoutBytes, type ExecInfo, type ExecResult } from "@skerry/client";
import { useCallback, type ReactNode } from "react";
import { Button } from "../../ui/Button";
import { Failure } from "../../ui/Failure";
import { bytes, duration, Time } from "../../ui/format";
import { Skeleton } from "../../ui/Skeleton";
import { Outcome } from "../../ui/State";
import { LiveOutput, Output } from "./Output";
import type { Owned } from "./owned";

interface Props {
  thread: string;
  owned: Owned;
  exec: string;
  info: ExecInfo | undefined;
}

export function ExecDetail({ thread, owned, exec, info }: Props) {
  const known = useQueryClient();
  const result = useQuery({ queryKey: [...owned.known, "exec", exec], queryFn: ({ signal }) => owned.thread.execById(exec).result({ signal }), staleTime: Infinity });
  const kill = useMutation({ mutationFn: () => owned.thread.execById(exec).kill() });
  const ended = useCallback(
    (r: ExecResult) => {
      known.setQueryData([...owned.known, "exec", exec], r);
      void known.invalidateQueries({ queryKey: [...owned.known, "execs"] });
    },
    [known, owned, exec],
  );
  const r = result.data;
  return (
    <section className="split-detail" aria-label="One exec">
      <div className="detail-head">
        <h2 className="mono">
          <bdi>{info?.description || info?.subject || exec}</bdi>
        </h2>
        <div className="line">
          {r?.status === "running" && (
            <Button kind="danger" isDisabled={kill.isPending} onPress={() => kill.mutate()}>
              Kill
            </Button>
          )}
          <Link to="/threads/$thread" params={{ thread }} search={{}} className="button button-quiet" aria-label="Close the exec">
            Close
          </Link>
        </div>
      </div>
      {kill.isError && <Failure error={kill.error} what="The exec cannot be killed" />}
      {result.isPending && <Skeleton rows={4} label="The exec is loading" />}
      {result.isError && <Failure error={result.error} what="The exec cannot be shown" />}
      {r !== undefined && (
        <>
          <dl className="facts">
            <Fact name="Outcome">
              <Outcome status={r.status} code={r.exit_code} />
            </Fact>
            {info !== undefined && (
              <Fact name="Started">
                <Time at={info.started_at} />
              </Fact>
            )}
            {r.status !== "running" && (
              <>
                <Fact name="Took">
                  <span className="num">{duration(r.duration_ms)}</span>
                </Fact>
                <Fact name="CPU">
                  <span className="num">{duration(r.usage.cpu_ms)}</span>
                </Fact>
                <Fact name="Memory">
                  <span className="num">{bytes(r.usage.max_rss_bytes)}</span>
                </Fact>
              </>
            )}
          </dl>
          {r.detail !== undefined && r.detail !== "" && <p className="note">{r.detail}</p>}
          {r.status === "running" ? <LiveOutput thread={owned.thread} exec={exec} onEnd={ended} /> : <Result thread={thread} r={r} />}
        </>
      )}
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

function Result({ thread, r }: { thread: string; r: ExecResult }) {
  const decoder = new TextDecoder();
  const parts = [
    { stream: "stdout" as const, text: decoder.decode(stdoutBytes(r)) },
    { stream: "stderr" as const, text: decoder.decode(stderrBytes(r)) },
  ].filter((p) => p.text !== "");
  return (
    <>
      <Output label="Output of the exec" parts={parts} />
      {r.truncated && (
        <p className="note">
          The output is cut.
          {r.stdout_path !== null && (
            <>
              {" "}
              <Link to="/threads/$thread/files" params={{ thread }} search={{ path: r.stdout_path }}>
                All of stdout
              </Link>
            </>
          )}
          {r.stderr_path !== null && (
            <>
              {" "}
              <Link to="/threads/$thread/files" params={{ thread }} search={{ path: r.stderr_path }}>
                All of stderr
              </Link>
            </>
          )}
        </p>
      )}
      {(r.tools_called?.length ?? 0) > 0 && (
        <>
          <h3>Tools called</h3>
          <ul className="plain mono">
            {r.tools_called?.map((t, i) => (
              <li key={i}>
                <bdi>{t.tool}</bdi> <span className="muted num">{`${t.status}, ${duration(t.ms)}`}</span>
              </li>
            ))}
          </ul>
        </>
      )}
      {r.files.length > 0 && (
        <>
          <h3>Files changed</h3>
          <ul className="plain mono">
            {r.files.map((f) => (
              <li key={f.path}>
                <Link to="/threads/$thread/files" params={{ thread }} search={{ path: f.path }}>
                  <bdi>{f.path}</bdi>
                </Link>{" "}
                <span className="muted num">{f.change === "deleted" ? "deleted" : `${f.change}, ${bytes(f.bytes)}`}</span>
              </li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}
