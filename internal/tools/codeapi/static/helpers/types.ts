// The words that code and the bridge exchange.

/** A call of a tool, as the bridge reads it. */
export type ToolCall = {
  /** The tool's full name: "<server>__<tool>". */
  tool: string;
  input: object;
};

/** Why a call failed. */
export type ToolFailure = {
  /** A stable word: "not_found", "invalid", "tool_failed", "timeout", … */
  code: string;
  message: string;
  tool?: string;
};

/** A result that is too large for an answer: the bridge wrote it into a file of the thread. */
export type ToolFile = {
  path: string;
  bytes: number;
  /** "json", or "text" when the result is a string: then the file is that string. */
  format: string;
};

/** The bridge's answer: a result, the file that holds it, or an error. */
export type ToolAnswer<T = unknown> =
  | { result: T; file?: undefined; error?: undefined }
  | { result?: undefined; file: ToolFile; error?: undefined }
  | { result?: undefined; file?: undefined; error: ToolFailure };

/** Any value that JSON can hold. */
export type JSONValue = string | number | boolean | null | JSONValue[] | { [key: string]: JSONValue };
