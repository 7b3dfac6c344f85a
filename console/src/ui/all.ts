import type { Query } from "@skerry/client";
import { session } from "../session/session";

interface Page<T> {
  items: T[];
  next_cursor?: string;
}

// As many as a page can work with. The server has bounds of its own.
const mostPages = 5;

/** All items of a list that comes in pages. */
export async function all<T>(path: string, signal: AbortSignal, query: Query = {}): Promise<T[]> {
  const items: T[] = [];
  let cursor: string | undefined;
  for (let i = 0; i < mostPages; i++) {
    const page: Page<T> = await session.client.call({ method: "GET", path, query: { ...query, cursor } }, { signal });
    items.push(...page.items);
    cursor = page.next_cursor;
    if (cursor === undefined) break;
  }
  return items;
}
