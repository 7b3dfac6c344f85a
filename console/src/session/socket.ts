import type { SocketConstructor } from "@skerry/client";

// The server selects the first of these, and takes the key from the other.
const terminal = "skerry.terminal";
const bearer = "skerry.bearer.";

function base64url(text: string): string {
  const bytes = new TextEncoder().encode(text);
  return btoa(String.fromCharCode(...bytes)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

/** A WebSocket with the key of the session. Browsers set no headers of it, so the key is a subprotocol, and never in an address. */
export const BrowserSocket = class {
  constructor(url: string, { headers }: { headers: Record<string, string> }) {
    const key = headers["Authorization"]?.replace(/^Bearer /, "");
    return new WebSocket(url, key === undefined ? [terminal] : [terminal, bearer + base64url(key)]);
  }
} as unknown as SocketConstructor;
