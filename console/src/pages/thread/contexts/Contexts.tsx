import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { SkerryError, type CodeContext, type ContextOptions } from "@skerry/client";
import { useMemo, useState } from "react";
import { Button } from "../../../ui/Button";
import { Choice } from "../../../ui/Choice";
import { Empty } from "../../../ui/Empty";
import { Failure } from "../../../ui/Failure";
import { Time } from "../../../ui/format";
import { Grid, type Columns } from "../../../ui/Grid";
import { Skeleton } from "../../../ui/Skeleton";
import { State } from "../../../ui/State";
import { useOwned } from "../owned";
import { ContextDetail } from "./ContextDetail";
import "../../../ui/parts.css";
import "./contexts.css";

const route = getRouteApi("/app/threads/$thread/contexts");

type Language = NonNullable<ContextOptions["language"]>;

const languages: readonly { id: Language; label: string }[] = [
  { id: "python", label: "Python" },
  { id: "typescript", label: "TypeScript" },
  { id: "javascript", label: "JavaScript" },
];

const every = 4_000;

/** The state of a context as a word. */
export function Standing({ info }: { info: CodeContext }) {
  const tone = info.state === "idle" ? "good" : info.state === "lost" ? "bad" : "busy";
  return <State name={info.state} tone={tone} />;
}

function columnsOf(thread: string): Columns<CodeContext> {
  return [
    {
      id: "context",
      header: "Context",
      cell: ({ row }) => (
        <Link to="/threads/$thread/contexts" params={{ thread }} search={{ context: row.original.context_id }} className="row-link">
          {row.original.language} <span className="mono muted">{row.original.context_id}</span>
        </Link>
      ),
    },
    { id: "state", header: "State", cell: ({ row }) => <Standing info={row.original} /> },
    { id: "runs", header: "Runs", cell: ({ row }) => <span className="num">{row.original.runs}</span> },
    { id: "used", header: "Last used", cell: ({ row }) => <Time at={row.original.last_used_at} /> },
  ];
}

/** The interpreters of a thread that keep their variables between runs. */
export function Contexts() {
  const { thread } = route.useParams();
  const { context } = route.useSearch();
  const navigate = route.useNavigate();
  const owned = useOwned(thread);
  const known = useQueryClient();
  const [language, setLanguage] = useState<Language>("python");
  const list = useQuery({
    queryKey: [...owned.known, "contexts"],
    queryFn: async ({ signal }) => (await owned.thread.contexts({ signal })).map((c) => c.info),
    refetchInterval: every,
  });
  const create = useMutation({
    mutationFn: () => owned.thread.createContext({ language }),
    onSuccess: (c) => navigate({ search: { context: c.id } }),
    onSettled: () => known.invalidateQueries({ queryKey: [...owned.known, "contexts"] }),
  });
  const shape = useMemo(() => columnsOf(thread), [thread]);
  const rows = list.data ?? [];
  const chosen = rows.find((c) => c.context_id === context);
  return (
    <section className="contexts" aria-label="Contexts of the thread">
      <div className="line">
        <Choice label="Language" value={language} options={languages} onChange={setLanguage} />
        <Button kind={rows.length === 0 ? "primary" : "plain"} isDisabled={create.isPending} onPress={() => create.mutate()}>
          {create.isPending ? "Starting…" : "New context"}
        </Button>
        <span className="hint">An interpreter that keeps its variables between runs.</span>
      </div>
      {create.isError && <Failure error={create.error} what="The context cannot be started" />}
      {list.isPending && <Skeleton label="Contexts are loading" />}
      {list.isError && (list.error instanceof SkerryError && list.error.status === 501 ? <p className="hint">{list.error.message}</p> : <Failure error={list.error} what="The contexts cannot be listed" />)}
      {list.isSuccess && rows.length === 0 && (
        <Empty title="There is no context here now">
          <p>Agents start them to work as in a notebook. You can start one, too.</p>
        </Empty>
      )}
      {rows.length > 0 && (
        <div className={context === undefined ? "split split-one" : "split"}>
          <section className="split-list" aria-label="Contexts">
            <Grid label="Contexts" columns={shape} rows={rows} rowId={(c) => c.context_id} shape="grid-contexts" selected={context} />
          </section>
          {context !== undefined &&
            (chosen === undefined ? (
              list.isSuccess && !list.isFetching && <Empty title="This context has ended" />
            ) : (
              <ContextDetail key={context} owned={owned} info={chosen} onEnd={() => void navigate({ search: {} })} />
            ))}
        </div>
      )}
    </section>
  );
}
