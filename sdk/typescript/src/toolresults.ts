/** What a model reads of a tool's result, and what is kept beside it for the program. */
import type { ToolResult } from "./models.js";

/** A part of a message, as LangChain's chat models take it. */
export type Block = { type: "text"; text: string } | { type: "image_url"; image_url: { url: string } };

/** The content of a message, and its artifact: structured content, and blocks that the model is not shown. */
export function contentOf(result: ToolResult): [string | Block[], Record<string, unknown>] {
  const artifact: Record<string, unknown> = { call_id: result.call_id };
  if (result.structured_content !== undefined) artifact["structured_content"] = result.structured_content;
  const blocks = result.content ?? [];
  if (blocks.length === 0) return [textOf(result.result), artifact];
  const hidden = blocks.filter((b) => shownBlock(b) === undefined);
  if (hidden.length > 0) artifact["content"] = hidden;
  const shown = blocks.map((b): Block => shownBlock(b) ?? { type: "text", text: placeholder(b) });
  if (shown.some((b) => b.type !== "text")) return [shown, artifact];
  return [shown.map((b) => (b.type === "text" ? b.text : "")).join("\n") || textOf(result.structured_content), artifact];
}

/** A result as text: a text as it is, all else as JSON. */
export function textOf(value: unknown): string {
  if (value === undefined || value === null || value === "" || (Array.isArray(value) && value.length === 0)) return "[no output]";
  return typeof value === "string" ? value : JSON.stringify(value);
}

const isObject = (v: unknown): v is Record<string, unknown> => typeof v === "object" && v !== null && !Array.isArray(v);

/** A block of MCP as one of LangChain's: a text, or an image that models take. undefined for what they do not take. */
function shownBlock(block: unknown): Block | undefined {
  if (!isObject(block)) return undefined;
  const inner = block["type"] === "resource" ? block["resource"] : block;
  if (!isObject(inner)) return undefined;
  if (typeof inner["text"] === "string") return { type: "text", text: inner["text"] };
  const data = inner["data"] ?? inner["blob"];
  const mime = imageType(data);
  return mime === undefined ? undefined : { type: "image_url", image_url: { url: `data:${mime};base64,${String(data)}` } };
}

/** What the model reads in place of a block that it is not shown. */
function placeholder(block: unknown): string {
  const kind = isObject(block) ? String(block["type"] ?? "a block") : "a block";
  const inner = isObject(block) && isObject(block["resource"]) ? block["resource"] : block;
  const said = isObject(inner) ? [inner["name"], inner["uri"], inner["mimeType"], inner["description"]] : [];
  const name = said.filter((s) => typeof s === "string" && s !== "").map((s) => String(s).slice(0, 500)).join(", ") || "without a name";
  return kind === "resource_link" ? `[a resource of the server: ${name}]` : `[${kind} that cannot be shown: ${name}]`;
}

/** The type of an image in base64, by its first bytes. What else a server calls an image ends a run at the provider. */
function imageType(data: unknown): string | undefined {
  if (typeof data !== "string" || data.length % 4 !== 0 || !/^[A-Za-z0-9+/]+={0,2}$/.test(data)) return undefined;
  const head = atob(data.slice(0, 24));
  if (head.startsWith("\x89PNG\r\n\x1a\n")) return "image/png";
  if (head.startsWith("\xff\xd8\xff")) return "image/jpeg";
  if (head.startsWith("GIF87a") || head.startsWith("GIF89a")) return "image/gif";
  return head.startsWith("RIFF") && head.slice(8, 12) === "WEBP" ? "image/webp" : undefined;
}
