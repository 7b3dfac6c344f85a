import { useMutation } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useRef, useState } from "react";
import { Area } from "../../ui/Area";
import { Button } from "../../ui/Button";
import { pretty } from "../../ui/exact";
import { Failure } from "../../ui/Failure";
import { bytes, duration } from "../../ui/format";
import { Pixels } from "../../ui/Pixels";
import { Shown } from "../../ui/Shown";
import { State } from "../../ui/State";
import { callTool, exactBody, isObject, written, type Result, type ServerTool } from "./data";
import { sample, Schema } from "./Schema";

/** Reads what was typed. An error is in words for a person. */
function inputOf(text: string): { input?: unknown; error?: string } {
  try {
    const input = exactBody(text.trim() === "" ? "{}" : text);
    return isObject(input) ? { input } : { error: "The input has to be an object: {…}" };
  } catch (err) {
    return { error: err instanceof Error ? err.message : String(err) };
  }
}

export function TryOut({ thread, tool }: { thread: string; tool: ServerTool }) {
  const [text, setText] = useState(() => pretty(sample(tool.parameters)));
  const [error, setError] = useState<string>();
  const running = useRef<AbortController>(undefined);
  const call = useMutation({
    mutationFn: (input: unknown) => {
      running.current = new AbortController();
      return callTool(thread, tool, input, running.current.signal);
    },
  });
  const run = () => {
    const { input, error: wrong } = inputOf(text);
    setError(wrong);
    if (wrong === undefined) call.mutate(input);
  };
  const stopped = call.error instanceof DOMException && call.error.name === "AbortError";
  return (
    <>
      <Area label="Input" value={text} onChange={setText} rows={Math.min(18, Math.max(4, text.split("\n").length + 1))} error={error} maxLength={1 << 20} />
      <details className="folded">
        <summary>Parameters</summary>
        <Schema schema={tool.parameters} label="Parameters" none="It takes none." />
      </details>
      <div className="line">
        <Button kind="primary" isPending={call.isPending} isDisabled={tool.quarantined === true} onPress={run}>
          {call.isPending ? "Running…" : "Call the tool"}
        </Button>
        {call.isPending && <Button onPress={() => running.current?.abort()}>Stop waiting</Button>}
        <span className="hint">
          It runs in the thread{" "}
          <Link to="/threads/$thread" params={{ thread }}>
            {thread}
          </Link>
          , under the rules of the policy, and is in the audit log.
        </span>
      </div>
      {call.isPending && <p className="note">A rule may want a person to approve the call first: it waits for ten minutes at most.</p>}
      {stopped && <p className="note">You stopped waiting. The tool may have run.</p>}
      {call.isError && !stopped && <Failure error={call.error} what="The tool was not called, or did not answer" />}
      {call.data !== undefined && <Answer thread={thread} result={call.data} />}
    </>
  );
}

function Answer({ thread, result }: { thread: string; result: Result }) {
  const blocks = result.content?.filter(isObject);
  return (
    <section className="answer" aria-label="Result">
      <div className="line" role="status">
        {result.is_error ? <State name="error" label="the tool says: error" tone="bad" /> : <State name="ok" label="it answered" />}
        <span className="hint num">
          {duration(result.ms)} · call <code>{result.call_id}</code>
        </span>
      </div>
      {result.file !== undefined && (
        <p className="note">
          All {bytes(result.file.bytes)} of it are in the file{" "}
          <Link to="/threads/$thread/files" params={{ thread }} search={{ path: result.file.path }}>
            <Shown>{result.file.path}</Shown>
          </Link>
          .
        </p>
      )}
      {blocks === undefined || blocks.length === 0 ? <Text label="Result" text={typeof result.result === "string" ? result.result : written(result.result)} /> : blocks.slice(0, 100).map((b, i) => <Block key={i} block={b} n={i + 1} />)}
      {result.structured_content !== undefined && (
        <details className="folded">
          <summary>Structured</summary>
          <Text label="Structured result" text={written(result.structured_content)} />
        </details>
      )}
    </section>
  );
}

const mostText = 256 << 10;

function Text({ label, text }: { label: string; text: string }) {
  return (
    <>
      <pre className="output short" tabIndex={0} role="region" aria-label={label}>
        {text === "" ? <span className="muted">It is empty</span> : <Shown>{text.slice(0, mostText)}</Shown>}
      </pre>
      {text.length > mostText && <p className="note">Only the first {bytes(mostText)} are shown.</p>}
    </>
  );
}

/** One block of content, as MCP has it. What is neither text nor pixels is told of, and not shown. */
function Block({ block, n }: { block: Record<string, unknown>; n: number }) {
  const { type, text, data, resource } = block;
  if (type === "text" && typeof text === "string") return <Text label={`Text ${n} of the result`} text={text} />;
  if (type === "image" && typeof data === "string") return <Pixels base64={data} name={`Image ${n} of the result`} />;
  if (type === "resource" && isObject(resource) && typeof resource["text"] === "string") {
    return (
      <>
        <p className="hint">
          Resource <Shown>{String(resource["uri"] ?? "")}</Shown>
        </p>
        <Text label={`Resource ${n} of the result`} text={resource["text"]} />
      </>
    );
  }
  return <Text label={`Part ${n} of the result`} text={written(shortened(block))} />;
}

/** Long base64 says nothing to a reader. */
function shortened(v: unknown, depth = 0): unknown {
  if (typeof v === "string") return v.length > 2_000 ? `${v.slice(0, 200)}… (${v.length} characters)` : v;
  if (Array.isArray(v)) return depth > 8 ? "…" : v.map((one) => shortened(one, depth + 1));
  return isObject(v) ? (depth > 8 ? "…" : Object.fromEntries(Object.entries(v).map(([k, one]) => [k, shortened(one, depth + 1)]))) : v;
}
