import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { SkerryError, type CodeContext, type ExecResult } from "@skerry/client";
import { useEffect, useRef, useState } from "react";
import { Area } from "../../../ui/Area";
import { Button } from "../../../ui/Button";
import { Confirm } from "../../../ui/Confirm";
import { Elapsed } from "../../../ui/Elapsed";
import { Fact } from "../../../ui/Fact";
import { Failure } from "../../../ui/Failure";
import { bytes, duration, Time } from "../../../ui/format";
import { Rich } from "../../../ui/Rich";
import { Outcome } from "../../../ui/State";
import { add, Output, type Part } from "../Output";
import type { Owned } from "../owned";
import { Standing } from "./Contexts";

const longestRun = 120; // seconds
const mostCode = 1 << 20;
const kept = "application/vnd.skerry.file+json";

interface Props {
  owned: Owned;
  info: CodeContext;
  onEnd: () => void;
}

/** One context: how it is, what is done to it, and code that is run in it. */
export function ContextDetail({ owned, info, onEnd }: Props) {
  const known = useQueryClient();
  const { thread } = owned;
  const renew = () => known.invalidateQueries({ queryKey: [...owned.known, "contexts"] });
  const act = useMutation({
    mutationFn: async (what: "interrupt" | "restart" | "delete") => {
      const context = (await thread.contexts()).find((c) => c.id === info.context_id);
      if (context === undefined) return;
      await context[what]();
    },
    onSuccess: (_, what) => (what === "delete" ? onEnd() : undefined),
    onSettled: renew,
  });
  return (
    <section className="split-detail scroll" aria-label="One context">
      <div className="detail-head">
        <h2>{info.language}</h2>
        <div className="line">
          {info.state === "busy" && (
            <Button isDisabled={act.isPending} onPress={() => act.mutate("interrupt")}>
              Interrupt
            </Button>
          )}
          <Confirm label="Restart…" title="Restart the context?" yes="Restart" isDisabled={act.isPending} onConfirm={() => act.mutate("restart")}>
            <p>Its variables are gone then, and a run in it is killed.</p>
          </Confirm>
          <Confirm label="End…" title="End the context?" yes="End context" isDisabled={act.isPending} onConfirm={() => act.mutate("delete")}>
            <p>Its variables are gone then, and all that it started ends.</p>
          </Confirm>
          <Link to="/threads/$thread/contexts" params={{ thread: thread.id }} search={{}} className="button button-quiet" aria-label="Close the context">
            Close
          </Link>
        </div>
      </div>
      {act.isError && <Failure error={act.error} what="The context cannot be changed" />}
      <dl className="facts">
        <Fact name="State">
          <Standing info={info} />
        </Fact>
        <Fact name="Folder">
          <bdi className="mono">{info.cwd}</bdi>
        </Fact>
        <Fact name="Runs">
          <span className="num">{info.runs}</span>
        </Fact>
        <Fact name="Started">
          <Time at={info.created_at} />
        </Fact>
        {info.exec_id !== undefined && (
          <Fact name="Runs now">
            <Link to="/threads/$thread" params={{ thread: thread.id }} search={{ exec: info.exec_id }}>
              its exec
            </Link>
          </Fact>
        )}
      </dl>
      {info.detail !== undefined && info.detail !== "" && <p className="note">{info.detail}</p>}
      <Run owned={owned} info={info} blocked={act.isPending || info.state === "lost"} onRun={renew} />
    </section>
  );
}

/** A field for code, and what the last run of it printed and displayed. */
function Run({ owned, info, blocked, onRun }: { owned: Owned; info: CodeContext; blocked: boolean; onRun: () => unknown }) {
  const [code, setCode] = useState("");
  const [parts, setParts] = useState<Part[]>([]);
  const [result, setResult] = useState<ExecResult>();
  const stop = useRef<AbortController>(undefined);
  useEffect(() => () => stop.current?.abort(), []);
  const run = useMutation({
    mutationFn: async () => {
      setParts([]);
      setResult(undefined);
      stop.current = new AbortController();
      const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
      for await (const e of owned.thread.codeStream({ code, context_id: info.context_id, timeout: longestRun }, { signal: stop.current.signal })) {
        if (e.type === "started") void onRun();
        else if (e.type === "stdout" || e.type === "stderr") {
          const text = decoders[e.type].decode(e.data, { stream: true });
          setParts((old) => add(old, e.type, text));
        } else if (e.type === "exit") setResult(e.result);
      }
    },
    onSettled: onRun,
  });
  const begin = () => {
    if (code.trim() !== "" && !run.isPending && !blocked) run.mutate();
  };
  return (
    <>
      <div
        onKeyDown={(e) => {
          if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) {
            e.preventDefault();
            begin();
          }
        }}
      >
        <Area label="Code" value={code} onChange={setCode} rows={6} maxLength={mostCode} hint="Ctrl Enter runs it. It is an exec of yours, with the thread's tools." />
      </div>
      <div className="line">
        <Button kind="primary" isDisabled={run.isPending || code.trim() === "" || blocked} onPress={begin}>
          {run.isPending ? "Running…" : "Run"}
        </Button>
        {run.isPending && <Elapsed />}
        {result !== undefined && (
          <span className="line" role="status">
            <Outcome status={result.status} code={result.exit_code} /> <span className="num muted">{duration(result.duration_ms)}</span>
          </span>
        )}
      </div>
      {run.isError && <Failure error={run.error} what={run.error instanceof SkerryError && run.error.status === 409 ? "Something runs in it already" : "The code cannot be run"} />}
      {(run.isPending || parts.length > 0) && <Output label="Output of the run" parts={parts} running={run.isPending} />}
      {result !== undefined && <Results owned={owned} result={result} />}
    </>
  );
}

interface Kept {
  mime: string;
  path: string;
  bytes: number;
}

function Results({ owned, result }: { owned: Owned; result: ExecResult }) {
  const results = result.results ?? [];
  return (
    <>
      {result.detail !== undefined && result.detail !== "" && <p className="note">{result.detail}</p>}
      {results.length > 0 && (
        <ol className="plain results" aria-label="Results">
          {results.map((data, i) => (
            <li key={i}>{Array.isArray(data[kept]) ? <Files owned={owned} files={data[kept] as Kept[]} /> : <Rich data={data} label={`Result ${i + 1}`} />}</li>
          ))}
        </ol>
      )}
      {(result.results_left_out ?? 0) > 0 && <p className="note num">{result.results_left_out} more results are files of the thread.</p>}
    </>
  );
}

/** Results that are too large for an answer. */
function Files({ owned, files }: { owned: Owned; files: Kept[] }) {
  return (
    <ul className="plain">
      {files.map((f) => (
        <li key={f.path}>
          <Link to="/threads/$thread/files" params={{ thread: owned.thread.id }} search={{ path: f.path }}>
            <bdi>{f.path}</bdi>
          </Link>{" "}
          <span className="muted num">
            {f.mime}, {bytes(f.bytes)}
          </span>
        </li>
      ))}
    </ul>
  );
}
