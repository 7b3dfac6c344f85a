/** A number that JavaScript would show as another one: as it was written. */
export class Exact {
  constructor(readonly source: string) {}
}

/** Reads JSON, and keeps numbers that JavaScript rounds. A browser that cannot say how a number was written rounds them. */
export function parseExact<T>(text: string): T {
  if (text === "") return undefined as T;
  const keep = (_key: string, value: unknown, context?: { source?: string }): unknown => {
    const source = context?.source;
    return typeof value === "number" && source !== undefined && String(value) !== source && !same(source, value) ? new Exact(source) : value;
  };
  return JSON.parse(text, keep as (key: string, value: unknown) => unknown) as T;
}

/** Whether a number is what was written, in another form: 1.0, 1e3. */
function same(source: string, value: number): boolean {
  return source.replace(/[^0-9]/g, "").replace(/^0+/, "").length <= 15 && Number.isFinite(value);
}

/** A string as JSON has it. Behind each line break in it there is another one, for the eye: JSON itself has none in a string. */
function quoted(text: string, indent: string): string {
  return JSON.stringify(text).replace(/\\\\|\\n(?!"$)/g, (m) => (m === "\\n" ? `\\n\n${indent}  ` : m));
}

/** JSON for people to read, with Exact numbers as they were written. */
export function pretty(value: unknown, indent = ""): string {
  const deeper = `${indent}  `;
  if (value instanceof Exact) return value.source;
  if (Array.isArray(value)) {
    return value.length === 0 ? "[]" : `[\n${value.map((v) => deeper + pretty(v, deeper)).join(",\n")}\n${indent}]`;
  }
  if (typeof value === "object" && value !== null) {
    const members = Object.entries(value);
    return members.length === 0 ? "{}" : `{\n${members.map(([k, v]) => `${deeper}${JSON.stringify(k)}: ${pretty(v, deeper)}`).join(",\n")}\n${indent}}`;
  }
  return typeof value === "string" ? quoted(value, indent) : (JSON.stringify(value) ?? "null");
}
