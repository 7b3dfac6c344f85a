import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { path, SkerryError } from "@skerry/client";
import { session } from "../../session/session";
import { Confirm } from "../../ui/Confirm";
import { Empty } from "../../ui/Empty";
import { Fact } from "../../ui/Fact";
import { Failure } from "../../ui/Failure";
import { Findings } from "../../ui/Findings";
import { Time } from "../../ui/format";
import { Shown, visible } from "../../ui/Shown";
import { Skeleton } from "../../ui/Skeleton";
import { State } from "../../ui/State";
import { Switch } from "../../ui/Switch";
import { lacks, originOf, pluginsKey, type Plugin, type Rights } from "./data";
import type { PluginsSearch } from "./route";
import { Values } from "./Values";

const route = getRouteApi("/app/plugins");

export function PluginDetail({ name, view, rights }: { name: string; view: PluginsSearch["view"]; rights: Rights }) {
  const plugin = useQuery({ queryKey: [...pluginsKey, "one", name], queryFn: ({ signal }) => session.client.call<Plugin>({ method: "GET", path: path("plugins", name) }, { signal }) });
  const missing = plugin.error instanceof SkerryError && plugin.error.status === 404;
  return (
    <section className="split-detail" aria-label="One plugin">
      {plugin.isPending && <Skeleton rows={6} label="The plugin is loading" />}
      {missing && (
        <Empty title="You have no such plugin">
          <p>
            <Shown>{name}</Shown> was removed, or is another user&apos;s.
          </p>
        </Empty>
      )}
      {plugin.isError && !missing && <Failure error={plugin.error} what="The plugin cannot be shown" />}
      {plugin.data !== undefined && <Known p={plugin.data} view={view} rights={rights} />}
    </section>
  );
}

/** A switch of the caller's. What else shows skills and tools learns of it. */
export function PluginSwitch({ p }: { p: Plugin }) {
  const known = useQueryClient();
  const flip = useMutation({
    mutationFn: (enabled: boolean) => session.client.call<Plugin>({ method: "PUT", path: path("plugins", p.name), body: { enabled } }),
    onSettled: () => known.invalidateQueries({ predicate: (q) => ["plugins", "skills", "tools"].includes(String(q.queryKey[0])) }),
  });
  return (
    <>
      <Switch label={p.enabled ? "On for you" : "Off for you"} isSelected={flip.isPending ? flip.variables : p.enabled} onChange={(on) => !flip.isPending && flip.mutate(on)} />
      {flip.isError && <Failure error={flip.error} what="It was not switched" />}
    </>
  );
}

function Known({ p, view, rights }: { p: Plugin; view: PluginsSearch["view"]; rights: Rights }) {
  const known = useQueryClient();
  const navigate = route.useNavigate();
  const removable = rights.develops && p.source.kind !== "server" && (!p.shared || rights.administers);
  const remove = useMutation({
    mutationFn: () => session.client.call({ method: "DELETE", path: path("plugins", p.name) }),
    onSuccess: async () => {
      await navigate({ search: {} });
      await known.invalidateQueries({ predicate: (q) => ["plugins", "skills", "tools"].includes(String(q.queryKey[0])) });
    },
  });
  const options = p.options ?? [];
  const tabs: { view: PluginsSearch["view"]; label: string }[] = [
    { view: undefined, label: "What it brings" },
    ...(options.length > 0 ? [{ view: "values" as const, label: `Values (${options.length})` }] : []),
    { view: "findings", label: p.findings.length === 0 ? "Findings" : `Findings (${p.findings.length})` },
  ];
  return (
    <>
      <div className="pane-head">
        <h2>
          <Shown>{p.display_name ?? p.name}</Shown>
        </h2>
        <div className="line">
          {rights.develops ? <PluginSwitch p={p} /> : p.enabled ? <State name="on" tone="good" /> : <State name="off" tone="none" />}
          {removable && (
            <Confirm label="Remove…" title={`Remove ${visible(p.name)}?`} yes="Remove" isDisabled={remove.isPending} onConfirm={() => remove.mutate()}>
              <p>{p.shared ? "All users of the tenant lose it." : "It is yours alone."} Its files, switches and values go, and what its programs kept.</p>
            </Confirm>
          )}
        </div>
      </div>
      {remove.isError && <Failure error={remove.error} what="It was not removed" />}
      {lacks(p) && (
        <p className="note">
          It wants values before all of it works.{" "}
          <Link from="/plugins" to="/plugins" search={(s: PluginsSearch) => ({ ...s, view: "values" as const })}>
            {rights.develops ? "Give them" : "See which"}
          </Link>
        </p>
      )}
      <nav className="tabs" aria-label="Parts of the plugin">
        {tabs.map((t) => (
          <Link key={t.label} from="/plugins" to="/plugins" search={({ view: _, ...s }: PluginsSearch) => ({ ...s, ...(t.view === undefined ? {} : { view: t.view }) })} activeOptions={{ exact: true, includeSearch: true }} data-status={view === t.view ? "active" : undefined} aria-current={view === t.view ? "page" : undefined}>
            {t.label}
          </Link>
        ))}
      </nav>
      <div className="scroll" tabIndex={0} role="group" aria-label="About the plugin">
        {view === undefined && <Contents p={p} />}
        {view === "values" && <Values p={p} changes={rights.develops} />}
        {view === "findings" && <Findings list={p.findings} none="Neither the check of its files nor the scan found anything." />}
      </div>
    </>
  );
}

const serverTones = { ok: "good", unusable: "bad", duplicate: "none" } as const;

/** All that is in a plugin: what a person looks at before switching it on. */
export function Contents({ p }: { p: Plugin }) {
  return (
    <>
      <p className="pre-line">{p.description === "" ? <span className="muted">It has no description.</span> : <Shown>{p.description}</Shown>}</p>
      <dl className="facts">
        <Fact name="Name">
          <code>
            <Shown>{p.name}</Shown>
          </code>
        </Fact>
        {p.version !== undefined && (
          <Fact name="Version">
            <Shown>{p.version}</Shown>
          </Fact>
        )}
        {p.author !== undefined && (
          <Fact name="Author, it says">
            <Shown>{p.author}</Shown>
          </Fact>
        )}
        {p.license !== undefined && (
          <Fact name="License">
            <Shown>{p.license}</Shown>
          </Fact>
        )}
        <Fact name="Of">{p.source.kind === "server" ? "all users" : p.shared ? "all users of the tenant" : "you alone"}</Fact>
        <Fact name="From">
          <Shown>{originOf(p.source)}</Shown>
        </Fact>
        {p.homepage !== undefined && (
          <Fact name="Homepage">
            <Shown>{p.homepage}</Shown>
          </Fact>
        )}
        {p.repository !== undefined && (
          <Fact name="Repository">
            <Shown>{p.repository}</Shown>
          </Fact>
        )}
        <Fact name="Digest">
          <code title={p.digest}>{p.digest.slice(0, 19)}…</code>
        </Fact>
        {p.source.kind !== "server" && (
          <Fact name="Installed">
            <Time at={p.installed_at} />
          </Fact>
        )}
      </dl>
      {p.commands.length > 0 && (
        <>
          <h3>Commands</h3>
          <ul className="rows" aria-label="Its commands">
            {p.commands.slice(0, 500).map((c) => (
              <li key={`${c.kind} ${c.name}`}>
                <code className="one-line">
                  /<Shown>{`${p.name}:${c.name}`}</Shown> <span className="muted">{<Shown>{c.argument_hint}</Shown>}</span>
                </code>
                <span className="muted">
                  <Shown>{c.description}</Shown>
                </span>
              </li>
            ))}
          </ul>
        </>
      )}
      {p.skills.length > 0 && (
        <>
          <h3>Skills</h3>
          <ul className="rows" aria-label="Its skills">
            {p.skills.slice(0, 500).map((s) => (
              <li key={s.location}>
                <div className="line">
                  {p.enabled ? (
                    <Link to="/skills" search={{ skill: `${p.name}:${s.name}` }}>
                      <Shown>{s.name}</Shown>
                    </Link>
                  ) : (
                    <strong>
                      <Shown>{s.name}</Shown>
                    </strong>
                  )}
                  {s.broken === true && <State name="broken" label="does not load" tone="bad" />}
                </div>
                <span className="muted">
                  <Shown>{s.description}</Shown>
                </span>
              </li>
            ))}
          </ul>
        </>
      )}
      {p.mcp_servers.length > 0 && (
        <>
          <h3>MCP servers</h3>
          <ul className="rows" aria-label="Its servers">
            {p.mcp_servers.slice(0, 200).map((s) => (
              <li key={s.name}>
                <div className="line">
                  {p.enabled && s.state === "ok" ? (
                    <Link to="/tools" search={{ server: s.registered }}>
                      <Shown>{s.name}</Shown>
                    </Link>
                  ) : (
                    <strong>
                      <Shown>{s.name}</Shown>
                    </strong>
                  )}
                  <State name={s.state} tone={serverTones[s.state]} />
                  <span className="muted">{s.transport}</span>
                </div>
                {s.reason !== undefined && (
                  <span className="hint">
                    <Shown>{s.reason}</Shown>
                  </span>
                )}
              </li>
            ))}
          </ul>
        </>
      )}
      {p.commands.length + p.skills.length + p.mcp_servers.length === 0 && <p className="hint">It has no command, no skill and no server. The findings say why.</p>}
    </>
  );
}
