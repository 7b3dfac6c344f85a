import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { path } from "@skerry/client";
import { useState, type FormEvent } from "react";
import { session } from "../../session/session";
import { all } from "../../ui/all";
import { Button } from "../../ui/Button";
import { Confirm } from "../../ui/Confirm";
import { Elapsed } from "../../ui/Elapsed";
import { Empty } from "../../ui/Empty";
import { Fact } from "../../ui/Fact";
import { Failure } from "../../ui/Failure";
import { Checkbox, Field } from "../../ui/Field";
import { counted, Findings } from "../../ui/Findings";
import { Time } from "../../ui/format";
import { Shown, visible } from "../../ui/Shown";
import { Skeleton } from "../../ui/Skeleton";
import { State } from "../../ui/State";
import { install, originOf, pluginsKey, type Entry, type Market, type Rights } from "./data";
import { install as installSkill } from "../skills/data";
import { Refused } from "../../ui/Refused";

const route = getRouteApi("/app/plugins");

/** Marketplaces of the tenant: lists of plugins, and of skills, that an administrator added. */
export function Markets({ chosen, adding, rights }: { chosen: string | undefined; adding: boolean; rights: Rights }) {
  const list = useQuery({ queryKey: [...pluginsKey, "markets"], queryFn: ({ signal }) => all<Market>("/api/marketplaces", signal) });
  if (list.isPending) return <Skeleton label="Marketplaces are loading" />;
  if (list.isError) return <Failure error={list.error} what="The marketplaces cannot be listed" />;
  const market = list.data.find((m) => m.name === chosen);
  if (list.data.length === 0 && !adding) {
    return (
      <Empty title="No marketplace was added">
        <p>{rights.administers ? "Add a repository, or a folder of the server, that has a marketplace.json." : "An administrator adds marketplaces."}</p>
      </Empty>
    );
  }
  return (
    <div className={adding || chosen !== undefined ? "split split-plugins" : "split split-one"}>
      <section className="split-list" aria-label="Marketplaces">
        <ul className="rows" aria-label="Marketplaces">
          {list.data.map((m) => (
            <li key={m.name} data-selected={m.name === chosen ? "" : undefined}>
              <Link to="/plugins" search={{ tab: "markets", market: m.name }} className="stretched" title={visible(m.name)}>
                <Shown>{m.name}</Shown>
              </Link>
              <span className="hint num">
                {m.plugins.length} plugins, {m.skills?.length ?? 0} skills{m.findings.length > 0 ? ` · ${counted(m.findings)}` : ""}
              </span>
            </li>
          ))}
        </ul>
      </section>
      {adding ? (
        <Add />
      ) : chosen === undefined ? null : market === undefined ? (
        <section className="split-detail">
          <Empty title="There is no such marketplace" />
        </section>
      ) : (
        <One key={market.name} m={market} rights={rights} />
      )}
    </div>
  );
}

function Add() {
  const known = useQueryClient();
  const navigate = route.useNavigate();
  const [source, setSource] = useState("");
  const [ref, setRef] = useState("");
  const [replace, setReplace] = useState(false);
  const add = useMutation({
    mutationFn: () => session.client.call<Market>({ method: "POST", path: "/api/marketplaces", kind: "once", body: { source: source.trim(), ...(ref.trim() === "" ? {} : { ref: ref.trim() }), ...(replace ? { replace } : {}) } }, { timeoutMs: 300_000 }),
    onSuccess: async (m) => {
      await known.invalidateQueries({ queryKey: [...pluginsKey, "markets"] });
      void navigate({ search: { tab: "markets", market: m.name } });
    },
  });
  const submit = (e: FormEvent) => {
    e.preventDefault();
    if (source.trim() !== "") add.mutate();
  };
  return (
    <section className="split-detail" aria-label="Add a marketplace">
      <div className="pane-head">
        <h2>Add a marketplace</h2>
        <Link to="/plugins" search={{ tab: "markets" }} activeOptions={{ exact: true, includeSearch: true }} className="button button-quiet">
          Close
        </Link>
      </div>
      <form className="card" onSubmit={submit}>
        <Field label="Source" placeholder="owner/name, https://…, or a folder of the server" value={source} onChange={setSource} maxLength={2048} autoComplete="off" />
        <Field label="Branch or tag" value={ref} onChange={setRef} maxLength={200} autoComplete="off" />
        <Checkbox isSelected={replace} onChange={setReplace}>
          In place of one of that name from elsewhere
        </Checkbox>
        <div className="line">
          <Button type="submit" kind="primary" isDisabled={add.isPending || source.trim() === ""}>
            {add.isPending ? "Reading…" : "Add"}
          </Button>
          {add.isPending && <Elapsed />}
          <span className="hint">All users of the tenant see what it lists. Nothing of it is installed.</span>
        </div>
      </form>
      {add.isError && <Failure error={add.error} what="It was not added" />}
    </section>
  );
}

function One({ m, rights }: { m: Market; rights: Rights }) {
  const known = useQueryClient();
  const navigate = route.useNavigate();
  const markets = { queryKey: [...pluginsKey, "markets"] };
  const remove = useMutation({
    mutationFn: () => session.client.call({ method: "DELETE", path: path("marketplaces", m.name) }),
    onSuccess: async () => {
      await navigate({ search: { tab: "markets" } });
      await known.invalidateQueries(markets);
    },
  });
  const again = useMutation({
    mutationFn: () => session.client.call<Market>({ method: "POST", path: "/api/marketplaces", kind: "once", body: { source: m.source.from ?? "", kind: m.source.kind, ...(m.source.ref === undefined ? {} : { ref: m.source.ref }), ...(m.source.path === undefined ? {} : { folder: m.source.path }) } }, { timeoutMs: 300_000 }),
    onSettled: () => known.invalidateQueries(markets),
  });
  return (
    <section className="split-detail" aria-label="One marketplace">
      <div className="pane-head">
        <h2>
          <Shown>{m.name}</Shown>
        </h2>
        {rights.administers && (
          <div className="line">
            <Button isDisabled={again.isPending} onPress={() => again.mutate()}>
              {again.isPending ? "Reading…" : "Read it anew"}
            </Button>
            <Confirm label="Remove…" title={`Remove ${visible(m.name)}?`} yes="Remove" isDisabled={remove.isPending} onConfirm={() => remove.mutate()}>
              <p>What was installed from it stays.</p>
            </Confirm>
          </div>
        )}
      </div>
      <div className="scroll" tabIndex={0} role="group" aria-label="About the marketplace">
        {m.description !== undefined && (
          <p>
            <Shown>{m.description}</Shown>
          </p>
        )}
        <dl className="facts">
          {m.owner !== undefined && (
            <Fact name="Owner, it says">
              <Shown>{m.owner}</Shown>
            </Fact>
          )}
          <Fact name="From">
            <Shown>{originOf(m.source)}</Shown>
          </Fact>
          <Fact name="Read">
            <Time at={m.added_at} />
          </Fact>
        </dl>
        {remove.isError && <Failure error={remove.error} what="It was not removed" />}
        {again.isError && <Failure error={again.error} what="It could not be read" />}
        {m.findings.length > 0 && <Findings list={m.findings} />}
        <h3>Plugins</h3>
        {m.plugins.length === 0 ? <p className="hint">It lists none.</p> : <Entries label="Plugins of the marketplace" list={m.plugins} market={m.name} kind="plugin" rights={rights} />}
        {m.skills !== undefined && m.skills.length > 0 && (
          <>
            <h3>Skills</h3>
            <Entries label="Skills of the marketplace" list={m.skills} market={m.name} kind="skill" rights={rights} />
          </>
        )}
      </div>
    </section>
  );
}

function Entries({ label, list, ...more }: { label: string; list: Entry[]; market: string; kind: "plugin" | "skill"; rights: Rights }) {
  return (
    <ul className="rows" aria-label={label}>
      {list.slice(0, 1_000).map((e) => (
        <Listed key={e.name} e={e} {...more} />
      ))}
    </ul>
  );
}

function Listed({ e, market, kind, rights }: { e: Entry; market: string; kind: "plugin" | "skill"; rights: Rights }) {
  const known = useQueryClient();
  const navigate = route.useNavigate();
  const act = useMutation({
    mutationFn: async (strict: boolean) => {
      if (kind === "skill") return (await installSkill({ marketplace: market, skill: e.name }, strict)).skill_name;
      return (await install({ source: { marketplace: market, plugin: e.name }, strict, shared: false, replace: false })).name;
    },
    onSuccess: (name) => {
      if (kind === "skill") void navigate({ to: "/skills", search: { skill: name } });
      else void navigate({ search: { plugin: name } });
    },
    onSettled: () => known.invalidateQueries({ predicate: (q) => ["plugins", "skills", "tools"].includes(String(q.queryKey[0])) }),
  });
  return (
    <li>
      <div className="line">
        <strong>
          <Shown>{e.name}</Shown>
        </strong>
        {e.version !== undefined && (
          <span className="muted num">
            <Shown>{e.version}</Shown>
          </span>
        )}
        {e.pinned && <span className="tag">pinned</span>}
        {e.installed && <State name="installed" label="you have it" tone="good" />}
        {rights.develops && !e.installed && e.problem === undefined && (
          <Button isDisabled={act.isPending} onPress={() => act.mutate(true)} aria-label={`Install ${visible(e.name)}`}>
            {act.isPending ? "Installing…" : "Install"}
          </Button>
        )}
      </div>
      <span className="muted">
        <Shown>{e.description}</Shown>
      </span>
      {e.problem !== undefined && (
        <span className="bad">
          <Shown>{e.problem}</Shown>
        </span>
      )}
      {act.isError && <Refused error={act.error} what="It was not installed" busy={act.isPending} onAnyway={act.variables ? () => act.mutate(false) : undefined} />}
    </li>
  );
}
