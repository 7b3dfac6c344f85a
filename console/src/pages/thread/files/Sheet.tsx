import { useQuery } from "@tanstack/react-query";
import type { FileEntry } from "@skerry/client";
import { useEffect, useMemo, useState, type CSSProperties } from "react";
import { Failure } from "../../../ui/Failure";
import { bytes } from "../../../ui/format";
import { Grid, type Columns } from "../../../ui/Grid";
import { Shown } from "../../../ui/Shown";
import { Skeleton } from "../../../ui/Skeleton";
import { ask } from "../../../ui/worker";
import type { Owned } from "../owned";
import { beginOf } from "./bytes";

const mostBytes = 8 << 20;
const bounds = { mostRows: 20_000, mostColumns: 100, mostCell: 1_000 };
const patienceMs = 10_000;

export interface SheetRequest {
  text: string;
  delimiter: string;
  mostRows: number;
  mostColumns: number;
  mostCell: number;
}

export interface Sheet {
  /** The first one has the names of the columns. */
  rows: string[][];
  columns: number;
  more: boolean;
}

interface Line {
  n: number;
  cells: string[];
}

/** A file of comma or tab separated values as a table, as far as it fits. */
export default function SheetPreview({ owned, entry }: { owned: Owned; entry: FileEntry }) {
  const raw = useQuery({
    queryKey: ["preview", ...owned.known, "sheet", entry.path, entry.modified_at],
    queryFn: async ({ signal }) => new TextDecoder().decode(await beginOf(owned, entry.path, mostBytes, signal)),
    staleTime: Infinity,
    gcTime: 60_000,
  });
  const [sheet, set] = useState<Sheet | null>();
  const text = raw.data;
  useEffect(() => {
    if (text === undefined) return undefined;
    set(undefined);
    const worker = new Worker(new URL("./sheet.worker.ts", import.meta.url), { type: "module" });
    // A file that is cut ends with its last whole line.
    const whole = entry.bytes > mostBytes ? text.slice(0, text.lastIndexOf("\n") + 1) : text;
    const request: SheetRequest = { text: whole, delimiter: /\.tsv$/i.test(entry.path) ? "\t" : "", ...bounds };
    return ask<Sheet>(worker, request, patienceMs, (s) => set(s ?? null));
  }, [text, entry.bytes, entry.path]);
  const columns = useMemo(() => columnsOf(sheet?.rows[0] ?? [], Math.min(sheet?.columns ?? 0, bounds.mostColumns)), [sheet]);
  const rows = useMemo(() => (sheet?.rows ?? []).slice(1).map((cells, i): Line => ({ n: i + 1, cells })), [sheet]);
  if (raw.isError) return <Failure error={raw.error} what="The table cannot be shown" />;
  if (sheet === null) return <p className="note">This file is too tangled to be shown as a table. Look at it as text.</p>;
  if (sheet === undefined) return <Skeleton rows={8} label="The table is loading" />;
  const cut = sheet.more || entry.bytes > mostBytes;
  return (
    <>
      <Grid label="Table" columns={columns} rows={rows} rowId={(r) => String(r.n)} shape="grid-sheet" rowHeight={30} style={{ "--columns": columns.length - 1 } as CSSProperties} />
      <p className="hint num" role="status">
        {rows.length.toLocaleString()} rows, {sheet.columns.toLocaleString()} columns
        {cut && `. These are the first ones of ${bytes(entry.bytes)}; the download has all.`}
        {sheet.columns > bounds.mostColumns && ` The first ${bounds.mostColumns} columns are shown.`}
      </p>
    </>
  );
}

function columnsOf(names: string[], n: number): Columns<Line> {
  const number: Columns<Line>[number] = { id: "n", header: () => <span className="away">Row</span>, cell: ({ row }) => <span className="num muted">{row.original.n}</span> };
  return [
    number,
    ...Array.from({ length: n }, (_, i): Columns<Line>[number] => ({
      id: `c${i}`,
      header: () => <Shown>{names[i] ?? ""}</Shown>,
      cell: ({ row }) => <Shown>{row.original.cells[i] ?? ""}</Shown>,
    })),
  ];
}
