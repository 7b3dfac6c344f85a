import { useSyncExternalStore } from "react";
import { session } from "../../session/session";
import { visible } from "../../ui/Shown";
import { listRequests, type Request } from "./requests";

// While they are on, a tab looks for requests whatever page it shows. They are asked for by a button, never by themselves, and
// a tab that is loaded anew has to be asked again.
const every = 5_000;

let timer: ReturnType<typeof setInterval> | undefined;
let known = new Set<string>();
let open: (id: string) => void = () => undefined;
const listeners = new Set<() => void>();

function tell(): void {
  for (const t of listeners) t();
}

function show(r: Request): void {
  const who = `${visible(r.user)} in ${visible(r.thread_id)}`.slice(0, 200);
  const shown = new Notification("A call waits for your approval", { body: `${visible(r.tool).slice(0, 200)}\n${who}`, tag: r.id, icon: "/ui/icon.svg" });
  shown.onclick = () => {
    window.focus();
    open(r.id);
    shown.close();
  };
}

async function look(first: boolean): Promise<void> {
  try {
    const { items } = await listRequests(false, AbortSignal.timeout(10_000));
    if (timer === undefined) return;
    if (!first) for (const r of items.filter((i) => !known.has(i.id)).slice(0, 3)) show(r);
    known = new Set(items.map((i) => i.id));
  } catch {
    // The page itself says what is wrong; the next look may succeed.
  }
}

export const notifications = {
  possible: typeof Notification !== "undefined",
  get on(): boolean {
    return timer !== undefined;
  },
  /** Asks the person, and begins. False: the browser may not show any. */
  async start(go: (id: string) => void): Promise<boolean> {
    if ((await Notification.requestPermission()) !== "granted") return false;
    open = go;
    if (timer === undefined) {
      timer = setInterval(() => void look(false), every);
      await look(true);
    }
    tell();
    return true;
  },
  stop(): void {
    clearInterval(timer);
    timer = undefined;
    known = new Set();
    tell();
  },
};

session.subscribe(() => {
  if (session.state.principal === undefined) notifications.stop();
});

export function useNotifications(): boolean {
  return useSyncExternalStore(
    (t) => {
      listeners.add(t);
      return () => listeners.delete(t);
    },
    () => notifications.on,
  );
}
