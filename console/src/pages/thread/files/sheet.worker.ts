// Reads a table beside the page: a text of a stranger can keep a parser busy, and the page ends this worker then.
import Papa from "papaparse";
import type { Sheet, SheetRequest } from "./Sheet";

addEventListener("message", ({ data: { text, delimiter, mostRows, mostColumns, mostCell } }: MessageEvent<SheetRequest>) => {
  const { data } = Papa.parse<string[]>(text, { delimiter, preview: mostRows + 2, skipEmptyLines: true });
  let columns = 0;
  for (const row of data) columns = Math.max(columns, row.length);
  const rows = data.slice(0, mostRows + 1).map((row) => row.slice(0, mostColumns).map((cell) => (cell.length > mostCell ? `${cell.slice(0, mostCell)}…` : cell)));
  const sheet: Sheet = { rows, columns, more: data.length > mostRows + 1 };
  postMessage(sheet);
});
