import { diffLines } from "diff";
import { useMemo } from "react";
import { pretty } from "../../ui/exact";
import { Shown } from "../../ui/Shown";

/** What a call has for arguments, or how they differ from those of an earlier one. Signs say it, and colours too. */
export function Arguments({ now, before }: { now: unknown; before?: unknown }) {
  const text = pretty(now);
  const parts = useMemo(() => (before === undefined ? [] : diffLines(pretty(before), text)), [before, text]);
  if (before === undefined) {
    return (
      <pre className="output arguments" tabIndex={0} role="region" aria-label="Arguments">
        <Shown>{text}</Shown>
      </pre>
    );
  }
  return (
    <pre className="output arguments" tabIndex={0} role="region" aria-label="Arguments, compared">
      {parts.flatMap((p, i) =>
        p.value
          .replace(/\n$/, "")
          .split("\n")
          .map((line, j) =>
            p.added ? (
              <ins key={`${i}.${j}`}>
                <span className="diff-sign">+</span> <Shown>{line}</Shown>
              </ins>
            ) : p.removed ? (
              <del key={`${i}.${j}`}>
                <span className="diff-sign">−</span> <Shown>{line}</Shown>
              </del>
            ) : (
              <span key={`${i}.${j}`} className="diff-same">
                {"  "}
                <Shown>{line}</Shown>
              </span>
            ),
          ),
      )}
    </pre>
  );
}
