import { State } from "../../ui/State";

const tones = { ready: "good", idle: "none", failed: "bad", needs_login: "idle", unavailable: "bad", off: "none" } as const;
const words: Record<string, string> = { needs_login: "needs a login", off: "switched off", idle: "not connected" };

export function ServerState({ state }: { state: string }) {
  return <State name={state} label={words[state] ?? state} tone={tones[state as keyof typeof tones] ?? "none"} />;
}
