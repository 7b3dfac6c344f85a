import { path as apiPath } from "@skerry/client";
import { session } from "../../../session/session";
import type { Owned } from "../owned";

/** Files that may be edited here have at most so many bytes. */
export const mostEdited = 1 << 20;

/** The request for the bytes of a file. */
export function contentOf({ thread }: Owned, path: string): { path: string; query: { path: string } } {
  return { path: apiPath("threads", thread.id, "files", "content"), query: { path } };
}

/** How a file begins: at most so many bytes, whatever its size. */
export async function beginOf(owned: Owned, path: string, most: number, signal: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
  const answer = await session.open({ method: "GET", ...contentOf(owned, path), headers: { Range: `bytes=0-${most - 1}` } }, signal, owned.of);
  return new Uint8Array(await answer.arrayBuffer()).subarray(0, most);
}

/** What a caller may change: all else of a thread is the server's. */
export function changeable(path: string): boolean {
  return /^\/mnt\/user-data\/(workspace|uploads|outputs)\/./.test(path);
}

/** Makes an empty file where there is none. */
export async function createFile(owned: Owned, path: string): Promise<void> {
  await session.open({ method: "PUT", ...contentOf(owned, path), content: "", headers: { "If-None-Match": "*" }, kind: "once" }, AbortSignal.timeout(60_000), owned.of);
}
