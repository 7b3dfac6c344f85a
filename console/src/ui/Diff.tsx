import { diffLines } from "diff";
import { useMemo } from "react";
import { Shown } from "./Shown";
import "./parts.css";

// More lines take the library, and the reader, too long.
const most = 20_000;

/** Which lines of a text differ from those of the one before. Signs say it, and colours too. */
export function Diff({ before, after, label }: { before: string; after: string; label: string }) {
  const parts = useMemo(() => diffLines(before, after, { maxEditLength: 4_000, timeout: 1_000 }), [before, after]);
  if (parts === undefined) return <p className="note">The texts differ too much to compare them line by line.</p>;
  const lines = parts.flatMap((p) =>
    p.value
      .replace(/\n$/, "")
      .split("\n")
      .map((text) => ({ sign: p.added ? "+" : p.removed ? "−" : " ", text })),
  );
  return (
    <pre className="output diff" tabIndex={0} role="region" aria-label={label}>
      {lines.slice(0, most).map((l, i) => (
        <Line key={i} {...l} />
      ))}
    </pre>
  );
}

function Line({ sign, text }: { sign: string; text: string }) {
  const inner = (
    <>
      <span className="diff-sign">{sign}</span> <Shown>{text}</Shown>
    </>
  );
  return sign === "+" ? <ins>{inner}</ins> : sign === "−" ? <del>{inner}</del> : <span className="diff-same">{inner}</span>;
}

/** A diff that the server made: its lines begin with - and +. */
export function Written({ diff, label }: { diff: string; label: string }) {
  return (
    <pre className="output diff" tabIndex={0} role="region" aria-label={label}>
      {diff.split("\n").map((l, i) => (
        <Line key={i} sign={l.startsWith("+ ") ? "+" : l.startsWith("- ") ? "−" : " "} text={/^[+-] /.test(l) ? l.slice(2) : l} />
      ))}
    </pre>
  );
}
