import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { path } from "@skerry/client";
import { useState, type FormEvent } from "react";
import { session } from "../../session/session";
import { all } from "../../ui/all";
import { Button } from "../../ui/Button";
import { Choice } from "../../ui/Choice";
import { Elapsed } from "../../ui/Elapsed";
import { Failure } from "../../ui/Failure";
import { Checkbox, Field } from "../../ui/Field";
import { counted, Findings } from "../../ui/Findings";
import { Pick } from "../../ui/Pick";
import { Refused } from "../../ui/Refused";
import { Shown, visible } from "../../ui/Shown";
import { install, pluginsKey, type Installing, type Market, type Plugin, type Rights, type Source } from "./data";
import { Contents, PluginSwitch } from "./PluginDetail";

const everywhere = ["plugins", "skills", "tools"];

/** Ways to a plugin. What the scan calls an error is not installed unless a person says so, and what is installed is off at first. */
export function Install({ rights }: { rights: Rights }) {
  const known = useQueryClient();
  const [source, setSource] = useState("");
  const [ref, setRef] = useState("");
  const [folder, setFolder] = useState("");
  const [shared, setShared] = useState(false);
  const [replace, setReplace] = useState(false);
  const act = useMutation({
    mutationFn: (what: Installing) => install(what),
    onSettled: () => known.invalidateQueries({ predicate: (q) => everywhere.includes(String(q.queryKey[0])) }),
  });
  const begin = (from: Source) => act.mutate({ source: from, strict: true, shared, replace });
  const submit = (e: FormEvent) => {
    e.preventDefault();
    if (source.trim() === "") return;
    begin({ source: source.trim(), ...(ref.trim() === "" ? {} : { ref: ref.trim() }), ...(folder.trim() === "" ? {} : { folder: folder.trim() }) });
  };
  return (
    <section className="split-detail" aria-label="Install a plugin">
      <div className="pane-head">
        <h2>Install a plugin</h2>
        <Link to="/plugins" search={{}} activeOptions={{ exact: true, includeSearch: true }} className="button button-quiet">
          Close
        </Link>
      </div>
      <div className="scroll" tabIndex={0} role="group" aria-label="Ways to install">
        {act.isSuccess ? (
          <Installed first={act.data} shared={act.variables.shared} onMore={() => act.reset()} />
        ) : (
          <>
            <div className="line">
              <Checkbox isSelected={replace} onChange={setReplace}>
                In place of one of that name
              </Checkbox>
              {rights.administers && (
                <Checkbox isSelected={shared} onChange={setShared}>
                  For all users of the tenant
                </Checkbox>
              )}
            </div>
            {shared && <p className="note">All users of the tenant have it at once, switched on.</p>}
            <div className="ways">
              <form className="card" onSubmit={submit}>
                <h3>From a repository or an address</h3>
                <Field label="Source" placeholder="owner/name, or https://…" value={source} onChange={setSource} maxLength={2048} autoComplete="off" />
                <Field label="Branch or tag" value={ref} onChange={setRef} maxLength={200} autoComplete="off" />
                <Field label="Folder within it" value={folder} onChange={setFolder} maxLength={512} autoComplete="off" />
                <div>
                  <Button type="submit" kind="primary" isDisabled={act.isPending || source.trim() === ""}>
                    Install
                  </Button>
                </div>
              </form>
              <div className="card">
                <h3>From this machine</h3>
                <p className="hint">An archive of the plugin&apos;s folder: ZIP, tar or tar.gz.</p>
                <div>
                  <Pick label="Choose a file…" types={[".zip", ".tar", ".gz", ".tgz", ".plugin"]} isDisabled={act.isPending} onPick={(file) => begin({ file })} />
                </div>
              </div>
              <Listed busy={act.isPending} onBegin={begin} />
            </div>
            {act.isPending && (
              <p className="note" role="status">
                The server fetches it, reads it and scans it: <Elapsed />
              </p>
            )}
            {act.isError && <Refused error={act.error} what="It was not installed" busy={act.isPending} onAnyway={act.variables.strict ? () => act.mutate({ ...act.variables, strict: false }) : undefined} />}
          </>
        )}
      </div>
    </section>
  );
}

/** What is there now, and does nothing yet. */
function Installed({ first, shared, onMore }: { first: Plugin; shared: boolean; onMore: () => void }) {
  const known = useQueryClient();
  const now = useQuery({ queryKey: [...pluginsKey, "one", first.name], queryFn: ({ signal }) => session.client.call<Plugin>({ method: "GET", path: path("plugins", first.name) }, { signal }), initialData: first });
  const remove = useMutation({
    mutationFn: () => session.client.call({ method: "DELETE", path: path("plugins", first.name) }),
    onSuccess: onMore,
    onSettled: () => known.invalidateQueries({ predicate: (q) => everywhere.includes(String(q.queryKey[0])) }),
  });
  const p = now.data;
  return (
    <section className="installed" aria-label="Installed">
      <div className="card">
        <p role="status">
          <Link to="/plugins" search={{ plugin: p.name }}>
            <Shown>{p.name}</Shown>
          </Link>{" "}
          is installed{shared ? ", for all users of the tenant" : p.enabled ? "" : ", and switched off: nothing of it is in use yet"}. Findings: {counted(p.findings) || "none"}.
        </p>
        <div className="line">
          <PluginSwitch p={p} />
          <Button kind="danger" isDisabled={remove.isPending} onPress={() => remove.mutate()}>
            {remove.isPending ? "Removing…" : "Remove it again"}
          </Button>
          <Button onPress={onMore}>Install another one</Button>
        </div>
        {remove.isError && <Failure error={remove.error} what="It was not removed" />}
      </div>
      <Findings list={p.findings} none="Neither the check of its files nor the scan found anything." />
      <Contents p={p} />
    </section>
  );
}

/** Plugins that marketplaces list. */
function Listed({ busy, onBegin }: { busy: boolean; onBegin: (s: Source) => void }) {
  const markets = useQuery({ queryKey: [...pluginsKey, "markets"], queryFn: ({ signal }) => all<Market>("/api/marketplaces", signal), staleTime: 30_000 });
  const listed = (markets.data ?? []).flatMap((m) => m.plugins.filter((e) => e.problem === undefined).map((e) => ({ id: `${m.name}\n${e.name}`, label: visible(`${e.name} (${m.name})`) })));
  const [chosen, choose] = useState("");
  const id = chosen === "" ? (listed[0]?.id ?? "") : chosen;
  const [marketplace = "", plugin = ""] = id.split("\n");
  return (
    <div className="card">
      <h3>From a marketplace</h3>
      {listed.length === 0 ? (
        <p className="hint">No marketplace was added that lists one.</p>
      ) : (
        <>
          <Choice label="Plugin of a marketplace" value={id} options={listed} onChange={choose} />
          <div>
            <Button isDisabled={busy} onPress={() => onBegin({ marketplace, plugin })}>
              Install
            </Button>
          </div>
        </>
      )}
    </div>
  );
}
