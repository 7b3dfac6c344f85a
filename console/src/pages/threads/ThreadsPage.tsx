import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import type { ThreadInfo } from "@skerry/client";
import { useCallback, useEffect, useMemo, useState, type FormEvent } from "react";
import { session, usePrincipal, type Principal } from "../../session/session";
import { Button } from "../../ui/Button";
import { Choice } from "../../ui/Choice";
import { Empty } from "../../ui/Empty";
import { Failure } from "../../ui/Failure";
import { Field } from "../../ui/Field";
import { bytes, Time } from "../../ui/format";
import { Grid, type Columns } from "../../ui/Grid";
import { Skeleton } from "../../ui/Skeleton";
import { State } from "../../ui/State";
import { useTitle } from "../../ui/title";
import type { ThreadsSearch } from "./route";
import { sizes, states, type Age, type Size, type StateName } from "./states";

const route = getRouteApi("/app/threads");

interface ThreadPage {
  items: ThreadInfo[];
  next_cursor?: string;
  /** How many there are, whatever the filter. */
  total?: number;
}

const perPage = 200;
// The server looks at 10,000 threads a request, for a text at 50,000: a page can be short, even empty, while more follow. What is
// found is shown at once; the list asks for more as long as it has room.
const mostPagesAtOnce = 10;

const hour = 3_600_000;
const day = 24 * hour;
const bounds: Record<Age, (now: number) => { active_after?: string; active_before?: string }> = {
  "1h": (now) => ({ active_after: new Date(now - hour).toISOString() }),
  "1d": (now) => ({ active_after: new Date(now - day).toISOString() }),
  "7d": (now) => ({ active_after: new Date(now - 7 * day).toISOString() }),
  idle1d: (now) => ({ active_before: new Date(now - day).toISOString() }),
  idle30d: (now) => ({ active_before: new Date(now - 30 * day).toISOString() }),
};

/** Of whose threads the list is: of all users for an administrator that does not choose, else the caller's own. */
function whose(search: ThreadsSearch, me: Principal): string {
  return search.user ?? (me.role === "admin" ? "*" : me.user);
}

async function load(search: ThreadsSearch, user: string, cursor: string | undefined, signal: AbortSignal): Promise<ThreadPage> {
  const { age, disk, sort, ...rest } = search;
  const order = sort === undefined || (sort === "thread_id" && user === "*") ? "last_active_at" : sort;
  const query = { ...rest, user, ...(age === undefined ? {} : bounds[age](Date.now())), min_disk_mib: disk, sort: order, limit: perPage };
  const out: ThreadPage = { items: [] };
  for (let i = 0; i < mostPagesAtOnce && out.items.length === 0; i++) {
    const page = await session.client.call<ThreadPage>({ method: "GET", path: "/api/threads", query: { ...query, cursor } }, { signal });
    out.items.push(...page.items);
    if (page.total !== undefined) out.total = page.total;
    cursor = page.next_cursor;
    if (cursor === undefined) return out;
  }
  return { ...out, ...(cursor === undefined ? {} : { next_cursor: cursor }) };
}

function ThreadName({ thread }: { thread: ThreadInfo }) {
  const me = usePrincipal();
  const own = thread.user === me.user;
  if (!own && !me.may_act_for) return <bdi title="To open threads of others, log in with a key that may act for them (act_for)">{thread.thread_id}</bdi>;
  return (
    <Link to="/threads/$thread" params={{ thread: thread.thread_id }} search={own ? {} : { of: thread.user }} className="row-link">
      <bdi>{thread.thread_id}</bdi>
    </Link>
  );
}

const number = new Intl.NumberFormat();

/** What a thread used. Its servers write it now and then, so it has a time. */
function Usage({ usage }: { usage: ThreadInfo["usage"] }) {
  if (usage === undefined) return <span className="muted">–</span>;
  const { disk_bytes: disk, measured_at: at } = usage;
  return (
    <span className="num" title={at === undefined ? "The files were not measured yet" : `Files as of ${new Date(at).toLocaleString()}`}>
      {disk === undefined ? "–" : bytes(disk)}{" "}
      <span className="muted usage-execs">
        · {number.format(usage.execs)} {usage.execs === 1 ? "exec" : "execs"}
      </span>
    </span>
  );
}

const columns: Columns<ThreadInfo> = [
  { id: "thread", header: "Thread", cell: ({ row }) => <ThreadName thread={row.original} /> },
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
  { id: "usage", header: "Usage", cell: ({ row }) => <Usage usage={row.original.usage} /> },
  { id: "user", header: "User", cell: ({ row }) => <bdi className="muted">{row.original.user}</bdi> },
  { id: "active", header: "Last active", cell: ({ row }) => <Time at={row.original.last_active_at} /> },
];

const ageChoices: readonly { id: Age | "any"; label: string }[] = [
  { id: "any", label: "Any time" },
  { id: "1h", label: "Active in the last hour" },
  { id: "1d", label: "Active in the last day" },
  { id: "7d", label: "Active in the last 7 days" },
  { id: "idle1d", label: "Idle for a day" },
  { id: "idle30d", label: "Idle for 30 days" },
];

const sizeChoices = [{ id: "any", label: "Any size" }, ...sizes.map((mib) => ({ id: String(mib), label: `${bytes(mib * 1024 * 1024)} and more` }))];

const sortChoices = [
  { id: "last_active_at", label: "Latest first" },
  { id: "disk_bytes", label: "Largest files first" },
  { id: "thread_id", label: "By name" },
] as const;

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
    <form className="line" onSubmit={open}>
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
  const me = usePrincipal();
  const user = whose(search, me);
  const [text, setText] = useState(search.q ?? "");
  useEffect(() => setText(search.q ?? ""), [search.q]); // also when the reader goes back
  const [label, setLabel] = useState("");
  const [wrong, setWrong] = useState(false);
  const templates = useQuery({ queryKey: ["templates"], queryFn: ({ signal }) => session.client.templates({ signal }), staleTime: 60_000 });
  const list = useInfiniteQuery({
    queryKey: ["threads", search, user],
    queryFn: ({ pageParam, signal }) => load(search, user, pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor,
    // Each page is asked for again, so a long list is not asked for by itself.
    refetchInterval: (q) => ((q.state.data?.pages.length ?? 0) <= 1 ? 5_000 : false),
  });
  // A thread whose size changes while the reader goes on can be in two pages.
  const rows = useMemo(() => [...new Map(list.data?.pages.flatMap((p) => p.items).map((t) => [`${t.user} ${t.thread_id}`, t])).values()], [list.data]);
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = list;
  const more = useCallback(() => {
    if (hasNextPage && !isFetchingNextPage) void fetchNextPage();
  }, [hasNextPage, isFetchingNextPage, fetchNextPage]);
  const { sort: _, user: __, ...filters } = search;
  // Threads that were never measured are in no list by size.
  const filtered = Object.keys(filters).length > 0 || search.sort === "disk_bytes" || (search.user !== undefined && search.user !== me.user && search.user !== "*");
  const total = list.data?.pages[0]?.total;
  // Where there is room for one of both only, the last activity gives way to the size that the reader asked for.
  const shape = search.sort === "disk_bytes" || search.disk !== undefined ? "grid-threads by-size" : "grid-threads";
  const set = <K extends keyof ThreadsSearch>(name: K, value: ThreadsSearch[K] | undefined) =>
    void navigate({
      search: (now) => {
        const { [name]: _old, ...rest } = now;
        return value === undefined || value === "" ? rest : { ...rest, [name]: value };
      },
    });
  const users = [
    { id: "*", label: "All users" },
    { id: me.user, label: "Mine" },
    ...(search.user === undefined || search.user === "*" || search.user === me.user ? [] : [{ id: search.user, label: search.user }]),
  ];
  const find = (e: FormEvent) => {
    e.preventDefault();
    set("q", text.trim());
  };
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
        <form onSubmit={find} className="line" role="search">
          <Field label="Search threads by id, user or label" hideLabel placeholder="Search, then Enter" value={text} onChange={setText} maxLength={200} />
        </form>
        {me.role === "admin" && <Choice label="Of whom" value={user} options={users} onChange={(v) => set("user", v)} />}
        <Choice label="State of the sandbox" value={search.state ?? "any"} options={stateChoices} onChange={(v) => set("state", v === "any" ? undefined : v)} />
        <Choice
          label="Template of the sandbox"
          value={search.template ?? "any"}
          options={templateChoices(templates.data?.map((t) => t.name) ?? [], search.template)}
          onChange={(v) => set("template", v === "any" ? undefined : v)}
        />
        <Choice label="Last activity" value={search.age ?? "any"} options={ageChoices} onChange={(v) => set("age", v === "any" ? undefined : v)} />
        <Choice label="Size of the files" value={String(search.disk ?? "any")} options={sizeChoices} onChange={(v) => set("disk", v === "any" ? undefined : (Number(v) as Size))} />
        <Choice
          label="Order"
          value={search.sort === "thread_id" && user === "*" ? "last_active_at" : (search.sort ?? "last_active_at")}
          options={user === "*" ? sortChoices.filter((o) => o.id !== "thread_id") : sortChoices}
          onChange={(v) => set("sort", v === "last_active_at" ? undefined : v)}
        />
        <form onSubmit={addLabel} className="line">
          <Field label="Filter by label" hideLabel placeholder="Label key=value, then Enter" value={label} onChange={setLabel} error={wrong ? "Write key=value" : undefined} />
        </form>
        {search.label?.map((l) => (
          <Button key={l} kind="quiet" aria-label={`Remove the filter ${l}`} onPress={() => setLabels((search.label ?? []).filter((x) => x !== l))}>
            {l} ×
          </Button>
        ))}
        <span className="count num" role="status">
          {list.isPending ? "" : counted(rows.length, hasNextPage, filtered, total)}
        </span>
      </div>
      {list.isError && <Failure error={list.error} what="The threads cannot be listed" />}
      {list.isPending && <Skeleton rows={10} label="Threads are loading" />}
      {list.isSuccess && rows.length > 0 && <Grid label="Threads" columns={columns} rows={rows} rowId={(t) => `${t.user} ${t.thread_id}`} shape={shape} onEnd={more} />}
      {list.isSuccess && rows.length === 0 && !filtered && <FirstThread />}
      {list.isSuccess && rows.length === 0 && filtered && (
        <Empty title={hasNextPage ? "None found so far" : "No thread fits these filters"}>
          {hasNextPage ? (
            <Button onPress={more} isDisabled={isFetchingNextPage}>
              Look further
            </Button>
          ) : (
            <Button
              onPress={() => {
                setText("");
                void navigate({ search: {} });
              }}
            >
              Remove the filters
            </Button>
          )}
        </Empty>
      )}
    </>
  );
}

function templateChoices(names: string[], chosen: string | undefined): { id: string; label: string }[] {
  const all = chosen === undefined || names.includes(chosen) ? names : [...names, chosen];
  return [{ id: "any", label: "Any template" }, ...all.map((name) => ({ id: name, label: name }))];
}

function counted(shown: number, more: boolean, filtered: boolean, total: number | undefined): string {
  if (!filtered && total !== undefined) return `${number.format(total)} ${total === 1 ? "thread" : "threads"}`;
  const found = `${number.format(shown)}${more ? "+" : ""}`;
  return total === undefined ? `${found} ${shown === 1 && !more ? "thread" : "threads"}` : `${found} of ${number.format(total)} threads`;
}

function FirstThread() {
  return (
    <Empty title="There is no thread yet">
      <p>The first call of an agent makes one. Try it from a shell:</p>
      <pre className="snippet">
        curl {location.origin}/api/threads/hello/exec -H 'Authorization: Bearer KEY' \{"\n"}  -H 'Content-Type: application/json' -d '{'{"command": "echo hello"}'}'
      </pre>
    </Empty>
  );
}
