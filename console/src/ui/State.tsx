type Tone = "good" | "busy" | "idle" | "bad" | "none";

const tones: Record<string, Tone> = {
  running: "good",
  starting: "busy",
  stopping: "busy",
  paused: "idle",
  hibernated: "idle",
  lost: "bad",
  exited: "none",
  ok: "good",
  timeout: "bad",
  oom: "bad",
  killed: "bad",
};

/** A state as a word, with a dot for the eye. */
export function State({ name, label, tone }: { name: string; label?: string; tone?: Tone }) {
  return (
    <span className={`state state-${tone ?? tones[name] ?? "none"}`}>
      <i aria-hidden="true" />
      {label ?? name}
    </span>
  );
}

/** How an exec went. */
export function Outcome({ status, code }: { status: string; code: number | null | undefined }) {
  if (status !== "exited") return <State name={status} {...(status === "running" ? { tone: "busy" as const } : {})} />;
  return code === 0 ? <State name="ok" label="exit 0" /> : <State name="exited" label={`exit ${code ?? "?"}`} tone="bad" />;
}
