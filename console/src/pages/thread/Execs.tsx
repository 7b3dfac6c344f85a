import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import type { ExecInfo } from "@skerry/client";
import { useMemo } from "react";
import { Empty } from "../../ui/Empty";
import { Failure } from "../../ui/Failure";
import { duration, Time } from "../../ui/format";
import { Grid, type Columns } from "../../ui/Grid";
import { Skeleton } from "../../ui/Skeleton";
import { Outcome } from "../../ui/State";
import { ExecDetail } from "./ExecDetail";
import { useOwned } from "./owned";

const route = getRouteApi("/app/threads/$thread/");

function columns(thread: string): Columns<ExecInfo> {
  return [
    {
      id: "subject",
      header: "Exec",
      cell: ({ row }) => (
        <Link to="/threads/$thread" params={{ thread }} search={{ exec: row.original.exec_id }} className="row-link mono" title={row.original.description ?? row.original.subject.slice(0, 400)}>
          <bdi>{row.original.description || row.original.subject || row.original.exec_id}</bdi>
        </Link>
      ),
    },
    { id: "action", header: "Kind", cell: ({ row }) => <span className="muted">{row.original.action}</span> },
    { id: "outcome", header: "Outcome", cell: ({ row }) => <Outcome status={row.original.status} code={row.original.exit_code} /> },
    {
      id: "took",
      header: "Took",
      cell: ({ row }) => <span className="num muted">{row.original.duration_ms === undefined ? "" : duration(row.original.duration_ms)}</span>,
    },
    { id: "started", header: "Started", cell: ({ row }) => <Time at={row.original.started_at} /> },
  ];
}

export function Execs() {
  const { thread } = route.useParams();
  const { exec } = route.useSearch();
  const owned = useOwned(thread);
  const list = useQuery({
    queryKey: [...owned.known, "execs"],
    queryFn: ({ signal }) => owned.thread.execs({ signal }),
    refetchInterval: 15_000,
  });
  const shape = useMemo(() => columns(thread), [thread]);
  if (list.isPending) return <Skeleton label="Execs are loading" />;
  if (list.isError) return <Failure error={list.error} what="The execs cannot be listed" />;
  if (list.data.length === 0 && exec === undefined) {
    return (
      <Empty title="Nothing has run here yet">
        <p>
          What an agent runs in this thread appears here as it runs.{" "}
          {owned.of === undefined && (
            <>
              To run something yourself, open a{" "}
              <Link to="/threads/$thread/terminal" params={{ thread }}>
                terminal
              </Link>
              .
            </>
          )}
        </p>
      </Empty>
    );
  }
  return (
    <div className={exec === undefined ? "split split-one" : "split"}>
      <section className="split-list" aria-label="Execs of the thread">
        <Grid label="Execs" columns={shape} rows={list.data} rowId={(e) => e.exec_id} shape="grid-execs" selected={exec} />
      </section>
      {exec !== undefined && <ExecDetail key={exec} thread={thread} owned={owned} exec={exec} info={list.data.find((e) => e.exec_id === exec)} />}
    </div>
  );
}
