import { useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { session } from "../../session/session";

/** Asks anew for what the thread's stream of events says has changed. */
export function useThreadEvents(thread: string, enabled: boolean): void {
  const known = useQueryClient();
  useEffect(() => {
    if (!enabled) return;
    const stop = new AbortController();
    const renew = (part: string) => void known.invalidateQueries({ queryKey: ["thread", thread, part] });
    void (async () => {
      try {
        for await (const event of session.client.thread(thread).events("", { signal: stop.signal })) {
          if (event.kind === "exec.started" || event.kind === "exec.ended") {
            renew("execs");
            renew("info");
          } else if (event.kind === "files.changed") renew("files");
          else if (event.kind === "started" || event.kind === "reset") void known.invalidateQueries({ queryKey: ["thread", thread] });
        }
      } catch {
        // The page's own questions say what is wrong; without events, it is only less quick.
      }
    })();
    return () => stop.abort();
  }, [thread, enabled, known]);
}
