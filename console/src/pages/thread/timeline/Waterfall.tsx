import { Link } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useMemo, useRef } from "react";
import { Shown, visible } from "../../../ui/Shown";
import { took } from "./List";
import { ticksOf, toneOf, within, type Item, type Span } from "./model";
import { ToRecord } from "./ToRecord";

interface Props {
  items: readonly Item[];
  span: Span;
  now: number;
  thread: string;
}

interface Row {
  item: Item;
  /** The row of what an exec did, and not of the exec itself. */
  below: boolean;
}

const height = 32;
// Of one row: more of them are a bar anyway.
const mostMarks = 200;

/** Bars over time, the latest first. Below an exec are the tools that it called and the files that it changed. */
export function Waterfall({ items, span, now, thread }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const rows = useMemo(() => items.flatMap((item): Row[] => (item.children.length > 0 ? [{ item, below: false }, { item, below: true }] : [{ item, below: false }])), [items]);
  const virtual = useVirtualizer({ count: rows.length, getScrollElement: () => scroller.current, estimateSize: () => height, overscan: 12, initialRect: { width: 800, height: 800 } });
  const ticks = useMemo(() => ticksOf(span, 6), [span]);
  const place = (at: number) => `${(((at - span.from) / (span.to - span.from)) * 100).toFixed(3)}%`;
  return (
    <div className="waterfall" ref={scroller} role="table" aria-label="Waterfall" aria-rowcount={rows.length + 1} tabIndex={0}>
      <div role="rowgroup" className="waterfall-head">
        <div role="row" className="waterfall-row">
          <div role="columnheader">What</div>
          <div role="columnheader" className="waterfall-lane">
            <span className="away">When</span>
            {ticks.map((t) => (
              <span key={t.at} aria-hidden="true" className="waterfall-tick num" style={{ left: place(t.at) }}>
                {t.label}
              </span>
            ))}
          </div>
        </div>
      </div>
      <div role="rowgroup" className="waterfall-body" style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((v) => {
          const row = rows[v.index];
          if (row === undefined) return null;
          return (
            <div role="row" key={`${row.item.id} ${row.below}`} className="waterfall-row" data-below={row.below ? "" : undefined} aria-rowindex={v.index + 2} style={{ position: "absolute", insetInline: 0, height: v.size, transform: `translateY(${v.start}px)` }}>
              {row.below ? <Below exec={row.item} span={span} thread={thread} /> : <Name item={row.item} thread={thread} />}
              <div role="cell" className="waterfall-lane">
                {ticks.map((t) => (
                  <i key={t.at} aria-hidden="true" className="waterfall-line" style={{ left: place(t.at) }} />
                ))}
                {(row.below ? row.item.children.filter((c) => within(c, span, now)).slice(0, mostMarks) : [row.item]).map((i) => (
                  <Bar key={i.id} item={i} span={span} now={now} thread={thread} />
                ))}
              </div>
            </div>
          );
        })}
      </div>
    </div>
  );
}

function Name({ item, thread }: { item: Item; thread: string }) {
  return (
    <div role="rowheader" className="waterfall-name">
      <ToRecord item={item} thread={thread} className="waterfall-link">
        <span className="mono">
          <Shown>{item.subject.slice(0, 200) || item.action}</Shown>
        </span>
      </ToRecord>
    </div>
  );
}

function Below({ exec, span, thread }: { exec: Item; span: Span; thread: string }) {
  const calls = exec.children.filter((c) => c.kind === "call").length;
  const files = exec.children.length - calls;
  const parts = [calls > 0 ? `${calls} ${calls === 1 ? "call" : "calls"}` : "", files > 0 ? `${files} ${files === 1 ? "file" : "files"}` : ""].filter((p) => p !== "");
  return (
    <div role="rowheader" className="waterfall-name waterfall-below muted num">
      <Link to="/audit" search={{ thread, exec: exec.exec ?? "", last: "all" }} className="waterfall-link">
        {parts.join(", ")}
        {exec.children.length > mostMarks && `, ${mostMarks} of them marked`}
        <span className="away"> in the audit log, {new Date(span.from).toISOString()}</span>
      </Link>
    </div>
  );
}

function Bar({ item, span, now, thread }: { item: Item; span: Span; now: number; thread: string }) {
  const length = span.to - span.from;
  const start = Math.max(item.start, span.from);
  const end = Math.min(item.end ?? now, span.to);
  const label = `${item.action} ${visible(item.subject.slice(0, 300))}: ${item.end === undefined ? "running" : item.outcome || "no end"}${took(item) === "" ? "" : `, ${took(item)}`}`;
  const style = { left: `${((start - span.from) / length) * 100}%`, width: item.kind === "file" ? undefined : `${(Math.max(end - start, 0) / length) * 100}%` };
  return <ToRecord item={item} thread={thread} pointer className={`waterfall-${item.kind} waterfall-${toneOf(item)}`} style={style} label={label} />;
}
