import { lazy, Suspense, useId, useRef, useState, type KeyboardEvent } from "react";
import "./plot.css";

export type PlotColour = "accent" | "good" | "busy" | "idle" | "bad" | "muted";

export interface PlotSeries {
  label: string;
  colour: PlotColour;
  /** One for each time. Bars all begin at zero, and later ones lie over earlier ones. */
  values: (number | null)[];
}

export interface PlotProps {
  label: string;
  /** What the picture says, in a sentence. */
  summary: string;
  /** Unix seconds: where a bar begins, or the moment of a point of a line. */
  times: number[];
  series: PlotSeries[];
  kind: "bars" | "lines";
  /** How long a bar is, in seconds. */
  step?: number;
  height?: number;
  format?: (n: number) => string;
  /** A time in words: with the minute when absent. */
  when?: (seconds: number) => string;
  /** Called with a span that was chosen with the pointer or by keys, in Unix seconds. */
  onSelect?: (from: number, until: number) => void;
}

// uPlot comes with the first page that has a plot, while the page asks for its numbers.
const canvas = import("./PlotCanvas");
const Canvas = lazy(() => canvas);

const plain = (n: number) => n.toLocaleString();

export function moment(seconds: number): string {
  return new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

/** Numbers over time: a picture, the same for keys and screen readers, and a table. */
export function Plot(props: PlotProps) {
  const { label, summary, times, series, step = 0, height = 132, format = plain, when = moment, onSelect } = props;
  const [chosen, choose] = useState<{ anchor: number; at: number }>();
  const box = useRef<HTMLDivElement>(null);
  const help = useId();
  const last = times.length - 1;
  const low = chosen === undefined ? 0 : Math.min(chosen.anchor, chosen.at, last);
  const high = chosen === undefined ? 0 : Math.min(Math.max(chosen.anchor, chosen.at), last);
  const keys = (e: KeyboardEvent) => {
    const move: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -last, End: last };
    const by = move[e.key];
    if (by !== undefined && last >= 0) {
      const at = chosen === undefined ? (by < 0 && e.key !== "Home" ? last : e.key === "End" ? last : 0) : Math.min(Math.max(chosen.at + by, 0), last);
      choose({ at, anchor: e.shiftKey && chosen !== undefined ? chosen.anchor : at });
    } else if (e.key === "Enter" && chosen !== undefined && onSelect !== undefined) {
      onSelect(times[low] ?? 0, (times[high] ?? 0) + step);
      choose(undefined);
    } else if (e.key === "Escape" && chosen !== undefined) choose(undefined);
    else return;
    e.preventDefault();
  };
  const said = (i: number) => series.map((s) => `${s.label} ${s.values[i] === null || s.values[i] === undefined ? "none" : format(s.values[i])}`).join(", ");
  const words =
    chosen === undefined ? "" : low === high ? `${when(times[low] ?? 0)}: ${said(low)}` : `${when(times[low] ?? 0)} to ${when((times[high] ?? 0) + step)}, ${high - low + 1} spans`;
  return (
    <figure className="plot">
      <div
        ref={box}
        className="plot-box"
        role="group"
        aria-roledescription="plot"
        aria-label={label}
        aria-describedby={help}
        tabIndex={0}
        onKeyDown={keys}
        onBlur={() => choose(undefined)}
        style={{ height }}
      >
        <Suspense fallback={null}>
          {times.length > 0 && <Canvas {...props} height={height} format={format} step={step} marked={chosen === undefined ? undefined : [low, high]} />}
        </Suspense>
      </div>
      <p id={help} className="away">
        {summary} Arrow keys go from span to span{onSelect === undefined ? "." : ", with Shift they choose several, Enter zooms in."}
      </p>
      <figcaption className="plot-foot">
        <span className="plot-legend">
          {series.map((s) => (
            <span key={s.label} className={`plot-key plot-${s.colour}`}>
              {s.label}
            </span>
          ))}
        </span>
        <span className="plot-said num" role="status">
          {words}
        </span>
        <details className="plot-table">
          <summary>As a table</summary>
          <div className="plot-scroll" tabIndex={0} role="region" aria-label={`${label}, as a table`}>
            <table>
              <thead>
                <tr>
                  <th scope="col">{step > 0 ? "From" : "At"}</th>
                  {series.map((s) => (
                    <th scope="col" key={s.label}>
                      {s.label}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {times.map((t, i) => (
                  <tr key={t}>
                    <th scope="row">{when(t)}</th>
                    {series.map((s) => (
                      <td key={s.label} className="num">
                        {s.values[i] === null || s.values[i] === undefined ? "" : format(s.values[i])}
                      </td>
                    ))}
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </details>
      </figcaption>
    </figure>
  );
}
