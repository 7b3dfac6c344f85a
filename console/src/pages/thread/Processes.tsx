import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { SkerryError, type Process, type SandboxMetrics } from "@skerry/client";
import { useMemo, useRef } from "react";
import { Button } from "../../ui/Button";
import { Empty } from "../../ui/Empty";
import { Failure } from "../../ui/Failure";
import { bytes, Time } from "../../ui/format";
import { Grid, type Columns } from "../../ui/Grid";
import { Meter } from "../../ui/Meter";
import { Skeleton } from "../../ui/Skeleton";
import { useOwned } from "./owned";

const route = getRouteApi("/app/threads/$thread/processes");

const every = 2_000;

/** A process, with how much of a core it computed between two looks. */
interface Row extends Process {
  share: number | undefined;
}

interface Look {
  at: number;
  list: Process[];
}

const startOf = (p: Process) => Date.parse(p.started_at ?? "") || 0;

export function Processes() {
  const { thread } = route.useParams();
  const owned = useOwned(thread);
  const known = useQueryClient();
  const before = useRef<Look>(undefined);
  const metrics = useQuery({ queryKey: [...owned.known, "metrics"], queryFn: ({ signal }) => owned.thread.metrics({ signal }), refetchInterval: every });
  const look = useQuery({
    queryKey: [...owned.known, "processes"],
    queryFn: async ({ signal }): Promise<Look> => ({ list: await owned.thread.processes({ all: true, signal }), at: performance.now() }),
    refetchInterval: every,
    structuralSharing: false,
  });
  const kill = useMutation({
    mutationFn: (p: Process) => (p.running ? owned.thread.execById(p.exec_id).kill() : owned.thread.killProcess(p.pid)),
    onSettled: () => known.invalidateQueries({ queryKey: [...owned.known, "processes"] }),
  });
  const now = look.data;
  const rows = useMemo(() => {
    if (now === undefined) return [];
    const last = before.current;
    const was = new Map(last?.list.map((p) => [p.pid, p]));
    const out = now.list.map((p): Row => {
      const old = was.get(p.pid);
      // The start of a process is told a few milliseconds differently each time.
      const same = last !== undefined && old !== undefined && Math.abs(startOf(old) - startOf(p)) < 1000;
      return { ...p, share: same ? Math.max(0, ((p.cpu_ms ?? 0) - (old?.cpu_ms ?? 0)) / Math.max(1, now.at - last.at)) : undefined };
    });
    before.current = now;
    return out.sort((a, b) => (b.share ?? 0) - (a.share ?? 0) || a.pid - b.pid);
  }, [now]);
  const { mutate, isPending } = kill;
  const columns = useMemo(() => columnsOf(thread, isPending ? undefined : mutate), [thread, mutate, isPending]);
  const none = look.isSuccess && rows.length === 0;
  return (
    <section className="processes" aria-label="Processes of the sandbox">
      <Meters metrics={metrics.data} error={metrics.error} />
      {kill.isError && <Failure error={kill.error} what="It cannot be ended" />}
      {look.isPending && <Skeleton label="Processes are loading" />}
      {look.isError && <Failure error={look.error} what="The processes cannot be listed" />}
      {none && (
        <Empty title="Nothing runs here now">
          <p>Processes of execs are here while they run, and those that a command left.</p>
        </Empty>
      )}
      {rows.length > 0 && <Grid label="Processes" columns={columns} rows={rows} rowId={(p) => String(p.pid)} shape="grid-processes" />}
    </section>
  );
}

function columnsOf(thread: string, kill: ((p: Process) => void) | undefined): Columns<Row> {
  return [
    { id: "pid", header: "PID", cell: ({ row }) => <span className="num">{row.original.pid}</span> },
    {
      id: "command",
      header: "Command",
      cell: ({ row }) => (
        <bdi className="mono" title={row.original.command}>
          {row.original.command}
        </bdi>
      ),
    },
    { id: "cpu", header: "CPU", cell: ({ row }) => <span className="num">{row.original.share === undefined ? "–" : `${Math.round(row.original.share * 100)} %`}</span> },
    { id: "memory", header: "Memory", cell: ({ row }) => <span className="num">{bytes(row.original.rss_bytes)}</span> },
    { id: "threads", header: "Threads", cell: ({ row }) => <span className="num">{row.original.threads ?? "–"}</span> },
    { id: "started", header: "Started", cell: ({ row }) => (row.original.started_at === undefined ? "–" : <Time at={row.original.started_at} />) },
    {
      id: "exec",
      header: "Of",
      cell: ({ row }) => (
        <Link to="/threads/$thread" params={{ thread }} search={{ exec: row.original.exec_id }}>
          {row.original.running ? "its exec" : "an ended exec"}
        </Link>
      ),
    },
    {
      id: "end",
      header: "",
      cell: ({ row }) => (
        <Button
          kind="quiet"
          isDisabled={kill === undefined}
          onPress={() => kill?.(row.original)}
          aria-label={row.original.running ? `End the exec of process ${row.original.pid}` : `End process ${row.original.pid}`}
        >
          {row.original.running ? "End exec" : "End"}
        </Button>
      ),
    },
  ];
}

/** What the sandbox uses of what it may use. */
function Meters({ metrics, error }: { metrics: SandboxMetrics | undefined; error: unknown }) {
  const before = useRef<SandboxMetrics>(undefined);
  const cores = useMemo(() => {
    if (metrics === undefined) return undefined;
    const last = before.current;
    if (last?.at !== metrics.at) before.current = metrics;
    if (last === undefined || last.at === metrics.at) return undefined;
    return Math.max(0, (metrics.cpu_ms - last.cpu_ms) / Math.max(1, Date.parse(metrics.at) - Date.parse(last.at)));
  }, [metrics]);
  if (error instanceof SkerryError && (error.status === 404 || error.status === 409)) return <p className="hint">{error.message}</p>;
  if (error instanceof SkerryError && error.status === 501) return <p className="hint">The driver does not measure sandboxes here.</p>;
  if (error !== null && error !== undefined) return <Failure error={error} what="What the sandbox uses is not known" />;
  if (metrics === undefined) return null;
  const limit = metrics.cpu_limit_millis / 1000;
  return (
    <div className="meters">
      <Meter name="CPU" value={cores ?? 0} most={limit} text={cores === undefined ? "…" : `${cores.toFixed(2)} of ${limit} cores`} />
      <Meter name="Memory" value={metrics.memory_bytes} most={metrics.memory_limit_bytes} text={`${bytes(metrics.memory_bytes)} of ${bytes(metrics.memory_limit_bytes)}`} />
      <Meter name="Processes" value={metrics.pids} most={metrics.pids_limit} text={`${metrics.pids} of ${metrics.pids_limit}`} />
      {metrics.disk !== undefined && <Disk disk={metrics.disk} />}
    </div>
  );
}

function Disk({ disk }: { disk: NonNullable<SandboxMetrics["disk"]> }) {
  const text = disk.limit_bytes > 0 ? `${bytes(disk.bytes)} of ${bytes(disk.limit_bytes)}` : bytes(disk.bytes);
  return <Meter name="Files" value={disk.bytes} most={disk.limit_bytes} text={text} />;
}
