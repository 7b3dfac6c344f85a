import type { Challenge } from "./v1/packs_pb.js";

/** Proves to a server who a pack is. */
export interface Credential {
  /** Headers of the request. */
  headers?(): Record<string, string>;
  /** Signs what the server asks for. `address` is the host and port that the pack has dialled. */
  sign?(challenge: Challenge, pack: string, address: string): Promise<Uint8Array<ArrayBuffer>>;
}

/** A key of the server with the role pack. */
export function bearerKey(secret: string): Credential {
  return { headers: () => ({ Authorization: `Bearer ${secret}` }) };
}
