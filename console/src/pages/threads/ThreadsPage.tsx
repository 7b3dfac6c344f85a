import { useInfiniteQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import type { ThreadInfo } from "@skerry/client";
import { useCallback, useMemo, useState, type FormEvent } from "react";
import { session, usePrincipal } from "../../session/session";
import { Button } from "../../ui/Button";
import { Choice } from "../../ui/Choice";
import { Empty } from "../../ui/Empty";
import { Failure } from "../../ui/Failure";
import { Field } from "../../ui/Field";
import { Time } from "../../ui/format";
import { Grid, type Columns } from "../../ui/Grid";
import { Skeleton } from "../../ui/Skeleton";
import { State } from "../../ui/State";
import { useTitle } from "../../ui/title";
import type { ThreadsSearch } from "./route";
import { states, type StateName } from "./states";

const route = getRouteApi("/app/threads");

interface ThreadPage {
  items: ThreadInfo[];
  next_cursor?: string;
}

const perPage = 200;
// The server filters by state after it has read a page, so one page can be empty while more follow.
const mostPagesAtOnce = 10;

async function load(search: ThreadsSearch, cursor: string | undefined, signal: AbortSignal): Promise<ThreadPage> {
  const out: ThreadPage = { items: [] };
  for (let i = 0; i < mostPagesAtOnce && out.items.length < perPage; i++) {
    const page = await session.client.call<ThreadPage>({ method: "GET", path: "/api/threads", query: { ...search, limit: perPage, cursor } }, { signal });
    out.items.push(...page.items);
    cursor = page.next_cursor;
    if (cursor === undefined) return out;
  }
  return { ...out, ...(cursor === undefined ? {} : { next_cursor: cursor }) };
}

const columns: Columns<ThreadInfo> = [
  {
    id: "thread",
    header: "Thread",
    cell: ({ row }) => (
      <Link to="/threads/$thread" params={{ thread: row.original.thread_id }} className="row-link">
        <bdi>{row.original.thread_id}</bdi>
      </Link>
    ),
  },
  { id: "state", header: "Sandbox", cell: ({ row }) => (row.original.sandbox === undefined ? <span className="muted">none</span> : <State name={row.original.sandbox.state} />) },
  { id: "template", header: "Template", cell: ({ row }) => <span className="muted">{row.original.sandbox?.template ?? "–"}</span> },
  {
    id: "labels",
    header: "Labels",
    cell: ({ row }) => (
      <span className="tags" title={Object.entries(row.original.labels).map(([k, v]) => `${k}=${v}`).join("\n") || undefined}>
        {Object.entries(row.original.labels).map(([k, v]) => (
          <bdi key={k} className="tag">
            {k}={v}
          </bdi>
        ))}
      </span>
    ),
  },
  { id: "user", header: "User", cell: ({ row }) => <bdi className="muted">{row.original.user}</bdi> },
  { id: "active", header: "Last active", cell: ({ row }) => <Time at={row.original.last_active_at} /> },
];

const stateChoices: readonly { id: StateName | "any"; label: string }[] = [{ id: "any", label: "Any state" }, ...states.map((s) => ({ id: s, label: s }))];

export function ThreadsPage() {
  useTitle("Threads");
  const me = usePrincipal();
  return (
    <div className="page page-fill">
      <div className="page-head">
        <h1>Threads</h1>
        <OpenThread />
      </div>
      {me.threads === undefined ? <ThreadList /> : <OwnThreads names={me.threads} />}
    </div>
  );
}

/** Goes to a thread by its name, which the list cannot search. */
function OpenThread() {
  const navigate = useNavigate();
  const [name, setName] = useState("");
  const open = (e: FormEvent) => {
    e.preventDefault();
    if (name.trim() !== "") void navigate({ to: "/threads/$thread", params: { thread: name.trim() } });
  };
  return (
    <form className="line" onSubmit={open} role="search">
      <Field label="Open a thread by its id" hideLabel placeholder="Thread id" value={name} onChange={setName} />
      <Button type="submit" isDisabled={name.trim() === ""}>
        Open
      </Button>
    </form>
  );
}

/** Of a key that is good for some threads only, which lists none. */
function OwnThreads({ names }: { names: string[] }) {
  return (
    <Empty title="This key is good for some threads only">
      <ul className="plain">
        {names.map((name) => (
          <li key={name}>
            {name.endsWith("*") ? (
              <>
                those that begin with <code>{name.slice(0, -1)}</code>: open one by its id
              </>
            ) : (
              <Link to="/threads/$thread" params={{ thread: name }}>
                {name}
              </Link>
            )}
          </li>
        ))}
      </ul>
    </Empty>
  );
}

function ThreadList() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const [label, setLabel] = useState("");
  const [wrong, setWrong] = useState(false);
  const list = useInfiniteQuery({
    queryKey: ["threads", search],
    queryFn: ({ pageParam, signal }) => load(search, pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor,
    // Each page is asked for again, so a long list is not asked for by itself.
    refetchInterval: (q) => ((q.state.data?.pages.length ?? 0) <= 1 ? 5_000 : false),
  });
  const rows = useMemo(() => list.data?.pages.flatMap((p) => p.items) ?? [], [list.data]);
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = list;
  const more = useCallback(() => {
    if (hasNextPage && !isFetchingNextPage) void fetchNextPage();
  }, [hasNextPage, isFetchingNextPage, fetchNextPage]);
  const filtered = search.state !== undefined || search.label !== undefined;
  const setState = (state: StateName | "any") => void navigate({ search: ({ state: _, ...rest }) => (state === "any" ? rest : { ...rest, state }) });
  const setLabels = (labels: string[]) => void navigate({ search: ({ label: _, ...rest }) => (labels.length === 0 ? rest : { ...rest, label: labels }) });
  const addLabel = (e: FormEvent) => {
    e.preventDefault();
    const text = label.trim();
    const good = /^[^=]+=/.test(text);
    setWrong(!good);
    if (!good) return;
    setLabels([...new Set([...(search.label ?? []), text])]);
    setLabel("");
  };
  return (
    <>
      <div className="filters">
        <Choice label="State of the sandbox" value={search.state ?? "any"} options={stateChoices} onChange={setState} />
        <form onSubmit={addLabel} className="line">
          <Field label="Filter by label" hideLabel placeholder="Label key=value, then Enter" value={label} onChange={setLabel} error={wrong ? "Write key=value" : undefined} />
        </form>
        {search.label?.map((l) => (
          <Button key={l} kind="quiet" aria-label={`Remove the filter ${l}`} onPress={() => setLabels((search.label ?? []).filter((x) => x !== l))}>
            {l} ×
          </Button>
        ))}
        <span className="count num" role="status">
          {list.isPending ? "" : `${rows.length}${hasNextPage ? "+" : ""} ${rows.length === 1 ? "thread" : "threads"}`}
        </span>
      </div>
      {list.isError && <Failure error={list.error} what="The threads cannot be listed" />}
      {list.isPending && <Skeleton rows={10} label="Threads are loading" />}
      {list.isSuccess && rows.length > 0 && <Grid label="Threads" columns={columns} rows={rows} rowId={(t) => t.thread_id} shape="grid-threads" onEnd={more} />}
      {list.isSuccess && rows.length === 0 && !filtered && <FirstThread />}
      {list.isSuccess && rows.length === 0 && filtered && (
        <Empty title={hasNextPage ? "None found so far" : "No thread fits these filters"}>
          {hasNextPage ? (
            <Button onPress={more} isDisabled={isFetchingNextPage}>
              Look further
            </Button>
          ) : (
            <Button onPress={() => void navigate({ search: {} })}>Remove the filters</Button>
          )}
        </Empty>
      )}
    </>
  );
}

function FirstThread() {
  return (
    <Empty title="You have no thread yet">
      <p>The first call of an agent makes one. Try it from a shell:</p>
      <pre className="snippet">
        curl {location.origin}/api/threads/hello/exec -H 'Authorization: Bearer KEY' \{"\n"}  -H 'Content-Type: application/json' -d '{'{"command": "echo hello"}'}'
      </pre>
    </Empty>
  );
}
