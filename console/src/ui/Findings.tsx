import type { Finding } from "@skerry/client";
import { Shown } from "./Shown";
import { State } from "./State";
import "./parts.css";

const tones = { error: "bad", warning: "idle", info: "none" } as const;
const order = ["error", "warning", "info"];
const most = 300;

function toneOf(severity: string): "bad" | "idle" | "none" {
  return severity === "error" || severity === "warning" ? tones[severity] : "none";
}

/** How many there are, worst first: "2 errors, 1 warning". */
export function counted(list: readonly Finding[]): string {
  const parts = order.flatMap((s) => {
    const n = list.filter((f) => f.severity === s).length;
    return n === 0 ? [] : [s === "info" ? `${n} info` : `${n} ${s}${n === 1 ? "" : "s"}`];
  });
  return parts.join(", ");
}

/** How many of the worst kind there are, for a row of a table. */
export function Worst({ list }: { list: readonly Finding[] }) {
  const worst = order.find((s) => list.some((f) => f.severity === s));
  return worst === undefined ? <span className="muted">none</span> : <State name={worst} label={counted(list.filter((f) => f.severity === worst))} tone={toneOf(worst)} />;
}

/** What checks noticed, worst first. */
export function Findings({ list, none = "Nothing was found." }: { list: readonly Finding[]; none?: string }) {
  if (list.length === 0) return <p className="hint">{none}</p>;
  const sorted = list.toSorted((a, b) => order.indexOf(a.severity) - order.indexOf(b.severity));
  return (
    <>
      <ul className="findings" aria-label="Findings">
        {sorted.slice(0, most).map((f, i) => (
          <li key={i}>
            <div className="line">
              <State name={f.severity} tone={toneOf(f.severity)} />
              <code>
                <Shown>{f.rule}</Shown>
              </code>
              {f.file !== undefined && (
                <span className="hint mono">
                  <Shown>{f.line === undefined ? f.file : `${f.file}:${f.line}`}</Shown>
                </span>
              )}
            </div>
            <p>
              <Shown>{f.message}</Shown>
            </p>
          </li>
        ))}
      </ul>
      {list.length > most && <p className="note">There are {list.length - most} more.</p>}
    </>
  );
}
