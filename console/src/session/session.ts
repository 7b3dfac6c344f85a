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

/** How the user is logged in. The token of an identity provider takes the place of a key. */
export interface State {
  principal: Principal | undefined;
  /** What the server took once and does not any more. */
  expired: Principal["method"] | undefined;
}

/** The answer of POST /api/login/oidc. */
export interface Token {
  token: string;
  expires_in_s: number;
  /** Gets the next one. Absent: the provider has none. */
  refresh_token?: string;
}

/** What gets the next token of an identity provider. In memory alone. */
interface Renewal {
  issuer: string;
  refreshToken: string;
  /** When to ask, by the clock of this machine. */
  at: number;
}

// Of this tab alone, and only when the user wants it.
const kept = "skerry.key";

let key = sessionStorage.getItem(kept) ?? "";
let state: State = { principal: undefined, expired: undefined };
let renewal: Renewal | undefined;
let renewing: Promise<void> | undefined;
// The tokens that the login has had. A request that a client made with one of them is sent with the one that is good now.
const had = new Set<string>();
const listeners = new Set<() => void>();
let onExpired: () => void = () => undefined;

function set(next: State): void {
  state = next;
  for (const tell of listeners) tell();
}

/** When to get the next token: a while before this one ends. */
function renewalOf(issuer: string, { refresh_token, expires_in_s }: Token): Renewal | undefined {
  if (refresh_token === undefined) return undefined;
  return { issuer, refreshToken: refresh_token, at: Date.now() + (expires_in_s - Math.min(60, expires_in_s / 5)) * 1_000 };
}

async function refresh(old: Renewal): Promise<void> {
  try {
    const next = await session.redeem({ issuer: old.issuer, refresh_token: old.refreshToken });
    if (renewal !== old) return; // logged out meanwhile
    if (sessionStorage.getItem(kept) === key) sessionStorage.setItem(kept, next.token);
    key = next.token;
    had.add(key);
    renewal = renewalOf(old.issuer, next);
    client = connect();
    acting.clear();
  } catch (err) {
    if (renewal !== old) return;
    // Until the token ends there is time to try again, unless the provider said no.
    renewal = err instanceof SkerryError && err.status === 401 ? undefined : { ...old, at: Date.now() + 10_000 };
  }
}

/** Waits for the next token when this one is about to end by then. */
async function renew(by = Date.now()): Promise<void> {
  if (renewal === undefined || by < renewal.at) return;
  renewing ??= refresh(renewal).finally(() => (renewing = undefined));
  await renewing;
}

/**
 * Requests of the page. Each has a token that is still good when it is sent. One that ends on its way to the server is replaced: an
 * answer 401 means that nothing was done. Without another token it ends the session.
 */
const watchedFetch: typeof fetch = async (input, init) => {
  await renew();
  let sentWith = key;
  let answer = await send(input, init);
  if (answer.status !== 401 || state.principal === undefined) return answer;
  if (sentWith === key) await renew(Infinity);
  if (sentWith !== key) {
    sentWith = key;
    answer = await send(input, init);
  }
  if (answer.status === 401 && state.principal !== undefined && sentWith === key) expire();
  return answer;
};

/** Sends a request with the token that is good now. */
function send(input: RequestInfo | URL, init?: RequestInit): Promise<Response> {
  const headers = new Headers(init?.headers);
  if (had.has(headers.get("Authorization")?.replace(/^Bearer /, "") ?? "")) headers.set("Authorization", `Bearer ${key}`);
  return fetch(input, { ...init, headers });
}

function options(onBehalfOf?: string): Options {
  return { server: location.origin, key, fetch: watchedFetch, webSocket: BrowserSocket, patienceMs: 4_000, ...(onBehalfOf === undefined ? {} : { onBehalfOf }) };
}

function connect(onBehalfOf?: string): Skerry {
  return new Skerry(options(onBehalfOf));
}

let client = connect();

// Clients that act for other users, by these.
const acting = new Map<string, Skerry>();

function forget(expired: State["expired"]): void {
  key = "";
  renewal = undefined;
  had.clear();
  sessionStorage.removeItem(kept);
  client = connect();
  acting.clear();
  queries.clear();
  set({ principal: undefined, expired });
}

function expire(): void {
  forget(state.principal?.method ?? "key");
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
  renew,
  /** A stream ended because its token did, and the session goes on with another one: follow it again. */
  outlives(err: unknown): boolean {
    return err instanceof SkerryError && err.status === 401 && state.principal?.method === "jwt";
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
      set({ principal, expired: undefined });
      return principal;
    } catch (err) {
      if (err instanceof SkerryError && err.status === 401) return undefined;
      throw err;
    }
  },
  /** Redeems the code of a login, or a refresh token. A code is good once, so nothing is sent again. */
  redeem(body: Record<string, string>): Promise<Token> {
    const plain = new Skerry({ server: location.origin, key: "", patienceMs: 0 });
    return plain.call<Token>({ method: "POST", path: "/api/login/oidc", body, kind: "once" }, { timeoutMs: 30_000 });
  },
  /** Tries a key, or the token of an identity provider. It is good when this returns. */
  async login(secret: string, keep: boolean, by?: { issuer: string; token: Token }): Promise<Principal> {
    const candidate = new Skerry({ server: location.origin, key: secret, patienceMs: 4_000 });
    const principal = await candidate.call<Principal>({ method: "GET", path: "/api/whoami" }, { timeoutMs: 15_000 });
    key = secret;
    had.clear();
    renewal = by && renewalOf(by.issuer, by.token);
    if (by !== undefined) had.add(key);
    if (keep) sessionStorage.setItem(kept, secret);
    else sessionStorage.removeItem(kept);
    client = connect();
    acting.clear();
    queries.clear();
    set({ principal, expired: undefined });
    return principal;
  },
  logout(): void {
    forget(undefined);
  },
};

/** Who the caller is. Pages behind the login only. */
export function usePrincipal(): Principal {
  const { principal } = useSyncExternalStore(session.subscribe, () => state);
  if (principal === undefined) return { tenant: "", user: "", actor: "", role: "auditor", operator: false, may_act_for: false, method: "none", capabilities: [] };
  return principal;
}
