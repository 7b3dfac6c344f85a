import { State } from "../../ui/State";
import { outcomeOf, type Node } from "./records";

const bad = new Set(["denied", "error", "timeout", "oom", "killed", "lost", "expired", "refused"]);
const good = new Set(["ok", "exited", "approved"]);

/** How something ended, as the record says. */
export function Ended({ node }: { node: Node }) {
  const outcome = outcomeOf(node);
  if (outcome === "") return <span className="muted">–</span>;
  if (outcome === "…") return <State name="running" label="no end yet" tone="busy" />;
  return <State name={outcome} tone={bad.has(outcome) ? "bad" : good.has(outcome) ? "good" : "none"} />;
}
