import { getRouteApi, Link } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useState } from "react";
import type { ThreadInfo } from "@skerry/client";
import { useQuery } from "@tanstack/react-query";
import { Button } from "../../../ui/Button";
import { Choice } from "../../../ui/Choice";
import { Empty } from "../../../ui/Empty";
import { Failure } from "../../../ui/Failure";
import { moment, Plot, type PlotSeries } from "../../../ui/Plot";
import { Skeleton } from "../../../ui/Skeleton";
import { useOwned, type Owned } from "../owned";
import { List } from "./List";
import { useHistory } from "./load";
import { countsOf, spanOf, within, type Span } from "./model";
import { Waterfall } from "./Waterfall";
import "./timeline.css";

const route = getRouteApi("/app/threads/$thread/timeline");

const views = [
  { id: "waterfall", label: "Waterfall" },
  { id: "list", label: "List" },
] as const;

const mostBars = 120;

/** The time, which goes on as long as it is looked at. */
function useNow(going: boolean): number {
  const [now, set] = useState(() => Date.now());
  useEffect(() => {
    if (!going) return undefined;
    const timer = setInterval(() => set(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, [going]);
  return now;
}

export function Timeline() {
  const { thread } = route.useParams();
  const owned = useOwned(thread);
  const info = useQuery({ queryKey: [...owned.known, "info"], queryFn: ({ signal }) => owned.thread.info({ signal }) });
  return info.data === undefined ? <Skeleton label="The timeline is loading" /> : <Loaded info={info.data} owned={owned} />;
}

function Loaded({ info, owned }: { info: ThreadInfo; owned: Owned }) {
  const { from, to, view } = route.useSearch();
  const navigate = route.useNavigate();
  const bounds = useMemo(() => ({ from, to }), [from, to]);
  const history = useHistory(owned, info.user, bounds);
  const { items } = history;
  const runs = useMemo(() => items.some((i) => i.end === undefined), [items]);
  const now = useNow(runs && to === undefined);
  const whole = from === undefined && to === undefined;
  const span = useMemo((): Span => {
    const all = spanOf(items, now);
    return { from: from === undefined ? all.from : Date.parse(from), to: to === undefined ? Math.max(all.to, from === undefined ? 0 : Date.parse(from) + 1_000) : Date.parse(to) };
  }, [items, from, to, now]);
  const shown = useMemo(() => (whole ? items : items.filter((i) => within(i, span, now))), [items, whole, span, now]);
  const zoom = useCallback(
    (low: number, high: number) => void navigate({ search: (s) => ({ ...s, from: new Date(low * 1000).toISOString(), to: new Date(high * 1000).toISOString() }) }),
    [navigate],
  );
  const out = () => {
    const more = (span.to - span.from) / 2;
    zoom((span.from - more) / 1000, Math.min(span.to + more, Date.now()) / 1000);
  };
  const counts = useMemo(() => countsOf(shown, span, mostBars), [shown, span]);
  const series = useMemo(
    (): PlotSeries[] => [
      { label: "Execs", colour: "accent", values: counts.execs },
      { label: "Tool calls", colour: "idle", values: counts.calls },
      { label: "Changed files", colour: "good", values: counts.files },
    ],
    [counts],
  );
  if (history.pending) return <Skeleton label="The timeline is loading" />;
  if (history.error !== null && items.length === 0) return <Failure error={history.error} what="The timeline cannot be shown" />;
  const execs = shown.filter((i) => i.kind === "exec").length;
  const words = `${execs.toLocaleString()} ${execs === 1 ? "exec" : "execs"}, ${sum(counts.calls).toLocaleString()} tool calls, ${sum(counts.files).toLocaleString()} changes of files`;
  return (
    <section className="timeline" aria-label="Timeline">
      <div className="line">
        <Choice label="How it is shown" value={view ?? "waterfall"} options={views} onChange={(v) => void navigate({ search: ({ view: _, ...rest }) => (v === "list" ? { ...rest, view: v } : rest) })} />
        <span role="status" className="num">
          {words}
        </span>
        <span className="muted num timeline-range">
          {moment(span.from / 1000)} to {moment(span.to / 1000)}
        </span>
        {!whole && (
          <>
            <Button onPress={out}>Zoom out</Button>
            <Link to="/threads/$thread/timeline" params={{ thread: owned.thread.id }} search={view === undefined ? {} : { view }} className="button">
              Whole thread
            </Link>
          </>
        )}
      </div>
      {history.error !== null && <Failure error={history.error} what="The timeline is not up to date" />}
      {history.cut && <p className="note">There is more than fits here, so the oldest is left out. Zoom in, and a shorter span has all of its own.</p>}
      {shown.length === 0 ? (
        <Empty title={whole ? "Nothing has happened here yet" : "Nothing happened in this time"}>
          <p>Commands and code that run in the thread appear here, with the tools that they call and the files that they change.</p>
        </Empty>
      ) : (
        <>
          <Plot label="What happened over time" summary={`${words}.`} kind="bars" times={counts.times} series={series} step={counts.step} height={84} onSelect={zoom} />
          {view === "list" ? <List items={shown} thread={owned.thread.id} /> : <Waterfall items={shown} span={span} now={now} thread={owned.thread.id} />}
        </>
      )}
    </section>
  );
}

function sum(list: readonly number[]): number {
  return list.reduce((a, b) => a + b, 0);
}
