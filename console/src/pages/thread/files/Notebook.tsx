import { useQuery } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import type { FileEntry } from "@skerry/client";
import { useRef } from "react";
import { Empty } from "../../../ui/Empty";
import { Failure } from "../../../ui/Failure";
import { bytes } from "../../../ui/format";
import { Markdown } from "../../../ui/Markdown";
import { Rich, Text } from "../../../ui/Rich";
import { Shown } from "../../../ui/Shown";
import { Skeleton } from "../../../ui/Skeleton";
import type { Owned } from "../owned";
import { beginOf } from "./bytes";
import { cellsOf, type Cell, type Output } from "./notebook";

const mostBytes = 32 << 20;

/** A Jupyter notebook. Its outputs are text and images of pixels; HTML and scripts in it are not run. */
export default function NotebookPreview({ owned, entry }: { owned: Owned; entry: FileEntry }) {
  const book = useQuery({
    queryKey: ["preview", ...owned.known, "notebook", entry.path, entry.modified_at],
    queryFn: async ({ signal }) => cellsOf(new TextDecoder().decode(await beginOf(owned, entry.path, mostBytes, signal))) ?? null,
    enabled: entry.bytes <= mostBytes,
    staleTime: Infinity,
    gcTime: 60_000,
    structuralSharing: false,
  });
  if (entry.bytes > mostBytes) return <Empty title="This notebook is too large to be shown"><p>It has {bytes(entry.bytes)}. Download it to look at it.</p></Empty>;
  if (book.isPending) return <Skeleton rows={8} label="The notebook is loading" />;
  if (book.isError) return <Failure error={book.error} what="The notebook cannot be shown" />;
  if (book.data === null) return <p className="note">This file is no notebook of version 4. Look at it as text.</p>;
  return <Cells {...book.data} />;
}

function Cells({ cells, left }: { cells: Cell[]; left: number }) {
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({ count: cells.length, getScrollElement: () => scroller.current, estimateSize: () => 120, overscan: 4, initialRect: { width: 800, height: 800 } });
  return (
    <>
      <div className="notebook" ref={scroller} tabIndex={0} role="region" aria-label="Notebook">
        <div role="list" aria-label="Cells" className="notebook-body" style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map((v) => {
            const cell = cells[v.index];
            return cell === undefined ? null : (
              <div key={v.key} ref={virtual.measureElement} data-index={v.index} role="listitem" aria-setsize={cells.length} aria-posinset={v.index + 1} className="notebook-cell" style={{ position: "absolute", insetInline: 0, transform: `translateY(${v.start}px)` }}>
                <One cell={cell} n={v.index + 1} />
              </div>
            );
          })}
        </div>
      </div>
      {left > 0 && <p className="note">{left.toLocaleString()} more cells are left out. The download has them.</p>}
    </>
  );
}

function One({ cell, n }: { cell: Cell; n: number }) {
  if (cell.kind === "markdown") return <Markdown text={cell.source} label={`Cell ${n}`} />;
  return (
    <>
      <span className="notebook-count muted num">{cell.kind === "code" ? `In [${cell.count ?? " "}]` : "Raw"}</span>
      <pre className="output rich notebook-code" tabIndex={0} role="region" aria-label={`Cell ${n}`}>
        <Shown>{cell.source.slice(0, 64 << 10)}</Shown>
      </pre>
      {cell.outputs.map((o, i) => (
        <Out key={i} output={o} label={`Output ${i + 1} of cell ${n}`} />
      ))}
      {cell.left > 0 && <p className="note">{cell.left} more outputs are left out.</p>}
    </>
  );
}

function Out({ output, label }: { output: Output; label: string }) {
  if (output.kind === "data") return <Rich data={output.data} label={label} />;
  return (
    <div className={output.kind === "error" || output.name === "stderr" ? "bad" : undefined}>
      <Text text={output.text} label={label} />
    </div>
  );
}
