import { Diff } from "../../ui/Diff";
import { pretty } from "../../ui/exact";
import { Shown } from "../../ui/Shown";

/** What a call has for arguments, or how they differ from those of an earlier one. */
export function Arguments({ now, before }: { now: unknown; before?: unknown }) {
  const text = pretty(now);
  if (before !== undefined) return <Diff before={pretty(before)} after={text} label="Arguments, compared" />;
  return (
    <pre className="output arguments" tabIndex={0} role="region" aria-label="Arguments">
      <Shown>{text}</Shown>
    </pre>
  );
}
