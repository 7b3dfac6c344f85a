import { textOf } from "../../../ui/Rich";

/** What is used of a cell of a Jupyter notebook. */
export interface Cell {
  kind: "code" | "markdown" | "raw";
  source: string;
  count: number | undefined;
  outputs: Output[];
  /** Outputs that are not here: there are too many. */
  left: number;
}

export type Output = { kind: "stream"; name: "stdout" | "stderr"; text: string } | { kind: "data"; data: Record<string, unknown> } | { kind: "error"; text: string };

const mostCells = 5_000;
const mostOutputs = 100;

const isObject = (v: unknown): v is Record<string, unknown> => typeof v === "object" && v !== null && !Array.isArray(v);

function outputOf(o: unknown): Output | undefined {
  if (!isObject(o)) return undefined;
  const text = textOf(o["text"]);
  if (o["output_type"] === "stream" && text !== undefined) return { kind: "stream", name: o["name"] === "stderr" ? "stderr" : "stdout", text };
  if (o["output_type"] === "error") return { kind: "error", text: Array.isArray(o["traceback"]) ? o["traceback"].map(String).join("\n") : `${String(o["ename"])}: ${String(o["evalue"])}` };
  return isObject(o["data"]) ? { kind: "data", data: o["data"] } : undefined;
}

function cellOf(c: unknown): Cell | undefined {
  if (!isObject(c)) return undefined;
  const { cell_type: type, execution_count: count, outputs } = c;
  const all = Array.isArray(outputs) ? outputs : [];
  return {
    kind: type === "code" || type === "markdown" ? type : "raw",
    source: textOf(c["source"]) ?? "",
    count: typeof count === "number" ? count : undefined,
    outputs: all.slice(0, mostOutputs).map(outputOf).filter((o) => o !== undefined),
    left: Math.max(0, all.length - mostOutputs),
  };
}

/** The cells of a notebook (nbformat 4). Undefined: the text is none. */
export function cellsOf(text: string): { cells: Cell[]; left: number } | undefined {
  let doc: unknown;
  try {
    doc = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!isObject(doc) || !Array.isArray(doc["cells"])) return undefined;
  const all: unknown[] = doc["cells"];
  return { cells: all.slice(0, mostCells).map(cellOf).filter((c) => c !== undefined), left: Math.max(0, all.length - mostCells) };
}
