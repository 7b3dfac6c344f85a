import { getRouteApi } from "@tanstack/react-router";
import type { Thread } from "@skerry/client";
import { useMemo } from "react";
import { session } from "../../session/session";

const route = getRouteApi("/app/threads/$thread");

/** A thread as the page may reach it, and the key of what is known of it. Two users may each have a thread of one name. */
export interface Owned {
  thread: Thread;
  known: readonly string[];
  /** The owner, when it is another user than the caller. */
  of: string | undefined;
}

export function useOwned(name: string): Owned {
  const { of } = route.useSearch();
  return useMemo(() => ({ thread: session.clientOf(of).thread(name), known: ["thread", of ?? "", name], of }), [name, of]);
}
