import { Skerry } from "@skerry/client";
import { session } from "./session";

/** An identity provider at which people log in: GET /api/login. */
export interface Issuer {
  issuer: string;
  name: string;
  client_id: string;
  scopes: string[];
  /** Absent while it does not answer the server. */
  authorization_endpoint?: string;
}

/** What a login begins with. It waits in the storage of this tab while the browser is at the provider. */
interface Pending {
  issuer: string;
  name: string;
  state: string;
  nonce: string;
  verifier: string;
  next: string;
  keep: boolean;
  at: number;
}

const waiting = "skerry.login";
const patienceMs = 15 * 60_000;
// The most that is shown of what a provider says.
const maxSaid = 300;

const returnTo = `${location.origin}/ui/login/done`;

function base64url(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

const random = (): string => base64url(crypto.getRandomValues(new Uint8Array(32)));

/** Where to go after a login: a path of the console, never another site. */
export function inside(next: unknown): string | undefined {
  return typeof next === "string" && /^\/(?![/\\])/.test(next) && !next.startsWith("/login") ? next : undefined;
}

export async function issuers(signal: AbortSignal): Promise<Issuer[]> {
  const client = new Skerry({ server: location.origin, key: "", patienceMs: 0 });
  return (await client.call<{ issuers: Issuer[] }>({ method: "GET", path: "/api/login" }, { timeoutMs: 15_000, signal })).issuers;
}

/** Leaves the page for the provider's. */
export async function begin(at: Issuer, next: string, keep: boolean): Promise<void> {
  if (at.authorization_endpoint === undefined) throw new Error(`${at.name} does not answer.`);
  // Browsers have no digests in pages that came by http from another machine.
  if (!isSecureContext) throw new Error("A login at an identity provider takes https. Ask for this page by https, or log in with a key.");
  const pending: Pending = { issuer: at.issuer, name: at.name, state: random(), nonce: random(), verifier: random(), next, keep, at: Date.now() };
  const challenge = base64url(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(pending.verifier))));
  sessionStorage.setItem(waiting, JSON.stringify(pending));
  const to = new URL(at.authorization_endpoint);
  const query: Record<string, string> = {
    response_type: "code", client_id: at.client_id, scope: at.scopes.join(" "), redirect_uri: returnTo,
    state: pending.state, nonce: pending.nonce, code_challenge: challenge, code_challenge_method: "S256",
  };
  if (at.scopes.includes("offline_access")) query["prompt"] = "consent"; // OpenID Connect wants it for refresh tokens
  for (const [name, value] of Object.entries(query)) to.searchParams.set(name, value);
  location.assign(to);
}

/** The login that waits, which waits no more. */
function take(): Pending | undefined {
  const text = sessionStorage.getItem(waiting);
  sessionStorage.removeItem(waiting);
  if (text === null) return undefined;
  const pending = JSON.parse(text) as Pending;
  return Date.now() - pending.at < patienceMs ? pending : undefined;
}

/** Ends the login that the provider answers with an address of this page. Returns where to go on. */
export async function finish(address: string): Promise<string> {
  const answer = new URL(address).searchParams;
  const pending = take();
  if (pending === undefined) throw new Error("No login of this tab waits for this answer. It was used already, began in another tab, or took too long. Log in again.");
  if (answer.get("state") !== pending.state) throw new Error("This answer is for another login than the one that this tab began. Log in again.");
  const from = answer.get("iss");
  if (from !== null && from !== pending.issuer) throw new Error("This answer is from another provider than the one that this tab asked. Log in again.");
  const error = answer.get("error");
  if (error !== null) {
    const words = answer.get("error_description");
    throw new Error(`${pending.name} did not log you in: ${error}${words === null ? "" : ` (${words})`}`.slice(0, maxSaid));
  }
  const code = answer.get("code");
  if (code === null) throw new Error(`${pending.name} answered without a code. Log in again.`);
  const token = await session.redeem({ issuer: pending.issuer, code, code_verifier: pending.verifier, nonce: pending.nonce, redirect_uri: returnTo });
  await session.login(token.token, pending.keep, { issuer: pending.issuer, token });
  return inside(pending.next) ?? "/";
}
