import { FlexRender, tableFeatures, useTable, type ColumnDef } from "@tanstack/react-table";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, type CSSProperties } from "react";

const features = tableFeatures({});
export type Features = typeof features;
export type Columns<T extends object> = ColumnDef<Features, T>[];

interface Props<T extends object> {
  label: string;
  columns: Columns<T>;
  rows: T[];
  rowId: (row: T) => string;
  /** The class that has the grid-template-columns of the rows. */
  shape: string;
  selected?: string | undefined;
  /** Called when the last rows come into sight. */
  onEnd?: () => void;
  rowHeight?: number;
  /** Variables for the style of the shape, such as widths that are known from the rows alone. */
  style?: CSSProperties;
}

/** A table of any number of rows, of which only those in sight are in the page. */
export function Grid<T extends object>({ label, columns, rows, rowId, shape, selected, onEnd, rowHeight = 40, style }: Props<T>) {
  const scroller = useRef<HTMLDivElement>(null);
  const table = useTable({ features, columns, data: rows, getRowId: rowId });
  const model = table.getRowModel().rows;
  const virtual = useVirtualizer({ count: model.length, getScrollElement: () => scroller.current, estimateSize: () => rowHeight, overscan: 12, initialRect: { width: 800, height: 800 } });
  const shown = virtual.getVirtualItems();
  const last = shown.at(-1)?.index ?? -1;
  useEffect(() => {
    if (onEnd !== undefined && last >= model.length - 20) onEnd();
  }, [last, model.length, onEnd]);
  return (
    <div className={`grid ${shape}`} style={style} ref={scroller} role="table" aria-label={label} aria-rowcount={model.length + 1} tabIndex={0}>
      <div role="rowgroup" className="grid-head">
        {table.getHeaderGroups().map((group) => (
          <div role="row" className="grid-row" key={group.id}>
            {group.headers.map((header) => (
              <div role="columnheader" key={header.id} className={`cell cell-${header.column.id}`}>
                <FlexRender header={header} />
              </div>
            ))}
          </div>
        ))}
      </div>
      <div role="rowgroup" className="grid-body" style={{ height: virtual.getTotalSize() }}>
        {shown.map((item) => {
          const row = model[item.index];
          if (row === undefined) return null;
          return (
            <div
              role="row"
              key={row.id}
              className="grid-row"
              aria-rowindex={item.index + 2}
              data-selected={selected === row.id ? "" : undefined}
              style={{ position: "absolute", insetInline: 0, height: item.size, transform: `translateY(${item.start}px)` }}
            >
              {row.getAllCells().map((cell) => (
                <div role="cell" key={cell.id} className={`cell cell-${cell.column.id}`}>
                  <FlexRender cell={cell} />
                </div>
              ))}
            </div>
          );
        })}
      </div>
    </div>
  );
}
