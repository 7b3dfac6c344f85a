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

/** The bridge's answer: a result, or an error. */
export type ToolAnswer<T = unknown> = { result: T; error?: undefined } | { result?: undefined; error: ToolFailure };

/** Any value that JSON can hold. */
export type JSONValue = string | number | boolean | null | JSONValue[] | { [key: string]: JSONValue };
