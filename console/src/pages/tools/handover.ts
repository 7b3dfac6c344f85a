// The tab that comes back from an authorization server hands its address to the tab that waits. Both are pages of this origin,
// and no other one can listen.
const name = "skerry.tool-login";

interface Back {
  address: string;
}

interface Taken {
  taken: string;
}

/** Waits for the address with this state, and says that it has it. */
export function handed(state: string, take: (address: string) => void): () => void {
  const channel = new BroadcastChannel(name);
  channel.onmessage = (e: MessageEvent<Back | Taken>) => {
    if (!("address" in e.data) || new URL(e.data.address).searchParams.get("state") !== state) return;
    channel.postMessage({ taken: state } satisfies Taken);
    take(e.data.address);
  };
  return () => channel.close();
}

/** Hands an address over. It calls `done` when a tab took it. */
export function handOver(address: string, done: () => void): () => void {
  const state = new URL(address).searchParams.get("state");
  const channel = new BroadcastChannel(name);
  channel.onmessage = (e: MessageEvent<Back | Taken>) => {
    if ("taken" in e.data && e.data.taken === state) done();
  };
  channel.postMessage({ address } satisfies Back);
  return () => channel.close();
}
