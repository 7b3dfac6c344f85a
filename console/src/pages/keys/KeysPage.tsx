import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { path } from "@skerry/client";
import { useMemo } from "react";
import { session, usePrincipal } from "../../session/session";
import { all } from "../../ui/all";
import { Confirm } from "../../ui/Confirm";
import { Empty } from "../../ui/Empty";
import { Fact } from "../../ui/Fact";
import { Failure } from "../../ui/Failure";
import { Field } from "../../ui/Field";
import { Time } from "../../ui/format";
import { Grid, type Columns } from "../../ui/Grid";
import { Shown, visible } from "../../ui/Shown";
import { Skeleton } from "../../ui/Skeleton";
import { State } from "../../ui/State";
import { useTitle } from "../../ui/title";
import { keysKey, type Key } from "./data";
import { NewKey } from "./NewKey";
import type { KeysSearch } from "./route";
import "../../ui/parts.css";
import "./keys.css";

const route = getRouteApi("/app/keys");

function expired(k: Key): boolean {
  return k.expires_at !== undefined && Date.parse(k.expires_at) <= Date.now();
}

/** What a key may do besides its role, and where. */
function scopesOf(k: Key): string[] {
  return [...(k.act_for ? ["acts for users"] : []), ...(k.threads === undefined ? [] : [`${k.threads.length} thread${k.threads.length === 1 ? "" : "s"}`]), ...(k.capabilities ?? [])];
}

const columns: Columns<Key> = [
  {
    id: "name",
    header: "Key",
    cell: ({ row }) => (
      <Link to="/keys" search={({ add: _, ...s }: KeysSearch) => ({ ...s, key: row.original.id })} className="row-link" title={visible(row.original.name)}>
        <Shown>{row.original.name === "" ? row.original.id : row.original.name}</Shown>
      </Link>
    ),
  },
  { id: "user", header: "User", cell: ({ row }) => <Shown>{row.original.user}</Shown> },
  { id: "role", header: "Role", cell: ({ row }) => row.original.role },
  {
    id: "scopes",
    header: "Scopes",
    cell: ({ row }) => (
      <span className="muted">
        <Shown>{scopesOf(row.original).join(", ")}</Shown>
      </span>
    ),
  },
  { id: "expires", header: "Expires", cell: ({ row }) => <Expires k={row.original} /> },
  { id: "used", header: "Last use", cell: ({ row }) => (row.original.last_used_at === undefined ? <span className="muted">never</span> : <Time at={row.original.last_used_at} />) },
];

function Expires({ k }: { k: Key }) {
  if (k.expires_at === undefined) return <span className="muted">never</span>;
  return expired(k) ? <State name="expired" tone="bad" /> : <time dateTime={k.expires_at}>{k.expires_at.slice(0, 10)}</time>;
}

export function KeysPage() {
  useTitle("Keys");
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const list = useQuery({ queryKey: [...keysKey, "list"], queryFn: ({ signal }) => all<Key>("/api/keys", signal), refetchInterval: 15_000 });
  const items = useMemo(() => {
    const wanted = (search.q ?? "").toLowerCase();
    return (list.data ?? []).filter((k) => [k.name, k.user, k.id, k.role].some((s) => s.toLowerCase().includes(wanted)));
  }, [list.data, search.q]);
  const chosen = list.data?.find((k) => k.id === search.key);
  const open = search.add === true || search.key !== undefined;
  return (
    <div className="page page-fill">
      <div className="page-head">
        <h1>Keys</h1>
        <Link to="/keys" search={({ key: _, ...s }: KeysSearch) => ({ ...s, add: true as const })} activeOptions={{ exact: true, includeSearch: true }} className="button button-primary">
          Make a key
        </Link>
      </div>
      {list.isPending && <Skeleton label="Keys are loading" />}
      {list.isError && <Failure error={list.error} what="The keys cannot be listed" />}
      {list.data?.length === 0 && !open && (
        <Empty title="There is no key">
          <p>This server wants none. With the first one that you make, it wants a key from every caller.</p>
        </Empty>
      )}
      {list.data !== undefined && (list.data.length > 0 || open) && (
        <>
          {list.data.length > 0 && (
            <div className="filters">
              <Field
                hideLabel
                label="Find a key"
                placeholder="Part of a name, a user or an id"
                value={search.q ?? ""}
                onChange={(q) => void navigate({ search: ({ q: _, ...s }: KeysSearch) => (q === "" ? s : { ...s, q }), replace: true })}
                maxLength={128}
                autoComplete="off"
              />
              <span className="count num">
                {items.length} {items.length === 1 ? "key" : "keys"}
              </span>
            </div>
          )}
          <div className={open ? "split" : "split split-one"}>
            <section className="split-list" aria-label="Keys">
              <Grid label="Keys" columns={columns} rows={items} rowId={(k) => k.id} shape="grid-keys" selected={search.key} />
              {items.length === 0 && list.data.length > 0 && <p className="hint">No key fits.</p>}
            </section>
            {search.add === true ? <NewKey /> : search.key === undefined ? null : chosen === undefined ? <Missing id={search.key} /> : <Detail key={chosen.id} k={chosen} />}
          </div>
        </>
      )}
    </div>
  );
}

function Missing({ id }: { id: string }) {
  return (
    <section className="split-detail">
      <Empty title="There is no such key">
        <p>
          <Shown>{id}</Shown> was revoked, or is of another tenant.
        </p>
      </Empty>
    </section>
  );
}

/** What stops working, in a sentence. */
function stops(k: Key): string {
  const who = k.role === "pack" ? `Tool packs that connect with it, as ${k.user},` : `Requests with it, as ${k.user} with the role ${k.role},`;
  const where = k.threads === undefined ? "" : ` for the threads ${k.threads.slice(0, 5).join(", ")}${k.threads.length > 5 ? " and others" : ""},`;
  return `${who}${where} are refused at once, on other servers within five seconds.`;
}

function Detail({ k }: { k: Key }) {
  const known = useQueryClient();
  const navigate = route.useNavigate();
  const me = usePrincipal();
  const revoke = useMutation({
    mutationFn: () => session.client.call({ method: "DELETE", path: path("keys", k.id) }),
    onSuccess: async () => {
      await navigate({ search: ({ key: _, ...s }: KeysSearch) => s });
      await known.invalidateQueries({ queryKey: keysKey });
    },
  });
  return (
    <section className="split-detail" aria-label="One key">
      <div className="pane-head">
        <h2>
          <Shown>{k.name === "" ? k.id : k.name}</Shown>
        </h2>
        <Confirm label="Revoke…" title={`Revoke ${visible(k.name === "" ? k.id : k.name)}?`} yes="Revoke" isDisabled={revoke.isPending} onConfirm={() => revoke.mutate()}>
          <p>
            <Shown>{stops(k)}</Shown>
          </p>
          {k.act_for && <p>It acts for other users of the tenant, too: what it does for them stops as well, and so do the keys that were derived from it.</p>}
          <p>{k.last_used_at === undefined ? "It was never used." : <>It was used last <Time at={k.last_used_at} />.</>}</p>
          {k.role === "admin" && k.user === me.user && <p className="bad">It may be the key that you are logged in with.</p>}
        </Confirm>
      </div>
      <div className="scroll" tabIndex={0} role="group" aria-label="About the key">
        {expired(k) && <p className="note">It has expired, and is refused.</p>}
        <dl className="facts">
          <Fact name="Id">
            <code>{k.id}</code>
          </Fact>
          <Fact name="Tenant">
            <Shown>{k.tenant}</Shown>
          </Fact>
          <Fact name="User">
            <Shown>{k.user}</Shown>
          </Fact>
          <Fact name="Role">{k.role}</Fact>
          <Fact name="Acts for other users">{k.act_for ? "yes, with On-Behalf-Of" : "no"}</Fact>
          <Fact name="Made">
            <Time at={k.created_at} />
          </Fact>
          <Fact name="Expires">
            <Expires k={k} />
          </Fact>
          <Fact name="Last use">{k.last_used_at === undefined ? "never" : <Time at={k.last_used_at} />}</Fact>
        </dl>
        <h3>Threads</h3>
        {k.threads === undefined ? <p className="hint">All that the user may have.</p> : <Tags list={k.threads} />}
        <h3>Capabilities</h3>
        {(k.capabilities ?? []).length === 0 ? <p className="hint">None: tools that need one are not for it.</p> : <Tags list={k.capabilities ?? []} />}
        {revoke.isError && <Failure error={revoke.error} what="It was not revoked" />}
      </div>
    </section>
  );
}

function Tags({ list }: { list: readonly string[] }) {
  return (
    <div className="line">
      {list.map((t) => (
        <span className="tag" key={t}>
          <Shown>{t}</Shown>
        </span>
      ))}
    </div>
  );
}
