import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useState, type FormEvent } from "react";
import { usePrincipal } from "../../session/session";
import { Button } from "../../ui/Button";
import { Fact } from "../../ui/Fact";
import { Failure } from "../../ui/Failure";
import { Field } from "../../ui/Field";
import { Time } from "../../ui/format";
import { Meter } from "../../ui/Meter";
import { Shown } from "../../ui/Shown";
import { Skeleton } from "../../ui/Skeleton";
import { State } from "../../ui/State";
import { useTitle } from "../../ui/title";
import { listServers, serversKey, type Server } from "./data";
import type { ServersSearch } from "./route";
import "../../ui/parts.css";
import "./servers.css";

const route = getRouteApi("/app/servers");

const tones = { serving: "good", draining: "idle", silent: "bad" } as const;

export function ServersPage() {
  useTitle("Servers");
  const search = route.useSearch();
  const list = useQuery({ queryKey: [...serversKey, "all"], queryFn: ({ signal }) => listServers(signal), refetchInterval: 5_000 });
  const holder = useQuery({
    queryKey: [...serversKey, "holder", search.thread ?? "", search.user ?? ""],
    queryFn: ({ signal }) => listServers(signal, search),
    enabled: search.thread !== undefined,
    refetchInterval: 5_000,
  });
  const has = search.thread === undefined ? undefined : holder.data?.[0]?.id;
  return (
    <div className="page">
      <div className="page-head">
        <h1>Servers</h1>
        <Find key={`${search.user ?? ""} ${search.thread ?? ""}`} search={search} />
      </div>
      {search.thread !== undefined && <Holder search={search} id={has} waits={holder.isPending} />}
      {holder.isError && <Failure error={holder.error} what="It is not known which server has the thread" />}
      {list.isPending && <Skeleton label="The servers are asked" />}
      {list.isError && <Failure error={list.error} what="The servers cannot be listed" />}
      {list.data !== undefined && (
        <>
          <ul className="servers" aria-label="Servers">
            {list.data.map((s) => (
              <One key={s.id} server={s} selected={s.id === has} />
            ))}
          </ul>
          <p className="hint">
            {list.data.length === 1
              ? "This installation has one server, which is asked anew every five seconds."
              : "They share a data folder, and are asked anew every five seconds. A server that ended is not here: the others take its threads."}
          </p>
        </>
      )}
    </div>
  );
}

function Find({ search }: { search: ServersSearch }) {
  const navigate = route.useNavigate();
  const me = usePrincipal();
  const [thread, setThread] = useState(search.thread ?? "");
  const [user, setUser] = useState(search.user ?? "");
  const wrong = thread === "" || /^[A-Za-z0-9_-]{1,128}$/.test(thread) ? undefined : "Letters, digits, _ and - only.";
  const submit = (e: FormEvent) => {
    e.preventDefault();
    if (wrong === undefined) void navigate({ search: thread === "" ? {} : { thread, ...(user === "" ? {} : { user }) } });
  };
  return (
    <form className="line holder" role="search" aria-label="Which server has a thread" onSubmit={submit} noValidate>
      <Field hideLabel label="Thread" placeholder="Who has the thread…" value={thread} onChange={(v) => setThread(v.trim())} error={wrong} maxLength={128} autoComplete="off" />
      <Field hideLabel label="Of the user" placeholder={`of ${me.user}, or another user`} value={user} onChange={(v) => setUser(v.trim())} maxLength={128} autoComplete="off" />
      <Button type="submit" isDisabled={wrong !== undefined}>
        Find
      </Button>
    </form>
  );
}

function Holder({ search, id, waits }: { search: ServersSearch; id: string | undefined; waits: boolean }) {
  const me = usePrincipal();
  return (
    <p className="note line" role="status">
      <span>
        {waits ? (
          "The servers are asked…"
        ) : id === undefined ? (
          <>
            No server has the thread <Shown>{search.thread ?? ""}</Shown> of <Shown>{search.user ?? me.user}</Shown> now. It is hibernated, or there is none of this name.
          </>
        ) : (
          <>
            The server <code>{id}</code> has the thread <Shown>{search.thread ?? ""}</Shown>.
          </>
        )}
      </span>
      {id !== undefined && search.thread !== undefined && (
        <Link to="/threads/$thread" params={{ thread: search.thread }} search={search.user === undefined || search.user === me.user ? {} : { of: search.user }}>
          Open the thread
        </Link>
      )}
    </p>
  );
}

function One({ server, selected }: { server: Server; selected: boolean }) {
  const r = server.report;
  const sandboxes = r === undefined ? 0 : Object.values(r.sandboxes).reduce((a, b) => a + b, 0);
  const states = Object.entries(r?.sandboxes ?? {}).filter(([, n]) => n > 0);
  return (
    <li className="card server" data-selected={selected ? "" : undefined}>
      <div className="pane-head">
        <h2 className="mono">{server.id}</h2>
        <div className="line">
          {server.this && <span className="tag">answers you</span>}
          <State name={server.state} tone={tones[server.state]} />
        </div>
      </div>
      <dl className="facts">
        {r !== undefined && (
          <Fact name="Version">
            <Shown>{r.version}</Shown>
          </Fact>
        )}
        <Fact name="Since">
          <Time at={server.started_at} />
        </Fact>
        <Fact name="Last answer">{server.seen_at === undefined ? "none" : <Time at={server.seen_at} />}</Fact>
        {server.address !== undefined && (
          <Fact name="API at">
            <code>{server.address}</code>
          </Fact>
        )}
        {server.peer_address !== undefined && (
          <Fact name="For other servers at">
            <code>{server.peer_address}</code>
          </Fact>
        )}
        <Fact name="Slot">
          <span className="num">{server.slot}</span>
        </Fact>
        {r !== undefined && (
          <>
            <Fact name="Threads that it has">
              <span className="num">{r.threads}</span>
            </Fact>
            <Fact name="Execs that run">
              <span className="num">{r.execs}</span>
            </Fact>
            <Fact name="Wait for a place">
              <span className="num">{r.queue}</span>
            </Fact>
          </>
        )}
      </dl>
      {r !== undefined && (
        <div className="meters">
          {r.max_sandboxes > 0 && <Meter name="Sandboxes" value={sandboxes} most={r.max_sandboxes} text={`${sandboxes} of ${r.max_sandboxes}`} />}
        </div>
      )}
      {states.length > 0 && <p className="hint">Sandboxes: {states.map(([s, n]) => `${n} ${s}`).join(", ")}.</p>}
      {(r?.pools ?? []).map((p) => (
        <p className="hint" key={p.template}>
          Pool of <Shown>{p.template}</Shown>: {p.waiting} ready here, {p.starting} starting, {p.target} wanted of all servers.
        </p>
      ))}
      {r === undefined && <p className="note">{server.state === "silent" ? "Its process is there, and does not answer: it was stopped, or is out of reach. The others take its threads when its leases end." : "It is of a version that says no more of itself."}</p>}
      {server.state === "draining" && <p className="note">It takes no new work, and hands its threads over.</p>}
    </li>
  );
}
