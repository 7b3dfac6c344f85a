import { type ExecResult, type Thread } from "@skerry/client";
import { useEffect, useLayoutEffect, useRef, useState } from "react";
import { session } from "../../session/session";
import { Failure } from "../../ui/Failure";

export interface Part {
  stream: "stdout" | "stderr";
  text: string;
}

// Of what is shown while it runs: the page stays quick whatever a program prints.
const mostShown = 512 * 1024;

const sequences = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[@-Z\\-_])/g; // eslint-disable-line no-control-regex
const controls = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f]/g; // eslint-disable-line no-control-regex

/** The text of a program without what steers terminals. React writes it as text, so that it can be nothing else. */
export function plain(text: string): string {
  return text.replace(sequences, "").replace(/\r\n?/g, "\n").replace(controls, "");
}

export function Output({ parts, label, running = false }: { parts: Part[]; label: string; running?: boolean }) {
  const box = useRef<HTMLPreElement>(null);
  const atEnd = useRef(true);
  useLayoutEffect(() => {
    const b = box.current;
    if (running && b !== null && atEnd.current) b.scrollTop = b.scrollHeight;
  });
  return (
    <pre
      ref={box}
      className="output"
      tabIndex={0}
      role="region"
      aria-label={label}
      aria-busy={running}
      onScroll={(e) => {
        const b = e.currentTarget;
        atEnd.current = b.scrollHeight - b.scrollTop - b.clientHeight < 24;
      }}
    >
      {parts.length === 0 && <span className="muted">{running ? "Nothing printed yet" : "It printed nothing"}</span>}
      {parts.map((p, i) => (
        <bdi key={i} className={p.stream}>
          {plain(p.text)}
        </bdi>
      ))}
    </pre>
  );
}

/** Adds a text, and drops the oldest beyond what is shown. */
export function add(parts: Part[], stream: Part["stream"], text: string): Part[] {
  const last = parts.at(-1);
  const out = last?.stream === stream ? [...parts.slice(0, -1), { stream, text: last.text + text }] : [...parts, { stream, text }];
  let size = out.reduce((n, p) => n + p.text.length, 0);
  while (size > mostShown) {
    const [first, ...rest] = out;
    if (first === undefined) break;
    const over = Math.min(size - mostShown, first.text.length);
    size -= over;
    if (over === first.text.length) out.splice(0, 1);
    else out.splice(0, 1, { ...first, text: first.text.slice(over) });
    if (rest.length === 0 && out.length === 0) break;
  }
  return out;
}

/** What an exec prints, as it prints it. */
export function LiveOutput({ thread, exec, onEnd }: { thread: Thread; exec: string; onEnd: (r: ExecResult) => void }) {
  const [parts, setParts] = useState<Part[]>([]);
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    const stop = new AbortController();
    const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
    let came: Part[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const show = () => {
      timer = undefined;
      const now = came;
      came = [];
      setParts((old) => now.reduce((all, p) => add(all, p.stream, p.text), old));
    };
    setParts([]);
    setError(undefined);
    let last = 0;
    const follow = async (): Promise<void> => {
      try {
        for await (const e of thread.execById(exec).events(last, { signal: stop.signal })) {
          last = e.n;
          if (e.type === "stdout" || e.type === "stderr") {
            came.push({ stream: e.type, text: decoders[e.type].decode(e.data, { stream: true }) });
            timer ??= setTimeout(show, 50);
          } else if (e.type === "exit") onEnd(e.result);
        }
      } catch (err) {
        if (session.outlives(err)) return follow();
        if (!stop.signal.aborted) setError(err);
      }
    };
    void follow();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [thread, exec, onEnd]);
  return (
    <>
      <Output label="Output of the exec, as it comes" parts={parts} running />
      {error !== undefined && <Failure error={error} what="The output does not come any more" />}
    </>
  );
}
