import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { session } from "../../session/session";
import type { Owned } from "./owned";

const timelineEveryMs = 1_000;

/** Asks anew for what the thread's stream of events says has changed. Returns whether the stream is open. */
export function useThreadEvents({ thread, known: key }: Owned, enabled: boolean): boolean {
  const known = useQueryClient();
  const [open, setOpen] = useState(false);
  useEffect(() => {
    if (!enabled) return;
    const stop = new AbortController();
    const renew = (part: string) => void known.invalidateQueries({ queryKey: [...key, part] });
    // Many records may come at once, and each look asks for all that are new.
    let timer: ReturnType<typeof setTimeout> | undefined;
    const renewTimeline = () =>
      (timer ??= setTimeout(() => {
        timer = undefined;
        renew("timeline");
      }, timelineEveryMs));
    let last = "";
    const follow = async (): Promise<void> => {
      try {
        for await (const event of thread.events(last, { signal: stop.signal })) {
          last = event.id ?? last;
          if (event.kind === "exec.started" || event.kind === "exec.ended") {
            renew("execs");
            renew("info");
            renew("contexts");
            renewTimeline();
          } else if (event.kind === "files.changed") {
            renew("files");
            renewTimeline();
          } else if (event.kind.startsWith("sandbox.")) renew("info");
          else if (event.kind === "tools.changed" || event.kind === "skills.changed" || event.kind === "prompt.changed") renew("agent");
          else if (event.kind === "started" || event.kind === "reset") {
            setOpen(true);
            void known.invalidateQueries({ queryKey: key });
          }
        }
      } catch (err) {
        if (session.outlives(err)) return follow();
        // The page's own questions say what is wrong; without events, it is only less quick.
      }
      setOpen(false);
    };
    void follow();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [thread, key, enabled, known]);
  return open;
}
