import { maxAnswer } from "./constants.js";

/** One server-sent event. */
export interface Message {
  id: string;
  event: string;
  data: string;
}

/** Reads events. A stream that ends ends them. */
export async function* messages(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Message, void, void> {
  const decoder = new TextDecoder();
  const parts: string[] = []; // of a line that is not whole
  let size = 0;
  let m: Message = { id: "", event: "", data: "" };
  for await (const chunk of chunks) {
    const lines = decoder.decode(chunk, { stream: true }).split("\n");
    for (const [i, piece] of lines.entries()) {
      parts.push(piece);
      size += piece.length;
      if (size > maxAnswer) throw new Error("the server sent a line that is too long");
      if (i === lines.length - 1) break;
      const line = parts.join("").replace(/\r$/, "");
      parts.length = 0;
      size = 0;
      if (line === "") {
        if (m.event !== "") yield m;
        m = { id: m.id, event: "", data: "" };
        continue;
      }
      const colon = line.indexOf(":");
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (name === "id" || name === "event" || name === "data") m[name] = value;
    }
  }
}

/** Bytes as base64, in every runtime. */
export function toBase64(bytes: Uint8Array): string {
  let text = "";
  for (let i = 0; i < bytes.length; i += 0x8000) text += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return btoa(text);
}

export function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

/** Text or base64 as bytes. */
export function decoded(text: string, encoding: string | undefined): Uint8Array {
  return encoding === "base64" ? fromBase64(text) : new TextEncoder().encode(text);
}
