import type { Query } from "@skerry/client";
import { useEffect, useState } from "react";
import { session } from "../../session/session";
import type { FullRecord } from "./records";

export interface Tail {
  records: FullRecord[]; // newest first
  error: unknown;
}

const nothing: Tail = { records: [], error: undefined };

/** Records as they come, the newest `most` of them. They are shown a few times a second, however many come. */
export function useTail(filter: Query, on: boolean, most: number): Tail {
  const [tail, setTail] = useState(nothing);
  useEffect(() => {
    setTail(nothing);
    if (!on) return;
    const stop = new AbortController();
    let came: FullRecord[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const show = () => {
      timer = undefined;
      const now = came.reverse();
      came = [];
      setTail((old) => ({ records: [...now, ...old.records].slice(0, most), error: undefined }));
    };
    let last = "";
    const follow = async (): Promise<void> => {
      try {
        const { since: _s, until: _u, ...rest } = filter;
        for await (const { id, record } of session.client.followAudit(rest, last, { signal: stop.signal })) {
          last = id;
          came.push(record as FullRecord);
          if (came.length > most) came.shift();
          timer ??= setTimeout(show, 250);
        }
      } catch (error) {
        if (session.outlives(error)) return follow();
        if (!stop.signal.aborted) setTail((old) => ({ ...old, error }));
      }
    };
    void follow();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [filter, on, most]);
  return tail;
}
