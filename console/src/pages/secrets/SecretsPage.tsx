import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { path } from "@skerry/client";
import { useState } from "react";
import { session, usePrincipal, type Principal } from "../../session/session";
import { all } from "../../ui/all";
import { Choice } from "../../ui/Choice";
import { Confirm } from "../../ui/Confirm";
import { Empty } from "../../ui/Empty";
import { Fact } from "../../ui/Fact";
import { Failure } from "../../ui/Failure";
import { Field } from "../../ui/Field";
import { Time } from "../../ui/format";
import { Grid, type Columns } from "../../ui/Grid";
import { Shown, visible } from "../../ui/Shown";
import { Skeleton } from "../../ui/Skeleton";
import { useTitle } from "../../ui/title";
import { holderOf, secretsKey, sources, wireScope, type Secret } from "./data";
import { Value } from "./Value";
import "../../ui/parts.css";
import "./secrets.css";

const route = getRouteApi("/app/secrets");

const columns: Columns<Secret> = [
  {
    id: "name",
    header: "Secret",
    cell: ({ row }) => (
      <Link to="/secrets" search={{ name: row.original.name, scope: row.original.scope, ...(row.original.source === "stored" ? {} : { from: row.original.source }) }} className="row-link mono" title={visible(row.original.name)}>
        <Shown>{row.original.name}</Shown>
      </Link>
    ),
  },
  {
    id: "scope",
    header: "Who has it",
    cell: ({ row }) => (
      <span title={visible(holderOf(row.original.scope))}>
        <Shown>{holderOf(row.original.scope)}</Shown>
      </span>
    ),
  },
  { id: "source", header: "From", cell: ({ row }) => <span className="muted">{sources[row.original.source]}</span> },
  { id: "changed", header: "Changed", cell: ({ row }) => (row.original.changed_at === undefined ? <span className="muted">–</span> : <Time at={row.original.changed_at} />) },
  { id: "used", header: "Last use", cell: ({ row }) => <Used secret={row.original} /> },
];

function Used({ secret }: { secret: Secret }) {
  if (secret.last_used_at !== undefined) return <Time at={secret.last_used_at} />;
  return <span className="muted">{secret.source === "stored" ? "never" : "–"}</span>;
}

const idOf = (s: Secret) => `${s.name} ${s.scope} ${s.source}`;

export function SecretsPage() {
  useTitle("Secrets");
  const me = usePrincipal();
  const search = route.useSearch();
  const list = useQuery({ queryKey: [...secretsKey, "list"], queryFn: ({ signal }) => all<Secret>("/api/secrets", signal), refetchInterval: 15_000 });
  const chosen = list.data?.find((s) => s.name === search.name && s.scope === search.scope && s.source === (search.from ?? "stored"));
  const open = search.add === true || search.name !== undefined;
  return (
    <div className="page page-fill">
      <div className="page-head">
        <h1>Secrets</h1>
        <div className="line">
          {me.operator && <Rotate />}
          <Link to="/secrets" search={{ add: true }} activeOptions={{ exact: true, includeSearch: true }} className="button button-primary">
            Store a secret
          </Link>
        </div>
      </div>
      {list.isPending && <Skeleton label="Secrets are loading" />}
      {list.isError && <Failure error={list.error} what="The secrets cannot be listed" />}
      {list.data?.length === 0 && !open && (
        <Empty title="There is no secret">
          <p>Store a token here, and name it in an MCP server as {"${secret:NAME}"} or in the env_secrets of an exec.</p>
        </Empty>
      )}
      {list.data !== undefined && (list.data.length > 0 || open) && (
        <div className={open ? "split" : "split split-one"}>
          <section className="split-list" aria-label="Secrets">
            <Grid label="Secrets" columns={columns} rows={list.data} rowId={idOf} shape="grid-secrets" selected={chosen === undefined ? undefined : idOf(chosen)} />
          </section>
          {search.add === true ? <New me={me} /> : search.name === undefined ? null : chosen === undefined ? <Missing name={search.name} /> : <Detail key={idOf(chosen)} secret={chosen} me={me} others={list.data} />}
        </div>
      )}
    </div>
  );
}

function Missing({ name }: { name: string }) {
  return (
    <section className="split-detail">
      <Empty title="There is no such secret">
        <p>
          <Shown>{name}</Shown> was deleted, or you may not see it.
        </p>
      </Empty>
    </section>
  );
}

function Detail({ secret, me, others }: { secret: Secret; me: Principal; others: readonly Secret[] }) {
  const known = useQueryClient();
  const navigate = route.useNavigate();
  const remove = useMutation({
    mutationFn: () => session.client.call({ method: "DELETE", path: path("secrets", secret.name), query: { scope: wireScope(secret.scope) } }),
    onSuccess: async () => {
      await navigate({ search: {} });
      await known.invalidateQueries({ queryKey: secretsKey });
    },
  });
  const changes = secret.source === "stored" && (me.role === "admin" || secret.scope === `user/${me.user}`);
  const rest = others.filter((s) => s.name === secret.name && !(s.scope === secret.scope && s.source === secret.source));
  return (
    <section className="split-detail" aria-label="One secret">
      <div className="pane-head">
        <h2 className="mono">
          <Shown>{secret.name}</Shown>
        </h2>
        {changes && (
          <Confirm label="Delete…" title={`Delete ${visible(secret.name)}?`} yes="Delete" isDisabled={remove.isPending} onConfirm={() => remove.mutate()}>
            <p>
              It is the one of: <Shown>{holderOf(secret.scope)}</Shown>. {rest.length === 0 ? "What names it fails from then on." : "What names it gets another one of the name, if one is for it, and else fails."}
            </p>
          </Confirm>
        )}
      </div>
      <div className="scroll" tabIndex={0} role="group" aria-label="About the secret">
        <dl className="facts">
          <Fact name="Who has it">
            <Shown>{holderOf(secret.scope)}</Shown>
          </Fact>
          <Fact name="From">{sources[secret.source]}</Fact>
          <Fact name="In environments of execs">{secret.exec ? "allowed" : "not allowed"}</Fact>
          {secret.changed_at !== undefined && (
            <Fact name="Changed">
              <Time at={secret.changed_at} /> {secret.changed_by !== undefined && <>by <Shown>{secret.changed_by}</Shown></>}
            </Fact>
          )}
          <Fact name="Last use">
            <Used secret={secret} />
          </Fact>
        </dl>
        {rest.length > 0 && (
          <p className="hint">
            Others have this name, too. What counts first: a user&apos;s own, the server&apos;s or skill&apos;s, the tenant&apos;s, the file, the variable.
          </p>
        )}
        {remove.isError && <Failure error={remove.error} what="It was not deleted" />}
        {changes ? (
          <>
            <h3>Replace it</h3>
            <Value name={secret.name} scope={secret.scope} exec={secret.exec} label="New value" action="Store the new value" />
          </>
        ) : (
          <p className="note">{secret.source === "stored" ? "An administrator changes it." : "It is set on the machine of the server, and is changed there."}</p>
        )}
      </div>
    </section>
  );
}

type Kind = "user" | "tenant" | "server" | "skill";

const kinds: readonly { id: Kind; label: string }[] = [
  { id: "user", label: "You alone" },
  { id: "tenant", label: "All users of the tenant" },
  { id: "server", label: "Connections to one MCP server" },
  { id: "skill", label: "Scripts of one skill" },
];

function New({ me }: { me: Principal }) {
  const navigate = route.useNavigate();
  const [name, setName] = useState("");
  const [kind, setKind] = useState<Kind>("user");
  const [of, setOf] = useState("");
  const bound = kind === "server" || kind === "skill";
  const wrong = name === "" || /^[A-Za-z_][A-Za-z0-9_.-]{0,127}$/.test(name) ? undefined : "Letters, digits, _ . and - only, beginning with a letter or _.";
  const complete = name !== "" && wrong === undefined && (!bound || of !== "");
  const scope = bound ? `${kind}/${of}` : kind;
  return (
    <section className="split-detail" aria-label="Store a secret">
      <div className="pane-head">
        <h2>A new secret</h2>
        <Link to="/secrets" search={{}} activeOptions={{ exact: true, includeSearch: true }} className="button button-quiet">
          Cancel
        </Link>
      </div>
      <div className="scroll">
        <div className="secret-form">
          <Field label="Name" value={name} onChange={(v) => setName(v.trim())} error={wrong} maxLength={128} autoComplete="off" />
          {me.role === "admin" && (
            <div className="field">
              <span className="label" aria-hidden="true">
                Who has it
              </span>
              <Choice label="Who has it" value={kind} options={kinds} onChange={setKind} />
            </div>
          )}
          {bound && (
            <Field label={kind === "server" ? "Name of the MCP server" : "Name of the skill"} value={of} onChange={(v) => setOf(v.trim())} maxLength={256} autoComplete="off" />
          )}
          {kind === "skill" && <p className="hint">A public skill is known by its name, any other one as NAME@sha256:DIGEST.</p>}
        </div>
        <Value key={kind === "skill" ? "skill" : "other"} name={complete ? name : ""} scope={scope} exec={false} label="Value" action="Store" onStored={(s) => void navigate({ search: { name: s.name, scope: s.scope } })} />
      </div>
    </section>
  );
}

/** For operators: a new key for all that the server keeps encrypted. */
function Rotate() {
  const rotate = useMutation({ mutationFn: () => session.client.call<{ renewed: number }>({ method: "POST", path: "/api/secrets/rotate", body: {} }, { timeoutMs: 300_000 }) });
  return (
    <>
      {!rotate.isIdle && !rotate.isError && (
        <span role="status" className="hint">
          {rotate.isPending ? "Everything is encrypted anew…" : `There is a new key. ${rotate.data.renewed} values were encrypted for it.`}
        </span>
      )}
      {rotate.isError && <Failure error={rotate.error} what="The rotation did not end. It can be run again" />}
      <Confirm label="Rotate the key…" title="Rotate the key of all secrets?" yes="Rotate" isDisabled={rotate.isPending} onConfirm={() => rotate.mutate()}>
        <p>The server makes a new key, encrypts all that it keeps for all tenants anew, and takes the old key out of its key file. Values stay as they are.</p>
        <p>Old backups of the data need the old key file: keep it with them.</p>
      </Confirm>
    </>
  );
}
