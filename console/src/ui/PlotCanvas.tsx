import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { PlotColour, PlotProps } from "./Plot";

type Props = PlotProps & { height: number; step: number; format: (n: number) => string; marked: [number, number] | undefined };

/** A colour of base.css as a canvas takes it: with light-dark() resolved. */
function resolver(): { of: (name: PlotColour | "line" | "muted" | "text") => string; font: string; end: () => void } {
  const probe = document.createElement("span");
  document.body.append(probe);
  return {
    of: (name) => {
      probe.style.color = `var(--${name})`;
      return getComputedStyle(probe).color;
    },
    font: `11px ${getComputedStyle(document.body).fontFamily}`,
    end: () => probe.remove(),
  };
}

const two = (n: number) => String(n).padStart(2, "0");

/** What stands below a line of the grid: a day, or a time of it. */
function tick(seconds: number, every: number): string {
  const d = new Date(seconds * 1000);
  const midnight = d.getHours() === 0 && d.getMinutes() === 0 && d.getSeconds() === 0;
  if (every >= 86400 || midnight) return d.toLocaleDateString(undefined, { month: "short", day: "numeric", ...(every >= 86400 * 300 ? { year: "numeric" } : {}) });
  return `${two(d.getHours())}:${two(d.getMinutes())}${every < 60 ? `:${two(d.getSeconds())}` : ""}`;
}

export default function PlotCanvas({ times, series, kind, step, height, format, onSelect, marked }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const made = useRef<uPlot>(undefined);
  const select = useRef(onSelect);
  select.current = onSelect;
  const data = useRef<uPlot.AlignedData>([[]]);
  data.current = [times, ...series.map((s) => s.values)];
  const shape = series.map((s) => `${s.label} ${s.colour}`).join("\n");

  // A plot is made anew for another shape, another theme, or another size of its box; numbers alone are put into it.
  useEffect(() => {
    const box = host.current;
    if (box === null) return;
    const make = () => {
      made.current?.destroy();
      const c = resolver();
      const axis = { stroke: c.of("muted"), font: c.font, grid: { stroke: c.of("line"), width: 1 }, ticks: { show: false } };
      const bars = uPlot.paths.bars?.({ size: [0.86, 64], align: 1 });
      const options: uPlot.Options = {
        width: Math.max(box.clientWidth, 80),
        height,
        padding: [10, 22, 0, 0],
        legend: { show: false },
        scales: {
          x: { time: true, range: (_u, low, high) => [low, high + (step || (low === high ? 1 : 0))] },
          y: { range: (_u, _low, high) => [0, Math.max(1, (high ?? 1) * 1.08)] },
        },
        axes: [
          { ...axis, size: 26, gap: 4, grid: { show: false }, space: 64, values: (_u, at, _i, _space, every) => at.map((t) => tick(t, every)) },
          { ...axis, size: 48, gap: 4, space: 28, incrs: kind === "bars" ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7] : undefined, values: (_u, at) => at.map(format) },
        ],
        series: [
          {},
          ...series.map((s): uPlot.Series => {
            const colour = c.of(s.colour);
            return kind === "bars" ? { stroke: colour, fill: colour, width: 0, points: { show: false }, ...(bars === undefined ? {} : { paths: bars }) } : { stroke: colour, width: 1.5, points: { show: false } };
          }),
        ],
        cursor: { y: false, points: { show: kind === "lines" }, drag: { x: onSelect !== undefined, y: false, setScale: false, dist: 4 } },
        hooks: {
          setSelect: [
            (u) => {
              if (u.select.width < 4) return;
              const from = u.posToVal(u.select.left, "x");
              const until = u.posToVal(u.select.left + u.select.width, "x");
              u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
              const t = [...(u.data[0] as ArrayLike<number> & Iterable<number>)];
              const first = step > 0 ? (t.findLast((x) => x <= from) ?? t[0] ?? from) : from;
              const end = step > 0 ? (t.findLast((x) => x < until) ?? first) + step : until;
              select.current?.(first, end);
            },
          ],
        },
      };
      made.current = new uPlot(options, data.current, box);
      c.end();
    };
    make();
    const sized = new ResizeObserver(() => made.current?.setSize({ width: Math.max(box.clientWidth, 80), height }));
    sized.observe(box);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", make);
    window.addEventListener("skerry-theme", make);
    return () => {
      sized.disconnect();
      dark.removeEventListener("change", make);
      window.removeEventListener("skerry-theme", make);
      made.current?.destroy();
      made.current = undefined;
    };
    // The functions of series and formats are new with each rendering, and do the same.
  }, [shape, kind, step, height, onSelect === undefined]); // eslint-disable-line react-hooks/exhaustive-deps

  useEffect(() => {
    made.current?.setData(data.current);
  });

  // What is chosen by keys.
  const [low, high] = marked ?? [-1, -1];
  useEffect(() => {
    const u = made.current;
    if (u === undefined) return;
    const from = times[low];
    const to = times[high];
    if (from === undefined || to === undefined) {
      u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      return;
    }
    const left = u.valToPos(from, "x");
    const right = u.valToPos(to + step, "x");
    u.setSelect({ left, top: 0, width: Math.max(right - left, 2), height: u.over.clientHeight }, false);
  }, [low, high, times, step]);

  return <div ref={host} className="plot-canvas" aria-hidden="true" />;
}
