/** A block of content of MCP. */
export type Content = { readonly type: string; readonly [key: string]: unknown };

/** The answer of a tool, for a tool that has more to say than one value. */
export class Result {
  readonly content: readonly Content[];
  /** The value for programs. */
  readonly structuredContent?: object;
  readonly isError?: true;

  constructor(parts: { content?: readonly Content[]; structuredContent?: object; isError?: boolean }) {
    this.content = parts.content ?? [];
    if (parts.structuredContent !== undefined) this.structuredContent = parts.structuredContent;
    if (parts.isError === true) this.isError = true;
  }

  /** The text of all blocks. */
  get text(): string {
    return this.content.flatMap((b) => (typeof b["text"] === "string" ? [b["text"]] : [])).join("\n");
  }
}

export function textResult(text: string, isError = false): Result {
  return new Result({ content: [{ type: "text", text }], isError });
}

/** What a tool has returned, as MCP has it: a text, an object with its JSON as text, or a Result as it is. */
export function resultOf(value: unknown): Result {
  if (value instanceof Result) return value;
  if (value === undefined) return new Result({});
  if (typeof value === "string") return textResult(value);
  const text = JSON.stringify(value) as string | undefined;
  if (text === undefined) throw new TypeError(`a ${typeof value} has no JSON`);
  const structured = typeof value === "object" && value !== null && text.startsWith("{");
  return new Result({ content: [{ type: "text", text }], ...(structured ? { structuredContent: value as object } : {}) });
}
