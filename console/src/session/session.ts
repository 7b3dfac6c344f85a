import { Skerry, SkerryError, type Options, type Request } from "@skerry/client";
import { Transport } from "@skerry/client/transport";
import { useSyncExternalStore } from "react";
import { queries } from "../queries";
import { parseExact } from "../ui/exact";
import { BrowserSocket } from "./socket";

export type Role = "agent" | "developer" | "admin" | "auditor";

/** Who the server says that the caller is: GET /api/whoami. */
export interface Principal {
  tenant: string;
  user: string;
  actor: string;
  role: Role;
  operator: boolean;
  /** The key may act for other users of the tenant. */
  may_act_for: boolean;
  method: "none" | "key" | "jwt";
  capabilities: string[];
  /** The only threads that the key is good for; all when absent. */
  threads?: string[];
}

/** How the user is logged in. OIDC will be a second way to a key: its token takes the same place. */
export interface State {
  principal: Principal | undefined;
  /** The server took the key once and does not any more. */
  expired: boolean;
}

// Of this tab alone, and only when the user wants it.
const kept = "skerry.key";

let key = sessionStorage.getItem(kept) ?? "";
let state: State = { principal: undefined, expired: false };
let client = connect();
const listeners = new Set<() => void>();
let onExpired: () => void = () => undefined;

function set(next: State): void {
  state = next;
  for (const tell of listeners) tell();
}

/** Requests of the page. An answer 401 ends the session. */
const watchedFetch: typeof fetch = async (input, init) => {
  const sentWith = key;
  const answer = await fetch(input, init);
  if (answer.status === 401 && state.principal !== undefined && sentWith === key) expire();
  return answer;
};

function options(onBehalfOf?: string): Options {
  return { server: location.origin, key, fetch: watchedFetch, webSocket: BrowserSocket, patienceMs: 4_000, ...(onBehalfOf === undefined ? {} : { onBehalfOf }) };
}

function connect(onBehalfOf?: string): Skerry {
  return new Skerry(options(onBehalfOf));
}

// Clients that act for other users, by these.
const acting = new Map<string, Skerry>();

function forget(expired: boolean): void {
  key = "";
  sessionStorage.removeItem(kept);
  client = connect();
  acting.clear();
  queries.clear();
  set({ principal: undefined, expired });
}

function expire(): void {
  forget(true);
  onExpired();
}

export const session = {
  get state(): State {
    return state;
  },
  /** The client of the server, with the key of the session. */
  get client(): Skerry {
    return client;
  },
  /** The client for what belongs to a user: of another one than the caller it acts for that one. */
  clientOf(user: string | undefined): Skerry {
    if (user === undefined || user === state.principal?.user) return client;
    const known = acting.get(user) ?? connect(user);
    acting.set(user, known);
    return known;
  },
  /** Asks for what is no JSON, such as an export; for another user than the caller it acts for that one. */
  open(request: Request, signal: AbortSignal, of?: string): Promise<Response> {
    return new Transport(options(of === state.principal?.user ? undefined : of)).send(request, signal);
  },
  /** Asks for JSON whose numbers a person has to see as they are: JavaScript rounds those of more than 15 digits. */
  async exact<T>(request: Request, signal: AbortSignal, of?: string): Promise<T> {
    return parseExact<T>(await (await session.open(request, AbortSignal.any([signal, AbortSignal.timeout(60_000)]), of)).text());
  },
  /** What to do when the session ends by itself. */
  onExpired(run: () => void): void {
    onExpired = run;
  },
  subscribe(tell: () => void): () => void {
    listeners.add(tell);
    return () => listeners.delete(tell);
  },
  /** Finds out who the caller is. Undefined: the server wants a key. */
  async identify(): Promise<Principal | undefined> {
    if (state.principal !== undefined) return state.principal;
    try {
      const principal = await client.call<Principal>({ method: "GET", path: "/api/whoami" }, { timeoutMs: 15_000 });
      set({ principal, expired: false });
      return principal;
    } catch (err) {
      if (err instanceof SkerryError && err.status === 401) return undefined;
      throw err;
    }
  },
  /** Tries a key. It is good when this returns. */
  async login(secret: string, keep: boolean): Promise<Principal> {
    const candidate = new Skerry({ server: location.origin, key: secret, patienceMs: 4_000 });
    const principal = await candidate.call<Principal>({ method: "GET", path: "/api/whoami" }, { timeoutMs: 15_000 });
    key = secret;
    if (keep) sessionStorage.setItem(kept, secret);
    else sessionStorage.removeItem(kept);
    client = connect();
    acting.clear();
    queries.clear();
    set({ principal, expired: false });
    return principal;
  },
  logout(): void {
    forget(false);
  },
};

/** Who the caller is. Pages behind the login only. */
export function usePrincipal(): Principal {
  const { principal } = useSyncExternalStore(session.subscribe, () => state);
  if (principal === undefined) return { tenant: "", user: "", actor: "", role: "auditor", operator: false, may_act_for: false, method: "none", capabilities: [] };
  return principal;
}
