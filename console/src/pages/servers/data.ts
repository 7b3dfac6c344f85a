import { session } from "../../session/session";

/** A server of GET /api/servers. */
export interface Server {
  id: string;
  /** It is the one that answers. */
  this: boolean;
  state: "serving" | "draining" | "silent";
  started_at: string;
  seen_at?: string;
  address?: string;
  peer_address?: string;
  slot: number;
  report?: {
    version: string;
    threads: number;
    sandboxes: Record<string, number>;
    max_sandboxes: number;
    execs: number;
    queue: number;
    pools: { template: string; waiting: number; starting: number; target: number }[];
  };
}

export const serversKey = ["servers"] as const;

/** All servers, or with a thread the one that has it. */
export async function listServers(signal: AbortSignal, of: { thread?: string; user?: string } = {}): Promise<Server[]> {
  return (await session.client.call<{ items: Server[] }>({ method: "GET", path: "/api/servers", query: { ...of } }, { signal })).items;
}
