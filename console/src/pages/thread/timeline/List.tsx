import { useMemo } from "react";
import { duration } from "../../../ui/format";
import { Grid, type Columns } from "../../../ui/Grid";
import { Shown, visible } from "../../../ui/Shown";
import { State } from "../../../ui/State";
import { toneOf, type Item } from "./model";
import { ToRecord } from "./ToRecord";

interface Row {
  item: Item;
  below: boolean;
}

/** A time to the millisecond. */
function exactly(ms: number): string {
  const d = new Date(ms);
  return `${d.toLocaleDateString(undefined, { month: "short", day: "numeric" })} ${d.toLocaleTimeString(undefined, { hour12: false })}.${String(d.getMilliseconds()).padStart(3, "0")}`;
}

function columnsOf(thread: string): Columns<Row> {
  return [
    { id: "time", header: "Began", cell: ({ row }) => <time dateTime={new Date(row.original.item.start).toISOString()}>{exactly(row.original.item.start)}</time> },
    {
      id: "what",
      header: "What",
      cell: ({ row: { original: { item, below } } }) => (
        <span className="timeline-what" data-below={below ? "" : undefined}>
          {below && <span className="away">Below the exec: </span>}
          <ToRecord item={item} thread={thread} className="row-link">
            <span className="muted">{item.action}</span> <span className="mono" title={visible(item.subject.slice(0, 400))}>{<Shown>{item.subject.slice(0, 300)}</Shown>}</span>
          </ToRecord>
        </span>
      ),
    },
    { id: "outcome", header: "Outcome", cell: ({ row }) => <State name={row.original.item.outcome} label={row.original.item.end === undefined ? "running" : row.original.item.outcome || "no end"} tone={toneOf(row.original.item)} /> },
    { id: "took", header: "Took", cell: ({ row }) => <span className="num muted">{took(row.original.item)}</span> },
  ];
}

export function took(i: Item): string {
  return i.end === undefined || i.kind === "file" ? "" : duration(i.end - i.start);
}

/** What the waterfall shows, as rows. */
export function List({ items, thread }: { items: readonly Item[]; thread: string }) {
  const rows = useMemo(() => items.flatMap((item): Row[] => [{ item, below: false }, ...item.children.map((c) => ({ item: c, below: true }))]), [items]);
  const columns = useMemo(() => columnsOf(thread), [thread]);
  return <Grid label="What happened" columns={columns} rows={rows} rowId={(r) => r.item.id} shape="grid-timeline" rowHeight={36} />;
}
